package place

import (
	"github.com/musterhpc/muster/spec"
)

// Lack is what a node is short of.
type Lack struct {
	What string // cpu, mem, gres/gpu, tmp, or "" when nothing
	Free int64
	Need int64
}

// amountsFor is what a number of tasks needs of one node in CPUs, memory and
// GPUs; more is the node's part of --gpus.
func (d *Demand) amountsFor(shape *Shape, tasks, more int64) (cpus, memory, gpu int64) {
	if d.Exclusive {
		cpus, gpu = shape.CPUs, shape.GPUs
	} else {
		gpu = countGPUs(d.PerNode) + tasks*countGPUs(d.PerTask) + more
		cpus = max(d.ofTasks(tasks), d.MinCPUs, gpu*d.CPUsPerGPU, 1)
		cpus = d.onCores(shape, cpus, tasks)
	}
	switch {
	case d.MemPerNode < 0 && d.Memory:
		memory = shape.Mem
	case d.MemPerNode > 0:
		memory = d.MemPerNode
	case d.MemPerGPU > 0 && gpu > 0:
		memory = d.MemPerGPU * gpu
	case d.MemPerCPU > 0:
		memory = d.MemPerCPU * cpus
	}
	return cpus, memory, gpu
}

// ofTasks are the CPUs of a number of tasks on one node: those of each, or where
// they share them those of one.
func (d *Demand) ofTasks(tasks int64) int64 {
	if d.Overcommit {
		tasks = min(tasks, 1)
	}
	return tasks * d.CPUsPerTask
}

// onCores rounds CPUs up to whole cores, where these are what is given, of
// which only some threads may be used, and as many as the tasks need that
// share a core with few others or none.
func (d *Demand) onCores(shape *Shape, cpus, tasks int64) int64 {
	if !d.Cores || shape.Threads <= 1 {
		return cpus
	}
	use := shape.Threads
	if d.Threads > 0 {
		use = min(use, d.Threads)
	}
	cores := divideUp(cpus, use)
	switch {
	case d.PerCore == 1 && !d.Overcommit:
		cores = max(cores, tasks*divideUp(d.CPUsPerTask, use))
	case d.Overcommit:
	case d.PerCore > 1:
		cores = max(cores, divideUp(tasks, d.PerCore))
	}
	return cores * shape.Threads
}

// firstLack names the first thing that a node with f free is short of for a number
// of tasks, or returns the zero Lack.
func (d *Demand) firstLack(shape *Shape, free *Free, tasks int64) Lack {
	solo := int64(0)
	if d.MaxNodes == 1 {
		solo = countGPUs(d.PerJob)
	}
	cpus, memory, gpu := d.amountsFor(shape, tasks, solo)
	asked, most := d.onCores(
		shape,
		max(d.ofTasks(tasks), d.MinCPUs),
		tasks,
	), max(
		shape.CPUs-d.CoreSpec*shape.Threads-d.ThreadSpec,
		0,
	)
	switch {
	case d.Threads > shape.Threads:
		return Lack{"threads", shape.Threads, d.Threads}
	case cpus > free.CPU && d.ofNode(shape):
		return Lack{"cpu", free.CPU, cpus}
	case d.PerSocket > 0 && tasks > d.PerSocket*shape.Sockets:
		return Lack{"ntasks-per-socket", d.PerSocket * shape.Sockets, tasks}
	case asked > most:
		return Lack{"cpu", most, asked} // an exclusive job is bound by the node's size alone
	case cpus > shape.CPUs:
		return Lack{"cpu", shape.CPUs, cpus}
	case d.Memory && memory > free.Mem:
		return Lack{"mem", free.Mem, memory}
	case d.TmpDisk > shape.Tmp:
		return Lack{"tmp", shape.Tmp, d.TmpDisk}
	case gpu > d.gpusFree(shape, free):
		return d.lackGPUs(shape, free, tasks, gpu)
	}
	for i := range shape.Kinds {
		if k := &shape.Kinds[i]; shape.capsCPUs(k, d) && !d.Exclusive && cpus > free.More[i] {
			return Lack{"cpu", free.More[i], cpus}
		}
	}
	for _, list := range [...][]spec.Count{d.PerNode, d.PerTask, d.PerJob} {
		for _, count := range list {
			if have, want := d.freeAmount(shape, free, count), d.wantedOf(count, tasks); have < want {
				return Lack{nameOf(count), have, want}
			}
		}
	}
	if d.Exclusive && !free.Holds(d.wholeNode(shape)) {
		return Lack{"exclusive", free.CPU, shape.CPUs}
	}
	return Lack{}
}

