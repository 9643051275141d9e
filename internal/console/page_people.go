package console

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/spec/format"
)

// maxPeople bounds the rows of the tree.
const maxPeople = 500

// peopleData is what the page of accounts and users shows.
type peopleData struct {
	Budgets bool // those of now, which are not known for the past
	Query   string
	Tabs    []tab
	Own     []ownPlace // what the visitor may still use, by association
	Loose   bool       // the configuration does not enforce limits
	Rows    []person
	More    int // rows that do not fit
	QOS     []limited
}

// ownPlace is an association of the visitor, with every limit that binds it.
type ownPlace struct {
	Account, Partition string
	Limits             []limit
	Default            bool
	QOS                string // that its jobs may have
}

// limit is one limit with what is used of it.
type limit struct {
	Key, Of           string // its name, and whose limit it is
	Used, Limit, Left string
	Bar               int // thousandths that are used
	Tight             bool
	sort              int
}

// person is an account or a user in the tree.
type person struct {
	Key, Name, Link, Class string
	Depth                  string
	User                   bool
	Shares, Norm           string
	Usage, Effective       string
	Factor                 string
	Running, Submitted     string
	Limits                 []limit
}

// limited is a QOS with its limits.
type limited struct {
	Name, Running, Submitted string
	Limits                   []limit
}

// people answers with what scontrol show assoc_mgr shows the visitor: the tree
// and the counters that he may see, by the service's rules.
type people struct {
	rep   *apiv1.LimitUsageReply
	view  render.PolicyView
	usage map[counterKey]*apiv1.LimitUsage
	qos   map[string]*apiv1.Qos
	uid   uint32
}

// counterKey names a counter.
type counterKey struct {
	kind         apiv1.LimitUsage_Kind
	qos, subject uint32
}

// peoplePage is the tree of accounts with shares, use and limits. It is not
// shared between open pages, because it holds what is the visitor's own.
func (c *Console) peoplePage(v *visit) (answer, error) {
	reply, err := callAPI[*apiv1.LimitUsageReply](
		v,
		tool.MethodLimitUsage,
		&apiv1.LimitUsageRequest{},
	)
	if err != nil {
		return answer{}, err
	}
	p := newPeople(reply, v.id.UID)
	query := strings.TrimSpace(v.URL.Query().Get("q"))
	all := v.URL.Query().Has("all")
	data := peopleData{Query: query, Budgets: v.past == nil, Tabs: []tab{
		{Name: "Accounts", Link: peopleLink(query, false), Chosen: !all},
		{Name: "Users too", Link: peopleLink(query, true), Chosen: all},
	}}
	data.Own = p.own()
	config, err := callAPI[*apiv1.GetConfigReply](
		v,
		tool.MethodGetConfig,
		&apiv1.GetConfigRequest{},
	)
	data.Loose = err == nil &&
		!enforcesLimits(render.ConfigValue(config, "AccountingStorageEnforce"))
	data.Rows, data.More = p.tree(strings.ToLower(query), all)
	data.QOS = p.allQOS()
	return answer{page: "people", title: "People", data: data}, nil
}

// enforcesLimits tells whether a value of AccountingStorageEnforce makes limits
// bind jobs.
func enforcesLimits(value string) bool {
	for word := range strings.SplitSeq(strings.ToLower(value), ",") {
		switch strings.TrimSpace(word) {
		case "limits", "safe", "all":
			return true
		}
	}
	return false
}

func peopleLink(query string, all bool) string {
	values := url.Values{}
	if query != "" {
		values.Set("q", query)
	}
	if all {
		values.Set("all", "1")
	}
	if len(values) == 0 {
		return "/people"
	}
	return "/people?" + values.Encode()
}

func newPeople(reply *apiv1.LimitUsageReply, uid uint32) *people {
	p := &people{
		rep:   reply,
		view:  render.PolicyView{Policy: reply.GetPolicy()},
		usage: map[counterKey]*apiv1.LimitUsage{},
		qos:   map[string]*apiv1.Qos{},
		uid:   uid,
	}
	for _, usage := range reply.GetUsage() {
		p.usage[counterKey{usage.GetKind(), usage.GetQos(), usage.GetSubject()}] = usage
	}
	for _, qos := range reply.GetPolicy().GetQos() {
		p.qos[qos.GetName()] = qos
	}
	return p
}

