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
		for i, tres := range l.list {
			limit := "N"
			if tres.limit >= 0 {
				limit = tool.Itoa(tres.limit)
			}
			parts[i] = tres.name + "=" + limit + "(" + tool.Itoa(tres.used) + ")"
		}
	case tresOnly:
		for i, tres := range l.list {
			parts[i] = tres.name + "=" + tool.Itoa(tres.limit)
		}
	}
	return l.key + "=" + strings.Join(parts, ",")
}

// documentMember is the limit in a document.
func (l *bound) documentMember() tree.Member {
	used := func(object tree.Object, n any) tree.Object {
		if l.kind == countUsed || l.kind == tresUsed {
			object = append(object, tree.Member{Key: "used", Value: n})
		}
		return object
	}
	if l.kind == countUsed || l.kind == countOnly {
		var n any
		if whole, err := strconv.ParseInt(l.used, 10, 64); err == nil {
			n = whole
		} else if part, err := strconv.ParseFloat(l.used, 64); err == nil {
			n = part // minutes of GrpWall
		}
		return tree.Member{
			Key: l.key,
			Value: used(
				tree.Object{
					{
						Key:   "limit",
						Value: render.Number(l.limit.GetValue(), l.limit != nil, l.limit == nil),
					},
				},
				n,
			),
		}
	}
	list := tree.List{}
	for _, tres := range l.list {
		list = append(
			list,
			used(
				tree.Object{
					{Key: "name", Value: tres.name},
					{
						Key:   "limit",
						Value: render.Number(tres.limit, tres.limit >= 0, tres.limit < 0),
					},
				},
				tres.used,
			),
		)
	}
	return tree.Member{Key: l.key, Value: list}
}

// boundLines are the limits of a record, as they stand on its lines.
type boundLines [][]bound

func (ls boundLines) text(indent string) []string {
	var out []string
	for _, bounds := range ls {
		parts := make([]string, len(bounds))
		for i := range bounds {
			parts[i] = bounds[i].text()
		}
		out = append(out, indent+strings.Join(parts, " "))
	}
	return out
}

func (ls boundLines) asObject() tree.Object {
	object := tree.Object{}
	for _, l := range ls {
		for i := range l {
			object = append(object, l[i].documentMember())
		}
	}
	return object
}

// showAssocMgr is scontrol show assoc_mgr [users=] [accounts=] [qos=] [flags=].
func showAssocMgr(call *tool.Call, args []string) error {
	mgr := &assocMgr{c: call, rep: &apiv1.LimitUsageReply{}}
	if err := mgr.readOptions(args); err != nil {
		return err
	}
	var config apiv1.GetConfigReply
	if err := call.RPCAll(
		tool.Request{Method: tool.MethodLimitUsage, Req: &apiv1.LimitUsageRequest{}, Resp: mgr.rep},
		tool.Request{Method: tool.MethodGetConfig, Req: &apiv1.GetConfigRequest{}, Resp: &config},
	); err != nil {
		return err
	}
	mgr.show = render.PolicyView{Policy: mgr.rep.GetPolicy(), Config: &config}
	for _, row := range mgr.show.TRESRows() {
		name := row.TRES[0]
		if row.TRES[1] != "" {
			name += "/" + row.TRES[1]
		}
		mgr.tres = append(mgr.tres, name)
	}
	mgr.indexPolicy()
	if render.WantsDocument(call) {
		return mgr.makeDocument()
	}
	buffer := []byte("Current Association Manager state\n")
	for _, s := range []struct {
		flag, title string
		records     [][]string
	}{{"users", "User Records", mgr.userTexts()}, {"associations", "Association Records", mgr.assocTexts()}, {"qos", "QOS Records", mgr.qosTexts()}} {
		if !mgr.wantsSection(s.flag) {
			continue
		}
		buffer = append(buffer, "\n"+s.title+"\n\n"...)
		if len(s.records) == 0 {
			buffer = append(buffer, "None\n"...)
		}
		for _, lines := range s.records {
			buffer = append(buffer, mgr.writeRecord(lines)...)
		}
	}
	return call.WriteOut(buffer)
}

