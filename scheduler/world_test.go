package scheduler_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// world is a random cluster under random commands. It is a session whose
// every command is followed by the invariants of the state, and whose passes
// are held to the properties of judge.
type world struct {
	*session
	rt    *rapid.T
	kind  worldKind
	boots map[string]int
	queue scheduler.Queue
	newly []spec.JobUID
	// aheads counts how often a pass handed its state over.
	aheads int
	// longer are the runs there were when an administrator last gave one more time.
	longer map[run]bool
}

// run is one attempt of a job.
type run struct {
	uid     spec.JobUID
	attempt uint32
}

// worldKind says what a world has beside nodes and jobs.
type worldKind struct {
	limits     bool // QOS and associations with limits
	partitions bool // a second partition, with another tier and a cap of CPUs
	odd        bool // typed GPUs, licences, requests that leave placement a choice
	fifo       bool // priority by submission alone
	backfill   bool // always
	preempt    bool // by tier; only with partitions
	reserve    bool // reservations
	choosy     bool // features and wishes about nodes
	blocks     bool // blocks of two nodes, segments
	apart      bool // jobs that keep others off their nodes
	share      bool // CPUs that several jobs are on
	parts      bool // parts of GPUs
	mixed      bool // typed GPUs and other resources, features, a second partition of the same tier
	capped     bool // a limit on what a user has
	depth      uint32
}

func newWorld(rt *rapid.T, kind worldKind) *world {
	w := &world{session: newSession(rt), rt: rt, kind: kind, boots: map[string]int{}}
	w.must(scheduler.Configure{Config: w.config()})
	if kind.limits {
		w.policy()
	}
	for _, name := range w.names() {
		w.user = "root"
		w.must(scheduler.RegisterNode{Node: name, Inventory: w.inventory(name, map[string]string{"boot": "0"})})
	}
	w.check()
	return w
}

func (w *world) n(label string, low, high int) int {
	return rapid.IntRange(low, high).Draw(w.rt, label)
}
func (w *world) chance(label string, oneIn int) bool {
	return rapid.IntRange(1, oneIn).Draw(w.rt, label) == oneIn
}

func pick[T any](w *world, label string, list ...T) T {
	return rapid.SampledFrom(list).Draw(w.rt, label)
}

func (w *world) names() []string {
	var out []string
	for i := range w.head.Config.Nodes {
		out = append(out, w.head.Config.Nodes[i].Name)
	}
	return out
}

