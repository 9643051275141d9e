package decide

import (
	"fmt"
	"maps"
	"slices"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
	"github.com/musterhpc/muster/spec/hostlist"
)

// maxStepTasks bounds the tasks of a step, and of a node where the site does not.
const maxStepTasks = 1 << 20

// stepNode is a node of the job as a step sees it: what the job has there and
// what no other step holds of it.
type stepNode struct {
	whole *spec.NodeAlloc
	cpus  spec.Bitset
	gpus  []spec.GPURef
	mem   int64
	named bool // --nodelist asks for it
	most  int  // tasks, whatever it has: MaxTasksPerNode
}

// hasSteps tells that other steps have some of what the job has there.
func (n *stepNode) hasSteps() bool { return n.cpus.Count() < n.whole.CPUs.Count() }

// layStep chooses what a step gets of its job: nodes in the job's order, then
// tasks over them, then CPUs, memory and GPUs. CodeNodesBusy tells that others
// have what it asks for; another error, that the job can never give it.
// No node gets more than most tasks.
func layStep(job *state.Job, s *spec.StepSpec, most uint32) ([]spec.NodeAlloc, error) {
	free, err := stepNodes(job, s, most, true)
	if err != nil {
		return nil, err
	}
	out, err := fitStep(job, s, free)
	if err == nil {
		return out, nil
	}
	empty, err2 := stepNodes(job, s, most, false)
	if err2 != nil {
		return nil, err2
	}
	if _, never := fitStep(job, s, empty); never != nil {
		return nil, never
	}
	return nil, spec.Refuse(spec.CodeNodesBusy, "")
}

// stepNodes lists the nodes that a step may use, less what others have when
// taken is set.
func stepNodes(job *state.Job, s *spec.StepSpec, most uint32, taken bool) ([]stepNode, error) {
	if most == 0 {
		most = maxStepTasks
	}
	names, err := hostlist.Expand(s.Nodes)
	if err != nil {
		return nil, spec.Refuse(spec.CodeInvalidNodeName, err.Error())
	}
	without, err := hostlist.Expand(s.Exclude)
	if err != nil {
		return nil, spec.Refuse(spec.CodeInvalidNodeName, err.Error())
	}
	var out []stepNode
	for i := range job.Alloc.Nodes {
		alloc := &job.Alloc.Nodes[i]
		if job.Done.Has(i) || slices.Contains(job.Leaving, alloc.Name) {
			continue // the job gives it back
		}
		beforeFirst := s.Relative > 0 && uint32(i) < s.Relative-1
		if beforeFirst || slices.Contains(without, alloc.Name) {
			continue
		}
		node := stepNode{
			whole: alloc,
			cpus:  alloc.CPUs,
			gpus:  alloc.GPUs,
			mem:   alloc.Mem,
			named: slices.Contains(names, alloc.Name),
			most:  int(most),
		}
		if taken && !s.Overlap && !s.External {
			node.subtractSteps(job)
		}
		out = append(out, node)
	}
	for _, name := range names {
		if !slices.ContainsFunc(out, func(n stepNode) bool { return n.whole.Name == name }) {
			return nil, spec.Refuse(spec.CodeNodeConfigUnavailable, "node "+name+
				" is not one of the job's, or is excluded")
		}
	}
	if len(out) == 0 {
		return nil, spec.Refuse(
			spec.CodeNodeConfigUnavailable,
			"no node of the job is left for the step",
		)
	}
	return out, nil
}

// subtractSteps takes away what the job's other steps hold.
func (n *stepNode) subtractSteps(job *state.Job) {
	for i := range job.Steps {
		other := &job.Steps[i]
		at := other.Part(n.whole.Name)
		if at < 0 || other.Shares() {
			continue
		}
		b := &other.Layout[at]
		n.cpus, n.mem = n.cpus.AndNot(b.CPUs), n.mem-b.Mem
		n.gpus = slices.DeleteFunc(slices.Clone(n.gpus), func(g spec.GPURef) bool {
			return slices.ContainsFunc(b.GPUs, func(h spec.GPURef) bool { return h.UUID == g.UUID })
		})
	}
}

// stepSize is how many nodes and tasks a step has.
type stepSize struct {
	least, most int // nodes
	tasks       int // 0 = one a node, or TasksPerNode of each
}

