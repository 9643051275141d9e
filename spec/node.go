package spec

import (
	"fmt"
	"strings"
)

// NodeSpec is a node as the configuration describes it.
type NodeSpec struct {
	Name           string     `cbor:"1,keyasint"`
	Hostname       string     `cbor:"2,keyasint,omitempty"`
	Addr           string     `cbor:"3,keyasint,omitempty"`
	Port           uint32     `cbor:"4,keyasint,omitempty"`
	CPUs           int64      `cbor:"5,keyasint"`
	Boards         int64      `cbor:"6,keyasint,omitempty"`
	Sockets        int64      `cbor:"7,keyasint,omitempty"`
	CoresPerSocket int64      `cbor:"8,keyasint,omitempty"`
	ThreadsPerCore int64      `cbor:"9,keyasint,omitempty"`
	Mem            int64      `cbor:"10,keyasint,omitempty"` // MiB, RealMemory
	MemSpecLimit   int64      `cbor:"11,keyasint,omitempty"` // MiB kept from jobs
	CoreSpecCount  int64      `cbor:"12,keyasint,omitempty"`
	CPUSpecList    string     `cbor:"13,keyasint,omitempty"` // Reserved, for display
	TmpDisk        int64      `cbor:"14,keyasint,omitempty"` // MiB
	Weight         uint32     `cbor:"15,keyasint,omitempty"`
	Features       []string   `cbor:"16,keyasint,omitempty"`
	GRES           []GRESSpec `cbor:"17,keyasint,omitempty"`
	State          string     `cbor:"18,keyasint,omitempty"` // initial: "", DOWN, DRAIN, FUTURE, CLOUD, FAIL
	Reason         string     `cbor:"19,keyasint,omitempty"`
	SuspendTime    Span       `cbor:"20,keyasint,omitempty"` // 0 = as its partitions, Infinite = never
	// Dynamic marks a node that was added while the cluster ran and is in no configuration file.
	Dynamic bool `cbor:"60,keyasint,omitempty"`
	// Available are the features that the node can be given, where Features, which it has now, are
	// not all of them.
	Available []string `cbor:"61,keyasint,omitempty"`
	// Reserved are the ids of the CPUs kept for the system (CPUSpecList), in whole cores. If it is
	// empty, the last CoreSpecCount cores are kept: a configuration has one or the other.
	Reserved Bitset `cbor:"62,keyasint,omitempty"`
}

// AvailableFeatures are all features that the node may have.
func (n *NodeSpec) AvailableFeatures() []string {
	if n.Available != nil {
		return n.Available
	}
	return n.Features
}

// GRESSpec is a kind of generic resource that a node declares.
type GRESSpec struct {
	Name  string `cbor:"1,keyasint"`           // gpu
	Type  string `cbor:"2,keyasint,omitempty"` // h100
	N     int64  `cbor:"3,keyasint"`
	Files string `cbor:"4,keyasint,omitempty"` // File= expression of gres.conf, or empty
	Cores string `cbor:"5,keyasint,omitempty"` // Cores= of gres.conf
	Links string `cbor:"6,keyasint,omitempty"`
	Flags string `cbor:"7,keyasint,omitempty"`
	// NoConsume: any number of jobs may use it at once.
	NoConsume bool `cbor:"8,keyasint,omitempty"`
}

// HasFlag tells whether Flags of gres.conf names a flag.
func (g *GRESSpec) HasFlag(name string) bool {
	for f := range strings.SplitSeq(g.Flags, ",") {
		if strings.EqualFold(strings.TrimSpace(f), name) {
			return true
		}
	}
	return false
}

// GPU is a device that can be allocated. UUID identifies it, Index is its position on the node. A
// MIG instance is a GPU with a Parent.
type GPU struct {
	Index    uint32  `cbor:"1,keyasint"`
	UUID     string  `cbor:"2,keyasint"`
	Type     string  `cbor:"3,keyasint,omitempty"`
	Minor    int32   `cbor:"4,keyasint,omitempty"`
	PCI      string  `cbor:"5,keyasint,omitempty"`
	Model    string  `cbor:"6,keyasint,omitempty"`
	Mem      int64   `cbor:"7,keyasint,omitempty"` // MiB
	NUMA     int32   `cbor:"8,keyasint,omitempty"`
	Path     string  `cbor:"9,keyasint,omitempty"`  // /dev/nvidia0
	Parent   string  `cbor:"10,keyasint,omitempty"` // UUID of the MIG parent
	Links    []int32 `cbor:"11,keyasint,omitempty"` // link class to each other index; higher is closer
	CPUs     Bitset  `cbor:"12,keyasint,omitempty"` // near CPUs; empty = all
	Provider string  `cbor:"13,keyasint,omitempty"` // dcgm, nvml, simulated
}

