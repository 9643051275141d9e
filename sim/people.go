package sim

import (
	"fmt"
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// people lets users submit, cancel, hold and requeue, and operators suspend.
func (w *World) people() {
	mean := 10 * spec.Minute / spec.Span(max(w.profile.Jobs, 1))
	w.every(mean, w.submit)
	w.every(40*spec.Second, func() { w.onSomeJob(func(t scheduler.Target) scheduler.Command { return scheduler.Cancel{Target: t} }) })
	w.every(60*spec.Second, func() {
		w.onSomeJob(func(t scheduler.Target) scheduler.Command { return scheduler.Hold{Target: t, By: spec.HeldByUser} })
	})
	w.every(30*spec.Second, func() {
		w.onSomeJob(func(t scheduler.Target) scheduler.Command { return scheduler.Release{Target: t} })
	})
	w.every(50*spec.Second, func() {
		w.onSomeJob(func(t scheduler.Target) scheduler.Command { return scheduler.Suspend{Target: t} })
	})
	w.every(40*spec.Second, func() {
		w.onSomeJob(func(t scheduler.Target) scheduler.Command { return scheduler.Resume{Target: t} })
	})
	w.every(w.profile.RequeueEvery, func() {
		w.onSomeJob(func(t scheduler.Target) scheduler.Command { return scheduler.Requeue{Target: t} })
	})
}

// users is how many there are.
const users = 3

func user(n int) event.Actor {
	return event.Actor{Kind: event.ActorUser, UID: uint32(1000 + n), Name: fmt.Sprintf("u%d", n)}
}

func (w *World) submit() {
	n := w.rng.IntN(users)
	who := user(n)
	js := &spec.JobSpec{Name: fmt.Sprintf("j%d", w.rng.IntN(5)), User: who.Name, UID: who.UID, Account: "a"}
	if w.profile.Floor > 0 && n == 0 {
		js.Account = floorAccount
	}
	js.Size.Tasks = uint32(1 + w.rng.IntN(w.profile.CPUs))
	js.Time.Limit = spec.Minute * spec.Span(1+w.rng.IntN(5))
	if w.rng.IntN(3) == 0 {
		js.Size.MinNodes = uint32(1 + w.rng.IntN(w.profile.Nodes))
		js.Size.Tasks = js.Size.MinNodes
	}
	if w.profile.GPUs > 0 && w.rng.IntN(2) == 0 {
		js.Size.PerNode = []spec.Count{{Name: "gpu", N: int64(1 + w.rng.IntN(w.profile.GPUs))}}
	}
	if w.profile.Preempt > 0 && w.rng.IntN(4) == 0 {
		js.Partitions = []string{"top"}
	}
	switch w.rng.IntN(8) {
	case 0:
		first := int64(w.rng.IntN(3))
		js.Queue.Array = spec.NewArrayAsk(spec.TaskSet{{First: first, Last: first + int64(1+w.rng.IntN(6)), Step: 1}}, uint32(w.rng.IntN(3)))
	case 1:
		js.Queue.Hold = spec.HeldByUser
	case 2:
		js.Time.Begin = w.now.Add(w.upTo(spec.Minute))
	case 3:
		js.Licenses = []spec.Count{{Name: "l", N: int64(1 + w.rng.IntN(3))}}
	case 4:
		if t, ok := w.someJob(); ok {
			if j := w.ctl.st.Job(t.UID); j != nil {
				kinds := [...]spec.DependencyKind{spec.After, spec.AfterAny, spec.AfterOK, spec.AfterNotOK}
				js.Queue.Dependency = &spec.Dependency{Terms: []spec.DependencyTerm{{Kind: kinds[w.rng.IntN(len(kinds))], Job: j.ID, Task: spec.NoTask}}}
			}
		}
	case 5:
		js.Queue.Dependency = &spec.Dependency{Terms: []spec.DependencyTerm{{Kind: spec.Singleton, Task: spec.NoTask}}}
	}
	w.ctl.do(who, scheduler.Submit{Spec: js, Rest: w.vary(js)}, func(res scheduler.Result, err error) {
		if err == nil {
			w.truth.acked[res.UID] = js.Name
		}
	})
}

func (w *World) someJob() (scheduler.Target, bool) {
	last := uint64(w.ctl.st.NextUID)
	if last <= 1 {
		return scheduler.Target{}, false
	}
	uid := spec.JobUID(1 + w.rng.Uint64N(last-1))
	t := scheduler.Target{UID: uid, Task: spec.NoTask}
	if j := w.ctl.st.Job(uid); j != nil && j.IsArrayRecord() && w.rng.IntN(2) == 0 {
		t.Task = j.Tasks.Min()
	}
	return t, true
}

func (w *World) onSomeJob(cmd func(t scheduler.Target) scheduler.Command) {
	if t, ok := w.someJob(); ok && w.ctl.up {
		w.ctl.do(event.Actor{Kind: event.ActorUser, UID: 0, Name: "root"}, cmd(t), nil)
	}
}

// faults lets things go wrong.
func (w *World) faults() {
	p := w.profile
	w.every(p.CrashEvery, w.ctl.crash)
	w.every(p.RebootEvery, func() { w.nodes[w.rng.IntN(len(w.nodes))].reboot() })
	w.every(p.SilenceEvery, func() {
		n := w.nodes[w.rng.IntN(len(w.nodes))]
		if n.cut {
			return
		}
		w.note("%s falls silent", n.name)
		n.cut, n.connected = true, false
		n.session++
		w.after(w.upTo(2*spec.Minute), func() { n.cut = false; n.connectSoon() })
	})
	w.every(p.AgentEvery, func() {
		n := w.nodes[w.rng.IntN(len(w.nodes))]
		n.connected = false
		n.session++
		n.connectSoon()
	})
	w.every(p.HangEvery, func() {
		n := w.nodes[w.rng.IntN(len(w.nodes))]
		n.hang(hangs(1 + w.rng.IntN(int(allHangs))))
	})
	w.every(p.DrainEvery, func() {
		n := w.nodes[w.rng.IntN(w.profile.Nodes)]
		root := root()
		w.ctl.do(root, scheduler.UpdateNodes{Nodes: []string{n.name}, State: event.NodeDrain, Reason: new("look")}, nil)
		w.after(w.upTo(spec.Minute), func() { w.ctl.do(root, scheduler.UpdateNodes{Nodes: []string{n.name}, State: event.NodeResume}, nil) })
	})
}

// powers lets operators power nodes up and down, and reboot them.
func (w *World) powers() {
	w.every(w.profile.PowerEvery, func() {
		if !w.profile.Power {
			return
		}
		names := []string{w.nodes[w.rng.IntN(w.profile.Nodes)].name}
		var cmd scheduler.Command = scheduler.PowerNodes{Nodes: names, How: scheduler.PowerHow(1 + w.rng.IntN(4))}
		switch w.rng.IntN(6) {
		case 0:
			cmd = scheduler.RebootNodes{Nodes: names, ASAP: w.rng.IntN(2) == 0}
		case 1:
			cmd = scheduler.CancelReboots{Nodes: names}
		}
		w.note("%T %s %+v", cmd, names[0], cmd)
		w.ctl.do(root(), cmd, nil)
	})
}

// operators set the clock and change the configuration under the jobs.
func (w *World) operators() {
	p := w.profile
	w.every(p.ClockEvery, func() {
		w.ctl.skew += w.upTo(2*spec.Minute) - w.upTo(spec.Minute)
		w.note("the controller's clock is off by %d ms", int64(w.ctl.skew)/int64(spec.Millisecond))
	})
	w.every(p.ReconfigureEvery, func() {
		c := *w.config
		c.Partitions = slices.Clone(c.Partitions)
		part := &c.Partitions[0]
		switch w.rng.IntN(5) {
		case 4:
			c.Licenses = []spec.Count{{Name: "l", N: int64(w.rng.IntN(2 * simLicences))}}
		case 0:
			part.State = spec.PartitionDown
		case 1:
			part.MaxTime = spec.Span(1+w.rng.IntN(5)) * spec.Minute
		case 2:
			c.Sched.Firm, c.Sched.BFMaxJobTest = uint32(w.rng.IntN(3)), uint32(w.rng.IntN(3))
		case 3:
			c.Nodes = append(slices.Clone(c.Nodes), spec.NodeSpec{Name: "spare", CPUs: 64, Mem: 1000})
			part.NodeNames = append(slices.Clone(part.NodeNames), "spare")
		}
		w.note("the configuration changes")
		w.changed = true
		w.ctl.do(root(), scheduler.Configure{Config: &c}, nil)
	})
}

func root() event.Actor { return event.Actor{Kind: event.ActorUser, Name: "root"} }

// heal ends the faults: every node comes back, holds are released.
func (w *World) heal() {
	w.calm = true
	for _, n := range w.nodes {
		n.cut = false
		n.goOn()
		if !n.connected && !n.dead {
			n.connectSoon()
		}
	}
	var release func()
	release = func() { // again, since a command may fall into a controller's last restart
		root := root()
		if w.ctl.up && w.changed {
			w.ctl.do(root, scheduler.Configure{Config: w.config}, func(scheduler.Result, error) { w.changed = false })
		}
		w.undo()
		for _, n := range w.nodes {
			s := w.ctl.st.Node(n.name)
			if w.ctl.up && s != nil && s.Admin != event.NodeResume {
				w.ctl.do(root, scheduler.UpdateNodes{Nodes: []string{n.name}, State: event.NodeResume}, nil)
			}
			if w.ctl.up && s != nil && s.Power == event.PowerDownASAP {
				w.ctl.do(root, scheduler.PowerNodes{Nodes: []string{n.name}, How: scheduler.PowerUp}, nil)
			}
		}
		for uid := spec.JobUID(1); uid < w.ctl.st.NextUID; uid++ {
			if j := w.ctl.st.Job(uid); w.ctl.up && j != nil && j.State == spec.Pending && j.Hold != spec.NotHeld {
				w.ctl.do(root, scheduler.Release{Target: scheduler.Target{UID: uid, Task: spec.NoTask}}, nil)
			} else if w.ctl.up && j != nil && j.State == spec.Suspended {
				w.ctl.do(root, scheduler.Resume{Target: scheduler.Target{UID: uid, Task: spec.NoTask}}, nil)
			}
		}
		w.after(20*spec.Second, release)
	}
	release()
}
