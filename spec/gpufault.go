package spec

// GPUFaultKind is a kind of thing that happens to a GPU and that somebody has
// to know.
type GPUFaultKind uint8

// The kinds. The values are stored.
const (
	GPUXID        GPUFaultKind = iota + 1 // an error number of the driver
	GPULost                               // it does not answer any more
	GPUReturned                           // it answers again
	GPUThermal                            // its clocks are held down by temperature
	GPUECC                                // uncorrectable memory errors
	GPUMIGChanged                         // it was partitioned anew
	GPUIdle                               // allocated, and no process on it for long
)

// String names the kind as commands and metrics show it.
func (k GPUFaultKind) String() string {
	names := [...]string{
		GPUXID:        "xid",
		GPULost:       "lost",
		GPUReturned:   "returned",
		GPUThermal:    "thermal",
		GPUECC:        "ecc",
		GPUMIGChanged: "mig_changed",
		GPUIdle:       "idle",
	}
	if int(k) >= len(names) || names[k] == "" {
		return "unknown"
	}
	return names[k]
}

// GPUFault is what a node says about one of its GPUs.
type GPUFault struct {
	UUID    string       `cbor:"1,keyasint"` // of the device or MIG instance
	Kind    GPUFaultKind `cbor:"2,keyasint"`
	XID     int64        `cbor:"3,keyasint,omitempty"`
	Class   string       `cbor:"4,keyasint,omitempty"` // of an XID: application, memory, link, driver, fatal, unknown
	Text    string       `cbor:"5,keyasint,omitempty"`
	At      Instant      `cbor:"6,keyasint"`           // when the node saw it, the last time
	Count   uint64       `cbor:"7,keyasint,omitempty"` // times since the node last said so; 0 = 1
	Job     JobUID       `cbor:"8,keyasint,omitempty"` // that held the GPU
	Attempt uint32       `cbor:"9,keyasint,omitempty"`
	Idle    Span         `cbor:"10,keyasint,omitempty"` // of GPUIdle: how long no process was there
	// Warned tells that the site warns the job's user of it, and Cancel when the
	// job is cancelled if nothing changes; 0 = it is not.
	Warned bool    `cbor:"11,keyasint,omitempty"`
	Cancel Instant `cbor:"12,keyasint,omitempty"`
	// Who held the GPU when it happened. The controller fills this in, so that
	// the answer outlives the job's record; 0 and empty if no job held it alone.
	JobID   JobID  `cbor:"13,keyasint,omitempty"`
	User    string `cbor:"14,keyasint,omitempty"`
	Account string `cbor:"15,keyasint,omitempty"`
}

// Fatal tells a GPU that must not be given to another job.
func (f *GPUFault) Fatal() bool {
	return f.Kind == GPULost || f.Kind == GPUECC || f.Kind == GPUXID && f.Class == "fatal"
}

// Times is how often it happened.
func (f *GPUFault) Times() uint64 { return max(f.Count, 1) }
