package daemon

import (
	"fmt"
	"slices"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/spec"
	"pgregory.net/rapid"
)

// ledger is a controller that takes reports as the real one does: in order,
// each fact once, whatever is repeated.
type ledger struct {
	t        *rapid.T
	wanted   map[plan.RunKey]bool            // started and not done
	done     map[plan.RunKey]string          // how each ended, once
	expected map[plan.RunKey]string          // how each really ended
	ordered  map[plan.RunKey]int             // how often this life of the agent was asked for it after its end
	told     map[plan.RunKey]map[uint64]bool // by which reports this life told its end
	last     uint64                          // number of the last report on this connection
	ackable  []uint64                        // numbers whose acknowledgement may still arrive
}

// take receives one report on the present connection.
func (l *ledger) take(r *apiv1.Report) {
	if l.last != 0 && r.GetNumber() != l.last+1 {
		l.t.Fatalf("report %d follows report %d", r.GetNumber(), l.last)
	}
	l.last = r.GetNumber()
	k := runKey(r.GetRun())
	if d := r.GetNodeDone(); d != nil {
		how := fmt.Sprintf("%d:%d %v", d.GetBatch().GetExitCode(), d.GetBatch().GetExitSignal(), d.GetBatch().GetUnknown())
		if before, again := l.done[k]; again && before != how {
			l.t.Fatalf("run %s ended as %q and then as %q", k, before, how)
		}
		l.done[k] = how
		delete(l.wanted, k)
		if l.told[k] == nil {
			l.told[k] = map[uint64]bool{}
		}
		l.told[k][r.GetNumber()] = true
		if len(l.told[k]) > 1+l.ordered[k] {
			l.t.Fatalf("the end of %s is told %d times, and was asked for %d times", k, len(l.told[k]), l.ordered[k])
		}
	}
	l.ackable = append(l.ackable, r.GetNumber())
}

// again notes that the controller asks for a run whose end it was told.
func (l *ledger) again(k plan.RunKey) {
	if l.done[k] != "" {
		l.ordered[k]++
	}
}

// node is a shepherd that keeps exits until they are acknowledged.
type node struct {
	alive map[plan.RunKey]bool
	exits map[plan.RunKey]*plan.Exit
	ever  map[plan.RunKey]int
	tomb  map[plan.RunKey]bool
}

