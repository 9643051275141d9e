// Package place decides where a job fits: what it needs of each node, which
// nodes can give it, which of them to take, and which CPUs and devices there.
// Placement is all or nothing; everything is integer arithmetic.
package place

import (
	"slices"
	"strings"

	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

// Demand is a job's request in a partition with every default resolved.
type Demand struct {
	Partition          string
	MinNodes, MaxNodes int64
	// Stretch is how many nodes the job likes to have when it does not say how
	// many tasks: as many as are free, up to this; 0 = MinNodes.
	Stretch int64
	// Grow is how many nodes the job may have so that together they give what is asked
	// for the job as a whole, when it says neither how many tasks nor exactly how many
	// nodes; 0 = the numbers are as they are.
	Grow         int64
	Tasks        int64
	TasksPerNode int64 // 0 = no bound
	CPUsPerTask  int64
	CPUsPerGPU   int64
	MinCPUs      int64 // per node
	MemPerNode   int64 // MiB; -1 = all of the node
	MemPerCPU    int64
	MemPerGPU    int64
	PerNode      []spec.Count // GRES of each node
	PerTask      []spec.Count
	PerJob       []spec.Count // spread over the nodes
	TmpDisk      int64
	Threads      int64 // of each core that are used; 0 = all
	PerCore      int64 // tasks of a core; 0 = no bound
	PerSocket    int64 // tasks for each socket of a node; 0 = no bound
	SocketGPUs   int64 // GPUs near each of some sockets, where they can be had so; they are in PerNode too
	CoreSpec     int64 // cores of each node that the tasks leave to the system; the job is exclusive
	ThreadSpec   int64 // the same in CPUs
	Overcommit   bool  // the tasks of a node share the CPUs of one
	Exclusive    bool
	Cores        bool      // whole cores only
	Memory       bool      // memory is counted
	Limit        spec.Span // time limit asked for, in this partition
	Bill         BillMode
	Tenant       Tenant
	Share        int64  // jobs on each of its CPUs, itself included; 0 = it has them for itself
	Inside       string // the reservation whose cores it runs on; empty: it is in none, or in one of whole nodes
	Emptiest     bool   // parts of devices are taken of the emptiest one (LL_SHARED_GRES)
}

// BillMode is how the weights of TRES make one figure.
type BillMode uint8

// The modes of PriorityFlags: the sum of all; the greatest of what a node has,
// plus what the cluster has; the greatest of a node's CPUs, memory and itself,
// plus all GRES and what the cluster has.
const (
	BillSum BillMode = iota
	BillMax
	BillMaxGRES
)

func billMode(priority *spec.PriorityConfig) BillMode {
	mode := BillSum
	for _, f := range priority.Flags {
		switch strings.ToUpper(f) {
		case "MAX_TRES":
			mode = max(mode, BillMax)
		case "MAX_TRES_GRES":
			mode = BillMaxGRES
		}
	}
	return mode
}

// Resolve fills a job's demand in a partition from the partition's and the
// cluster's defaults.
func Resolve(config *spec.Config, part *spec.PartitionSpec, job *spec.JobSpec) Demand {
	size := &job.Size
	demand := Demand{
		Partition: part.Name, MinNodes: int64(size.MinNodes), MaxNodes: int64(size.MaxNodes), Tasks: int64(size.Tasks),
		TasksPerNode: int64(size.TasksPerNode), CPUsPerTask: max(int64(size.CPUsPerTask), 1),
		CPUsPerGPU: int64(size.CPUsPerGPU), MinCPUs: int64(size.MinCPUsPerNode),
		MemPerNode: size.MemPerNode, MemPerCPU: size.MemPerCPU, MemPerGPU: size.MemPerGPU,
		PerNode: nonZero(
			size.PerNode,
		), PerTask: nonZero(size.PerTask), PerJob: nonZero(size.PerJob), TmpDisk: size.TmpDisk, Threads: int64(size.ThreadsPerCore), PerCore: int64(size.TasksPerCore),
		PerSocket: int64(
			size.TasksPerSocket,
		), CoreSpec: int64(size.CoreSpec), ThreadSpec: int64(size.ThreadSpec), Overcommit: size.Overcommit,
		Exclusive: (job.Place.Sharing == spec.Exclusive && !strings.HasPrefix(part.OverSubscribe, "FORCE")) ||
			size.CoreSpec+size.ThreadSpec > 0 ||
			job.Queue.Reboot ||
			part.OverSubscribe == "EXCLUSIVE",
		Cores: config.Sched.Cores, Memory: config.Sched.Memory,
		Limit: part.TimeLimit(job.Time.Limit), Bill: billMode(&config.Priority),
		Emptiest: config.Sched.LeastShared,
	}
	demand.Tenant, demand.Share = TenantIn(config, part, job)
	for _, count := range size.PerSocket {
		demand.SocketGPUs += count.N
		count.N *= int64(size.SocketsPerNode)
		demand.PerNode = append(demand.PerNode[:len(demand.PerNode):len(demand.PerNode)], count)
	}
	if demand.CPUsPerGPU == 0 {
		demand.CPUsPerGPU = first(part.DefCPUPerGPU, config.Limits.DefCPUPerGPU)
	}
	demand.resolveGPUs(size)
	demand.resolveCounts(job, part)
	demand.resolveMemory(config, part, size)
	demand.boundMemory(first(part.MaxMemPerCPU, config.Limits.MaxMemPerCPU))
	return demand
}

// nonZero drops entries that ask for nothing: --gres=gpu:0.
func nonZero(list []spec.Count) []spec.Count {
	for _, count := range list {
		if count.N > 0 {
			continue
		}
		var counts []spec.Count
		for _, c := range list {
			if c.N > 0 {
				counts = append(counts, c)
			}
		}
		return counts
	}
	return list
}

// resolveGPUs derives tasks from GPUs and the other way round: --gpus with
// --gpus-per-node says how many nodes, with --gpus-per-task how many tasks;
// --ntasks-per-gpu ties tasks to GPUs. A type that one of them says holds for all.
func (d *Demand) resolveGPUs(size *spec.Size) {
	all := countGPUs(d.PerJob)
	node := countGPUs(d.PerNode)
	task := countGPUs(d.PerTask)
	if all > 0 && node > 0 && all%node == 0 {
		d.PerNode = ofType(d.PerNode, d.PerJob)
		d.MinNodes = all / node
		d.MaxNodes = all / node
		d.PerJob = without(d.PerJob, "gpu")
	}
	if node > 0 && task > 0 && node%task == 0 {
		d.PerTask = ofType(d.PerTask, d.PerNode)
		d.TasksPerNode, d.PerNode = node/task, without(
			d.PerNode,
			"gpu",
		) // of its tasks, all together
		if d.Tasks > 0 {
			d.MinNodes, d.MaxNodes = divideUp(
				d.Tasks,
				d.TasksPerNode,
			), divideUp(
				d.Tasks,
				d.TasksPerNode,
			)
		}
	}
	if all > 0 && task > 0 && all%task == 0 {
		d.PerTask = ofType(d.PerTask, d.PerJob)
		d.Tasks, d.PerJob = all/task, without(d.PerJob, "gpu")
	}
	per := int64(size.TasksPerGPU)
	switch {
	case per == 0:
	case d.Tasks > 0 && all+node+task == 0:
		d.PerJob = append(
			d.PerJob[:len(d.PerJob):len(d.PerJob)],
			spec.Count{Name: "gpu", N: divideUp(d.Tasks, per)},
		)
	case all > 0: // the GPUs rule, whatever else is said of tasks
		d.Tasks = per * all
	case node > 0 && d.MinNodes > 0 && d.MaxNodes == d.MinNodes:
		d.Tasks, d.TasksPerNode = per*node*d.MinNodes, per*node
	case node > 0:
		d.TasksPerNode = per * node
	}
}

// ofType is a list whose GPUs are of the type that another one says, if it does
// and they have none.
func ofType(list, other []spec.Count) []spec.Count {
	k := slices.IndexFunc(other, func(c spec.Count) bool { return c.Name == "gpu" && c.Type != "" })
	if k < 0 {
		return list
	}
	list = slices.Clone(list)
	for i := range list {
		if count := &list[i]; count.Name == "gpu" && count.Type == "" {
			count.Type = other[k].Type
		}
	}
	return list
}

func without(list []spec.Count, name string) []spec.Count {
	var counts []spec.Count
	for _, count := range list {
		if count.Name != name {
			counts = append(counts, count)
		}
	}
	return counts
}

// resolveCounts settles nodes and tasks. Nodes that are named are the least
// there are; more nodes than tasks are not used; the partition's own bounds
// apply where the job leaves room for them.
func (d *Demand) resolveCounts(job *spec.JobSpec, part *spec.PartitionSpec) {
	named, placed := int64(0), int64(0)
	if job.Place.Nodes != "" {
		if list, err := hostlist.Parse(job.Place.Nodes); err == nil {
			named = int64(list.Unique().Len())
			placed = named
			if strings.HasPrefix(job.Place.Distribution, "arbitrary") {
				placed = int64(list.Len()) // each time that a node is named stands for a task
			}
		}
	}
	given := d.MinNodes > 0
	d.MinNodes = max(d.MinNodes, named)
	if d.Tasks == 0 && d.TasksPerNode > 0 && !d.Overcommit {
		// Without a number of tasks, every node takes as many as are said to be on a node.
		d.MinCPUs = max(d.MinCPUs, d.TasksPerNode*d.CPUsPerTask)
	}
	if d.MaxNodes > 0 {
		d.MaxNodes = max(d.MaxNodes, d.MinNodes)
	}
	if d.Tasks == 0 {
		d.Tasks = max(d.MinNodes, 1) * max(d.TasksPerNode, 1)
		if countGPUs(d.PerJob) > 1 && (!given || d.MaxNodes > d.MinNodes) {
			d.Grow = first(d.MaxNodes, countGPUs(d.PerJob))
		}
		if len(d.PerJob) == 0 && d.MaxNodes > max(d.MinNodes, 1) {
			if !job.Size.FewestNodes {
				d.Stretch = d.MaxNodes
			}
			d.MaxNodes = max(d.MinNodes, 1)
		}
	}
	d.Tasks = max(d.Tasks, placed)
	d.MinNodes = max(min(d.MinNodes, d.Tasks), 1)
	if d.TasksPerNode > 0 && given &&
		divideUp(d.Tasks, d.TasksPerNode) > max(d.MaxNodes, d.MinNodes) {
		d.TasksPerNode = 0 // the numbers of nodes and tasks rule
	}
	if d.TasksPerNode > 0 {
		d.MinNodes = max(d.MinNodes, divideUp(d.Tasks, d.TasksPerNode))
	}
	if d.MaxNodes == 0 {
		d.MaxNodes = d.Tasks
		if given {
			d.MaxNodes = d.MinNodes
		}
	}
	d.MaxNodes = max(min(d.MaxNodes, d.Tasks), d.MinNodes)
	for _, most := range [...]int64{int64(len(part.NodeNames)), int64(part.MaxNodes)} {
		if most > 0 && d.MinNodes <= most {
			d.MaxNodes = min(d.MaxNodes, most)
			d.Stretch = min(d.Stretch, most)
			d.Grow = min(d.Grow, most)
		}
	}
	if least := int64(part.MinNodes); least <= d.MaxNodes {
		d.MinNodes = max(d.MinNodes, least)
	}
}

func (d *Demand) resolveMemory(config *spec.Config, part *spec.PartitionSpec, size *spec.Size) {
	if size.AllMem {
		d.MemPerNode = -1
		d.MemPerCPU = 0
		d.MemPerGPU = 0
		return
	}
	if d.MemPerNode > 0 || d.MemPerCPU > 0 || d.MemPerGPU > 0 {
		return
	}
	by := DefaultMemory(config, part, d.WantsGPU())
	d.MemPerNode = by.Node
	d.MemPerCPU = by.CPU
	d.MemPerGPU = by.GPU
	if by == (MemoryBy{}) && d.Memory {
		d.MemPerNode = -1 // without a default a job gets the node's memory
	}
}

// MemoryBy is memory in MiB by what it is counted by; one of them at most is set.
type MemoryBy struct{ Node, CPU, GPU int64 }

// DefaultMemory is what a job that requests no memory gets in a partition: the partition's
// default, or else the cluster's. Zero where neither has one.
func DefaultMemory(config *spec.Config, part *spec.PartitionSpec, wantsGPU bool) MemoryBy {
	all := &config.Limits
	switch {
	case part.DefMemPerCPU > 0:
		return MemoryBy{CPU: part.DefMemPerCPU}
	case part.DefMemPerNode > 0:
		return MemoryBy{Node: part.DefMemPerNode}
	case part.DefMemPerGPU > 0 && wantsGPU:
		return MemoryBy{GPU: part.DefMemPerGPU}
	case all.DefMemPerCPU > 0:
		return MemoryBy{CPU: all.DefMemPerCPU}
	case all.DefMemPerNode > 0:
		return MemoryBy{Node: all.DefMemPerNode}
	case all.DefMemPerGPU > 0 && wantsGPU:
		return MemoryBy{GPU: all.DefMemPerGPU}
	}
	return MemoryBy{}
}

// boundMemory applies MaxMemPerCPU: a job that wants more memory per CPU gets
// as many CPUs as that memory is worth.
func (d *Demand) boundMemory(most int64) {
	if most <= 0 {
		return
	}
	if d.MemPerCPU > most {
		times := divideUp(d.MemPerCPU, most)
		d.CPUsPerTask, d.MemPerCPU = d.CPUsPerTask*times, divideUp(d.MemPerCPU, times)
	}
	if d.MemPerNode > most {
		d.MinCPUs = max(d.MinCPUs, divideUp(d.MemPerNode, most))
	}
}

// WantsGPU tells whether any GPU is asked for.
func (d *Demand) WantsGPU() bool {
	return countGPUs(d.PerNode)+countGPUs(d.PerTask)+countGPUs(d.PerJob) > 0
}

func countGPUs(list []spec.Count) int64 {
	var n int64
	for _, count := range list {
		if count.Name == "gpu" {
			n += count.N
		}
	}
	return n
}

// Even is the number of tasks that every node gets when the demand leaves no
// choice: a fixed number of nodes with the same number of tasks each, and
// nothing to be spread over them. It is false when placement must find out.
func (d *Demand) Even() (tasks int64, ok bool) {
	if d.MinNodes != d.MaxNodes || (d.MinNodes > 1 && len(d.PerJob) > 0) ||
		d.Tasks%d.MinNodes != 0 {
		return 0, false
	}
	tasks = d.Tasks / d.MinNodes
	return tasks, d.MinNodes == 1 || tasks == 1 || tasks == d.TasksPerNode
}

// Least is the smallest vector that satisfies the demand, with billing: what
// a pending job is counted as. Typed GRES count under both names.
func (d *Demand) Least(weights []spec.Weight) spec.TRES {
	nodes := d.MinNodes
	cpus := d.Tasks * d.CPUsPerTask
	if d.Overcommit {
		cpus = nodes * d.CPUsPerTask
	}
	tres := spec.TRES{Node: nodes, CPU: max(cpus, d.MinCPUs*nodes, nodes)}
	for _, count := range d.PerNode {
		tres = addGRES(tres, count, nodes)
	}
	for _, count := range d.PerTask {
		tres = addGRES(tres, count, d.Tasks)
	}
	for _, count := range d.PerJob {
		tres = addGRES(tres, count, 1)
	}
	g := tres.Get("gres/gpu")
	tres.CPU = max(tres.CPU, g*d.CPUsPerGPU)
	switch {
	case d.MemPerNode > 0:
		tres.Mem = d.MemPerNode * nodes
	case d.MemPerGPU > 0 && g > 0:
		tres.Mem = d.MemPerGPU * g
	case d.MemPerCPU > 0:
		tres.Mem = d.MemPerCPU * tres.CPU
	}
	tres.Billing = d.Billing(tres, weights)
	return tres
}

func addGRES(tres spec.TRES, count spec.Count, times int64) spec.TRES {
	tres = tres.With(count.TRES(), tres.Get(count.TRES())+count.N*times)
	if typed := count.TypedTRES(); typed != "" {
		tres = tres.With(typed, tres.Get(typed)+count.N*times)
	}
	return tres
}

// Billing is the amounts times TRESBillingWeights as the cluster adds them up;
// one per CPU without weights. Memory weighs per MiB, as Slurm's weights do
// without a suffix.
func (d *Demand) Billing(tres spec.TRES, weights []spec.Weight) int64 {
	if len(weights) == 0 {
		return tres.CPU
	}
	var sum, greatest int64
	for _, weight := range weights {
		micro := tres.Get(weight.TRES) * weight.Micro / max(weight.Per, 1)
		global := strings.HasPrefix(weight.TRES, "license/") ||
			strings.HasPrefix(weight.TRES, "bb/")
		switch {
		case d.Bill == BillSum,
			global,
			d.Bill == BillMaxGRES && strings.HasPrefix(weight.TRES, "gres/"):
			sum += micro
		default:
			greatest = max(greatest, micro)
		}
	}
	return (sum + greatest) / 1_000_000
}

func first(values ...int64) int64 {
	for _, v := range values {
		if v != 0 {
			return v
		}
	}
	return 0
}

func divideUp(a, b int64) int64 { return (a + b - 1) / b }
