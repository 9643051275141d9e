package scheduler_test

import (
	"slices"
	"strings"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/scheduler/order"
	"github.com/musterhpc/muster/spec"
)

// The judge holds what a pass proposes to rules written down independently:
// it counts usage from the jobs, not from the counters, and knows nothing of
// lots, timelines or indexes.

// judgeStarts: only jobs that may start, only on nodes in service (S8), whole
// (S3), within limits (S6).
func (w *world) judgeStarts(before *state.State, out *scheduler.Outcome) {
	w.rt.Helper()
	seen := map[[2]int64]bool{}
	for i := range out.Starts {
		s := &out.Starts[i]
		j := before.Job(s.UID)
		key := [2]int64{int64(s.UID), s.Task}
		switch {
		case j == nil || j.State != spec.Pending || j.Hold != spec.NotHeld || j.Begin > w.now:
			w.rt.Fatalf("job %d must not start: %+v", s.UID, j)
		case seen[key]:
			w.rt.Fatalf("job %d task %d starts twice", s.UID, s.Task)
		case s.Limit <= 0:
			w.rt.Fatalf("job %d starts with the time limit %d", s.UID, s.Limit)
		case !slices.Contains(j.Spec.Partitions, s.Alloc.Partition):
			w.rt.Fatalf("job %d starts in partition %s, of %v", s.UID, s.Alloc.Partition, j.Spec.Partitions)
		}
		if several := strings.Split(j.Spec.QOSText(), ","); (len(several) > 1) != (s.Alloc.QOS != "") || (s.Alloc.QOS != "" && !slices.Contains(several, s.Alloc.QOS)) {
			w.rt.Fatalf("job %d starts in QOS %q, of %v", s.UID, s.Alloc.QOS, several)
		}
		seen[key] = true
		w.judgeAlloc(before, j, s)
		w.judgeReservations(before, j, s)
		w.judgeCores(before, out, i)
		w.judgeChoice(before, j, s)
	}
}

func (w *world) judgeAlloc(before *state.State, j *state.Job, s *scheduler.Start) {
	w.rt.Helper()
	part := before.Parts.Find(s.Alloc.Partition)
	tasks := int64(0)
	for i := range s.Alloc.Nodes {
		a := &s.Alloc.Nodes[i]
		n := before.NodeByID(a.ID)
		if n == nil || !n.Usable() || !part.Nodes.Has(int(a.ID)) {
			w.rt.Fatalf("job %d starts on node %s, which must get nothing", j.ID, a.Name)
		}
		if i > 0 && s.Alloc.Nodes[i-1].ID >= a.ID {
			w.rt.Fatalf("job %d: nodes are not in order", j.ID)
		}
		tasks += int64(a.Tasks)
		sz := &j.Spec.Size
		alone := int64(a.Tasks) // tasks with CPUs of their own
		if sz.Overcommit {
			alone = min(alone, 1)
		}
		if cpus := int64(a.CPUs.Count()); cpus < alone*max(int64(sz.CPUsPerTask), 1) || cpus == 0 {
			w.rt.Fatalf("job %d has %d CPUs for %d tasks on %s", j.ID, cpus, a.Tasks, a.Name)
		}
		for _, c := range sz.PerNode {
			if c.Name == "gpu" && int64(countGPUs(a, c.Type)) < c.N {
				w.rt.Fatalf("job %d has %d of %d GPUs on %s", j.ID, countGPUs(a, c.Type), c.N, a.Name)
			}
		}
		judgeShare(w, j, a)
		if sz.MemPerNode > 0 && a.Mem < sz.MemPerNode {
			w.rt.Fatalf("job %d has %d of %d MiB on %s", j.ID, a.Mem, sz.MemPerNode, a.Name)
		}
	}
	sz := &j.Spec.Size
	nodes := len(s.Alloc.Nodes)
	least := int64(sz.MinNodes)
	if sz.Tasks > 0 {
		least = min(least, int64(sz.Tasks)) // no more nodes than tasks
	}
	if nodes < int(least) || (sz.MaxNodes > 0 && nodes > int(max(sz.MaxNodes, sz.MinNodes))) {
		w.rt.Fatalf("job %d asked for %d-%d nodes and got %d", j.ID, sz.MinNodes, sz.MaxNodes, nodes)
	}
	if tasks < int64(sz.Tasks) {
		w.rt.Fatalf("job %d asked for %d tasks and got %d", j.ID, sz.Tasks, tasks)
	}
	for _, c := range sz.PerJob {
		got := 0
		for i := range s.Alloc.Nodes {
			got += countGPUs(&s.Alloc.Nodes[i], c.Type)
		}
		if int64(got) < c.N {
			w.rt.Fatalf("job %d asked for %d GPUs and got %d", j.ID, c.N, got)
		}
	}
}