// Inventory is what the agent of a node found there. It registers the node with it.
type Inventory struct {
	BootID         string  `cbor:"1,keyasint"`
	BootedAt       Instant `cbor:"2,keyasint,omitempty"`
	AgentStarted   Instant `cbor:"3,keyasint,omitempty"`
	AgentVersion   string  `cbor:"4,keyasint,omitempty"`
	Hostname       string  `cbor:"5,keyasint,omitempty"`
	Addr           string  `cbor:"6,keyasint,omitempty"` // host:port of the agent's API
	OS             string  `cbor:"7,keyasint,omitempty"`
	Arch           string  `cbor:"8,keyasint,omitempty"`
	CPUs           int64   `cbor:"9,keyasint"`
	Sockets        int64   `cbor:"10,keyasint,omitempty"`
	CoresPerSocket int64   `cbor:"11,keyasint,omitempty"`
	ThreadsPerCore int64   `cbor:"12,keyasint,omitempty"`
	Mem            int64   `cbor:"13,keyasint,omitempty"` // MiB
	TmpDisk        int64   `cbor:"14,keyasint,omitempty"` // MiB
	GPUs           []GPU   `cbor:"15,keyasint,omitempty"`
	GRES           []Count `cbor:"16,keyasint,omitempty"` // other generic resources
	MetricsAddr    string  `cbor:"17,keyasint,omitempty"` // host:port of /metrics
	Degraded       string  `cbor:"18,keyasint,omitempty"` // what the agent cannot do here, or empty
	Socket         string  `cbor:"19,keyasint,omitempty"` // of the agent's API on its own machine; empty: it starts no steps
}

// JobCPUs is the number of CPUs that jobs can have: all but those kept for the system.
func (n *NodeSpec) JobCPUs() int64 {
	return max(n.CPUs-n.CoreSpecCount*max(n.ThreadsPerCore, 1)-int64(n.Reserved.Count()), 0)
}

// TopCPU is one more than the highest id of a CPU that jobs can have. Ids that are Reserved lie
// among those of jobs, while CoreSpecCount takes the highest ids.
func (n *NodeSpec) TopCPU() int64 {
	return n.JobCPUs() + int64(n.Reserved.Count())
}

// ForJobs tells whether jobs can have all of these CPUs: the node has them, and none is kept for
// the system.
func (n *NodeSpec) ForJobs(cpus Bitset) bool {
	return int64(cpus.Last()) < n.TopCPU() && !n.Reserved.Intersects(cpus)
}

// NodeTRES is all that jobs can have of a node.
func (n *NodeSpec) NodeTRES() TRES {
	tres := TRES{CPU: n.JobCPUs(), Mem: n.Mem - n.MemSpecLimit, Node: 1}
	for _, gres := range n.GRES {
		count := Count{Name: gres.Name, Type: gres.Type}
		tres = tres.With(count.TRES(), tres.Get(count.TRES())+gres.N)
		if typed := count.TypedTRES(); typed != "" {
			tres = tres.With(typed, tres.Get(typed)+gres.N)
		}
	}
	return tres
}

// FullInventory is the inventory of a node that has exactly what its configuration declares, and
// the given boot id. Replays and suppositions register nodes with it.
func (n *NodeSpec) FullInventory(boot string) Inventory {
	inventory := Inventory{
		BootID:         boot,
		CPUs:           n.CPUs,
		Sockets:        n.Sockets,
		CoresPerSocket: n.CoresPerSocket,
		ThreadsPerCore: n.ThreadsPerCore,
		Mem:            n.Mem,
		TmpDisk:        n.TmpDisk,
	}
	for _, gres := range n.GRES {
		if gres.Name != "gpu" {
			inventory.GRES = append(
				inventory.GRES, Count{Name: gres.Name, Type: gres.Type, N: gres.N},
			)
			continue
		}
		for range gres.N {
			index := uint32(len(inventory.GPUs))
			uuid := fmt.Sprintf("GPU-%s-%d", n.Name, index)
			inventory.GPUs = append(inventory.GPUs, GPU{Index: index, Type: gres.Type, UUID: uuid})
		}
	}
	return inventory
}
