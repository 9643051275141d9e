package plan

import "github.com/musterhpc/muster/spec"

// Tasks is a step's part on one node, as the process that minds it is told. A
// run with Tasks has that process as its leader: it starts the tasks, holds
// their pipes and terminals, and outlives agent and shepherd, so that a restart
// of either loses no byte.
type Tasks struct {
	Prefix  string   `cbor:"1,keyasint,omitempty"` // of lines that are told to the user
	List    []Task   `cbor:"2,keyasint"`           // by local id
	Argv    []string `cbor:"3,keyasint,omitempty"` // of the tasks that have none of their own
	Env     []string `cbor:"4,keyasint,omitempty"` // of all tasks
	WorkDir string   `cbor:"5,keyasint"`
	Umask   uint32   `cbor:"6,keyasint,omitempty"`
	Append  bool     `cbor:"7,keyasint,omitempty"`
	Rlimits []Rlimit `cbor:"9,keyasint,omitempty"` // the shepherd puts in what this node allows
	// Input is the rank that reads what the user types, spec.InputAll or spec.InputNone.
	Input    int32      `cbor:"10,keyasint,omitempty"`
	Terminal *Window    `cbor:"11,keyasint,omitempty"` // the first task here has a terminal of this size
	Prologs  []string   `cbor:"12,keyasint,omitempty"` // run before each task, as the user, in this order
	Epilogs  []string   `cbor:"13,keyasint,omitempty"` // run after each task
	PMI      *PMI       `cbor:"14,keyasint,omitempty"` // nil: no server
	Notices  []string   `cbor:"15,keyasint,omitempty"` // for the user, before anything else
	Cast     *spec.Cast `cbor:"17,keyasint,omitempty"` // the tasks write this file, from their input
	// Contained tells that the tasks are in an image, which may lack what the
	// site's programs need.
	Contained bool   `cbor:"18,keyasint,omitempty"`
	OOMFile   string `cbor:"16,keyasint,omitempty"` // the shepherd puts in where kills for memory are counted
	PMIx      *PMIx  `cbor:"19,keyasint,omitempty"` // nil: no server
}

// Task is one task of a step.
type Task struct {
	Rank uint32   `cbor:"1,keyasint"`
	Argv []string `cbor:"2,keyasint,omitempty"`
	Env  []string `cbor:"3,keyasint,omitempty"` // beyond Tasks.Env, and before it
	CPUs []int32  `cbor:"4,keyasint,omitempty"`
	// Files with their patterns expanded; empty ones go to the step's client.
	Stdin  string `cbor:"5,keyasint,omitempty"`
	Stdout string `cbor:"6,keyasint,omitempty"`
	Stderr string `cbor:"7,keyasint,omitempty"`
}

// Window is the size of a terminal.
type Window struct {
	Rows    uint32 `cbor:"1,keyasint,omitempty"`
	Columns uint32 `cbor:"2,keyasint,omitempty"`
}

// PMI is what the tasks of a step learn of each other over PMI.
type PMI struct {
	Job     string   `cbor:"1,keyasint"` // names the key space
	Size    uint32   `cbor:"2,keyasint"` // tasks of the whole step
	Node    uint32   `cbor:"3,keyasint"` // this one among the step's
	Nodes   uint32   `cbor:"4,keyasint"`
	Mapping string   `cbor:"5,keyasint"` // PMI_process_mapping
	Ranks   []uint32 `cbor:"6,keyasint"` // here, by local id
}

// PMIx is what the tasks of a step learn of each other over PMIx.
type PMIx struct {
	Program   string   `cbor:"1,keyasint"` // muster-pmix of this node
	Namespace string   `cbor:"2,keyasint"`
	Node      uint32   `cbor:"3,keyasint,omitempty"` // this one among the step's
	Hosts     []string `cbor:"4,keyasint"`           // the step's nodes
	NodeOf    []uint32 `cbor:"5,keyasint"`           // by rank
	Ranks     []uint32 `cbor:"6,keyasint"`           // here, by local id
	// Folder is where muster-pmix keeps files for its tasks while they run. It is
	// the user's, and gone with the run.
	Folder string   `cbor:"7,keyasint"`
	Env    []string `cbor:"8,keyasint,omitempty"` // of muster-pmix
}

