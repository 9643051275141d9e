package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
)

// bounded is the lab's policy with what is used of its limits: of the QOS
// gpucap by four jobs of alice, of the others only by what has ended.
func (w *world) bounded() {
	w.people()
	w.shares("root")
	for i, a := range []uint32{1, 2, 3, 8, 4, 7, 5, 6} {
		share := w.tree.GetShares()[i]
		share.Assoc, share.LevelShares = a, []int64{1, 81, 81, 21, 21, 5, 81, 1}[i]
	}
	n := func(cpu, mem, node, billing, gpu int64) []*apiv1.NamedCount {
		return []*apiv1.NamedCount{{Name: "cpu", N: cpu}, {Name: "mem", N: mem}, {Name: "node", N: node}, {Name: "billing", N: billing}, {Name: "gres/gpu", N: gpu}}
	}
	held, ahead, past := n(4, 2000, 1, 4, 4), n(240, 120000, 240, 240, 240), n(0, 16, 0, 0, 0)
	use := func(kind apiv1.LimitUsage_Kind, qos, subject uint32) *apiv1.LimitUsage {
		return &apiv1.LimitUsage{Kind: kind, Qos: qos, Subject: subject, Running: 4, Accruing: 3, Submitted: 7, Tres: held, TresRunMins: ahead}
	}
	w.used = []*apiv1.LimitUsage{
		{Kind: apiv1.LimitUsage_QOS, Qos: 1, Wall: 1.9, Raw: 1.999995, TresMins: past},
		{Kind: apiv1.LimitUsage_QOS_USER, Qos: 1, Subject: 1001}, {Kind: apiv1.LimitUsage_QOS_USER, Qos: 1},
		{Kind: apiv1.LimitUsage_QOS_ACCOUNT, Qos: 1, Subject: 3}, {Kind: apiv1.LimitUsage_QOS_ACCOUNT, Qos: 1, Subject: 1},
		use(apiv1.LimitUsage_QOS, 2, 0), use(apiv1.LimitUsage_QOS_USER, 2, 1001), use(apiv1.LimitUsage_QOS_ACCOUNT, 2, 3),
		use(apiv1.LimitUsage_ASSOCIATION, 0, 1), use(apiv1.LimitUsage_ASSOCIATION, 0, 3), use(apiv1.LimitUsage_ASSOCIATION, 0, 8),
		{Kind: apiv1.LimitUsage_ASSOCIATION, Subject: 2, Wall: 1.9, Raw: 2, TresMins: past},
	}
	w.reply[tool.MethodLimitUsage] = func(proto.Message) (proto.Message, error) {
		return &apiv1.LimitUsageReply{Policy: w.policy, Shares: w.tree, Usage: w.used}, nil
	}
}

// limited is bounded, with a limit of each kind.
func (w *world) limited() {
	w.bounded()
	n := func(v int64) *apiv1.OptionalInt { return &apiv1.OptionalInt{Value: v} }
	const minute = 60 * tool.Second
	for _, a := range w.policy.GetAssociations() {
		if a.GetAccount() == "ml" {
			a.GrpJobs, a.GrpJobsAccrue, a.GrpSubmitJobs, a.GrpWall = n(10), n(11), n(12), 13*minute
			a.MaxJobs, a.MaxJobsAccrue, a.MaxSubmitJobs, a.MaxWall, a.MinPrio = n(14), n(15), n(16), 17*minute, n(18)
			a.GrpTres, a.GrpTresMins, a.GrpTresRunMins = []*apiv1.NamedCount{{Name: "license/sim", N: 2}, {Name: "cpu", N: 0}}, []*apiv1.NamedCount{{Name: "mem", N: 20}}, []*apiv1.NamedCount{{Name: "node", N: 500}}
			a.MaxTresPerJob, a.MaxTresPerNode, a.MaxTresMins = []*apiv1.NamedCount{{Name: "cpu", N: 21}, {Name: "mem", N: 9}}, []*apiv1.NamedCount{{Name: "cpu", N: 22}}, []*apiv1.NamedCount{{Name: "cpu", N: 23}}
			a.Comment = "the lab's"
		}
	}
	q := w.policy.GetQos()[1]
	q.GrpJobs, q.GrpJobsAccrue, q.GrpSubmitJobs, q.GrpWall, q.MaxWall, q.MinPrio = n(30), n(31), n(32), 33*minute, 34*minute, n(35)
	q.MaxJobsPerAccount, q.MaxAccruePerAccount, q.MaxSubmitPerAccount = n(36), n(37), n(38)
	q.MaxJobsPerUser, q.MaxAccruePerUser, q.MaxSubmitPerUser = n(39), n(40), n(41)
	q.MaxTresPerAccount, q.MaxRunMinsUser, q.MaxRunMinsAccount = []*apiv1.NamedCount{{Name: "node", N: 3}}, []*apiv1.NamedCount{{Name: "cpu", N: 1000}}, []*apiv1.NamedCount{{Name: "cpu", N: 2000}}
	q.MaxTresPerJob, q.MaxTresPerNode, q.MaxTresMins, q.MinTresPerJob = []*apiv1.NamedCount{{Name: "cpu", N: 42}}, []*apiv1.NamedCount{{Name: "cpu", N: 43}}, []*apiv1.NamedCount{{Name: "cpu", N: 44}}, []*apiv1.NamedCount{{Name: "gres/gpu", N: 1}}
	q.PreemptMode = "requeue"
}

