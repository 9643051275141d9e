package spec

// Trigger is a program that runs when something happens to a node, a job or a controller.
type Trigger struct {
	ID      uint32      `cbor:"1,keyasint"`
	Kind    TriggerKind `cbor:"2,keyasint"`
	Node    string      `cbor:"3,keyasint,omitempty"` // of a kind that is about nodes; empty = any node, or those of Job
	Job     JobUID      `cbor:"4,keyasint,omitempty"`
	Offset  Span        `cbor:"5,keyasint,omitempty"` // from what happens to the program; before it if negative
	Program string      `cbor:"6,keyasint"`
	UID     uint32      `cbor:"7,keyasint"`
	GID     uint32      `cbor:"8,keyasint"`
	User    string      `cbor:"9,keyasint"`
	Groups  []uint32    `cbor:"10,keyasint,omitempty"`
	// Permanent: it stays after it has run. Any other runs once.
	Permanent bool `cbor:"11,keyasint,omitempty"`
	// Pulls are the runs that are due, or will be.
	Pulls []TriggerPull `cbor:"12,keyasint,omitempty"`
	// Done marks a job or node for which the trigger has been pulled by time, so that one
	// idle node or one time limit pulls it once.
	Done []TriggerMark `cbor:"13,keyasint,omitempty"`
}

// TriggerPull is one run of a trigger's program.
type TriggerPull struct {
	Due  Instant `cbor:"1,keyasint"`
	What string  `cbor:"2,keyasint,omitempty"` // the node or job that it is about
}

// TriggerMark says for which node or job, and which state of it, a trigger was pulled.
type TriggerMark struct {
	What  string  `cbor:"1,keyasint"`
	Since Instant `cbor:"2,keyasint"`
}

// TriggerKind is what a trigger waits for.
type TriggerKind uint8

// The kinds; the values are stored.
const (
	TriggerNodeDown TriggerKind = iota + 1
	TriggerNodeUp
	TriggerNodeDrained
	TriggerNodeDraining
	TriggerNodeFail
	TriggerNodeIdle
	TriggerNodeResume
	TriggerJobTime
	TriggerJobFini
	TriggerReconfig
	TriggerControllerFailed   // another one leads than before
	TriggerControllerResumed  // a controller leads again after none did
	TriggerControllerRegained // the first one leads again after another one did
	TriggerBackupLeads        // one that is not the first has taken over
)

// triggerNames are the names of the kinds, as strigger prints them.
//
//muster:table one name for each kind
func triggerNames() []string {
	return []string{"", "down", "up", "drained", "draining", "fail", "idle", "resume", "time",
		"fini", "reconfig", "primary_slurmctld_failure", "primary_slurmctld_resumed_operation",
		"primary_slurmctld_resumed_control", "backup_slurmctld_assumed_control"}
}

// String returns the name of a kind.
func (k TriggerKind) String() string {
	if names := triggerNames(); int(k) < len(names) {
		return names[k]
	}
	return ""
}

// ParseTriggerKind finds a kind by its name; 0 if there is none.
func ParseTriggerKind(name string) TriggerKind {
	for i, known := range triggerNames() {
		if known == name {
			return TriggerKind(i)
		}
	}
	return 0
}

// AboutNodes tells the kinds that are about nodes.
func (k TriggerKind) AboutNodes() bool { return k >= TriggerNodeDown && k <= TriggerNodeResume }

// AboutJobs tells the kinds that need a job.
func (k TriggerKind) AboutJobs() bool { return k == TriggerJobTime || k == TriggerJobFini }