// judgeShare: what a job asked for of a device it has of one device, and of
// the node's others nothing; what it counts as is that.
func judgeShare(w *world, j *state.Job, a *spec.NodeAlloc) {
	w.rt.Helper()
	var want, counted int64
	for _, c := range j.Spec.Size.PerNode {
		if spec.Shares(c.Name) {
			want += c.N
		}
	}
	for _, c := range a.GRES {
		if spec.Shares(c.Name) {
			counted += c.N
		}
	}
	switch {
	case want == 0 && len(a.Shares) == 0 && counted == 0:
	case want == 0 || len(a.Shares) != 1 || a.Shares[0].N != want || counted != want || len(a.GPUs) > 0:
		w.rt.Fatalf("job %d asked for %d shards and has %v, counted as %d, with %d GPUs on %s", j.ID, want, a.Shares, counted, len(a.GPUs), a.Name)
	}
}

func countGPUs(a *spec.NodeAlloc, typ string) int {
	n := 0
	for _, g := range a.GPUs {
		if typ == "" || g.Type == typ {
			n++
		}
	}
	return n
}

// ranIn is the QOS in which a job was started.
func ranIn(j *state.Job) string {
	if j.Alloc.QOS != "" {
		return j.Alloc.QOS
	}
	return j.Spec.QOS
}

// sum is what a set of running jobs holds.
type sum struct {
	jobs  int64
	tres  map[string]int64
	ahead map[string]int64 // TRES seconds until the jobs' time limits
	nodes map[string]bool
	fresh bool // some of them started since an administrator last gave running jobs more time
}

func (w *world) sum(keep func(j *state.Job) bool) sum {
	s := sum{tres: map[string]int64{}, ahead: map[string]int64{}, nodes: map[string]bool{}}
	for _, j := range w.jobs(func(j *state.Job) bool { return j.State.Active() && keep(j) }) {
		s.jobs++
		s.fresh = s.fresh || !w.longer[run{j.UID, j.Attempt}]
		for i := range j.Alloc.Nodes {
			a := &j.Alloc.Nodes[i]
			s.nodes[a.Name] = true
			s.tres["cpu"] += int64(a.CPUs.Count())
			s.tres["mem"] += a.Mem
			s.tres["gres/gpu"] += int64(len(a.GPUs))
			left := max(j.Started.Add(j.Limit+j.Paused).Sub(w.clock(j)), 0).Seconds()
			s.ahead["cpu"] += left * int64(a.CPUs.Count())
			s.ahead["mem"] += left * a.Mem
		}
	}
	return s
}

// clock is the instant up to which a job has used its time: it stands still
// while the job is suspended.
func (w *world) clock(j *state.Job) spec.Instant {
	if j.State == spec.Suspended {
		return j.SuspendedAt
	}
	return w.now
}

