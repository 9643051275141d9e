package cli

import (
	"strings"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
)

// everyLimit is a policy in which no two limits are the same, so that a column
// that shows another's is seen.
func everyLimit() *apiv1.PolicyReply {
	n := func(v int64) *apiv1.OptionalInt { return &apiv1.OptionalInt{Value: v} }
	tres := func(v int64) []*apiv1.NamedCount {
		return []*apiv1.NamedCount{{Name: "cpu", N: v}, {Name: "mem", N: v + 100}, {Name: "node", N: v + 200}}
	}
	return &apiv1.PolicyReply{Cluster: "c", Qos: []*apiv1.Qos{{Id: 3, Name: "q", Description: "text", Priority: 4, Flags: []string{"NoDecay"}, MaxWall: 6 * tool.Second, MaxTresPerJob: tres(7),
		MaxTresPerNode: tres(8), MaxTresPerUser: tres(9), MaxTresPerAccount: tres(10), MinTresPerJob: tres(11), GrpTres: tres(12), GrpTresMins: tres(13), GrpTresRunMins: tres(14),
		GrpWall: 15 * tool.Second, GrpJobs: n(16), GrpSubmitJobs: n(17), MaxJobsPerUser: n(18), MaxSubmitPerUser: n(19), MaxJobsPerAccount: n(20), MaxSubmitPerAccount: n(21), GraceTime: 22 * tool.Second,
		Preempt: []string{"low"}, PreemptMode: "REQUEUE", UsageFactor: 2_500_000, MinPrio: n(26), MaxTresMins: tres(27), MaxRunMinsAccount: tres(28), MaxRunMinsUser: tres(29),
		GrpJobsAccrue: n(30), MaxAccruePerUser: n(31), MaxAccruePerAccount: n(32), LimitFactor: 3_300_000, UsageThreshold: n(340_000), PreemptExempt: 40 * tool.Second}},
		Accounts: []*apiv1.Account{{Name: "root"}, {Name: "lab", Description: "text", Organization: "org", Coordinators: []string{"ann"}}},
		Users:    []*apiv1.AccountingUser{{Name: "ann", DefaultAccount: "lab", DefaultWckey: "w", AdminLevel: "Operator"}},
		Associations: []*apiv1.Association{{Id: 1, Account: "root"}, {Id: 2, Account: "lab", Parent: 1},
			{Id: 5, Account: "lab", User: "ann", Partition: "gpu", Parent: 2, Shares: 6, Priority: 8, DefaultQos: "q", Qos: []string{"q"}, MaxWall: 11 * tool.Second, MaxTresPerJob: tres(12),
				MaxTresPerNode: tres(13), MaxTresMins: tres(14), MaxJobs: n(15), MaxSubmitJobs: n(16), GrpTres: tres(17), GrpTresMins: tres(18), GrpTresRunMins: tres(19), GrpWall: 20 * tool.Second,
				GrpJobs: n(21), GrpSubmitJobs: n(22), Comment: "text", GrpJobsAccrue: n(24), MaxJobsAccrue: n(25), MinPrio: n(26)}},
		Wckeys:    []*apiv1.WcKey{{Id: 7, Name: "w", User: "ann"}},
		Resources: []*apiv1.Resource{{Name: "lic", Server: "s", ServerType: "flex", Type: "License", Description: "text", Manager: "ann", Count: 50, Allowed: 40, Absolute: true, LastConsumed: 6}}}
}

