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

// hasSteps tells whether other steps use some of the job's CPUs on the node.
func (n *stepNode) hasSteps() bool { return n.cpus.Count() < n.whole.CPUs.Count() }

// layStep chooses what a step gets of its job: nodes in the job's order, then
// tasks over them, then CPUs, memory and GPUs. CodeNodesBusy tells that others
// have what it asks for; another error, that the job can never give it.
// No node gets more than most tasks.
func layStep(job *state.Job, step *spec.StepSpec, most uint32) ([]spec.NodeAlloc, error) {
	free, err := stepNodes(job, step, most, true)
	if err != nil {
		return nil, err
	}
	allocations, err := fitStep(job, step, free)
	if err == nil {
		return allocations, nil
	}
	empty, err2 := stepNodes(job, step, most, false)
	if err2 != nil {
		return nil, err2
	}
	if _, never := fitStep(job, step, empty); never != nil {
		return nil, never
	}
	return nil, spec.Refuse(spec.CodeNodesBusy, "")
}

// stepNodes lists the nodes that a step may use, less what others have when
// taken is set.
func stepNodes(job *state.Job, step *spec.StepSpec, most uint32, taken bool) ([]stepNode, error) {
	if most == 0 {
		most = maxStepTasks
	}
	names, err := hostlist.Expand(step.Nodes)
	if err != nil {
		return nil, spec.Refuse(spec.CodeInvalidNodeName, err.Error())
	}
	without, err := hostlist.Expand(step.Exclude)
	if err != nil {
		return nil, spec.Refuse(spec.CodeInvalidNodeName, err.Error())
	}
	var nodes []stepNode
	for i := range job.Alloc.Nodes {
		alloc := &job.Alloc.Nodes[i]
		if job.Done.Has(i) || slices.Contains(job.Leaving, alloc.Name) {
			continue // the job gives it back
		}
		beforeFirst := step.Relative > 0 && uint32(i) < step.Relative-1
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
		if taken && !step.Overlap && !step.External {
			node.subtractSteps(job)
		}
		nodes = append(nodes, node)
	}
	for _, name := range names {
		if !slices.ContainsFunc(nodes, func(n stepNode) bool { return n.whole.Name == name }) {
			return nil, spec.Refuse(spec.CodeNodeConfigUnavailable, "node "+name+
				" is not one of the job's, or is excluded")
		}
	}
	if len(nodes) == 0 {
		return nil, spec.Refuse(
			spec.CodeNodeConfigUnavailable,
			"no node of the job is left for the step",
		)
	}
	return nodes, nil
}

// subtractSteps takes away what the job's other steps hold.
func (n *stepNode) subtractSteps(job *state.Job) {
	for i := range job.Steps {
		other := &job.Steps[i]
		at := other.Part(n.whole.Name)
		if at < 0 || other.Shares() {
			continue
		}
		allocation := &other.Layout[at]
		n.cpus, n.mem = n.cpus.AndNot(allocation.CPUs), n.mem-allocation.Mem
		n.gpus = slices.DeleteFunc(slices.Clone(n.gpus), func(gpu spec.GPURef) bool {
			return slices.ContainsFunc(allocation.GPUs, func(h spec.GPURef) bool {
				return h.UUID == gpu.UUID
			})
		})
	}
}

// stepSize is how many nodes and tasks a step has.
type stepSize struct {
	least, most int // nodes
	tasks       int // 0 = one a node, or TasksPerNode of each
}

func sizeStep(job *state.Job, step *spec.StepSpec, nodes []stepNode) (stepSize, error) {
	size := stepSize{
		least: int(step.MinNodes),
		most:  int(max(step.MinNodes, step.MaxNodes)),
		tasks: int(step.Tasks),
	}
	named := 0
	for i := range nodes {
		if nodes[i].named {
			named++
		}
	}
	if size.most == 0 { // not said: all, but no more than there are tasks
		size.least, size.most = max(named, 1), len(nodes)
		if named > 0 {
			size.most = named
		}
		if size.tasks > 0 && size.tasks < size.most {
			size.most = max(size.tasks, named)
		}
		if step.Tasks == 0 || named > 0 {
			size.least = size.most
		}
	}
	size.most = min(size.most, len(nodes))
	switch {
	case size.least > len(nodes):
		return size, spec.Refuse(
			spec.CodeNodeCountInvalid,
			fmt.Sprintf(
				"the job has %s for the step, and it asks for %d",
				format.Plural(len(nodes), "node", "nodes"),
				size.least,
			),
		)
	case size.tasks > 0 && size.tasks < size.least:
		return size, spec.Refuse(
			spec.CodeTaskCountInvalid,
			fmt.Sprintf(
				"%s cannot be on %d nodes", format.Plural(size.tasks, "task", "tasks"), size.least,
			),
		)
	case size.tasks > maxStepTasks:
		return size, spec.Refuse(spec.CodeTaskCountInvalid, "")
	}
	return size, nil
}

