package sim

import (
	"fmt"
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// runPeople lets users submit, cancel, hold and requeue, and operators suspend.
func (w *World) runPeople() {
	mean := 10 * spec.Minute / spec.Span(max(w.profile.Jobs, 1))
	w.repeatEvery(mean, w.submitJob)
	w.repeatEvery(
		40*spec.Second,
		func() { w.onSomeJob(func(t scheduler.Target) scheduler.Command { return scheduler.Cancel{Target: t} }) },
	)
	w.repeatEvery(60*spec.Second, func() {
		w.onSomeJob(
			func(t scheduler.Target) scheduler.Command { return scheduler.Hold{Target: t, By: spec.HeldByUser} },
		)
	})
	w.repeatEvery(30*spec.Second, func() {
		w.onSomeJob(
			func(t scheduler.Target) scheduler.Command { return scheduler.Release{Target: t} },
		)
	})
	w.repeatEvery(50*spec.Second, func() {
		w.onSomeJob(
			func(t scheduler.Target) scheduler.Command { return scheduler.Suspend{Target: t} },
		)
	})
	w.repeatEvery(40*spec.Second, func() {
		w.onSomeJob(
			func(t scheduler.Target) scheduler.Command { return scheduler.Resume{Target: t} },
		)
	})
	w.repeatEvery(w.profile.RequeueEvery, func() {
		w.onSomeJob(
			func(t scheduler.Target) scheduler.Command { return scheduler.Requeue{Target: t} },
		)
	})
}

// users is how many there are.
const users = 3

func userActor(n int) event.Actor {
	return event.Actor{Kind: event.ActorUser, UID: uint32(1000 + n), Name: fmt.Sprintf("u%d", n)}
}

func (w *World) submitJob() {
	n := w.rng.IntN(users)
	actor := userActor(n)
	jobSpec := &spec.JobSpec{
		Name:    fmt.Sprintf("j%d", w.rng.IntN(5)),
		User:    actor.Name,
		UID:     actor.UID,
		Account: "a",
	}
	if w.profile.Floor > 0 && n == 0 {
		jobSpec.Account = floorAccount
	}
	jobSpec.Size.Tasks = uint32(1 + w.rng.IntN(w.profile.CPUs))
	jobSpec.Time.Limit = spec.Minute * spec.Span(1+w.rng.IntN(5))
	if w.rng.IntN(3) == 0 {
		jobSpec.Size.MinNodes = uint32(1 + w.rng.IntN(w.profile.Nodes))
		jobSpec.Size.Tasks = jobSpec.Size.MinNodes
	}
	if w.profile.GPUs > 0 && w.rng.IntN(2) == 0 {
		jobSpec.Size.PerNode = []spec.Count{{Name: "gpu", N: int64(1 + w.rng.IntN(w.profile.GPUs))}}
	}
	if w.profile.Preempt > 0 && w.rng.IntN(4) == 0 {
		jobSpec.Partitions = []string{"top"}
	}
	switch w.rng.IntN(8) {
	case 0:
		first := int64(w.rng.IntN(3))
		jobSpec.Queue.Array = spec.NewArrayAsk(
			spec.TaskSet{{First: first, Last: first + int64(1+w.rng.IntN(6)), Step: 1}},
			uint32(w.rng.IntN(3)),
		)
	case 1:
		jobSpec.Queue.Hold = spec.HeldByUser
	case 2:
		jobSpec.Time.Begin = w.now.Add(w.upTo(spec.Minute))
	case 3:
		jobSpec.Licenses = []spec.Count{{Name: "l", N: int64(1 + w.rng.IntN(3))}}
	case 4:
		if target, ok := w.someJob(); ok {
			if job := w.ctl.st.Job(target.UID); job != nil {
				kinds := [...]spec.DependencyKind{
					spec.After,
					spec.AfterAny,
					spec.AfterOK,
					spec.AfterNotOK,
				}
				jobSpec.Queue.Dependency = &spec.Dependency{
					Terms: []spec.DependencyTerm{
						{Kind: kinds[w.rng.IntN(len(kinds))], Job: job.ID, Task: spec.NoTask},
					},
				}
			}
		}
	case 5:
		jobSpec.Queue.Dependency = &spec.Dependency{
			Terms: []spec.DependencyTerm{{Kind: spec.Singleton, Task: spec.NoTask}},
		}
	}
	w.someController().decideCommand(
		actor,
		scheduler.Submit{Spec: jobSpec, Rest: w.varyRequest(jobSpec)},
		func(result scheduler.Result, err error) {
			if err == nil {
				w.truth.acked[result.UID] = jobSpec.Name
			}
		},
	)
}

func (w *World) someJob() (scheduler.Target, bool) {
	last := uint64(w.ctl.st.NextUID)
	if last <= 1 {
		return scheduler.Target{}, false
	}
	uid := spec.JobUID(1 + w.rng.Uint64N(last-1))
	target := scheduler.Target{UID: uid, Task: spec.NoTask}
	if job := w.ctl.st.Job(uid); job != nil && job.IsArrayRecord() && w.rng.IntN(2) == 0 {
		target.Task = job.Tasks.Min()
	}
	return target, true
}

func (w *World) onSomeJob(cmd func(t scheduler.Target) scheduler.Command) {
	if target, ok := w.someJob(); ok && w.ctl.up {
		w.someController().decideCommand(
			event.Actor{Kind: event.ActorUser, UID: 0, Name: "root"}, cmd(target), nil,
		)
	}
}

// injectFaults lets things go wrong.
func (w *World) injectFaults() {
	profile := w.profile
	w.repeatEvery(profile.CrashEvery, w.group.crashSome)
	w.repeatEvery(profile.ApartEvery, w.group.cutOff)
	w.repeatEvery(profile.DiskEvery, w.group.troubleDisk)
	w.repeatEvery(profile.RebootEvery, func() { w.nodes[w.rng.IntN(len(w.nodes))].rebootMachine() })
	w.repeatEvery(profile.SilenceEvery, func() {
		node := w.nodes[w.rng.IntN(len(w.nodes))]
		if node.cut {
			return
		}
		w.noteLine("%s falls silent", node.name)
		node.cut, node.connected = true, false
		node.session++
		w.scheduleAfter(w.upTo(2*spec.Minute), func() { node.cut = false; node.connectSoon() })
	})
	w.repeatEvery(profile.AgentEvery, func() {
		node := w.nodes[w.rng.IntN(len(w.nodes))]
		node.connected = false
		node.session++
		node.connectSoon()
	})
	w.repeatEvery(profile.HangEvery, func() {
		node := w.nodes[w.rng.IntN(len(w.nodes))]
		node.hangPart(hangs(1 + w.rng.IntN(int(allHangs))))
	})
	w.repeatEvery(profile.DrainEvery, func() {
		node := w.nodes[w.rng.IntN(w.profile.Nodes)]
		root := rootActor()
		w.ctl.decideCommand(
			root,
			scheduler.UpdateNodes{
				Nodes:  []string{node.name},
				State:  event.NodeDrain,
				Reason: new("look"),
			},
			nil,
		)
		w.scheduleAfter(w.upTo(spec.Minute), func() {
			w.ctl.decideCommand(
				root,
				scheduler.UpdateNodes{Nodes: []string{node.name}, State: event.NodeResume},
				nil,
			)
		})
	})
}

// runPowers lets operators power nodes up and down, and reboot them.
func (w *World) runPowers() {
	w.repeatEvery(w.profile.PowerEvery, func() {
		if !w.profile.Power {
			return
		}
		names := []string{w.nodes[w.rng.IntN(w.profile.Nodes)].name}
		var command scheduler.Command = scheduler.PowerNodes{
			Nodes: names, How: scheduler.PowerHow(1 + w.rng.IntN(4)),
		}
		switch w.rng.IntN(6) {
		case 0:
			command = scheduler.RebootNodes{Nodes: names, ASAP: w.rng.IntN(2) == 0}
		case 1:
			command = scheduler.CancelReboots{Nodes: names}
		}
		w.noteLine("%T %s %+v", command, names[0], command)
		w.ctl.decideCommand(rootActor(), command, nil)
	})
}

// runOperators set the clock and change the configuration under the jobs.
func (w *World) runOperators() {
	profile := w.profile
	w.repeatEvery(profile.ClockEvery, func() {
		m := w.ctl.m
		m.skew += w.upTo(2*spec.Minute) - w.upTo(spec.Minute)
		w.noteLine("the clock of %s is off by %d ms", m.name, int64(m.skew)/int64(spec.Millisecond))
	})
	w.repeatEvery(profile.ReconfigureEvery, func() {
		config := *w.config
		config.Partitions = slices.Clone(config.Partitions)
		part := &config.Partitions[0]
		switch w.rng.IntN(5) {
		case 4:
			config.Licenses = []spec.Count{{Name: "l", N: int64(w.rng.IntN(2 * simLicences))}}
		case 0:
			part.State = spec.PartitionDown
		case 1:
			part.MaxTime = spec.Span(1+w.rng.IntN(5)) * spec.Minute
		case 2:
			config.Sched.Firm, config.Sched.BFMaxJobTest = uint32(
				w.rng.IntN(3),
			), uint32(
				w.rng.IntN(3),
			)
		case 3:
			config.Nodes = append(
				slices.Clone(config.Nodes),
				spec.NodeSpec{Name: "spare", CPUs: 64, Mem: 1000},
			)
			part.NodeNames = append(slices.Clone(part.NodeNames), "spare")
		}
		w.noteLine("the configuration changes")
		w.changed = true
		w.ctl.decideCommand(rootActor(), scheduler.Configure{Config: &config}, nil)
	})
}

func rootActor() event.Actor { return event.Actor{Kind: event.ActorUser, Name: "root"} }

// healFaults ends the faults: every node comes back, holds are released.
func (w *World) healFaults() {
	w.calm = true
	for _, m := range w.group.members {
		m.join()
		m.healDisk()
	}
	for _, node := range w.nodes {
		node.cut = false
		node.goOn()
		if !node.connected && !node.dead {
			node.connectSoon()
		}
	}
	var release func()
	release = func() { // again, since a command may fall into a controller's last restart
		root := rootActor()
		if w.ctl.up && w.changed {
			w.ctl.decideCommand(
				root,
				scheduler.Configure{Config: w.config},
				func(scheduler.Result, error) { w.changed = false },
			)
		}
		w.undoOperators()
		for _, node := range w.nodes {
			s := w.ctl.st.Node(node.name)
			if w.ctl.up && s != nil && s.Admin != event.NodeResume {
				w.ctl.decideCommand(
					root,
					scheduler.UpdateNodes{Nodes: []string{node.name}, State: event.NodeResume},
					nil,
				)
			}
			if w.ctl.up && s != nil && s.Power == event.PowerDownASAP {
				w.ctl.decideCommand(
					root,
					scheduler.PowerNodes{Nodes: []string{node.name}, How: scheduler.PowerUp},
					nil,
				)
			}
		}
		for uid := spec.JobUID(1); uid < w.ctl.st.NextUID; uid++ {
			if job := w.ctl.st.Job(uid); w.ctl.up && job != nil && job.State == spec.Pending &&
				job.Hold != spec.NotHeld {
				w.ctl.decideCommand(
					root,
					scheduler.Release{Target: scheduler.Target{UID: uid, Task: spec.NoTask}},
					nil,
				)
			} else if w.ctl.up && job != nil && job.State == spec.Suspended {
				w.ctl.decideCommand(root, scheduler.Resume{Target: scheduler.Target{UID: uid, Task: spec.NoTask}}, nil)
			}
		}
		w.scheduleAfter(20*spec.Second, release)
	}
	release()
}