// judgeLimits: what runs stays within every limit that binds it. Limits are
// only changed by nobody here, so they hold at all times, not just at starts.
func (w *world) judgeLimits() {
	w.rt.Helper()
	inQOS := func(j *state.Job, name string) bool {
		p := w.head.Parts.Find(j.Alloc.Partition)
		return ranIn(j) == name || p.Spec.QOS == name
	}
	for i := range w.head.Policy.QOS {
		q := &w.head.Policy.QOS[i]
		all := w.sum(func(j *state.Job) bool { return inQOS(j, q.Name) })
		w.within(q.Name+" GrpJobs", q.GrpJobs, all.jobs)
		w.withinTRES(q.Name+" GrpTRES", q.GrpTRES, all)
		w.withinMins(q.Name, q.GrpTRESRunMins, all)
		for _, user := range []string{"alice", "bob", "carol"} {
			// The job's own QOS may hide the limit of the partition's
			// (OverPartQOS), so only jobs bound by this QOS alone are counted.
			u := w.sum(func(j *state.Job) bool { return inQOS(j, q.Name) && j.Spec.User == user && ranIn(j) != "loose" })
			w.within(q.Name+" MaxJobsPU", q.MaxJobsPerUser, u.jobs)
			w.withinTRES(q.Name+" MaxTRESPU", q.MaxTRESPerUser, u)
		}
	}
	for i := range w.head.Policy.Assocs {
		a := &w.head.Policy.Assocs[i]
		below := w.sum(func(j *state.Job) bool {
			return slices.ContainsFunc(w.head.Policy.Chain(j.Assoc), func(c *spec.Association) bool { return c.ID == a.ID })
		})
		w.withinTRES("association "+a.Account+a.User, a.GrpTRES, below)
		w.withinMins("association "+a.Account+a.User, a.GrpTRESRunMins, below)
	}
}

// withinMins checks what running jobs may still use, to the minute. An
// administrator may give running jobs more time than limits allow; nothing
// starts on top of that.
func (w *world) withinMins(what string, limits spec.Limits, s sum) {
	w.rt.Helper()
	for _, l := range limits {
		if have := s.ahead[l.Name] / 60; have > l.N+1 && s.fresh {
			w.rt.Fatalf("%s: %s may be used for %d minutes of %d", what, l.Name, have, l.N)
		}
	}
}

func (w *world) within(what string, limit *int64, have int64) {
	w.rt.Helper()
	if limit != nil && have > *limit {
		w.rt.Fatalf("%s: %d of %d", what, have, *limit)
	}
}

func (w *world) withinTRES(what string, limits spec.Limits, s sum) {
	w.rt.Helper()
	for _, l := range limits {
		have := s.tres[l.Name]
		if l.Name == "node" {
			have = int64(len(s.nodes))
		}
		if have > l.N {
			w.rt.Fatalf("%s: %s is %d of %d", what, l.Name, have, l.N)
		}
	}
}

// judgeCaps: the jobs of a partition with MaxCPUsPerNode hold no more CPUs of
// any node, but for those that have the node to themselves.
func (w *world) judgeCaps() {
	w.rt.Helper()
	for i := range w.head.Config.Partitions {
		p := &w.head.Config.Partitions[i]
		held := map[string]int64{}
		for _, j := range w.jobs(func(j *state.Job) bool {
			return j.HoldsNodes() && j.Alloc.Partition == p.Name && !j.Alloc.Whole && j.Alloc.Share == 0 && !j.Yields
		}) {
			for k := range j.Alloc.Nodes {
				if a := &j.Alloc.Nodes[k]; !j.Done.Has(k) {
					if held[a.Name] += int64(a.CPUs.Count()); p.MaxCPUsPerNode > 0 && held[a.Name] > p.MaxCPUsPerNode {
						w.rt.Fatalf("partition %s holds %d CPUs of node %s, of %d", p.Name, held[a.Name], a.Name, p.MaxCPUsPerNode)
					}
				}
			}
		}
	}
}

// judgePlan: predictions are of jobs that still wait, in the future, on nodes
// in service.
func (w *world) judgePlan(out *scheduler.Outcome) {
	w.rt.Helper()
	if w.kind.limits {
		w.judgeLimits()
	}
	w.judgeCaps()
	w.judgeBlocks()
	for i := range out.Plan.Jobs {
		p := &out.Plan.Jobs[i]
		j := w.head.Job(p.UID)
		if j == nil || j.State != spec.Pending || p.Start <= w.now || p.End <= p.Start || len(p.Nodes) == 0 {
			w.rt.Fatalf("planned at %d: %+v, of %+v", w.now, p, j)
		}
		for _, id := range p.Nodes {
			if !w.head.NodeByID(id).Usable() {
				w.rt.Fatalf("job %d is planned on node %d, which is not in service", j.ID, id)
			}
		}
	}
}

