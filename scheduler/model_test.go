package scheduler_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// model is placement in slow and obvious: each node is a list of spans with
// what they take, and a job starts at the first instant of all at which
// enough nodes have room for it until its limit ends. It knows jobs on a
// fixed number of nodes with the same on each: CPUs, memory, GPUs of two types,
// whole or in parts, another resource, features, nodes by name, one partition,
// and a limit on what a user has. Licences and jobs in several partitions are not
// in it.
type model struct {
	now    spec.Instant
	nodes  []*modelNode
	cfg    *spec.Config
	policy *state.Policy
}

type modelNode struct {
	id             spec.NodeID
	name           string
	cpu, mem       int64
	gres           modelGRES
	devices        []int64 // by position: how many parts it has; nil: GPUs are counted
	isB            []bool  // by position: it is of type b
	one            bool    // only one device is in parts at a time
	features       []string
	threads        int64
	memory, byCore bool
	parts          []string
	part           *spec.PartitionSpec // the first
	taken          []modelSpan
	block          int
}

// modelGRES are amounts of GPUs of type a, of type b, of NICs, and of parts of
// one GPU.
type modelGRES [4]int64

const unlimited = 1 << 40

type modelSpan struct {
	from, to spec.Instant
	cpu, mem int64
	gres     modelGRES
	on       []modelUse // of devices, where they are not counted
	user     uint32
	apart    spec.Apart
	nobody   bool // a reservation
}

// modelUse is what a job has of a device: all of it, or some parts.
type modelUse struct {
	pos   int
	parts int64 // 0 = all
}

// add counts what a job asks for, or was given.
func (g *modelGRES) add(name, typ string, n int64) {
	switch {
	case name == "gpu" && typ == "b":
		g[1] += n
	case name == "gpu":
		g[0] += n
	case name == "nic":
		g[2] += n
	case name == "shard":
		g[3] += n
	}
}

func newModel(st *state.State, now spec.Instant) *model {
	m := &model{now: now, cfg: st.Config, policy: st.Policy}
	st.Nodes.Range(func(_ uint64, n *state.Node) bool {
		if !n.Usable() {
			return true
		}
		mn := modelNodeOf(st, n)
		for i, b := range st.Config.Blocks {
			if slices.Contains(b.Nodes, n.Spec.Name) {
				mn.block = i
			}
		}
		st.Jobs.Range(func(_ uint64, j *state.Job) bool {
			if j.HoldsNodes() {
				for i := range j.Alloc.Nodes {
					if a := &j.Alloc.Nodes[i]; a.ID == n.ID && !j.Done.Has(i) {
						mn.taken = append(mn.taken, modelSpanOf(n, j, a))
					}
				}
			}
			return true
		})
		for i := range st.Reservations {
			r := &st.Reservations[i]
			length, ever := r.End.Sub(r.Start), r.Repeats()
			for start := r.Start; start == r.Start || (ever && start < now.Add(50*spec.Day)); start = r.Next(start) {
				kept := modelSpan{from: start, to: start.Add(length), cpu: r.CoresOf(n.Spec.Name) * n.Spec.ThreadsPerCore, gres: modelGRES{r.GPUsOf(n.Spec.Name)}, nobody: true}
				if r.Cores == nil && slices.Contains(r.Nodes, n.Spec.Name) {
					kept.cpu = unlimited // all of the node, whoever is there
				}
				mn.taken = append(mn.taken, kept)
			}
		}
		m.nodes = append(m.nodes, mn)
		return true
	})
	return m
}

// modelNodeOf is a node with nobody on it.
func modelNodeOf(st *state.State, n *state.Node) *modelNode {
	mn := &modelNode{id: n.ID, name: n.Spec.Name, cpu: n.CPUs, mem: n.Mem, features: n.Spec.Features, threads: n.Spec.ThreadsPerCore,
		memory: st.Config.Sched.Memory, byCore: st.Config.Sched.Cores, part: &st.Config.Partitions[0], block: -1 - int(n.ID)}
	for i := range st.Config.Partitions {
		if p := &st.Config.Partitions[i]; slices.Contains(p.NodeNames, mn.name) {
			mn.parts = append(mn.parts, p.Name)
		}
	}
	for i := range n.GPUs {
		mn.gres.add("gpu", n.GPUs[i].Type, 1)
		if len(n.Shares) > 0 {
			mn.devices, mn.isB, mn.one = append(mn.devices, n.Shares[i].N), append(mn.isB, n.GPUs[i].Type == "b"), mn.one || n.Shares[i].One
		}
	}
	for _, g := range n.Spec.GRES {
		if g.Name == "nic" {
			mn.gres.add("nic", "", g.N)
		}
	}
	return mn
}