// TestReportsUnderFire drives the core with a network that breaks, loses and
// delays, an agent that dies, and a shepherd that repeats itself. In the end
// the controller knows each end, the right one, and the shepherd has forgotten
// exactly what the controller knows.
func TestReportsUnderFire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tb := testBenchOf(t)
		b := newIdentifyingBench(tb)
		l := &ledger{t: t, wanted: map[plan.RunKey]bool{}, done: map[plan.RunKey]string{}, expected: map[plan.RunKey]string{},
			ordered: map[plan.RunKey]int{}, told: map[plan.RunKey]map[uint64]bool{}}
		n := &node{alive: map[plan.RunKey]bool{}, exits: map[plan.RunKey]*plan.Exit{}, ever: map[plan.RunKey]int{}, tomb: map[plan.RunKey]bool{}}
		connected := false
		var next uint64
		deaf := false          // the shepherd does not hear acknowledgements
		var slow []plan.RunKey // whose users are being looked up
		var carry func(fx Effects)
		carry = func(fx Effects) {
			for _, ask := range fx.Identify {
				slow = append(slow, ask.Key)
			}
			for _, s := range fx.Launch {
				answerLaunch(b, n, s.Key)
				carry(b.core.Effects())
			}
			for _, k := range fx.Withdraw {
				b.core.Withdrawn(k)
				carry(b.core.Effects())
			}
			for _, term := range fx.Terminate {
				if n.alive[term.Key] {
					n.end(l, term.Key, b.now, 0, 15)
				}
			}
			for _, k := range fx.Forget {
				if n.exits[k] != nil && l.done[k] == "" {
					t.Fatalf("run %s is forgotten, and the controller does not know its end", k)
				}
				if n.exits[k] != nil && !deaf {
					delete(n.exits, k)
					n.tomb[k] = true
				}
			}
			if connected && fx.Send {
				for _, r := range b.core.Outgoing() {
					l.take(r)
				}
			}
		}
		sorted := func(m map[plan.RunKey]bool) []plan.RunKey {
			var out []plan.RunKey
			for k := range m {
				out = append(out, k)
			}
			slices.SortFunc(out, plan.RunKey.Compare)
			return out
		}
		tell := func() { // the shepherd gives its news again
			for _, k := range sorted(n.keys()) {
				if e := n.exits[k]; e != nil {
					b.core.Heard([]plan.Event{{Exited: e}})
					carry(b.core.Effects())
				}
			}
		}
		launch := func(k plan.RunKey) {
			l.again(k)
			order := b.order(k)
			if k.Job%2 == 0 {
				withoutEnv(order.GetLaunch())
			}
			carry(b.orders(order))
		}
		identify := func(k plan.RunKey) {
			slow = slices.DeleteFunc(slow, func(o plan.RunKey) bool { return o == k })
			carry(b.identified(k, Account{Home: "/"}, nil))
		}
		connect := func(ackFirst bool) {
			connected, l.last, l.ackable = true, 0, nil
			// What is ordered was decided before the reports come in.
			wanted := sorted(l.wanted)
			carry(b.welcome(wanted...))
			if ackFirst && l.last > 0 {
				b.core.Ack(l.last)
				carry(b.core.Effects())
			}
			for _, k := range wanted {
				launch(k)
			}
		}
		var listed []plan.Observed
		listing := false
		list := func() {
			b.core.Listing()
			listed, listing = nil, true
			for _, k := range sorted(n.keys()) {
				o := plan.Observed{Key: k, State: plan.Running, Start: b.now, JobID: k.Job}
				if e := n.exits[k]; e != nil {
					o.State, o.Exit = plan.Exited, e
				}
				listed = append(listed, o)
			}
		}
		answerList := func() {
			if listing {
				listing = false
				b.core.Resync(listed)
				carry(b.core.Effects())
			}
		}
		resync := func() { list(); answerList() }
		steps := map[string]func(*rapid.T){
			"submit": func(t *rapid.T) {
				next++
				k := key(next)
				l.wanted[k] = true
				if connected {
					launch(k)
				}
			},
			"exit": func(t *rapid.T) {
				if len(n.alive) == 0 {
					t.Skip()
				}
				k := rapid.SampledFrom(sorted(n.alive)).Draw(t, "run")
				n.end(l, k, b.now, int32(rapid.IntRange(0, 3).Draw(t, "code")), 0)
				if rapid.Bool().Draw(t, "heard") {
					b.core.Heard([]plan.Event{{Exited: n.exits[k]}})
					carry(b.core.Effects())
				}
			},
			"acknowledge": func(t *rapid.T) {
				if len(l.ackable) == 0 { // it may also arrive just after the connection broke
					t.Skip()
				}
				upTo := rapid.SampledFrom(l.ackable).Draw(t, "up to")
				b.core.Ack(upTo)
				carry(b.core.Effects())
			},
			"identify": func(t *rapid.T) {
				if len(slow) == 0 {
					t.Skip()
				}
				identify(rapid.SampledFrom(slow).Draw(t, "run"))
			},
			"break":   func(*rapid.T) { connected = false },
			"connect": func(t *rapid.T) { connect(rapid.Bool().Draw(t, "acknowledged first")) },
			"deaf":    func(*rapid.T) { deaf = !deaf },
			"repeat":  func(*rapid.T) { tell() },
			"list":    func(*rapid.T) { list() },
			"listed":  func(*rapid.T) { answerList() },
			"restart": func(*rapid.T) {
				data, err := b.core.Save("boot")
				if err != nil {
					t.Fatal(err)
				}
				connected, listing, l.ackable = false, false, nil
				clear(l.ordered)
				clear(l.told)
				now := b.now
				b = newIdentifyingBench(tb)
				b.now = now
				slow = nil
				if rapid.Bool().Draw(t, "spooled") {
					if err := b.core.Restore(data, "boot"); err != nil {
						t.Fatal(err)
					}
				}
				tell()
				resync()
			},
			"cancel": func(t *rapid.T) {
				if !connected || len(l.wanted) == 0 {
					t.Skip()
				}
				k := rapid.SampledFrom(sorted(l.wanted)).Draw(t, "run")
				l.again(k)
				carry(b.orders(terminateOrder(k, "")))
			},
			"": func(t *rapid.T) {
				b.now = b.now.Add(spec.Second)
				b.core.Tick()
				carry(b.core.Effects())
				for k, times := range n.ever {
					if times > 1 {
						t.Fatalf("run %s began %d times", k, times)
					}
				}
			},
		}
		t.Repeat(steps)

		// Peace: everything that lives ends, and the network holds.
		deaf = false
		for _, k := range sorted(n.alive) {
			n.end(l, k, b.now, 0, 0)
		}
		connect(false)
		for len(slow) > 0 {
			identify(slow[0])
		}
		tell()
		resync()
		for range 3 {
			b.core.Ack(l.last)
			carry(b.core.Effects())
			for _, k := range sorted(n.alive) { // launched by the last connection
				n.end(l, k, b.now, 0, 0)
			}
			tell()
		}
		b.core.Ack(l.last)
		carry(b.core.Effects())
		tell()
		for k, how := range l.expected {
			if l.done[k] != how {
				t.Fatalf("run %s ended as %q, the controller has %q", k, how, l.done[k])
			}
		}
		if len(l.wanted) != 0 || len(n.exits) != 0 || b.core.Pending() != 0 || len(b.core.runs) != 0 {
			t.Fatalf("left: wanted %v, exits %v, reports %d, runs %v", l.wanted, n.exits, b.core.Pending(), b.core.runs)
		}
	})
}

