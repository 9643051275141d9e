package daemon

import (
	"strings"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/spec"
)

func withExtern(prologInJob bool) Config {
	cfg := withScripts()
	cfg.Contain = true
	cfg.PrologInJob = prologInJob
	return cfg
}

func externOf(k plan.RunKey) plan.RunKey { return k.StepOf(plan.StepExtern) }

// TestExtern: the extern step begins before the prolog, which is in it where the site
// wants that; it ends before the epilog, and what it used is told with the node's part.
func TestExtern(t *testing.T) {
	for _, inJob := range []bool{false, true} {
		b := newBenchWith(t, withExtern(inJob))
		b.welcome()
		k := key(1)
		fx := b.launch(k)
		if len(fx.Prepare) != 0 || len(fx.Launch) != 1 || fx.Launch[0].Key != externOf(k) {
			t.Fatalf("%+v", fx)
		}
		if fx := b.answer(externOf(k), plan.Accepted, 0); len(fx.Prepare) != 0 {
			t.Fatal("the prolog runs before the extern step has a process")
		}
		scripts := b.started(externOf(k)).Prepare
		if len(scripts) != 1 {
			t.Fatal("no prolog behind the extern step")
		}
		want := plan.RunKey{}
		if inJob {
			want = externOf(k)
		}
		if scripts[0].In != want {
			t.Errorf("the prolog is in %v, want %v", scripts[0].In, want)
		}
		if fx := b.prepared(k, ""); len(fx.Launch) != 1 || fx.Launch[0].Key != k {
			t.Fatalf("behind the prolog: %+v", fx)
		}
		b.answer(k, plan.Accepted, 0)
		b.started(k)
		if jobs := b.core.Jobs(); len(jobs) != 1 {
			t.Errorf("the extern step is shown as a job: %+v", jobs)
		}
		b.core.Outgoing()
		fx = b.exit(k)
		if len(fx.Clean) != 0 || len(fx.Terminate) != 1 || fx.Terminate[0].Key != externOf(k) || fx.Terminate[0].Notice != "" {
			t.Fatalf("at the end of the script: %+v", fx)
		}
		fx = b.exit(externOf(k), func(e *plan.Exit) { e.Usage.UserCPU, e.Signal, e.OOM = 3*spec.Second, 15, true })
		if len(fx.Clean) != 1 || len(fx.Forget) != 1 || fx.Forget[0] != externOf(k) {
			t.Fatalf("at the end of the extern step: %+v", fx)
		}
		b.cleaned(k, "")
		var done *apiv1.NodeDone
		for _, report := range b.core.Outgoing() {
			if report.GetRun().GetStep() == plan.StepExtern {
				t.Errorf("the extern step is reported: %v", report)
			}
			if report.GetNodeDone() != nil {
				done = report.GetNodeDone()
			}
		}
		if done.GetExtern().GetUserCpu() != int64(3*spec.Second) || done.GetUsage().GetUserCpu() < int64(3*spec.Second) {
			t.Errorf("%v", done)
		}
		if !done.GetExtern().GetOomKilled() || done.GetUsage().GetOomKilled() {
			t.Errorf("a login was ended for memory: of the step %v, of the job %v", done.GetExtern(), done.GetUsage())
		}
		b.exit(externOf(k)) // the shepherd says it again
		if out := b.core.Outgoing(); len(out) != 0 {
			t.Errorf("told again, it is reported: %v", out)
		}
	}
}

// TestExternFails: a node that cannot make the extern step does not get the job, and
// is set aside.
func TestExternFails(t *testing.T) {
	b := newBenchWith(t, withExtern(true))
	b.welcome()
	k := key(1)
	b.launch(k)
	fx := b.exit(externOf(k), func(e *plan.Exit) { e.Failure, e.Message, e.Code = plan.FailCgroup, "no space", 1 })
	if len(fx.Prepare)+len(fx.Launch) != 0 || len(fx.Clean) != 1 {
		t.Errorf("%+v", fx)
	}
	b.cleaned(k, "")
	list := b.core.Outgoing()
	if len(list) == 0 || !list[0].GetLaunchFailed().GetDrainNode() ||
		!strings.Contains(list[0].GetLaunchFailed().GetText(), "the extern step of the job could not be started: no space") {
		t.Errorf("%v", list)
	}
}

// TestExternCancelled: a job that is cancelled while its extern step begins, or while
// its prolog runs, leaves none behind.
func TestExternCancelled(t *testing.T) {
	for _, late := range []bool{false, true} {
		b := newBenchWith(t, withExtern(false))
		b.welcome()
		k := key(1)
		b.launch(k)
		if late {
			b.answer(externOf(k), plan.Accepted, 0)
			b.started(externOf(k))
		}
		fx := b.orders(terminateOrder(k, ""))
		if late {
			if len(fx.Abort) != 1 {
				t.Fatalf("%+v", fx)
			}
			fx = b.prepared(k, "ended")
			if len(fx.Terminate) != 1 || fx.Terminate[0].Key != externOf(k) {
				t.Fatalf("%+v", fx)
			}
			fx = b.exit(externOf(k))
		} else {
			if len(fx.Withdraw) != 1 || fx.Withdraw[0] != externOf(k) {
				t.Fatalf("%+v", fx)
			}
			b.core.Withdrawn(externOf(k))
			fx = b.core.Effects()
		}
		if len(fx.Clean) != 1 {
			t.Fatalf("late %v: no epilog: %+v", late, fx)
		}
		b.cleaned(k, "")
		list := b.core.Outgoing()
		if len(list) == 0 || list[len(list)-1].GetNodeDone().GetBatch().GetExitSignal() != sigTerm {
			t.Errorf("late %v: %v", late, list)
		}
		if len(b.core.runs) != 1 {
			t.Errorf("late %v: %d runs are left", late, len(b.core.runs))
		}
	}
}

// TestExternOfAnEarlierAgent: an agent that is started again finds the extern step of a
// job that had not begun, and goes on.
func TestExternOfAnEarlierAgent(t *testing.T) {
	b := newBenchWith(t, withExtern(false))
	k := key(1)
	b.core.Listing()
	b.core.Resync([]plan.Observed{{Key: externOf(k), State: plan.Running, Start: 1, JobID: 1001}})
	b.welcome(k)
	if fx := b.launch(k); len(fx.Launch) != 0 || len(fx.Prepare) != 1 {
		t.Errorf("%+v", fx)
	}
}
