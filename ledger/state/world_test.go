package state

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// world makes legal histories of a small cluster. It looks at the state to
// know what may happen next, as a controller does, and keeps the log.
type world struct {
	t    *rapid.T
	s    *State
	log  []event.Envelope
	conf worldConfig
}

// worldConfig is what reconfigurations turn.
type worldConfig struct {
	nodes   []string
	cpus    int64
	mem     int64
	gpus    int64
	shards  int64
	memory  bool // memory is consumable
	partQOS string
	matlab  int64
	prolog  bool
}

var (
	worldUsers    = []string{"alice", "bob", "eve"}
	worldAccounts = []string{"ml", "bio"}
	worldQOS      = []string{"normal", "high", "part"}
	worldNodes    = []string{"n1", "n2", "n3", "n4", "n5", "n6"}
)

func newWorld(t *rapid.T) *world {
	w := &world{t: t, s: New(), conf: worldConfig{nodes: worldNodes[:3], cpus: 4, mem: 8000, gpus: 2, shards: 4,
		memory: true, partQOS: "part", matlab: 3}}
	w.put(&event.ClusterCreated{UUID: [16]byte{7}, Name: "test", Version: uint32(w.int(1, int(event.Version)))})
	w.put(&event.ConfigAdopted{Config: w.conf.config()})
	for i, q := range worldQOS {
		w.put(&event.QOSPut{QOS: spec.QOS{ID: uint32(i + 1), Name: q}})
	}
	id := uint32(0)
	for _, a := range worldAccounts {
		id++
		w.put(&event.AccountPut{Account: spec.Account{Name: a}})
		w.put(&event.AssociationPut{Association: spec.Association{ID: id, Account: a}})
		for _, u := range worldUsers {
			id++
			w.put(&event.AssociationPut{Association: spec.Association{ID: id, Account: a, User: u, Parent: w.s.Policy.AccountAssoc(a)}})
		}
	}
	for _, n := range w.conf.nodes {
		w.register(n)
	}
	return w
}

func (c *worldConfig) config() *spec.Config {
	out := &spec.Config{ClusterName: "test", Sched: spec.SchedConfig{Memory: c.memory}, Licenses: []spec.Count{{Name: "matlab", N: c.matlab}}}
	for _, n := range c.nodes {
		out.Nodes = append(out.Nodes, c.node(n))
	}
	out.Partitions = []spec.PartitionSpec{{Name: "batch", NodeNames: c.nodes, Default: true},
		{Name: "gpu", NodeNames: c.nodes[:1], QOS: c.partQOS}}
	if c.prolog {
		out.Ctl = &spec.CtlScripts{Prolog: "/prolog"}
	}
	return out
}

func (c *worldConfig) node(name string) spec.NodeSpec {
	return spec.NodeSpec{Name: name, CPUs: c.cpus, Mem: c.mem, MemSpecLimit: 500, GRES: []spec.GRESSpec{
		{Name: "gpu", Type: "h100", N: c.gpus}, {Name: "shard", N: c.shards}, {Name: "fast", N: 1, NoConsume: true}}}
}

// put applies an event that must be legal and checks every invariant.
func (w *world) put(e event.Event) {
	w.t.Helper()
	env := event.Envelope{Seq: w.s.Seq + 1, At: w.s.At + spec.Instant(w.int(0, 3)), Event: e,
		Actor: event.Actor{Kind: event.ActorUser, UID: 1000, Name: "alice"}, Cause: event.Cause{Command: "test"}}
	if err := w.s.Apply(&env); err != nil {
		w.t.Fatalf("a legal event is refused: %v\n%+v", err, e)
	}
	if err := w.s.Check(); err != nil {
		w.t.Fatalf("after event %d (%s %+v): %v", env.Seq, e.Kind(), e, err)
	}
	w.log = append(w.log, env)
}

func (w *world) int(lo, hi int) int { return rapid.IntRange(lo, hi).Draw(w.t, "n") }
func (w *world) coin() bool         { return rapid.Bool().Draw(w.t, "coin") }

func pick[T any](w *world, from []T) T { return from[w.int(0, len(from)-1)] }

// some draws a job that satisfies a condition, or nil.
func (w *world) some(cond func(j *Job) bool) *Job {
	var fit []*Job
	w.s.Jobs.Range(func(_ uint64, j *Job) bool {
		if cond(j) {
			fit = append(fit, j)
		}
		return true
	})
	if len(fit) == 0 {
		return nil
	}
	return pick(w, fit)
}

