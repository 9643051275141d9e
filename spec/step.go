package spec

import (
	"strconv"
	"strings"
)

// StepSpec is a step as it was asked for. Zero means "not given" unless a
// field says otherwise.
type StepSpec struct {
	Name    string   `cbor:"1,keyasint,omitempty"`
	Argv    []string `cbor:"2,keyasint,omitempty"` // of --multi-prog empty
	WorkDir string   `cbor:"3,keyasint,omitempty"`
	Umask   uint32   `cbor:"4,keyasint,omitempty"`
	Rlimits []Count  `cbor:"5,keyasint,omitempty"`
	Env     Hash     `cbor:"6,keyasint"` // NUL-separated NAME=value of the tasks

	MinNodes     uint32  `cbor:"10,keyasint,omitempty"`
	MaxNodes     uint32  `cbor:"11,keyasint,omitempty"`
	Tasks        uint32  `cbor:"12,keyasint,omitempty"`
	TasksPerNode uint32  `cbor:"13,keyasint,omitempty"`
	CPUsPerTask  uint32  `cbor:"14,keyasint,omitempty"`
	Overlap      bool    `cbor:"15,keyasint,omitempty"` // shares what other steps have
	Exact        bool    `cbor:"16,keyasint,omitempty"` // only the CPUs that its tasks ask for
	MemPerNode   int64   `cbor:"17,keyasint,omitempty"` // MiB
	MemPerCPU    int64   `cbor:"18,keyasint,omitempty"` // MiB
	PerNode      []Count `cbor:"19,keyasint,omitempty"` // of generic resources
	PerStep      []Count `cbor:"20,keyasint,omitempty"`
	PerTask      []Count `cbor:"21,keyasint,omitempty"`
	NoGRES       bool    `cbor:"22,keyasint,omitempty"`
	Nodes        string  `cbor:"23,keyasint,omitempty"` // hostlist: these at least
	Exclude      string  `cbor:"24,keyasint,omitempty"`
	Relative     uint32  `cbor:"25,keyasint,omitempty"` // --relative, plus one
	Distribution string  `cbor:"26,keyasint,omitempty"` // as asked: over nodes, sockets and cores; see DealOverNodes
	Overcommit   bool    `cbor:"27,keyasint,omitempty"`
	Limit        Span    `cbor:"28,keyasint,omitempty"` // 0 = the job's
	External     bool    `cbor:"29,keyasint,omitempty"` // --external-launcher: holds nothing

	// Files that the tasks open on their nodes, patterns not expanded; empty: by
	// way of srun.
	Stdin      string        `cbor:"40,keyasint,omitempty"`
	Stdout     string        `cbor:"41,keyasint,omitempty"`
	Stderr     string        `cbor:"42,keyasint,omitempty"` // empty with Stdout set: as Stdout
	Append     bool          `cbor:"43,keyasint,omitempty"`
	InputTask  int32         `cbor:"44,keyasint,omitempty"` // who gets srun's input: InputAll, InputNone, else a rank
	Pty        bool          `cbor:"45,keyasint,omitempty"` // rank 0 gets a terminal
	Rows       uint32        `cbor:"46,keyasint,omitempty"`
	Columns    uint32        `cbor:"47,keyasint,omitempty"`
	Unbuffered bool          `cbor:"48,keyasint,omitempty"`
	TaskProlog string        `cbor:"49,keyasint,omitempty"`
	TaskEpilog string        `cbor:"50,keyasint,omitempty"`
	Programs   []TaskProgram `cbor:"51,keyasint,omitempty"` // --multi-prog
	CPUBind    string        `cbor:"52,keyasint,omitempty"`
	GPUBind    string        `cbor:"53,keyasint,omitempty"`
	MPI        string        `cbor:"54,keyasint,omitempty"`           // MPINone, MPIPMI2, pmix or pmix_vN; empty: as the site says
	KillOnFail bool          `cbor:"55,keyasint,omitempty"`           // -K
	Wait       int32         `cbor:"56,keyasint,omitempty"`           // -W, seconds; 0 = as the site says, -1 = any
	Host       string        `cbor:"57,keyasint,omitempty"`           // where srun runs
	World      *StepWorld    `cbor:"58,keyasint,omitempty"`           // of a step of several components; the controller fills it in
	KeepOnFail bool          `cbor:"59,keyasint,omitempty"`           // -K0, whatever the site says
	Cast       *Cast         `cbor:"60,keyasint,omitempty"`           // its tasks write a file that comes as input
	KeepSizes  bool          `cbor:"61,keyasint,omitempty"`           // -E: SLURM_NTASKS and its like as srun has them
	Container  *Container    `cbor:"62,keyasint,omitempty"`           // nil: its tasks run in the node's files
	TaskNodes  []string      `cbor:"63,keyasint,omitempty" since:"2"` // of the distribution arbitrary: the node of each task, by rank

	// LimitsAsked tells that --propagate chose Rlimits, as JobIO's does.
	LimitsAsked bool `cbor:"64,keyasint,omitempty" since:"2"`
}

// Cast is a file that a step of sbcast writes on each node.
type Cast struct {
	Path     string  `cbor:"1,keyasint"`
	Size     int64   `cbor:"2,keyasint,omitempty"`
	Mode     uint32  `cbor:"3,keyasint,omitempty"`
	Modified Instant `cbor:"4,keyasint,omitempty"` // 0 = when it is written
	Force    bool    `cbor:"5,keyasint,omitempty"` // one that is there is replaced
}

