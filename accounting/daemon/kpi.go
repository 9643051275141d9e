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

// KPIs are the figures as they were last computed; nil before that. The slice
// never changes.
func (d *Daemon) KPIs() []kpi.Value {
	if p := d.kpis.Load(); p != nil {
		return *p
	}
	return nil
}

// share of the time that computing the KPIs may take: where the store is
// large or slow they are computed less often.
const refreshShare = 10

// refreshKPIs computes the KPIs until the context ends.
func (d *Daemon) refreshKPIs(ctx context.Context) {
	for ctx.Err() == nil {
		began := d.cfg.Clock.Now()
		values, err := d.computeFigures(ctx)
		took := d.cfg.Clock.Now().Sub(began)
		switch {
		case err == nil:
			d.kpis.Store(&values)
		case ctx.Err() == nil:
			d.cfg.Log.Debug("the KPIs could not be computed", "error", err)
		}
		pause := max(d.cfg.Refresh, refreshShare*took)
		if d.KPIs() == nil {
			pause = min(pause, spec.Second) // the store is not there yet
		}
		if !d.sleepFor(ctx, pause) {
			return
		}
	}
}

// computeFigures asks for every figure over every window.
func (d *Daemon) computeFigures(ctx context.Context) ([]kpi.Value, error) {
	scope, _, err := d.openScope(ctx, 0)
	if err != nil {
		return nil, err
	}
	if scope.Seq == 0 {
		return nil, errNothingStored
	}
	out := []kpi.Value{}
	for _, window := range kpi.Windows() {
		values, err := d.figuresOver(ctx, scope, window.Name, spec.Seconds(window.Seconds), nil)
		if err != nil {
			return nil, err
		}
		out = append(out, values...)
	}
	budgets, err := d.computeBudgets(ctx, scope)
	if err != nil {
		return nil, err
	}
	d.budgets.Store(&budgets)
	if d.cfg.Enforce != nil {
		d.cfg.Enforce(
			ctx,
			slices.DeleteFunc(slices.Clone(budgets), func(s kpi.Spent) bool { return !s.Enforce }),
		)
	}
	return kpi.Bound(out, kpi.MaxKeys), nil
}

// figuresOver asks for every figure over one window before the scope's now.
// The text of the queries is added to sql, if it is not nil. With only, those of
// one dimension are computed: somebody waits for them, so the questions are
// asked at once.
func (d *Daemon) figuresOver(
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
		sources = slices.DeleteFunc(
			sources,
			func(s kpi.Source) bool { return s == kpi.Ladder },
		) // of the cluster only
	}
	answers := make([]answer, len(sources)+1) // the last is that of the drift
	ask := func(i int) {
		a := &answers[i]
		if i < len(sources) {
			q, figures := query.KPIs(scope, sources[i], window, &d.cfg.Rates, only...)
			a.sql = []string{q.Text()}
			a.values, a.err = d.figuresOf(ctx, q, figures, name, scope.Cluster)
		} else {
			a.values, a.err = d.computeDrift(ctx, scope, name, window, &a.sql)
		}
	}
	var wg sync.WaitGroup
	for i := range answers {
		if len(only) > 0 {
			wg.Go(func() { ask(i) })
			continue
		}
		ask(i)
		if answers[i].err != nil {
			break
		}
	}
	wg.Wait()
	var out []kpi.Value
	for _, a := range answers {
		if a.err != nil {
			return nil, a.err
		}
		out = append(out, a.values...)
		if sql != nil {
			*sql = append(*sql, a.sql...)
		}
	}
	return out, nil
}

// figuresOf asks for the figures over one source, in a window of a name.
func (d *Daemon) figuresOf(
	ctx context.Context,
	q query.Query,
	names []string,
	window, cluster string,
) ([]kpi.Value, error) {
	cells := make([]*float64, len(names))
	var by, key string
	dest := []any{&by, &key}
	for i := range cells {
		dest = append(dest, &cells[i])
	}
	var out []kpi.Value
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
			out = append(out, value)
		}
		return nil
	})
	return out, err
}

// computeDrift computes the figures about associations.
func (d *Daemon) computeDrift(
	ctx context.Context,
	scope query.Scope,
	name string,
	window spec.Span,
	sql *[]string,
) ([]kpi.Value, error) {
	ask := asker(
		func(ctx context.Context, q query.Query, each func(scan func(...any) error) error) error {
			*sql = append(*sql, q.Text())
			return d.cfg.Store.Query(ctx, q, each)
		},
	)
	nodes, err := queryTree(ctx, ask, scope)
	if err != nil {
		return nil, err
	}
	demand := func(window spec.Span, parts int) ([][]kpi.Use, error) {
		out := make([][]kpi.Use, parts)
		err := ask(ctx, query.Demand(scope, window, parts), func(scan func(...any) error) error {
			var part int64
			var u kpi.Use
			if err := scan(&part, &u.Account, &u.User, &u.Used); err != nil {
				return err
			}
			out[part] = append(out[part], u)
			return nil
		})
		return out, err
	}
	days := int(window / spec.Day)
	var parts [][]kpi.Use
	if days >= 2 {
		// Whole days, counted back from the window's end.
		parts, err = demand(spec.Span(days)*spec.Day, days)
		if err != nil {
			return nil, err
		}
	}
	whole := slices.Concat(parts...)
	if window != spec.Span(days)*spec.Day || days < 2 {
		one, err := demand(window, 1)
		if err != nil {
			return nil, err
		}
		whole = one[0]
	}
	var out []kpi.Value
	put := func(figure string, by kpi.Dimension, key string, ok bool, v float64) {
		out = append(
			out,
			kpi.Value{KPI: figure, By: by, Key: key, Window: name, Null: !ok, Value: v},
		)
	}
	all := kpi.Drift(nodes, whole)
	put("fairshare_drift", kpi.ByCluster, scope.Cluster, all.OK, all.Total)
	for _, key := range slices.Sorted(maps.Keys(all.Accounts)) {
		put("fairshare_drift", kpi.ByAccount, key, true, all.Accounts[key])
	}
	for _, key := range slices.Sorted(maps.Keys(all.Users)) {
		put("fairshare_drift", kpi.ByUser, key, true, all.Users[key])
	}
	var slope float64
	ok := days >= 2
	if ok {
		var x, y []float64
		for i, use := range parts {
			if day := kpi.Drift(nodes, use); day.OK {
				x, y = append(x, float64(i)), append(y, day.Total)
			}
		}
		slope, ok = kpi.Slope(x, y)
	}
	put("fairshare_drift_slope", kpi.ByCluster, scope.Cluster, ok, slope)
	return out, nil
}
