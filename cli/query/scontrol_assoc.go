package query

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
)

// assocMgr is scontrol show assoc_mgr: what is used of each limit.
type assocMgr struct {
	c    *tool.Call
	rep  *apiv1.LimitUsageReply
	show render.PolicyView
	tres []string // those that are always written, in order

	users, accounts, qos []string // only these; none = all
	flags                []string // the sections; none = all

	shares map[uint32]*apiv1.Share
	usage  map[counterOf]*apiv1.LimitUsage
	people map[string]*apiv1.AccountingUser
}

// counterOf names a counter.
type counterOf struct {
	kind         apiv1.LimitUsage_Kind
	qos, subject uint32
}

// boundTRES is one TRES of a limit: -1 = no limit.
type boundTRES struct {
	name        string
	limit, used int64
}

// bound is one limit with what is used of it.
type bound struct {
	key   string
	limit *apiv1.OptionalInt
	used  string // empty: nothing is counted for it
	list  []boundTRES
	kind  boundKind
}

// boundKind is how a limit is written.
type boundKind uint8

const (
	countUsed boundKind = iota // 4(2), or N(2) without a limit
	countOnly                  // 4, or nothing
	tresUsed                   // cpu=4(2),mem=N(0)
	tresOnly                   // cpu=4
)

// text is KEY=VALUE.
func (l *bound) text() string {
	parts := make([]string, len(l.list))
	switch l.kind {
	case countUsed:
		return l.key + "=" + cmp.Or(render.OptionalInt(l.limit), "N") + "(" + l.used + ")"
	case countOnly:
		return l.key + "=" + render.OptionalInt(l.limit)
	case tresUsed:
		for i, t := range l.list {
			limit := "N"
			if t.limit >= 0 {
				limit = tool.Itoa(t.limit)
			}
			parts[i] = t.name + "=" + limit + "(" + tool.Itoa(t.used) + ")"
		}
	case tresOnly:
		for i, t := range l.list {
			parts[i] = t.name + "=" + tool.Itoa(t.limit)
		}
	}
	return l.key + "=" + strings.Join(parts, ",")
}

// documentMember is the limit in a document.
func (l *bound) documentMember() tree.Member {
	used := func(o tree.Object, n any) tree.Object {
		if l.kind == countUsed || l.kind == tresUsed {
			o = append(o, tree.Member{Key: "used", Value: n})
		}
		return o
	}
	if l.kind == countUsed || l.kind == countOnly {
		var n any
		if whole, err := strconv.ParseInt(l.used, 10, 64); err == nil {
			n = whole
		} else if part, err := strconv.ParseFloat(l.used, 64); err == nil {
			n = part // minutes of GrpWall
		}
		return tree.Member{Key: l.key, Value: used(tree.Object{{Key: "limit", Value: render.Number(l.limit.GetValue(), l.limit != nil, l.limit == nil)}}, n)}
	}
	list := tree.List{}
	for _, t := range l.list {
		list = append(list, used(tree.Object{{Key: "name", Value: t.name}, {Key: "limit", Value: render.Number(t.limit, t.limit >= 0, t.limit < 0)}}, t.used))
	}
	return tree.Member{Key: l.key, Value: list}
}

// boundLines are the limits of a record, as they stand on its lines.
type boundLines [][]bound

func (ls boundLines) text(indent string) []string {
	var out []string
	for _, l := range ls {
		parts := make([]string, len(l))
		for i := range l {
			parts[i] = l[i].text()
		}
		out = append(out, indent+strings.Join(parts, " "))
	}
	return out
}

func (ls boundLines) object() tree.Object {
	out := tree.Object{}
	for _, l := range ls {
		for i := range l {
			out = append(out, l[i].documentMember())
		}
	}
	return out
}