func (n *node) keys() map[plan.RunKey]bool {
	out := map[plan.RunKey]bool{}
	for k := range n.alive {
		out[k] = true
	}
	for k := range n.exits {
		out[k] = true
	}
	return out
}

func (n *node) end(l *ledger, k plan.RunKey, at spec.Instant, code, sig int32) {
	delete(n.alive, k)
	n.exits[k] = &plan.Exit{Key: k, Code: code, Signal: sig, Started: true, Start: at, End: at}
	l.expected[k] = fmt.Sprintf("%d:%d false", code, sig)
}

// answerLaunch is the shepherd's answer to one run.
func answerLaunch(b *bench, n *node, k plan.RunKey) {
	res := plan.LaunchResult{Key: k, Status: plan.Accepted}
	switch {
	case n.alive[k] || n.exits[k] != nil:
		res.Status = plan.Known
	case n.tomb[k]:
		res.Status = plan.Ended
	default:
		n.alive[k] = true
		n.ever[k]++
	}
	b.core.Launched([]plan.LaunchResult{res})
	if n.alive[k] {
		b.core.Heard([]plan.Event{{Started: &plan.Observed{Key: k, State: plan.Running, Start: b.now}}})
	}
}

// rapidTB lets the bench report into rapid.
type rapidTB struct {
	testing.TB
	r *rapid.T
}

func testBenchOf(r *rapid.T) testing.TB { return rapidTB{r: r} }

func (t rapidTB) Helper()                   {}
func (t rapidTB) Fatalf(f string, a ...any) { t.r.Fatalf(f, a...) }
func (t rapidTB) Errorf(f string, a ...any) { t.r.Errorf(f, a...) }

func TestOutbox(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var o outbox
		var added, acked uint64
		onWire := map[uint64]bool{}
		t.Repeat(map[string]func(*rapid.T){
			"add":    func(*rapid.T) { o.addReport(&apiv1.Report{}, key(1), true); added++ },
			"rewind": func(*rapid.T) { o.rewindReports(); clear(onWire) },
			"take": func(t *rapid.T) {
				for _, r := range o.take() {
					if onWire[r.GetNumber()] {
						t.Fatalf("report %d is sent twice on one connection", r.GetNumber())
					}
					onWire[r.GetNumber()] = true
				}
			},
			"ack": func(t *rapid.T) {
				upTo := rapid.Uint64Range(0, added+2).Draw(t, "up to")
				for _, p := range o.ackReports(upTo) {
					if n := p.report.GetNumber(); n != acked+1 || n > upTo || !onWire[n] {
						t.Fatalf("report %d is taken as acknowledged by %d", n, upTo)
					}
					acked++
				}
			},
			"": func(t *rapid.T) {
				if uint64(len(o.queue)) != added-acked {
					t.Fatalf("%d reports wait, want %d", len(o.queue), added-acked)
				}
				for i, p := range o.queue {
					if p.report.GetNumber() != acked+1+uint64(i) {
						t.Fatalf("place %d holds report %d", i, p.report.GetNumber())
					}
				}
			},
		})
	})
}