func (w *world) someNode() *Node {
	var all []*Node
	w.s.Nodes.Range(func(_ uint64, n *Node) bool { all = append(all, n); return true })
	return pick(w, all)
}

func (w *world) step() {
	ops := []func(){w.submit, w.submit, w.submit, w.start, w.start, w.start, w.start, w.done, w.done, w.done, w.end, w.end,
		w.requeue, w.epilog, w.split, w.split, w.purge, w.change, w.request, w.steps, w.node, w.configure, w.policy, w.access, w.aging, w.reserve}
	pick(w, ops)()
}

func (w *world) spec() *spec.JobSpec {
	s := &spec.JobSpec{Name: pick(w, []string{"a", "b"}), UID: uint32(w.int(1, 3)), Account: pick(w, worldAccounts),
		QOS: pick(w, worldQOS), Partitions: []string{pick(w, []string{"batch", "gpu"}), "batch"}, Time: spec.TimeAsk{Limit: spec.Hour}}
	s.User = worldUsers[s.UID-1]
	if last := int(w.s.NextUID) - 1; last > 0 && w.int(0, 2) == 0 {
		d := &spec.Dependency{}
		for range w.int(1, 3) {
			d.Terms = append(d.Terms, spec.DependencyTerm{Kind: spec.AfterAny, UID: spec.JobUID(w.int(0, last)), Task: spec.NoTask})
		}
		s.Queue.Dependency = d
	}
	return s
}

func (w *world) assoc(s *spec.JobSpec) uint32 {
	if a := w.s.Policy.FindAssoc(s.Account, s.User, ""); a != nil {
		return a.ID
	}
	return 0
}

func (w *world) submit() {
	s := w.spec()
	if w.int(0, 3) == 0 {
		first := int64(w.int(0, 3))
		tasks := spec.TaskSet{{First: first, Last: first + int64(w.int(0, 3)), Step: 1}}
		if w.coin() {
			tasks = append(tasks, spec.TaskRange{First: 10, Last: 20, Step: 5})
		}
		s.Queue.Array = spec.NewArrayAsk(tasks, 2)
	}
	e := &event.JobSubmitted{UID: w.s.NextUID, ID: w.s.NextID, Spec: s, Assoc: w.assoc(s), Reason: spec.Reason{Code: spec.ReasonNone}}
	if w.int(0, 9) == 0 {
		e.UID, e.ID = e.UID+2, e.ID+1 // numbers may be left out
	}
	w.put(e)
}

// start gives a waiting job whatever is free.
func (w *world) start() {
	j := w.some(func(j *Job) bool { return j.State == spec.Pending && !j.IsArrayRecord() })
	if j == nil {
		return
	}
	a := &spec.Allocation{Partition: pick(w, j.Spec.Partitions)}
	w.s.Nodes.Range(func(_ uint64, n *Node) bool {
		if n.FreeCPUs() > 0 && !n.Removed && w.coin() {
			a.Nodes = append(a.Nodes, w.part(n))
		}
		return len(a.Nodes) < 3
	})
	if len(a.Nodes) == 0 {
		return
	}
	for i := range a.Nodes {
		p := &a.Nodes[i]
		a.TRES.CPU += int64(p.CPUs.Count())
		a.TRES.Mem += p.Mem
		a.TRES.Node++
		for range p.GPUs {
			a.TRES = countGPU(a.TRES, "h100")
		}
	}
	if free := w.conf.matlab - countOf(w.s.Licenses, "matlab"); free > 0 && w.coin() {
		a.Licenses = []spec.Count{{Name: "matlab", N: int64(w.int(1, int(free)))}}
	}
	for i := range a.Nodes {
		if w.s.NodeByID(a.Nodes[i].ID).Power == event.PoweredDown {
			w.put(&event.NodePowered{Nodes: []string{a.Nodes[i].Name}, To: event.PowerUpWish})
		}
	}
	e := &event.JobStarted{UID: j.UID, Attempt: j.Attempt + 1, Alloc: a, Limit: spec.Hour, Backfill: w.coin()}
	if w.int(0, 4) == 0 && w.s.Version >= event.LostNumbersSince && !w.s.awaitsBoot(a) && w.s.At >= j.Submitted {
		from := j.Submitted + spec.Instant(w.int(0, int(min(w.s.At-j.Submitted, 1<<40))))
		e.Attempt += uint32(w.int(0, 2))
		e.Adopted = &event.AdoptedRun{Epoch: 1<<61 + w.s.Seq, Seq: w.s.Seq, At: from, NextStep: spec.StepID(w.int(0, 3))}
		if n := len(w.s.Epochs); n > 1 && w.coin() { // the copy was made while that controller led
			e.Adopted.Epoch, e.Adopted.Seq = w.s.Epochs[n-2].Value, w.s.Epochs[n-1].Seq+uint64(w.int(0, 9))
		}
	}
	w.put(e)
}

