package spec

// Allocation is what a job attempt holds, node by node. It is decided once
// and never edited; releases are facts of their own.
type Allocation struct {
	Partition string      `cbor:"1,keyasint"`
	Nodes     []NodeAlloc `cbor:"2,keyasint"`           // in the order of node ids; the first is the batch host
	TRES      TRES        `cbor:"3,keyasint"`           // the sum, with billing
	Licenses  []Count     `cbor:"4,keyasint,omitempty"` // held for the job's life
	Tasks     uint32      `cbor:"5,keyasint,omitempty"`
	Whole     bool        `cbor:"6,keyasint,omitempty"` // exclusive: all CPUs of each node
	// Reservation is the one that the job runs in, or empty.
	Reservation string `cbor:"7,keyasint,omitempty"`
	// Share is how many jobs of the partition may be on each of its CPUs at
	// once; 0 = the job has them for itself.
	Share uint32 `cbor:"40,keyasint,omitempty"`
	Apart Apart  `cbor:"41,keyasint,omitempty"` // whom it keeps off its nodes
	// QOS is the one that the job runs in, where it may in several; else empty.
	QOS string `cbor:"42,keyasint,omitempty"`
	// Lease is how long the job's processes live without an answer of the
	// controller to their node, the time to kill them included; 0 = for ever.
	Lease Span `cbor:"110,keyasint,omitempty"`
}

// Apart is a set of those whom a job keeps off its nodes.
type Apart uint8

// The members; the values are stored.
const (
	ApartUser Apart = 1 << iota // jobs of other users
	ApartMCS                    // jobs with another MCS label, or none
	ApartTopo                   // other jobs, also from the rest of its blocks
)

// NodeAlloc is one node's part of an allocation.
type NodeAlloc struct {
	ID    NodeID   `cbor:"1,keyasint"`
	Name  string   `cbor:"2,keyasint"`
	CPUs  Bitset   `cbor:"3,keyasint"`           // which CPU ids
	Mem   int64    `cbor:"4,keyasint,omitempty"` // MiB
	GPUs  []GPURef `cbor:"5,keyasint,omitempty"`
	GRES  []Count  `cbor:"6,keyasint,omitempty"` // other generic resources, by count
	Tasks uint32   `cbor:"7,keyasint,omitempty"`
	// Shares are the parts of devices behind the counts of sharing resources.
	Shares []GPUShare `cbor:"8,keyasint,omitempty"`
}

// GPURef names an allocated device: its UUID is the fact, index and type save
// a look-up.
type GPURef struct {
	UUID  string `cbor:"1,keyasint"`
	Index uint32 `cbor:"2,keyasint"`
	Type  string `cbor:"3,keyasint,omitempty"`
}

// ShareOf is how much of a sharing resource the parts of devices are together.
func (n *NodeAlloc) ShareOf(name string) int64 {
	var sum int64
	for i := range n.Shares {
		if n.Shares[i].Name == name {
			sum += n.Shares[i].N
		}
	}
	return sum
}

// NodeNames lists the allocated nodes in order.
func (a *Allocation) NodeNames() []string {
	out := make([]string, len(a.Nodes))
	for i := range a.Nodes {
		out[i] = a.Nodes[i].Name
	}
	return out
}