// showAssocMgr is scontrol show assoc_mgr [users=] [accounts=] [qos=] [flags=].
func showAssocMgr(c *tool.Call, args []string) error {
	m := &assocMgr{c: c, rep: &apiv1.LimitUsageReply{}}
	if err := m.readOptions(args); err != nil {
		return err
	}
	var cfg apiv1.GetConfigReply
	if err := c.RPCAll(tool.Request{Method: tool.MethodLimitUsage, Req: &apiv1.LimitUsageRequest{}, Resp: m.rep}, tool.Request{Method: tool.MethodGetConfig, Req: &apiv1.GetConfigRequest{}, Resp: &cfg}); err != nil {
		return err
	}
	m.show = render.PolicyView{Policy: m.rep.GetPolicy(), Config: &cfg}
	for _, r := range m.show.TRESRows() {
		name := r.TRES[0]
		if r.TRES[1] != "" {
			name += "/" + r.TRES[1]
		}
		m.tres = append(m.tres, name)
	}
	m.index()
	if render.WantsDocument(c) {
		return m.makeDocument()
	}
	b := []byte("Current Association Manager state\n")
	for _, s := range []struct {
		flag, title string
		records     [][]string
	}{{"users", "User Records", m.userTexts()}, {"associations", "Association Records", m.assocTexts()}, {"qos", "QOS Records", m.qosTexts()}} {
		if !m.wants(s.flag) {
			continue
		}
		b = append(b, "\n"+s.title+"\n\n"...)
		if len(s.records) == 0 {
			b = append(b, "None\n"...)
		}
		for _, lines := range s.records {
			b = append(b, m.writeRecord(lines)...)
		}
	}
	return c.WriteOut(b)
}

// readOptions reads the words behind assoc_mgr; names of options may be shortened.
func (m *assocMgr) readOptions(args []string) error {
	for _, arg := range args {
		key, value, ok := strings.Cut(arg, "=")
		name := findBegun([]string{"users", "accounts", "qos", "flags"}, key)
		if !ok || name == "" {
			return m.c.Errorf("show assoc_mgr takes users=, accounts=, qos= and flags=, not %s", arg)
		}
		list := tool.SplitList(value)
		if len(list) == 0 {
			return m.c.Errorf("show assoc_mgr: %s= names nothing", name)
		}
		switch name {
		case "users":
			m.users = append(m.users, list...)
		case "accounts":
			m.accounts = append(m.accounts, list...)
		case "qos":
			m.qos = append(m.qos, list...)
		case "flags":
			for _, f := range list {
				flag := findBegun([]string{"users", "associations", "qos"}, f)
				if flag == "" {
					return m.c.Errorf("show assoc_mgr: flags= takes users, assoc and qos, not %s", f)
				}
				m.flags = append(m.flags, flag)
			}
		}
	}
	return nil
}

// findBegun finds the word that begins with what was typed, with any capitals.
func findBegun(words []string, typed string) string {
	typed = strings.ToLower(typed)
	i := slices.IndexFunc(words, func(w string) bool { return typed != "" && strings.HasPrefix(w, typed) })
	if i < 0 {
		return ""
	}
	return words[i]
}

func (m *assocMgr) wants(section string) bool {
	return len(m.flags) == 0 || slices.Contains(m.flags, section)
}

// isAsked tells whether a name is asked for.
func isAsked(list []string, name string) bool {
	return len(list) == 0 || slices.Contains(list, name)
}

func (m *assocMgr) index() {
	m.shares, m.usage = map[uint32]*apiv1.Share{}, map[counterOf]*apiv1.LimitUsage{}
	m.people = map[string]*apiv1.AccountingUser{}
	for _, s := range m.rep.GetShares().GetShares() {
		m.shares[s.GetAssoc()] = s
	}
	for _, u := range m.rep.GetUsage() {
		m.usage[counterOf{u.GetKind(), u.GetQos(), u.GetSubject()}] = u
	}
	for _, u := range m.rep.GetPolicy().GetUsers() {
		m.people[u.GetName()] = u
	}
}

// writeRecord writes the lines of one record, with -o on one.
func (m *assocMgr) writeRecord(lines []string) string {
	if !m.c.Opts.On("oneliner") {
		return strings.Join(lines, "\n") + "\n"
	}
	for i, l := range lines {
		lines[i] = strings.TrimSpace(l)
	}
	return strings.Join(lines, " ") + "\n"
}

// unknownUID stands for the number of a user whom this host does not know.
const unknownUID = "4294967294"

// uidOf is the number of a user on this host.
func (m *assocMgr) uidOf(user string) string {
	return cmp.Or(m.c.UserID(user), unknownUID)
}