// own lists the visitor's associations. Whose they are is said by the service,
// which knows the user of the token.
func (p *people) own() []ownPlace {
	var places []ownPlace
	me := p.rep.GetShares().GetUser()
	if me == "" {
		return nil
	}
	account := ""
	for _, user := range p.rep.GetPolicy().GetUsers() {
		if user.GetName() == me {
			account = user.GetDefaultAccount()
		}
	}
	for _, share := range p.rep.GetShares().GetShares() {
		assoc := p.view.ByID(share.GetAssoc())
		if share.GetUser() != me || assoc == nil {
			continue
		}
		place := ownPlace{
			Account:   render.Clean(assoc.GetAccount()),
			Partition: render.Clean(assoc.GetPartition()),
			Default:   assoc.GetAccount() == account && assoc.GetPartition() == "",
		}
		names := p.allowedQOS(assoc)
		place.QOS = render.Clean(strings.Join(names, ", "))
		place.Limits = p.binding(assoc, names)
		places = append(places, place)
	}
	return places
}

// allowedQOS are the QOS that jobs of an association may have: its own list, or
// that of the nearest association above it that has one.
func (p *people) allowedQOS(assoc *apiv1.Association) []string {
	for ; assoc != nil; assoc = p.view.ByID(assoc.GetParent()) {
		if len(assoc.GetQos()) > 0 {
			return assoc.GetQos()
		}
	}
	return nil
}

// binding lists every limit that binds jobs of an association in the QOS that
// it may use, the tightest first.
func (p *people) binding(assoc *apiv1.Association, names []string) []limit {
	var limits []limit
	limits = append(limits, p.ofUser(assoc)...)
	for up := assoc; up != nil; up = p.view.ByID(up.GetParent()) {
		limits = append(limits, p.ofGroup(up)...)
	}
	for _, name := range names {
		qos := p.qos[name]
		if qos == nil {
			continue
		}
		limits = append(limits, p.ofQOS(qos)...)
		limits = append(limits, p.ofQOSUser(qos)...)
		if account := p.view.ByID(assoc.GetParent()); account != nil {
			limits = append(limits, p.ofQOSAccount(qos, account)...)
		}
	}
	slices.SortStableFunc(limits, func(x, y limit) int { return cmp.Compare(y.sort, x.sort) })
	return limits
}

// counter is a counter of the service; nil when nothing was counted yet.
func (p *people) counter(kind apiv1.LimitUsage_Kind, qos, subject uint32) *apiv1.LimitUsage {
	return p.usage[counterKey{kind, qos, subject}]
}

// limitList gathers the limits of one subject.
type limitList struct {
	of   string
	list []limit
}

// count adds a limit of jobs.
func (l *limitList) count(key string, most *apiv1.OptionalInt, used int64) {
	if most != nil {
		l.list = append(
			l.list,
			newLimit(
				key,
				l.of,
				used,
				most.GetValue(),
				func(n int64) string { return formatNumber(n) },
			),
		)
	}
}

// tres adds a limit of each TRES.
func (l *limitList) tres(key string, most, used []*apiv1.NamedCount) {
	for _, message := range most {
		held := int64(0)
		for _, u := range used {
			if u.GetName() == message.GetName() {
				held = u.GetN()
			}
		}
		l.list = append(
			l.list,
			newLimit(
				key+" "+render.Clean(message.GetName()),
				l.of,
				held,
				message.GetN(),
				amountOf(key, message.GetName()),
			),
		)
	}
}

// wall adds a limit of the time that jobs run together.
func (l *limitList) wall(most int64, used *apiv1.LimitUsage) {
	if most > 0 {
		l.list = append(
			l.list,
			newLimit("GrpWall", l.of, int64(used.GetWall()), most/tool.Second, format.Duration),
		)
	}
}

// fixed adds a limit of each job, of which nothing is used up.
func (l *limitList) fixed(key, value string) {
	if value != "" {
		l.list = append(l.list, limit{Key: key, Of: l.of, Limit: render.Clean(value), sort: -1})
	}
}

// amountOf is how amounts of a TRES are written: memory with its unit, unless
// it is in minutes.
func amountOf(key, name string) func(int64) string {
	if name == "mem" && !strings.HasSuffix(key, "Mins") {
		return formatMemory
	}
	return func(n int64) string { return formatNumber(n) }
}