// adopt gives a job of a lost history its uid again.
func (w *world) adopt() {
	if w.s.Lost == nil || len(w.s.Lost.Free) == 0 || w.s.Version < event.LostNumbersSince {
		return
	}
	free := pick(w, w.s.Lost.Free)
	if free.UID >= free.UIDTo {
		return
	}
	s := w.spec()
	s.Queue.Dependency = nil
	uid := free.UID + spec.JobUID(w.int(0, int(free.UIDTo-free.UID)-1))
	id := w.s.NextID
	if free.ID < free.IDTo && w.s.IsLostID(free.ID) {
		id = free.ID
	}
	w.put(&event.JobSubmitted{UID: uid, ID: id, Spec: s, Assoc: w.assoc(s), Reason: spec.Reason{Code: spec.ReasonNone},
		Adopted: &event.AdoptedJob{At: w.s.At - spec.Instant(w.int(0, int(min(w.s.At, 1<<30)))), Restarts: uint32(w.int(0, 2))}})
}

func (w *world) part(n *Node) spec.NodeAlloc {
	p := spec.NodeAlloc{ID: n.ID, Name: n.Spec.Name}
	for c := range int(n.CPUs) {
		if !n.UsedCPU.Has(c) && (p.CPUs == nil || w.coin()) {
			p.CPUs = p.CPUs.Set(c)
		}
	}
	if free := n.FreeMem(); free > 0 && w.coin() {
		p.Mem = min(free, int64(w.int(1, 4000)))
	}
	for i := range n.GPUs {
		if n.FreeWhole(i) && w.coin() {
			p.GPUs = append(p.GPUs, spec.GPURef{UUID: n.GPUs[i].UUID, Index: n.GPUs[i].Index, Type: "h100"})
		}
	}
	for i := range n.GPUs {
		free := n.ShareAt(i).N - n.ShareUsed(i)
		held := slices.ContainsFunc(p.GPUs, func(g spec.GPURef) bool { return g.UUID == n.GPUs[i].UUID })
		if free > 0 && !held && !n.UsedGPU.Has(i) && w.coin() {
			share := spec.GPUShare{UUID: n.GPUs[i].UUID, Index: n.GPUs[i].Index, Name: "shard", N: int64(w.int(1, int(free))), Of: n.ShareAt(i).N}
			p.Shares = append(p.Shares, share)
			p.GRES = addCounts(p.GRES, []spec.Count{{Name: "shard", N: share.N}}, 1)
		}
	}
	if w.int(0, 3) == 0 {
		p.GRES = append(p.GRES, spec.Count{Name: "fast", N: 1})
	}
	return p
}

// done gives back a node of a job, whether it has a verdict or not.
func (w *world) done() {
	j := w.some(func(j *Job) bool { return j.HoldsNodes() })
	if j == nil {
		return
	}
	var left []string
	for i, name := range j.Alloc.NodeNames() {
		if !j.Done.Has(i) {
			left = append(left, name)
		}
	}
	node := pick(w, left)
	for _, st := range j.Steps {
		w.stepLeaves(j, st.ID, node)
	}
	e := &event.JobNodeDone{UID: j.UID, Attempt: j.Attempt, Node: node, Lost: w.coin(), Usage: spec.Usage{UserCPU: 5, PeakRSS: 3}}
	if w.coin() {
		e.Batch = &event.StepResult{Exit: spec.ExitStatus{Code: 1}}
	}
	w.put(e)
}

func (w *world) end() {
	j := w.some(func(j *Job) bool { return !j.State.Terminal() })
	if j == nil {
		return
	}
	e := &event.JobEnded{UID: j.UID, Attempt: j.Attempt, State: spec.Cancelled, By: 3}
	if j.State.Active() {
		e.State = pick(w, []spec.JobState{spec.Completed, spec.Failed, spec.TimedOut, spec.NodeFailed})
		e.Exit.Code = int32(w.int(0, 1))
	}
	e.Epilog = w.coin()
	w.put(e)
}

