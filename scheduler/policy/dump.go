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

func (l *line) writeQuoted(key, value string) {
	if value != "" {
		l.b.WriteString(":" + key + "='" + strings.ReplaceAll(value, "'", "") + "'")
	}
}

func (l *line) writeBare(key, value string) {
	if value != "" {
		l.b.WriteString(":" + key + "=" + value)
	}
}

func (l *line) writeCount(key string, n *int64) {
	if n != nil {
		l.writeBare(key, strconv.FormatInt(*n, 10))
	}
}

func (l *line) writeLimits(key string, limits spec.Limits) { l.writeBare(key, limits.String()) }

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
func Dump(cluster *state.State) string {
	var out strings.Builder
	out.WriteString(dumpHead)
	policy := cluster.Policy
	for i := range policy.QOS {
		out.WriteString(qosLine(&policy.QOS[i]) + "\n")
	}
	root := policy.FindAssoc("root", "", "")
	if root == nil {
		root = &spec.Association{Account: "root"}
	}
	head := &line{}
	head.b.WriteString("Cluster - '" + cluster.ClusterName + "'")
	head.writeAssociation(policy, root)
	out.WriteString(head.b.String() + "\n")
	dumpBelow(&out, policy, "root", 0)
	return out.String()
}

// dumpBelow writes an account's users and accounts, and then what is below
// each of those.
func dumpBelow(out *strings.Builder, policy *state.Policy, account string, depth int) {
	var lines, children []string
	for _, id := range sortedAssocs(policy) {
		assoc := policy.Assoc(id)
		switch {
		case assoc.User != "" && assoc.Account == account:
			lines = append(lines, userLine(policy, assoc))
		case assoc.User == "" && assoc.Account != account &&
			assoc.Parent == policy.AccountAssoc(account):
			lines = append(lines, accountLine(policy, assoc))
			children = append(children, assoc.Account)
		}
	}
	if len(lines) > 0 {
		out.WriteString("Parent - '" + account + "'\n" + strings.Join(lines, "\n") + "\n")
	}
	for _, c := range children {
		if depth < 64 {
			dumpBelow(out, policy, c, depth+1)
		}
	}
}

// sortedAssocs lists associations, users before accounts, each by number.
func sortedAssocs(policy *state.Policy) []uint32 {
	var users, accounts []uint32
	for i := range policy.Assocs {
		if association := &policy.Assocs[i]; association.User != "" {
			users = append(users, association.ID)
		} else {
			accounts = append(accounts, association.ID)
		}
	}
	return append(users, accounts...)
}

func accountLine(policy *state.Policy, assoc *spec.Association) string {
	l := &line{}
	l.b.WriteString("Account - '" + assoc.Account + "'")
	if acct := policy.FindAccount(assoc.Account); acct != nil {
		l.writeQuoted("Description", acct.Description)
		l.writeQuoted("Organization", acct.Organization)
	}
	l.writeAssociation(policy, assoc)
	return l.b.String()
}

func userLine(policy *state.Policy, assoc *spec.Association) string {
	l := &line{}
	l.b.WriteString("User - '" + assoc.User + "'")
	l.writeQuoted("Partition", assoc.Partition)
	if user := policy.FindUser(assoc.User); user != nil {
		l.writeQuoted("DefaultAccount", user.DefaultAccount)
		l.writeQuoted("DefaultWCKey", user.DefaultWCKey)
		l.writeQuoted("AdminLevel", user.AdminLevel)
	}
	var of, keys []string
	for i := range policy.Accounts {
		if slices.Contains(policy.Accounts[i].Coordinators, assoc.User) {
			of = append(of, policy.Accounts[i].Name)
		}
	}
	for _, key := range policy.WCKeys {
		if key.User == assoc.User {
			keys = append(keys, key.Name)
		}
	}
	l.writeQuoted("Coordinator", strings.Join(of, ","))
	l.writeQuoted("WCKeys", strings.Join(keys, ","))
	l.writeAssociation(policy, assoc)
	return l.b.String()
}

