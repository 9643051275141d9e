package render

import (
	"cmp"
	"slices"
	"sort"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/column"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

// PolicyWords is what stands behind an entity.
type PolicyWords struct {
	Names []string
	Where []*apiv1.ConfigEntry
	Set   []*apiv1.ConfigEntry
	Bare  []string // withassoc, tree
}

// PolicyWord finds the value of a key.
func PolicyWord(list []*apiv1.ConfigEntry, keys ...string) (string, bool) {
	for _, entry := range slices.Backward(list) {
		if slices.Contains(keys, entry.GetKey()) {
			return entry.GetValue(), true
		}
	}
	return "", false
}

// PolicyRow is one line of sacctmgr show: an entity, perhaps with one of its
// associations.
type PolicyRow struct {
	cluster string
	user    *apiv1.AccountingUser
	account *apiv1.Account
	QOS     *apiv1.Qos
	Assoc   *apiv1.Association
	QOSList []string            // in force for the association
	depth   int                 // in the tree
	parent  string              // the name of the account above the association's
	lineage string              // the way to the association: /ml/0-alice/
	More    []string            // the cells of an entity of few columns
	other   *apiv1.KnownCluster // of a cluster that is not this one
	host    string              // of the controller
	port    string
	TRES    [3]string
}

// PolicyField is a column of sacctmgr show. names are how format= may name it.
type PolicyField struct {
	head  string
	Width int
	Names []string
	text  func(r *PolicyRow) string
}

func OptionalInt(optional *apiv1.OptionalInt) string {
	if optional == nil {
		return ""
	}
	return tool.Itoa(optional.GetValue())
}

// LimitsText writes limits: cpu=10,gres/gpu=4.
func LimitsText(list []*apiv1.NamedCount) string {
	var limits spec.Limits
	for _, c := range list {
		limits = append(limits, spec.TRESCount{Name: c.GetName(), N: c.GetN()})
	}
	return limits.String()
}

// limitOf is one TRES of a limit, for the old names such as GrpCPUs.
func limitOf(list []*apiv1.NamedCount, name string) string {
	for _, c := range list {
		if c.GetName() == name {
			return tool.Itoa(c.GetN())
		}
	}
	return ""
}

// RawShares are an association's shares: 1 where none are said.
func RawShares(association *apiv1.Association) int64 {
	return (&spec.Association{Shares: association.GetShares()}).Share()
}

func formatWall(ns int64) string {
	if ns == 0 {
		return ""
	}
	return format.Duration(ns / tool.Second)
}

// formatUsageFactor writes UsageFactor, where 0 stands for one and a negative number for 0.
func formatUsageFactor(
	n int64,
) string {
	return formatMillionths((&spec.QOS{UsageFactor: n}).Factor())
}

// formatMillionths writes them as a number with six digits.
func formatMillionths(n int64) string {
	digits := tool.Itoa(1_000_000 + n%1_000_000)
	return tool.Itoa(n/1_000_000) + "." + digits[1:]
}

// PolicyView gathers the rows of one listing.
type PolicyView struct {
	Policy *apiv1.PolicyReply
	Config *apiv1.GetConfigReply
	Words  PolicyWords
	Host   string
	Port   string
	Nodes  []*apiv1.NodeInfo // of a cluster
	Assocs bool
	Tree   bool
	Coords bool // withcoordinator

	ids       map[uint32]*apiv1.Association // see byID
	inherited bool                          // see inheritLimits
}

// Rows makes the rows of an entity, its usual columns and those that only
// format= shows. All are nil for an entity that cannot be shown.
func (s *PolicyView) Rows(what string) (rows []*PolicyRow, fields, more []PolicyField) {
	policy := s.Policy
	switch what {
	case "user":
		users := slices.Clone(policy.GetUsers())
		slices.SortFunc(
			users,
			func(a, b *apiv1.AccountingUser) int { return strings.Compare(a.GetName(), b.GetName()) },
		)
		for _, user := range users {
			if s.Named(user.GetName()) &&
				s.matchesConditions(user.GetDefaultAccount(), user.GetName(), what) {
				rows = append(
					rows,
					s.withAssocs(
						&PolicyRow{cluster: policy.GetCluster(), user: user},
						func(a *apiv1.Association) bool { return a.GetUser() == user.GetName() },
					)...)
			}
		}
		own, hidden := userFields(), hiddenUserFields(s)
		if s.Coords {
			own = append(own, hidden[1])
		}
		rows, fields, more = s.extendRows(rows, own)
		return rows, fields, append(more, hidden...)
	case "account":
		accounts := slices.Clone(policy.GetAccounts())
		slices.SortFunc(
			accounts,
			func(a, b *apiv1.Account) int { return strings.Compare(a.GetName(), b.GetName()) },
		)
		for _, acct := range accounts {
			if s.Named(acct.GetName()) {
				rows = append(
					rows,
					s.withAssocs(
						&PolicyRow{cluster: policy.GetCluster(), account: acct},
						func(a *apiv1.Association) bool { return a.GetAccount() == acct.GetName() },
					)...)
			}
		}
		own, coords := accountFields(), PolicyField{
			"Coord Users",
			20,
			[]string{"coordinators", "coordusers"},
			func(r *PolicyRow) string { return strings.Join(r.account.GetCoordinators(), ",") },
		}
		if s.Coords {
			own = append(own, coords)
		}
		rows, fields, more = s.extendRows(rows, own)
		return rows, fields, append(more, coords)
	case "qos":
		byID := slices.Clone(policy.GetQos())
		slices.SortFunc(byID, func(a, b *apiv1.Qos) int { return cmp.Compare(a.GetId(), b.GetId()) })
		for _, qos := range byID {
			if s.Named(qos.GetName()) {
				rows = append(rows, &PolicyRow{cluster: policy.GetCluster(), QOS: qos})
			}
		}
		return rows, QOSFields(), append(hiddenQOSFields(), oldQOSFields()...)
	case "association":
		return s.TreeRows(), assocFields(), append(hiddenAssocFields(), furtherAssocFields(s)...)
	case "cluster":
		if s.Named(policy.GetCluster()) {
			root := s.findRoot()
			rows = append(
				rows,
				&PolicyRow{
					cluster: policy.GetCluster(),
					host:    s.Host,
					port:    s.Port,
					Assoc:   root,
					QOSList: s.qosOf(root),
				},
			)
		}
		for _, other := range policy.GetClusters() {
			if s.Named(other.GetName()) {
				rows = append(rows, otherCluster(other))
			}
		}
		return rows, clusterFields(), hiddenClusterFields(s)
	case "tres":
		return s.TRESRows(), TRESFields(), nil
	}
	rows, fields = s.smallRows(what)
	return rows, fields, nil
}

// otherCluster is the row of a cluster that is not this one: its limits are its own.
func otherCluster(other *apiv1.KnownCluster) *PolicyRow {
	port := ""
	if other.GetPort() != 0 {
		port = tool.Itoa(other.GetPort())
	}
	return &PolicyRow{cluster: other.GetName(), other: other, host: other.GetHost(), port: port}
}

// extendRows adds the columns of associations where they are shown, else offers
// them to format=.
func (s *PolicyView) extendRows(
	rows []*PolicyRow,
	own []PolicyField,
) ([]*PolicyRow, []PolicyField, []PolicyField) {
	var extra []PolicyField
	hidden := append(hiddenAssocFields(), furtherAssocFields(s)...)
	for _, field := range append(assocFields(), hidden...) {
		if !slices.ContainsFunc(own, func(o PolicyField) bool { return o.head == field.head }) {
			extra = append(extra, field)
		}
	}
	if s.Assocs {
		n := len(extra) - len(hidden)
		return rows, append(own, extra[:n]...), extra[n:]
	}
	return rows, own, extra
}

// withAssocs makes a row for each association of an entity, or one without.
func (s *PolicyView) withAssocs(
	base *PolicyRow,
	belongs func(*apiv1.Association) bool,
) []*PolicyRow {
	if !s.Assocs {
		return []*PolicyRow{base}
	}
	s.inheritLimits()
	var rows []*PolicyRow
	for _, assoc := range s.Policy.GetAssociations() {
		if belongs(assoc) &&
			s.matchesConditions(assoc.GetAccount(), assoc.GetUser(), "association") {
			row := *base
			row.Assoc, row.QOSList = assoc, s.qosOf(assoc)
			rows = append(rows, &row)
		}
	}
	return rows
}

func (s *PolicyView) Named(name string) bool {
	return len(s.Words.Names) == 0 || slices.Contains(s.Words.Names, name)
}

// matchesConditions applies the conditions account=, user=, cluster= and partition=.
func (s *PolicyView) matchesConditions(account, user, what string) bool {
	for _, entry := range s.Words.Where {
		list := tool.SplitList(entry.GetValue())
		switch entry.GetKey() {
		case "account", "accounts", "acct", "defaultaccount":
			if (what != "user" || entry.GetKey() == "defaultaccount" || !s.Assocs) &&
				!slices.Contains(list, account) {
				return false
			}
		case "user", "users":
			if !slices.Contains(list, user) {
				return false
			}
		case "cluster", "clusters":
			if !slices.Contains(list, s.Policy.GetCluster()) {
				return false
			}
		}
	}
	return true
}

func (s *PolicyView) ByID(id uint32) *apiv1.Association {
	if s.ids == nil {
		s.ids = make(map[uint32]*apiv1.Association, len(s.Policy.GetAssociations()))
		for _, association := range s.Policy.GetAssociations() {
			s.ids[association.GetId()] = association
		}
	}
	return s.ids[id]
}

func (s *PolicyView) findRoot() *apiv1.Association {
	for _, association := range s.Policy.GetAssociations() {
		if association.GetAccount() == "root" && association.GetUser() == "" {
			return association
		}
	}
	return nil
}

// qosOf are the QOS that an association may use: its own, else those of the
// nearest one above that has a list, else normal.
func (s *PolicyView) qosOf(assoc *apiv1.Association) []string {
	for ; assoc != nil; assoc = s.ByID(assoc.GetParent()) {
		if len(assoc.GetQos()) > 0 {
			out := slices.Clone(assoc.GetQos())
			sort.Strings(out)
			return out
		}
	}
	if slices.ContainsFunc(
		s.Policy.GetQos(),
		func(q *apiv1.Qos) bool { return q.GetName() == "normal" },
	) {
		return []string{"normal"}
	}
	return nil
}

// inheritLimits fills the associations' limits for each job with those of the accounts above
// them, which are in force where an association has none of its own. WOPLimits leaves them out.
func (s *PolicyView) inheritLimits() {
	if s.inherited {
		return
	}
	s.inherited = true
	if slices.ContainsFunc(s.Words.Bare, func(word string) bool {
		return len(word) >= 4 && strings.HasPrefix("woplimits", word)
	}) {
		return
	}
	for _, assoc := range s.Policy.GetAssociations() {
		for up := s.ByID(assoc.GetParent()); up != nil; up = s.ByID(up.GetParent()) {
			if assoc.GetMaxWall() <= 0 {
				assoc.MaxWall = up.GetMaxWall()
			}
			assoc.MaxJobs = cmp.Or(assoc.GetMaxJobs(), up.GetMaxJobs())
			assoc.MaxSubmitJobs = cmp.Or(assoc.GetMaxSubmitJobs(), up.GetMaxSubmitJobs())
			assoc.MaxJobsAccrue = cmp.Or(assoc.GetMaxJobsAccrue(), up.GetMaxJobsAccrue())
			assoc.MinPrio = cmp.Or(assoc.GetMinPrio(), up.GetMinPrio())
			assoc.MaxTresPerJob = inheritTRES(assoc.GetMaxTresPerJob(), up.GetMaxTresPerJob())
			assoc.MaxTresPerNode = inheritTRES(assoc.GetMaxTresPerNode(), up.GetMaxTresPerNode())
			assoc.MaxTresMins = inheritTRES(assoc.GetMaxTresMins(), up.GetMaxTresMins())
		}
	}
}

// isDefault tells, with OnlyDefaults, the associations of users with their default accounts from
// the others; without it, all pass.
func (s *PolicyView) isDefault(assoc *apiv1.Association) bool {
	if !slices.Contains(s.Words.Bare, "onlydefaults") {
		return true
	}
	return slices.ContainsFunc(s.Policy.GetUsers(), func(user *apiv1.AccountingUser) bool {
		return user.GetName() == assoc.GetUser() && user.GetDefaultAccount() == assoc.GetAccount()
	})
}

// inheritTRES adds the TRES that are limited above only.
func inheritTRES(own, above []*apiv1.NamedCount) []*apiv1.NamedCount {
	for _, limit := range above {
		same := func(n *apiv1.NamedCount) bool { return n.GetName() == limit.GetName() }
		if !slices.ContainsFunc(own, same) {
			own = append(own, limit)
		}
	}
	return own
}

// TreeRows lists associations depth first: an account, its users, its accounts.
func (s *PolicyView) TreeRows() []*PolicyRow {
	s.inheritLimits()
	children := map[uint32][]*apiv1.Association{}
	for _, assoc := range s.Policy.GetAssociations() {
		parent := assoc.GetParent()
		if s.ByID(parent) == nil {
			parent = 0
		}
		children[parent] = append(children[parent], assoc)
	}
	var rows []*PolicyRow
	var walk func(parent uint32, depth int)
	walk = func(parent uint32, depth int) {
		list := children[parent]
		slices.SortStableFunc(list, func(assoc, association *apiv1.Association) int {
			if (assoc.GetUser() == "") != (association.GetUser() == "") {
				if assoc.GetUser() != "" {
					return -1
				}
				return 1
			}
			return cmp.Or(
				strings.Compare(assoc.GetAccount(), association.GetAccount()),
				strings.Compare(assoc.GetUser(), association.GetUser()),
				cmp.Compare(assoc.GetId(), association.GetId()),
			)
		})
		for _, assoc := range list {
			if (len(s.Words.Names) == 0) &&
				s.matchesConditions(assoc.GetAccount(), assoc.GetUser(), "association") &&
				s.isDefault(assoc) &&
				s.inPartition(assoc) {
				row := &PolicyRow{
					cluster: s.Policy.GetCluster(),
					Assoc:   assoc,
					QOSList: s.qosOf(assoc),
					depth:   depth,
				}
				row.parent, row.lineage = s.Place(assoc)
				rows = append(rows, row)
			}
			walk(assoc.GetId(), depth+1)
		}
	}
	walk(0, 0)
	IndentFromTop(rows, func(row *PolicyRow) *int { return &row.depth })
	return rows
}

// IndentFromTop makes the highest of the rows that are shown stand at the margin. depth gives
// where a row keeps how deep in the tree it is.
func IndentFromTop[Row any, Depth int | uint32](rows []Row, depth func(Row) *Depth) {
	if len(rows) == 0 {
		return
	}
	top := *depth(rows[0])
	for _, row := range rows {
		top = min(top, *depth(row))
	}
	for _, row := range rows {
		*depth(row) -= top
	}
}

// inPartition applies the condition partition=.
func (s *PolicyView) inPartition(association *apiv1.Association) bool {
	parts, ok := PolicyWord(s.Words.Where, "partition", "partitions")
	return !ok || slices.Contains(tool.SplitList(parts), association.GetPartition())
}

// Place is where an association stands: the account above its own, and the
// way from the root.
func (s *PolicyView) Place(assoc *apiv1.Association) (parent, lineage string) {
	if up := s.ByID(assoc.GetParent()); up != nil && assoc.GetUser() == "" {
		parent = up.GetAccount()
	}
	if assoc.GetUser() != "" {
		lineage = "0-" + assoc.GetUser() + "/"
		if assoc.GetPartition() != "" {
			lineage += assoc.GetPartition() + "/"
		}
		assoc = s.ByID(assoc.GetParent())
	}
	for ; assoc != nil && assoc.GetParent() != 0; assoc = s.ByID(assoc.GetParent()) {
		lineage = assoc.GetAccount() + "/" + lineage
	}
	return parent, "/" + lineage
}

// TRESRows are the TRES that are accounted.
func (s *PolicyView) TRESRows() []*PolicyRow {
	names := []string{"cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages"}
	rows := make([]*PolicyRow, 0, len(names))
	add := func(name string, id int) {
		kind, rest, _ := strings.Cut(name, "/")
		rows = append(rows, &PolicyRow{TRES: [3]string{kind, rest, tool.Itoa(id)}})
	}
	for i, n := range names {
		add(n, i+1)
	}
	next := 1001
	for _, name := range tool.SplitList(ConfigValue(s.Config, "AccountingStorageTRES")) {
		name = strings.ToLower(strings.TrimSpace(name))
		if !slices.Contains(names, name) {
			add(name, next)
			next++
		}
	}
	return rows
}

// FindPolicyField finds a column by a name or the beginning of one.
func FindPolicyField(all []PolicyField, name string) int {
	plain := func(s string) string { return strings.ReplaceAll(strings.ToLower(s), " ", "") }
	typed := plain(name)
	for _, match := range [...]func(s string) bool{
		func(s string) bool { return plain(s) == typed },
		func(s string) bool { return len(typed) >= 2 && strings.HasPrefix(plain(s), typed) },
	} {
		i := slices.IndexFunc(
			all,
			func(f PolicyField) bool { return match(f.head) || slices.ContainsFunc(f.Names, match) },
		)
		if i >= 0 {
			return i
		}
	}
	return -1
}

// treeless is the width of Account where there is no tree.
const treeless = 10

func (s *PolicyView) Text(style column.Style, fields []PolicyField, rows []*PolicyRow) []byte {
	heads := make([]column.Field, len(fields))
	for i, field := range fields {
		heads[i] = column.Field{Name: field.head, Width: field.Width}
		if s.Tree && field.head == "Account" && field.Width == treeless {
			heads[i].Width = -20
		}
	}
	data := style.Header(nil, heads)
	texts := make([]string, len(fields))
	for _, row := range rows {
		for i, field := range fields {
			texts[i] = field.text(row)
			if s.Tree && field.head == "Account" {
				texts[i] = strings.Repeat(" ", row.depth) + texts[i]
			}
		}
		data = style.Row(data, heads, texts)
	}
	return data
}

func BriefAssoc(cluster string, association *apiv1.Association) tree.Object {
	return tree.Object{
		{Key: "account", Value: association.GetAccount()},
		{Key: "cluster", Value: cluster},
		{Key: "partition", Value: association.GetPartition()},
		{Key: "user", Value: association.GetUser()},
		{Key: "id", Value: association.GetId()},
	}
}

func (s *PolicyView) BriefAssocs(belongs func(*apiv1.Association) bool) tree.List {
	out := tree.List{}
	for _, association := range s.Policy.GetAssociations() {
		if belongs(association) {
			out = append(out, BriefAssoc(s.Policy.GetCluster(), association))
		}
	}
	return out
}