// epilog tells that one has run, the newest that is due first.
func (w *world) epilog() {
	if j := w.some(func(j *Job) bool { return len(j.Epilogs) > 0 }); j != nil {
		w.put(&event.JobEpilogOver{UID: j.UID, Attempt: j.Epilogs[len(j.Epilogs)-1].Attempt})
	}
}

// requeue puts back a job that is done on all nodes, with or without a verdict.
func (w *world) requeue() {
	j := w.some(func(j *Job) bool { return j.State != spec.Pending && !j.HoldsNodes() })
	if j == nil {
		return
	}
	w.put(&event.JobRequeued{UID: j.UID, Attempt: j.Attempt, State: spec.Pending, Hold: spec.Hold(w.int(0, 2)), Counts: w.coin(), Begin: spec.Instant(w.int(0, 9)), Epilog: w.coin()})
}

func (w *world) split() {
	j := w.some(func(j *Job) bool { return j.State == spec.Pending && j.IsArrayRecord() })
	if j == nil {
		return
	}
	var tasks []int64
	j.Tasks.Each(func(i int64) bool { tasks = append(tasks, i); return true })
	e := &event.ArrayTaskSplit{Array: j.UID, Task: pick(w, tasks), UID: w.s.NextUID, ID: w.s.NextID}
	if len(tasks) == 1 {
		e.UID, e.ID = j.UID, j.ID
	}
	w.put(e)
}

func (w *world) purge() {
	e := &event.JobPurged{}
	w.s.Finished.Range(func(_ uint64, uid spec.JobUID) bool {
		if w.coin() {
			e.UIDs = append(e.UIDs, uid)
		}
		return len(e.UIDs) < 3
	})
	w.put(e)
}

// aging lets use fade, be reset or cleared, and changes what stands beside it.
func (w *world) aging() {
	e := &event.UsageAged{PerSecond: event.One - uint64(w.int(0, 1<<40)), Keep: event.One / uint64(w.int(1, 3))}
	switch w.int(0, 5) {
	case 0:
		e.Keep, e.Reset = 0, true
	case 1:
		w.put(&event.UsageCleared{Assoc: uint32(w.int(0, int(w.s.Policy.NextAssoc))), QOS: uint32(w.int(0, 3))})
	case 2:
		w.put(&event.WCKeyPut{Key: spec.WCKey{ID: uint32(w.int(1, 4)), Name: "k", User: pick(w, worldUsers)}})
		w.put(&event.WCKeyRemoved{ID: uint32(w.int(1, 4))})
	case 3:
		w.put(&event.ResourcePut{Resource: spec.Resource{Name: "r", Server: pick(w, []string{"s", "t"}), Count: int64(w.int(0, 9)), Allowed: 50}})
		w.put(&event.ResourceRemoved{Name: "r", Server: "t"})
	case 4:
		if w.s.Version >= event.KindClusterPut.Since() {
			w.put(&event.ClusterPut{Name: pick(w, []string{"c", "d"}), Socket: "/s", Port: int64(w.int(0, 9))})
			w.put(&event.ClusterRemoved{Name: "c"})
		}
	}
	w.put(e)
}

// change is what happens to jobs that wait, and updates of those that run.
func (w *world) change() {
	j := w.some(func(j *Job) bool { return !j.State.Terminal() })
	if j == nil {
		return
	}
	if j.State.Active() || w.int(0, 4) == 0 {
		s := w.spec()
		s.UID, s.User, s.Queue.Array = j.Spec.UID, j.Spec.User, j.Spec.Queue.Array
		w.put(&event.JobUpdated{UID: j.UID, Spec: s, Assoc: w.assoc(s)})
		return
	}
	switch w.int(0, 3) {
	case 0:
		w.put(&event.JobEligible{UID: j.UID, NoAccrue: w.coin()})
		if w.coin() {
			w.put(&event.JobsAccruing{UIDs: []spec.JobUID{j.UID}})
		}
	case 1:
		w.put(&event.ReasonsChanged{Jobs: []event.JobReason{{UID: j.UID, Reason: spec.Reason{Code: spec.ReasonPriority}}}})
	case 2:
		w.put(&event.JobHeld{UID: j.UID, By: spec.HeldByUser})
	default:
		w.put(&event.JobReleased{UID: j.UID})
	}
}