// Index finds a node's part of the allocation; -1 if it has none.
func (a *Allocation) Index(id NodeID) int {
	lo, hi := 0, len(a.Nodes)
	for lo < hi { // they are in order of their ids
		if mid := (lo + hi) / 2; a.Nodes[mid].ID < id {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(a.Nodes) && a.Nodes[lo].ID == id {
		return lo
	}
	return -1
}

// GPUCount is the number of devices in the allocation.
func (a *Allocation) GPUCount() int {
	n := 0
	for i := range a.Nodes {
		n += len(a.Nodes[i].GPUs)
	}
	return n
}

// Usage is what an attempt, or its part on one node, really used: integers,
// accumulated at the source. Zero in a Peak or Energy field with its Has flag
// false means "not measured".
type Usage struct {
	UserCPU   Span  `cbor:"1,keyasint,omitempty"`
	SystemCPU Span  `cbor:"2,keyasint,omitempty"`
	PeakRSS   int64 `cbor:"3,keyasint,omitempty"` // bytes, largest on one node
	HasRSS    bool  `cbor:"4,keyasint,omitempty"`
	ReadB     int64 `cbor:"5,keyasint,omitempty"` // bytes
	WriteB    int64 `cbor:"6,keyasint,omitempty"` // bytes
	EnergyMJ  int64 `cbor:"7,keyasint,omitempty"` // millijoules
	HasEnergy bool  `cbor:"8,keyasint,omitempty"`
	MajFaults int64 `cbor:"9,keyasint,omitempty"`
	MemMiBS   int64 `cbor:"10,keyasint,omitempty"` // MiB-seconds of resident memory
	OOMKilled bool  `cbor:"11,keyasint,omitempty"`

	GPUs []GPUUsage `cbor:"12,keyasint,omitempty"`

	// PeakVM is the largest address space that was seen on one node, in bytes, and
	// CPUKHz the frequency of the CPUs it ran on, weighted by the CPU time spent at
	// it. Both are read now and then while it runs; 0 = never.
	PeakVM int64 `cbor:"60,keyasint,omitempty"`
	CPUKHz int64 `cbor:"61,keyasint,omitempty"`

	// Counters are what only some nodes can count, and Tasks how the use of a step
	// lay on its tasks.
	Counters CounterValues `cbor:"62,keyasint,omitempty" since:"2"`
	Tasks    TaskSpreads   `cbor:"63,keyasint,omitempty" since:"2"`
}

// InVersion is what a version of the ledger has words for of it: an end must be written also
// while controllers of an older release are in the group.
func (u Usage) InVersion(version uint32) Usage {
	if version < 2 {
		u.Counters = nil
		u.Tasks = nil
	}
	return u
}

// MeanKHz is the frequency of two stretches of CPU time together; one that is
// not known is left out.
func MeanKHz(a int64, cpuA Span, b int64, cpuB Span) int64 {
	switch {
	case a <= 0:
		return max(b, 0)
	case b <= 0:
		return a
	}
	a, b = min(a, maxKHz), min(b, maxKHz)
	x, y := max(int64(cpuA/Millisecond), 0), max(int64(cpuB/Millisecond), 0)
	for x > 1<<36 || y > 1<<36 { // two years of CPU time: a product must fit
		x, y = x/2, y/2
	}
	if x+y == 0 {
		x, y = 1, 1
	}
	return a + (b-a)*y/(x+y)
}

// maxKHz bounds what is believed of a frequency: 100 GHz.
const maxKHz = 100_000_000

// GPUMethod says how figures of a device became those of one attempt.
type GPUMethod uint8

// The methods; the values are stored.
const (
	// GPUCounted: the attempt had the device alone, all is the device's own.
	GPUCounted GPUMethod = iota
	// GPUBySlices: a MIG instance has counters of its own, but for energy: that is
	// the device's by compute slices, of seven.
	GPUBySlices
	// GPUByShare: several attempts had parts of the device, and nobody can tell
	// whose work it did: times, integrals and energy are the device's while the
	// attempt had its part, times that part. Peaks and errors are nobody's.
	GPUByShare
)

// String names the method.
func (m GPUMethod) String() string {
	switch m {
	case GPUCounted:
		return "counted"
	case GPUBySlices:
		return "by slices"
	case GPUByShare:
		return "by share"
	}
	return "unknown"
}

// GPUUsage is one device's part of a Usage. Allocated time, of a part times
// the part, is the sum of the three states, always.
type GPUUsage struct {
	UUID      string `cbor:"1,keyasint"`
	NoProcess Span   `cbor:"2,keyasint,omitempty"`
	Idle      Span   `cbor:"3,keyasint,omitempty"` // a process, but no work
	Busy      Span   `cbor:"4,keyasint,omitempty"`
	UtilNS    Span   `cbor:"5,keyasint,omitempty"` // integral of utilisation over time
	SMNS      Span   `cbor:"6,keyasint,omitempty"` // integral of SM activity
	TensorNS  Span   `cbor:"7,keyasint,omitempty"`
	PeakMem   int64  `cbor:"8,keyasint,omitempty"`  // bytes
	MemMiBS   int64  `cbor:"9,keyasint,omitempty"`  // MiB-seconds
	EnergyMJ  int64  `cbor:"10,keyasint,omitempty"` // millijoules
	Throttled Span   `cbor:"11,keyasint,omitempty"`
	XIDs      int64  `cbor:"12,keyasint,omitempty"`
	Has       bool   `cbor:"13,keyasint,omitempty"` // measured at all

	Method GPUMethod `cbor:"60,keyasint,omitempty"`
	Share  int64     `cbor:"61,keyasint,omitempty"` // thousandths of the device, of GPUByShare
}

// Add sums two parts of one attempt: times and energies add, peaks take the
// larger, GPUs are told apart by UUID.
func (u Usage) Add(v Usage) Usage {
	u.CPUKHz = MeanKHz(u.CPUKHz, u.UserCPU+u.SystemCPU, v.CPUKHz, v.UserCPU+v.SystemCPU)
	u.PeakVM = max(u.PeakVM, v.PeakVM)
	u.UserCPU += v.UserCPU
	u.SystemCPU += v.SystemCPU
	u.PeakRSS = max(u.PeakRSS, v.PeakRSS)
	u.HasRSS = u.HasRSS || v.HasRSS
	u.ReadB += v.ReadB
	u.WriteB += v.WriteB
	u.EnergyMJ += v.EnergyMJ
	u.HasEnergy = u.HasEnergy || v.HasEnergy
	u.MajFaults += v.MajFaults
	u.MemMiBS += v.MemMiBS
	u.OOMKilled = u.OOMKilled || v.OOMKilled
	u.Counters = u.Counters.Add(v.Counters)
	u.Tasks = u.Tasks.Add(v.Tasks)
	gpus := append([]GPUUsage(nil), u.GPUs...)
	for _, usage := range v.GPUs {
		gpus = addGPU(gpus, usage)
	}
	u.GPUs = gpus
	return u
}

func addGPU(gpus []GPUUsage, gpu GPUUsage) []GPUUsage {
	for i := range gpus {
		if gpus[i].UUID != gpu.UUID {
			continue
		}
		usage := &gpus[i]
		usage.NoProcess += gpu.NoProcess
		usage.Idle += gpu.Idle
		usage.Busy += gpu.Busy
		usage.UtilNS += gpu.UtilNS
		usage.SMNS += gpu.SMNS
		usage.TensorNS += gpu.TensorNS
		usage.PeakMem = max(usage.PeakMem, gpu.PeakMem)
		usage.MemMiBS += gpu.MemMiBS
		usage.EnergyMJ += gpu.EnergyMJ
		usage.Throttled += gpu.Throttled
		usage.XIDs += gpu.XIDs
		usage.Has = usage.Has || gpu.Has
		return gpus
	}
	return append(gpus, gpu)
}