// newLimit compares what is used with a limit.
func newLimit(key, of string, used, most int64, text func(int64) string) limit {
	out := limit{
		Key:   key,
		Of:    of,
		Used:  text(used),
		Limit: text(most),
		Left:  text(max(most-used, 0)),
	}
	switch {
	case used >= most:
		out.Bar = 1000
	case most > 0:
		out.Bar = int(float64(max(used, 0)) / float64(most) * 1000)
	}
	out.Tight = out.Bar >= 1000
	out.sort = out.Bar
	return out
}

// ofGroup are the limits of all jobs of an association and of those below it.
func (p *people) ofGroup(assoc *apiv1.Association) []limit {
	usage := p.counter(apiv1.LimitUsage_ASSOCIATION, 0, assoc.GetId())
	l := limitList{of: nameOf(assoc)}
	l.count("GrpJobs", assoc.GetGrpJobs(), usage.GetRunning())
	l.count("GrpSubmitJobs", assoc.GetGrpSubmitJobs(), usage.GetSubmitted())
	l.count("GrpJobsAccrue", assoc.GetGrpJobsAccrue(), usage.GetAccruing())
	l.tres("GrpTRES", assoc.GetGrpTres(), usage.GetTres())
	l.tres("GrpTRESMins", assoc.GetGrpTresMins(), usage.GetTresMins())
	l.tres("GrpTRESRunMins", assoc.GetGrpTresRunMins(), usage.GetTresRunMins())
	l.wall(assoc.GetGrpWall(), usage)
	return l.list
}

// ofUser are the limits of one user's jobs and of each of them. An association
// of a user has those that it inherits; an account's bind nobody by themselves.
func (p *people) ofUser(assoc *apiv1.Association) []limit {
	usage := p.counter(apiv1.LimitUsage_ASSOCIATION, 0, assoc.GetId())
	l := limitList{of: nameOf(assoc)}
	l.count("MaxJobs", assoc.GetMaxJobs(), usage.GetRunning())
	l.count("MaxSubmitJobs", assoc.GetMaxSubmitJobs(), usage.GetSubmitted())
	l.count("MaxJobsAccrue", assoc.GetMaxJobsAccrue(), usage.GetAccruing())
	l.fixed("MaxTRES of a job", render.LimitsText(assoc.GetMaxTresPerJob()))
	l.fixed("MaxTRESPerNode", render.LimitsText(assoc.GetMaxTresPerNode()))
	l.fixed("MaxTRESMins of a job", render.LimitsText(assoc.GetMaxTresMins()))
	if assoc.GetMaxWall() > 0 {
		l.fixed("MaxWall of a job", render.Span(assoc.GetMaxWall()))
	}
	return l.list
}

// ofQOS are the limits of all jobs in a QOS, and of each of them.
func (p *people) ofQOS(qos *apiv1.Qos) []limit {
	usage := p.counter(apiv1.LimitUsage_QOS, qos.GetId(), 0)
	l := limitList{of: "QOS " + render.Clean(qos.GetName())}
	l.count("GrpJobs", qos.GetGrpJobs(), usage.GetRunning())
	l.count("GrpSubmitJobs", qos.GetGrpSubmitJobs(), usage.GetSubmitted())
	l.count("GrpJobsAccrue", qos.GetGrpJobsAccrue(), usage.GetAccruing())
	l.tres("GrpTRES", qos.GetGrpTres(), usage.GetTres())
	l.tres("GrpTRESMins", qos.GetGrpTresMins(), usage.GetTresMins())
	l.tres("GrpTRESRunMins", qos.GetGrpTresRunMins(), usage.GetTresRunMins())
	l.wall(qos.GetGrpWall(), usage)
	l.fixed("MaxTRES of a job", render.LimitsText(qos.GetMaxTresPerJob()))
	l.fixed("MaxTRESPerNode", render.LimitsText(qos.GetMaxTresPerNode()))
	l.fixed("MinTRES of a job", render.LimitsText(qos.GetMinTresPerJob()))
	l.fixed("MaxTRESMins of a job", render.LimitsText(qos.GetMaxTresMins()))
	if qos.GetMaxWall() > 0 {
		l.fixed("MaxWall of a job", render.Span(qos.GetMaxWall()))
	}
	return l.list
}