func (w *world) config() *spec.Config {
	c := &spec.Config{ClusterName: "test", GresTypes: []string{"gpu", "nic", "shard"}}
	c.Sched = spec.SchedConfig{Backfill: w.kind.backfill || !w.chance("builtin", 8), Memory: !w.chance("no memory", 6), Cores: !w.kind.capped && w.chance("cores", 3), BFMaxJobTest: w.kind.depth,
		ArrayResv: uint32(w.n("array resv", 1, 5))}
	if w.kind.parts {
		c.Sched.PackMix, c.Sched.LeastShared = w.chance("pack mix", 2), w.chance("least shared", 3)
	}
	if !w.kind.backfill && w.chance("firm", 3) {
		c.Sched.Firm = uint32(w.n("firm reservations", 1, 3))
	}
	if w.kind.backfill {
		c.Sched.ArrayResv = 20 // more tasks than any array here has
	}
	c.Limits = spec.JobLimits{JobRequeue: true, DefMemPerCPU: 100, MaxBatchRequeue: 3, KillInvalidDep: w.chance("kill invalid", 2)}
	c.Priority = spec.PriorityConfig{Basic: w.kind.fifo, Age: 1000, JobSize: uint32(w.n("size weight", 0, 500)), QOS: 100, Partition: 10, MaxAge: spec.Day}
	c.Timing.MinJobAge = 10 * spec.Minute
	if w.kind.preempt {
		c.Sched.PreemptType, c.Sched.PreemptMode = "preempt/partition_prio", pick(w, "preempt mode", "REQUEUE", "CANCEL", "SUSPEND,GANG")
		c.Sched.PreemptStrict, c.Sched.PreemptExempt = w.chance("strict", 3), spec.Span(w.n("exempt", 0, 1))*spec.Minute
	}
	c.RequeueUnfenced = w.chance("fence", 3)
	c.Enforce.Limits, c.Enforce.Associations = w.kind.limits || w.kind.capped, w.kind.limits
	c.Licenses = []spec.Count{{Name: "lic", N: 3}}
	threads := pick[int64](w, "threads", 1, 2)
	var names []string
	most := 4
	if w.kind.blocks {
		most = 6
	}
	for i := range w.n("nodes", 1, most) {
		n := spec.NodeSpec{Name: fmt.Sprintf("n%d", i), ThreadsPerCore: threads, CPUs: threads * int64(w.n("cores", 1, 4)), Mem: int64(100 * w.n("mem", 2, 12)), Weight: uint32(w.n("weight", 0, 1))}
		for _, typ := range []string{"a", "b"} {
			if g := w.n("gpus", 0, 3); g > 0 && (typ == "a" || w.kind.odd || w.kind.mixed) {
				n.GRES = append(n.GRES, spec.GRESSpec{Name: "gpu", Type: typ, N: int64(g)})
			}
		}
		if w.kind.odd || w.kind.mixed {
			n.GRES = append(n.GRES, spec.GRESSpec{Name: "nic", N: int64(w.n("nics", 0, 2)), NoConsume: w.kind.odd && w.chance("no consume", 3)})
		}
		if w.kind.parts {
			n.GRES = append(n.GRES, w.shards(n.GRES)...)
		}
		if w.kind.choosy || w.kind.mixed {
			n.Features = w.features()
		}
		c.Nodes = append(c.Nodes, n)
		names = append(names, n.Name)
	}
	if w.kind.choosy && w.chance("topology", 2) {
		c.Topology = w.tree(names)
	}
	if w.kind.blocks {
		c.BlockSizes = pick(w, "block sizes", []uint32{2}, []uint32{2, 4})
		for i := 0; i < len(names); i += 2 {
			c.Blocks = append(c.Blocks, spec.Block{Name: fmt.Sprintf("b%d", i), Nodes: names[i:min(i+2, len(names))]})
		}
	}
	c.Partitions = []spec.PartitionSpec{{Name: "p", NodeNames: names, Default: true, DefaultTime: 30 * spec.Minute, MaxTime: 4 * spec.Hour, State: spec.PartitionUp}}
	if w.kind.apart {
		c.Partitions[0].ExclusiveUser = w.chance("exclusive user", 4)
		c.Partitions[0].ExclusiveTopo = w.kind.blocks && w.chance("exclusive topo", 6)
	}
	if w.kind.share {
		c.Partitions[0].OverSubscribe = pick(w, "oversubscribe", "NO", "YES:2", "FORCE:2", "FORCE:3")
	}
	if w.kind.mixed {
		c.Partitions = append(c.Partitions, spec.PartitionSpec{Name: "q", NodeNames: names[len(names)/2:], DefaultTime: 30 * spec.Minute, MaxTime: 4 * spec.Hour, State: spec.PartitionUp})
	}
	if w.kind.partitions {
		some := names[:w.n("of second", 1, len(names))]
		c.Partitions = append(c.Partitions, spec.PartitionSpec{Name: "q", NodeNames: some, PriorityTier: 2, DefaultTime: 10 * spec.Minute, MaxTime: spec.Hour,
			State: spec.PartitionUp, MaxCPUsPerNode: int64(w.n("cap", 0, 3)), QOS: pick(w, "part qos", "", "tight")})
		if w.kind.preempt && w.chance("turns", 2) {
			c.Partitions[0].OverSubscribe = "FORCE:2"
		}
	}
	return c
}

// shards draws how the GPUs of a node are shared.
func (w *world) shards(gres []spec.GRESSpec) []spec.GRESSpec {
	gpus := int64(0)
	for _, g := range gres {
		if g.Name == "gpu" {
			gpus += g.N
		}
	}
	if gpus == 0 || w.chance("not shared", 4) {
		return nil
	}
	return []spec.GRESSpec{{Name: "shard", N: gpus*2 + int64(w.n("more shards", 0, 3)), Flags: pick(w, "sharing", "", "one_sharing")}}
}

