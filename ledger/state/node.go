package state

import (
	"fmt"
	"slices"
	"strings"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// Node is a node of the registry with what is allocated on it. A *Node that a
// table holds never changes. What is derived from the configuration, the
// inventory and the jobs is not part of a snapshot.
type Node struct {
	ID   spec.NodeID     `cbor:"1,keyasint"`
	Spec *spec.NodeSpec  `cbor:"2,keyasint,omitempty"`
	Inv  *spec.Inventory `cbor:"3,keyasint,omitempty"` // nil = never registered

	Registered spec.Instant         `cbor:"4,keyasint,omitempty"` // last registration
	Admin      event.NodeAdminState `cbor:"5,keyasint"`           // NodeResume = in service
	Lost       bool                 `cbor:"6,keyasint,omitempty"` // silent
	LostAt     spec.Instant         `cbor:"7,keyasint,omitempty"`
	Invalid    string               `cbor:"8,keyasint,omitempty"` // inventory does not fit
	Removed    bool                 `cbor:"9,keyasint,omitempty"` // gone from the configuration, waiting for its jobs

	Reason   string       `cbor:"10,keyasint,omitempty"`
	ReasonBy event.Actor  `cbor:"11,keyasint"`
	ReasonAt spec.Instant `cbor:"12,keyasint,omitempty"`

	CPUs    int64        `cbor:"-"` // capacity for jobs
	Mem     int64        `cbor:"-"` // MiB for jobs
	GPUs    []spec.GPU   `cbor:"-"`
	GRES    []spec.Count `cbor:"-"` // other generic resources
	UsedCPU spec.Bitset  `cbor:"-"`
	// SharedCPU counts, of the CPUs in UsedCPU, those of jobs that share them: the
	// k-th set is of CPUs on which more than k such jobs are.
	SharedCPU []spec.Bitset `cbor:"-"`
	UsedMem   int64         `cbor:"-"`
	UsedGPU   spec.Bitset   `cbor:"-"` // by position in GPUs
	UsedGRES  []spec.Count  `cbor:"-"`
	// Shares are how its GPUs can be shared, UsedShare how much of each is, by
	// position in GPUs; nil where none is.
	Shares    []spec.DeviceShares `cbor:"-"`
	UsedShare []int64             `cbor:"-"`
	Jobs      []spec.JobUID       `cbor:"-"` // that hold it, ascending
	// Shrunk tells that jobs hold more than the node still offers: its
	// configuration or inventory became smaller under them.
	Shrunk bool         `cbor:"-"`
	BusyAt spec.Instant `cbor:"22,keyasint,omitempty"` // last change of its allocation

	// Faults of its GPUs: the last of each kind, GPU and number, oldest first;
	// at most MaxGPUFaults. Count is how often since the node is known.
	Faults []spec.GPUFault `cbor:"23,keyasint,omitempty"`

	// Power is what was last done about its power, 0 if nothing ever was, and
	// PowerAt when. DownAt and UpAt are when the site's programs were last run
	// for it.
	Power   event.PowerState `cbor:"24,keyasint,omitempty"`
	PowerAt spec.Instant     `cbor:"25,keyasint,omitempty"`
	DownAt  spec.Instant     `cbor:"26,keyasint,omitempty"`
	UpAt    spec.Instant     `cbor:"27,keyasint,omitempty"`
	Reboot  *Reboot          `cbor:"28,keyasint,omitempty"` // nil: none is asked for
	Comment string           `cbor:"29,keyasint,omitempty"` // an operator's
	Extra   string           `cbor:"30,keyasint,omitempty"` // likewise
	LostWhy string           `cbor:"32,keyasint,omitempty"` // of Lost, in the agent's words
	// Unfenced are the attempts that were given up here while nobody could ask the
	// node, in the order in which that happened. Processes of them may still live.
	Unfenced []Unfenced `cbor:"31,keyasint,omitempty"`
	// Holds are what other schedulers have on the node, by id. HeldCPU are the CPUs
	// that they share, as many as the sum of their thousandths needs.
	Holds   []spec.ForeignHold `cbor:"33,keyasint,omitempty"`
	HeldCPU spec.Bitset        `cbor:"34,keyasint,omitempty"`
	// ResumeAt is when a drained or downed node returns to service by itself.
	ResumeAt spec.Instant `cbor:"40,keyasint,omitempty"`
	// GaveUp is the sequence number of the last event that gave an attempt up here:
	// answers to heartbeats lengthen only the leases of attempts that started later.
	GaveUp uint64 `cbor:"110,keyasint,omitempty"`
	// FenceTry is the last failure of the site's fence program for Unfenced; nil:
	// there was none.
	FenceTry *FenceTry `cbor:"111,keyasint,omitempty"`
}

// FenceTry is a run of the fence program that did not confirm that a node is off.
type FenceTry struct {
	At      spec.Instant `cbor:"1,keyasint"`
	Try     uint32       `cbor:"2,keyasint"`
	Program string       `cbor:"3,keyasint"`
	Why     string       `cbor:"4,keyasint,omitempty"`
}

// Unfenced is an attempt that was given up without proof that it has ended.
type Unfenced struct {
	UID       spec.JobUID  `cbor:"1,keyasint"`
	Attempt   uint32       `cbor:"2,keyasint"`
	Since     spec.Instant `cbor:"3,keyasint"`
	Until     spec.Instant `cbor:"4,keyasint,omitempty"` // its lease is over then; 0 = it has none
	Partition string       `cbor:"5,keyasint,omitempty"`
	Epoch     uint64       `cbor:"6,keyasint,omitempty"` // of the attempt's runs
	Lease     spec.Span    `cbor:"7,keyasint,omitempty"` // as in its allocation
}

// findOwed finds an unfenced attempt; -1 without.
func (n *Node) findOwed(uid spec.JobUID, attempt uint32) int {
	return slices.IndexFunc(
		n.Unfenced,
		func(u Unfenced) bool { return u.UID == uid && u.Attempt == attempt },
	)
}

// HasUnfenced tells whether an attempt was given up here and is not fenced yet.
func (n *Node) HasUnfenced(uid spec.JobUID, attempt uint32) bool {
	return n.findOwed(uid, attempt) >= 0
}

// OwesRun is HasUnfenced for the key of a run, which names the epoch too.
func (n *Node) OwesRun(uid spec.JobUID, attempt uint32, epoch uint64) bool {
	i := n.findOwed(uid, attempt)
	return i >= 0 && n.Unfenced[i].Epoch == epoch
}

// Reboot is a reboot that was asked for or is under way.
type Reboot struct {
	Issued bool                 `cbor:"1,keyasint,omitempty"`
	At     spec.Instant         `cbor:"2,keyasint"`
	ASAP   bool                 `cbor:"3,keyasint,omitempty"`
	Next   event.NodeAdminState `cbor:"4,keyasint,omitempty"` // 0: as before
	Reason string               `cbor:"5,keyasint,omitempty"`
}

// IsRebooting tells whether the node was told to reboot and has not come back since.
func (n *Node) IsRebooting() bool { return n.Reboot != nil && n.Reboot.Issued }

// RebootsNext tells whether a reboot keeps new jobs away: it has begun, or it was asked
// for as soon as possible, and the node would never become idle if jobs kept coming.
func (n *Node) RebootsNext() bool {
	return n.Reboot != nil && (n.Reboot.Issued || n.Reboot.ASAP)
}

// Usable tells whether new jobs may start on the node.
func (n *Node) Usable() bool {
	if len(n.Unfenced) > 0 {
		return false // what lives there may still use what it was given
	}
	if n.Admin != event.NodeResume || n.Invalid != "" || n.Removed || n.RebootsNext() {
		return false
	}
	switch n.Power {
	case event.PowerDownASAP, event.PoweringDown:
		return false
	case event.PoweredDown, event.PowerUpWish, event.PoweringUp:
		return true // a job that is given it waits for it to boot
	}
	return n.Inv != nil && !n.Lost
}

// Asleep tells a node whose agent is not expected to answer: it is powered
// down, or on the way there or back.
func (n *Node) Asleep() bool { return n.Power >= event.PoweringDown }

// Shortfall says which GPUs the configuration names and the agent did not find, in
// the words in which Invalid speaks of other resources; empty without. Such a node
// stays in service: it has the GPUs that were found, and jobs that need no more of
// them than that can start.
func (n *Node) Shortfall() string {
	if n.Inv == nil {
		return "" // the configured ones are expected
	}
	var out []string
	untyped := int64(0)
	for i := range n.Spec.GRES {
		gres := &n.Spec.GRES[i]
		switch {
		case gres.Name != "gpu":
		case gres.Type == "":
			untyped += gres.N
		default:
			if found := n.countGPUs(gres.Type); found < gres.N {
				out = append(out, tooFew("gres/gpu:"+gres.Type, found, gres.N))
			}
		}
	}
	if found := int64(len(n.GPUs)); found < untyped {
		out = append(out, tooFew("gres/gpu", found, untyped))
	}
	return strings.Join(out, ", ")
}

// countGPUs counts the GPUs of a type.
func (n *Node) countGPUs(typ string) int64 {
	count := int64(0)
	for i := range n.GPUs {
		if n.GPUs[i].Type == typ {
			count++
		}
	}
	return count
}

// tooFew says that less of a resource was found than is configured.
func tooFew(name string, found, configured int64) string {
	return fmt.Sprintf("%s count too low: %d found, %d configured", name, found, configured)
}

// FreeCPUs is the number of CPUs nobody holds.
func (n *Node) FreeCPUs() int64 { return n.CPUs - int64(n.UsedCPU.Count()) }

// UnsharedCPUs is the number of CPUs that no job has for itself.
func (n *Node) UnsharedCPUs() int64 {
	free := n.FreeCPUs()
	if len(n.SharedCPU) > 0 {
		free += int64(n.SharedCPU[0].Count())
	}
	return free
}

// Sharers is on how many jobs that share it a CPU is.
func (n *Node) Sharers(cpu int) int {
	k := 0
	for k < len(n.SharedCPU) && n.SharedCPU[k].Has(cpu) {
		k++
	}
	return k
}

// Shareable tells whether CPUs may be given to one more job of those that
// share each CPU with so many: no job has one of them for itself, and none is
// full.
func (n *Node) Shareable(cpus spec.Bitset, most uint32) bool {
	own := n.UsedCPU
	if len(n.SharedCPU) > 0 {
		own = own.AndNot(n.SharedCPU[0])
	}
	return !own.Intersects(cpus) &&
		(len(n.SharedCPU) < int(most) || !n.SharedCPU[most-1].Intersects(cpus))
}

// FreeMem is the memory nobody holds, in MiB.
func (n *Node) FreeMem() int64 { return n.Mem - n.UsedMem }

// Capacity is everything the node offers to jobs, as a vector.
func (n *Node) Capacity() spec.TRES {
	tres := spec.TRES{CPU: n.CPUs, Mem: n.Mem, Node: 1}
	for _, gpu := range n.GPUs {
		tres = countGPU(tres, gpu.Type)
	}
	for _, count := range n.GRES {
		tres = tres.With(count.TRES(), tres.Get(count.TRES())+count.N)
		if typed := count.TypedTRES(); typed != "" {
			tres = tres.With(typed, tres.Get(typed)+count.N)
		}
	}
	return tres
}

// InUse is what jobs and other schedulers hold on the node, as a vector.
func (n *Node) InUse() spec.TRES {
	tres := spec.TRES{CPU: int64(n.UsedCPU.Count()), Mem: n.UsedMem}
	for i := range n.GPUs {
		if n.UsedGPU.Has(i) {
			tres = countGPU(tres, n.GPUs[i].Type)
		}
	}
	for _, count := range n.UsedGRES {
		tres = tres.With(count.TRES(), tres.Get(count.TRES())+count.N)
	}
	return tres
}

func countGPU(tres spec.TRES, typ string) spec.TRES {
	tres = tres.With("gres/gpu", tres.Get("gres/gpu")+1)
	if typ != "" {
		tres = tres.With("gres/gpu:"+typ, tres.Get("gres/gpu:"+typ)+1)
	}
	return tres
}

// ShareAt is how the device at a position can be shared; the zero value if it
// cannot.
func (n *Node) ShareAt(i int) spec.DeviceShares {
	if i < len(n.Shares) {
		return n.Shares[i]
	}
	return spec.DeviceShares{}
}

// ShareUsed is how much of the device at a position is held in parts.
func (n *Node) ShareUsed(i int) int64 {
	if i < len(n.UsedShare) {
		return n.UsedShare[i]
	}
	return 0
}

// TakesShare tells whether the node can give one more part of a device.
func (n *Node) TakesShare(share *spec.GPUShare) bool {
	i := n.gpuAt(share.UUID)
	if i < 0 || share.N <= 0 || n.UsedGPU.Has(i) {
		return false
	}
	have := n.ShareAt(i)
	if have.Name != share.Name || n.ShareUsed(i)+share.N > have.N {
		return false
	}
	for k, used := range n.UsedShare {
		if have.One && k != i && used > 0 {
			return false
		}
	}
	return true
}

// FreeWhole tells whether nobody holds any of the device at a position.
func (n *Node) FreeWhole(i int) bool { return !n.UsedGPU.Has(i) && n.ShareUsed(i) == 0 }