// A document says of each limit what the text says.
func TestAssocMgrDocument(t *testing.T) {
	w := newWorld(t)
	w.limited()
	got := w.shell("scontrol show assoc_mgr flags=q,a users=alice --json")
	var doc map[string]json.RawMessage
	if err := json.Unmarshal([]byte(got.out), &doc); err != nil || got.code != 0 {
		t.Fatalf("%v: %s%s", err, got.out, got.errOut)
	}
	if doc["users"] != nil {
		t.Error("users are there, and were not asked for")
	}
	type limit struct {
		Name  string
		Limit struct {
			Set, Infinite bool
			Number        int64
		}
		Used *float64
	}
	var qos []struct {
		Name   string
		Limits map[string]json.RawMessage
		Users  []struct {
			Name   string
			Limits map[string]json.RawMessage
		}
	}
	if err := json.Unmarshal(doc["qos"], &qos); err != nil || len(qos) != 2 || len(qos[1].Users) != 1 {
		t.Fatalf("%v: %s", err, doc["qos"])
	}
	var jobs limit
	var tres []limit
	if err := json.Unmarshal(qos[1].Limits["GrpJobs"], &jobs); err != nil || !jobs.Limit.Set || jobs.Limit.Number != 30 || *jobs.Used != 4 {
		t.Errorf("GrpJobs: %v, %+v", err, jobs)
	}
	if err := json.Unmarshal(qos[1].Users[0].Limits["MaxTRESPU"], &tres); err != nil || len(tres) != 9 {
		t.Fatalf("MaxTRESPU: %v, %+v", err, tres)
	}
	if cpu, gpu := tres[0], tres[8]; cpu.Name != "cpu" || !cpu.Limit.Infinite || *cpu.Used != 4 || gpu.Name != "gres/gpu" || gpu.Limit.Number != 4 || *gpu.Used != 4 {
		t.Errorf("MaxTRESPU: %+v", tres)
	}
	var one []limit
	if err := json.Unmarshal(qos[1].Limits["MaxTRESPJ"], &one); err != nil || len(one) != 1 || one[0].Limit.Number != 42 || one[0].Used != nil {
		t.Errorf("MaxTRESPJ: %v, %+v", err, one)
	}
	var assocs []struct{ User string }
	if err := json.Unmarshal(doc["associations"], &assocs); err != nil || len(assocs) != 1 || assocs[0].User != "alice" {
		t.Errorf("associations: %v, %s", err, doc["associations"])
	}
	if y := w.shell("scontrol show assoc_mgr flags=users --yaml"); y.code != 0 || !strings.Contains(y.out, "alice") || strings.Contains(y.out, "associations") {
		t.Errorf("%d %s%s", y.code, y.out, y.errOut)
	}
}
