package scheduler_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// model is placement in slow and obvious: each node is a list of spans with
// what they take, and a job starts at the first instant of all at which
// enough nodes have room for it until its limit ends. It knows jobs on a
// fixed number of nodes with the same on each.
type model struct {
	now   spec.Instant
	nodes []*modelNode
	cfg   *spec.Config
}

type modelNode struct {
	id             spec.NodeID
	cpu, mem, gpu  int64
	threads        int64
	memory, byCore bool
	part           *spec.PartitionSpec
	taken          []modelSpan
	block          int
}

type modelSpan struct {
	from, to      spec.Instant
	cpu, mem, gpu int64
	user          uint32
	apart         spec.Apart
	nobody        bool // a reservation of cores
}

func newModel(st *state.State, now spec.Instant) *model {
	m := &model{now: now, cfg: st.Config}
	st.Nodes.Range(func(_ uint64, n *state.Node) bool {
		if !n.Usable() {
			return true
		}
		mn := &modelNode{id: n.ID, cpu: n.CPUs, mem: n.Mem, gpu: int64(len(n.GPUs)), threads: n.Spec.ThreadsPerCore,
			memory: st.Config.Sched.Memory, byCore: st.Config.Sched.Cores, part: &st.Config.Partitions[0], block: -1 - int(n.ID)}
		for i, b := range st.Config.Blocks {
			if slices.Contains(b.Nodes, n.Spec.Name) {
				mn.block = i
			}
		}
		st.Jobs.Range(func(_ uint64, j *state.Job) bool {
			if j.HoldsNodes() {
				for i := range j.Alloc.Nodes {
					if a := &j.Alloc.Nodes[i]; a.ID == n.ID && !j.Done.Has(i) {
						mn.taken = append(mn.taken, modelSpan{0, j.Started.Add(j.Limit), int64(a.CPUs.Count()), a.Mem, int64(len(a.GPUs)), j.Spec.UID, j.Alloc.Apart, false})
					}
				}
			}
			return true
		})
		for i := range st.Reservations {
			r := &st.Reservations[i]
			length, ever := r.End.Sub(r.Start), r.Repeats()
			for start := r.Start; start == r.Start || (ever && start < now.Add(50*spec.Day)); start = r.Next(start) {
				mn.taken = append(mn.taken, modelSpan{from: start, to: start.Add(length), cpu: r.CoresOf(n.Spec.Name) * n.Spec.ThreadsPerCore, gpu: r.GPUsOf(n.Spec.Name), nobody: true})
			}
		}
		m.nodes = append(m.nodes, mn)
		return true
	})
	return m
}

// need is what a job takes of this node.
func (n *modelNode) need(js *spec.JobSpec) modelSpan {
	s := modelSpan{cpu: max(int64(js.Size.TasksPerNode), 1) * max(int64(js.Size.CPUsPerTask), 1)}
	if n.byCore {
		for s.cpu%n.threads != 0 {
			s.cpu++
		}
	}
	if s.mem = js.Size.MemPerNode; s.mem == 0 {
		s.mem = 100 * s.cpu
	}
	for _, c := range js.Size.PerNode {
		s.gpu += c.N
	}
	s.user = js.UID
	if js.Place.Sharing == spec.ExclusiveUser || n.part.ExclusiveUser {
		s.apart |= spec.ApartUser
	}
	if js.Place.Sharing == spec.ExclusiveTopo || n.part.ExclusiveTopo {
		s.apart |= spec.ApartTopo
	}
	return s
}

// alone tells whether nobody is there from at on for as long as a limit who
// must not be: on the node of another user, in the block at all.
func (m *model) alone(n *modelNode, need modelSpan, at spec.Instant, limit spec.Span) bool {
	for _, o := range m.nodes {
		for _, s := range o.taken {
			apart := s.apart | need.apart
			meets := s.from < at.Add(limit) && at < s.to && !s.nobody
			if meets && o == n && apart&spec.ApartUser != 0 && s.user != need.user {
				return false
			}
			if meets && o.block == n.block && apart&spec.ApartTopo != 0 {
				return false
			}
		}
	}
	return true
}

