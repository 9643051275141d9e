package place

import (
	"slices"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// Shape is what nodes of one kind offer when nothing runs on them. Nodes that
// share a Shape are measured with the same Kinds, so that what they have free
// can be compared number by number.
type Shape struct {
	CPUs, Mem, Tmp int64 // Mem and Tmp in MiB
	Threads        int64 // per core, at least 1
	Sockets        int64 // at least 1
	GPUs           int64 // devices of any type
	GPUType        string
	// Kinds are counted beside CPUs, memory and GPUs: other generic resources,
	// GPUs by type where a node has several types, and the CPUs that a
	// partition with MaxCPUsPerNode may use.
	Kinds []Kind
	// Shared are resources that any number of jobs may use at once.
	Shared []spec.Count
	// Devices tells that GPUs are counted one by one, since they can be held in
	// parts: each is a Kind, and GPU in a Free only says how many of them nobody
	// holds whole. Links are those among them, as in the inventory.
	Devices bool
	Links   [][]int32
}

// Cap is a partition whose jobs may use only some of the CPUs of each node, or
// share them.
type Cap struct {
	Partition string
	Nodes     spec.Bitset
	CPUs      int64 // of each node; 0 = all
	Share     int64 // jobs on each CPU; 0: the CPUs are not shared
	// Resv: Partition is a reservation of cores instead, which has some cores of
	// each node.
	Resv *spec.Reservation
	// Over: on its nodes reservations may keep more together than jobs leave them,
	// so that what is really free is counted besides.
	Over bool
}

// over are the flags of reservations of cores for which Cap.Over is set.
const over = spec.ResvOpen | spec.ResvMaint | spec.ResvOverlap | spec.ResvIgnoreJobs

// Caps lists the partitions with MaxCPUsPerNode and those that share CPUs, and
// the reservations of cores.
func Caps(cluster *state.State) []Cap {
	var caps []Cap
	for i := range cluster.Parts.List {
		partition := &cluster.Parts.List[i]
		if partition.Spec.MaxCPUsPerNode > 0 {
			caps = append(
				caps,
				Cap{
					Partition: partition.Spec.Name,
					Nodes:     partition.Nodes,
					CPUs:      partition.Spec.MaxCPUsPerNode,
				},
			)
		}
		if n := partition.Spec.Sharers(spec.Oversubscribe); n > 1 {
			caps = append(
				caps,
				Cap{
					Partition: partition.Spec.Name,
					Nodes:     partition.Nodes,
					CPUs:      partition.Spec.MaxCPUsPerNode,
					Share:     int64(n),
				},
			)
		}
	}
	for i := range cluster.Reservations {
		reservation := &cluster.Reservations[i]
		if reservation.Cores == nil {
			continue
		}
		c := Cap{Partition: reservation.Name, Resv: reservation, Over: reservation.Flags&over != 0}
		for _, name := range reservation.Nodes {
			if id, ok := cluster.NodeIDs[name]; ok {
				c.Nodes = c.Nodes.Set(int(id))
			}
		}
		caps = append(caps, c)
	}
	return caps
}

// Shapes finds the shape of nodes; equal ones are one. The zero value has no
// partitions with MaxCPUsPerNode.
type Shapes struct {
	Caps []Cap
	list []*Shape
	last *Shape
	buf  Shape
}

// Forget drops the shapes that were found if they are more than so many. Those
// that stay are found again by what they are.
func (s *Shapes) Forget(most int) {
	if len(s.list) > most {
		s.list, s.last = nil, nil
	}
}

// Of returns a node's shape as it is now: by its inventory.
func (s *Shapes) Of(node *state.Node) *Shape {
	shape := &s.buf
	shape.measureNode(node)
	shape.countDevices(node.GPUs, node.Shares)
	return s.internShape(node)
}

// Configured returns the shape that a node will have once it has registered
// with all that its configuration declares.
func (s *Shapes) Configured(node *state.Node) *Shape {
	shape := &s.buf
	shape.measureNode(node)
	var devices []spec.GPU
	var shares []spec.DeviceShares
	if slices.ContainsFunc(
		node.Spec.GRES,
		func(g spec.GRESSpec) bool { return spec.Shares(g.Name) },
	) {
		devices = node.GPUs
		if int64(len(devices)) < declared(node.Spec) {
			devices = declaredDevices(node.Spec)
		}
		shares = node.Spec.SharesOf(devices)
	}
	if shares != nil {
		shape.countDevices(devices, shares)
		return s.internShape(node)
	}
	for _, gres := range node.Spec.GRES {
		if gres.Name == "gpu" {
			shape.countGPU(gres.Type, gres.N)
		}
	}
	return s.internShape(node)
}

// measureNode begins a shape: everything but GPUs.
func (b *Shape) measureNode(node *state.Node) {
	*b = Shape{
		CPUs:    node.CPUs,
		Mem:     node.Mem,
		Tmp:     node.Spec.TmpDisk,
		Threads: max(node.Spec.ThreadsPerCore, 1),
		Sockets: max(node.Spec.Sockets, 1),
		Kinds:   b.Kinds[:0],
		Shared:  b.Shared[:0],
		Links:   b.Links[:0],
	}
	for _, gres := range node.Spec.GRES {
		if gres.NoConsume {
			b.Shared = append(b.Shared, spec.Count{Name: gres.Name, Type: gres.Type, N: gres.N})
		}
	}
	for _, count := range node.GRES {
		if !spec.Shares(count.Name) { // those are counted by device
			b.Kinds = append(b.Kinds, Kind{Name: count.Name, Type: count.Type, N: count.N})
		}
	}
}

// countGPU adds devices. The types become kinds when a second one appears.
func (b *Shape) countGPU(typ string, n int64) {
	switch {
	case b.GPUs == 0:
		b.GPUType = typ
	case b.GPUType != typ && !b.hasKind("gpu"):
		b.Kinds = append(b.Kinds, Kind{Name: "gpu", Type: b.GPUType, N: b.GPUs})
		b.GPUType = ""
	}
	b.GPUs += n
	if !b.hasKind("gpu") {
		return
	}
	for i := range b.Kinds {
		if b.Kinds[i].Name == "gpu" && b.Kinds[i].Type == typ {
			b.Kinds[i].N += n
			return
		}
	}
	b.Kinds = append(b.Kinds, Kind{Name: "gpu", Type: typ, N: n})
}

// countDevices adds the GPUs of a node: one by one if any can be shared.
func (b *Shape) countDevices(devices []spec.GPU, shares []spec.DeviceShares) {
	if shares == nil {
		for i := range devices {
			b.countGPU(devices[i].Type, 1)
		}
		return
	}
	b.Devices, b.GPUs = true, int64(len(devices))
	for i := range devices {
		kind := Kind{Counts: CountsDevice, Type: devices[i].Type, N: 1, Device: i}
		if deviceShares := shares[i]; deviceShares.N > 0 {
			kind.N = deviceShares.N
			kind.Part = deviceShares.Name
			kind.One = deviceShares.One
		}
		b.Kinds = append(b.Kinds, kind)
		if kind.One {
			b.Kinds = append(b.Kinds, Kind{Counts: CountsDeviceParts, N: kind.N, Device: i})
		}
		b.Links = append(b.Links, devices[i].Links)
	}
}

func declared(node *spec.NodeSpec) int64 {
	var sum int64
	for _, gres := range node.GRES {
		if gres.Name == "gpu" {
			sum += gres.N
		}
	}
	return sum
}

// declaredDevices are the devices of a node that has not registered. Of those
// that are shared by file it is not known which they are: the first ones are.
func declaredDevices(node *spec.NodeSpec) []spec.GPU {
	var gpus []spec.GPU
	for _, gres := range node.GRES {
		for range gres.N {
			if gres.Name == "gpu" && len(gpus) < maxDeclared {
				gpus = append(gpus, spec.GPU{Index: uint32(len(gpus)), Type: gres.Type})
			}
		}
	}
	at := 0
	for _, gres := range node.GRES {
		if spec.Shares(gres.Name) && gres.Files != "" && at < len(gpus) {
			gpus[at].Path = gres.Files
			at++
		}
	}
	return gpus
}

// maxDeclared bounds the devices that a node is taken to have before it
// registers.
const maxDeclared = 1024

func (b *Shape) hasKind(name string) bool {
	return slices.ContainsFunc(
		b.Kinds,
		func(k Kind) bool { return k.Name == name && !k.Counts.isLimit() },
	)
}

// Mixed tells a shape that counts one resource by several types, or device by
// device.
func (b *Shape) Mixed() bool {
	if b.Devices {
		return true
	}
	for i := range b.Kinds {
		if slices.ContainsFunc(b.Kinds[:i], func(kind Kind) bool {
			return !kind.Counts.isLimit() && !b.Kinds[i].Counts.isLimit() &&
				kind.Name == b.Kinds[i].Name
		}) {
			return true
		}
	}
	return false
}

// counterOfCPUs is the counter of the CPUs of a node that a cap leaves.
func (c *Cap) counterOfCPUs(shape *Shape, node string) Kind {
	kind := Kind{Counts: CountsPartitionCPUs, Name: c.Partition, N: c.CPUs}
	switch {
	case c.Resv != nil && c.Resv.Flags&spec.ResvOpen != 0:
		kind.Counts = CountsOpenCPUs
		kind.N = shape.CPUs
	case c.Resv != nil:
		kind.Counts = CountsReservedCPUs
		kind.N = c.Resv.CoresOf(node) * shape.Threads
	case c.Share > 0:
		kind.Counts = CountsSharedCPUs
		kind.N = shape.CPUs * c.Share
		if c.CPUs > 0 {
			kind.N = min(kind.N, c.CPUs*c.Share)
		}
	}
	return kind
}

// counterOfGPUs is the counter of the GPUs of a node that a reservation keeps.
func (c *Cap) counterOfGPUs(shape *Shape, node string) Kind {
	if c.Resv.Flags&spec.ResvOpen != 0 {
		return Kind{Counts: CountsOpenGPUs, Name: c.Partition, N: shape.GPUs}
	}
	return Kind{Counts: CountsReservedGPUs, Name: c.Partition, N: c.Resv.GPUsOf(node)}
}

func (s *Shapes) internShape(node *state.Node) *Shape {
	b := &s.buf
	if slices.ContainsFunc(
		s.Caps,
		func(c Cap) bool { return c.Over && c.Nodes.Has(int(node.ID)) },
	) {
		b.Kinds = append(b.Kinds, Kind{Counts: CountsRealCPUs, N: b.CPUs})
		if b.GPUs > 0 && !b.Devices && !b.hasKind("gpu") {
			b.Kinds = append(
				b.Kinds,
				Kind{Name: "gpu", Type: b.GPUType, N: b.GPUs},
			) // by type they are what is really free
			b.GPUType = ""
		}
	}
	for i := range s.Caps {
		if c := &s.Caps[i]; c.Nodes.Has(int(node.ID)) {
			b.Kinds = append(b.Kinds, c.counterOfCPUs(b, node.Spec.Name))
			if c.Resv != nil && c.Resv.GPUsOf(node.Spec.Name) > 0 {
				b.Kinds = append(b.Kinds, c.counterOfGPUs(b, node.Spec.Name))
			}
		}
	}
	if s.last != nil && s.last.equalShape(b) {
		return s.last
	}
	for _, known := range s.list {
		if known.equalShape(b) {
			s.last = known
			return known
		}
	}
	c := *b
	c.Kinds = slices.Clone(b.Kinds)
	c.Shared = slices.Clone(b.Shared)
	c.Links = slices.Clone(b.Links)
	s.list, s.last = append(s.list, &c), &c
	return &c
}

// hasAmountsOf tells whether two nodes have the same cores and memory.
func (b *Shape) hasAmountsOf(o *Shape) bool {
	sameCores := b.CPUs == o.CPUs && b.Threads == o.Threads && b.Sockets == o.Sockets
	return sameCores && b.Mem == o.Mem && b.Tmp == o.Tmp
}

// hasDevicesOf tells whether two nodes have the same devices, linked in the same way.
func (b *Shape) hasDevicesOf(o *Shape) bool {
	if b.GPUs != o.GPUs || b.GPUType != o.GPUType || b.Devices != o.Devices {
		return false
	}
	if !slices.Equal(b.Kinds, o.Kinds) || !slices.Equal(b.Shared, o.Shared) {
		return false
	}
	return slices.EqualFunc(b.Links, o.Links, slices.Equal)
}

func (b *Shape) equalShape(o *Shape) bool {
	return b.hasAmountsOf(o) && b.hasDevicesOf(o)
}

// Free is what a node can still give, or what is taken from it: amounts in
// the order of its Shape.
type Free struct {
	CPU, Mem, GPU int64
	More          []int64 // by position in Kinds; nil = nothing of them
}

// Whole is everything the shape offers.
func (b *Shape) Whole() Free {
	free := Free{CPU: b.CPUs, Mem: b.Mem, GPU: b.GPUs}
	if len(b.Kinds) > 0 {
		free.More = make([]int64, len(b.Kinds))
		for i := range b.Kinds {
			free.More[i] = b.Kinds[i].N
		}
	}
	return free
}

// Now is what a node can give at this moment. The CPUs that capped
// partitions hold are not known from the node alone: see TakeCap.
func (b *Shape) Now(node *state.Node) Free {
	free := b.Whole()
	free.CPU, free.Mem = node.UnsharedCPUs(), node.FreeMem()
	free.GPU -= int64(node.UsedGPU.Count())
	for i := range b.Kinds {
		kind := &b.Kinds[i]
		switch {
		case kind.Counts.isLimit():
		case kind.Counts == CountsDevice:
			free.More[i] -= node.ShareUsed(kind.Device)
			if node.UsedGPU.Has(kind.Device) {
				free.More[i] = 0
			}
		case kind.Counts == CountsDeviceParts:
			free.More[i] -= node.ShareUsed(kind.Device)
		case kind.Name == "gpu":
			for g := range node.GPUs {
				if node.GPUs[g].Type == kind.Type && node.UsedGPU.Has(g) {
					free.More[i]--
				}
			}
		default:
			for _, u := range node.UsedGRES {
				if u.Name == kind.Name && u.Type == kind.Type {
					free.More[i] -= u.N
				}
			}
		}
	}
	return free
}

// NowIn is Now with the CPUs that the jobs of capped partitions hold.
func (b *Shape) NowIn(cluster *state.State, node *state.Node) Free {
	free := b.Now(node)
	if !slices.ContainsFunc(b.Kinds, func(k Kind) bool { return k.Counts.isLimit() }) {
		return free
	}
	for _, uid := range node.Jobs {
		job := cluster.Job(uid)
		i := job.Alloc.Index(node.ID)
		if i < 0 || job.Done.Has(i) {
			continue
		}
		b.TakeGPUs(&free, job.Alloc, &job.Alloc.Nodes[i])
		if !job.Yields {
			b.TakeCap(&free, job.Alloc, int64(job.Alloc.Nodes[i].CPUs.Count()))
		}
	}
	return free
}

// Held is what one node's part of an allocation takes. CPUs that are shared
// are counted as such only.
func (b *Shape) Held(node *state.Node, alloc *spec.NodeAlloc, of *spec.Allocation) Free {
	free := Free{CPU: int64(alloc.CPUs.Count()), Mem: alloc.Mem, GPU: int64(len(alloc.GPUs))}
	cpus := free.CPU
	if of.Share > 0 || b.Inside(of) {
		free.CPU = 0
	}
	kept := b.resvGPUs(of.Reservation)
	if kept >= 0 {
		free.GPU = 0
	}
	if len(b.Kinds) == 0 {
		return free
	}
	free.More = make([]int64, len(b.Kinds))
	for i := range b.Kinds {
		kind := &b.Kinds[i]
		switch {
		case kind.Counts.gpusOfReservation():
			if i == kept || kept < 0 && kind.Counts.isOpen() {
				free.More[i] = int64(len(alloc.GPUs))
			}
		case kind.Counts.isLimit() && b.countsAgainst(kind, of):
			free.More[i] = cpus
		case kind.Counts.isLimit():
		case kind.Counts == CountsDevice:
			free.More[i] = heldOf(kind, alloc, node.GPUs[kind.Device].UUID)
		case kind.Counts == CountsDeviceParts:
			free.More[i] = partOf(alloc, node.GPUs[kind.Device].UUID)
		case kind.Name == "gpu":
			for _, gpu := range alloc.GPUs {
				if gpu.Type == kind.Type {
					free.More[i]++
				}
			}
		default:
			for _, count := range alloc.GRES {
				if count.Name == kind.Name && count.Type == kind.Type {
					free.More[i] += count.N
				}
			}
		}
	}
	return free
}

// heldOf is how much of one device a part of an allocation takes.
func heldOf(kind *Kind, alloc *spec.NodeAlloc, uuid string) int64 {
	if hasDevice(alloc.GPUs, uuid) {
		return kind.N
	}
	return partOf(alloc, uuid)
}

// partOf is how much of one device a part of an allocation has in parts.
func partOf(alloc *spec.NodeAlloc, uuid string) int64 {
	var n int64
	for i := range alloc.Shares {
		if alloc.Shares[i].UUID == uuid {
			n += alloc.Shares[i].N
		}
	}
	return n
}

// OnCPUs is what of a need concerns CPUs: what a suspended job leaves.
func (b *Shape) OnCPUs(free Free) Free {
	out := Free{CPU: free.CPU}
	if free.More != nil {
		out.More = make([]int64, len(free.More))
		for i := range b.Kinds {
			if b.Kinds[i].Counts.isLimit() && !b.Kinds[i].Counts.gpusOfReservation() {
				out.More[i] = free.More[i]
			}
		}
	}
	return out
}

// TakeCap counts CPUs that a job of a partition holds on the node.
func (b *Shape) TakeCap(free *Free, of *spec.Allocation, cpus int64) {
	for i := range b.Kinds {
		if k := &b.Kinds[i]; k.Counts.isLimit() && b.countsAgainst(k, of) {
			free.More[i] -= cpus
		}
	}
}

// countsAgainst tells whether a job of an allocation counts against a counter of CPUs.
func (b *Shape) countsAgainst(kind *Kind, allocation *spec.Allocation) bool {
	switch {
	case kind.Counts.gpusOfReservation():
		return false
	case kind.Counts == CountsRealCPUs:
		return allocation.Share == 0
	case kind.Counts.isReserved():
		return kind.Name == allocation.Reservation ||
			kind.Counts.isOpen() && allocation.Share == 0 && !b.Inside(allocation)
	}
	if kind.Name != allocation.Partition {
		return false
	}
	if kind.Counts == CountsSharedCPUs {
		return allocation.Share > 0
	}
	// MaxCPUsPerNode does not bound jobs that take the node whole.
	return allocation.Share == 0 && !allocation.Whole
}

// Inside tells whether an allocation is of the cores of a reservation that keeps
// cores of the node: it counts against these, and not against the node's CPUs.
func (b *Shape) Inside(allocation *spec.Allocation) bool {
	return b.keepsCores(allocation.Reservation)
}

// keepsCores tells whether a reservation keeps cores of the node.
func (b *Shape) keepsCores(resv string) bool {
	return resv != "" &&
		slices.ContainsFunc(
			b.Kinds,
			func(k Kind) bool { return k.Counts.isReserved() && k.Name == resv },
		)
}

// resvGPUs is the counter of the GPUs that a reservation keeps of the node; -1 if
// it keeps none.
func (b *Shape) resvGPUs(resv string) int {
	if resv == "" {
		return -1
	}
	return slices.IndexFunc(
		b.Kinds,
		func(k Kind) bool { return k.Counts.gpusOfReservation() && k.Name == resv },
	)
}

// GPUsInside is how many GPUs a job of a reservation holds on the node of those
// that the reservation keeps.
func (b *Shape) GPUsInside(of *spec.Allocation, alloc *spec.NodeAlloc) int64 {
	if b.resvGPUs(of.Reservation) < 0 {
		return 0
	}
	return int64(len(alloc.GPUs))
}

// TakeGPUs counts GPUs that a job of a reservation holds of those it keeps, and
// those of a job in none where it has them from what is left to all.
func (b *Shape) TakeGPUs(free *Free, of *spec.Allocation, allocation *spec.NodeAlloc) {
	if len(allocation.GPUs) > 0 {
		b.takeGPUs(free, of.Reservation, -int64(len(allocation.GPUs)))
	}
}

// takeGPUs adds to the counters that count the GPUs of a job in a reservation, or
// in none.
func (b *Shape) takeGPUs(free *Free, resv string, n int64) {
	own := b.resvGPUs(resv)
	for i := range b.Kinds {
		if kind := &b.Kinds[i]; kind.Counts.gpusOfReservation() &&
			(i == own || own < 0 && kind.Counts.isOpen()) {
			free.More[i] += n
		}
	}
}

// Leave takes what a reservation keeps out of what is free: also of what is left
// to jobs of those that heed it.
func (b *Shape) Leave(kept *Free, heeds func(resv string) bool) Free {
	use := Free{CPU: kept.CPU, GPU: kept.GPU}
	for i := range b.Kinds {
		kind := &b.Kinds[i]
		if !kind.Counts.isOpen() || !heeds(kind.Name) {
			continue
		}
		if use.More == nil {
			use.More = make([]int64, len(b.Kinds))
		}
		use.More[i] = kept.CPU
		if kind.Counts.gpusOfReservation() {
			use.More[i] = kept.GPU
		}
	}
	return use
}

// Clone copies the amounts.
func (f Free) Clone() Free {
	if f.More != nil {
		f.More = slices.Clone(f.More)
	}
	return f
}

// Add adds sign times another node's part.
func (f *Free) Add(g *Free, sign int64) {
	f.CPU += sign * g.CPU
	f.Mem += sign * g.Mem
	f.GPU += sign * g.GPU
	for i, n := range g.More {
		f.More[i] += sign * n
	}
}

// Min lowers every amount to that of another Free of the same shape.
func (f *Free) Min(g *Free) {
	f.CPU = min(f.CPU, g.CPU)
	f.Mem = min(f.Mem, g.Mem)
	f.GPU = min(f.GPU, g.GPU)
	for i, n := range g.More {
		f.More[i] = min(f.More[i], n)
	}
}

// Holds tells whether all of a need is there. What is not needed may be less than
// nothing: memory that is not counted, or cores that reservations keep though others
// have them.
func (f *Free) Holds(need *Free) bool {
	if lacks(f.CPU, need.CPU) || lacks(f.GPU, need.GPU) || lacks(f.Mem, need.Mem) {
		return false
	}
	for i, n := range need.More {
		if lacks(f.More[i], n) {
			return false
		}
	}
	return true
}

// lacks tells whether there is less of something than is needed.
func lacks(free, need int64) bool { return need > 0 && free < need }