// readOptions reads the words behind assoc_mgr; names of options may be shortened.
func (m *assocMgr) readOptions(args []string) error {
	for _, arg := range args {
		key, value, ok := strings.Cut(arg, "=")
		name := findBegun([]string{"users", "accounts", "qos", "flags"}, key)
		if !ok || name == "" {
			return m.c.Errorf(
				"show assoc_mgr takes users=, accounts=, qos= and flags=, not %s",
				arg,
			)
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
					return m.c.Errorf(
						"show assoc_mgr: flags= takes users, assoc and qos, not %s",
						f,
					)
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
	i := slices.IndexFunc(
		words,
		func(w string) bool { return typed != "" && strings.HasPrefix(w, typed) },
	)
	if i < 0 {
		return ""
	}
	return words[i]
}

func (m *assocMgr) wantsSection(section string) bool {
	return len(m.flags) == 0 || slices.Contains(m.flags, section)
}

// isAsked tells whether a name is asked for.
func isAsked(list []string, name string) bool {
	return len(list) == 0 || slices.Contains(list, name)
}

func (m *assocMgr) indexPolicy() {
	m.shares, m.usage = map[uint32]*apiv1.Share{}, map[counterOf]*apiv1.LimitUsage{}
	m.people = map[string]*apiv1.AccountingUser{}
	for _, share := range m.rep.GetShares().GetShares() {
		m.shares[share.GetAssoc()] = share
	}
	for _, usage := range m.rep.GetUsage() {
		m.usage[counterOf{usage.GetKind(), usage.GetQos(), usage.GetSubject()}] = usage
	}
	for _, user := range m.rep.GetPolicy().GetUsers() {
		m.people[user.GetName()] = user
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

func countedBound(key string, limit *apiv1.OptionalInt, used int64) bound {
	return bound{key: key, limit: limit, used: tool.Itoa(used)}
}

func plainBound(key string, limit *apiv1.OptionalInt) bound {
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
func wallUsed(limit int64, usage *apiv1.LimitUsage) bound {
	return bound{
		key:   "GrpWall",
		limit: inMinutes(limit),
		used:  strconv.FormatFloat(usage.GetWall()/60, 'f', 2, 64),
	}
}

// userRecords are the users that are asked for, by name.
func (m *assocMgr) userRecords() []*apiv1.AccountingUser {
	var users []*apiv1.AccountingUser
	for _, user := range m.rep.GetPolicy().GetUsers() {
		if isAsked(m.users, user.GetName()) {
			users = append(users, user)
		}
	}
	slices.SortFunc(
		users,
		func(a, b *apiv1.AccountingUser) int { return strings.Compare(a.GetName(), b.GetName()) },
	)
	return users
}

func (m *assocMgr) userTexts() [][]string {
	var out [][]string
	for _, user := range m.userRecords() {
		out = append(out, []string{"UserName=" + user.GetName() + "(" + m.uidOf(user.GetName()) +
			") DefAccount=" + user.GetDefaultAccount() +
			" DefWckey=" + user.GetDefaultWckey() + " AdminLevel=" +
			cmp.Or(user.GetAdminLevel(), "None")})
	}
	return out
}

// assocRecords are the associations that are asked for, as the tree has them.
func (m *assocMgr) assocRecords() []*apiv1.Association {
	var associations []*apiv1.Association
	for _, share := range m.rep.GetShares().GetShares() {
		if association := m.show.ByID(share.GetAssoc()); association != nil &&
			isAsked(m.users, association.GetUser()) &&
			isAsked(m.accounts, association.GetAccount()) {
			associations = append(associations, association)
		}
	}
	return associations
}

// assocLimits are the limits of an association. Those of one job, and of the
// jobs of one user, bind each user's own association: an account's are what its
// users have where nothing else is said, and nothing is counted for them.
func (m *assocMgr) assocLimits(assoc *apiv1.Association) boundLines {
	usage := m.usage[counterOf{apiv1.LimitUsage_ASSOCIATION, 0, assoc.GetId()}]
	own := func(key string, limit *apiv1.OptionalInt, used int64) bound {
		if assoc.GetUser() == "" || limit == nil {
			return plainBound(key, limit)
		}
		return countedBound(key, limit, used)
	}
	return boundLines{
		{
			countedBound("GrpJobs", assoc.GetGrpJobs(), usage.GetRunning()),
			countedBound("GrpJobsAccrue", assoc.GetGrpJobsAccrue(), usage.GetAccruing()),
		},
		{
			countedBound("GrpSubmitJobs", assoc.GetGrpSubmitJobs(), usage.GetSubmitted()),
			wallUsed(assoc.GetGrpWall(), usage),
		},
		{
			m.limitWithUse("GrpTRES", assoc.GetGrpTres(), usage.GetTres()),
		}, {m.limitWithUse("GrpTRESMins", assoc.GetGrpTresMins(), usage.GetTresMins())},
		{m.limitWithUse("GrpTRESRunMins", assoc.GetGrpTresRunMins(), usage.GetTresRunMins())},
		{
			own("MaxJobs", assoc.GetMaxJobs(), usage.GetRunning()),
			own("MaxJobsAccrue", assoc.GetMaxJobsAccrue(), usage.GetAccruing()),
			own(
				"MaxSubmitJobs",
				assoc.GetMaxSubmitJobs(),
				usage.GetSubmitted(),
			),
			plainBound("MaxWallPJ", inMinutes(assoc.GetMaxWall())),
		},
		{
			limitAlone("MaxTRESPJ", assoc.GetMaxTresPerJob()),
		}, {limitAlone("MaxTRESPN", assoc.GetMaxTresPerNode())}, {limitAlone("MaxTRESMinsPJ", assoc.GetMaxTresMins())},
		{plainBound("MinPrioThresh", assoc.GetMinPrio())},
	}
}

// isDefault tells whether an association is the one of its user's jobs that
// name no account.
func (m *assocMgr) isDefault(association *apiv1.Association) bool {
	return association.GetUser() != "" && association.GetPartition() == "" &&
		m.people[association.GetUser()].GetDefaultAccount() == association.GetAccount()
}

func (m *assocMgr) assocTexts() [][]string {
	two := func(f float64) string { return strconv.FormatFloat(f, 'f', 2, 64) }
	var out [][]string
	for _, assoc := range m.assocRecords() {
		share, usage := m.shares[assoc.GetId()], m.usage[counterOf{apiv1.LimitUsage_ASSOCIATION, 0, assoc.GetId()}]
		user := ""
		raw := tool.Itoa(share.GetRawShares())
		norm := share.GetNormShares()
		if assoc.GetUser() != "" {
			user = assoc.GetUser() + "(" + m.uidOf(assoc.GetUser()) + ")"
		}
		if share.GetSharesParent() {
			raw = "parent"
		}
		parent, lineage := m.show.Place(assoc)
		if parent != "" {
			parent += "(" + tool.Itoa(assoc.GetParent()) + ")"
		}
		isDefault := "No"
		if m.isDefault(assoc) {
			isDefault = "Yes"
		}
		lines := []string{
			"ClusterName=" + m.rep.GetPolicy().GetCluster() + " Account=" + assoc.GetAccount() +
				" UserName=" + user + " Partition=" + assoc.GetPartition() + " Priority=" +
				tool.Itoa(assoc.GetPriority()) + " ID=" + tool.Itoa(assoc.GetId()),
			"    SharesRaw/Norm/Level/Factor=" + raw + "/" + two(norm) + "/" +
				tool.Itoa(share.GetLevelShares()) + "/" + two(share.GetFactor()),
			"    UsageRaw/Norm/Efctv=" + two(usage.GetRaw()) + "/" + two(share.GetNormUsage()) +
				"/" + two(share.GetEffectiveUsage()),
			"    ParentAccount=" + parent + " Lineage=" + lineage + " DefAssoc=" + isDefault,
		}
		lines = append(lines, m.assocLimits(assoc).text("    ")...)
		if assoc.GetComment() != "" {
			lines = append(lines, "    Comment="+assoc.GetComment())
		}
		out = append(out, lines)
	}
	return out
}

// qosRecords are the QOS that are asked for, by number.
func (m *assocMgr) qosRecords() []*apiv1.Qos {
	var qos []*apiv1.Qos
	for _, q := range m.rep.GetPolicy().GetQos() {
		if isAsked(m.qos, q.GetName()) {
			qos = append(qos, q)
		}
	}
	slices.SortFunc(qos, func(a, b *apiv1.Qos) int { return int(a.GetId()) - int(b.GetId()) })
	return qos
}

func (m *assocMgr) qosLimits(qos *apiv1.Qos) boundLines {
	usage := m.usage[counterOf{apiv1.LimitUsage_QOS, qos.GetId(), 0}]
	return boundLines{
		{
			countedBound("GrpJobs", qos.GetGrpJobs(), usage.GetRunning()),
			countedBound("GrpJobsAccrue", qos.GetGrpJobsAccrue(), usage.GetAccruing()),
			countedBound(
				"GrpSubmitJobs",
				qos.GetGrpSubmitJobs(),
				usage.GetSubmitted(),
			),
			wallUsed(qos.GetGrpWall(), usage),
		},
		{
			m.limitWithUse("GrpTRES", qos.GetGrpTres(), usage.GetTres()),
		}, {m.limitWithUse("GrpTRESMins", qos.GetGrpTresMins(), usage.GetTresMins())},
		{m.limitWithUse("GrpTRESRunMins", qos.GetGrpTresRunMins(), usage.GetTresRunMins())},
		{
			plainBound("MaxWallPJ", inMinutes(qos.GetMaxWall())),
		}, {limitAlone("MaxTRESPJ", qos.GetMaxTresPerJob())}, {limitAlone("MaxTRESPN", qos.GetMaxTresPerNode())},
		{
			limitAlone("MaxTRESMinsPJ", qos.GetMaxTresMins()),
		}, {plainBound("MinPrioThresh", qos.GetMinPrio())}, {limitAlone("MinTRESPJ", qos.GetMinTresPerJob())},
	}
}

// heldIn is one user or account with what it holds in a QOS.
type heldIn struct {
	name   string
	id     uint32
	limits boundLines
}

// perAccount are the accounts that hold anything in a QOS.
func (m *assocMgr) perAccount(qos *apiv1.Qos) []heldIn {
	return m.holdersWithin(
		qos,
		apiv1.LimitUsage_QOS_ACCOUNT,
		func(usage *apiv1.LimitUsage) (string, bool) {
			association := m.show.ByID(usage.GetSubject())
			return association.GetAccount(), association != nil &&
				isAsked(m.accounts, association.GetAccount())
		},
		func(usage *apiv1.LimitUsage) boundLines {
			lines := boundLines{
				{
					countedBound("MaxJobsPA", qos.GetMaxJobsPerAccount(), usage.GetRunning()),
					countedBound(
						"MaxJobsAccruePA", qos.GetMaxAccruePerAccount(), usage.GetAccruing(),
					),
					countedBound(
						"MaxSubmitJobsPA",
						qos.GetMaxSubmitPerAccount(),
						usage.GetSubmitted(),
					),
				},
				{m.limitWithUse("MaxTRESPA", qos.GetMaxTresPerAccount(), usage.GetTres())},
			}
			return m.runMinutes(lines, "MaxTRESRunMinsPA", qos.GetMaxRunMinsAccount(), usage)
		},
	)
}

// perUser are the users that hold anything in a QOS.
func (m *assocMgr) perUser(qos *apiv1.Qos) []heldIn {
	var ids []string
	for _, name := range m.users {
		ids = append(ids, m.uidOf(name))
	}
	return m.holdersWithin(
		qos,
		apiv1.LimitUsage_QOS_USER,
		func(usage *apiv1.LimitUsage) (string, bool) {
			return tool.Itoa(usage.GetSubject()), isAsked(ids, tool.Itoa(usage.GetSubject()))
		},
		func(usage *apiv1.LimitUsage) boundLines {
			lines := boundLines{
				{
					countedBound("MaxJobsPU", qos.GetMaxJobsPerUser(), usage.GetRunning()),
					countedBound("MaxJobsAccruePU", qos.GetMaxAccruePerUser(), usage.GetAccruing()),
					countedBound(
						"MaxSubmitJobsPU",
						qos.GetMaxSubmitPerUser(),
						usage.GetSubmitted(),
					),
				},
				{m.limitWithUse("MaxTRESPU", qos.GetMaxTresPerUser(), usage.GetTres())},
			}
			return m.runMinutes(lines, "MaxTRESRunMinsPU", qos.GetMaxRunMinsUser(), usage)
		},
	)
}

// runMinutes adds a limit that few QOS have where one has it.
func (m *assocMgr) runMinutes(
	lines boundLines,
	key string,
	limits []*apiv1.NamedCount,
	usage *apiv1.LimitUsage,
) boundLines {
	if len(limits) == 0 {
		return lines
	}
	return append(lines, []bound{m.limitWithUse(key, limits, usage.GetTresRunMins())})
}

// holdersWithin lists those of one kind that hold anything in a QOS, by number.
func (m *assocMgr) holdersWithin(
	qos *apiv1.Qos,
	kind apiv1.LimitUsage_Kind,
	name func(*apiv1.LimitUsage) (string, bool),
	limits func(*apiv1.LimitUsage) boundLines,
) []heldIn {
	var heldIns []heldIn
	for _, usage := range m.rep.GetUsage() {
		if usage.GetKind() != kind || usage.GetQos() != qos.GetId() {
			continue
		}
		if text, ok := name(usage); ok {
			heldIns = append(heldIns, heldIn{text, usage.GetSubject(), limits(usage)})
		}
	}
	slices.SortFunc(heldIns, func(a, b heldIn) int { return int(a.id) - int(b.id) })
	return heldIns
}

func preemptMode(qos *apiv1.Qos) string {
	return cmp.Or(strings.ToUpper(qos.GetPreemptMode()), "OFF")
}

func (m *assocMgr) qosTexts() [][]string {
	var out [][]string
	for _, qos := range m.qosRecords() {
		raw := m.usage[counterOf{apiv1.LimitUsage_QOS, qos.GetId(), 0}].GetRaw()
		lines := append(
			[]string{"QOS=" + qos.GetName() + "(" + tool.Itoa(qos.GetId()) + ")", "    UsageRaw=" +
				render.SixDigits(raw)},
			m.qosLimits(qos).text("    ")...)
		for i, l := range lines {
			if strings.HasPrefix(l, "    MinPrioThresh=") {
				lines[i] += " "
			}
		}
		lines = append(lines, "    PreemptMode="+preemptMode(qos), "    Priority="+
			tool.Itoa(qos.GetPriority()))
		for _, part := range []struct {
			title, none string
			list        []heldIn
		}{{"Account Limits", "No Accounts", m.perAccount(qos)}, {"User Limits", "No Users", m.perUser(qos)}} {
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
	for _, user := range m.userRecords() {
		users = append(
			users,
			tree.Object{
				{Key: "name", Value: user.GetName()},
				{
					Key: "default",
					Value: tree.Object{
						{Key: "account", Value: user.GetDefaultAccount()},
						{Key: "wckey", Value: user.GetDefaultWckey()},
					},
				},
				{
					Key:   "administrator_level",
					Value: tree.List{cmp.Or(user.GetAdminLevel(), "None")},
				},
			},
		)
	}
	for _, assoc := range m.assocRecords() {
		share, usage := m.shares[assoc.GetId()], m.usage[counterOf{apiv1.LimitUsage_ASSOCIATION, 0, assoc.GetId()}]
		parent, lineage := m.show.Place(assoc)
		assocs = append(
			assocs,
			append(
				render.BriefAssoc(m.rep.GetPolicy().GetCluster(), assoc),
				tree.Object{
					{Key: "parent_account", Value: parent},
					{Key: "lineage", Value: lineage},
					{Key: "is_default", Value: m.isDefault(assoc)},
					{
						Key:   "priority",
						Value: assoc.GetPriority(),
					},
					{Key: "comment", Value: assoc.GetComment()},
					{
						Key: "shares",
						Value: tree.Object{
							{
								Key: "raw",
								Value: render.Number(
									share.GetRawShares(),
									!share.GetSharesParent(),
									false,
								),
							},
							{Key: "normalized", Value: share.GetNormShares()},
							{Key: "level", Value: share.GetLevelShares()},
							{Key: "factor", Value: share.GetFactor()},
						},
					},
					{
						Key: "usage",
						Value: tree.Object{
							{Key: "raw", Value: usage.GetRaw()},
							{Key: "normalized", Value: share.GetNormUsage()},
							{Key: "effective", Value: share.GetEffectiveUsage()},
						},
					},
					{Key: "limits", Value: m.assocLimits(assoc).asObject()},
				}...),
		)
	}
	per := func(list []heldIn) tree.List {
		out := tree.List{}
		for _, h := range list {
			out = append(
				out,
				tree.Object{
					{Key: "name", Value: h.name},
					{Key: "limits", Value: h.limits.asObject()},
				},
			)
		}
		return out
	}
	for _, q := range m.qosRecords() {
		raw := m.usage[counterOf{apiv1.LimitUsage_QOS, q.GetId(), 0}].GetRaw()
		qos = append(
			qos,
			tree.Object{
				{Key: "name", Value: q.GetName()},
				{Key: "id", Value: q.GetId()},
				{Key: "priority", Value: q.GetPriority()},
				{Key: "preempt_mode", Value: preemptMode(q)},
				{Key: "usage_raw", Value: raw},
				{
					Key:   "limits",
					Value: m.qosLimits(q).asObject(),
				},
				{Key: "accounts", Value: per(m.perAccount(q))},
				{Key: "users", Value: per(m.perUser(q))},
			},
		)
	}
	var members []tree.Member
	for _, member := range []tree.Member{
		{Key: "users", Value: users},
		{Key: "associations", Value: assocs},
		{Key: "qos", Value: qos},
	} {
		if m.wantsSection(member.Key) {
			members = append(members, member)
		}
	}
	return render.Print(m.c, members...)
}