func sizeStep(job *state.Job, s *spec.StepSpec, nodes []stepNode) (stepSize, error) {
	z := stepSize{
		least: int(s.MinNodes),
		most:  int(max(s.MinNodes, s.MaxNodes)),
		tasks: int(s.Tasks),
	}
	named := 0
	for i := range nodes {
		if nodes[i].named {
			named++
		}
	}
	if z.most == 0 { // not said: all, but no more than there are tasks
		z.least, z.most = max(named, 1), len(nodes)
		if named > 0 {
			z.most = named
		}
		if z.tasks > 0 && z.tasks < z.most {
			z.most = max(z.tasks, named)
		}
		if s.Tasks == 0 || named > 0 {
			z.least = z.most
		}
	}
	z.most = min(z.most, len(nodes))
	switch {
	case z.least > len(nodes):
		return z, spec.Refuse(
			spec.CodeNodeCountInvalid,
			fmt.Sprintf(
				"the job has %s for the step, and it asks for %d",
				format.Plural(len(nodes), "node", "nodes"),
				z.least,
			),
		)
	case z.tasks > 0 && z.tasks < z.least:
		return z, spec.Refuse(
			spec.CodeTaskCountInvalid,
			fmt.Sprintf("%s cannot be on %d nodes", format.Plural(z.tasks, "task", "tasks"), z.least),
		)
	case z.tasks > maxStepTasks:
		return z, spec.Refuse(spec.CodeTaskCountInvalid, "")
	}
	return z, nil
}

// fitStep lays a step over nodes.
func fitStep(job *state.Job, s *spec.StepSpec, nodes []stepNode) ([]spec.NodeAlloc, error) {
	z, err := sizeStep(job, s, nodes)
	if err != nil {
		return nil, err
	}
	asked := make([]int, len(nodes)) // how many tasks each could have
	var chosen []int
	for _, named := range [...]bool{true, false} {
		for i := range nodes {
			if nodes[i].named != named || len(chosen) >= z.most {
				continue
			}
			asked[i] = nodes[i].countRoom(s)
			if asked[i] > 0 {
				chosen = append(chosen, i)
			} else if named {
				return nil, tooSmall(s)
			}
		}
	}
	slices.Sort(chosen)
	if len(chosen) < z.least {
		return nil, tooSmall(s)
	}
	counts, err := spread(job, s, z, nodes, chosen, asked)
	if err != nil {
		return nil, err
	}
	return giveStep(s, nodes, chosen, counts)
}

func tooSmall(s *spec.StepSpec) error {
	what := fmt.Sprintf("with %d CPUs for each task", max(s.CPUsPerTask, 1))
	return spec.Refuse(spec.CodeTooManyCPUs, "the job's nodes have no room for the step "+what)
}

// countRoom is how many tasks fit on a node; a step that takes whole nodes finds no
// room beside another.
func (n *stepNode) countRoom(s *spec.StepSpec) int {
	if s.External {
		return n.most
	}
	if !s.Exact && n.hasSteps() {
		return 0
	}
	room := min(n.cpus.Count()/int(max(s.CPUsPerTask, 1)), n.most)
	if s.Overcommit && n.cpus.Count() > 0 {
		room = n.most
	}
	for _, c := range s.PerTask {
		if c.Name == "gpu" && c.N > 0 {
			room = min(room, countGPUs(n.gpus, c.Type)/int(c.N))
		}
	}
	for _, c := range s.PerNode {
		if c.Name == "gpu" && int64(countGPUs(n.gpus, c.Type)) < c.N {
			return 0
		}
	}
	if !s.NoGRES && !asksGPUs(s) && len(n.gpus) < len(n.whole.GPUs) {
		return 0 // it gets all of the job's, and others have some
	}
	if s.MemPerNode > n.mem || s.MemPerCPU > n.mem {
		return 0
	}
	if s.MemPerCPU > 0 {
		room = min(room, int(n.mem/(s.MemPerCPU*int64(max(s.CPUsPerTask, 1)))))
	}
	if s.TasksPerNode > 0 && s.Tasks == 0 && room < int(s.TasksPerNode) {
		return 0
	}
	return room
}

func asksGPUs(s *spec.StepSpec) bool {
	return slices.ContainsFunc(
		slices.Concat(s.PerNode, s.PerStep, s.PerTask),
		func(c spec.Count) bool { return c.Name == "gpu" },
	)
}

