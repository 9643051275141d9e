package cli

import (
	"slices"
	"sort"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/column"
	"github.com/musterhpc/muster/cli/tree"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

// policyRow is one line of sacctmgr show: an entity, perhaps with one of its
// associations.
type policyRow struct {
	cluster string
	user    *apiv1.AccountingUser
	account *apiv1.Account
	qos     *apiv1.Qos
	assoc   *apiv1.Association
	qosList []string // in force for the association
	depth   int      // in the tree
	parent  string   // the name of the account above the association's
	lineage string   // the way to the association: /ml/0-alice/
	more    []string // the cells of an entity of few columns
	host    string   // of the controller
	port    string
	tres    [3]string
}

// policyField is a column of sacctmgr show. names are how format= may name it.
type policyField struct {
	head  string
	width int
	names []string
	text  func(r *policyRow) string
}

func optionalInt(o *apiv1.OptionalInt) string {
	if o == nil {
		return ""
	}
	return itoa(o.GetValue())
}

// limitsText writes limits: cpu=10,gres/gpu=4.
func limitsText(list []*apiv1.NamedCount) string {
	var l spec.Limits
	for _, c := range list {
		l = append(l, spec.TRESCount{Name: c.GetName(), N: c.GetN()})
	}
	return l.String()
}

// limitOf is one TRES of a limit, for the old names such as GrpCPUs.
func limitOf(list []*apiv1.NamedCount, name string) string {
	for _, c := range list {
		if c.GetName() == name {
			return itoa(c.GetN())
		}
	}
	return ""
}

// rawShares are an association's shares: 1 where none are said.
func rawShares(a *apiv1.Association) int64 {
	return (&spec.Association{Shares: a.GetShares()}).Share()
}

func wall(ns int64) string {
	if ns == 0 {
		return ""
	}
	return format.Duration(ns / second)
}

// assocFields are the columns of associations, which users, accounts and the
// cluster show too.
//
//muster:table one row for each column
func assocFields() []policyField {
	type R = policyRow
	a := func(head string, width int, get func(a *apiv1.Association) string, names ...string) policyField {
		return policyField{head, width, names, func(r *R) string { return get(r.assoc) }}
	}
	return []policyField{
		{"Cluster", 10, []string{"clusters"}, func(r *R) string { return r.cluster }},
		{"Account", 10, []string{"acct"}, func(r *R) string {
			if r.account != nil && r.assoc == nil {
				return r.account.GetName()
			}
			return r.assoc.GetAccount()
		}},
		{"User", 10, []string{"users"}, func(r *R) string {
			if r.user != nil {
				return r.user.GetName()
			}
			return r.assoc.GetUser()
		}},
		a("Partition", 10, (*apiv1.Association).GetPartition),
		a("Share", 9, func(a *apiv1.Association) string {
			switch {
			case a == nil:
				return ""
			case a.GetSharesParent():
				return "parent"
			}
			return itoa(rawShares(a))
		}, "fairshare", "shares", "rawshares"),
		a("Priority", 10, func(a *apiv1.Association) string {
			if a.GetPriority() == 0 {
				return ""
			}
			return itoa(a.GetPriority())
		}),
		a("GrpJobs", 7, func(a *apiv1.Association) string { return optionalInt(a.GetGrpJobs()) }),
		a("GrpTRES", 13, func(a *apiv1.Association) string { return limitsText(a.GetGrpTres()) }),
		a("GrpSubmit", 9, func(a *apiv1.Association) string { return optionalInt(a.GetGrpSubmitJobs()) }, "grpsubmitjobs"),
		a("GrpWall", 11, func(a *apiv1.Association) string { return wall(a.GetGrpWall()) }),
		a("GrpTRESMins", 13, func(a *apiv1.Association) string { return limitsText(a.GetGrpTresMins()) }),
		a("MaxJobs", 7, func(a *apiv1.Association) string { return optionalInt(a.GetMaxJobs()) }),
		a("MaxTRES", 13, func(a *apiv1.Association) string { return limitsText(a.GetMaxTresPerJob()) }, "maxtresperjob", "maxtrespj"),
		a("MaxTRESPerNode", 14, func(a *apiv1.Association) string { return limitsText(a.GetMaxTresPerNode()) }, "maxtrespn"),
		a("MaxSubmit", 9, func(a *apiv1.Association) string { return optionalInt(a.GetMaxSubmitJobs()) }, "maxsubmitjobs"),
		a("MaxWall", 11, func(a *apiv1.Association) string { return wall(a.GetMaxWall()) }, "maxwalldurationperjob"),
		a("MaxTRESMins", 13, func(a *apiv1.Association) string { return limitsText(a.GetMaxTresMins()) }, "maxtresminsperjob", "maxtresminspj"),
		{"QOS", 20, []string{"qoslevel"}, func(r *R) string { return strings.Join(r.qosList, ",") }},
		a("Def QOS", 9, (*apiv1.Association).GetDefaultQos, "defaultqos", "defqos"),
		a("GrpTRESRunMins", 13, func(a *apiv1.Association) string { return limitsText(a.GetGrpTresRunMins()) }),
	}
}

// hiddenAssocFields are columns that only format= shows.
func hiddenAssocFields() []policyField {
	a := func(head string, width int, get func(a *apiv1.Association) string, names ...string) policyField {
		return policyField{head, width, names, func(r *policyRow) string { return get(r.assoc) }}
	}
	return []policyField{
		a("ID", 6, func(a *apiv1.Association) string { return itoa(a.GetId()) }), a("ParentID", 8, func(a *apiv1.Association) string { return itoa(a.GetParent()) }),
		a("Comment", 20, (*apiv1.Association).GetComment),
		a("GrpJobsAccrue", 13, func(a *apiv1.Association) string { return optionalInt(a.GetGrpJobsAccrue()) }),
		a("MaxJobsAccrue", 13, func(a *apiv1.Association) string { return optionalInt(a.GetMaxJobsAccrue()) }),
		a("GuaranteedTRES", 14, func(a *apiv1.Association) string { return limitsText(a.GetGuaranteedTres()) }, "guaranteed"),
		a("OverQuotaWeight", 15, func(a *apiv1.Association) string { return optionalInt(a.GetOverQuota()) }, "overquota"),
		a("MinPrioThres", 12, func(a *apiv1.Association) string { return optionalInt(a.GetMinPrio()) }, "minpriothreshold", "minprio"),
		{"ParentName", 10, nil, func(r *policyRow) string { return r.parent }}, {"Lineage", 20, nil, func(r *policyRow) string { return r.lineage }},
		a("GrpCPUs", 8, func(a *apiv1.Association) string { return limitOf(a.GetGrpTres(), "cpu") }), a("GrpMem", 7, func(a *apiv1.Association) string { return limitOf(a.GetGrpTres(), "mem") }),
		a("GrpNodes", 8, func(a *apiv1.Association) string { return limitOf(a.GetGrpTres(), "node") }), a("MaxCPUs", 8, func(a *apiv1.Association) string { return limitOf(a.GetMaxTresPerJob(), "cpu") }),
		a("MaxNodes", 8, func(a *apiv1.Association) string { return limitOf(a.GetMaxTresPerJob(), "node") }),
	}
}

func userFields() []policyField {
	return []policyField{
		{"User", 10, []string{"users", "name"}, func(r *policyRow) string { return r.user.GetName() }},
		{"Def Acct", 10, []string{"defaultaccount", "defacct"}, func(r *policyRow) string { return r.user.GetDefaultAccount() }},
		{"Admin", 9, []string{"adminlevel"}, func(r *policyRow) string { return or(r.user.GetAdminLevel(), "None") }},
	}
}

// hiddenUserFields are columns that only format= or withcoordinator shows.
func hiddenUserFields(s *policyShow) []policyField {
	return []policyField{
		{"Def WCKey", 10, []string{"defaultwckey"}, func(r *policyRow) string { return r.user.GetDefaultWckey() }},
		{"Coord Accounts", 20, []string{"coordinators", "coordaccounts"}, func(r *policyRow) string {
			var of []string
			for _, a := range s.policy.GetAccounts() {
				if contains(a.GetCoordinators(), r.user.GetName()) {
					of = append(of, a.GetName())
				}
			}
			return strings.Join(of, ",")
		}},
	}
}

func accountFields() []policyField {
	return []policyField{
		{"Account", 10, []string{"acct", "name"}, func(r *policyRow) string { return r.account.GetName() }},
		{"Descr", 20, []string{"description"}, func(r *policyRow) string { return r.account.GetDescription() }},
		{"Org", 20, []string{"organization"}, func(r *policyRow) string { return r.account.GetOrganization() }},
	}
}

func clusterFields() []policyField {
	out := []policyField{
		{"Cluster", 10, []string{"clusters", "name"}, func(r *policyRow) string { return r.cluster }},
		{"ControlHost", 15, nil, func(r *policyRow) string { return r.host }}, {"ControlPort", 12, nil, func(r *policyRow) string { return r.port }},
		{"RPC", 5, nil, func(*policyRow) string { return "" }},
	}
	for _, name := range [...]string{"Share", "GrpJobs", "GrpTRES", "GrpSubmit", "MaxJobs", "MaxTRES", "MaxSubmit", "MaxWall", "QOS", "Def QOS"} {
		for _, f := range assocFields() {
			if f.head == name {
				out = append(out, f)
			}
		}
	}
	return out
}

//muster:table one row for each column
func qosFields() []policyField {
	q := func(head string, width int, get func(q *apiv1.Qos) string, names ...string) policyField {
		return policyField{head, width, names, func(r *policyRow) string { return get(r.qos) }}
	}
	return []policyField{
		q("Name", 10, (*apiv1.Qos).GetName), q("Priority", 10, func(q *apiv1.Qos) string { return itoa(q.GetPriority()) }),
		q("GraceTime", 10, func(q *apiv1.Qos) string { return format.Duration(q.GetGraceTime() / second) }),
		q("Preempt", 10, func(q *apiv1.Qos) string { return strings.Join(q.GetPreempt(), ",") }), q("PreemptExemptTime", 19, func(q *apiv1.Qos) string {
			if q.GetPreemptExempt() == 0 {
				return ""
			}
			return format.Duration(q.GetPreemptExempt() / second)
		}),
		q("PreemptMode", 11, func(q *apiv1.Qos) string { return or(strings.ToLower(q.GetPreemptMode()), "cluster") }),
		q("Flags", 20, func(q *apiv1.Qos) string { return strings.Join(q.GetFlags(), ",") }), q("UsageThres", 10, func(q *apiv1.Qos) string {
			if q.GetUsageThreshold() == nil {
				return ""
			}
			return millionths(q.GetUsageThreshold().GetValue())
		}, "usagethreshold"),
		q("UsageFactor", 11, func(q *apiv1.Qos) string { return micro(q.GetUsageFactor()) }),
		q("GrpTRES", 13, func(q *apiv1.Qos) string { return limitsText(q.GetGrpTres()) }), q("GrpTRESMins", 13, func(q *apiv1.Qos) string { return limitsText(q.GetGrpTresMins()) }),
		q("GrpTRESRunMins", 13, func(q *apiv1.Qos) string { return limitsText(q.GetGrpTresRunMins()) }),
		q("GrpJobs", 7, func(q *apiv1.Qos) string { return optionalInt(q.GetGrpJobs()) }), q("GrpSubmit", 9, func(q *apiv1.Qos) string { return optionalInt(q.GetGrpSubmitJobs()) }, "grpsubmitjobs"),
		q("GrpWall", 11, func(q *apiv1.Qos) string { return wall(q.GetGrpWall()) }),
		q("MaxTRES", 13, func(q *apiv1.Qos) string { return limitsText(q.GetMaxTresPerJob()) }, "maxtresperjob", "maxtrespj"),
		q("MaxTRESPerNode", 14, func(q *apiv1.Qos) string { return limitsText(q.GetMaxTresPerNode()) }, "maxtrespn"), q("MaxTRESMins", 13, func(q *apiv1.Qos) string { return limitsText(q.GetMaxTresMins()) }, "maxtresminsperjob", "maxtresminspj"),
		q("MaxWall", 11, func(q *apiv1.Qos) string { return wall(q.GetMaxWall()) }, "maxwalldurationperjob"),
		q("MaxTRESPU", 13, func(q *apiv1.Qos) string { return limitsText(q.GetMaxTresPerUser()) }, "maxtresperuser"),
		q("MaxJobsPU", 9, func(q *apiv1.Qos) string { return optionalInt(q.GetMaxJobsPerUser()) }, "maxjobsperuser", "maxjobs"),
		q("MaxSubmitPU", 11, func(q *apiv1.Qos) string { return optionalInt(q.GetMaxSubmitPerUser()) }, "maxsubmitjobsperuser", "maxsubmitjobspu"),
		q("MaxTRESPA", 13, func(q *apiv1.Qos) string { return limitsText(q.GetMaxTresPerAccount()) }, "maxtresperaccount"),
		q("MaxJobsPA", 9, func(q *apiv1.Qos) string { return optionalInt(q.GetMaxJobsPerAccount()) }, "maxjobsperaccount"),
		q("MaxSubmitPA", 11, func(q *apiv1.Qos) string { return optionalInt(q.GetMaxSubmitPerAccount()) }, "maxsubmitjobsperaccount", "maxsubmitjobspa"),
		q("MinTRES", 13, func(q *apiv1.Qos) string { return limitsText(q.GetMinTresPerJob()) }, "mintresperjob"),
	}
}

// hiddenQOSFields are columns that only format= shows.
func hiddenQOSFields() []policyField {
	q := func(head string, width int, get func(q *apiv1.Qos) string, names ...string) policyField {
		return policyField{head, width, names, func(r *policyRow) string { return get(r.qos) }}
	}
	return []policyField{
		q("ID", 6, func(q *apiv1.Qos) string { return itoa(q.GetId()) }), q("Descr", 20, (*apiv1.Qos).GetDescription, "description"),
		q("MaxTRESRunMinsPA", 17, func(q *apiv1.Qos) string { return limitsText(q.GetMaxRunMinsAccount()) }, "maxtresrunminsperaccount"),
		q("MaxTRESRunMinsPU", 17, func(q *apiv1.Qos) string { return limitsText(q.GetMaxRunMinsUser()) }, "maxtresrunminsperuser"),
		q("GrpJobsAccrue", 13, func(q *apiv1.Qos) string { return optionalInt(q.GetGrpJobsAccrue()) }),
		q("MaxJobsAccruePA", 15, func(q *apiv1.Qos) string { return optionalInt(q.GetMaxAccruePerAccount()) }, "maxjobsaccrueperaccount"),
		q("MaxJobsAccruePU", 15, func(q *apiv1.Qos) string { return optionalInt(q.GetMaxAccruePerUser()) }, "maxjobsaccrueperuser"),
		q("MinPrioThres", 12, func(q *apiv1.Qos) string { return optionalInt(q.GetMinPrio()) }, "minpriothreshold", "minprio"),
		q("LimitFactor", 11, func(q *apiv1.Qos) string {
			if q.GetLimitFactor() == 0 {
				return ""
			}
			return millionths(q.GetLimitFactor())
		}),
	}
}

// micro writes UsageFactor, where 0 stands for one and a negative number for 0.
func micro(n int64) string { return millionths((&spec.QOS{UsageFactor: n}).Factor()) }

// millionths writes them as a number with six digits.
func millionths(n int64) string {
	digits := itoa(1_000_000 + n%1_000_000)
	return itoa(n/1_000_000) + "." + digits[1:]
}

func tresFields() []policyField {
	return []policyField{
		{"Type", 8, nil, func(r *policyRow) string { return r.tres[0] }}, {"Name", 15, nil, func(r *policyRow) string { return r.tres[1] }},
		{"ID", 6, nil, func(r *policyRow) string { return r.tres[2] }},
	}
}

// showPolicy is sacctmgr show.
func (c *call) showPolicy(args []string) error {
	what := ""
	if len(args) > 0 {
		what = entity(args[0])
	}
	if what == "" {
		return badListEntity()
	}
	w := readWords(what, args[1:], false)
	switch what {
	case "coordinator":
		return badListEntity()
	case "configuration":
		return c.showConfiguration()
	case "transaction":
		return c.showTransactions(w)
	case "event":
		return c.showEvents(w)
	case "runawayjobs":
		return c.showRunaway()
	case "reservation":
		return c.showAccountedReservations(w)
	}
	var p apiv1.PolicyReply
	var ping apiv1.PingReply
	var cfg apiv1.GetConfigReply
	if err := c.askAll(question{methodGetPolicy, &apiv1.PolicyRequest{}, &p}, question{methodPing, &apiv1.PingRequest{}, &ping},
		question{methodGetConfig, &apiv1.GetConfigRequest{}, &cfg}); err != nil {
		return err
	}
	if c.wantsTree() {
		return c.policyDocument(what, &p, w)
	}
	withAssoc := c.opts.On("associations") || contains(w.bare, "withassoc")
	s := policyShow{policy: &p, words: w, host: ping.GetHost(), port: or(configValue(&cfg, "SlurmctldPort"), "6817"), config: &cfg, assocs: withAssoc,
		tree: contains(w.bare, "tree"), coords: contains(w.bare, "withcoordinator") || contains(w.bare, "withcoordinators") || contains(w.bare, "withcoord")}
	if _, chosen := get(w.where, "format"); what == "cluster" && chosen {
		var list apiv1.ListNodesReply
		if err := c.ask(methodListNodes, &apiv1.ListNodesRequest{}, &list); err != nil {
			return err
		}
		s.nodes = list.GetNodes()
	}
	rows, fields, more := s.rows(what)
	if rows == nil && fields == nil {
		return c.errorf("show %s is not supported in this release (account, association, cluster, configuration, event, federation, problem, qos, reservation, resource, runawayjobs, transaction, tres, user and wckey are)", what)
	}
	shown, err := c.policyColumns(fields, more, w)
	if err != nil {
		return err
	}
	return c.write(s.text(c.tableStyle(), shown, rows))
}

// policyShow gathers the rows of one listing.
type policyShow struct {
	policy *apiv1.PolicyReply
	config *apiv1.GetConfigReply
	words  words
	host   string
	port   string
	nodes  []*apiv1.NodeInfo // of a cluster
	assocs bool
	tree   bool
	coords bool // withcoordinator

	ids map[uint32]*apiv1.Association // see byID
}

// rows makes the rows of an entity, its usual columns and those that only
// format= shows. All are nil for an entity that cannot be shown.
func (s *policyShow) rows(what string) (rows []*policyRow, fields, more []policyField) {
	p := s.policy
	switch what {
	case "user":
		users := slices.Clone(p.GetUsers())
		slices.SortFunc(users, func(a, b *apiv1.AccountingUser) int { return strings.Compare(a.GetName(), b.GetName()) })
		for _, u := range users {
			if s.named(u.GetName()) && s.matches(u.GetDefaultAccount(), u.GetName(), what) {
				rows = append(rows, s.withAssocs(&policyRow{cluster: p.GetCluster(), user: u}, func(a *apiv1.Association) bool { return a.GetUser() == u.GetName() })...)
			}
		}
		own, hidden := userFields(), hiddenUserFields(s)
		if s.coords {
			own = append(own, hidden[1])
		}
		rows, fields, more = s.extended(rows, own)
		return rows, fields, append(more, hidden...)
	case "account":
		accounts := slices.Clone(p.GetAccounts())
		slices.SortFunc(accounts, func(a, b *apiv1.Account) int { return strings.Compare(a.GetName(), b.GetName()) })
		for _, acct := range accounts {
			if s.named(acct.GetName()) {
				rows = append(rows, s.withAssocs(&policyRow{cluster: p.GetCluster(), account: acct}, func(a *apiv1.Association) bool { return a.GetAccount() == acct.GetName() })...)
			}
		}
		own, coords := accountFields(), policyField{"Coord Users", 20, []string{"coordinators", "coordusers"}, func(r *policyRow) string { return strings.Join(r.account.GetCoordinators(), ",") }}
		if s.coords {
			own = append(own, coords)
		}
		rows, fields, more = s.extended(rows, own)
		return rows, fields, append(more, coords)
	case "qos":
		for _, q := range p.GetQos() {
			if s.named(q.GetName()) {
				rows = append(rows, &policyRow{cluster: p.GetCluster(), qos: q})
			}
		}
		return rows, qosFields(), append(hiddenQOSFields(), oldQOSFields()...)
	case "association":
		return s.treeRows(), assocFields(), append(hiddenAssocFields(), furtherAssocFields(s)...)
	case "cluster":
		if s.named(p.GetCluster()) {
			root := s.root()
			rows = append(rows, &policyRow{cluster: p.GetCluster(), host: s.host, port: s.port, assoc: root, qosList: s.qosOf(root)})
		}
		return rows, clusterFields(), hiddenClusterFields(s)
	case "tres":
		return s.tresRows(), tresFields(), nil
	}
	rows, fields = s.smallRows(what)
	return rows, fields, nil
}

// extended adds the columns of associations where they are shown, else offers
// them to format=.
func (s *policyShow) extended(rows []*policyRow, own []policyField) ([]*policyRow, []policyField, []policyField) {
	var extra []policyField
	hidden := append(hiddenAssocFields(), furtherAssocFields(s)...)
	for _, f := range append(assocFields(), hidden...) {
		if !slices.ContainsFunc(own, func(o policyField) bool { return o.head == f.head }) {
			extra = append(extra, f)
		}
	}
	if s.assocs {
		n := len(extra) - len(hidden)
		return rows, append(own, extra[:n]...), extra[n:]
	}
	return rows, own, extra
}

// withAssocs makes a row for each association of an entity, or one without.
func (s *policyShow) withAssocs(base *policyRow, belongs func(*apiv1.Association) bool) []*policyRow {
	if !s.assocs {
		return []*policyRow{base}
	}
	var out []*policyRow
	for _, a := range s.policy.GetAssociations() {
		if belongs(a) && s.matches(a.GetAccount(), a.GetUser(), "association") {
			r := *base
			r.assoc, r.qosList = a, s.qosOf(a)
			out = append(out, &r)
		}
	}
	return out
}

func (s *policyShow) named(name string) bool {
	return len(s.words.names) == 0 || slices.Contains(s.words.names, name)
}

// matches applies the conditions account=, user=, cluster= and partition=.
func (s *policyShow) matches(account, user, what string) bool {
	for _, e := range s.words.where {
		list := splitList(e.GetValue())
		switch e.GetKey() {
		case "account", "accounts", "acct", "defaultaccount":
			if (what != "user" || e.GetKey() == "defaultaccount" || !s.assocs) && !slices.Contains(list, account) {
				return false
			}
		case "user", "users":
			if !slices.Contains(list, user) {
				return false
			}
		case "cluster", "clusters":
			if !slices.Contains(list, s.policy.GetCluster()) {
				return false
			}
		}
	}
	return true
}

func (s *policyShow) byID(id uint32) *apiv1.Association {
	if s.ids == nil {
		s.ids = make(map[uint32]*apiv1.Association, len(s.policy.GetAssociations()))
		for _, a := range s.policy.GetAssociations() {
			s.ids[a.GetId()] = a
		}
	}
	return s.ids[id]
}

func (s *policyShow) root() *apiv1.Association {
	for _, a := range s.policy.GetAssociations() {
		if a.GetAccount() == "root" && a.GetUser() == "" {
			return a
		}
	}
	return nil
}

// qosOf are the QOS that an association may use: its own, else those of the
// nearest one above that has a list, else normal.
func (s *policyShow) qosOf(a *apiv1.Association) []string {
	for ; a != nil; a = s.byID(a.GetParent()) {
		if len(a.GetQos()) > 0 {
			out := slices.Clone(a.GetQos())
			sort.Strings(out)
			return out
		}
	}
	if slices.ContainsFunc(s.policy.GetQos(), func(q *apiv1.Qos) bool { return q.GetName() == "normal" }) {
		return []string{"normal"}
	}
	return nil
}

// treeRows lists associations depth first: an account, its users, its accounts.
func (s *policyShow) treeRows() []*policyRow {
	children := map[uint32][]*apiv1.Association{}
	for _, a := range s.policy.GetAssociations() {
		parent := a.GetParent()
		if s.byID(parent) == nil {
			parent = 0
		}
		children[parent] = append(children[parent], a)
	}
	var out []*policyRow
	var walk func(parent uint32, depth int)
	walk = func(parent uint32, depth int) {
		list := children[parent]
		slices.SortStableFunc(list, func(a, b *apiv1.Association) int {
			if (a.GetUser() == "") != (b.GetUser() == "") {
				if a.GetUser() != "" {
					return -1
				}
				return 1
			}
			return int(a.GetId()) - int(b.GetId())
		})
		for _, a := range list {
			if (len(s.words.names) == 0) && s.matches(a.GetAccount(), a.GetUser(), "association") && s.inPartition(a) {
				r := &policyRow{cluster: s.policy.GetCluster(), assoc: a, qosList: s.qosOf(a), depth: depth}
				r.parent, r.lineage = s.place(a)
				out = append(out, r)
			}
			walk(a.GetId(), depth+1)
		}
	}
	walk(0, 0)
	return out
}

// inPartition applies the condition partition=.
func (s *policyShow) inPartition(a *apiv1.Association) bool {
	parts, ok := get(s.words.where, "partition", "partitions")
	return !ok || slices.Contains(splitList(parts), a.GetPartition())
}

// place is where an association stands: the account above its own, and the
// way from the root.
func (s *policyShow) place(a *apiv1.Association) (parent, lineage string) {
	if up := s.byID(a.GetParent()); up != nil && a.GetUser() == "" {
		parent = up.GetAccount()
	}
	if a.GetUser() != "" {
		lineage = "0-" + a.GetUser() + "/"
		if a.GetPartition() != "" {
			lineage += a.GetPartition() + "/"
		}
		a = s.byID(a.GetParent())
	}
	for ; a != nil && a.GetParent() != 0; a = s.byID(a.GetParent()) {
		lineage = a.GetAccount() + "/" + lineage
	}
	return parent, "/" + lineage
}

// tresRows are the TRES that are accounted.
func (s *policyShow) tresRows() []*policyRow {
	names := []string{"cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages"}
	out := make([]*policyRow, 0, len(names))
	add := func(name string, id int) {
		kind, rest, _ := strings.Cut(name, "/")
		out = append(out, &policyRow{tres: [3]string{kind, rest, itoa(id)}})
	}
	for i, n := range names {
		add(n, i+1)
	}
	next := 1001
	for _, n := range splitList(configValue(s.config, "AccountingStorageTRES")) {
		if n = strings.ToLower(strings.TrimSpace(n)); !slices.Contains(names, n) {
			add(n, next)
			next++
		}
	}
	return out
}

// policyColumns reads format=; name%width sets the width.
func (c *call) policyColumns(fields, more []policyField, w words) ([]policyField, error) {
	text, ok := get(w.where, "format")
	if !ok {
		return fields, nil
	}
	all := append(slices.Clone(fields), more...)
	var out []policyField
	for _, part := range splitList(text) {
		name, width, sized, err := column.Sized(strings.TrimSpace(part))
		if err != nil {
			return nil, c.errorf("%v", err)
		}
		i := findPolicyField(all, name)
		if i < 0 {
			return nil, fail(1, " Unknown field '"+name+"'")
		}
		f := all[i]
		if sized {
			f.width = width
		}
		out = append(out, f)
	}
	return out, nil
}

// findPolicyField finds a column by a name or the beginning of one.
func findPolicyField(all []policyField, name string) int {
	plain := func(s string) string { return strings.ReplaceAll(strings.ToLower(s), " ", "") }
	typed := plain(name)
	for _, match := range [...]func(s string) bool{
		func(s string) bool { return plain(s) == typed },
		func(s string) bool { return len(typed) >= 2 && strings.HasPrefix(plain(s), typed) },
	} {
		i := slices.IndexFunc(all, func(f policyField) bool { return match(f.head) || slices.ContainsFunc(f.names, match) })
		if i >= 0 {
			return i
		}
	}
	return -1
}

// treeless is the width of Account where there is no tree.
const treeless = 10

func (s *policyShow) text(style column.Style, fields []policyField, rows []*policyRow) []byte {
	heads := make([]column.Field, len(fields))
	for i, f := range fields {
		heads[i] = column.Field{Name: f.head, Width: f.width}
		if s.tree && f.head == "Account" && f.width == treeless {
			heads[i].Width = -20
		}
	}
	b := style.Header(nil, heads)
	texts := make([]string, len(fields))
	for _, r := range rows {
		for i, f := range fields {
			texts[i] = f.text(r)
			if s.tree && f.head == "Account" {
				texts[i] = strings.Repeat(" ", r.depth) + texts[i]
			}
		}
		b = style.Row(b, heads, texts)
	}
	return b
}

// policyDocument is sacctmgr show --json.
func (c *call) policyDocument(what string, p *apiv1.PolicyReply, w words) error {
	s := policyShow{policy: p, words: w}
	list := tree.List{}
	key := map[string]string{"user": "users", "account": "accounts", "qos": "qos", "association": "associations", "cluster": "clusters"}[what]
	switch what {
	case "user":
		for _, u := range p.GetUsers() {
			if s.named(u.GetName()) {
				list = append(list, tree.Object{{Key: "administrator_level", Value: tree.List{or(u.GetAdminLevel(), "None")}}, {Key: "associations", Value: s.briefAssocs(func(a *apiv1.Association) bool { return a.GetUser() == u.GetName() })},
					{Key: "coordinators", Value: tree.List{}}, {Key: "default", Value: tree.Object{{Key: "account", Value: u.GetDefaultAccount()}, {Key: "wckey", Value: u.GetDefaultWckey()}}},
					{Key: "flags", Value: tree.List{}}, {Key: "name", Value: u.GetName()}, {Key: "old_name", Value: ""}, {Key: "wckeys", Value: tree.List{}}})
			}
		}
	case "account":
		for _, a := range p.GetAccounts() {
			if s.named(a.GetName()) {
				list = append(list, tree.Object{{Key: "associations", Value: s.briefAssocs(func(x *apiv1.Association) bool { return x.GetAccount() == a.GetName() })}, {Key: "coordinators", Value: tree.Strings(a.GetCoordinators())},
					{Key: "description", Value: a.GetDescription()}, {Key: "name", Value: a.GetName()}, {Key: "organization", Value: a.GetOrganization()}, {Key: "flags", Value: tree.List{}}})
			}
		}
	case "qos":
		for _, q := range p.GetQos() {
			if s.named(q.GetName()) {
				list = append(list, tree.Object{{Key: "description", Value: q.GetDescription()}, {Key: "flags", Value: tree.Strings(q.GetFlags())}, {Key: "id", Value: q.GetId()}, {Key: "name", Value: q.GetName()},
					{Key: "priority", Value: number(int64(q.GetPriority()), true, false)}})
			}
		}
	case "association":
		for _, r := range s.treeRows() {
			list = append(list, append(briefAssoc(p.GetCluster(), r.assoc), tree.Member{Key: "shares_raw", Value: rawShares(r.assoc)}, tree.Member{Key: "qos", Value: tree.Strings(r.qosList)},
				tree.Member{Key: "default", Value: tree.Object{{Key: "qos", Value: r.assoc.GetDefaultQos()}}}))
		}
	case "cluster":
		list = append(list, tree.Object{{Key: "name", Value: p.GetCluster()}, {Key: "nodes", Value: ""}, {Key: "flags", Value: tree.List{}}, {Key: "tres", Value: tree.List{}}})
	default:
		return c.errorf("show %s --json is not supported in this release", what)
	}
	return c.structured(c.opts.On("json"), c.document(tree.Member{Key: key, Value: list}))
}

func briefAssoc(cluster string, a *apiv1.Association) tree.Object {
	return tree.Object{{Key: "account", Value: a.GetAccount()}, {Key: "cluster", Value: cluster}, {Key: "partition", Value: a.GetPartition()}, {Key: "user", Value: a.GetUser()}, {Key: "id", Value: a.GetId()}}
}

func (s *policyShow) briefAssocs(belongs func(*apiv1.Association) bool) tree.List {
	out := tree.List{}
	for _, a := range s.policy.GetAssociations() {
		if belongs(a) {
			out = append(out, briefAssoc(s.policy.GetCluster(), a))
		}
	}
	return out
}