// Every column of every entity is shown under its long name and its short ones.
func TestSacctmgrColumns(t *testing.T) {
	w := newWorld(t)
	w.lab()
	w.policy = everyLimit()
	all := func(v int) string {
		return "cpu=" + tool.Itoa(v) + ",mem=" + tool.Itoa(v+100) + "M,node=" + tool.Itoa(v+200)
	}
	for entity, columns := range map[string][]string{
		"qos": {"Name: q", "ID: 3", "Description Descr: text", "Priority Prio: 4", "Flags: NoDecay", "MaxWall MaxWallDurationPerJob: 00:00:06",
			"MaxTRES MaxTRESPerJob MaxTRESPJ: " + all(7), "MaxTRESPerNode MaxTRESPN: " + all(8), "MaxTRESPU MaxTRESPerUser: " + all(9), "MaxTRESPA MaxTRESPerAccount: " + all(10),
			"MinTRES MinTRESPerJob: " + all(11), "GrpTRES: " + all(12), "GrpTRESMins: " + all(13), "GrpTRESRunMins: " + all(14), "GrpWall: 00:00:15", "GrpJobs: 16", "GrpSubmit GrpSubmitJobs: 17",
			"MaxJobsPU MaxJobsPerUser MaxJobs: 18", "MaxSubmitPU MaxSubmitJobsPU MaxSubmitJobsPerUser MaxSubmit MaxSubmitJobs: 19", "MaxJobsPA MaxJobsPerAccount: 20",
			"MaxSubmitPA MaxSubmitJobsPA MaxSubmitJobsPerAccount: 21", "GraceTime: 00:00:22", "Preempt: low", "PreemptMode: requeue", "UsageFactor: 2.500000", "MinPrioThres MinPrioThreshold MinPrio: 26",
			"MaxTRESMins MaxTRESMinsPerJob MaxTRESMinsPJ: " + all(27), "MaxTRESRunMinsPA MaxTRESRunMinsPerAccount: " + all(28), "MaxTRESRunMinsPU MaxTRESRunMinsPerUser: " + all(29),
			"GrpJobsAccrue: 30", "MaxJobsAccruePU MaxJobsAccruePerUser: 31", "MaxJobsAccruePA MaxJobsAccruePerAccount: 32", "LimitFactor: 3.300000", "UsageThres UsageThreshold: 0.340000",
			"PreemptExemptTime: 00:00:40", "GrpCPUs: 12", "GrpMem GrpMemory: 112", "GrpNodes: 212", "GrpCPUMins: 13", "GrpCPURunMins: 14", "MaxCPUs MaxCPUsPerJob: 7", "MaxNodes MaxNodesPerJob: 207",
			"MaxCPUMins MaxCPUMinsPerJob: 27", "MaxCPUsPU MaxCPUsPerUser: 9", "MaxNodesPU MaxNodesPerUser: 209", "MinCPUs MinCPUsPerJob: 11"},
		"association user=ann": {"Cluster: c", "Account Acct: lab", "User: ann", "Partition: gpu", "Share Shares Fairshare RawShares: 6", "Priority: 8", "DefQOS DefaultQOS: q", "QOS QOSLevel: q",
			"QOS_RAW QOSRAW: 3", "MaxWall MaxWallDurationPerJob: 00:00:11", "MaxTRES MaxTRESPerJob MaxTRESPJ: " + all(12), "MaxTRESPerNode MaxTRESPN: " + all(13),
			"MaxTRESMins MaxTRESMinsPerJob MaxTRESMinsPJ: " + all(14), "MaxJobs: 15", "MaxSubmit MaxSubmitJobs: 16", "GrpTRES: " + all(17), "GrpTRESMins: " + all(18), "GrpTRESRunMins: " + all(19),
			"GrpWall: 00:00:20", "GrpJobs: 21", "GrpSubmit GrpSubmitJobs: 22", "Comment: text", "GrpJobsAccrue: 24", "MaxJobsAccrue: 25", "MinPrioThres MinPrioThreshold: 26", "ID: 5", "ParentID: 2",
			"Lineage: /lab/0-ann/gpu/", "IsDefault: YES", "GrpCPUs: 17", "GrpMem: 117", "GrpNodes: 217", "GrpCPUMins: 18", "GrpCPURunMins: 19", "MaxCPUs: 12", "MaxNodes: 212", "MaxCPUMins: 14"},
		"user":           {"User Name: ann", "DefAcct DefaultAccount: lab", "DefWCKey DefaultWCKey: w", "Admin AdminLevel: Operator", "Coordinators CoordAccounts: lab"},
		"user withassoc": {"Account: lab", "Partition: gpu", "MaxJobs: 15", "QOS: q", "GrpCPUMins: 18", "IsDefault: YES"},
		"account lab":    {"Account Acct Name: lab", "Descr Description: text", "Org Organization: org", "Coordinators CoordUsers: ann"},
		"cluster":        {"Cluster Name: c", "ControlHost: vm", "ControlPort: 6817", "NodeCount: 2", "ClusterNodes NodeNames: node[1-2]", "TRES: cpu=16,mem=32000M,node=2,billing=16,gres/gpu=16"},
		"wckey":          {"WCKey Name: w", "Cluster: c", "User: ann", "ID: 7"},
		"resource": {"Name: lic", "Server: s", "ServerType: flex", "Type: License", "Count: 50", "LastConsumed: 6", "Allocated PercentAllowed: 40", "Allowed: 40", "Cluster Clusters: c",
			"Descr Description: text", "Manager: ann", "Flags: Absolute"},
	} {
		for _, c := range columns {
			names, want, _ := strings.Cut(c, ": ")
			head := ""
			for _, name := range strings.Fields(names) {
				line := "sacctmgr -P show " + entity + " format=" + name
				r := w.shell(line)
				got := strings.SplitN(r.out, "\n", 2)
				if r.code != 0 || len(got) < 2 || got[1] != want+"\n" {
					t.Errorf("%s: exit %d, %q%s, want %q", line, r.code, r.out, r.errOut, want)
				} else if head == "" {
					head = got[0]
				} else if head != got[0] {
					t.Errorf("%s: column %s, not %s", line, got[0], head)
				}
			}
		}
	}
}