// modelSpanOf is what a job that runs has of a node.
func modelSpanOf(n *state.Node, j *state.Job, a *spec.NodeAlloc) modelSpan {
	s := modelSpan{to: j.Started.Add(j.Limit), cpu: int64(a.CPUs.Count()), mem: a.Mem, user: j.Spec.UID, apart: j.Alloc.Apart, on: modelUses(n, a)}
	for _, g := range a.GPUs {
		s.gres.add("gpu", g.Type, 1)
	}
	for _, c := range a.GRES {
		s.gres.add(c.Name, c.Type, c.N)
	}
	return s
}

// modelUses are the devices that a job was given.
func modelUses(n *state.Node, a *spec.NodeAlloc) (out []modelUse) {
	for i := range n.GPUs {
		for _, g := range a.GPUs {
			if g.UUID == n.GPUs[i].UUID {
				out = append(out, modelUse{pos: i})
			}
		}
		for _, g := range a.Shares {
			if g.UUID == n.GPUs[i].UUID {
				out = append(out, modelUse{pos: i, parts: g.N})
			}
		}
	}
	return out
}

// wants tells whether a job may be on the node at all.
func (n *modelNode) wants(js *spec.JobSpec) bool {
	has := func(f string) bool { return slices.Contains(n.features, f) }
	switch js.Place.Constraint {
	case "x", "y":
		if !has(js.Place.Constraint) {
			return false
		}
	case "x&y":
		if !has("x") || !has("y") {
			return false
		}
	case "x|y":
		if !has("x") && !has("y") {
			return false
		}
	}
	part := "p"
	if len(js.Partitions) > 0 {
		part = js.Partitions[0]
	}
	return slices.Contains(n.parts, part) && js.Place.Exclude != n.name
}

// free tells whether nobody has, or wants, any of a device in a window, and how
// many of its parts are held there at most.
func (n *modelNode) free(pos int, at, to spec.Instant) (idle bool, parts int64) {
	idle = true
	for _, s := range n.taken {
		for _, u := range s.on {
			if u.pos == pos && s.from < to && at < s.to {
				idle = false
				if parts = max(parts, n.heldAt(pos, max(at, s.from))); u.parts == 0 {
					parts = unlimited
				}
			}
		}
	}
	return idle, parts
}

// otherInParts tells whether a device beside one is held in parts in a window.
func (n *modelNode) otherInParts(pos int, at, to spec.Instant) bool {
	return slices.ContainsFunc(n.taken, func(s modelSpan) bool {
		return s.from < to && at < s.to && slices.ContainsFunc(s.on, func(u modelUse) bool { return u.pos != pos && u.parts > 0 })
	})
}

// heldAt sums up the parts of a device that are held at an instant.
func (n *modelNode) heldAt(pos int, at spec.Instant) (sum int64) {
	for _, s := range n.taken {
		for _, u := range s.on {
			if u.pos == pos && s.from <= at && at < s.to {
				sum += u.parts
			}
		}
	}
	return sum
}

// devicesFor tells whether there are devices for a job, at certain positions or at
// any.
func (n *modelNode) devicesFor(need modelSpan, at, to spec.Instant, only []modelUse) bool {
	whole, inParts := int64(0), need.gres[3] == 0
	for pos := range n.devices {
		if only != nil && !slices.ContainsFunc(only, func(u modelUse) bool { return u.pos == pos }) {
			continue
		}
		idle, held := n.free(pos, at, to)
		if idle && (need.gres[1] > 0) == n.isB[pos] {
			whole++
		}
		fits := held+need.gres[3] <= n.devices[pos]
		inParts = inParts || fits && !(n.one && n.otherInParts(pos, at, to))
	}
	return whole >= need.gres[0]+need.gres[1] && inParts
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
		s.gres.add(c.Name, c.Type, c.N)
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
		cpu, mem, left := n.cpu-need.cpu, n.mem-need.mem, n.gres
		for k := range left {
			left[k] -= need.gres[k]
		}
		for _, s := range n.taken {
			if s.from <= t && t < s.to {
				cpu, mem = cpu-s.cpu, mem-s.mem
				for k := range left {
					left[k] -= s.gres[k]
				}
			}
		}
		left[3] = 0 // see devicesFor
		if cpu < 0 || slices.Min(left[:]) < 0 || (n.memory && mem < 0) {
			return false
		}
	}
	if n.devices != nil {
		return n.devicesFor(need, at, at.Add(limit), nil)
	}
	return need.gres[3] == 0
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
			if need := n.need(js); n.wants(js) && n.room(need, at, limit) && m.alone(n, need, at, limit) {
				fits = append(fits, n)
			}
		}
		if named := js.Place.Nodes; named != "" && !slices.ContainsFunc(fits, func(n *modelNode) bool { return n.name == named }) {
			continue
		}
		if m.any(js, fits, max(int(js.Size.MinNodes), 1), nil) {
			return at
		}
	}
	return spec.FarFuture
}