// lackGPUs names the type of which there are too few, where one is asked for.
func (d *Demand) lackGPUs(shape *Shape, free *Free, tasks, all int64) Lack {
	for _, list := range [...][]spec.Count{d.PerNode, d.PerTask, d.PerJob} {
		for _, count := range list {
			if count.Name != "gpu" || count.Type == "" {
				continue
			}
			if have, want := d.freeAmount(shape, free, count), d.wantedOf(count, tasks); have < want {
				return Lack{count.TypedTRES(), have, want}
			}
		}
	}
	return Lack{"gres/gpu", d.gpusFree(shape, free), all}
}

func nameOf(count spec.Count) string {
	if count.Type != "" {
		return count.TypedTRES()
	}
	return count.TRES()
}

// wantedOf is how much of one GRES a number of tasks needs of one node, all
// entries of the same name and type together. What is asked for the job as a
// whole may come from other nodes if there can be any.
func (d *Demand) wantedOf(count spec.Count, tasks int64) int64 {
	n := sumOf(d.PerNode, count) + tasks*sumOf(d.PerTask, count)
	if d.MaxNodes == 1 {
		n += sumOf(d.PerJob, count)
	}
	return n
}

func sumOf(list []spec.Count, count spec.Count) int64 {
	var n int64
	for _, o := range list {
		if o.Name == count.Name && o.Type == count.Type {
			n += o.N
		}
	}
	return n
}

// gpusFree is how many GPUs of a node are free to the job: of those that its
// reservation keeps, or else of the node's.
func (d *Demand) gpusFree(shape *Shape, free *Free) int64 {
	own, n := shape.resvGPUs(d.Inside), free.GPU
	if own >= 0 {
		n = free.More[own]
	}
	for i := range shape.Kinds {
		if k := &shape.Kinds[i]; own < 0 && k.Counts == CountsOpenGPUs {
			n = min(n, free.More[i])
		}
	}
	return n
}

// freeAmount is how much of a GRES is free to the job. Of a resource in several
// types an untyped request may use all of them together.
func (d *Demand) freeAmount(shape *Shape, free *Free, count spec.Count) int64 {
	if shape.byDevice(count.Name) {
		return free.freeDevices(shape, count)
	}
	if count.Name == "gpu" {
		switch {
		case !shape.hasKind("gpu"):
			if count.Type != "" && count.Type != shape.GPUType {
				return 0
			}
			return d.gpusFree(shape, free)
		case count.Type == "":
			return min(d.gpusFree(shape, free), free.sumOf(shape, "gpu"))
		}
	}
	for _, o := range shape.Shared {
		if o.Name == count.Name && (count.Type == "" || o.Type == count.Type) {
			return o.N
		}
	}
	if count.Type == "" {
		return free.sumOf(shape, count.Name)
	}
	for i := range shape.Kinds {
		if kind := &shape.Kinds[i]; !kind.Counts.isLimit() && kind.Name == count.Name &&
			kind.Type == count.Type {
			return free.More[i]
		}
	}
	return 0
}

func (f *Free) sumOf(shape *Shape, name string) int64 {
	var n int64
	for i := range shape.Kinds {
		if k := &shape.Kinds[i]; !k.Counts.isLimit() && k.Name == name {
			n += f.More[i]
		}
	}
	return n
}