// policy adds users, accounts and QOS with limits.
func (w *world) policy() {
	w.user = "root"
	limit := func(label string) string { return fmt.Sprint(w.n(label, 1, 4)) }
	for _, line := range []string{
		"sacctmgr add qos tight MaxJobsPerUser=" + limit("a") + " MaxTRESPerUser=cpu=" + limit("b") + ",gres/gpu=" + limit("c") + " GrpTRES=node=" + limit("d") + " GrpTRESRunMins=cpu=" + fmt.Sprint(60*w.n("i", 1, 20)),
		"sacctmgr add qos loose GrpJobs=" + limit("e") + " MaxTRESPerJob=cpu=" + limit("f") + " MaxTRESPerAccount=mem=" + limit("g") + "00 flags=OverPartQOS",
		"sacctmgr add account lab GrpTRES=cpu=" + fmt.Sprint(w.n("h", 2, 9)) + " GrpTRESRunMins=mem=" + fmt.Sprint(60*w.n("j", 500, 9000)),
		"sacctmgr add account team parent=lab MaxJobs=" + limit("i"),
		"sacctmgr add user alice account=team", "sacctmgr add user bob account=lab", "sacctmgr add user carol account=lab MaxTRESPerNode=cpu=" + limit("j"),
	} {
		if err := sacctmgr(w.session, words(line)); err != nil {
			w.rt.Fatal(err)
		}
	}
}

// request draws what a job asks for.
func (w *world) request() *spec.JobSpec {
	js := &spec.JobSpec{Name: pick(w, "name", "a", "b"), User: pick(w, "user", "alice", "bob", "carol"), GID: 100}
	js.UID = uidOf(js.User)
	sz := &js.Size
	if !w.kind.odd || w.chance("fixed nodes", 2) {
		n := w.n("nodes", 1, 3)
		sz.MinNodes, sz.MaxNodes = uint32(n), uint32(n)
		sz.TasksPerNode = uint32(w.n("per node", 0, 3))
	} else if w.chance("uneven", 2) {
		sz.MinNodes = uint32(w.n("min nodes", 0, 2))
		sz.MaxNodes = sz.MinNodes * uint32(w.n("stretch", 1, 2))
	}
	if w.kind.odd && sz.TasksPerNode == 0 {
		sz.Tasks = uint32(w.n("tasks", 0, 6))
	}
	sz.CPUsPerTask = uint32(w.n("cpus", 0, 2))
	sz.MemPerNode = int64(100 * w.n("mem", 0, 6))
	if g := w.n("gpus", -3, 3); g > 0 {
		c := spec.Count{Name: "gpu", N: int64(g)}
		if w.kind.odd && w.chance("typed", 3) {
			c.Type = pick(w, "type", "a", "b")
		}
		switch {
		case w.kind.odd && w.chance("per job", 3):
			sz.PerJob = append(sz.PerJob, c)
		case w.kind.odd && w.chance("per task", 4):
			c.N = 1
			sz.PerTask = append(sz.PerTask, c)
		default:
			sz.PerNode = append(sz.PerNode, c)
		}
	}
	if w.kind.parts && len(sz.PerNode)+len(sz.PerTask)+len(sz.PerJob) == 0 {
		sz.PerNode = append(sz.PerNode, spec.Count{Name: "shard", N: int64(w.n("shards", 1, 3))})
	}
	js.Time.Limit = spec.Span(w.n("minutes", 0, 12)) * 5 * spec.Minute
	if w.kind.odd {
		w.oddities(js)
	}
	if w.kind.choosy {
		w.choosy(js)
	}
	if w.kind.apart || w.kind.share {
		js.Place.Sharing = pick(w, "sharing", spec.ShareDefault, spec.ShareDefault, spec.ExclusiveUser, spec.ExclusiveTopo, spec.Oversubscribe)
	}
	if w.kind.blocks && w.chance("segments", 3) {
		js.Place.Segment, js.Place.ApartSegments = uint32(w.n("segment", 1, 2)), w.chance("spread segments", 3)
	}
	if w.kind.reserve && w.chance("in reservation", 4) {
		js.Place.Reservation = pick(w, "of reservations", "r1", "r2", "r3")
	}
	if w.kind.limits {
		js.QOS = pick(w, "qos", "normal", "tight", "loose", "tight,loose", "loose,tight")
	}
	if w.kind.partitions {
		js.Partitions = pick(w, "partitions", nil, []string{"p"}, []string{"q"}, []string{"q", "p"}, []string{"p", "q"})
	}
	return js
}