func (w *world) request() {
	j := w.some(func(j *Job) bool { return j.State.Active() })
	if j == nil {
		return
	}
	if j.Prepares && w.coin() {
		w.put(&event.JobPrepared{UID: j.UID, Attempt: j.Attempt})
		return
	}
	if w.coin() {
		w.put(&event.JobSignalled{UID: j.UID, Attempt: j.Attempt, Signal: 10})
		switch j = w.s.Job(j.UID); {
		case j.State == spec.Suspended && (w.s.InItsPlace(j) != "" || w.int(0, 4) == 0):
			w.put(&event.JobSuspended{UID: j.UID, Attempt: j.Attempt, Auto: w.coin()})
		case j.State == spec.Suspended:
			w.put(&event.JobResumed{UID: j.UID, Attempt: j.Attempt})
		case j.State == spec.Running:
			w.put(&event.JobSuspended{UID: j.UID, Attempt: j.Attempt, Yields: w.coin(), Auto: w.coin()})
		}
		return
	}
	w.put(&event.JobEndRequested{UID: j.UID, Attempt: j.Attempt, Cause: event.EndCause(w.int(1, 8)), By: 3, Requeue: w.coin()})
}

// steps begins a step on the CPUs that no other has, or on all, or brings one
// nearer to its end.
func (w *world) steps() {
	j := w.some(func(j *Job) bool { return j.State.Active() })
	if j == nil {
		return
	}
	for _, st := range j.Steps {
		if st.Live() && w.coin() {
			w.put(&event.StepSignalled{UID: j.UID, Attempt: j.Attempt, Step: st.ID, Signal: 10})
			w.put(&event.StepEndRequested{UID: j.UID, Attempt: j.Attempt, Step: st.ID, Cause: event.EndCancel, By: 3})
			for _, a := range st.Layout {
				w.stepLeaves(j, st.ID, a.Name)
			}
			return
		}
	}
	ev := &event.StepStarted{UID: j.UID, Attempt: j.Attempt, Step: j.NextStep, Ticket: "t", Spec: &spec.StepSpec{Overlap: w.coin()}}
	for i := range j.Alloc.Nodes {
		a := j.Alloc.Nodes[i]
		if j.Done.Has(i) {
			continue
		}
		for k := range j.Steps {
			if at := j.Steps[k].Part(a.Name); at >= 0 && !ev.Spec.Overlap && !j.Steps[k].Shares() {
				b := j.Steps[k].Layout[at]
				a.CPUs, a.GPUs, a.Mem = a.CPUs.AndNot(b.CPUs), slices.DeleteFunc(slices.Clone(a.GPUs), func(g spec.GPURef) bool { return hasGPU(b.GPUs, g.UUID) }), a.Mem-b.Mem
			}
		}
		ev.Layout, ev.Nodes = append(ev.Layout, a), append(ev.Nodes, a.Name)
	}
	w.put(ev)
}

// stepLeaves ends a step's part on a node, and the step with its last part.
func (w *world) stepLeaves(j *Job, id spec.StepID, node string) {
	st := w.s.Job(j.UID).StepByID(id)
	if st.Part(node) < 0 {
		return
	}
	res := event.StepResult{Exit: spec.ExitStatus{Code: int32(w.int(0, 2))}}
	w.put(&event.StepNodeDone{UID: j.UID, Attempt: j.Attempt, Step: id, Node: node, Result: res, Usage: spec.Usage{UserCPU: 1}})
	if st = w.s.Job(j.UID).StepByID(id); st.Done.Count() == len(st.Layout) {
		w.put(&event.StepEnded{UID: j.UID, Attempt: j.Attempt, Step: id, State: spec.Completed, Result: *st.Result, Usage: st.Usage})
	}
}

func (w *world) register(name string) {
	inv := spec.Inventory{BootID: fmt.Sprint("boot", w.int(1, 3)), CPUs: w.conf.cpus, Mem: w.conf.mem}
	for i := range w.int(int(w.conf.gpus)-1, int(w.conf.gpus)+1) {
		inv.GPUs = append(inv.GPUs, spec.GPU{Index: uint32(i), UUID: fmt.Sprintf("GPU-%s-%d", name, i), Type: "h100"})
	}
	if w.coin() {
		slices.Reverse(inv.GPUs) // another order: positions change under jobs
	}
	w.put(&event.NodeRegistered{Node: name, Inventory: inv})
}