// judgeReasons: every pending job has a reason, and it is true (S13).
func (w *world) judgeReasons(out *scheduler.Outcome) {
	w.rt.Helper()
	ctx := order.NewContext(w.head, w.now)
	w.newly = out.Eligible
	idle := len(w.jobs(func(j *state.Job) bool { return j.HoldsNodes() })) == 0
	for _, j := range w.jobs(func(j *state.Job) bool { return j.State == spec.Pending }) {
		bad := func(why string) {
			w.rt.Helper()
			w.rt.Fatalf("job %s waits for %s (%+v): %s\nspec %+v\n%s", w.title(j), j.Reason, j.Reason, why, j.Spec, dump(out, w.head))
		}
		r := j.Reason
		if (j.Hold != spec.NotHeld) != (r.Code == state.HoldReason(j.Hold) && r.Code != spec.ReasonNone) {
			bad("the hold says otherwise")
		}
		if j.Het != nil && r.Code != spec.ReasonNone && r.Code != "" {
			continue // it is that of any of the components
		}
		switch r.Code {
		case spec.ReasonNone, "":
			bad("that is none")
		case spec.ReasonBeginTime:
			if j.Begin <= w.now {
				bad("it has begun")
			}
		case spec.ReasonPriority:
			if w.firstOf(func(a *state.Job) bool { return a.State == spec.Pending && w.comesBefore(ctx, a, j) }) == nil {
				bad("no job comes before it")
			}
		case spec.ReasonResources:
			if r.Subject == "switches" && j.Spec.Place.Switches > 0 && w.now.Sub(j.Eligible) < 5*spec.Minute {
				continue
			}
			if idle && len(out.Plan.Jobs) == 0 && !w.anyNodeOut() {
				bad("the cluster is idle and nothing else is planned")
			}
		case spec.ReasonArrayTaskLimit:
			if a := w.head.ArrayOf(j); a.Running < int64(j.Spec.Queue.Array.Throttle) {
				bad("fewer tasks run")
			}
		case spec.ReasonLicenses:
			if held := w.licences(j); held+j.Spec.Licenses[0].N <= 3 {
				bad("there are licences")
			}
		case spec.ReasonReqNodeNotAvail:
			reserved := strings.Contains(j.Reason.Detail, "eserved") && len(w.head.Reservations) > 0
			if !w.anyNodeOut() && !reserved {
				bad("all nodes are in service")
			}
		case spec.ReasonQOSMaxJobsUser, spec.ReasonQOSGrpJobs, spec.ReasonAssocMaxJobs:
			if r.Used+r.Asked <= r.Limit {
				bad("the numbers say otherwise")
			}
		}
		if r.Limit != 0 && r.TRES != "" && r.Used+r.Asked <= r.Limit && r.Code != spec.ReasonPartitionNodeLimit {
			bad("the limit is not exceeded")
		}
	}
}

func (w *world) firstOf(keep func(j *state.Job) bool) *state.Job {
	if list := w.jobs(keep); len(list) > 0 {
		return list[0]
	}
	return nil
}

// comesBefore tells whether the pass looks at a before b in a partition of both. A component of a heterogeneous job
// is looked at when its leader is, in whatever partition that waits.
func (w *world) comesBefore(ctx *order.Context, a, b *state.Job) bool {
	for _, name := range b.Spec.Partitions {
		if !slices.Contains(a.Spec.Partitions, name) {
			continue
		}
		in, first := []string{name}, a
		if a.Het != nil { // it comes with its leader, in any of that one's partitions
			first = w.head.Job(a.Het.Leader)
			in = first.Spec.Partitions
		}
		if slices.ContainsFunc(in, func(in string) bool { return w.comesBeforeIn(ctx, first, in, b, name) }) {
			return true
		}
	}
	return false
}

