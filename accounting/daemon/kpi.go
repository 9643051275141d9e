package daemon

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/musterhpc/muster/accounting/kpi"
	"github.com/musterhpc/muster/accounting/query"
	"github.com/musterhpc/muster/spec"
)

// KPIs are the values that were computed last, nil before the first computation. Callers share the
// slice and must not change it.
func (d *Daemon) KPIs() []kpi.Value {
	if p := d.kpis.Load(); p != nil {
		return *p
	}
	return nil
}

// pauseFor is the shortest pause after a computation that took so long, if all of them
// may take a percentage of the time.
func pauseFor(took spec.Span, share int64) spec.Span {
	return took * spec.Span(100-share) / spec.Span(share)
}

// refreshKPIs computes the KPIs and budgets again and again until the context ends.
func (d *Daemon) refreshKPIs(ctx context.Context) {
	// The first computation publishes each window as soon as it is there, because all of them take
	// many seconds on a busy machine. Later ones replace all values at once.
	publish := func(values []kpi.Value) { d.kpis.Store(&values) }
	complete := false
	for ctx.Err() == nil {
		began := d.cfg.Clock.Now()
		values, err := d.computeKPIs(ctx, publish)
		took := d.cfg.Clock.Now().Sub(began)
		switch {
		case err == nil:
			d.kpis.Store(&values)
			complete = true
			publish = func([]kpi.Value) {}
		case ctx.Err() == nil:
			d.cfg.Log.Debug("the KPIs could not be computed", "error", err)
		}
		pause := max(d.cfg.Refresh, pauseFor(took, d.cfg.RefreshShare))
		if !complete {
			pause = min(pause, spec.Second) // the store is not there yet
		}
		if !d.sleepFor(ctx, pause) {
			return
		}
	}
}

// computeKPIs queries every KPI over every window, and publishes the budgets as of the same scope.
// It calls publish with what it has after each window.
func (d *Daemon) computeKPIs(
	ctx context.Context, publish func([]kpi.Value),
) ([]kpi.Value, error) {
	scope, _, err := d.openScope(ctx, 0)
	if err != nil {
		return nil, err
	}
	if scope.Seq == 0 {
		return nil, errNothingStored
	}
	out := []kpi.Value{}
	for _, window := range kpi.Windows() {
		values, err := d.queryWindow(ctx, scope, window.Name, spec.Seconds(window.Seconds), nil)
		if err != nil {
			return nil, err
		}
		out = append(out, values...)
		publish(kpi.Bound(out, kpi.MaxKeys))
	}
	if err := d.publishBudgets(ctx, scope); err != nil {
		return nil, err
	}
	return kpi.Bound(out, kpi.MaxKeys), nil
}

// publishBudgets computes what is left of the budgets and hands on those that are enforced.
func (d *Daemon) publishBudgets(ctx context.Context, scope query.Scope) error {
	budgets, err := d.computeBudgets(ctx, scope)
	if err != nil {
		return err
	}
	d.budgets.Store(&budgets)
	if d.cfg.Enforce == nil {
		return nil
	}
	var enforced []kpi.Spent
	for _, budget := range budgets {
		if budget.Enforce {
			enforced = append(enforced, budget)
		}
	}
	d.cfg.Enforce(ctx, enforced)
	return nil
}

// queryWindow queries every KPI over the window of the given length that ends at scope.Now. name is
// the window's name in the values. The text of the queries is added to sql, unless it is nil.
//
// With only, it queries the values of those dimensions. A user waits for such an answer, so the
// queries run concurrently; the refresh in the background runs one at a time.
func (d *Daemon) queryWindow(
	ctx context.Context,
	scope query.Scope,
	name string,
	window spec.Span,
	sql *[]string,
	only ...kpi.Dimension,
) ([]kpi.Value, error) {
	type answer struct {
		values []kpi.Value
		sql    []string
		err    error
	}
	sources := kpi.Sources()
	if len(only) > 0 && !slices.Contains(only, kpi.ByCluster) {
		// The ladder of GPU time has values of the cluster alone.
		sources = slices.DeleteFunc(sources, func(s kpi.Source) bool { return s == kpi.Ladder })
	}
	answers := make([]answer, len(sources)+1) // one for each source, and the drift of fair share
	request := func(i int) {
		a := &answers[i]
		if i == len(sources) {
			a.values, a.err = d.computeDrift(ctx, scope, name, window, &a.sql)
			return
		}
		q, names := query.KPIs(scope, sources[i], window, &d.cfg.Rates, only...)
		a.sql = []string{q.Text()}
		a.values, a.err = d.scanKPIs(ctx, q, names, name, scope.Cluster)
	}
	var wg sync.WaitGroup
	for i := range answers {
		if len(only) > 0 {
			wg.Go(func() { request(i) })
			continue
		}
		request(i)
		if answers[i].err != nil {
			break
		}
	}
	wg.Wait()
	var values []kpi.Value
	for _, a := range answers {
		if a.err != nil {
			return nil, a.err
		}
		values = append(values, a.values...)
		if sql != nil {
			*sql = append(*sql, a.sql...)
		}
	}
	return values, nil
}

