package spec

import "fmt"

// JobUID identifies one job record for ever: it is never reused, not by an id
// reset and not by an import. Everything but the user's eyes uses it.
type JobUID uint64

// JobID is the number people see. Array tasks and re-initialised clusters may
// show a number again; only JobUID is a key.
type JobID uint32

// StepID numbers the steps of a job; the named steps are negative.
type StepID int32

// The steps every job may have besides its numbered ones.
const (
	StepBatch       StepID = -5
	StepExtern      StepID = -4
	StepInteractive StepID = -6
)

// String gives the step as Slurm's tools print it.
func (s StepID) String() string {
	switch s {
	case StepBatch:
		return "batch"
	case StepExtern:
		return "extern"
	case StepInteractive:
		return "interactive"
	}
	return fmt.Sprintf("%d", int32(s))
}

// NodeID is a node's position in the cluster's registry. A name keeps its id
// for as long as the cluster lives, so bitmaps of nodes stay valid.
type NodeID uint32

// NoTask is the array task index of a job that is not an array task.
const NoTask int64 = -1

// Hash is the SHA-256 of a blob (a job script or an environment).
type Hash [32]byte

// IsZero tells that no blob is named.
func (h Hash) IsZero() bool { return h == Hash{} }

// String gives the hash in hexadecimal.
func (h Hash) String() string { return fmt.Sprintf("%x", h[:]) }