// limitWithUse is a limit of TRES with what is used of each one that is accounted, or
// that is limited or used.
func (m *assocMgr) limitWithUse(key string, limits, used []*apiv1.NamedCount) bound {
	out := bound{key: key, kind: tresUsed}
	at := map[string]int{}
	row := func(name string) *boundTRES {
		i, ok := at[name]
		if !ok {
			i = len(out.list)
			at[name] = i
			out.list = append(out.list, boundTRES{name: name, limit: -1})
		}
		return &out.list[i]
	}
	for _, name := range m.tres {
		row(name)
	}
	for _, l := range limits {
		row(l.GetName()).limit = l.GetN()
	}
	for _, u := range used {
		row(u.GetName()).used = u.GetN()
	}
	return out
}

// limitAlone is a limit of TRES that nothing is counted for.
func limitAlone(key string, limits []*apiv1.NamedCount) bound {
	out := bound{key: key, kind: tresOnly}
	for _, l := range limits {
		out.list = append(out.list, boundTRES{name: l.GetName(), limit: l.GetN()})
	}
	return out
}

func counted(key string, limit *apiv1.OptionalInt, used int64) bound {
	return bound{key: key, limit: limit, used: tool.Itoa(used)}
}

func plain(key string, limit *apiv1.OptionalInt) bound {
	return bound{key: key, limit: limit, kind: countOnly}
}

// inMinutes is a limit of time; 0 = none.
func inMinutes(ns int64) *apiv1.OptionalInt {
	if ns <= 0 {
		return nil
	}
	return &apiv1.OptionalInt{Value: ns / (60 * tool.Second)}
}

// wallUsed is GrpWall, in minutes.
func wallUsed(limit int64, u *apiv1.LimitUsage) bound {
	return bound{key: "GrpWall", limit: inMinutes(limit), used: strconv.FormatFloat(u.GetWall()/60, 'f', 2, 64)}
}

// userRecords are the users that are asked for, by name.
func (m *assocMgr) userRecords() []*apiv1.AccountingUser {
	var out []*apiv1.AccountingUser
	for _, u := range m.rep.GetPolicy().GetUsers() {
		if isAsked(m.users, u.GetName()) {
			out = append(out, u)
		}
	}
	slices.SortFunc(out, func(a, b *apiv1.AccountingUser) int { return strings.Compare(a.GetName(), b.GetName()) })
	return out
}

func (m *assocMgr) userTexts() [][]string {
	var out [][]string
	for _, u := range m.userRecords() {
		out = append(out, []string{"UserName=" + u.GetName() + "(" + m.uidOf(u.GetName()) + ") DefAccount=" + u.GetDefaultAccount() +
			" DefWckey=" + u.GetDefaultWckey() + " AdminLevel=" + cmp.Or(u.GetAdminLevel(), "None")})
	}
	return out
}

// assocRecords are the associations that are asked for, as the tree has them.
func (m *assocMgr) assocRecords() []*apiv1.Association {
	var out []*apiv1.Association
	for _, s := range m.rep.GetShares().GetShares() {
		if a := m.show.ByID(s.GetAssoc()); a != nil && isAsked(m.users, a.GetUser()) && isAsked(m.accounts, a.GetAccount()) {
			out = append(out, a)
		}
	}
	return out
}

// assocLimits are the limits of an association. Those of one job, and of the
// jobs of one user, bind each user's own association: an account's are what its
// users have where nothing else is said, and nothing is counted for them.
func (m *assocMgr) assocLimits(a *apiv1.Association) boundLines {
	u := m.usage[counterOf{apiv1.LimitUsage_ASSOCIATION, 0, a.GetId()}]
	own := func(key string, limit *apiv1.OptionalInt, used int64) bound {
		if a.GetUser() == "" || limit == nil {
			return plain(key, limit)
		}
		return counted(key, limit, used)
	}
	return boundLines{
		{counted("GrpJobs", a.GetGrpJobs(), u.GetRunning()), counted("GrpJobsAccrue", a.GetGrpJobsAccrue(), u.GetAccruing())},
		{counted("GrpSubmitJobs", a.GetGrpSubmitJobs(), u.GetSubmitted()), wallUsed(a.GetGrpWall(), u)},
		{m.limitWithUse("GrpTRES", a.GetGrpTres(), u.GetTres())}, {m.limitWithUse("GrpTRESMins", a.GetGrpTresMins(), u.GetTresMins())},
		{m.limitWithUse("GrpTRESRunMins", a.GetGrpTresRunMins(), u.GetTresRunMins())},
		{own("MaxJobs", a.GetMaxJobs(), u.GetRunning()), own("MaxJobsAccrue", a.GetMaxJobsAccrue(), u.GetAccruing()),
			own("MaxSubmitJobs", a.GetMaxSubmitJobs(), u.GetSubmitted()), plain("MaxWallPJ", inMinutes(a.GetMaxWall()))},
		{limitAlone("MaxTRESPJ", a.GetMaxTresPerJob())}, {limitAlone("MaxTRESPN", a.GetMaxTresPerNode())}, {limitAlone("MaxTRESMinsPJ", a.GetMaxTresMins())},
		{plain("MinPrioThresh", a.GetMinPrio())},
	}
}

