package daemon

import (
	"cmp"
	"context"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/musterhpc/muster/accounting/kpi"
	"github.com/musterhpc/muster/accounting/query"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

// Report answers sreport and muster kpi.
//
// Amounts of use are in TRES-seconds, whole, cut off: CPU-seconds, MiB-seconds,
// node-seconds. Column kinds: text, int, float; the unit says of what.
func (s Service) Report(
	ctx context.Context, request *apiv1.ReportQuery,
) (*apiv1.ReportReply, error) {
	name := strings.Join(strings.Fields(strings.ToLower(request.GetReport())), " ")
	scope, behind, err := s.D.scopeOf(ctx, request.GetCluster(), request.GetMinSeq())
	if err != nil {
		return nil, s.D.storeAway(err)
	}
	if err := s.D.mayReport(ctx, scope); err != nil {
		return nil, err
	}
	r, err := s.newReport(
		request,
		scope,
		slices.Contains([]string{"kpi", "budget", "efficiency", "waste", "idle",
			"findings", "findings sum", "findings followed", "findings unlike", "namespaces"}, name),
	)
	if err != nil {
		return nil, err
	}
	r.reply.Behind = behind
	if err := r.allTRES(ctx, name == "cluster utilization"); err != nil {
		return nil, err
	}
	switch name {
	case "cluster utilization":
		err = r.reportUtilization(ctx)
	case "cluster accountutilizationbyuser":
		err = r.reportAccounts(ctx)
	case "cluster userutilizationbyaccount":
		err = r.reportUsers(ctx, 0)
	case "cluster accountutilizationbyqos":
		err = r.reportPairs(ctx, "Account", query.KeyAccount, "QOS", query.KeyQOS)
	case "cluster wckeyutilizationbyuser":
		err = r.reportPairs(ctx, "WCKey", query.KeyWCKey, "Login", query.KeyUser)
	case "cluster userutilizationbywckey":
		err = r.reportPairs(ctx, "Login", query.KeyUser, "WCKey", query.KeyWCKey)
	case "job sizesbyaccount":
		err = r.reportSizes(ctx, true, false)
	case "job sizesbyaccountandwckey":
		err = r.reportSizes(ctx, true, true)
	case "job sizesbywckey":
		err = r.reportSizes(ctx, false, true)
	case "user top", "user topusage":
		err = r.reportUsers(ctx, max(int(request.GetTop()), 0))
	case "node events":
		err = r.nodeEvents(ctx)
	case "reservation utilization":
		err = r.reportReservations(ctx)
	case "kpi":
		err = r.reportFigures(ctx)
	case "efficiency":
		err = r.reportEfficiency(ctx)
	case "waste":
		err = r.reportWaste(ctx)
	case "idle":
		err = r.reportIdle(ctx)
	case "findings":
		err = r.reportFindings(ctx)
	case "findings sum":
		err = r.reportFindingsSum(ctx)
	case "findings followed":
		err = r.reportFindingsFollowed(ctx)
	case "findings unlike":
		err = r.reportUnlike(ctx)
	case "objectives":
		err = r.objectives(ctx)
	case "promises":
		err = r.reportPromises(ctx)
	case "fairshare":
		err = r.reportFairshare(ctx)
	case "budget":
		err = r.reportBudget(ctx)
	case "chargeback":
		err = r.reportChargeback(ctx)
	case "namespaces":
		err = r.reportNamespaces(ctx)
	default:
		return nil, spec.Refuse(
			spec.CodeBadRequest,
			fmt.Sprintf(
				"there is no report %q: it is one of %s",
				request.GetReport(),
				strings.Join(Reports(), ", "),
			),
		)
	}
	if err != nil {
		return nil, err
	}
	r.reply.Sql = strings.Join(r.sql, ";\n\n")
	return r.reply, nil
}

// Reports are the names of the reports.
func Reports() []string {
	return []string{
		"cluster AccountUtilizationByQOS",
		"cluster AccountUtilizationByUser",
		"cluster UserUtilizationByAccount",
		"cluster UserUtilizationByWckey",
		"cluster Utilization",
		"cluster WCKeyUtilizationByUser",
		"job SizesByAccount",
		"job SizesByAccountAndWckey",
		"job SizesByWckey",
		"reservation Utilization",
		"user TopUsage",
		"kpi",
		"efficiency",
		"waste",
		"idle",
		"budget",
		"chargeback",
		"namespaces",
		"fairshare",
		"objectives",
		"promises",
		"findings",
		"findings sum",
		"findings followed",
		"findings unlike",
	}
}

// report is one report being made.
type report struct {
	s     Service
	q     *apiv1.ReportQuery
	scope query.Scope
	ask   query.Report
	tres  []string
	reply *apiv1.ReportReply
	sql   []string
}

// topUsers is how many users sreport user top shows when nothing is said.
const topUsers = 10

func (s Service) newReport(
	request *apiv1.ReportQuery,
	scope query.Scope,
	untilNow bool,
) (*report, error) {
	zone, err := loadZone(request.GetZone())
	if err != nil {
		return nil, err
	}
	start, end := spec.Instant(request.GetStart()), spec.Instant(request.GetEnd())
	if untilNow {
		if w := request.GetWindow(); w > 0 {
			start, end = scope.Now-spec.Instant(w), scope.Now
		}
		if end == 0 {
			end = scope.Now
		}
		if start == 0 {
			start = end - spec.Instant(spec.Day)
		}
	}
	// sreport's window is yesterday, by the caller's calendar.
	if start == 0 {
		start = midnightBefore(scope.Now, zone, 1)
	}
	if end == 0 {
		end = midnightBefore(scope.Now, zone, 0)
		if end <= start {
			end = scope.Now
		}
	}
	end = min(end, scope.Now)
	if end < start {
		return nil, spec.Refuse(
			spec.CodeBadRequest,
			"the report's window ends before it begins, or begins in the future",
		)
	}
	tres := request.GetTres()
	if len(tres) == 0 {
		tres = []string{"cpu"}
	}
	for _, t := range tres {
		if strings.EqualFold(t, allTRES) {
			continue
		}
		probe := query.Report{TRES: t}
		if _, err := probe.Used(scope, query.KeyUser); err != nil {
			return nil, spec.Refuse(spec.CodeBadRequest, err.Error())
		}
	}
	ask := query.Report{
		Start:      start,
		End:        end,
		Accounts:   request.GetAccounts(),
		Users:      request.GetUsers(),
		Partitions: request.GetPartitions(),
		QOS:        request.GetQos(),
		WCKeys:     request.GetWckeys(),
	}
	for _, j := range request.GetJobs() {
		ref, err := query.ParseJobRef(j)
		if err != nil || ref.Task != spec.NoTask || ref.Step != "" {
			return nil, spec.Refuse(
				spec.CodeInvalidJobID,
				fmt.Sprintf("%q: a report takes whole jobs by number", j),
			)
		}
		ask.Jobs = append(ask.Jobs, uint64(ref.ID))
	}
	for _, expr := range request.GetNodes() {
		hosts, err := hostlist.Expand(expr)
		if err != nil {
			return nil, spec.Refuse(spec.CodeInvalidNodeName, err.Error())
		}
		ask.Nodes = append(ask.Nodes, hosts...)
	}
	return &report{s: s, q: request, scope: scope, tres: tres, ask: ask,
		reply: &apiv1.ReportReply{
			Start:   int64(start),
			End:     int64(end),
			Seq:     scope.Event(),
			Cluster: scope.Cluster,
		}}, nil
}

// allTRES stands for every TRES that the nodes had.
const allTRES = "all"

// allTRES fills in what ALL stands for in the window; billing is nothing that
// nodes have, so a report of what they had (capacity) leaves it out.
func (r *report) allTRES(ctx context.Context, capacity bool) error {
	i := slices.IndexFunc(r.tres, func(t string) bool { return strings.EqualFold(t, allTRES) })
	if i < 0 {
		return nil
	}
	r.tres = []string{"cpu", "mem", "node"}
	if !capacity {
		r.tres = append(r.tres, "billing")
	}
	return r.runQuery(ctx, r.ask.Kinds(r.scope), func(scan func(...any) error) error {
		var name string
		if err := scan(&name); err != nil {
			return err
		}
		r.tres = append(r.tres, name)
		return nil
	})
}

func (r *report) runQuery(
	ctx context.Context,
	q query.Query,
	each func(scan func(...any) error) error,
) error {
	r.sql = append(r.sql, q.Text())
	return r.s.D.storeAway(r.s.D.cfg.Store.Query(ctx, q, each))
}

func (r *report) addColumns(cols ...[3]string) {
	for _, c := range cols {
		r.reply.Columns = append(
			r.reply.Columns,
			&apiv1.ReportColumn{Name: c[0], Kind: c[1], Unit: c[2]},
		)
	}
}

func (r *report) addRow(cells ...any) {
	row := &apiv1.ReportRow{}
	for _, c := range cells {
		cell := &apiv1.Cell{}
		switch v := c.(type) {
		case string:
			cell.Kind = &apiv1.Cell_Text{Text: v}
		case int64:
			cell.Kind = &apiv1.Cell_Int{Int: v}
		case float64:
			cell.Kind = &apiv1.Cell_Float{Float: v}
		default:
			cell.Kind = &apiv1.Cell_Null{Null: true}
		}
		row.Cells = append(row.Cells, cell)
	}
	r.reply.Rows = append(r.reply.Rows, row)
}

// parseAmount reads a 128-bit amount of TRES-microseconds.
func parseAmount(text string) (*big.Int, error) {
	n, ok := new(big.Int).SetString(text, 10)
	if !ok {
		return nil, fmt.Errorf("the store says %q where an amount belongs", text)
	}
	return n, nil
}

// wholeSeconds cuts TRES-microseconds to TRES-seconds.
func wholeSeconds(us *big.Int) int64 { return new(big.Int).Div(us, big.NewInt(1_000_000)).Int64() }

// utilised is one TRES of the cluster over the window, in TRES-seconds.
type utilised struct {
	allocated, down, planDown, idle, planned, reported, over, count int64
}

func (r *report) utilised(ctx context.Context, tres string) (u utilised, err error) {
	request := r.ask
	request.TRES = tres
	q, err := request.Utilization(r.scope)
	if err != nil {
		return u, spec.Refuse(spec.CodeBadRequest, err.Error())
	}
	most, err := request.Most(r.scope)
	if err != nil {
		return u, spec.Refuse(spec.CodeBadRequest, err.Error())
	}
	counted := make(chan error, 1) // beside the rest: it takes the store a sixth of the time
	go func() {
		counted <- r.s.D.cfg.Store.Query(ctx, most, func(scan func(...any) error) error { return scan(&u.count) })
	}()
	err = r.runQuery(ctx, q, func(scan func(...any) error) error {
		var text [7]string
		if err := scan(&text[0], &text[1], &text[2], &text[3], &text[4], &text[5], &text[6]); err != nil {
			return err
		}
		for i, to := range [...]*int64{&u.allocated, &u.down, &u.planDown, &u.idle, &u.planned, &u.reported, &u.over} {
			n, err := parseAmount(text[i])
			if err != nil {
				return err
			}
			*to = wholeSeconds(n)
		}
		return nil
	})
	r.sql = append(r.sql, most.Text())
	failed := <-counted
	if err == nil {
		err = r.s.D.storeAway(failed)
	}
	return u, err
}

// reportUtilization is sreport cluster Utilization.
func (r *report) reportUtilization(ctx context.Context) error {
	const unit = "TRES-seconds"
	r.addColumns(
		[3]string{"Cluster", "text"},
		[3]string{"TRES Name", "text"},
		[3]string{"Allocated", "int", unit},
		[3]string{"Down", "int", unit},
		[3]string{
			"PLND Down",
			"int",
			unit,
		},
		[3]string{"Idle", "int", unit},
		[3]string{"Planned", "int", unit},
		[3]string{"Reported", "int", unit},
		[3]string{"OverCommitted", "int", unit},
		[3]string{"TresCount", "int"},
	)
	for _, tres := range r.tres {
		u, err := r.utilised(ctx, tres)
		if err != nil {
			return err
		}
		r.addRow(
			r.reply.GetCluster(),
			tres,
			u.allocated,
			u.down,
			u.planDown,
			u.idle,
			u.planned,
			u.reported,
			u.over,
			u.count,
		)
	}
	return nil
}

// shareKey is who used something; what a report does not tell apart is empty.
type shareKey struct{ account, user, qos, wckey string }

// columnFor is where a key's column goes.
func (k *shareKey) columnFor(key query.Key) *string {
	switch key {
	case query.KeyAccount:
		return &k.account
	case query.KeyUser:
		return &k.user
	case query.KeyQOS:
		return &k.qos
	}
	return &k.wckey
}

// share is what somebody used, by TRES.
type share struct {
	shareKey
	used   []*big.Int // TRES-microseconds, as report.tres
	energy int64      // joules
}

// queryUsed asks for what was used, by some keys.
func (r *report) queryUsed(ctx context.Context, by ...query.Key) (map[shareKey]*share, error) {
	out := map[shareKey]*share{}
	for i, tres := range r.tres {
		request := r.ask
		request.TRES = tres
		q, err := request.Used(r.scope, by...)
		if err != nil {
			return nil, spec.Refuse(spec.CodeBadRequest, err.Error())
		}
		err = r.runQuery(ctx, q, func(scan func(...any) error) error {
			var k shareKey
			var text string
			var millijoules int64
			var dest []any
			for _, key := range by {
				dest = append(dest, k.columnFor(key))
			}
			if err := scan(append(dest, &text, &millijoules)...); err != nil {
				return err
			}
			n, err := parseAmount(text)
			if err != nil {
				return err
			}
			sh := out[k]
			if sh == nil {
				sh = r.emptyShare(k)
				out[k] = sh
			}
			sh.used[i], sh.energy = n, millijoules/1000
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (r *report) emptyShare(key shareKey) *share {
	sh := &share{shareKey: key, used: make([]*big.Int, len(r.tres))}
	for i := range sh.used {
		sh.used[i] = new(big.Int)
	}
	return sh
}

func (a *share) add(b *share) {
	for i := range a.used {
		a.used[i] = new(big.Int).Add(a.used[i], b.used[i])
	}
	a.energy += b.energy
}

// queryTotals gives what the cluster had of each TRES, for percentages; nil where
// nobody knows.
func (r *report) queryTotals(ctx context.Context) ([]any, error) {
	out := make([]any, len(r.tres))
	for i, tres := range r.tres {
		if tres == "billing" || strings.HasPrefix(tres, "license/") {
			continue
		}
		request := r.ask
		request.TRES = tres
		q, err := request.Capacity(r.scope)
		if err != nil {
			return nil, spec.Refuse(spec.CodeBadRequest, err.Error())
		}
		err = r.runQuery(ctx, q, func(scan func(...any) error) error {
			var text string
			if err := scan(&text); err != nil {
				return err
			}
			n, err := parseAmount(text)
			if err == nil {
				out[i] = wholeSeconds(n)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// addUsageColumns adds the columns of the reports about users. Depth is how deep
// the row stands in the tree of accounts; Total is what the cluster had of the
// TRES, for percentages.
func (r *report) addUsageColumns(first ...string) {
	r.addColumns([3]string{"Cluster", "text"})
	for _, name := range first {
		r.addColumns([3]string{name, "text"})
	}
	r.addColumns(
		[3]string{"TRES Name", "text"},
		[3]string{"Used", "int", "TRES-seconds"},
		[3]string{"Energy", "int", "joules"},
		[3]string{"Depth", "int"},
		[3]string{"Total", "int", "TRES-seconds"},
	)
}

// reportUsers is sreport user TopUsage and cluster UserUtilizationByAccount: who
// used most comes first.
func (r *report) reportUsers(ctx context.Context, top int) error {
	shares, err := r.queryUsed(ctx, query.KeyAccount, query.KeyUser)
	if err != nil {
		return err
	}
	totals, err := r.queryTotals(ctx)
	if err != nil {
		return err
	}
	if r.q.GetGroup() {
		shares = r.groupUsers(shares)
	}
	list := make([]*share, 0, len(shares))
	for _, sh := range shares {
		list = append(list, sh)
	}
	slices.SortFunc(list, func(a, b *share) int {
		return cmp.Or(
			b.used[0].Cmp(a.used[0]),
			strings.Compare(a.user, b.user),
			strings.Compare(a.account, b.account),
		)
	})
	if strings.HasPrefix(strings.ToLower(strings.TrimSpace(r.q.GetReport())), "user") {
		if top == 0 {
			top = topUsers
		}
		list = list[:min(top, len(list))]
	}
	r.addUsageColumns("Login", "Proper Name", "Account")
	for _, sh := range list {
		for i, tres := range r.tres {
			r.addRow(
				r.reply.GetCluster(),
				sh.user,
				"",
				sh.account,
				tres,
				wholeSeconds(sh.used[i]),
				sh.energy,
				int64(0),
				totals[i],
			)
		}
	}
	return nil
}

// groupUsers merges a user's accounts.
func (r *report) groupUsers(shares map[shareKey]*share) map[shareKey]*share {
	out, accounts := map[shareKey]*share{}, map[string][]string{}
	for key, sh := range shares {
		user := shareKey{user: key.user}
		if out[user] == nil {
			out[user] = r.emptyShare(user)
		}
		out[user].add(sh)
		accounts[key.user] = append(accounts[key.user], key.account)
	}
	for key, sh := range out {
		slices.Sort(accounts[key.user])
		sh.account = strings.Join(accounts[key.user], ",")
	}
	return out
}

// reportFigures is muster kpi: every figure over the window, by one dimension.
func (r *report) reportFigures(ctx context.Context) error {
	by := kpi.Dimension(strings.ToLower(r.q.GetBy()))
	if by == "" {
		by = kpi.ByCluster
	}
	if !slices.Contains(kpi.Dimensions(), by) {
		return spec.Refuse(
			spec.CodeBadRequest,
			fmt.Sprintf(
				"figures are not kept by %q: it is one of cluster, partition, account, user, qos",
				by,
			),
		)
	}
	scope := r.scope
	scope.Now = r.ask.End
	values, err := r.s.D.queryWindow(ctx, scope, "", r.ask.End.Sub(r.ask.Start), &r.sql, by)
	if err != nil {
		return r.s.D.storeAway(err)
	}
	r.addColumns([3]string{string(by), "text"})
	at := map[string]int{}
	for _, k := range kpi.All() {
		if k.Source == kpi.Ladder && by != kpi.ByCluster {
			continue // of the cluster only
		}
		at[k.Name] = len(at)
		unit := string(k.Unit)
		if k.Unit == kpi.Money {
			unit = r.s.D.cfg.Rates.Currency
		}
		r.addColumns([3]string{k.Name, "float", unit})
	}
	rows := map[string][]any{}
	if by == kpi.ByCluster {
		rows[r.reply.GetCluster()] = make([]any, len(at))
	}
	for _, value := range values {
		if value.By != by || !r.isKept(by, value.Key) {
			continue
		}
		if rows[value.Key] == nil {
			rows[value.Key] = make([]any, len(at))
		}
		if !value.Null {
			rows[value.Key][at[value.KPI]] = value.Value
		}
	}
	keys := make([]string, 0, len(rows))
	for k := range rows {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		r.addRow(append([]any{k}, rows[k]...)...)
	}
	return nil
}

// isKept tells whether a row of a dimension is asked for.
func (r *report) isKept(by kpi.Dimension, key string) bool {
	list := map[kpi.Dimension][]string{kpi.ByAccount: r.ask.Accounts, kpi.ByUser: r.ask.Users, kpi.ByPartition: r.ask.Partitions}[by]
	return len(list) == 0 || slices.Contains(list, key)
}