// near tells whether nodes may be those of one job, as the blocks want it.
func (m *model) near(js *spec.JobSpec, set []*modelNode) bool {
	if len(m.cfg.Blocks) == 0 || (len(set) < 2 && js.Place.Segment == 0) {
		return true
	}
	per := map[int]int{}
	for _, n := range set {
		per[n.block]++
	}
	if seg := int(js.Place.Segment); seg > 0 {
		for b, k := range per {
			if b < 0 || k%seg != 0 || (js.Place.ApartSegments && k > seg) {
				return false
			}
		}
		return true
	}
	base := int(m.cfg.BlockSizes[0])
	for _, size := range m.cfg.BlockSizes {
		group := int(size) / base
		if int(size) < len(set) || !m.holds(len(set), group, (len(set)+base-1)/base) {
			continue // no group of this size has as many nodes
		}
		groups := map[int]bool{}
		for b := range per {
			if b < 0 {
				return false
			}
			groups[b/group] = true
		}
		return len(groups) == 1 && len(per) <= (len(set)+base-1)/base
	}
	return true
}

// holds tells whether some group of blocks has so many nodes in as few blocks.
func (m *model) holds(nodes, group, few int) bool {
	for from := 0; from < len(m.cfg.Blocks); from += group {
		var sizes []int
		for _, b := range m.cfg.Blocks[from:min(from+group, len(m.cfg.Blocks))] {
			sizes = append(sizes, len(b.Nodes))
		}
		slices.Sort(sizes)
		sum := 0
		for i := range min(few, len(sizes)) {
			sum += sizes[len(sizes)-1-i]
		}
		if sum >= nodes {
			return true
		}
	}
	return false
}

// any tells whether some choice of nodes will do.
func (m *model) any(js *spec.JobSpec, from []*modelNode, want int, have []*modelNode) bool {
	if want == 0 {
		return m.near(js, have)
	}
	for i := range from {
		if len(from)-i >= want && m.any(js, from[i+1:], want-1, append(have, from[i])) {
			return true
		}
	}
	return false
}

// room tells whether a node can take a need throughout [at, at+limit).
func (n *modelNode) room(need modelSpan, at spec.Instant, limit spec.Span) bool {
	check := []spec.Instant{at}
	for _, s := range n.taken {
		if s.from > at && s.from < at.Add(limit) {
			check = append(check, s.from)
		}
	}
	for _, t := range check {
		cpu, mem, gpu := n.cpu-need.cpu, n.mem-need.mem, n.gpu-need.gpu
		for _, s := range n.taken {
			if s.from <= t && t < s.to {
				cpu, mem, gpu = cpu-s.cpu, mem-s.mem, gpu-s.gpu
			}
		}
		if cpu < 0 || gpu < 0 || (n.memory && mem < 0) {
			return false
		}
	}
	return true
}

// earliest tries every instant at which anything ends.
func (m *model) earliest(js *spec.JobSpec, limit spec.Span) spec.Instant {
	instants := []spec.Instant{m.now}
	for _, n := range m.nodes {
		for _, s := range n.taken {
			if s.to > m.now {
				instants = append(instants, s.to)
			}
		}
	}
	slices.Sort(instants)
	for _, at := range instants {
		var fits []*modelNode
		for _, n := range m.nodes {
			if need := n.need(js); n.room(need, at, limit) && m.alone(n, need, at, limit) {
				fits = append(fits, n)
			}
		}
		if m.any(js, fits, max(int(js.Size.MinNodes), 1), nil) {
			return at
		}
	}
	return spec.FarFuture
}

// take puts a job on nodes.
func (m *model) take(js *spec.JobSpec, at spec.Instant, limit spec.Span, ids []spec.NodeID) error {
	var chosen []*modelNode
	for _, n := range m.nodes {
		if !slices.Contains(ids, n.id) {
			continue
		}
		need := n.need(js)
		if !n.room(need, at, limit) || !m.alone(n, need, at, limit) {
			return fmt.Errorf("node %d has no room for %+v at %d", n.id, need, at)
		}
		chosen = append(chosen, n)
	}
	if !m.near(js, chosen) {
		return fmt.Errorf("nodes %v are not near each other as the blocks want it", ids)
	}
	for _, n := range chosen {
		need := n.need(js)
		need.from, need.to = at, at.Add(limit)
		n.taken = append(n.taken, need)
	}
	return nil
}