// ofQOSUser are the visitor's own limits in a QOS. A token of root, or of an
// administrator's certificate, has no uid, so that no counter is known to be
// the visitor's: then the limits stand alone.
func (p *people) ofQOSUser(qos *apiv1.Qos) []limit {
	if p.uid == identity.NoID {
		return ofAnyUser(qos)
	}
	usage := p.counter(apiv1.LimitUsage_QOS_USER, qos.GetId(), p.uid)
	l := limitList{of: "QOS " + render.Clean(qos.GetName())}
	l.count("MaxJobsPerUser", qos.GetMaxJobsPerUser(), usage.GetRunning())
	l.count("MaxSubmitJobsPerUser", qos.GetMaxSubmitPerUser(), usage.GetSubmitted())
	l.count("MaxJobsAccruePerUser", qos.GetMaxAccruePerUser(), usage.GetAccruing())
	l.tres("MaxTRESPerUser", qos.GetMaxTresPerUser(), usage.GetTres())
	l.tres("MaxTRESRunMinsPerUser", qos.GetMaxRunMinsUser(), usage.GetTresRunMins())
	return l.list
}

// ofAnyUser are the limits of each user in a QOS, without what is used of them.
func ofAnyUser(qos *apiv1.Qos) []limit {
	l := limitList{of: "QOS " + render.Clean(qos.GetName())}
	l.fixed("MaxJobsPerUser", render.OptionalInt(qos.GetMaxJobsPerUser()))
	l.fixed("MaxSubmitJobsPerUser", render.OptionalInt(qos.GetMaxSubmitPerUser()))
	l.fixed("MaxJobsAccruePerUser", render.OptionalInt(qos.GetMaxAccruePerUser()))
	l.fixed("MaxTRESPerUser", render.LimitsText(qos.GetMaxTresPerUser()))
	l.fixed("MaxTRESRunMinsPerUser", render.LimitsText(qos.GetMaxRunMinsUser()))
	return l.list
}

// ofQOSAccount are the limits of one account in a QOS.
func (p *people) ofQOSAccount(qos *apiv1.Qos, account *apiv1.Association) []limit {
	usage := p.counter(apiv1.LimitUsage_QOS_ACCOUNT, qos.GetId(), account.GetId())
	l := limitList{of: "QOS " + render.Clean(qos.GetName()) + ", " + nameOf(account)}
	l.count("MaxJobsPerAccount", qos.GetMaxJobsPerAccount(), usage.GetRunning())
	l.count("MaxSubmitJobsPerAccount", qos.GetMaxSubmitPerAccount(), usage.GetSubmitted())
	l.count("MaxJobsAccruePerAccount", qos.GetMaxAccruePerAccount(), usage.GetAccruing())
	l.tres("MaxTRESPerAccount", qos.GetMaxTresPerAccount(), usage.GetTres())
	l.tres("MaxTRESRunMinsPerAccount", qos.GetMaxRunMinsAccount(), usage.GetTresRunMins())
	return l.list
}

// nameOf says whose limits those of an association are.
func nameOf(assoc *apiv1.Association) string {
	if assoc.GetUser() != "" {
		return "user " + render.Clean(assoc.GetUser())
	}
	return "account " + render.Clean(assoc.GetAccount())
}

// tree lists accounts, and users where they are asked for or looked for.
// Whoever is below an account that was found is not left out.
func (p *people) tree(query string, all bool) (rows []person, more int) {
	me := p.rep.GetShares().GetUser()
	for _, share := range p.rep.GetShares().GetShares() {
		isUser := share.GetUser() != ""
		found := query == "" || strings.Contains(strings.ToLower(share.GetAccount()), query) ||
			strings.Contains(strings.ToLower(share.GetUser()), query)
		if !found || (isUser && !all && share.GetUser() != me && query == "") {
			continue
		}
		if len(rows) >= maxPeople {
			more++
			continue
		}
		rows = append(rows, p.row(share))
	}
	return rows, more
}