// take puts a job on nodes.
func (m *model) take(js *spec.JobSpec, at spec.Instant, limit spec.Span, ids []spec.NodeID, on map[spec.NodeID][]modelUse) error {
	var chosen []*modelNode
	for _, n := range m.nodes {
		if !slices.Contains(ids, n.id) {
			continue
		}
		need := n.need(js)
		if !n.wants(js) || !n.room(need, at, limit) || !m.alone(n, need, at, limit) {
			return fmt.Errorf("node %d has no room for %+v at %d", n.id, need, at)
		}
		if n.devices != nil && need.gres != (modelGRES{0, 0, need.gres[2]}) && !n.devicesFor(need, at, at.Add(limit), on[n.id]) {
			return fmt.Errorf("node %d has no devices for %+v at %d: %v", n.id, need, at, on[n.id])
		}
		chosen = append(chosen, n)
	}
	if !m.near(js, chosen) {
		return fmt.Errorf("nodes %v are not near each other as the blocks want it", ids)
	}
	for _, n := range chosen {
		need := n.need(js)
		need.from, need.to, need.on = at, at.Add(limit), on[n.id]
		n.taken = append(n.taken, need)
	}
	return nil
}

// Every start of a pass, at once or planned, is the earliest that there is
// given what was started or planned for the jobs before it; what is not
// planned has no start at all.
func TestPlannedStartsAreEarliest(t *testing.T) {
	for name, kinds := range map[string][]worldKind{
		"whole": {{}, {blocks: true, apart: true}, {mixed: true}},
		"parts": {{parts: true}, {mixed: true, parts: true, capped: true}},
	} {
		t.Run(name, func(t *testing.T) {
			compared := 0
			rapid.Check(t, func(rt *rapid.T) {
				kind := rapid.SampledFrom(kinds).Draw(rt, "kind")
				kind.fifo, kind.backfill, kind.depth = true, true, 1000
				compared += modelWorld(rt, kind)
			})
			if !t.Failed() && compared < 600 { // 1,200 to 2,000 are usual
				t.Errorf("only %d starts were compared", compared)
			}
		})
	}
}

// modelWorld is one history; it returns how many starts were compared.
func modelWorld(rt *rapid.T, kind worldKind) (compared int) {
	w := newWorld(rt, kind)
	if kind.capped {
		if err := sacctmgr(w.session, words("sacctmgr modify qos normal set MaxTRESPerUser=cpu="+fmt.Sprint(w.n("cap", 2, 12)))); err != nil {
			rt.Fatal(err)
		}
	}
	for range rapid.IntRange(3, 6).Draw(rt, "rounds") {
		for range rapid.IntRange(0, 2).Draw(rt, "reservations") {
			w.keepCores()
		}
		for range rapid.IntRange(4, 12).Draw(rt, "jobs") {
			js := w.request()
			if kind.mixed {
				w.mix(js)
			}
			w.submit(js)
		}
		compared += w.compare()
		w.now = w.now.Add(spec.Span(w.n("advance", 0, 40)) * spec.Minute)
		for _, j := range w.jobs(func(j *state.Job) bool { return j.HoldsNodes() }) {
			if j.Deadline() <= w.now || w.chance("early", 4) {
				w.finish(j, 0)
			}
		}
	}
	return compared
}

