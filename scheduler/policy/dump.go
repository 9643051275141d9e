package policy

import (
	"slices"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

const dumpHead = `# A cluster's accounts, users and limits, as "sacctmgr dump" writes and "sacctmgr load" reads them.
# One line for each entity: Kind - 'name':Option='value':Option='value'
# QOS lines come first; then the Cluster; then, below a line that names their Parent, Account and User lines.
# A parent must have been defined above the line that names it; root always exists.
`

// line is one line being written.
type line struct{ b strings.Builder }

func (l *line) quoted(key, v string) {
	if v != "" {
		l.b.WriteString(":" + key + "='" + strings.ReplaceAll(v, "'", "") + "'")
	}
}

func (l *line) bare(key, v string) {
	if v != "" {
		l.b.WriteString(":" + key + "=" + v)
	}
}

func (l *line) count(key string, n *int64) {
	if n != nil {
		l.bare(key, strconv.FormatInt(*n, 10))
	}
}

func (l *line) limits(key string, t spec.Limits) { l.bare(key, t.String()) }

func (l *line) span(key string, d spec.Span) {
	if d > 0 {
		l.bare(key, format.Duration(d.Seconds()))
	}
}

// micro writes millionths as a decimal.
func micro(n int64) string {
	digits := strconv.FormatInt(1_000_000+n%1_000_000, 10)
	return strconv.FormatInt(n/1_000_000, 10) + "." + digits[1:]
}

// Dump writes the whole policy as the file that Load reads.
func Dump(st *state.State) string {
	var out strings.Builder
	out.WriteString(dumpHead)
	pol := st.Policy
	for i := range pol.QOS {
		out.WriteString(qosLine(&pol.QOS[i]) + "\n")
	}
	root := pol.FindAssoc("root", "", "")
	if root == nil {
		root = &spec.Association{Account: "root"}
	}
	head := &line{}
	head.b.WriteString("Cluster - '" + st.ClusterName + "'")
	head.assoc(pol, root)
	out.WriteString(head.b.String() + "\n")
	dumpBelow(&out, pol, "root", 0)
	return out.String()
}

// dumpBelow writes an account's users and accounts, and then what is below
// each of those.
func dumpBelow(out *strings.Builder, pol *state.Policy, account string, depth int) {
	var lines, children []string
	for _, id := range sortedAssocs(pol) {
		a := pol.Assoc(id)
		switch {
		case a.User != "" && a.Account == account:
			lines = append(lines, userLine(pol, a))
		case a.User == "" && a.Account != account && a.Parent == pol.AccountAssoc(account):
			lines = append(lines, accountLine(pol, a))
			children = append(children, a.Account)
		}
	}
	if len(lines) > 0 {
		out.WriteString("Parent - '" + account + "'\n" + strings.Join(lines, "\n") + "\n")
	}
	for _, c := range children {
		if depth < 64 {
			dumpBelow(out, pol, c, depth+1)
		}
	}
}

// sortedAssocs lists associations, users before accounts, each by number.
func sortedAssocs(pol *state.Policy) []uint32 {
	var users, accounts []uint32
	for i := range pol.Assocs {
		if a := &pol.Assocs[i]; a.User != "" {
			users = append(users, a.ID)
		} else {
			accounts = append(accounts, a.ID)
		}
	}
	return append(users, accounts...)
}

func accountLine(pol *state.Policy, a *spec.Association) string {
	l := &line{}
	l.b.WriteString("Account - '" + a.Account + "'")
	if acct := pol.FindAccount(a.Account); acct != nil {
		l.quoted("Description", acct.Description)
		l.quoted("Organization", acct.Organization)
	}
	l.assoc(pol, a)
	return l.b.String()
}

func userLine(pol *state.Policy, a *spec.Association) string {
	l := &line{}
	l.b.WriteString("User - '" + a.User + "'")
	l.quoted("Partition", a.Partition)
	if u := pol.FindUser(a.User); u != nil {
		l.quoted("DefaultAccount", u.DefaultAccount)
		l.quoted("DefaultWCKey", u.DefaultWCKey)
		l.quoted("AdminLevel", u.AdminLevel)
	}
	var of, keys []string
	for i := range pol.Accounts {
		if slices.Contains(pol.Accounts[i].Coordinators, a.User) {
			of = append(of, pol.Accounts[i].Name)
		}
	}
	for _, k := range pol.WCKeys {
		if k.User == a.User {
			keys = append(keys, k.Name)
		}
	}
	l.quoted("Coordinator", strings.Join(of, ","))
	l.quoted("WCKeys", strings.Join(keys, ","))
	l.assoc(pol, a)
	return l.b.String()
}

// assoc writes the options of an association; a list of QOS as what it adds to
// the inherited one, where it only adds.
func (l *line) assoc(pol *state.Policy, a *spec.Association) {
	if a.SharesParent {
		l.bare("Fairshare", "parent")
	} else {
		l.bare("Fairshare", strconv.FormatInt(a.Share(), 10))
	}
	l.count("GrpJobs", a.GrpJobs)
	l.count("GrpJobsAccrue", a.GrpJobsAccrue)
	l.count("GrpSubmitJobs", a.GrpSubmitJobs)
	l.limits("GrpTRES", a.GrpTRES)
	l.limits("GrpTRESMins", a.GrpTRESMins)
	l.limits("GrpTRESRunMins", a.GrpTRESRunMins)
	l.span("GrpWall", a.GrpWall)
	l.limits("GuaranteedTRES", a.Guaranteed)
	l.count("MaxJobs", a.MaxJobs)
	l.count("MaxJobsAccrue", a.MaxJobsAccrue)
	l.count("MaxSubmitJobs", a.MaxSubmitJobs)
	l.limits("MaxTRESPerJob", a.MaxTRESPerJob)
	l.limits("MaxTRESPerNode", a.MaxTRESPerNode)
	l.limits("MaxTRESMinsPerJob", a.MaxTRESMins)
	l.span("MaxWallDurationPerJob", a.MaxWall)
	l.count("MinPrioThreshold", a.MinPrio)
	l.count("OverQuotaWeight", a.OverQuota)
	if a.Priority != 0 {
		l.bare("Priority", strconv.FormatUint(uint64(a.Priority), 10))
	}
	l.quoted("Comment", a.Comment)
	l.quoted("DefaultQOS", a.DefaultQOS)
	if len(a.QOS) == 0 {
		return
	}
	up := inheritedQOS(pol, &spec.Association{Parent: a.Parent})
	if a.Parent == 0 || slices.ContainsFunc(up, func(n string) bool { return !slices.Contains(a.QOS, n) }) {
		l.quoted("QOS", strings.Join(a.QOS, ","))
		return
	}
	var more []string
	for _, n := range a.QOS {
		if !slices.Contains(up, n) {
			more = append(more, "+"+n)
		}
	}
	if len(more) == 0 {
		more = a.QOS // the same as above it, but said
	}
	l.quoted("QOS", strings.Join(more, ","))
}

func qosLine(q *spec.QOS) string {
	l := &line{}
	l.b.WriteString("QOS - '" + q.Name + "'")
	l.quoted("Description", q.Description)
	if q.Priority != 0 {
		l.bare("Priority", strconv.FormatUint(uint64(q.Priority), 10))
	}
	l.quoted("Flags", strings.Join(q.Flags, ","))
	if q.GraceTime != 0 {
		l.bare("GraceTime", strconv.FormatInt(q.GraceTime.Seconds(), 10))
	}
	l.count("GrpJobs", q.GrpJobs)
	l.count("GrpJobsAccrue", q.GrpJobsAccrue)
	l.count("GrpSubmitJobs", q.GrpSubmitJobs)
	l.limits("GrpTRES", q.GrpTRES)
	l.limits("GrpTRESMins", q.GrpTRESMins)
	l.limits("GrpTRESRunMins", q.GrpTRESRunMins)
	l.span("GrpWall", q.GrpWall)
	if q.LimitFactor != 0 {
		l.bare("LimitFactor", micro(q.LimitFactor))
	}
	l.count("MaxJobsAccruePerAccount", q.MaxAccruePerAcct)
	l.count("MaxJobsAccruePerUser", q.MaxAccruePerUser)
	l.count("MaxJobsPerAccount", q.MaxJobsPerAcct)
	l.count("MaxJobsPerUser", q.MaxJobsPerUser)
	l.count("MaxSubmitJobsPerAccount", q.MaxSubmitPerAcct)
	l.count("MaxSubmitJobsPerUser", q.MaxSubmitPerUser)
	l.limits("MaxTRESPerJob", q.MaxTRESPerJob)
	l.limits("MaxTRESPerNode", q.MaxTRESPerNode)
	l.limits("MaxTRESPerAccount", q.MaxTRESPerAcct)
	l.limits("MaxTRESPerUser", q.MaxTRESPerUser)
	l.limits("MaxTRESMinsPerJob", q.MaxTRESMins)
	l.limits("MaxTRESRunMinsPerAccount", q.MaxRunMinsAcct)
	l.limits("MaxTRESRunMinsPerUser", q.MaxRunMinsUser)
	l.limits("MinTRESPerJob", q.MinTRESPerJob)
	l.span("MaxWallDurationPerJob", q.MaxWall)
	l.count("MinPrioThreshold", q.MinPrio)
	l.quoted("Preempt", strings.Join(q.Preempt, ","))
	l.span("PreemptExemptTime", q.PreemptExempt)
	l.quoted("PreemptMode", q.PreemptMode)
	if q.UsageFactor != 0 {
		l.bare("UsageFactor", micro(q.Factor()))
	}
	if q.UsageThreshold != nil {
		l.bare("UsageThreshold", micro(*q.UsageThreshold))
	}
	return l.b.String()
}