// row is an association in the tree.
func (p *people) row(share *apiv1.Share) person {
	percent := func(part float64) string { return strconv.FormatFloat(100*part, 'f', 1, 64) + " %" }
	out := person{
		Key:  strconv.FormatUint(uint64(share.GetAssoc()), 10),
		Name: render.Clean(share.GetAccount()),
		Depth: "d" +
			strconv.Itoa(int(min(share.GetDepth(), 8))),
		Shares: formatNumber(
			share.GetRawShares(),
		),
		Norm:      percent(share.GetNormShares()),
		Usage:     formatNumber(share.GetRawUsage() / 3600),
		Effective: percent(share.GetEffectiveUsage()),
	}
	if share.GetSharesParent() {
		out.Shares = "parent"
	}
	filter := "account:" + render.QuotedTerm(strings.ToLower(share.GetAccount()))
	if share.GetUser() != "" {
		out.User = true
		out.Name = render.Clean(share.GetUser())
		if share.GetPartition() != "" {
			out.Name += " in " + render.Clean(share.GetPartition())
		}
		out.Factor = strconv.FormatFloat(share.GetFactor(), 'f', 3, 64)
		filter += " user:" + render.QuotedTerm(strings.ToLower(share.GetUser()))
	}
	out.Link = queueChoice{Query: filter}.queueLink()
	if share.GetParent() == 0 {
		out.Shares = ""
		out.Norm = ""
		out.Link = "/queue"
	}
	usage := p.counter(apiv1.LimitUsage_ASSOCIATION, 0, share.GetAssoc())
	out.Running, out.Submitted = formatNumber(
		usage.GetRunning(),
	), formatNumber(
		usage.GetSubmitted(),
	)
	if assoc := p.view.ByID(share.GetAssoc()); assoc != nil {
		out.Limits = p.ofGroup(assoc)
		if out.User {
			out.Limits = append(out.Limits, p.ofUser(assoc)...)
		}
	}
	return out
}

// allQOS lists the QOS with the limits of all of their jobs.
func (p *people) allQOS() []limited {
	var out []limited
	for _, qos := range p.rep.GetPolicy().GetQos() {
		usage := p.counter(apiv1.LimitUsage_QOS, qos.GetId(), 0)
		out = append(
			out,
			limited{
				Name:      render.Clean(qos.GetName()),
				Running:   formatNumber(usage.GetRunning()),
				Submitted: formatNumber(usage.GetSubmitted()),
				Limits:    p.ofQOS(qos),
			},
		)
	}
	slices.SortFunc(out, func(a, b limited) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// budgetData is what the part about budgets shows.
type budgetData struct {
	Missing string
	Rows    []budgetRow
}

// budgetRow is an account's money.
type budgetRow struct {
	Account, Money, Spent, Share string
	From, To, RunsOut            moment
	Bar                          int
	Tight, Enforced              bool
}

// The columns of the report about budgets.
const (
	budgetAccount  = 0
	budgetStart    = 1
	budgetEnd      = 2
	budgetMoney    = 3
	budgetSpent    = 4
	budgetShare    = 5
	budgetRunsOut  = 8
	budgetEnforced = 10
)

// budgetPart is muster report budget: the accounting says whose the visitor sees.
func (c *Console) budgetPart(v *visit) (answer, error) {
	out := answer{page: "budgets", title: "Budgets", bare: v.Header.Get("X-Console") != ""}
	reply, err := callAPI[*apiv1.ReportReply](
		v,
		tool.MethodAcctReport,
		&apiv1.ReportQuery{Report: "budget"},
	)
	if err != nil {
		refused := tool.ExplainError(err)
		out.data = budgetData{Missing: render.Clean(cmp.Or(refused.Detail, refused.Text))}
		return out, nil
	}
	data := budgetData{}
	for _, row := range reply.GetRows() {
		if len(row.GetCells()) > budgetEnforced && len(reply.GetColumns()) > budgetSpent {
			data.Rows = append(data.Rows, newBudgetRow(row.GetCells(), reply.GetColumns()))
		}
	}
	if len(data.Rows) == 0 {
		data.Missing = "you see no account that has one"
	}
	out.data = data
	return out, nil
}

func newBudgetRow(cells []*apiv1.Cell, columns []*apiv1.ReportColumn) budgetRow {
	money := func(i int) string {
		whole, cents, _ := strings.Cut(strconv.FormatFloat(cells[i].GetFloat(), 'f', 2, 64), ".")
		return strings.TrimSpace(count(whole) + "." + cents + " " +
			render.Clean(columns[i].GetUnit()))
	}
	share := cells[budgetShare].GetFloat()
	row := budgetRow{
		Account: render.Clean(cells[budgetAccount].GetText()),
		Money:   money(budgetMoney),
		Spent:   money(budgetSpent),
		Share: strconv.FormatFloat(100*share, 'f', 1, 64) +
			" %",
		From: newMoment(
			cells[budgetStart].GetInt() * tool.Second,
		),
		To:       newMoment(cells[budgetEnd].GetInt() * tool.Second),
		Bar:      int(1000 * min(max(share, 0), 1)),
		Tight:    share >= 1,
		Enforced: cells[budgetEnforced].GetInt() > 0,
	}
	if !cells[budgetRunsOut].GetNull() {
		row.RunsOut = newMoment(cells[budgetRunsOut].GetInt() * tool.Second)
	}
	return row
}