// isDefault tells whether an association is the one of its user's jobs that
// name no account.
func (m *assocMgr) isDefault(a *apiv1.Association) bool {
	return a.GetUser() != "" && a.GetPartition() == "" && m.people[a.GetUser()].GetDefaultAccount() == a.GetAccount()
}

func (m *assocMgr) assocTexts() [][]string {
	two := func(f float64) string { return strconv.FormatFloat(f, 'f', 2, 64) }
	var out [][]string
	for _, a := range m.assocRecords() {
		s, u := m.shares[a.GetId()], m.usage[counterOf{apiv1.LimitUsage_ASSOCIATION, 0, a.GetId()}]
		user := ""
		raw := tool.Itoa(s.GetRawShares())
		norm := s.GetNormShares()
		if a.GetUser() != "" {
			user = a.GetUser() + "(" + m.uidOf(a.GetUser()) + ")"
		}
		if s.GetSharesParent() {
			raw = "parent"
		}
		parent, lineage := m.show.Place(a)
		if parent != "" {
			parent += "(" + tool.Itoa(a.GetParent()) + ")"
		}
		isDefault := "No"
		if m.isDefault(a) {
			isDefault = "Yes"
		}
		lines := []string{
			"ClusterName=" + m.rep.GetPolicy().GetCluster() + " Account=" + a.GetAccount() + " UserName=" + user + " Partition=" + a.GetPartition() + " Priority=" + tool.Itoa(a.GetPriority()) + " ID=" + tool.Itoa(a.GetId()),
			"    SharesRaw/Norm/Level/Factor=" + raw + "/" + two(norm) + "/" + tool.Itoa(s.GetLevelShares()) + "/" + two(s.GetFactor()),
			"    UsageRaw/Norm/Efctv=" + two(u.GetRaw()) + "/" + two(s.GetNormUsage()) + "/" + two(s.GetEffectiveUsage()),
			"    ParentAccount=" + parent + " Lineage=" + lineage + " DefAssoc=" + isDefault,
		}
		lines = append(lines, m.assocLimits(a).text("    ")...)
		if a.GetComment() != "" {
			lines = append(lines, "    Comment="+a.GetComment())
		}
		out = append(out, lines)
	}
	return out
}

// qosRecords are the QOS that are asked for, by number.
func (m *assocMgr) qosRecords() []*apiv1.Qos {
	var out []*apiv1.Qos
	for _, q := range m.rep.GetPolicy().GetQos() {
		if isAsked(m.qos, q.GetName()) {
			out = append(out, q)
		}
	}
	slices.SortFunc(out, func(a, b *apiv1.Qos) int { return int(a.GetId()) - int(b.GetId()) })
	return out
}

func (m *assocMgr) qosLimits(q *apiv1.Qos) boundLines {
	u := m.usage[counterOf{apiv1.LimitUsage_QOS, q.GetId(), 0}]
	return boundLines{
		{counted("GrpJobs", q.GetGrpJobs(), u.GetRunning()), counted("GrpJobsAccrue", q.GetGrpJobsAccrue(), u.GetAccruing()),
			counted("GrpSubmitJobs", q.GetGrpSubmitJobs(), u.GetSubmitted()), wallUsed(q.GetGrpWall(), u)},
		{m.limitWithUse("GrpTRES", q.GetGrpTres(), u.GetTres())}, {m.limitWithUse("GrpTRESMins", q.GetGrpTresMins(), u.GetTresMins())},
		{m.limitWithUse("GrpTRESRunMins", q.GetGrpTresRunMins(), u.GetTresRunMins())},
		{plain("MaxWallPJ", inMinutes(q.GetMaxWall()))}, {limitAlone("MaxTRESPJ", q.GetMaxTresPerJob())}, {limitAlone("MaxTRESPN", q.GetMaxTresPerNode())},
		{limitAlone("MaxTRESMinsPJ", q.GetMaxTresMins())}, {plain("MinPrioThresh", q.GetMinPrio())}, {limitAlone("MinTRESPJ", q.GetMinTresPerJob())},
	}
}