// fitStep lays a step over nodes.
func fitStep(job *state.Job, step *spec.StepSpec, nodes []stepNode) ([]spec.NodeAlloc, error) {
	size, err := sizeStep(job, step, nodes)
	if err != nil {
		return nil, err
	}
	asked := make([]int, len(nodes)) // how many tasks each could have
	var chosen []int
	for _, named := range [...]bool{true, false} {
		for i := range nodes {
			if nodes[i].named != named || len(chosen) >= size.most {
				continue
			}
			asked[i] = nodes[i].countRoom(step)
			if asked[i] > 0 {
				chosen = append(chosen, i)
			} else if named {
				return nil, tooSmall(step)
			}
		}
	}
	slices.Sort(chosen)
	if len(chosen) < size.least {
		return nil, tooSmall(step)
	}
	counts, err := spread(job, step, size, nodes, chosen, asked)
	if err != nil {
		return nil, err
	}
	return giveStep(step, nodes, chosen, counts)
}

func tooSmall(step *spec.StepSpec) error {
	what := fmt.Sprintf("with %d CPUs for each task", max(step.CPUsPerTask, 1))
	return spec.Refuse(spec.CodeTooManyCPUs, "the job's nodes have no room for the step "+what)
}

// countRoom is how many tasks fit on a node; a step that takes whole nodes finds no
// room beside another.
func (n *stepNode) countRoom(step *spec.StepSpec) int {
	if step.External {
		return n.most
	}
	if !step.Exact && n.hasSteps() {
		return 0
	}
	room := min(n.cpus.Count()/int(max(step.CPUsPerTask, 1)), n.most)
	if step.Overcommit && n.cpus.Count() > 0 {
		room = n.most
	}
	for _, count := range step.PerTask {
		if count.Name == "gpu" && count.N > 0 {
			room = min(room, countGPUs(n.gpus, count.Type)/int(count.N))
		}
	}
	for _, count := range step.PerNode {
		if count.Name == "gpu" && int64(countGPUs(n.gpus, count.Type)) < count.N {
			return 0
		}
	}
	if !step.NoGRES && !asksGPUs(step) && len(n.gpus) < len(n.whole.GPUs) {
		return 0 // it gets all of the job's, and others have some
	}
	if step.MemPerNode > n.mem || step.MemPerCPU > n.mem {
		return 0
	}
	if step.MemPerCPU > 0 {
		room = min(room, int(n.mem/(step.MemPerCPU*int64(max(step.CPUsPerTask, 1)))))
	}
	if step.TasksPerNode > 0 && step.Tasks == 0 && room < int(step.TasksPerNode) {
		return 0
	}
	return room
}

func asksGPUs(step *spec.StepSpec) bool {
	return slices.ContainsFunc(
		slices.Concat(step.PerNode, step.PerStep, step.PerTask),
		func(c spec.Count) bool { return c.Name == "gpu" },
	)
}