func (w *world) node() {
	name := w.someNode().Spec.Name
	switch w.int(0, 8) {
	case 6, 7:
		w.takeHold(w.s.Node(name))
	case 8:
		w.releaseHold(w.s.Node(name))
	case 0:
		w.register(name)
	case 4:
		w.power(w.s.Node(name))
	case 5:
		if j := w.some(func(j *Job) bool { return j.Configuring() && !w.s.awaitsBoot(j.Alloc) }); j != nil {
			w.put(&event.JobReady{UID: j.UID, Attempt: j.Attempt})
		}
	case 1:
		w.put(&event.NodeStateSet{Node: name, State: event.NodeAdminState(w.int(1, 4)), Reason: "why"})
	case 2:
		w.put(&event.NodeLost{Node: name, LastSeen: w.s.At})
	default:
		w.put(&event.NodeReturned{Node: name})
	}
}

// takeHold gives another scheduler what is free on a node.
func (w *world) takeHold(n *Node) {
	h := spec.ForeignHold{ID: fmt.Sprintf("pod-%d", w.int(0, 9)), Space: "web", Owner: "p", MilliCPU: int64(w.int(0, 1500)), Priority: int64(w.int(0, 3))}
	if _, twice := n.HoldAt(h.ID); twice {
		return
	}
	var cpus spec.Bitset
	for _, c := range w.s.OpenCPUs(n).Members() {
		if int64(n.HeldCPU.Count()+cpus.Count())*1000 < n.HeldMilli()+h.MilliCPU {
			cpus = cpus.Set(c)
		}
	}
	if int64(n.HeldCPU.Count()+cpus.Count())*1000 < n.HeldMilli()+h.MilliCPU {
		return
	}
	if free := n.FreeMem(); free > 0 {
		h.Mem = int64(w.int(0, int(free)))
	}
	for i := range n.GPUs {
		if n.FreeWhole(i) && w.coin() {
			h.GPUs = append(h.GPUs, spec.GPURef{UUID: n.GPUs[i].UUID, Index: n.GPUs[i].Index, Type: n.GPUs[i].Type})
		}
	}
	w.put(&event.ForeignHoldTaken{Node: n.Spec.Name, Hold: h, CPUs: cpus})
}

// releaseHold takes one back, with the CPUs that the others do not need.
func (w *world) releaseHold(n *Node) {
	if len(n.Holds) == 0 {
		return
	}
	h := n.Holds[w.int(0, len(n.Holds)-1)]
	need := spec.WholeCPUs(n.HeldMilli()-h.MilliCPU, 1)
	var back spec.Bitset
	for _, c := range n.HeldCPU.Members() {
		if int64(n.HeldCPU.Count()-back.Count()) > need {
			back = back.Set(c)
		}
	}
	w.put(&event.ForeignHoldReleased{Node: n.Spec.Name, ID: h.ID, CPUs: back, Why: "deleted"})
}

// power moves a node to any state of its power that its jobs allow, and its
// reboot to any phase.
func (w *world) power(n *Node) {
	to := event.PowerState(w.int(int(event.PowerOn), int(event.PoweringUp)))
	if to < event.PoweredDown || w.s.needsPower(n, to) == "" {
		w.put(&event.NodePowered{Nodes: []string{n.Spec.Name}, To: to, Failed: w.coin()})
	}
	phase := event.RebootPhase(w.int(int(event.RebootWanted), int(event.RebootOver)))
	if phase == event.RebootWanted || n.Reboot != nil {
		w.put(&event.NodeReboot{Node: n.Spec.Name, Phase: phase, ASAP: w.coin(), Next: event.NodeDown, Reason: "new kernel"})
	}
}

// configure adds, removes, grows and shrinks nodes, also under running jobs.
func (w *world) configure() {
	c := &w.conf
	switch w.int(0, 11) {
	case 9:
		w.partition()
		return
	case 10:
		w.newPartition()
		return
	case 11:
		w.changeNode()
		return
	case 6:
		c.prolog = !c.prolog
	case 7, 8:
		w.dynamic()
		return
	case 0:
		first := w.int(0, 2)
		c.nodes = worldNodes[first : first+w.int(1, len(worldNodes)-first)]
	case 1:
		c.cpus = int64(w.int(1, 6))
	case 2:
		c.mem, c.memory = int64(w.int(600, 9000)), w.coin()
	case 3:
		c.gpus, c.shards = int64(w.int(1, 3)), int64(w.int(0, 4))
	case 4:
		c.partQOS = pick(w, []string{"", "part", "high", "gone"})
	default:
		c.matlab = int64(w.int(1, 5))
	}
	next := c.config()
	if w.coin() {
		next = next.KeepDynamic(w.s.Config)
	}
	w.put(&event.ConfigAdopted{Config: next})
}

