package scheduler_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// limitFields are the fields that give the reasons of each family, in the words
// of sacctmgr.
func limitFields() map[spec.LimitScope]string {
	return map[spec.LimitScope]string{
		spec.ScopeQOSGrp: "qos q set GrpTRES", spec.ScopeQOSGrpMinutes: "qos q set GrpTRESMins", spec.ScopeQOSGrpRunMinutes: "qos q set GrpTRESRunMins",
		spec.ScopeQOSMaxPerJob: "qos q set MaxTRESPerJob", spec.ScopeQOSMaxPerNode: "qos q set MaxTRESPerNode", spec.ScopeQOSMaxPerUser: "qos q set MaxTRESPerUser",
		spec.ScopeQOSMaxMinutesPerJob: "qos q set MaxTRESMinsPerJob", spec.ScopeMaxPerAccount: "qos q set MaxTRESPerAccount",
		spec.ScopeMaxRunMinsPerAcct: "qos q set MaxTRESRunMinsPerAccount", spec.ScopeMaxRunMinsPerUser: "qos q set MaxTRESRunMinsPerUser", spec.ScopeQOSMin: "qos q set MinTRESPerJob",
		spec.ScopeAssocGrp: "account lab set GrpTRES", spec.ScopeAssocGrpMinutes: "account lab set GrpTRESMins", spec.ScopeAssocGrpRunMinutes: "account lab set GrpTRESRunMins",
		spec.ScopeAssocMaxPerJob: "user alice set MaxTRESPerJob", spec.ScopeAssocMaxPerNode: "user alice set MaxTRESPerNode", spec.ScopeAssocMaxMinutes: "user alice set MaxTRESMinsPerJob",
	}
}

// limitReasons sets every limit of every TRES so that a job is over it, and
// returns the reasons that it then waits for.
func limitReasons(t *testing.T) map[spec.ReasonCode]bool {
	t.Helper()
	shown := map[spec.ReasonCode]bool{}
	for scope, field := range limitFields() {
		for _, tres := range []string{"cpu", "mem", "node", "gres/gpu", "license/lic", "billing"} {
			if scope == spec.ScopeQOSMaxPerNode || scope == spec.ScopeAssocMaxPerNode {
				if tres == "license/lic" {
					continue // no node has them
				}
			}
			s := newSession(t)
			s.configure("GresTypes=gpu\nDefMemPerCPU=100\nLicenses=lic:4\nAccountingStorageEnforce=limits,qos\nNodeName=n[1-2] CPUs=4 RealMemory=4000 Gres=gpu:2\n" +
				"PartitionName=p Nodes=n[1-2] Default=YES DefaultTime=60\n")
			limit := "0"
			if scope == spec.ScopeQOSMin {
				limit = "1000000"
			}
			for _, line := range []string{"register n[1-2]", "sacctmgr add qos q", "sacctmgr add account lab", "sacctmgr add user alice account=lab qos=q",
				"sacctmgr modify " + field + "=" + tres + "=" + limit} {
				s.run(line)
			}
			js := &spec.JobSpec{Name: "j", User: "alice", UID: uidOf("alice"), GID: 100, QOS: "q", Licenses: []spec.Count{{Name: "lic", N: 1}},
				Size: spec.Size{MinNodes: 2, MaxNodes: 2, TasksPerNode: 2, PerNode: []spec.Count{{Name: "gpu", N: 1}}}}
			s.user = "alice"
			res, err := s.decide(scheduler.Submit{Spec: js})
			if err != nil {
				t.Fatalf("%s=%s: %v", field, tres, err)
			}
			s.run("pass")
			want := spec.LimitReason(scope, tres)
			if got := s.head.Job(res.UID).Reason; got.Code != want || got.TRES == "" || got.Subject == "" {
				t.Errorf("%s=%s: the job waits for %+v, not %s", field, tres, got, want)
			}
			shown[want] = true
		}
	}
	return shown
}

// Every reason that is said to be given is shown: by a limit that a job is
// over, or by a transcript. And the rest has no way to occur.
func TestEveryReason(t *testing.T) {
	shown := limitReasons(t)
	names, err := filepath.Glob("testdata/scripts/*.txt")
	if err != nil || len(names) == 0 {
		t.Fatal("no transcripts", err)
	}
	// (Reason) of squeue, reason=Reason of show, and what a refusal says first.
	word := regexp.MustCompile(`(?:\(|reason=|error: |NODELIST\(REASON\)| )([A-Z][A-Za-z]+)`)
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range word.FindAllSubmatch(text, -1) {
			shown[spec.ReasonCode(m[1])] = true
		}
	}
	for _, d := range spec.ReasonDocs() {
		switch {
		case d.Text == "":
			t.Errorf("%s is not described", d.Code)
		case d.Given && !shown[d.Code]:
			t.Errorf("%s is said to be given, and nothing shows it", d.Code)
		case !d.Given && shown[d.Code]:
			t.Errorf("%s is shown, though it is said never to be given: %s", d.Code, d.Text)
		}
	}
}