func countGPUs(list []spec.GPURef, typ string) int {
	n := 0
	for _, g := range list {
		if typ == "" || g.Type == typ {
			n++
		}
	}
	return n
}

// spread deals the tasks: as the job's own are where the step has as many, else in turn, as
// many as fit on each node. How many a node gets is the same for block and cyclic; which of
// them they are is not, and is decided where they are started.
func spread(
	job *state.Job,
	s *spec.StepSpec,
	z stepSize,
	nodes []stepNode,
	chosen, room []int,
) ([]int, error) {
	counts := make([]int, len(chosen))
	most := func(k int) int {
		r := room[chosen[k]]
		if s.TasksPerNode > 0 {
			r = min(r, int(s.TasksPerNode))
		}
		return r
	}
	if z.tasks == 0 {
		for k := range counts {
			counts[k] = int(max(s.TasksPerNode, 1))
			if counts[k] > most(k) {
				return nil, tooSmall(s)
			}
		}
		return counts, nil
	}
	if len(s.TaskNodes) == 0 && asJob(job, s, nodes, chosen, counts, most) {
		return counts, nil
	}
	if len(s.TaskNodes) > 0 {
		return counts, countArbitrary(s, nodes, chosen, counts, most)
	}
	left := z.tasks
	deal := func(k, n int) {
		n = min(n, left, most(k)-counts[k])
		counts[k], left = counts[k]+n, left-n
	}
	for k := range counts {
		deal(k, 1)
	}
	turn := 1
	if plane := int(s.Plane()); plane > 0 {
		turn = plane
		for k := range counts {
			deal(k, plane-1)
		}
	}
	for before := -1; left > 0 && left != before; {
		before = left
		for k := range counts {
			deal(k, turn)
		}
	}
	if left > 0 {
		return nil, spec.Refuse(
			spec.CodeTooManyCPUs,
			fmt.Sprintf("%d of its %d tasks find no CPUs in the job", left, z.tasks),
		)
	}
	return counts, nil
}

// countArbitrary counts the tasks that the distribution arbitrary puts on each node.
func countArbitrary(
	s *spec.StepSpec,
	nodes []stepNode,
	chosen, counts []int,
	most func(int) int,
) error {
	sum := 0
	for k, i := range chosen {
		for _, name := range s.TaskNodes {
			if name == nodes[i].whole.Name {
				counts[k]++
			}
		}
		if counts[k] > most(k) {
			return spec.Refuse(
				spec.CodeTooManyCPUs,
				fmt.Sprintf(
					"the host file puts %s on %s, which has CPUs for %d",
					format.Plural(counts[k], "task", "tasks"),
					nodes[i].whole.Name,
					most(k),
				),
			)
		}
		sum += counts[k]
	}
	if sum != int(s.Tasks) {
		return spec.Refuse(
			spec.CodeBadDistribution,
			fmt.Sprintf(
				"the host file places %s on the nodes of the step, and it has %d",
				format.Plural(sum, "task", "tasks"),
				s.Tasks,
			),
		)
	}
	return nil
}

// asJob gives a step with as many tasks as the job, on all of its nodes, the
// job's own tasks on each.
func asJob(
	job *state.Job,
	s *spec.StepSpec,
	nodes []stepNode,
	chosen, counts []int,
	most func(int) int,
) bool {
	if s.TasksPerNode > 0 || s.Distribution != "" || len(chosen) != len(job.Alloc.Nodes) ||
		s.Tasks != job.Alloc.Tasks {
		return false
	}
	sum := 0
	for k, i := range chosen {
		n := int(nodes[i].whole.Tasks)
		if n == 0 || n > most(k) {
			return false
		}
		sum += n
	}
	if sum != int(s.Tasks) {
		return false
	}
	for k, i := range chosen {
		counts[k] = int(nodes[i].whole.Tasks)
	}
	return true
}