// scanKPIs runs the query of one source. Its columns are the dimension, the key, and one for each
// of names, where NULL is a KPI without a value.
func (d *Daemon) scanKPIs(
	ctx context.Context,
	q query.Query,
	names []string,
	window, cluster string,
) ([]kpi.Value, error) {
	var by, key string
	dest := []any{&by, &key}
	cells := make([]*float64, len(names))
	for i := range cells {
		dest = append(dest, &cells[i])
	}
	var values []kpi.Value
	err := d.cfg.Store.Query(ctx, q, func(scan func(...any) error) error {
		if err := scan(dest...); err != nil {
			return err
		}
		if by == string(kpi.ByCluster) {
			key = cluster
		}
		for i, c := range cells {
			value := kpi.Value{
				KPI:    names[i],
				By:     kpi.Dimension(by),
				Key:    key,
				Window: window,
				Null:   c == nil,
			}
			if c != nil {
				value.Value = *c
			}
			values = append(values, value)
		}
		return nil
	})
	return values, err
}

// computeDrift computes how far the use of accounts and users is from their shares over a window,
// and how that changed from day to day.
func (d *Daemon) computeDrift(
	ctx context.Context,
	scope query.Scope,
	name string,
	window spec.Span,
	sql *[]string,
) ([]kpi.Value, error) {
	request := asker(
		func(ctx context.Context, q query.Query, each func(scan func(...any) error) error) error {
			*sql = append(*sql, q.Text())
			return d.cfg.Store.Query(ctx, q, each)
		},
	)
	nodes, err := queryTree(ctx, request, scope)
	if err != nil {
		return nil, err
	}
	days := int(window / spec.Day)
	var daily [][]kpi.Use // of whole days, counted back from the window's end
	if days >= 2 {
		daily, err = queryDemand(
			ctx, request, query.Demand(scope, spec.Span(days)*spec.Day, days), days,
		)
		if err != nil {
			return nil, err
		}
	}
	use := slices.Concat(daily...)
	if window != spec.Span(days)*spec.Day || days < 2 {
		one, err := queryDemand(ctx, request, query.Demand(scope, window, 1), 1)
		if err != nil {
			return nil, err
		}
		use = one[0]
	}
	var values []kpi.Value
	put := func(figure string, by kpi.Dimension, key string, ok bool, v float64) {
		values = append(
			values,
			kpi.Value{KPI: figure, By: by, Key: key, Window: name, Null: !ok, Value: v},
		)
	}
	drift := kpi.Drift(nodes, use)
	put("fairshare_drift", kpi.ByCluster, scope.Cluster, drift.OK, drift.Total)
	for _, account := range slices.Sorted(maps.Keys(drift.Accounts)) {
		put("fairshare_drift", kpi.ByAccount, account, true, drift.Accounts[account])
	}
	for _, user := range slices.Sorted(maps.Keys(drift.Users)) {
		put("fairshare_drift", kpi.ByUser, user, true, drift.Users[user])
	}
	slope, ok := driftSlope(nodes, daily)
	put("fairshare_drift_slope", kpi.ByCluster, scope.Cluster, ok, slope)
	return values, nil
}

// queryDemand runs a query.Demand over so many parts of a window and gives the use in each.
func queryDemand(
	ctx context.Context,
	request asker,
	demand query.Query,
	parts int,
) ([][]kpi.Use, error) {
	out := make([][]kpi.Use, parts)
	err := request(ctx, demand, func(scan func(...any) error) error {
		var part int64
		var use kpi.Use
		if err := scan(&part, &use.Account, &use.User, &use.Used); err != nil {
			return err
		}
		out[part] = append(out[part], use)
		return nil
	})
	return out, err
}

// driftSlope is the change of the drift from one day to the next, by least squares. ok is false
// where fewer than two days have a drift.
func driftSlope(nodes []kpi.Node, daily [][]kpi.Use) (slope float64, ok bool) {
	var days, totals []float64
	for i, use := range daily {
		if drift := kpi.Drift(nodes, use); drift.OK {
			days = append(days, float64(i))
			totals = append(totals, drift.Total)
		}
	}
	return kpi.Slope(days, totals)
}