// heldIn is one user or account with what it holds in a QOS.
type heldIn struct {
	name   string
	id     uint32
	limits boundLines
}

// perAccount are the accounts that hold anything in a QOS.
func (m *assocMgr) perAccount(q *apiv1.Qos) []heldIn {
	return m.holdersWithin(q, apiv1.LimitUsage_QOS_ACCOUNT, func(u *apiv1.LimitUsage) (string, bool) {
		a := m.show.ByID(u.GetSubject())
		return a.GetAccount(), a != nil && isAsked(m.accounts, a.GetAccount())
	}, func(u *apiv1.LimitUsage) boundLines {
		out := boundLines{{counted("MaxJobsPA", q.GetMaxJobsPerAccount(), u.GetRunning()), counted("MaxJobsAccruePA", q.GetMaxAccruePerAccount(), u.GetAccruing()),
			counted("MaxSubmitJobsPA", q.GetMaxSubmitPerAccount(), u.GetSubmitted())}, {m.limitWithUse("MaxTRESPA", q.GetMaxTresPerAccount(), u.GetTres())}}
		return m.runMinutes(out, "MaxTRESRunMinsPA", q.GetMaxRunMinsAccount(), u)
	})
}

// perUser are the users that hold anything in a QOS.
func (m *assocMgr) perUser(q *apiv1.Qos) []heldIn {
	var ids []string
	for _, name := range m.users {
		ids = append(ids, m.uidOf(name))
	}
	return m.holdersWithin(q, apiv1.LimitUsage_QOS_USER, func(u *apiv1.LimitUsage) (string, bool) {
		return tool.Itoa(u.GetSubject()), isAsked(ids, tool.Itoa(u.GetSubject()))
	}, func(u *apiv1.LimitUsage) boundLines {
		out := boundLines{{counted("MaxJobsPU", q.GetMaxJobsPerUser(), u.GetRunning()), counted("MaxJobsAccruePU", q.GetMaxAccruePerUser(), u.GetAccruing()),
			counted("MaxSubmitJobsPU", q.GetMaxSubmitPerUser(), u.GetSubmitted())}, {m.limitWithUse("MaxTRESPU", q.GetMaxTresPerUser(), u.GetTres())}}
		return m.runMinutes(out, "MaxTRESRunMinsPU", q.GetMaxRunMinsUser(), u)
	})
}

// runMinutes adds a limit that few QOS have where one has it.
func (m *assocMgr) runMinutes(lines boundLines, key string, limits []*apiv1.NamedCount, u *apiv1.LimitUsage) boundLines {
	if len(limits) == 0 {
		return lines
	}
	return append(lines, []bound{m.limitWithUse(key, limits, u.GetTresRunMins())})
}

// holdersWithin lists those of one kind that hold anything in a QOS, by number.
func (m *assocMgr) holdersWithin(q *apiv1.Qos, kind apiv1.LimitUsage_Kind, name func(*apiv1.LimitUsage) (string, bool), limits func(*apiv1.LimitUsage) boundLines) []heldIn {
	var out []heldIn
	for _, u := range m.rep.GetUsage() {
		if u.GetKind() != kind || u.GetQos() != q.GetId() {
			continue
		}
		if text, ok := name(u); ok {
			out = append(out, heldIn{text, u.GetSubject(), limits(u)})
		}
	}
	slices.SortFunc(out, func(a, b heldIn) int { return int(a.id) - int(b.id) })
	return out
}

func preemptMode(q *apiv1.Qos) string { return cmp.Or(strings.ToUpper(q.GetPreemptMode()), "OFF") }