// StepWorld is what a step in several components of a heterogeneous job is as a
// whole. In each component it is a step of its own, with the same number; its
// tasks are numbered after those of the parts before it, and so are its nodes.
type StepWorld struct {
	Job   JobID       `cbor:"1,keyasint"`           // of the first part
	Place uint32      `cbor:"2,keyasint,omitempty"` // of this part among them
	Parts []WorldPart `cbor:"3,keyasint"`
}

// WorldPart is a part of a StepWorld.
type WorldPart struct {
	Nodes        string   `cbor:"1,keyasint"` // hostlist
	Tasks        []uint32 `cbor:"2,keyasint"` // of each node, in their order
	Distribution string   `cbor:"3,keyasint,omitempty"`
}

// FirstTask is the number of a part's first task.
func (w *StepWorld) FirstTask() uint32 {
	n := uint32(0)
	if w != nil {
		for i := range min(int(w.Place), len(w.Parts)) {
			n += w.Parts[i].countTasks()
		}
	}
	return n
}

// FirstNode is the number of a part's first node.
func (w *StepWorld) FirstNode() int {
	n := 0
	for i := range min(int(w.Place), len(w.Parts)) {
		n += len(w.Parts[i].Tasks)
	}
	return n
}

// TasksOnNode are the tasks of all nodes of all parts.
func (w *StepWorld) TasksOnNode() []uint32 {
	var out []uint32
	for i := range w.Parts {
		out = append(out, w.Parts[i].Tasks...)
	}
	return out
}

// NodeOf tells on which node, by its number, each task is.
func (w *StepWorld) NodeOf() []uint32 {
	var out []uint32
	for i := range w.Parts {
		worldPart := &w.Parts[i]
		first := StepWorld{Place: uint32(i), Parts: w.Parts}
		at := uint32(first.FirstNode())
		layout := make([]NodeAlloc, len(worldPart.Tasks))
		for k := range layout {
			layout[k].Tasks = worldPart.Tasks[k]
		}
		part := make([]uint32, worldPart.countTasks())
		for k, ranks := range StepRanks(layout, &StepSpec{Distribution: worldPart.Distribution}) {
			for _, r := range ranks {
				part[r] = at + uint32(k)
			}
		}
		out = append(out, part...)
	}
	return out
}

func (p *WorldPart) countTasks() uint32 {
	n := uint32(0)
	for _, t := range p.Tasks {
		n += t
	}
	return n
}

// The values of StepSpec.InputTask that name no rank.
const (
	InputAll  int32 = -1
	InputNone int32 = -2
)

// TaskProgram is a line of --multi-prog: what some ranks run.
type TaskProgram struct {
	Ranks TaskSet  `cbor:"1,keyasint,omitempty"`
	Argv  []string `cbor:"2,keyasint,omitempty"`
}

// DealOverNodes is how the tasks are dealt over nodes, the first level of the
// distribution: what stands behind a colon is about sockets and cores, and what stands
// behind a comma about how few nodes are used.
func (s *StepSpec) DealOverNodes() string {
	levels, _, _ := strings.Cut(s.Distribution, ",")
	nodes, _, _ := strings.Cut(levels, ":")
	return nodes
}

// Plane is the size of a plane distribution; 0 = it is another one.
func (s *StepSpec) Plane() uint32 {
	text, ok := strings.CutPrefix(s.DealOverNodes(), "plane=")
	if !ok {
		return 0
	}
	var n uint32
	for _, c := range text {
		if c < '0' || c > '9' || n > 1<<24 {
			return 0
		}
		n = n*10 + uint32(c-'0')
	}
	return n
}

// StepRanks numbers the tasks of a step: for each node, the ranks of its
// tasks in the order of their local ids. Block fills node after node, cyclic
// deals one task a node, plane=N deals N, and arbitrary puts each where TaskNodes
// says. A part of a StepWorld counts on from the parts before it.
func StepRanks(layout []NodeAlloc, spec *StepSpec) [][]uint32 {
	out := make([][]uint32, len(layout))
	deal := spec.Plane()
	if spec.DealOverNodes() == "cyclic" {
		deal = 1
	}
	rank := spec.World.FirstTask()
	if len(spec.TaskNodes) > 0 {
		for i := range layout {
			for at, name := range spec.TaskNodes {
				if name == layout[i].Name {
					out[i] = append(out[i], rank+uint32(at))
				}
			}
		}
		return out
	}
	for left := true; left; {
		left = false
		for i := range layout {
			n := layout[i].Tasks - uint32(len(out[i]))
			if deal > 0 {
				n = min(n, deal)
			}
			for range n {
				out[i] = append(out[i], rank)
				rank++
			}
			left = left || uint32(len(out[i])) < layout[i].Tasks
		}
	}
	return out
}

// The MPI interfaces of a step besides those of PMIx.
const (
	MPINone = "none"
	MPIPMI2 = "pmi2" // and PMI-1
)

// IsPMIx tells that an MPI interface is PMIx: pmix, or pmix_vN for one version of
// its library.
func IsPMIx(mpi string) bool {
	if mpi == "pmix" {
		return true
	}
	version, ok := strings.CutPrefix(mpi, "pmix_v")
	n, err := strconv.Atoi(version)
	return ok && err == nil && n > 0
}
