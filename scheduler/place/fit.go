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
func (d *Demand) amountsFor(s *Shape, tasks, more int64) (cpus, mem, gpu int64) {
	if d.Exclusive {
		cpus, gpu = s.CPUs, s.GPUs
	} else {
		gpu = countGPUs(d.PerNode) + tasks*countGPUs(d.PerTask) + more
		cpus = max(d.ofTasks(tasks), d.MinCPUs, gpu*d.CPUsPerGPU, 1)
		cpus = d.onCores(s, cpus, tasks)
	}
	switch {
	case d.MemPerNode < 0 && d.Memory:
		mem = s.Mem
	case d.MemPerNode > 0:
		mem = d.MemPerNode
	case d.MemPerGPU > 0 && gpu > 0:
		mem = d.MemPerGPU * gpu
	case d.MemPerCPU > 0:
		mem = d.MemPerCPU * cpus
	}
	return cpus, mem, gpu
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
func (d *Demand) onCores(s *Shape, cpus, tasks int64) int64 {
	if !d.Cores || s.Threads <= 1 {
		return cpus
	}
	use := s.Threads
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
	return cores * s.Threads
}

// firstLack names the first thing that a node with f free is short of for a number
// of tasks, or returns the zero Lack.
func (d *Demand) firstLack(s *Shape, f *Free, tasks int64) Lack {
	solo := int64(0)
	if d.MaxNodes == 1 {
		solo = countGPUs(d.PerJob)
	}
	cpus, mem, gpu := d.amountsFor(s, tasks, solo)
	asked, most := d.onCores(s, max(d.ofTasks(tasks), d.MinCPUs), tasks), max(s.CPUs-d.CoreSpec*s.Threads-d.ThreadSpec, 0)
	switch {
	case d.Threads > s.Threads:
		return Lack{"threads", s.Threads, d.Threads}
	case cpus > f.CPU && d.ofNode(s):
		return Lack{"cpu", f.CPU, cpus}
	case d.PerSocket > 0 && tasks > d.PerSocket*s.Sockets:
		return Lack{"ntasks-per-socket", d.PerSocket * s.Sockets, tasks}
	case asked > most:
		return Lack{"cpu", most, asked} // an exclusive job is bound by the node's size alone
	case cpus > s.CPUs:
		return Lack{"cpu", s.CPUs, cpus}
	case d.Memory && mem > f.Mem:
		return Lack{"mem", f.Mem, mem}
	case d.TmpDisk > s.Tmp:
		return Lack{"tmp", s.Tmp, d.TmpDisk}
	case gpu > d.gpusFree(s, f):
		return d.lackGPUs(s, f, tasks, gpu)
	}
	for i := range s.Kinds {
		if k := &s.Kinds[i]; s.capsCPUs(k, d) && !d.Exclusive && cpus > f.More[i] {
			return Lack{"cpu", f.More[i], cpus}
		}
	}
	for _, list := range [...][]spec.Count{d.PerNode, d.PerTask, d.PerJob} {
		for _, c := range list {
			if have, want := d.freeAmount(s, f, c), d.wantedOf(c, tasks); have < want {
				return Lack{nameOf(c), have, want}
			}
		}
	}
	if d.Exclusive && !f.Holds(d.wholeNode(s)) {
		return Lack{"exclusive", f.CPU, s.CPUs}
	}
	return Lack{}
}

// lackGPUs names the type of which there are too few, where one is asked for.
func (d *Demand) lackGPUs(s *Shape, f *Free, tasks, all int64) Lack {
	for _, list := range [...][]spec.Count{d.PerNode, d.PerTask, d.PerJob} {
		for _, c := range list {
			if c.Name != "gpu" || c.Type == "" {
				continue
			}
			if have, want := d.freeAmount(s, f, c), d.wantedOf(c, tasks); have < want {
				return Lack{c.TypedTRES(), have, want}
			}
		}
	}
	return Lack{"gres/gpu", d.gpusFree(s, f), all}
}

func nameOf(c spec.Count) string {
	if c.Type != "" {
		return c.TypedTRES()
	}
	return c.TRES()
}

// wantedOf is how much of one GRES a number of tasks needs of one node, all
// entries of the same name and type together. What is asked for the job as a
// whole may come from other nodes if there can be any.
func (d *Demand) wantedOf(c spec.Count, tasks int64) int64 {
	n := sumOf(d.PerNode, c) + tasks*sumOf(d.PerTask, c)
	if d.MaxNodes == 1 {
		n += sumOf(d.PerJob, c)
	}
	return n
}

func sumOf(list []spec.Count, c spec.Count) int64 {
	var n int64
	for _, o := range list {
		if o.Name == c.Name && o.Type == c.Type {
			n += o.N
		}
	}
	return n
}

// gpusFree is how many GPUs of a node are free to the job: of those that its
// reservation keeps, or else of the node's.
func (d *Demand) gpusFree(s *Shape, f *Free) int64 {
	own, n := s.resvGPUs(d.Inside), f.GPU
	if own >= 0 {
		n = f.More[own]
	}
	for i := range s.Kinds {
		if k := &s.Kinds[i]; own < 0 && k.Counts == CountsOpenGPUs {
			n = min(n, f.More[i])
		}
	}
	return n
}

// freeAmount is how much of a GRES is free to the job. Of a resource in several
// types an untyped request may use all of them together.
func (d *Demand) freeAmount(s *Shape, f *Free, c spec.Count) int64 {
	if s.byDevice(c.Name) {
		return f.freeDevices(s, c)
	}
	if c.Name == "gpu" {
		switch {
		case !s.hasKind("gpu"):
			if c.Type != "" && c.Type != s.GPUType {
				return 0
			}
			return d.gpusFree(s, f)
		case c.Type == "":
			return min(d.gpusFree(s, f), f.sum(s, "gpu"))
		}
	}
	for _, o := range s.Shared {
		if o.Name == c.Name && (c.Type == "" || o.Type == c.Type) {
			return o.N
		}
	}
	if c.Type == "" {
		return f.sum(s, c.Name)
	}
	for i := range s.Kinds {
		if k := &s.Kinds[i]; !k.Counts.isLimit() && k.Name == c.Name && k.Type == c.Type {
			return f.More[i]
		}
	}
	return 0
}

func (f *Free) sum(s *Shape, name string) int64 {
	var n int64
	for i := range s.Kinds {
		if k := &s.Kinds[i]; !k.Counts.isLimit() && k.Name == name {
			n += f.More[i]
		}
	}
	return n
}

// wholeNode is what an exclusive job takes of a node: everything but memory, of
// which it takes what it asked for.
func (d *Demand) wholeNode(s *Shape) *Free {
	f := s.Whole()
	_, f.Mem, _ = d.amountsFor(s, 1, 0)
	if !d.Memory {
		f.Mem = 0
	}
	for i := range s.Kinds {
		k := &s.Kinds[i]
		if !k.Counts.isLimit() {
			continue
		}
		f.More[i] = 0
		if s.capsCPUs(k, d) {
			f.More[i] = min(k.N, s.CPUs)
		}
		if k.Counts == CountsOpenCPUs && k.Name == d.Inside {
			f.CPU = 0 // they are counted there
		}
	}
	if k := s.resvGPUs(d.Inside); k >= 0 && s.Kinds[k].Counts.isOpen() {
		f.GPU = 0
	}
	s.takeGPUs(&f, d.Inside, s.GPUs)
	return &f
}

// Fits tells how many tasks a node with f free can take; 0 = none. The Lack
// names what is missing for the first task.
func (d *Demand) Fits(s *Shape, f *Free) (tasks int64, lack Lack) {
	most := d.Tasks
	if d.TasksPerNode > 0 {
		most = min(most, d.TasksPerNode)
	}
	if d.firstLack(s, f, most).What == "" {
		return most, Lack{}
	}
	lack = d.firstLack(s, f, 1)
	if lack.What != "" {
		return 0, lack
	}
	low, high := int64(1), most // low fits, high does not
	for high-low > 1 {
		if mid := (low + high) / 2; d.firstLack(s, f, mid).What == "" {
			low = mid
		} else {
			high = mid
		}
	}
	return low, Lack{}
}

// Lacks tells what a node with f free is short of for its share of the
// demand: the tasks that every node gets, or one where that is left open.
func (d *Demand) Lacks(s *Shape, f *Free) Lack {
	tasks, even := d.Even()
	if !even {
		tasks = 1
	}
	return d.firstLack(s, f, tasks)
}

// roomFor is how much of a GRES that is asked for the job as a whole a node can
// give: the devices that it also has the CPUs and the memory for.
func (d *Demand) roomFor(s *Shape, f *Free, c spec.Count) int64 {
	n := max(d.freeAmount(s, f, c)-sumOf(d.PerNode, c)-sumOf(d.PerTask, c), 0)
	if c.Name != "gpu" || d.Exclusive {
		return n
	}
	for ; n > 0; n-- {
		if cpus, mem, _ := d.amountsFor(s, 1, n); d.hasCPUs(s, f, cpus) && (!d.Memory || mem <= f.Mem) {
			break
		}
	}
	return n
}

// hasCPUs tells whether a node with f free can give a number of CPUs to a
// demand that is not exclusive: one that shares them has no more than the node,
// and none has more than its partition may use there.
func (d *Demand) hasCPUs(s *Shape, f *Free, cpus int64) bool {
	if cpus > s.CPUs || (d.ofNode(s) && cpus > f.CPU) {
		return false
	}
	for i := range s.Kinds {
		if s.capsCPUs(&s.Kinds[i], d) && cpus > f.More[i] {
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
func (s *Shape) capsCPUs(k *Kind, d *Demand) bool {
	switch {
	case k.Counts.gpusOfReservation():
		return false
	case k.Counts == CountsRealCPUs:
		return d.Share == 0
	case k.Counts.isReserved():
		return k.Name == d.Inside || k.Counts.isOpen() && d.Share == 0 && !s.keepsCores(d.Inside)
	}
	return k.Counts.isLimit() && k.Name == d.Partition && (k.Counts == CountsSharedCPUs) == (d.Share > 0)
}

// ofNode tells whether the CPUs of a demand are counted against the node's: they
// are not shared, and no reservation has them already.
func (d *Demand) ofNode(s *Shape) bool { return d.Share == 0 && !s.keepsCores(d.Inside) }

// Need computes what a node of a shape gives to a number of tasks with its
// part of the GRES asked for the job as a whole. Untyped requests for a
// resource in several types are taken from where most is free. It is false if
// the node cannot give it.
func (d *Demand) Need(s *Shape, free *Free, tasks int64, part []spec.Count) (Need, bool) {
	return d.needOf(&Candidate{Shape: s, Free: *free}, tasks, part)
}

func (d *Demand) needOf(cand *Candidate, tasks int64, part []spec.Count) (Need, bool) {
	s, free := cand.Shape, &cand.Free
	gres := append([]spec.Count(nil), d.PerNode...)
	for _, c := range d.PerTask {
		c.N *= tasks
		gres = append(gres, c)
	}
	gres = mergeCounts(append(gres, part...))
	var n Need
	if d.Exclusive {
		for _, c := range gres {
			if d.freeAmount(s, free, c) < c.N {
				return n, false
			}
		}
		n.Use, n.Tenant = *d.wholeNode(s), &d.Tenant
		n.CPUs = s.CPUs
		if s.Devices && !n.allDevices(d, cand, gres) {
			return n, false
		}
		n.GRES = append(n.GRES, wholeGRES(s, gres)...)
		_, n.Mem, _ = d.amountsFor(s, tasks, 0)
		return n, free.Holds(&n.Use)
	}
	cpus, mem, gpu := d.amountsFor(s, tasks, countGPUs(part))
	if !d.hasCPUs(s, free, cpus) {
		return n, false
	}
	n.Use, n.Mem, n.CPUs, n.Tenant = Free{CPU: cpus, GPU: gpu}, mem, cpus, &d.Tenant
	if !d.ofNode(s) {
		n.Use.CPU = 0
	}
	if d.Memory {
		n.Use.Mem = mem
	}
	if len(s.Kinds) > 0 {
		n.Use.More = make([]int64, len(s.Kinds))
		for i := range s.Kinds {
			if s.capsCPUs(&s.Kinds[i], d) {
				n.Use.More[i] = cpus
			}
		}
		if s.resvGPUs(d.Inside) >= 0 {
			n.Use.GPU = 0
		}
		s.takeGPUs(&n.Use, d.Inside, gpu)
	}
	for _, typed := range [...]bool{true, false} {
		for _, c := range gres {
			if (c.Type != "") == typed && !n.take(d, cand, c) {
				return n, false
			}
		}
	}
	return n, free.Holds(&n.Use)
}

// take adds one GRES to a need.
func (n *Need) take(d *Demand, cand *Candidate, c spec.Count) bool {
	s, free := cand.Shape, &cand.Free
	if s.byDevice(c.Name) {
		return n.takeDevices(d, cand, c)
	}
	if shared(s, c) || (c.Name == "gpu" && !s.hasKind("gpu")) {
		if d.freeAmount(s, free, c) < c.N {
			return false
		}
		if c.Name == "gpu" {
			c.Type = s.GPUType
		}
		n.GRES = append(n.GRES, c)
		return true
	}
	for c.N > 0 {
		kind := n.kindFor(cand, c)
		if kind < 0 {
			return false
		}
		k := &s.Kinds[kind]
		got := min(c.N, free.More[kind]-n.Use.More[kind])
		n.Use.More[kind] += got
		n.GRES = append(n.GRES, spec.Count{Name: k.Name, Type: k.Type, N: got})
		c.N -= got
	}
	return true
}

// kindFor is the kind of which a GRES is taken next: the first that has all of it,
// else the first that has some; -1 if none has any.
//
// The order is the node's own and not that of what is free. A job that was planned
// on one kind is planned on it again after a job behind it has taken some of the
// same kind; otherwise it would move to where it delays what was promised to others.
func (n *Need) kindFor(cand *Candidate, c spec.Count) int {
	some := -1
	for i := range cand.Shape.Kinds {
		k := &cand.Shape.Kinds[i]
		if k.Counts.isLimit() || k.Name != c.Name || (c.Type != "" && k.Type != c.Type) {
			continue
		}
		left := cand.Free.More[i] - n.Use.More[i]
		if left >= c.N {
			return i
		}
		if left > 0 && some < 0 {
			some = i
		}
	}
	return some
}

func shared(s *Shape, c spec.Count) bool {
	for _, o := range s.Shared {
		if o.Name == c.Name && (c.Type == "" || o.Type == c.Type) {
			return true
		}
	}
	return false
}

// wholeGRES is the GRES of an exclusive job: all that the node has.
func wholeGRES(s *Shape, asked []spec.Count) []spec.Count {
	var out []spec.Count
	if s.GPUs > 0 && !s.hasKind("gpu") && !s.Devices {
		out = append(out, spec.Count{Name: "gpu", Type: s.GPUType, N: s.GPUs})
	}
	for i := range s.Kinds {
		if k := &s.Kinds[i]; k.Counts == CountsGRES && k.N > 0 {
			out = append(out, spec.Count{Name: k.Name, Type: k.Type, N: k.N})
		}
	}
	for _, c := range asked {
		if shared(s, c) {
			out = append(out, c)
		}
	}
	return out
}

// Loose tells a demand whose use of a node is not known before its free
// amounts are: an untyped request for what the node has in several types.
func (d *Demand) Loose(s *Shape) bool {
	if d.Exclusive {
		return false
	}
	for _, list := range [...][]spec.Count{d.PerNode, d.PerTask, d.PerJob} {
		for _, c := range list {
			if s.byDevice(c.Name) {
				return true
			}
			if c.Type != "" || shared(s, c) {
				continue
			}
			kinds := 0
			for i := range s.Kinds {
				if s.Kinds[i].Name == c.Name && !s.Kinds[i].Counts.isLimit() {
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
func (d *Demand) Fixed(s *Shape, tasks int64) (n Need, ok, loose bool) {
	if d.Loose(s) {
		return Need{}, true, true
	}
	all := s.Whole()
	if d.firstLack(s, &all, tasks).What != "" {
		return Need{}, false, false
	}
	n, ok = d.Need(s, &all, tasks, d.PerJob)
	return n, ok, false
}

// mergeCounts adds up entries of the same name and type.
func mergeCounts(list []spec.Count) []spec.Count {
	var out []spec.Count
next:
	for _, c := range list {
		if c.N == 0 {
			continue
		}
		for i := range out {
			if out[i].Name == c.Name && out[i].Type == c.Type {
				out[i].N += c.N
				continue next
			}
		}
		out = append(out, c)
	}
	return out
}

// Room is how much of the first GRES that is asked for the job as a whole a
// node with f free can give.
func (d *Demand) Room(s *Shape, f *Free) int64 { return d.roomFor(s, f, d.PerJob[0]) }