// wholeNode is what an exclusive job takes of a node: everything but memory, of
// which it takes what it asked for.
func (d *Demand) wholeNode(shape *Shape) *Free {
	free := shape.Whole()
	_, free.Mem, _ = d.amountsFor(shape, 1, 0)
	if !d.Memory {
		free.Mem = 0
	}
	for i := range shape.Kinds {
		kind := &shape.Kinds[i]
		if !kind.Counts.isLimit() {
			continue
		}
		free.More[i] = 0
		if shape.capsCPUs(kind, d) {
			free.More[i] = min(kind.N, shape.CPUs)
		}
		if kind.Counts == CountsOpenCPUs && kind.Name == d.Inside {
			free.CPU = 0 // they are counted there
		}
	}
	if k := shape.resvGPUs(d.Inside); k >= 0 && shape.Kinds[k].Counts.isOpen() {
		free.GPU = 0
	}
	shape.takeGPUs(&free, d.Inside, shape.GPUs)
	return &free
}

// Fits tells how many tasks a node with f free can take; 0 = none. The Lack
// names what is missing for the first task.
func (d *Demand) Fits(shape *Shape, free *Free) (tasks int64, lack Lack) {
	most := d.Tasks
	if d.TasksPerNode > 0 {
		most = min(most, d.TasksPerNode)
	}
	if d.firstLack(shape, free, most).What == "" {
		return most, Lack{}
	}
	lack = d.firstLack(shape, free, 1)
	if lack.What != "" {
		return 0, lack
	}
	low, high := int64(1), most // low fits, high does not
	for high-low > 1 {
		if mid := (low + high) / 2; d.firstLack(shape, free, mid).What == "" {
			low = mid
		} else {
			high = mid
		}
	}
	return low, Lack{}
}

// FitsOneNode tells whether a node that can take a number of tasks can take the whole job.
func (d *Demand) FitsOneNode(tasks int64) bool {
	return tasks >= d.Tasks && d.MinNodes <= 1 && len(d.PerJob) == 0
}

// Lacks tells what a node with f free is short of for its share of the
// demand: the tasks that every node gets, or one where that is left open.
func (d *Demand) Lacks(shape *Shape, free *Free) Lack {
	tasks, even := d.Even()
	if !even {
		tasks = 1
	}
	return d.firstLack(shape, free, tasks)
}

// roomFor is how much of a GRES that is asked for the job as a whole a node can
// give: the devices that it also has the CPUs and the memory for.
func (d *Demand) roomFor(shape *Shape, free *Free, count spec.Count) int64 {
	n := max(d.freeAmount(shape, free, count)-sumOf(d.PerNode, count)-sumOf(d.PerTask, count), 0)
	if count.Name != "gpu" || d.Exclusive {
		return n
	}
	for ; n > 0; n-- {
		if cpus, memory, _ := d.amountsFor(shape, 1, n); d.hasCPUs(shape, free, cpus) &&
			(!d.Memory || memory <= free.Mem) {
			break
		}
	}
	return n
}

// hasCPUs tells whether a node with f free can give a number of CPUs to a
// demand that is not exclusive: one that shares them has no more than the node,
// and none has more than its partition may use there.
func (d *Demand) hasCPUs(shape *Shape, free *Free, cpus int64) bool {
	if cpus > shape.CPUs || (d.ofNode(shape) && cpus > free.CPU) {
		return false
	}
	for i := range shape.Kinds {
		if shape.capsCPUs(&shape.Kinds[i], d) && cpus > free.More[i] {
			return false
		}
	}
	return true
}

// Need is the part of a demand that one node carries: what it takes, and what
// the allocation says about it.
type Need struct {
	Use    Free
	CPUs   int64 // also where they are shared, so that Use has none
	Mem    int64 // MiB, also where memory is not counted
	GRES   []spec.Count
	Tenant *Tenant
	// Devices are the GPUs and their parts, where the node counts them one by one.
	Devices []DeviceUse
}

