package daemon

import (
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/nodeagent/plan"
)

func deferredLaunch(l *apiv1.Launch) { l.Defer, l.TellPrepared = true, true }
func lastLaunch(l *apiv1.Launch)     { l.TellPrepared = true }

// TestDeferredScript: a script whose launch is deferred begins when it is ordered
// again; the agent reports its prolog each time that the controller asks.
func TestDeferredScript(t *testing.T) {
	b := newBenchWith(t, withScripts())
	b.welcome()
	k := key(1)
	if fx := b.launch(k, deferredLaunch); len(fx.Prepare) != 1 || len(fx.Prepared) != 0 {
		t.Fatalf("%+v", fx)
	}
	if fx := b.launch(k, deferredLaunch); len(fx.Prepared)+len(fx.Prepare) != 0 {
		t.Errorf("ordered again while the prolog runs: %+v", fx)
	}
	if fx := b.prepared(k, ""); len(fx.Launch) != 0 || len(fx.Prepared) != 1 || fx.Prepared[0] != k {
		t.Fatalf("behind the prolog: %+v", fx)
	}
	step := plan.Key(1, 1, 0)
	if fx := b.orders(b.stepOrder(step)); len(fx.Launch) != 0 {
		t.Errorf("a step begins before its job: %+v", fx)
	}
	if fx := b.launch(k, deferredLaunch); len(fx.Launch) != 0 || len(fx.Prepared) != 1 {
		t.Errorf("another controller asks: %+v", fx)
	}
	if fx := b.launch(k, lastLaunch); len(fx.Launch) != 1 || fx.Launch[0].Key != k {
		t.Fatalf("ordered to begin: %+v", fx)
	}
	if fx := b.launch(k, lastLaunch); len(fx.Launch) != 0 {
		t.Errorf("launched twice: %+v", fx)
	}
}

// TestHeldPartTellsItsProlog: a node without the script tells too, and again.
func TestHeldPartTellsItsProlog(t *testing.T) {
	b := newBench(t)
	b.welcome()
	k := key(1)
	for range 2 {
		fx := b.launch(k, lastLaunch, func(l *apiv1.Launch) { l.Batch = false })
		if len(fx.Prepared) != 1 || fx.Prepared[0] != k {
			t.Errorf("%+v", fx)
		}
	}
}

// TestCancelDeferred: a script that waits is over when it is cancelled, and its epilog
// runs.
func TestCancelDeferred(t *testing.T) {
	b := newBenchWith(t, withScripts())
	b.welcome()
	k := key(1)
	b.launch(k, deferredLaunch)
	b.prepared(k, "")
	if fx := b.orders(terminateOrder(k, "")); len(fx.Clean) != 1 || len(fx.Launch) != 0 {
		t.Fatalf("%+v", fx)
	}
	b.cleaned(k, "")
	list := b.core.Outgoing()
	if len(list) == 0 || list[len(list)-1].GetNodeDone().GetBatch().GetExitSignal() != sigTerm {
		t.Errorf("%v", list)
	}
	if fx := b.launch(k, lastLaunch); len(fx.Launch) != 0 {
		t.Errorf("it begins after its end: %+v", fx)
	}
}