// mix makes a request say more about where it can run.
func (w *world) mix(js *spec.JobSpec) {
	for i := range js.Size.PerNode {
		if c := &js.Size.PerNode[i]; c.Name == "gpu" {
			c.Type = pick(w, "type", "a", "b") // which of the two a job without a type will have, no plan says
		}
	}
	if w.chance("nic", 4) {
		js.Size.PerNode = append(js.Size.PerNode, spec.Count{Name: "nic", N: 1})
	}
	if w.chance("constraint", 3) {
		js.Place.Constraint = pick(w, "features", "x", "y", "x&y", "x|y")
	}
	switch w.n("named", 0, 7) {
	case 0:
		js.Place.Nodes = pick(w, "nodelist", w.names()...)
	case 1:
		js.Place.Exclude = pick(w, "exclude", w.names()...)
	}
	js.Partitions = pick(w, "partition", nil, []string{"p"}, []string{"q"})
}

// keepCores reserves cores, or GPUs with cores, for somebody who never comes.
func (w *world) keepCores() {
	w.user = "root"
	what := spec.KeyValue{Key: "corecnt", Value: fmt.Sprint(w.n("corecnt", 1, 4))}
	switch {
	case w.chance("whole nodes", 3):
		what = spec.KeyValue{Key: "nodecnt", Value: fmt.Sprint(w.n("nodecnt", 1, 2))}
	case !w.kind.mixed && !w.kind.parts && w.chance("gpus", 3): // of which type, or which, is not said
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
		at, nodes, on := spec.FarFuture, []spec.NodeID(nil), map[spec.NodeID][]modelUse{}
		for i := range out.Starts {
			if out.Starts[i].UID == j.UID {
				at = w.now
				for k := range out.Starts[i].Alloc.Nodes {
					a := &out.Starts[i].Alloc.Nodes[k]
					nodes, on[a.ID] = append(nodes, a.ID), modelUses(frozen.NodeByID(a.ID), a)
				}
			}
		}
		if p := out.Plan.Of(j.UID); p != nil {
			at, nodes = p.Start, p.Nodes
			for _, d := range p.Devices {
				on[d.Node] = append(on[d.Node], modelUse{int(d.Pos), partsOf(j.Spec)})
			}
		}
		want := m.earliest(j.Spec, limit)
		if w.kind.capped && m.over(j.Spec) {
			want = spec.FarFuture // it is not planned until others of its user have ended
		}
		if want != at {
			w.rt.Fatalf("job %d starts at %s, but could at %s\n%+v\n%s\n%s", j.ID, when(at), when(want), j.Spec.Size, m, dump(out, frozen))
		}
		if at != spec.FarFuture {
			starts++
			if err := m.take(j.Spec, at, limit, nodes, on); err != nil {
				w.rt.Fatalf("job %d at %s on %v: %v", j.ID, when(at), nodes, err)
			}
		}
	}
	return starts
}

// partsOf is how many parts of one device a job asks for; 0 = none, or whole ones.
func partsOf(js *spec.JobSpec) (n int64) {
	for _, c := range js.Size.PerNode {
		if c.Name == "shard" {
			n += c.N
		}
	}
	return n
}

// String lists who is where.
func (m *model) String() string {
	var b strings.Builder
	for _, n := range m.nodes {
		fmt.Fprintf(&b, "%s: %d CPUs, %d MiB, %v, devices %v, one %v\n", n.name, n.cpu, n.mem, n.gres, n.devices, n.one)
		for _, s := range n.taken {
			fmt.Fprintf(&b, "  %s to %s: %d CPUs, %d MiB, %v, %v, nobody %v\n", when(s.from), when(s.to), s.cpu, s.mem, s.gres, s.on, s.nobody)
		}
	}
	return b.String()
}

// over tells whether a job has its user above the limit, with those of his that
// run now.
func (m *model) over(js *spec.JobSpec) bool {
	var most, has int64
	for _, l := range m.policy.FindQOS("normal").MaxTRESPerUser {
		most = l.N
	}
	for _, n := range m.nodes {
		for _, s := range n.taken {
			if s.user == js.UID && s.from <= m.now && m.now < s.to && !s.nobody {
				has += s.cpu
			}
		}
	}
	return has+max(int64(js.Size.MinNodes), 1)*m.nodes[0].need(js).cpu > most
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
	if res := w.must(scheduler.Starts{Proposal: &out.Proposal}); res.Stale > 0 {
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
		if res := w.must(scheduler.Starts{Proposal: &out.Proposal}); res.Stale > 0 {
			w.rt.Fatalf("%d proposals of an incremental pass are stale", res.Stale)
		}
		w.check()
	}
}
