package daemon

import (
	"context"
	"math"
	"strings"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// What sacctmgr, sprio and sshare ask of a running controller fits together:
// the parts of a priority add up to it, and shares are those of the tree.
func TestPolicyPrioritiesAndShares(t *testing.T) {
	w := start(t)
	w.c.deps.Identify = func(context.Context) Caller { return Caller{UID: 0, User: "root", Admin: true} }
	cfg := testConfig()
	cfg.Priority = spec.PriorityConfig{FairShare: 10000, JobSize: 1000, Partition: 777, TRES: []spec.Weight{{TRES: "cpu", Micro: 500_000_000}}}
	w.c.deps.Reload = func() (*spec.Config, []string, error) { return cfg, nil, nil }
	if _, err := w.svc.Reconfigure(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	text := "Cluster - 'test':Fairshare=1\nParent - 'root'\nAccount - 'ml':Fairshare=3\nParent - 'ml'\nUser - 'alice':DefaultAccount='ml'\n"
	load := &apiv1.PolicyChangeRequest{Verb: apiv1.PolicyChangeRequest_LOAD, Text: text + "User - 'bob':MaxJobs=x\n"}
	if _, err := w.svc.ChangePolicy(t.Context(), load); err == nil || !strings.Contains(err.Error(), "line 6: MaxJobs=x") {
		t.Errorf("a file with a fault: %v", err)
	}
	load.Text, load.Try = text, true
	if rep, err := w.svc.ChangePolicy(t.Context(), load); err != nil || len(rep.GetChanged()) == 0 || w.c.View().State.Policy.FindAccount("ml") != nil {
		t.Errorf("a trial: %v, %v", rep, err)
	}
	load.Try = false
	if _, err := w.svc.ChangePolicy(t.Context(), load); err != nil {
		t.Fatal(err)
	}
	w.c.deps.Identify = func(context.Context) Caller { return Caller{UID: 1000, GID: 1000, User: "alice"} }
	w.submit(&apiv1.JobSpec{Name: "a", Account: "ml", CpusPerTask: 4}) // no node is there: it waits
	rep, err := w.svc.Priorities(t.Context(), nil)
	if err != nil || len(rep.GetJobs()) != 1 {
		t.Fatalf("priorities: %v, %v", rep, err)
	}
	j := rep.GetJobs()[0]
	sum := j.GetAge() + j.GetFairShare() + j.GetJobSize() + j.GetPartitionPart() + j.GetQosPart()
	for _, part := range j.GetTres() {
		sum += part.GetWeighted()
	}
	if math.Abs(sum-float64(j.GetPriority())) > 1 || j.GetPriority() < 10777 || j.GetFairShareNorm() != 1 || len(j.GetTres()) != 1 {
		t.Errorf("priority %d of parts %.3f: %v", j.GetPriority(), sum, j)
	}
	tree, err := w.svc.Shares(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var norm float64
	for _, s := range tree.GetShares() {
		if s.GetDepth() == 1 {
			norm += s.GetNormShares()
		}
	}
	if math.Abs(norm-1) > 1e-9 || !tree.GetFairTree() || tree.GetUser() != "alice" {
		t.Errorf("shares below the root are %f of all: %v", norm, tree)
	}
	if _, err := w.svc.Transactions(t.Context(), nil); spec.CodeOf(err) != spec.CodeAccessDenied {
		t.Errorf("alice reads the transactions: %v", err)
	}
	w.c.deps.Identify = func(context.Context) Caller { return Caller{UID: 0, User: "root", Admin: true} }
	w.c.deps.History = func(_ context.Context, visit func(*event.Envelope) bool) error {
		for _, e := range []event.Event{&event.JobPurged{}, &event.QOSRemoved{Name: "q"}} {
			if !visit(&event.Envelope{Seq: 1, At: 5, Event: e}) {
				return nil
			}
		}
		return nil
	}
	if tx, err := w.svc.Transactions(t.Context(), nil); err != nil || len(tx.GetTransactions()) != 1 || tx.GetTransactions()[0].GetAction() != "Remove QOS" {
		t.Errorf("transactions: %v, %v", tx, err)
	}
}