// TaskExit is how one task ended.
type TaskExit struct {
	Rank   uint32       `cbor:"1,keyasint"`
	Code   int32        `cbor:"2,keyasint,omitempty"`
	Signal int32        `cbor:"3,keyasint,omitempty"`
	Core   bool         `cbor:"4,keyasint,omitempty"`
	Error  string       `cbor:"5,keyasint,omitempty"` // why it could not be started; or OutOfMemory
	Start  spec.Instant `cbor:"6,keyasint,omitempty"`
	End    spec.Instant `cbor:"7,keyasint,omitempty"`
	Usage  Usage        `cbor:"8,keyasint,omitempty"`
}

// OutOfMemory is the Error of a task that the kernel killed for lack of memory.
const OutOfMemory = "Out Of Memory"

// signalled is what a shell adds to the number of the signal that ended a
// process.
const signalled = 128

// Worst gives the end of a step's part by the ends of its tasks: the highest
// code, where a task that a signal ended counts as 128 and the signal; where no
// task has ended with a code of its own, the highest signal.
func Worst(list []TaskExit) (code, signal int32) {
	var own int32
	for i := range list {
		exit := &list[i]
		own = max(own, exit.Code)
		if exit.Signal != 0 {
			signal, code = max(signal, exit.Signal), max(code, signalled+exit.Signal)
		}
	}
	if own == 0 {
		return 0, signal
	}
	return max(code, own), 0
}

// Frame is one thing that happened in a step's part on a node. Exactly one
// field besides the number is set.
type Frame struct {
	Number  uint64    `cbor:"1,keyasint"` // from 1 on, without gaps
	Started *TaskPIDs `cbor:"2,keyasint,omitempty"`
	Output  *Output   `cbor:"3,keyasint,omitempty"`
	Exit    *TaskExit `cbor:"4,keyasint,omitempty"`
	End     *FrameEnd `cbor:"5,keyasint,omitempty"` // the last
	Notice  string    `cbor:"6,keyasint,omitempty"` // a line for the user
	Fence   *Fence    `cbor:"7,keyasint,omitempty"`
	Modex   *Modex    `cbor:"8,keyasint,omitempty"`
	Abort   bool      `cbor:"9,keyasint,omitempty"` // the program wants all tasks of the step to end
}

// Fence is what the tasks of one node have put before a fence of PMI, by the
// fence's number; or what those of all nodes have.
type Fence struct {
	Number uint64 `cbor:"1,keyasint"`
	Node   uint32 `cbor:"2,keyasint,omitempty"`
	Data   []byte `cbor:"3,keyasint,omitempty"`
	// Of PMIx. Joined: what the nodes have put is joined end to end, as it is, in
	// the order of the nodes. Group names the ranks that take part, in order with
	// commas, and Nodes are those that have some of them; an empty Group is all.
	// Fences are numbered in each group.
	Joined bool     `cbor:"4,keyasint,omitempty"`
	Group  string   `cbor:"5,keyasint,omitempty"`
	Nodes  []uint32 `cbor:"6,keyasint,omitempty"`
}

// ModexKind is what a Modex is.
type ModexKind uint8

// The kinds of a Modex.
const (
	ModexAsk     ModexKind = iota + 1 // what has the task Rank put?
	ModexAnswer                       // to the node that has asked
	ModexReceipt                      // the answer has arrived, and need not be kept
)

// Modex is a direct exchange of PMIx: a task needs what one of another node has
// put, and no fence has brought it. Number is the asking node's.
type Modex struct {
	Kind   ModexKind `cbor:"1,keyasint"`
	Number uint64    `cbor:"2,keyasint,omitempty"`
	From   uint32    `cbor:"3,keyasint,omitempty"` // node that says it
	To     uint32    `cbor:"4,keyasint,omitempty"` // node that it is for
	Rank   uint32    `cbor:"5,keyasint,omitempty"`
	Status int32     `cbor:"6,keyasint,omitempty"` // of an answer, as PMIx has it
	Data   []byte    `cbor:"7,keyasint,omitempty"`
}

// TaskPIDs names the processes of tasks.
type TaskPIDs struct {
	Ranks []uint32 `cbor:"1,keyasint"`
	PIDs  []int32  `cbor:"2,keyasint"`
}

// Output is what a task wrote; no data is the end of the stream.
type Output struct {
	Rank   uint32 `cbor:"1,keyasint"`
	Stream uint8  `cbor:"2,keyasint"` // 1 or 2, as the file descriptor
	Data   []byte `cbor:"3,keyasint,omitempty"`
}

// FrameEnd tells that no process of the step is left on this node.
type FrameEnd struct {
	Code   int32  `cbor:"1,keyasint,omitempty"`
	Signal int32  `cbor:"2,keyasint,omitempty"`
	Error  string `cbor:"3,keyasint,omitempty"`
}