func (w *world) oddities(js *spec.JobSpec) {
	switch w.n("oddity", 0, 13) {
	case 13:
		js.Size.Overcommit = true
	case 0:
		js.Licenses = []spec.Count{{Name: "lic", N: int64(w.n("licences", 1, 3))}}
	case 1:
		js.Place.Sharing = spec.Exclusive
	case 2:
		js.Place.Nodes = pick(w, "nodelist", w.names()...)
	case 3:
		js.Place.Exclude = pick(w, "exclude", w.names()...)
	case 4:
		js.Size.AllMem, js.Size.MemPerNode = true, 0
	case 5:
		js.Size.PerNode = append(js.Size.PerNode, spec.Count{Name: "nic", N: 1})
	case 6:
		js.Size.CPUsPerGPU = uint32(w.n("cpus per gpu", 1, 2))
	case 7:
		js.Size.MemPerGPU, js.Size.MemPerNode = int64(100*w.n("mem per gpu", 1, 3)), 0
	case 8:
		js.Time.Signal, js.Time.SignalBefore = 10, spec.Minute
	}
}

// queueing draws what a job says about its place in the queue.
func (w *world) queueing(js *spec.JobSpec) {
	switch w.n("queueing", 0, 9) {
	case 0:
		js.Queue.Hold = spec.HeldByUser
	case 1:
		js.Time.Begin = w.now.Add(spec.Span(w.n("begin", 1, 30)) * spec.Minute)
	case 2:
		js.Queue.Array = spec.NewArrayAsk(spec.TaskSet{{First: 0, Last: int64(w.n("tasks of array", 0, 6)), Step: 1}}, uint32(w.n("throttle", 0, 3)))
	case 3, 4:
		d := &spec.Dependency{Any: w.chance("any", 3)}
		for range w.n("terms", 1, 2) {
			kind := pick(w, "kind", spec.After, spec.AfterAny, spec.AfterOK, spec.AfterNotOK, spec.AfterCorr, spec.Singleton)
			t := spec.DependencyTerm{Kind: kind, Task: spec.NoTask}
			if kind != spec.Singleton {
				t.Job = spec.JobID(w.n("parent", 1, int(max(w.head.NextID, 2))))
			}
			d.Terms = append(d.Terms, t)
		}
		js.Queue.Dependency = d
	case 5:
		js.Queue.Nice = int32(w.n("nice", 0, 100))
	case 6:
		js.Queue.Requeue, js.Queue.NoKill = spec.No, w.chance("no kill", 2)
	case 7:
		js.Time.Deadline = w.now.Add(spec.Span(w.n("deadline", 10, 90)) * spec.Minute)
	}
}

func (w *world) submit(js *spec.JobSpec) {
	w.user = js.User
	res, err := w.decide(scheduler.Submit{Spec: js})
	if err == nil {
		j := w.head.Job(res.UID)
		if j == nil || j.Reason.Code == "" || j.ID != res.ID {
			w.rt.Fatalf("submitted job %+v", j)
		}
	}
	w.user = "root"
}

// some draws one of the jobs that a condition holds for, or nil.
func (w *world) some(label string, keep func(j *state.Job) bool) *state.Job {
	list := w.jobs(keep)
	if len(list) == 0 {
		return nil
	}
	return list[w.n(label, 0, len(list)-1)]
}

func (w *world) targetOf(j *state.Job) scheduler.Target {
	t := scheduler.Target{UID: j.UID, Task: spec.NoTask}
	if j.IsArrayRecord() && w.chance("one task", 2) {
		t.Task = j.Tasks.Min()
	}
	return t
}

// pass runs the scheduler, judges what it proposes, and commits.
func (w *world) pass() *scheduler.Outcome {
	w.rt.Helper()
	frozen := w.head.Freeze()
	opt := scheduler.PassOptions{Plan: w.plan}
	if w.chance("bounded", 6) {
		opt.Starts = w.n("starts", 1, 3)
	}
	out, err := scheduler.Pass(frozen, w.now, opt)
	if err != nil {
		w.rt.Fatalf("pass: %v", err)
	}
	opt.Queue = &w.queue // which remembers the passes before
	if again, _ := scheduler.Pass(frozen, w.now, opt); !reflect.DeepEqual(out, again) {
		w.rt.Fatalf("the same pass twice proposes\n%+v\n%+v", out, again)
	}
	w.judgeStarts(frozen, out)
	w.judgePreempts(frozen, out)
	w.user = "root"
	res := w.must(scheduler.Starts{Proposal: &out.Proposal})
	w.judgeAlone(frozen, opt, out)
	w.check()
	if res.Stale != 0 || res.Started != len(out.Starts) || res.Preempted != len(out.Preempts) {
		w.rt.Fatalf("of %d proposals on an unchanged head %d were stale, %d started\n%s", len(out.Starts), res.Stale, res.Started, dump(out, frozen))
	}
	w.judgePlan(out)
	if out.Exit != "start limit" {
		w.judgeReasons(out)
	}
	w.plan = out.Plan
	return out
}

