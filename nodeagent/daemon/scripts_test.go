package daemon

import (
	"slices"
	"strings"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/spec"
)

func withScripts() Config {
	cfg := testConfig()
	cfg.Prolog, cfg.Epilog = true, true
	return cfg
}

func (b *bench) prepared(k plan.RunKey, why string) Effects {
	b.core.Prepared(k, why)
	return b.core.Effects()
}

func (b *bench) cleaned(k plan.RunKey, why string) Effects {
	b.core.Cleaned(k, why)
	return b.core.Effects()
}

// TestProlog: nothing of a job begins before its prolog has ended well; the
// script's end is told when it ends, the node is given back after the epilog.
func TestProlog(t *testing.T) {
	b := newBenchWith(t, withScripts())
	b.welcome()
	k := key(1)
	fx := b.launch(k)
	if len(fx.Launch) != 0 || len(fx.Prepare) != 1 || fx.Prepare[0].Key != k {
		t.Fatalf("%+v", fx)
	}
	for _, want := range []string{"SLURM_JOB_ID=1001", "SLURM_JOB_UID=1001", "SLURM_JOB_USER=alice", "SLURM_JOB_NODELIST=n1", "SLURM_JOB_PARTITION=gpu",
		"SLURM_CLUSTER_NAME=lab", "SLURMD_NODENAME=n1", "SLURM_SCRIPT_CONTEXT=prolog_slurmd", "SLURM_JOB_STDOUT=/tmp/slurm-1001.out", "SLURM_JOB_WORK_DIR=/tmp"} {
		if !slices.Contains(fx.Prepare[0].Env, want) {
			t.Errorf("the prolog lacks %s: it has %q", want, fx.Prepare[0].Env)
		}
	}
	if slices.ContainsFunc(fx.Prepare[0].Env, func(e string) bool { return strings.HasPrefix(e, "PATH=") || strings.HasPrefix(e, "HOME=") }) {
		t.Errorf("the prolog has variables of the job: %q", fx.Prepare[0].Env)
	}
	if fx := b.launch(k); len(fx.Prepare)+len(fx.Launch) != 0 {
		t.Error("asked again, it is prepared again")
	}
	if fx := b.prepared(k, ""); len(fx.Launch) != 1 {
		t.Fatalf("after the prolog: %+v", fx)
	}
	b.answer(k, plan.Accepted, 0)
	b.started(k)
	b.wantSent()
	fx = b.exit(k, func(e *plan.Exit) { e.Code = 3 })
	if len(fx.Clean) != 1 || !slices.Contains(fx.Clean[0].Env, "SLURM_JOB_EXIT_CODE=768") || !slices.Contains(fx.Clean[0].Env, "SLURM_SCRIPT_CONTEXT=epilog_slurmd") {
		t.Fatalf("after the end: %+v", fx)
	}
	b.wantSent("1 1.1.batch ended")
	if fx := b.orders(terminateOrder(k, "")); len(fx.Terminate) != 0 {
		t.Errorf("what is over is ended: %+v", fx)
	}
	b.exit(k) // the shepherd tells again what was not acknowledged
	b.wantSent()
	b.cleaned(k, "Epilog error: /e: exit status 1")
	if out := b.core.Outgoing(); len(out) != 1 || out[0].GetNodeDone().GetDrain() != "Epilog error: /e: exit status 1" || out[0].GetNodeDone().GetBatch().GetExitCode() != 3 {
		t.Errorf("given back with %v", out)
	}
	b.core.Ack(2)
	if fx := b.core.Effects(); !slices.Contains(fx.Forget, k) || len(b.core.runs) != 0 {
		t.Errorf("after the acknowledgement: %+v", fx)
	}
}

// TestPrologFails: the job is to run elsewhere, held, and the node is set
// aside; the epilog still runs.
func TestPrologFails(t *testing.T) {
	b := newBenchWith(t, withScripts())
	b.welcome()
	k := key(1)
	b.launch(k)
	fx := b.prepared(k, "Prolog error: no scratch")
	if len(fx.Launch) != 0 || len(fx.Clean) != 1 {
		t.Fatalf("%+v", fx)
	}
	out := b.core.Outgoing()
	if f := out[0].GetLaunchFailed(); len(out) != 1 || !f.GetHold() || !f.GetDrainNode() || f.GetText() != "Prolog error: no scratch" {
		t.Errorf("reported %v", out)
	}
	b.cleaned(k, "")
	b.wantSent("2 1.1.batch done 1:0")
}

// TestPrologCancelled: a job that is cancelled while its prolog runs never
// begins.
func TestPrologCancelled(t *testing.T) {
	b := newBenchWith(t, withScripts())
	b.welcome()
	k := key(1)
	b.launch(k)
	if fx := b.orders(terminateOrder(k, "")); !slices.Contains(fx.Abort, k) {
		t.Fatalf("%+v", fx)
	}
	if fx := b.prepared(k, "Prolog error: signal: killed"); len(fx.Launch) != 0 || len(fx.Clean) != 1 {
		t.Fatalf("%+v", fx)
	}
	b.wantSent()
	b.cleaned(k, "")
	b.wantSent("1 1.1.batch done 0:15")
}

// TestHeldPartIsCleaned: a node without the script has prolog and epilog too,
// and an agent that dies in between runs the epilog again.
func TestHeldPartIsCleaned(t *testing.T) {
	b := newBenchWith(t, withScripts())
	b.welcome()
	k := key(1)
	part := func(l *apiv1.Launch) { l.Batch = false }
	if fx := b.launch(k, part); len(fx.Prepare) != 1 {
		t.Fatalf("%+v", fx)
	}
	b.prepared(k, "")
	if fx := b.orders(terminateOrder(k, "")); len(fx.Clean) != 1 {
		t.Fatalf("%+v", fx)
	}
	data, err := b.core.Save("boot")
	if err != nil {
		t.Fatal(err)
	}
	next := newBenchWith(t, withScripts())
	if err := next.core.Restore(data, "boot"); err != nil {
		t.Fatal(err)
	}
	next.now = next.now.Add(spec.Minute)
	next.welcome(k)
	fx := next.orders(terminateOrder(k, ""))
	if len(fx.Clean) != 1 || !slices.Contains(fx.Clean[0].Env, "SLURM_JOB_ID=1001") {
		t.Fatalf("after a restart: %+v", fx)
	}
	next.cleaned(k, "")
	next.wantSent("1 1.1.batch done")
}
