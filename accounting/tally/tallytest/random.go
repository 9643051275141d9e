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
	w.State.Jobs.Range(func(_ uint64, job *state.Job) bool {
		if cond(job) {
			fit = append(fit, job)
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
	query := who[w.int(0, 2)]
	query.Name, query.QOS = "job", [...]string{"normal", "high"}[w.int(0, 1)]
	query.Partition = [...]string{"batch", "gpu", "gpu,batch"}[w.int(0, 2)]
	query.CPUs = int64(w.int(1, 3))
	query.Mem = int64(w.int(0, 3000))
	query.GPUs = int64(w.int(0, 2))
	query.Held = w.int(0, 5) == 0
	if w.int(0, 3) == 0 {
		query.Array = spec.TaskSet{{First: 1, Last: int64(w.int(1, 5)), Step: 1}}
	}
	w.Submit(query)
}

func (w *world) start() {
	job := w.some(func(j *state.Job) bool { return j.State == spec.Pending && !j.IsArrayRecord() })
	if job == nil {
		return
	}
	nodes := []string{"n1", "n2", "n3"}[w.int(0, 2):]
	for _, n := range nodes {
		if w.State.Node(n) == nil {
			return
		}
	}
	w.Start(job.UID, nodes[:w.int(1, len(nodes))]...)
}

func (w *world) usage(job *state.Job, node string) spec.Usage {
	usage := spec.Usage{
		UserCPU:   spec.Span(w.int(0, 9000)) * spec.Microsecond,
		SystemCPU: spec.Span(w.int(0, 900)) * spec.Microsecond,
		ReadB:     int64(w.int(0, 9)),
		MemMiBS:   int64(w.int(0, 99)),
	}
	if w.coin() {
		usage.HasRSS, usage.PeakRSS = true, int64(w.int(0, 4000))<<20
	}
	if w.coin() {
		usage.HasEnergy, usage.EnergyMJ = true, int64(w.int(0, 90_000))
	}
	held := w.Now.Sub(job.Started)
	for i := range job.Alloc.Nodes {
		if job.Alloc.Nodes[i].Name != node || w.coin() {
			continue
		}
		for _, gpu := range job.Alloc.Nodes[i].GPUs {
			busy := held / spec.Span(w.int(1, 4))
			usage.GPUs = append(
				usage.GPUs,
				spec.GPUUsage{
					UUID:     gpu.UUID,
					Has:      true,
					Busy:     busy,
					Idle:     held - busy,
					UtilNS:   busy / 2,
					SMNS:     busy / 3 * spec.Span(w.int(0, 1)),
					EnergyMJ: int64(w.int(0, 9)) * 1000,
				},
			)
		}
	}
	return usage
}

// nodeDone gives back one node of a job that holds any.
func (w *world) nodeDone() {
	job := w.some(func(j *state.Job) bool { return j.HoldsNodes() })
	if job == nil {
		return
	}
	for i := range job.Alloc.Nodes {
		if job.Done.Has(i) || (i+1 < len(job.Alloc.Nodes) && w.coin()) {
			continue
		}
		name := job.Alloc.Nodes[i].Name
		ev := &event.JobNodeDone{UID: job.UID, Attempt: job.Attempt, Node: name}
		if w.int(0, 6) == 0 {
			ev.Lost = true
		} else {
			ev.Usage = w.usage(job, name)
			if i == 0 {
				ev.Batch = &event.StepResult{Started: job.Started, Ended: w.Now, Exit: spec.ExitStatus{Code: int32(w.int(0, 1))}}
			}
		}
		w.Put(ev)
		return
	}
}

func (w *world) end() {
	job := w.some(
		func(j *state.Job) bool { return j.State.Active() || (j.State == spec.Pending && w.int(0, 4) == 0) },
	)
	if job == nil {
		return
	}
	if job.State == spec.Pending {
		w.EndBy(job.UID, spec.Cancelled, spec.ExitStatus{}, 1001)
		return
	}
	states := [...]spec.JobState{
		spec.Completed,
		spec.Completed,
		spec.Failed,
		spec.TimedOut,
		spec.Cancelled,
		spec.NodeFailed,
		spec.OutOfMemory,
	}
	w.EndBy(
		job.UID,
		states[w.int(0, len(states)-1)],
		spec.ExitStatus{Code: int32(w.int(0, 2))},
		uint32(w.int(0, 2)),
	)
	if w.coin() {
		job = w.State.Job(job.UID)
		for i := range job.Alloc.Nodes {
			if !job.Done.Has(i) {
				name := job.Alloc.Nodes[i].Name
				w.Put(
					&event.JobNodeDone{
						UID:     job.UID,
						Attempt: job.Attempt,
						Node:    name,
						Usage:   w.usage(job, name),
					},
				)
			}
		}
	}
}

// requeue queues a job again whose nodes are all back, before or after its
// verdict.
func (w *world) requeue() {
	job := w.some(
		func(j *state.Job) bool { return j.State != spec.Pending && j.Attempt > 0 && !j.HoldsNodes() },
	)
	if job == nil {
		job = w.some(func(j *state.Job) bool { return j.State.Active() })
		if job == nil {
			return
		}
		w.Put(
			&event.JobEndRequested{
				UID:     job.UID,
				Attempt: job.Attempt,
				Cause:   event.EndRequeue,
				Requeue: true,
			},
		)
		w.Done(job.UID, spec.Usage{UserCPU: spec.Millisecond}, spec.ExitStatus{Signal: 15})
	}
	w.Requeue(
		job.UID,
		[...]spec.JobState{spec.Pending, spec.NodeFailed, spec.Preempted}[w.int(0, 2)],
	)
}

func (w *world) split() {
	if job := w.some(func(j *state.Job) bool {
		return j.State == spec.Pending && j.IsArrayRecord()
	}); job != nil {
		w.Split(job.UID, job.Tasks.Min())
	}
}

func (w *world) purge() {
	if job := w.some(func(j *state.Job) bool {
		return j.State.Terminal() && !j.HoldsNodes()
	}); job != nil {
		w.Put(&event.JobPurged{UIDs: []spec.JobUID{job.UID}})
	}
}

func (w *world) reason() {
	var ev event.ReasonsChanged
	w.State.Waiting.Range(func(uid uint64, _ struct{}) bool {
		if w.coin() {
			reason := event.JobReason{
				UID:    spec.JobUID(uid),
				Reason: spec.Reason{Code: spec.ReasonResources, TRES: "gres/gpu", Asked: 1},
			}
			if w.State.Job(reason.UID).Eligible != 0 && w.coin() {
				reason.Promise = w.Now.Add(spec.Seconds(int64(w.int(0, 90))))
			}
			ev.Jobs = append(ev.Jobs, reason)
		}
		return true
	})
	if len(ev.Jobs) > 0 {
		w.Put(&ev)
	}
}

func (w *world) hold() {
	job := w.some(func(j *state.Job) bool { return j.State == spec.Pending })
	switch {
	case job == nil:
	case job.Hold == spec.NotHeld && w.coin():
		w.Put(&event.JobHeld{UID: job.UID, By: spec.HeldByAdmin})
	case job.Hold != spec.NotHeld:
		w.Put(&event.JobReleased{UID: job.UID})
		w.Put(&event.JobEligible{UID: job.UID})
	default:
		w.Put(&event.JobEligible{UID: job.UID})
	}
}

// step begins a numbered step, or ends one, also after the verdict.
func (w *world) step() {
	job := w.some(
		func(j *state.Job) bool { return j.Attempt > 0 && (j.State.Active() || j.State.Terminal()) },
	)
	if job == nil {
		return
	}
	for i := range job.Steps {
		if step := &job.Steps[i]; !step.State.Terminal() {
			w.Put(
				&event.StepEnded{
					UID:     job.UID,
					Attempt: job.Attempt,
					Step:    step.ID,
					State:   spec.Completed,
					Usage:   spec.Usage{UserCPU: spec.Microsecond},
				},
			)
			return
		}
	}
	if job.State.Active() {
		w.Put(
			&event.StepStarted{
				UID:     job.UID,
				Attempt: job.Attempt,
				Step:    job.NextStep,
				Name:    "app",
				Nodes:   []string{job.Alloc.Nodes[0].Name},
				Tasks:   1,
				TRES:    spec.TRES{CPU: 1, Node: 1},
			},
		)
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
	node := w.State.Node(name)
	switch w.int(0, 5) {
	case 4:
		if to := event.PowerState(w.int(int(event.PowerOn), int(event.PoweringUp))); to < event.PoweredDown ||
			len(node.Jobs) == 0 {
			w.Put(&event.NodePowered{Nodes: []string{name}, To: to})
		}
	case 5:
		if phase := event.RebootPhase(w.int(int(event.RebootWanted), int(event.RebootOver))); phase == event.RebootWanted ||
			node.Reboot != nil {
			w.Put(&event.NodeReboot{Node: name, Phase: phase, ASAP: w.coin()})
		}
	case 0:
		w.Put(
			&event.NodeStateSet{
				Node:   name,
				State:  event.NodeAdminState(w.int(1, 4)),
				Reason: "why",
			},
		)
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
		w.Put(
			&event.PartitionAdded{
				Partition: spec.PartitionSpec{Name: "extra", NodeNames: []string{"n1", "d1"}},
			},
		)
		return
	case w.coin() && w.State.Node("n1") != nil:
		w.Put(
			&event.NodeChanged{
				Node:   "n1",
				Weight: uint32(w.int(0, 3)),
				Reason: []string{"", "look"}[w.int(0, 1)],
			},
		)
		return
	}
	if w.State.Node("d1") != nil {
		w.Put(&event.NodeDeleted{Node: "d1"})
		return
	}
	w.Put(
		&event.NodeAdded{
			Node:       spec.NodeSpec{Name: "d1", CPUs: int64(w.int(1, 4)), Mem: 4000},
			Partitions: []string{"batch"},
		},
	)
}

func (w *world) update() {
	job := w.some(func(j *state.Job) bool { return !j.State.Terminal() })
	if job == nil {
		return
	}
	jobSpec := *job.Spec
	jobSpec.Comment = "changed"
	jobSpec.Time.Limit = spec.Span(w.int(1, 9)) * spec.Hour
	w.Put(
		&event.JobUpdated{
			UID: job.UID, Spec: &jobSpec, Req: job.Req, Changed: []string{"TimeLimit"},
		},
	)
}

// config takes the last node out of the configuration, or puts it back.
func (w *world) config() {
	config := *w.State.Config
	if len(config.Nodes) == 3 {
		config.Nodes = config.Nodes[:2]
	} else {
		config.Nodes = w.conf.Nodes
	}
	w.Put(&event.ConfigAdopted{Config: &config})
}

// suspend stops a job that runs, or lets one go on.
func (w *world) suspend() {
	job := w.some(func(j *state.Job) bool { return j.GoesOn() })
	switch {
	case job == nil:
	case job.State == spec.Suspended && w.State.InItsPlace(job) != "":
		w.Put(&event.JobSuspended{UID: job.UID, Attempt: job.Attempt, Auto: true})
	case job.State == spec.Suspended:
		w.Put(&event.JobResumed{UID: job.UID, Attempt: job.Attempt})
	default:
		w.Put(&event.JobSuspended{UID: job.UID, Attempt: job.Attempt, Yields: true})
	}
}