// judgeAlone: who is alone with the state may go on with that of the pass. It is
// the one that a commit of the same starts makes.
func (w *world) judgeAlone(frozen *state.State, opt scheduler.PassOptions, out *scheduler.Outcome) {
	opt.Queue, opt.Alone = nil, true
	alone, err := scheduler.Pass(frozen, w.now, opt)
	if err != nil {
		w.rt.Fatalf("alone: %v", err)
	}
	if !reflect.DeepEqual(alone.Starts, out.Starts) || !reflect.DeepEqual(alone.Preempts, out.Preempts) || !reflect.DeepEqual(alone.Ends, out.Ends) || alone.Wake != out.Wake {
		w.rt.Fatalf("who is alone is told\n%+v\ninstead of\n%+v", alone, out)
	}
	if alone.Ahead == nil {
		return
	}
	w.aheads++
	committed := slices.DeleteFunc(slices.Clone(w.last), func(e event.Envelope) bool { return e.Event.Kind() == event.KindReasonsChanged })
	same := func(a, b event.Envelope) bool { return a.At == b.At && reflect.DeepEqual(a.Event, b.Event) }
	if !slices.EqualFunc(alone.Ahead.Events, committed, same) {
		w.rt.Fatalf("the pass made\n%s\nand the commit\n%s\n%s", eventsText(alone.Ahead.Events), eventsText(committed), dump(out, frozen))
	}
}

// eventsText writes events with their content, one a line.
func eventsText(events []event.Envelope) string {
	var text strings.Builder
	for i := range events {
		fmt.Fprintf(&text, "%s %+v\n", events[i].Event.Kind(), events[i].Event)
	}
	return text.String()
}

// step does one random thing.
func (w *world) step() {
	if w.kind.reserve && w.chance("reserves", 5) {
		w.reserve()
		return
	}
	switch w.n("step", 0, 21) {
	case 0, 1, 2, 3, 4, 5:
		js := w.request()
		w.queueing(js)
		w.submit(js)
	case 6, 7, 8, 9, 10:
		w.pass()
	case 11, 12, 13:
		if j := w.some("ends", func(j *state.Job) bool { return j.HoldsNodes() }); j != nil {
			w.finish(j, pick[int32](w, "code", 0, 0, 0, 1))
		}
	case 14, 15:
		w.now = w.now.Add(spec.Span(w.n("advance", 1, 20)) * spec.Minute)
		w.must(scheduler.Tick{})
	case 16, 17:
		w.control()
	case 18:
		if j := w.some("partly", func(j *state.Job) bool { return j.HoldsNodes() && len(j.Alloc.Nodes) > 1 }); j != nil {
			i := j.Alloc.Nodes[len(j.Alloc.Nodes)-1-w.n("which", 0, len(j.Alloc.Nodes)-1)]
			w.must(scheduler.Report{Node: i.Name, Run: scheduler.Run{UID: j.UID, Attempt: j.Attempt - uint32(w.n("stale", 0, 1))}, Done: &scheduler.NodeDone{}})
		}
	default:
		w.fault()
	}
	w.check()
}

// finish reports the end of a run from every node.
func (w *world) finish(j *state.Job, code int32) {
	for i := range j.Alloc.Nodes {
		done := &scheduler.NodeDone{}
		if i == 0 {
			done.Batch = &event.StepResult{Exit: spec.ExitStatus{Code: code}}
		}
		w.must(scheduler.Report{Node: j.Alloc.Nodes[i].Name, Run: scheduler.Run{UID: j.UID, Attempt: j.Attempt}, Done: done})
	}
}

