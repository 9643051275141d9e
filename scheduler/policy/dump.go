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

func (l *line) writeQuoted(key, v string) {
	if v != "" {
		l.b.WriteString(":" + key + "='" + strings.ReplaceAll(v, "'", "") + "'")
	}
}

func (l *line) writeBare(key, v string) {
	if v != "" {
		l.b.WriteString(":" + key + "=" + v)
	}
}

func (l *line) writeCount(key string, n *int64) {
	if n != nil {
		l.writeBare(key, strconv.FormatInt(*n, 10))
	}
}

func (l *line) writeLimits(key string, t spec.Limits) { l.writeBare(key, t.String()) }

func (l *line) writeSpan(key string, d spec.Span) {
	if d > 0 {
		l.writeBare(key, format.Duration(d.Seconds()))
	}
}

// formatMillionths writes millionths as a decimal.
func formatMillionths(n int64) string {
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
	head.writeAssociation(pol, root)
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
		l.writeQuoted("Description", acct.Description)
		l.writeQuoted("Organization", acct.Organization)
	}
	l.writeAssociation(pol, a)
	return l.b.String()
}

func userLine(pol *state.Policy, a *spec.Association) string {
	l := &line{}
	l.b.WriteString("User - '" + a.User + "'")
	l.writeQuoted("Partition", a.Partition)
	if u := pol.FindUser(a.User); u != nil {
		l.writeQuoted("DefaultAccount", u.DefaultAccount)
		l.writeQuoted("DefaultWCKey", u.DefaultWCKey)
		l.writeQuoted("AdminLevel", u.AdminLevel)
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
	l.writeQuoted("Coordinator", strings.Join(of, ","))
	l.writeQuoted("WCKeys", strings.Join(keys, ","))
	l.writeAssociation(pol, a)
	return l.b.String()
}

// writeAssociation writes the options of an association; a list of QOS as what it adds to
// the inherited one, where it only adds.
func (l *line) writeAssociation(pol *state.Policy, a *spec.Association) {
	if a.SharesParent {
		l.writeBare("Fairshare", "parent")
	} else {
		l.writeBare("Fairshare", strconv.FormatInt(a.Share(), 10))
	}
	l.writeCount("GrpJobs", a.GrpJobs)
	l.writeCount("GrpJobsAccrue", a.GrpJobsAccrue)
	l.writeCount("GrpSubmitJobs", a.GrpSubmitJobs)
	l.writeLimits("GrpTRES", a.GrpTRES)
	l.writeLimits("GrpTRESMins", a.GrpTRESMins)
	l.writeLimits("GrpTRESRunMins", a.GrpTRESRunMins)
	l.writeSpan("GrpWall", a.GrpWall)
	l.writeLimits("GuaranteedTRES", a.Guaranteed)
	l.writeCount("MaxJobs", a.MaxJobs)
	l.writeCount("MaxJobsAccrue", a.MaxJobsAccrue)
	l.writeCount("MaxSubmitJobs", a.MaxSubmitJobs)
	l.writeLimits("MaxTRESPerJob", a.MaxTRESPerJob)
	l.writeLimits("MaxTRESPerNode", a.MaxTRESPerNode)
	l.writeLimits("MaxTRESMinsPerJob", a.MaxTRESMins)
	l.writeSpan("MaxWallDurationPerJob", a.MaxWall)
	l.writeCount("MinPrioThreshold", a.MinPrio)
	l.writeCount("OverQuotaWeight", a.OverQuota)
	if a.Priority != 0 {
		l.writeBare("Priority", strconv.FormatUint(uint64(a.Priority), 10))
	}
	l.writeQuoted("Comment", a.Comment)
	l.writeQuoted("DefaultQOS", a.DefaultQOS)
	if len(a.QOS) == 0 {
		return
	}
	up := inheritedQOS(pol, &spec.Association{Parent: a.Parent})
	if a.Parent == 0 || slices.ContainsFunc(up, func(n string) bool { return !slices.Contains(a.QOS, n) }) {
		l.writeQuoted("QOS", strings.Join(a.QOS, ","))
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
	l.writeQuoted("QOS", strings.Join(more, ","))
}

func qosLine(q *spec.QOS) string {
	l := &line{}
	l.b.WriteString("QOS - '" + q.Name + "'")
	l.writeQuoted("Description", q.Description)
	if q.Priority != 0 {
		l.writeBare("Priority", strconv.FormatUint(uint64(q.Priority), 10))
	}
	l.writeQuoted("Flags", strings.Join(q.Flags, ","))
	if q.GraceTime != 0 {
		l.writeBare("GraceTime", strconv.FormatInt(q.GraceTime.Seconds(), 10))
	}
	l.writeCount("GrpJobs", q.GrpJobs)
	l.writeCount("GrpJobsAccrue", q.GrpJobsAccrue)
	l.writeCount("GrpSubmitJobs", q.GrpSubmitJobs)
	l.writeLimits("GrpTRES", q.GrpTRES)
	l.writeLimits("GrpTRESMins", q.GrpTRESMins)
	l.writeLimits("GrpTRESRunMins", q.GrpTRESRunMins)
	l.writeSpan("GrpWall", q.GrpWall)
	if q.LimitFactor != 0 {
		l.writeBare("LimitFactor", formatMillionths(q.LimitFactor))
	}
	l.writeCount("MaxJobsAccruePerAccount", q.MaxAccruePerAcct)
	l.writeCount("MaxJobsAccruePerUser", q.MaxAccruePerUser)
	l.writeCount("MaxJobsPerAccount", q.MaxJobsPerAcct)
	l.writeCount("MaxJobsPerUser", q.MaxJobsPerUser)
	l.writeCount("MaxSubmitJobsPerAccount", q.MaxSubmitPerAcct)
	l.writeCount("MaxSubmitJobsPerUser", q.MaxSubmitPerUser)
	l.writeLimits("MaxTRESPerJob", q.MaxTRESPerJob)
	l.writeLimits("MaxTRESPerNode", q.MaxTRESPerNode)
	l.writeLimits("MaxTRESPerAccount", q.MaxTRESPerAcct)
	l.writeLimits("MaxTRESPerUser", q.MaxTRESPerUser)
	l.writeLimits("MaxTRESMinsPerJob", q.MaxTRESMins)
	l.writeLimits("MaxTRESRunMinsPerAccount", q.MaxRunMinsAcct)
	l.writeLimits("MaxTRESRunMinsPerUser", q.MaxRunMinsUser)
	l.writeLimits("MinTRESPerJob", q.MinTRESPerJob)
	l.writeSpan("MaxWallDurationPerJob", q.MaxWall)
	l.writeCount("MinPrioThreshold", q.MinPrio)
	l.writeQuoted("Preempt", strings.Join(q.Preempt, ","))
	l.writeSpan("PreemptExemptTime", q.PreemptExempt)
	l.writeQuoted("PreemptMode", q.PreemptMode)
	if q.UsageFactor != 0 {
		l.writeBare("UsageFactor", formatMillionths(q.Factor()))
	}
	if q.UsageThreshold != nil {
		l.writeBare("UsageThreshold", formatMillionths(*q.UsageThreshold))
	}
	return l.b.String()
}