// partition changes a partition while jobs run and wait, also back to what the
// file says.
func (w *world) partition() {
	p := w.s.Config.Partitions[w.int(0, len(w.s.Config.Partitions)-1)].WithoutNodes()
	if i := slices.IndexFunc(w.s.Config.FileParts, func(f spec.PartitionSpec) bool { return f.Name == p.Name }); i >= 0 && w.coin() {
		p = w.s.Config.FileParts[i]
	} else {
		p.State, p.QOS = spec.PartitionState(w.int(1, 4)), pick(w, []string{"", "part", "high", "gone"})
	}
	p.NodeNames = pick(w, [][]string{nil, {"n1"}, {"n1", "n2"}})
	w.put(&event.PartitionPut{Partition: p, Nodes: w.coin()})
}

// newPartition adds a partition while jobs run, or takes it away, also under
// them.
func (w *world) newPartition() {
	if p := w.s.Parts.Find("extra"); p != nil {
		if p.Spec.Dynamic {
			w.put(&event.PartitionGone{Name: "extra"})
		}
		return
	}
	w.put(&event.PartitionAdded{Partition: spec.PartitionSpec{Name: "extra", NodeNames: pick(w, [][]string{nil, {"n1"}, {"n1", "n2"}}), QOS: pick(w, []string{"", "high"})}})
}

// changeNode changes a node while jobs run, also back to what the file says.
func (w *world) changeNode() {
	list := w.s.Config.Nodes
	if len(list) == 0 {
		return
	}
	n := list[w.int(0, len(list)-1)]
	if i := slices.IndexFunc(w.s.Config.FileNodes, func(f spec.NodeSpec) bool { return f.Name == n.Name }); i >= 0 && w.coin() {
		n = w.s.Config.FileNodes[i]
	} else {
		n.Weight, n.Features = uint32(w.int(0, 3)), pick(w, [][]string{nil, {"fast"}, {"fast", "big"}})
	}
	w.put(&event.NodeChanged{Node: n.Name, Weight: n.Weight, Features: n.Features, Available: n.Available, Comment: pick(w, []string{"", "rack 7"}), Reason: pick(w, []string{"", "look"})})
}

// dynamic adds a node while jobs run, or takes one away, also under its jobs.
func (w *world) dynamic() {
	name := pick(w, []string{"d1", "d2"})
	if n := w.s.Node(name); n != nil && !n.Removed {
		w.put(&event.NodeDeleted{Node: name})
		return
	}
	w.put(&event.NodeAdded{Node: w.conf.node(name), Partitions: pick(w, [][]string{nil, {"batch"}, {"batch", "gpu"}})})
	w.register(name)
}

func (w *world) policy() {
	p := w.s.Policy
	switch w.int(0, 7) {
	case 0:
		w.put(&event.QOSRemoved{Name: pick(w, worldQOS)})
	case 1:
		name := pick(w, worldQOS)
		id := p.NextQOS + 1
		if old := p.FindQOS(name); old != nil && w.coin() {
			id = old.ID
		}
		w.put(&event.QOSPut{QOS: spec.QOS{ID: id, Name: name, Priority: 5, Flags: pick(w, [][]string{nil, {"NoDecay"}})}})
	case 2:
		if len(p.Assocs) > 0 {
			w.put(&event.AssociationRemoved{ID: pick(w, p.Assocs).ID})
		}
	case 3:
		w.put(&event.AccountPut{Account: spec.Account{Name: pick(w, worldAccounts), Description: "x"}})
		w.put(&event.UserPut{User: spec.User{Name: pick(w, worldUsers)}})
	case 4:
		if w.coin() {
			w.put(&event.AccountRemoved{Name: pick(w, worldAccounts)})
		}
	case 5:
		if w.coin() {
			w.put(&event.UserRemoved{Name: pick(w, worldUsers)})
		}
	default:
		w.associate()
	}
}

// associate adds an association, moves one, or brings back one that was
// removed under its old id.
func (w *world) associate() {
	p := w.s.Policy
	a := spec.Association{ID: p.NextAssoc + 1, Account: pick(w, worldAccounts), User: pick(w, append(worldUsers, ""))}
	if w.coin() {
		a.ID = uint32(w.int(1, int(p.NextAssoc)))
	}
	if len(p.Assocs) > 0 && w.coin() {
		a.Parent = pick(w, p.Assocs).ID
	}
	if p.checkAssoc(&a) == nil {
		w.put(&event.AssociationPut{Association: a})
	}
}