// capsCPUs tells the counter that bounds the CPUs of a demand, beside those of the
// node.
func (s *Shape) capsCPUs(kind *Kind, demand *Demand) bool {
	switch {
	case kind.Counts.gpusOfReservation():
		return false
	case kind.Counts == CountsRealCPUs:
		return demand.Share == 0
	case kind.Counts.isReserved():
		return kind.Name == demand.Inside ||
			kind.Counts.isOpen() && demand.Share == 0 && !s.keepsCores(demand.Inside)
	}
	return kind.Counts.isLimit() && kind.Name == demand.Partition &&
		(kind.Counts == CountsSharedCPUs) == (demand.Share > 0)
}

// ofNode tells whether the CPUs of a demand are counted against the node's: they
// are not shared, and no reservation has them already.
func (d *Demand) ofNode(shape *Shape) bool { return d.Share == 0 && !shape.keepsCores(d.Inside) }

// Need computes what a node of a shape gives to a number of tasks with its
// part of the GRES asked for the job as a whole. Untyped requests for a
// resource in several types are taken from where most is free. It is false if
// the node cannot give it.
func (d *Demand) Need(shape *Shape, free *Free, tasks int64, part []spec.Count) (Need, bool) {
	return d.needOf(&Candidate{Shape: shape, Free: *free}, tasks, part)
}

func (d *Demand) needOf(cand *Candidate, tasks int64, part []spec.Count) (Need, bool) {
	shape, free := cand.Shape, &cand.Free
	gres := append([]spec.Count(nil), d.PerNode...)
	for _, count := range d.PerTask {
		count.N *= tasks
		gres = append(gres, count)
	}
	gres = mergeCounts(append(gres, part...))
	var need Need
	if d.Exclusive {
		for _, count := range gres {
			if d.freeAmount(shape, free, count) < count.N {
				return need, false
			}
		}
		need.Use, need.Tenant = *d.wholeNode(shape), &d.Tenant
		need.CPUs = shape.CPUs
		if shape.Devices && !need.allDevices(d, cand, gres) {
			return need, false
		}
		need.GRES = append(need.GRES, wholeGRES(shape, gres)...)
		_, need.Mem, _ = d.amountsFor(shape, tasks, 0)
		return need, free.Holds(&need.Use)
	}
	cpus, memory, gpu := d.amountsFor(shape, tasks, countGPUs(part))
	if !d.hasCPUs(shape, free, cpus) {
		return need, false
	}
	need.Use = Free{CPU: cpus, GPU: gpu}
	need.Mem = memory
	need.CPUs = cpus
	need.Tenant = &d.Tenant
	if !d.ofNode(shape) {
		need.Use.CPU = 0
	}
	if d.Memory {
		need.Use.Mem = memory
	}
	if len(shape.Kinds) > 0 {
		need.Use.More = make([]int64, len(shape.Kinds))
		for i := range shape.Kinds {
			if shape.capsCPUs(&shape.Kinds[i], d) {
				need.Use.More[i] = cpus
			}
		}
		if shape.resvGPUs(d.Inside) >= 0 {
			need.Use.GPU = 0
		}
		shape.takeGPUs(&need.Use, d.Inside, gpu)
	}
	for _, typed := range [...]bool{true, false} {
		for _, count := range gres {
			if (count.Type != "") == typed && !need.take(d, cand, count) {
				return need, false
			}
		}
	}
	return need, free.Holds(&need.Use)
}

// take adds one GRES to a need.
func (n *Need) take(demand *Demand, cand *Candidate, count spec.Count) bool {
	shape, free := cand.Shape, &cand.Free
	if shape.byDevice(count.Name) {
		return n.takeDevices(demand, cand, count)
	}
	if shared(shape, count) || (count.Name == "gpu" && !shape.hasKind("gpu")) {
		if demand.freeAmount(shape, free, count) < count.N {
			return false
		}
		if count.Name == "gpu" {
			count.Type = shape.GPUType
		}
		n.GRES = append(n.GRES, count)
		return true
	}
	for count.N > 0 {
		kind := n.kindFor(cand, count)
		if kind < 0 {
			return false
		}
		k := &shape.Kinds[kind]
		got := min(count.N, free.More[kind]-n.Use.More[kind])
		n.Use.More[kind] += got
		n.GRES = append(n.GRES, spec.Count{Name: k.Name, Type: k.Type, N: got})
		count.N -= got
	}
	return true
}

