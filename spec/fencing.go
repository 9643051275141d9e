package spec

// FencingKind is what proves to the controller that nothing lives any more on a
// node that it has given up.
type FencingKind uint8

// The kinds; the values are stored.
const (
	FenceWait    FencingKind = iota // the node's return, its reboot or an operator's word
	FenceLease                      // likewise, or the end of the runs' leases
	FenceProgram                    // likewise, or the exit code of the site's program
)

// FencingPolicy is FencingPolicy of slurm.conf: what a site does about the runs of
// nodes that do not answer.
type FencingPolicy struct {
	Kind FencingKind `cbor:"1,keyasint,omitempty"`
	// Lease is how long a run that may be requeued goes on without an answer of
	// the controller to its node.
	Lease Span `cbor:"2,keyasint,omitempty"`
	// Program is called with a node and a reason; exit code 0 means that the node
	// is off.
	Program string `cbor:"3,keyasint,omitempty"`
}

// The slack between the end of a lease by the node's clock and the instant at
// which the controller believes in it, by its own.
const (
	// leaseDrift is the part of a lease by which two clocks may differ at its end:
	// 2,000 ppm. NTP slews a clock by at most 500 ppm, and crystals are better.
	leaseDrift = 500
	// leaseKill is how long it may take from the last SIGKILL until the kernel has
	// ended the processes.
	leaseKill = 10 * Second
)

// LeaseBound is how long after its last answer to a node a controller must wait
// until runs with this lease are gone there.
func LeaseBound(lease Span) Span { return lease + lease/leaseDrift + leaseKill }