// writeAssociation writes the options of an association; a list of QOS as what it adds to
// the inherited one, where it only adds.
func (l *line) writeAssociation(policy *state.Policy, assoc *spec.Association) {
	if assoc.SharesParent {
		l.writeBare("Fairshare", "parent")
	} else {
		l.writeBare("Fairshare", strconv.FormatInt(assoc.Share(), 10))
	}
	l.writeCount("GrpJobs", assoc.GrpJobs)
	l.writeCount("GrpJobsAccrue", assoc.GrpJobsAccrue)
	l.writeCount("GrpSubmitJobs", assoc.GrpSubmitJobs)
	l.writeLimits("GrpTRES", assoc.GrpTRES)
	l.writeLimits("GrpTRESMins", assoc.GrpTRESMins)
	l.writeLimits("GrpTRESRunMins", assoc.GrpTRESRunMins)
	l.writeSpan("GrpWall", assoc.GrpWall)
	l.writeLimits("GuaranteedTRES", assoc.Guaranteed)
	l.writeCount("MaxJobs", assoc.MaxJobs)
	l.writeCount("MaxJobsAccrue", assoc.MaxJobsAccrue)
	l.writeCount("MaxSubmitJobs", assoc.MaxSubmitJobs)
	l.writeLimits("MaxTRESPerJob", assoc.MaxTRESPerJob)
	l.writeLimits("MaxTRESPerNode", assoc.MaxTRESPerNode)
	l.writeLimits("MaxTRESMinsPerJob", assoc.MaxTRESMins)
	l.writeSpan("MaxWallDurationPerJob", assoc.MaxWall)
	l.writeCount("MinPrioThreshold", assoc.MinPrio)
	l.writeCount("OverQuotaWeight", assoc.OverQuota)
	if assoc.Priority != 0 {
		l.writeBare("Priority", strconv.FormatUint(uint64(assoc.Priority), 10))
	}
	l.writeQuoted("Comment", assoc.Comment)
	l.writeQuoted("DefaultQOS", assoc.DefaultQOS)
	if len(assoc.QOS) == 0 {
		return
	}
	up := inheritedQOS(policy, &spec.Association{Parent: assoc.Parent})
	if assoc.Parent == 0 ||
		slices.ContainsFunc(up, func(n string) bool { return !slices.Contains(assoc.QOS, n) }) {
		l.writeQuoted("QOS", strings.Join(assoc.QOS, ","))
		return
	}
	var more []string
	for _, n := range assoc.QOS {
		if !slices.Contains(up, n) {
			more = append(more, "+"+n)
		}
	}
	if len(more) == 0 {
		more = assoc.QOS // the same as above it, but said
	}
	l.writeQuoted("QOS", strings.Join(more, ","))
}

func qosLine(qos *spec.QOS) string {
	l := &line{}
	l.b.WriteString("QOS - '" + qos.Name + "'")
	l.writeQuoted("Description", qos.Description)
	if qos.Priority != 0 {
		l.writeBare("Priority", strconv.FormatUint(uint64(qos.Priority), 10))
	}
	l.writeQuoted("Flags", strings.Join(qos.Flags, ","))
	if qos.GraceTime != 0 {
		l.writeBare("GraceTime", strconv.FormatInt(qos.GraceTime.Seconds(), 10))
	}
	l.writeCount("GrpJobs", qos.GrpJobs)
	l.writeCount("GrpJobsAccrue", qos.GrpJobsAccrue)
	l.writeCount("GrpSubmitJobs", qos.GrpSubmitJobs)
	l.writeLimits("GrpTRES", qos.GrpTRES)
	l.writeLimits("GrpTRESMins", qos.GrpTRESMins)
	l.writeLimits("GrpTRESRunMins", qos.GrpTRESRunMins)
	l.writeSpan("GrpWall", qos.GrpWall)
	if qos.LimitFactor != 0 {
		l.writeBare("LimitFactor", formatMillionths(qos.LimitFactor))
	}
	l.writeCount("MaxJobsAccruePerAccount", qos.MaxAccruePerAcct)
	l.writeCount("MaxJobsAccruePerUser", qos.MaxAccruePerUser)
	l.writeCount("MaxJobsPerAccount", qos.MaxJobsPerAcct)
	l.writeCount("MaxJobsPerUser", qos.MaxJobsPerUser)
	l.writeCount("MaxSubmitJobsPerAccount", qos.MaxSubmitPerAcct)
	l.writeCount("MaxSubmitJobsPerUser", qos.MaxSubmitPerUser)
	l.writeLimits("MaxTRESPerJob", qos.MaxTRESPerJob)
	l.writeLimits("MaxTRESPerNode", qos.MaxTRESPerNode)
	l.writeLimits("MaxTRESPerAccount", qos.MaxTRESPerAcct)
	l.writeLimits("MaxTRESPerUser", qos.MaxTRESPerUser)
	l.writeLimits("MaxTRESMinsPerJob", qos.MaxTRESMins)
	l.writeLimits("MaxTRESRunMinsPerAccount", qos.MaxRunMinsAcct)
	l.writeLimits("MaxTRESRunMinsPerUser", qos.MaxRunMinsUser)
	l.writeLimits("MinTRESPerJob", qos.MinTRESPerJob)
	l.writeSpan("MaxWallDurationPerJob", qos.MaxWall)
	l.writeCount("MinPrioThreshold", qos.MinPrio)
	l.writeQuoted("Preempt", strings.Join(qos.Preempt, ","))
	l.writeSpan("PreemptExemptTime", qos.PreemptExempt)
	l.writeQuoted("PreemptMode", qos.PreemptMode)
	if qos.UsageFactor != 0 {
		l.writeBare("UsageFactor", formatMillionths(qos.Factor()))
	}
	if qos.UsageThreshold != nil {
		l.writeBare("UsageThreshold", formatMillionths(*qos.UsageThreshold))
	}
	return l.b.String()
}