// kindFor is the kind of which a GRES is taken next: the first that has all of it,
// else the first that has some; -1 if none has any.
//
// The order is the node's own and not that of what is free. A job that was planned
// on one kind is planned on it again after a job behind it has taken some of the
// same kind; otherwise it would move to where it delays what was promised to others.
func (n *Need) kindFor(cand *Candidate, count spec.Count) int {
	some := -1
	for i := range cand.Shape.Kinds {
		kind := &cand.Shape.Kinds[i]
		if kind.Counts.isLimit() || kind.Name != count.Name ||
			(count.Type != "" && kind.Type != count.Type) {
			continue
		}
		left := cand.Free.More[i] - n.Use.More[i]
		if left >= count.N {
			return i
		}
		if left > 0 && some < 0 {
			some = i
		}
	}
	return some
}

func shared(shape *Shape, count spec.Count) bool {
	for _, o := range shape.Shared {
		if o.Name == count.Name && (count.Type == "" || o.Type == count.Type) {
			return true
		}
	}
	return false
}

// wholeGRES is the GRES of an exclusive job: all that the node has.
func wholeGRES(shape *Shape, asked []spec.Count) []spec.Count {
	var counts []spec.Count
	if shape.GPUs > 0 && !shape.hasKind("gpu") && !shape.Devices {
		counts = append(counts, spec.Count{Name: "gpu", Type: shape.GPUType, N: shape.GPUs})
	}
	for i := range shape.Kinds {
		if kind := &shape.Kinds[i]; kind.Counts == CountsGRES && kind.N > 0 {
			counts = append(counts, spec.Count{Name: kind.Name, Type: kind.Type, N: kind.N})
		}
	}
	for _, count := range asked {
		if shared(shape, count) {
			counts = append(counts, count)
		}
	}
	return counts
}

// Loose tells a demand whose use of a node is not known before its free
// amounts are: an untyped request for what the node has in several types.
func (d *Demand) Loose(shape *Shape) bool {
	if d.Exclusive {
		return false
	}
	for _, list := range [...][]spec.Count{d.PerNode, d.PerTask, d.PerJob} {
		for _, count := range list {
			if shape.byDevice(count.Name) {
				return true
			}
			if count.Type != "" || shared(shape, count) {
				continue
			}
			kinds := 0
			for i := range shape.Kinds {
				if shape.Kinds[i].Name == count.Name && !shape.Kinds[i].Counts.isLimit() {
					kinds++
				}
			}
			if kinds > 1 {
				return true
			}
		}
	}
	return false
}

// Fixed is what an Even demand takes of every node of a shape, whatever else
// is free there. ok is false when such a node can never give it; loose when
// it depends on what is free.
func (d *Demand) Fixed(shape *Shape, tasks int64) (need Need, ok, loose bool) {
	if d.Loose(shape) {
		return Need{}, true, true
	}
	all := shape.Whole()
	if d.firstLack(shape, &all, tasks).What != "" {
		return Need{}, false, false
	}
	need, ok = d.Need(shape, &all, tasks, d.PerJob)
	return need, ok, false
}

// mergeCounts adds up entries of the same name and type.
func mergeCounts(list []spec.Count) []spec.Count {
	var counts []spec.Count
next:
	for _, count := range list {
		if count.N == 0 {
			continue
		}
		for i := range counts {
			if counts[i].Name == count.Name && counts[i].Type == count.Type {
				counts[i].N += count.N
				continue next
			}
		}
		counts = append(counts, count)
	}
	return counts
}

// Room is how much of the first GRES that is asked for the job as a whole a
// node with free free can give.
func (d *Demand) Room(shape *Shape, free *Free) int64 { return d.roomFor(shape, free, d.PerJob[0]) }