// control is what users and operators do to jobs. Any refusal is fine.
func (w *world) control() {
	live := func(j *state.Job) bool { return !j.State.Terminal() }
	j := w.some("job", live)
	if j == nil {
		return
	}
	switch w.n("control", 0, 8) {
	case 7:
		w.decide(scheduler.Suspend{Target: scheduler.Target{UID: j.UID, Task: spec.NoTask}})
	case 8:
		w.decide(scheduler.Resume{Target: scheduler.Target{UID: j.UID, Task: spec.NoTask}})
	case 0:
		w.decide(scheduler.Cancel{Target: w.targetOf(j)})
	case 1:
		w.decide(scheduler.Hold{Target: w.targetOf(j), By: pick(w, "by", spec.HeldByUser, spec.HeldByAdmin)})
	case 2:
		w.decide(scheduler.Release{Target: w.targetOf(j)})
	case 3:
		w.decide(scheduler.Requeue{Target: scheduler.Target{UID: j.UID, Task: spec.NoTask}, Hold: pick(w, "hold", spec.NotHeld, spec.HeldByAdmin)})
	case 4:
		key := pick(w, "key", "timelimit", "numtasks", "nice", "dependency", "arraytaskthrottle", "priority", "comment")
		limit := j.Limit
		w.decide(scheduler.UpdateJob{Target: w.targetOf(j), Admin: true, Changes: []spec.KeyValue{{Key: key, Value: pick(w, "value", "0", "1", "2", "15", "afterany:1")}}})
		if now := w.head.Job(j.UID); now.State.Active() && now.Limit > limit {
			w.longer = map[run]bool{}
			for _, a := range w.jobs(func(a *state.Job) bool { return a.State.Active() }) {
				w.longer[run{a.UID, a.Attempt}] = true
			}
		}
	case 5:
		if j.HoldsNodes() {
			w.decide(scheduler.Report{Node: j.Alloc.Nodes[0].Name, Run: scheduler.Run{UID: j.UID, Attempt: j.Attempt},
				LaunchFailed: &scheduler.LaunchFailed{Text: "no", Drain: w.chance("drain", 2)}})
		}
	case 6:
		w.decide(scheduler.Cancel{Target: w.targetOf(j), Signal: 10})
	}
}

// fault is what happens to nodes.
func (w *world) fault() {
	name := pick(w, "node", w.names()...)
	switch w.n("fault", 0, 7) {
	case 0:
		w.decide(scheduler.UpdateNodes{Nodes: []string{name}, State: event.NodeDrain, Reason: new("test")})
	case 1, 2:
		w.decide(scheduler.UpdateNodes{Nodes: []string{name}, State: event.NodeResume})
	case 3:
		w.decide(scheduler.UpdateNodes{Nodes: []string{name}, State: event.NodeDown, Reason: new("test")})
	case 4:
		w.decide(scheduler.NodeSilent{Node: name, LastSeen: w.now})
	case 5:
		w.decide(scheduler.NodeHeard{Node: name})
		w.settle(name)
	case 6:
		w.boots[name]++
		w.decide(scheduler.RegisterNode{Node: name, Inventory: w.inventory(name, map[string]string{"boot": fmt.Sprint(w.boots[name])})})
	case 7:
		c := *w.head.Config
		c.Partitions = slices.Clone(c.Partitions)
		c.Partitions[0].State = pick(w, "partition", spec.PartitionUp, spec.PartitionUp, spec.PartitionDown, spec.PartitionDrain)
		c.Sched.Cores = w.chance("whole cores", 2)
		w.decide(scheduler.Configure{Config: &c})
	}
}

// heal ends all faults: nodes answer and are in service, the partition is up,
// nothing is held.
func (w *world) heal() {
	w.user = "root"
	for len(w.head.Reservations) > 0 {
		w.must(scheduler.Policy{Events: []event.Event{&event.ReservationRemoved{Name: w.head.Reservations[0].Name}}})
	}
	c := *w.head.Config
	c.Partitions = slices.Clone(c.Partitions)
	c.Partitions[0].State = spec.PartitionUp
	w.must(scheduler.Configure{Config: &c})
	for _, name := range w.names() {
		w.must(scheduler.NodeHeard{Node: name})
		w.settle(name)
		if w.head.Node(name).Admin != event.NodeResume {
			w.must(scheduler.UpdateNodes{Nodes: []string{name}, State: event.NodeResume})
		}
	}
	for _, j := range w.jobs(func(j *state.Job) bool { return j.Hold != spec.NotHeld && j.State == spec.Pending && !j.Het.Follows() }) {
		w.must(scheduler.Release{Target: scheduler.Target{UID: j.UID, Task: spec.NoTask}})
	}
	w.check()
}

// settle reports the ends of the runs that were given up on a node.
func (w *world) settle(name string) {
	for _, debt := range slices.Clone(w.head.Node(name).Unfenced) {
		w.must(scheduler.Report{Node: name, Run: scheduler.Run{UID: debt.UID, Attempt: debt.Attempt}, Done: &scheduler.NodeDone{}})
	}
}
