package spec

// JobState is the base state of a job: exactly one at any time. What Slurm
// shows as a flag (COMPLETING, CONFIGURING, REQUEUED) is derived from other
// facts of the record, never stored beside the state.
type JobState uint8

// The base states. The values are stored; never renumber them.
const (
	Pending JobState = iota + 1
	Running
	Suspended
	Completed
	Cancelled
	Failed
	TimedOut
	NodeFailed
	Preempted
	BootFailed
	DeadlineMissed
	OutOfMemory
)

var jobStateNames = [...][2]string{
	Pending: {"PENDING", "PD"}, Running: {"RUNNING", "R"}, Suspended: {"SUSPENDED", "S"},
	Completed: {"COMPLETED", "CD"}, Cancelled: {"CANCELLED", "CA"}, Failed: {"FAILED", "F"},
	TimedOut: {"TIMEOUT", "TO"}, NodeFailed: {"NODE_FAIL", "NF"}, Preempted: {"PREEMPTED", "PR"},
	BootFailed: {
		"BOOT_FAIL",
		"BF",
	}, DeadlineMissed: {"DEADLINE", "DL"}, OutOfMemory: {"OUT_OF_MEMORY", "OOM"},
}

// JobStates lists every base state in the order of the state machine.
func JobStates() []JobState {
	states := make([]JobState, 0, len(jobStateNames)-1)
	for state := Pending; state <= OutOfMemory; state++ {
		states = append(states, state)
	}
	return states
}

// String gives Slurm's long name.
func (s JobState) String() string { return s.nameAt(0) }

// Compact gives Slurm's short name.
func (s JobState) Compact() string { return s.nameAt(1) }

func (s JobState) nameAt(i int) string {
	if s == 0 || int(s) >= len(jobStateNames) {
		return "UNKNOWN"
	}
	return jobStateNames[s][i]
}

// Terminal tells a state that a run never leaves.
func (s JobState) Terminal() bool { return s >= Completed }

// Active tells a state that holds an allocation.
func (s JobState) Active() bool { return s == Running || s == Suspended }

// ParseJobState reads a long or short name, without regard to case.
func ParseJobState(name string) (JobState, bool) {
	for state := Pending; state <= OutOfMemory; state++ {
		if equalFold(name, jobStateNames[state][0]) || equalFold(name, jobStateNames[state][1]) {
			return state, true
		}
	}
	return 0, false
}

// equalFold compares ASCII names without regard to case.
func equalFold(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := 0; i < len(a); i++ {
		if lower(a[i]) != lower(b[i]) {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// Hold says who holds a job.
type Hold uint8

// Who may hold: a user's hold can be released by the user, an administrator's
// only by an administrator; MaxRequeue is set by the controller itself.
const (
	NotHeld Hold = iota
	HeldByUser
	HeldByAdmin
	HeldMaxRequeue
	// HeldSpecialExit is a user's hold on a job that shows state SPECIAL_EXIT
	// (scontrol requeuehold State=SpecialExit).
	HeldSpecialExit
)

// ExitStatus is how a process ended: an exit code or a signal, never both.
// Slurm prints it as code:signal.
type ExitStatus struct {
	Code   int32 `cbor:"1,keyasint,omitempty"`
	Signal int32 `cbor:"2,keyasint,omitempty"`
}

// OK tells success.
func (e ExitStatus) OK() bool { return e.Code == 0 && e.Signal == 0 }
