package tallytest

import (
	"pgregory.net/rapid"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// world writes a random history: it looks at the state to know what may
// happen next, as a controller does.
type world struct {
	*History
	t *rapid.T
}

// Random writes a history of about steps events on a small cluster: arrays,
// gangs, requeues of every kind, lost nodes, late and early nodes, holds,
// steps, purges, drains, reconfigurations.
func Random(t *rapid.T, steps int) *History {
	w := &world{History: New(t, spec.AtUnix(1_790_812_800-40)), t: t}
	w.Nodes(3, 4, 8000, 2)
	w.Accounts([]string{"ml", "bio"}, map[string][]string{"ml": {"alice", "bob"}, "bio": {"eve"}})
	ops := []func(){w.submit, w.submit, w.start, w.start, w.start, w.start, w.nodeDone, w.nodeDone, w.nodeDone, w.end, w.end, w.end,
		w.requeue, w.requeue, w.split, w.split, w.purge, w.reason, w.hold, w.step, w.node, w.update, w.config, w.suspend}
	for range steps {
		w.Now = w.Now.Add(spec.Span(rapid.IntRange(0, 40).Draw(t, "ms"))*spec.Millisecond + spec.Span(rapid.IntRange(0, 5000).Draw(t, "ns")))
		if rapid.IntRange(0, 60).Draw(t, "jump") == 0 {
			w.Wait(5 * spec.Hour)
		}
		ops[rapid.IntRange(0, len(ops)-1).Draw(t, "op")]()
	}
	return w.History
}

func (w *world) int(lo, hi int) int { return rapid.IntRange(lo, hi).Draw(w.t, "n") }
func (w *world) coin() bool         { return rapid.Bool().Draw(w.t, "coin") }

// some draws a job that satisfies a condition, or nil.
func (w *world) some(cond func(j *state.Job) bool) *state.Job {
	var fit []*state.Job
	w.State.Jobs.Range(func(_ uint64, j *state.Job) bool {
		if cond(j) {
			fit = append(fit, j)
		}
		return true
	})
	if len(fit) == 0 {
		return nil
	}
	return fit[w.int(0, len(fit)-1)]
}

func (w *world) submit() {
	who := [...]Ask{{User: "alice", UID: 1001, Account: "ml"}, {User: "bob", UID: 1002, Account: "ml"}, {User: "eve", UID: 1003, Account: "bio"}}
	a := who[w.int(0, 2)]
	a.Name, a.QOS = "job", [...]string{"normal", "high"}[w.int(0, 1)]
	a.Partition = [...]string{"batch", "gpu", "gpu,batch"}[w.int(0, 2)]
	a.CPUs, a.Mem, a.GPUs, a.Held = int64(w.int(1, 3)), int64(w.int(0, 3000)), int64(w.int(0, 2)), w.int(0, 5) == 0
	if w.int(0, 3) == 0 {
		a.Array = spec.TaskSet{{First: 1, Last: int64(w.int(1, 5)), Step: 1}}
	}
	w.Submit(a)
}

func (w *world) start() {
	j := w.some(func(j *state.Job) bool { return j.State == spec.Pending && !j.IsArrayRecord() })
	if j == nil {
		return
	}
	nodes := []string{"n1", "n2", "n3"}[w.int(0, 2):]
	for _, n := range nodes {
		if w.State.Node(n) == nil {
			return
		}
	}
	w.Start(j.UID, nodes[:w.int(1, len(nodes))]...)
}

func (w *world) usage(j *state.Job, node string) spec.Usage {
	u := spec.Usage{UserCPU: spec.Span(w.int(0, 9000)) * spec.Microsecond, SystemCPU: spec.Span(w.int(0, 900)) * spec.Microsecond,
		ReadB: int64(w.int(0, 9)), MemMiBS: int64(w.int(0, 99))}
	if w.coin() {
		u.HasRSS, u.PeakRSS = true, int64(w.int(0, 4000))<<20
	}
	if w.coin() {
		u.HasEnergy, u.EnergyMJ = true, int64(w.int(0, 90_000))
	}
	held := w.Now.Sub(j.Started)
	for i := range j.Alloc.Nodes {
		if j.Alloc.Nodes[i].Name != node || w.coin() {
			continue
		}
		for _, g := range j.Alloc.Nodes[i].GPUs {
			busy := held / spec.Span(w.int(1, 4))
			u.GPUs = append(u.GPUs, spec.GPUUsage{UUID: g.UUID, Has: true, Busy: busy, Idle: held - busy, UtilNS: busy / 2,
				SMNS: busy / 3 * spec.Span(w.int(0, 1)), EnergyMJ: int64(w.int(0, 9)) * 1000})
		}
	}
	return u
}

// nodeDone gives back one node of a job that holds any.
func (w *world) nodeDone() {
	j := w.some(func(j *state.Job) bool { return j.HoldsNodes() })
	if j == nil {
		return
	}
	for i := range j.Alloc.Nodes {
		if j.Done.Has(i) || (i+1 < len(j.Alloc.Nodes) && w.coin()) {
			continue
		}
		name := j.Alloc.Nodes[i].Name
		ev := &event.JobNodeDone{UID: j.UID, Attempt: j.Attempt, Node: name}
		if w.int(0, 6) == 0 {
			ev.Lost = true
		} else {
			ev.Usage = w.usage(j, name)
			if i == 0 {
				ev.Batch = &event.StepResult{Started: j.Started, Ended: w.Now, Exit: spec.ExitStatus{Code: int32(w.int(0, 1))}}
			}
		}
		w.Put(ev)
		return
	}
}

func (w *world) end() {
	j := w.some(func(j *state.Job) bool { return j.State.Active() || (j.State == spec.Pending && w.int(0, 4) == 0) })
	if j == nil {
		return
	}
	if j.State == spec.Pending {
		w.EndBy(j.UID, spec.Cancelled, spec.ExitStatus{}, 1001)
		return
	}
	states := [...]spec.JobState{spec.Completed, spec.Completed, spec.Failed, spec.TimedOut, spec.Cancelled, spec.NodeFailed, spec.OutOfMemory}
	w.EndBy(j.UID, states[w.int(0, len(states)-1)], spec.ExitStatus{Code: int32(w.int(0, 2))}, uint32(w.int(0, 2)))
	if w.coin() {
		j = w.State.Job(j.UID)
		for i := range j.Alloc.Nodes {
			if name := j.Alloc.Nodes[i].Name; !j.Done.Has(i) {
				w.Put(&event.JobNodeDone{UID: j.UID, Attempt: j.Attempt, Node: name, Usage: w.usage(j, name)})
			}
		}
	}
}

// requeue queues a job again whose nodes are all back, before or after its
// verdict.
func (w *world) requeue() {
	j := w.some(func(j *state.Job) bool { return j.State != spec.Pending && j.Attempt > 0 && !j.HoldsNodes() })
	if j == nil {
		j = w.some(func(j *state.Job) bool { return j.State.Active() })
		if j == nil {
			return
		}
		w.Put(&event.JobEndRequested{UID: j.UID, Attempt: j.Attempt, Cause: event.EndRequeue, Requeue: true})
		w.Done(j.UID, spec.Usage{UserCPU: spec.Millisecond}, spec.ExitStatus{Signal: 15})
	}
	w.Requeue(j.UID, [...]spec.JobState{spec.Pending, spec.NodeFailed, spec.Preempted}[w.int(0, 2)])
}

func (w *world) split() {
	if j := w.some(func(j *state.Job) bool { return j.State == spec.Pending && j.IsArrayRecord() }); j != nil {
		w.Split(j.UID, j.Tasks.Min())
	}
}

func (w *world) purge() {
	if j := w.some(func(j *state.Job) bool { return j.State.Terminal() && !j.HoldsNodes() }); j != nil {
		w.Put(&event.JobPurged{UIDs: []spec.JobUID{j.UID}})
	}
}

func (w *world) reason() {
	var ev event.ReasonsChanged
	w.State.Waiting.Range(func(uid uint64, _ struct{}) bool {
		if w.coin() {
			ev.Jobs = append(ev.Jobs, event.JobReason{UID: spec.JobUID(uid), Reason: spec.Reason{Code: spec.ReasonResources, TRES: "gres/gpu", Asked: 1}})
		}
		return true
	})
	if len(ev.Jobs) > 0 {
		w.Put(&ev)
	}
}

func (w *world) hold() {
	j := w.some(func(j *state.Job) bool { return j.State == spec.Pending })
	switch {
	case j == nil:
	case j.Hold == spec.NotHeld && w.coin():
		w.Put(&event.JobHeld{UID: j.UID, By: spec.HeldByAdmin})
	case j.Hold != spec.NotHeld:
		w.Put(&event.JobReleased{UID: j.UID})
		w.Put(&event.JobEligible{UID: j.UID})
	default:
		w.Put(&event.JobEligible{UID: j.UID})
	}
}

// step begins a numbered step, or ends one, also after the verdict.
func (w *world) step() {
	j := w.some(func(j *state.Job) bool { return j.Attempt > 0 && (j.State.Active() || j.State.Terminal()) })
	if j == nil {
		return
	}
	for i := range j.Steps {
		if s := &j.Steps[i]; !s.State.Terminal() {
			w.Put(&event.StepEnded{UID: j.UID, Attempt: j.Attempt, Step: s.ID, State: spec.Completed, Usage: spec.Usage{UserCPU: spec.Microsecond}})
			return
		}
	}
	if j.State.Active() {
		w.Put(&event.StepStarted{UID: j.UID, Attempt: j.Attempt, Step: j.NextStep, Name: "app", Nodes: []string{j.Alloc.Nodes[0].Name},
			Tasks: 1, TRES: spec.TRES{CPU: 1, Node: 1}})
	}
}

func (w *world) node() {
	if w.int(0, 9) == 0 {
		w.dynamic()
		return
	}
	name := [...]string{"n1", "n2", "n3"}[w.int(0, 2)]
	if w.State.Node(name) == nil {
		return
	}
	n := w.State.Node(name)
	switch w.int(0, 5) {
	case 4:
		if to := event.PowerState(w.int(int(event.PowerOn), int(event.PoweringUp))); to < event.PoweredDown || len(n.Jobs) == 0 {
			w.Put(&event.NodePowered{Nodes: []string{name}, To: to})
		}
	case 5:
		if phase := event.RebootPhase(w.int(int(event.RebootWanted), int(event.RebootOver))); phase == event.RebootWanted || n.Reboot != nil {
			w.Put(&event.NodeReboot{Node: name, Phase: phase, ASAP: w.coin()})
		}
	case 0:
		w.Put(&event.NodeStateSet{Node: name, State: event.NodeAdminState(w.int(1, 4)), Reason: "why"})
	case 1:
		w.Put(&event.NodeLost{Node: name, LastSeen: w.Now})
	case 2:
		w.Put(&event.NodeReturned{Node: name})
	default:
		w.Register(name)
	}
}

// dynamic adds a node or a partition while jobs run, takes it away, or changes a
// node.
func (w *world) dynamic() {
	switch {
	case w.coin() && w.State.Parts.Find("extra") != nil:
		w.Put(&event.PartitionGone{Name: "extra"})
		return
	case w.coin() && w.State.Parts.Find("extra") == nil:
		w.Put(&event.PartitionAdded{Partition: spec.PartitionSpec{Name: "extra", NodeNames: []string{"n1", "d1"}}})
		return
	case w.coin() && w.State.Node("n1") != nil:
		w.Put(&event.NodeChanged{Node: "n1", Weight: uint32(w.int(0, 3)), Reason: []string{"", "look"}[w.int(0, 1)]})
		return
	}
	if w.State.Node("d1") != nil {
		w.Put(&event.NodeDeleted{Node: "d1"})
		return
	}
	w.Put(&event.NodeAdded{Node: spec.NodeSpec{Name: "d1", CPUs: int64(w.int(1, 4)), Mem: 4000}, Partitions: []string{"batch"}})
}

func (w *world) update() {
	j := w.some(func(j *state.Job) bool { return !j.State.Terminal() })
	if j == nil {
		return
	}
	s := *j.Spec
	s.Comment = "changed"
	s.Time.Limit = spec.Span(w.int(1, 9)) * spec.Hour
	w.Put(&event.JobUpdated{UID: j.UID, Spec: &s, Req: j.Req, Changed: []string{"TimeLimit"}})
}

// config takes the last node out of the configuration, or puts it back.
func (w *world) config() {
	c := *w.State.Config
	if len(c.Nodes) == 3 {
		c.Nodes = c.Nodes[:2]
	} else {
		c.Nodes = w.conf.Nodes
	}
	w.Put(&event.ConfigAdopted{Config: &c})
}

// suspend stops a job that runs, or lets one go on.
func (w *world) suspend() {
	j := w.some(func(j *state.Job) bool { return j.State.Active() && j.Ending == nil })
	switch {
	case j == nil:
	case j.State == spec.Suspended && w.State.InItsPlace(j) != "":
		w.Put(&event.JobSuspended{UID: j.UID, Attempt: j.Attempt, Auto: true})
	case j.State == spec.Suspended:
		w.Put(&event.JobResumed{UID: j.UID, Attempt: j.Attempt})
	default:
		w.Put(&event.JobSuspended{UID: j.UID, Attempt: j.Attempt, Yields: true})
	}
}