func countGPUs(list []spec.GPURef, typ string) int {
	n := 0
	for _, gpu := range list {
		if typ == "" || gpu.Type == typ {
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
	step *spec.StepSpec,
	size stepSize,
	nodes []stepNode,
	chosen, room []int,
) ([]int, error) {
	counts := make([]int, len(chosen))
	most := func(k int) int {
		r := room[chosen[k]]
		if step.TasksPerNode > 0 {
			r = min(r, int(step.TasksPerNode))
		}
		return r
	}
	if size.tasks == 0 {
		for k := range counts {
			counts[k] = int(max(step.TasksPerNode, 1))
			if counts[k] > most(k) {
				return nil, tooSmall(step)
			}
		}
		return counts, nil
	}
	if len(step.TaskNodes) == 0 && asJob(job, step, nodes, chosen, counts, most) {
		return counts, nil
	}
	if len(step.TaskNodes) > 0 {
		return counts, countArbitrary(step, nodes, chosen, counts, most)
	}
	left := size.tasks
	deal := func(k, n int) {
		n = min(n, left, most(k)-counts[k])
		counts[k], left = counts[k]+n, left-n
	}
	for k := range counts {
		deal(k, 1)
	}
	turn := 1
	if plane := int(step.Plane()); plane > 0 {
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
			fmt.Sprintf("%d of its %d tasks find no CPUs in the job", left, size.tasks),
		)
	}
	return counts, nil
}

// countArbitrary counts the tasks that the distribution arbitrary puts on each node.
func countArbitrary(
	step *spec.StepSpec,
	nodes []stepNode,
	chosen, counts []int,
	most func(int) int,
) error {
	sum := 0
	for k, i := range chosen {
		for _, name := range step.TaskNodes {
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
	if sum != int(step.Tasks) {
		return spec.Refuse(
			spec.CodeBadDistribution,
			fmt.Sprintf(
				"the host file places %s on the nodes of the step, and it has %d",
				format.Plural(sum, "task", "tasks"),
				step.Tasks,
			),
		)
	}
	return nil
}

// asJob gives a step with as many tasks as the job, on all of its nodes, the
// job's own tasks on each.
func asJob(
	job *state.Job,
	step *spec.StepSpec,
	nodes []stepNode,
	chosen, counts []int,
	most func(int) int,
) bool {
	if step.TasksPerNode > 0 || step.Distribution != "" || len(chosen) != len(job.Alloc.Nodes) ||
		step.Tasks != job.Alloc.Tasks {
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
	if sum != int(step.Tasks) {
		return false
	}
	for k, i := range chosen {
		counts[k] = int(nodes[i].whole.Tasks)
	}
	return true
}

// giveStep turns counts of tasks into CPUs, memory and devices.
func giveStep(
	step *spec.StepSpec, nodes []stepNode, chosen, counts []int,
) ([]spec.NodeAlloc, error) {
	wanted := map[string]int64{} // GPUs of the whole step that are still to be found, by type
	for _, count := range step.PerStep {
		if count.Name == "gpu" {
			wanted[count.Type] += count.N
		}
	}
	used := 0
	for _, n := range counts {
		if n > 0 {
			used++
		}
	}
	var allocations []spec.NodeAlloc
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
			Mem:   step.MemPerNode,
		}
		if step.Exact && !step.Overcommit {
			alloc.CPUs = firstCPUs(node.cpus, counts[k]*int(max(step.CPUsPerTask, 1)))
		}
		if step.MemPerCPU > 0 {
			alloc.Mem = min(step.MemPerCPU*int64(alloc.CPUs.Count()), node.mem)
		}
		if !step.NoGRES {
			alloc.GPUs = node.stepGPUs(step, counts[k], wanted, used-len(allocations))
			alloc.GRES, alloc.Shares = node.whole.GRES, node.whole.Shares
		}
		allocations = append(allocations, alloc)
	}
	for i := range allocations { // a node had less than its share
		if step.NoGRES {
			break
		}
		at := slices.IndexFunc(nodes, func(n stepNode) bool {
			return n.whole.ID == allocations[i].ID
		})
		for _, typ := range slices.Sorted(maps.Keys(wanted)) {
			if n := wanted[typ]; n > 0 {
				wanted[typ] -= takeGPUs(&allocations[i].GPUs, nodes[at].gpus, typ, n)
			}
		}
	}
	for _, count := range step.PerStep {
		if wanted[count.Type] > 0 && count.Name == "gpu" {
			return nil, spec.Refuse(
				spec.CodeInvalidGRES,
				fmt.Sprintf("the step requests %d GPUs more than the job has", wanted[count.Type]),
			)
		}
	}
	return allocations, nil
}

// stepGPUs chooses a node's devices for a step, in their order. Those of the whole
// step are spread evenly: left is how many nodes, with this one, still get some.
func (n *stepNode) stepGPUs(
	step *spec.StepSpec,
	tasks int,
	wanted map[string]int64,
	left int,
) []spec.GPURef {
	if !asksGPUs(step) {
		return n.gpus
	}
	var gpus []spec.GPURef
	for _, count := range step.PerNode {
		if count.Name == "gpu" {
			takeGPUs(&gpus, n.gpus, count.Type, count.N)
		}
	}
	for _, count := range step.PerTask {
		if count.Name == "gpu" {
			takeGPUs(&gpus, n.gpus, count.Type, count.N*int64(tasks))
		}
	}
	for _, count := range step.PerStep {
		if count.Name == "gpu" {
			fair := (wanted[count.Type] + int64(left) - 1) / int64(left)
			wanted[count.Type] -= takeGPUs(&gpus, n.gpus, count.Type, fair)
		}
	}
	return gpus
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
		memory := alloc.Mem
		if at := job.Alloc.Index(alloc.ID); memory == 0 && at >= 0 {
			memory = job.Alloc.Nodes[at].Mem
		}
		tres.Mem += memory
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