func (w *world) access() {
	h := spec.Hash{byte(w.int(1, 3))}
	known := slices.ContainsFunc(w.s.Access.Tokens, func(t Token) bool { return t.Hash == h })
	switch {
	case w.int(0, 5) == 0:
		w.put(&event.EpochBegan{Value: w.s.Seq + 1})
	case w.int(0, 9) == 0:
		lost := &event.HistoryLost{Witness: "node n1", Seen: event.Position{Epoch: 1 << 60, Seq: w.s.Seq + 10,
			NextUID: w.s.NextUID + spec.JobUID(w.int(0, 4)), NextID: w.s.NextID + spec.JobID(w.int(0, 4))}}
		if w.int(0, 3) != 0 && w.s.Version >= event.LostNumbersSince {
			lost.FirstUID, lost.FirstID = w.s.NextUID, w.s.NextID
		}
		w.put(lost)
		w.adopt()
	case w.int(0, 3) == 0:
		w.adopt()
	case w.int(0, 3) == 0:
		w.put(&event.ClusterVersionRaised{Version: uint32(w.int(0, int(event.Version)))})
	case w.int(0, 3) == 0:
		w.userTokens()
	case !known:
		w.put(&event.TokenIssued{Hash: h, Node: "n1", Expires: w.s.At + 10})
	case w.coin():
		if t := findNamed(w.s.Access.Tokens, h.String(), tokenKey); t.Key.IsZero() {
			w.put(&event.TokenSpent{Hash: h, Node: "n1", Key: spec.Hash{1}})
		}
	case w.coin():
		w.put(&event.CertificateIssued{Serial: fmt.Sprint(w.s.Seq), Role: "node", Name: "n1", Token: h})
	case len(w.s.Access.Certs) > 0 && w.int(0, 3) == 0:
		w.put(&event.CertificatesDropped{Serials: []string{pick(w, w.s.Access.Certs).Serial}})
	case len(w.s.Access.Certs) > 0:
		w.put(&event.CertificateRevoked{Serial: pick(w, w.s.Access.Certs).Serial, Reason: "lost"})
	}
}

// userTokens issues a token of a user, or revokes one of them or all.
func (w *world) userTokens() {
	users := w.s.Access.Users
	switch {
	case len(users) > 0 && w.int(0, 2) == 0:
		token := pick(w, users)
		w.put(&event.UserTokensEnded{User: token.User, IDs: []string{token.ID}, Reason: "lost"})
	case w.int(0, 4) == 0:
		w.put(&event.UserTokensEnded{User: pick(w, worldUsers)})
	default:
		w.put(&event.UserTokenIssued{
			ID:      fmt.Sprint("token", w.s.Seq),
			User:    pick(w, worldUsers),
			UID:     1000,
			Expires: w.s.At + spec.Instant(w.int(1000, 5000)),
			Key:     "k",
			Login:   w.newer(2, "https://id.example.org"),
		})
	}
}

// newer is a value of a field that came with a version: nothing while the ledger is older.
func (w *world) newer(since uint32, value string) string {
	if w.s.Version < since || w.coin() {
		return ""
	}
	return value
}

// crontab makes, changes or removes a user's crontab.
func (w *world) crontab() {
	table := spec.Crontab{UID: uint32(w.int(1000, 1003)), User: "alice"}
	if w.s.Crontab(table.UID) == nil || w.coin() {
		table.Text = fmt.Sprintln("@daily", w.int(0, 9))
		w.s.Jobs.Range(func(uid uint64, job *Job) bool {
			if job.Spec.UID == table.UID && job.Spec.Cron != "" {
				table.Entries = append(table.Entries, spec.CronLine{Job: spec.JobUID(uid), First: 1, Last: 1})
			}
			return len(table.Entries) < 2
		})
	}
	w.put(&event.CrontabPut{Crontab: table})
}

// reserve makes, changes or ends a reservation.
func (w *world) reserve() {
	if w.int(0, 3) == 0 {
		w.crontab()
		return
	}
	name := pick(w, []string{"a", "b", "c"})
	if w.s.Reservation(name) != nil && w.coin() {
		w.put(&event.ReservationRemoved{Name: name, Why: "over"})
		return
	}
	start := w.s.At + spec.Instant(w.int(0, 9))
	w.put(&event.ReservationPut{Reservation: spec.Reservation{Name: name, Start: start, End: start + spec.Instant(w.int(1, 9)), Nodes: []string{w.someNode().Spec.Name},
		Users: []string{"alice"}, Flags: spec.ReservationFlag(w.int(0, 1<<20))}})
}