// Every start of a pass, at once or planned, is the earliest that there is
// given what was started or planned for the jobs before it; what is not
// planned has no start at all.
func TestPlannedStartsAreEarliest(t *testing.T) {
	compared := 0
	defer func() {
		if !t.Failed() && compared < 1000 { // 2,000 to 3,000 are usual
			t.Errorf("only %d starts were compared", compared)
		}
	}()
	rapid.Check(t, func(rt *rapid.T) {
		near := rapid.Bool().Draw(rt, "blocks")
		w := newWorld(rt, worldKind{fifo: true, backfill: true, depth: 1000, blocks: near, apart: near})
		for range rapid.IntRange(3, 6).Draw(rt, "rounds") {
			for range rapid.IntRange(0, 2).Draw(rt, "reservations") {
				w.keepCores()
			}
			for range rapid.IntRange(4, 12).Draw(rt, "jobs") {
				w.submit(w.request())
			}
			compared += w.compare()
			w.now = w.now.Add(spec.Span(w.n("advance", 0, 40)) * spec.Minute)
			for _, j := range w.jobs(func(j *state.Job) bool { return j.HoldsNodes() }) {
				if j.Deadline() <= w.now || w.chance("early", 4) {
					w.finish(j, 0)
				}
			}
		}
	})
}

// keepCores reserves cores, or GPUs with cores, for somebody who never comes.
func (w *world) keepCores() {
	w.user = "root"
	what := spec.KeyValue{Key: "corecnt", Value: fmt.Sprint(w.n("corecnt", 1, 4))}
	if w.chance("gpus", 3) {
		what = spec.KeyValue{Key: "tres", Value: fmt.Sprintf("gres/gpu=%d", w.n("gpucnt", 1, 4))}
	}
	w.decide(scheduler.CreateReservation{Set: []spec.KeyValue{what, {Key: "users", Value: "dave"},
		{Key: "starttime", Value: fmt.Sprintf("now+%d:%d:00", w.n("hours", 0, 3), w.n("minutes", 0, 50))}, {Key: "duration", Value: fmt.Sprint(w.n("length", 1, 90))},
		{Key: "flags", Value: pick(w, "flags", "", "", "DAILY", "WEEKLY")}}})
}

// compare runs a pass and the model side by side, and counts the starts.
func (w *world) compare() (starts int) {
	w.rt.Helper()
	frozen := w.head.Freeze()
	m := newModel(frozen, w.now)
	pending := w.jobs(func(j *state.Job) bool { return j.State == spec.Pending })
	out := w.passAll()
	for _, j := range pending { // first come, first served
		limit := j.Spec.Time.Limit
		if limit == 0 {
			limit = 30 * spec.Minute
		}
		at, nodes := spec.FarFuture, []spec.NodeID(nil)
		for i := range out.Starts {
			if out.Starts[i].UID == j.UID {
				at = w.now
				for k := range out.Starts[i].Alloc.Nodes {
					nodes = append(nodes, out.Starts[i].Alloc.Nodes[k].ID)
				}
			}
		}
		if p := out.Plan.Of(j.UID); p != nil {
			at, nodes = p.Start, p.Nodes
		}
		if want := m.earliest(j.Spec, limit); want != at {
			w.rt.Fatalf("job %d starts at %s, but could at %s\n%+v", j.ID, when(at), when(want), j.Spec.Size)
		}
		if at != spec.FarFuture {
			starts++
			if err := m.take(j.Spec, at, limit, nodes); err != nil {
				w.rt.Fatalf("job %d at %s on %v: %v", j.ID, when(at), nodes, err)
			}
		}
	}
	return starts
}