// comesBeforeIn is comesBefore for one partition of each.
func (w *world) comesBeforeIn(ctx *order.Context, a *state.Job, in string, b *state.Job, name string) bool {
	p, q := w.head.Parts.Find(in).Spec, w.head.Parts.Find(name).Spec
	if order.Tier(p) != order.Tier(q) {
		return order.Tier(p) > order.Tier(q)
	}
	x, y := ctx.Of(a, p).Total, ctx.Of(b, q).Total
	return x > y || (x == y && w.older(a, b))
}

// older breaks ties of priority: by age where that counts, submission, number.
func (w *world) older(a, b *state.Job) bool {
	if na, nb := slices.Contains(w.newly, a.UID), slices.Contains(w.newly, b.UID); !w.kind.fifo && na != nb {
		return nb // what became eligible in this pass is the youngest
	}
	if !w.kind.fifo && a.Eligible != b.Eligible {
		return a.Eligible < b.Eligible
	}
	if a.Submitted != b.Submitted {
		return a.Submitted < b.Submitted
	}
	return a.UID < b.UID
}

func (w *world) anyNodeOut() bool {
	return slices.ContainsFunc(w.names(), func(name string) bool { return !w.head.Node(name).Usable() })
}

// licences counts those that jobs hold, and those that others make room for are
// to have beside a job that waits for some.
func (w *world) licences(but *state.Job) int64 {
	var n int64
	claims := func(j *state.Job) bool { // its own, or that of the heterogeneous job that it is a component of
		if j.Het != nil {
			j = w.head.Job(j.Het.Leader)
		}
		return j != nil && j.Claim != nil
	}
	for _, j := range w.jobs(func(j *state.Job) bool { return claims(j) && j != but }) {
		for _, l := range j.Spec.Licenses {
			n += l.N
		}
	}
	for _, j := range w.jobs(func(j *state.Job) bool { return j.State.Active() }) {
		for _, l := range j.Alloc.Licenses {
			n += l.N
		}
	}
	return n
}

// judgeBlocks: nobody is in a block that a job keeps for itself, nor on one
// node with a job that does not share CPUs as it does.
func (w *world) judgeBlocks() {
	w.rt.Helper()
	running := w.jobs(func(j *state.Job) bool { return j.HoldsNodes() })
	for i, a := range running {
		for _, b := range running[i+1:] {
			for _, x := range w.places(a) {
				for _, y := range w.places(b) {
					if w.blockOf(x) == w.blockOf(y) && (a.Alloc.Apart|b.Alloc.Apart)&spec.ApartTopo != 0 {
						w.rt.Fatalf("jobs %d and %d are in one block, on %s and %s", a.ID, b.ID, x, y)
					}
					if x == y && (a.Alloc.Share == 0) != (b.Alloc.Share == 0) {
						w.rt.Fatalf("jobs %d and %d are on %s, and one of them shares CPUs", a.ID, b.ID, x)
					}
				}
			}
		}
		if seg := int(a.Spec.Place.Segment); seg > 0 {
			per := map[string]int{}
			for k := range a.Alloc.Nodes {
				per[w.blockOf(a.Alloc.Nodes[k].Name)]++
			}
			for b, n := range per {
				if n%seg != 0 || (a.Spec.Place.ApartSegments && n > seg) {
					w.rt.Fatalf("job %d has %d nodes of %s, in segments of %d", a.ID, n, b, seg)
				}
			}
		}
	}
}

// places are the nodes that a job still holds.
func (w *world) places(j *state.Job) []string {
	var out []string
	for i := range j.Alloc.Nodes {
		if !j.Done.Has(i) {
			out = append(out, j.Alloc.Nodes[i].Name)
		}
	}
	return out
}

// blockOf is the block of a node; a node of none is one of its own.
func (w *world) blockOf(node string) string {
	for _, b := range w.head.Config.Blocks {
		if slices.Contains(b.Nodes, node) {
			return b.Name
		}
	}
	return node
}