// giveStep turns counts of tasks into CPUs, memory and devices.
func giveStep(s *spec.StepSpec, nodes []stepNode, chosen, counts []int) ([]spec.NodeAlloc, error) {
	wanted := map[string]int64{} // GPUs of the whole step that are still to be found, by type
	for _, c := range s.PerStep {
		if c.Name == "gpu" {
			wanted[c.Type] += c.N
		}
	}
	used := 0
	for _, n := range counts {
		if n > 0 {
			used++
		}
	}
	var out []spec.NodeAlloc
	for k, i := range chosen {
		if counts[k] == 0 {
			continue
		}
		node := &nodes[i]
		alloc := spec.NodeAlloc{
			ID:    node.whole.ID,
			Name:  node.whole.Name,
			Tasks: uint32(counts[k]),
			CPUs:  node.cpus,
			Mem:   s.MemPerNode,
		}
		if s.Exact && !s.Overcommit {
			alloc.CPUs = firstCPUs(node.cpus, counts[k]*int(max(s.CPUsPerTask, 1)))
		}
		if s.MemPerCPU > 0 {
			alloc.Mem = min(s.MemPerCPU*int64(alloc.CPUs.Count()), node.mem)
		}
		if !s.NoGRES {
			alloc.GPUs = node.stepGPUs(s, counts[k], wanted, used-len(out))
			alloc.GRES, alloc.Shares = node.whole.GRES, node.whole.Shares
		}
		out = append(out, alloc)
	}
	for i := range out { // a node had less than its share
		if s.NoGRES {
			break
		}
		at := slices.IndexFunc(nodes, func(n stepNode) bool { return n.whole.ID == out[i].ID })
		for _, typ := range slices.Sorted(maps.Keys(wanted)) {
			if n := wanted[typ]; n > 0 {
				wanted[typ] -= takeGPUs(&out[i].GPUs, nodes[at].gpus, typ, n)
			}
		}
	}
	for _, c := range s.PerStep {
		if wanted[c.Type] > 0 && c.Name == "gpu" {
			return nil, spec.Refuse(
				spec.CodeNodeConfigUnavailable,
				fmt.Sprintf(
					"%d GPUs of those that the step asks for are not in the job",
					wanted[c.Type],
				),
			)
		}
	}
	return out, nil
}

// stepGPUs chooses a node's devices for a step, in their order. Those of the whole
// step are spread evenly: left is how many nodes, with this one, still get some.
func (n *stepNode) stepGPUs(
	s *spec.StepSpec,
	tasks int,
	wanted map[string]int64,
	left int,
) []spec.GPURef {
	if !asksGPUs(s) {
		return n.gpus
	}
	var out []spec.GPURef
	for _, c := range s.PerNode {
		if c.Name == "gpu" {
			takeGPUs(&out, n.gpus, c.Type, c.N)
		}
	}
	for _, c := range s.PerTask {
		if c.Name == "gpu" {
			takeGPUs(&out, n.gpus, c.Type, c.N*int64(tasks))
		}
	}
	for _, count := range s.PerStep {
		if count.Name == "gpu" {
			fair := (wanted[count.Type] + int64(left) - 1) / int64(left)
			wanted[count.Type] -= takeGPUs(&out, n.gpus, count.Type, fair)
		}
	}
	return out
}

// takeGPUs adds at most so many devices of a type, any without one, and tells how many.
func takeGPUs(to *[]spec.GPURef, from []spec.GPURef, typ string, most int64) (taken int64) {
	for _, gpu := range from {
		held := slices.ContainsFunc(*to, func(h spec.GPURef) bool { return h.UUID == gpu.UUID })
		if taken < most && !held && (typ == "" || gpu.Type == typ) {
			*to = append(*to, gpu)
			taken++
		}
	}
	return taken
}

// firstCPUs are the lowest so many of a set.
func firstCPUs(set spec.Bitset, n int) spec.Bitset {
	var out spec.Bitset
	for _, c := range set.Members() {
		if n == 0 {
			break
		}
		out = out.Set(c)
		n--
	}
	return out
}

// stepTRES is what a step has, as a vector. A step whose memory is not counted
// has that of the job on its nodes.
func stepTRES(job *state.Job, layout []spec.NodeAlloc) spec.TRES {
	tres := spec.TRES{}
	gpus := map[string]int64{}
	for i := range layout {
		alloc := &layout[i]
		tres.CPU += int64(alloc.CPUs.Count())
		tres.Node++
		mem := alloc.Mem
		if at := job.Alloc.Index(alloc.ID); mem == 0 && at >= 0 {
			mem = job.Alloc.Nodes[at].Mem
		}
		tres.Mem += mem
		for _, gpu := range alloc.GPUs {
			count := spec.Count{Name: "gpu", Type: gpu.Type}
			gpus[count.TRES()]++
			if count.TypedTRES() != "" {
				gpus[count.TypedTRES()]++
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(gpus)) {
		tres = tres.With(name, gpus[name])
	}
	return tres
}