func (m *assocMgr) qosTexts() [][]string {
	var out [][]string
	for _, q := range m.qosRecords() {
		raw := m.usage[counterOf{apiv1.LimitUsage_QOS, q.GetId(), 0}].GetRaw()
		lines := append([]string{"QOS=" + q.GetName() + "(" + tool.Itoa(q.GetId()) + ")", "    UsageRaw=" + render.SixDigits(raw)}, m.qosLimits(q).text("    ")...)
		for i, l := range lines {
			if strings.HasPrefix(l, "    MinPrioThresh=") {
				lines[i] += " "
			}
		}
		lines = append(lines, "    PreemptMode="+preemptMode(q), "    Priority="+tool.Itoa(q.GetPriority()))
		for _, part := range []struct {
			title, none string
			list        []heldIn
		}{{"Account Limits", "No Accounts", m.perAccount(q)}, {"User Limits", "No Users", m.perUser(q)}} {
			lines = append(lines, "    "+part.title)
			if len(part.list) == 0 {
				lines = append(lines, "        "+part.none)
			}
			for _, h := range part.list {
				lines = append(append(lines, "      "+h.name), h.limits.text("        ")...)
			}
		}
		out = append(out, lines)
	}
	return out
}

// makeDocument is --json and --yaml: the sections that are asked for.
func (m *assocMgr) makeDocument() error {
	users := tree.List{}
	assocs := tree.List{}
	qos := tree.List{}
	for _, u := range m.userRecords() {
		users = append(users, tree.Object{{Key: "name", Value: u.GetName()}, {Key: "default", Value: tree.Object{{Key: "account", Value: u.GetDefaultAccount()}, {Key: "wckey", Value: u.GetDefaultWckey()}}},
			{Key: "administrator_level", Value: tree.List{cmp.Or(u.GetAdminLevel(), "None")}}})
	}
	for _, a := range m.assocRecords() {
		s, u := m.shares[a.GetId()], m.usage[counterOf{apiv1.LimitUsage_ASSOCIATION, 0, a.GetId()}]
		parent, lineage := m.show.Place(a)
		assocs = append(assocs, append(render.BriefAssoc(m.rep.GetPolicy().GetCluster(), a), tree.Object{{Key: "parent_account", Value: parent}, {Key: "lineage", Value: lineage}, {Key: "is_default", Value: m.isDefault(a)},
			{Key: "priority", Value: a.GetPriority()}, {Key: "comment", Value: a.GetComment()},
			{Key: "shares", Value: tree.Object{{Key: "raw", Value: render.Number(s.GetRawShares(), !s.GetSharesParent(), false)}, {Key: "normalized", Value: s.GetNormShares()}, {Key: "level", Value: s.GetLevelShares()}, {Key: "factor", Value: s.GetFactor()}}},
			{Key: "usage", Value: tree.Object{{Key: "raw", Value: u.GetRaw()}, {Key: "normalized", Value: s.GetNormUsage()}, {Key: "effective", Value: s.GetEffectiveUsage()}}},
			{Key: "limits", Value: m.assocLimits(a).object()}}...))
	}
	per := func(list []heldIn) tree.List {
		out := tree.List{}
		for _, h := range list {
			out = append(out, tree.Object{{Key: "name", Value: h.name}, {Key: "limits", Value: h.limits.object()}})
		}
		return out
	}
	for _, q := range m.qosRecords() {
		raw := m.usage[counterOf{apiv1.LimitUsage_QOS, q.GetId(), 0}].GetRaw()
		qos = append(qos, tree.Object{{Key: "name", Value: q.GetName()}, {Key: "id", Value: q.GetId()}, {Key: "priority", Value: q.GetPriority()}, {Key: "preempt_mode", Value: preemptMode(q)}, {Key: "usage_raw", Value: raw},
			{Key: "limits", Value: m.qosLimits(q).object()}, {Key: "accounts", Value: per(m.perAccount(q))}, {Key: "users", Value: per(m.perUser(q))}})
	}
	var members []tree.Member
	for _, s := range []tree.Member{{Key: "users", Value: users}, {Key: "associations", Value: assocs}, {Key: "qos", Value: qos}} {
		if m.wants(s.Key) {
			members = append(members, s)
		}
	}
	return render.Structured(m.c, m.c.Opts.On("json"), render.Document(m.c, members...))
}