// passAll is one pass without a bound, committed.
func (w *world) passAll() *scheduler.Outcome {
	w.rt.Helper()
	frozen := w.head.Freeze()
	out, err := scheduler.Pass(frozen, w.now, scheduler.PassOptions{Plan: w.plan})
	if err != nil {
		w.rt.Fatal(err)
	}
	w.user = "root"
	if res := w.must(scheduler.Starts{Outcome: out}); res.Stale > 0 {
		w.rt.Fatalf("%d proposals are stale\n%s", res.Stale, dump(out, frozen))
	}
	w.check()
	w.plan = out.Plan
	return out
}

// Backfill delays no promise (S7): while every job runs exactly to its limit
// and later jobs have less priority, no planned start moves back, and every
// job starts when it was promised at the latest.
func TestPromisesAreKept(t *testing.T) {
	for _, k := range []struct {
		name string
		kind worldKind
	}{
		{"even", worldKind{fifo: true, backfill: true, depth: 1000}},
		{"any", worldKind{fifo: true, backfill: true, odd: true, depth: 1000}},
		{"parts", worldKind{fifo: true, backfill: true, odd: true, parts: true, depth: 1000}},
	} {
		t.Run(k.name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) { keepPromises(newWorld(rt, k.kind)) })
		})
	}
}

func keepPromises(w *world) {
	type who struct {
		uid  spec.JobUID
		task int64
	}
	promised := map[who]spec.Instant{}
	var kept *scheduler.Promises
	for step := range w.n("steps", 1, 25) {
		for range w.n("jobs", 0, max(6-step, 1)) {
			js := w.request()
			js.Licenses, js.Place.Nodes = nil, "" // licences are not planned
			if js.Size.MaxNodes > js.Size.MinNodes {
				js.Size.MaxNodes = js.Size.MinNodes // nor are nodes beyond the least
			}
			if w.chance("array", 5) {
				js.Queue.Array = spec.NewArrayAsk(spec.TaskSet{{First: 0, Last: int64(w.n("tasks of array", 0, 4)), Step: 1}}, 0)
			}
			w.submit(js)
		}
		if kept != nil && w.chance("incremental", 2) {
			w.passQuick(kept)
		}
		out := w.passAll()
		kept = out.Promises
		for i := range out.Starts {
			s := &out.Starts[i]
			if p, ok := promised[who{s.UID, s.Task}]; ok && w.now > p {
				w.rt.Fatalf("job %d task %d starts at %s, promised was %s", s.UID, s.Task, when(w.now), when(p))
			}
		}
		next := spec.FarFuture
		for i := range out.Plan.Jobs {
			p := &out.Plan.Jobs[i]
			k := who{p.UID, p.Task}
			if p.Estimate {
				continue
			}
			if old, ok := promised[k]; ok && p.Start > old {
				w.rt.Fatalf("job %d task %d is planned at %s, promised was %s\n%+v", p.UID, p.Task, when(p.Start), when(old), w.head.Job(p.UID).Spec.Size)
			}
			promised[k] = p.Start
			next = min(next, p.Start)
		}
		running := w.jobs(func(j *state.Job) bool { return j.HoldsNodes() })
		for _, j := range running {
			next = min(next, j.Deadline())
		}
		if next == spec.FarFuture {
			continue
		}
		w.now = next
		for _, j := range running {
			if j.Deadline() <= w.now {
				w.finish(j, 0)
			}
		}
	}
}

// passQuick is one incremental pass, committed. It does what it says: it
// plans nothing, and a second one finds nothing more to start.
func (w *world) passQuick(kept *scheduler.Promises) {
	w.rt.Helper()
	for again := range 2 {
		out, err := scheduler.Pass(w.head.Freeze(), w.now, scheduler.PassOptions{Plan: w.plan, Queue: &w.queue, Keep: kept, Incremental: true})
		if err != nil {
			w.rt.Fatal(err)
		}
		if len(out.Reasons) > 0 || out.Plan != w.plan || (again > 0 && len(out.Starts) > 0) {
			w.rt.Fatalf("incremental pass %d: %d starts, %d reasons", again, len(out.Starts), len(out.Reasons))
		}
		w.judgeStarts(w.head, out)
		w.user = "root"
		if res := w.must(scheduler.Starts{Outcome: out}); res.Stale > 0 {
			w.rt.Fatalf("%d proposals of an incremental pass are stale", res.Stale)
		}
		w.check()
	}
}
