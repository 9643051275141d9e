package spec

import "strings"

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
	Distribution string  `cbor:"26,keyasint,omitempty"` // block, cyclic or plane=N over the nodes
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
	MPI        string        `cbor:"54,keyasint,omitempty"` // none or pmi2
	KillOnFail bool          `cbor:"55,keyasint,omitempty"` // -K
	Wait       int32         `cbor:"56,keyasint,omitempty"` // -W, seconds
	Host       string        `cbor:"57,keyasint,omitempty"` // where srun runs
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

// Plane is the size of a plane distribution; 0 = it is another one.
func (s *StepSpec) Plane() uint32 {
	text, ok := strings.CutPrefix(s.Distribution, "plane=")
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
// deals one task a node, plane=N deals N.
func StepRanks(layout []NodeAlloc, s *StepSpec) [][]uint32 {
	out := make([][]uint32, len(layout))
	deal := s.Plane()
	if s.Distribution == "cyclic" {
		deal = 1
	}
	rank := uint32(0)
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
