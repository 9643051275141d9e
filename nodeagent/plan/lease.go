package plan

import "github.com/musterhpc/muster/spec"

// Where a site fences by leases, a run lives only as long as the controller
// answers its node. All instants here are of the node's boot clock, in
// nanoseconds: it never steps and goes on while the machine sleeps.
//
// A lease begins when the node sent the heartbeat that was answered, not when the
// answer came: however late an answer is read, by an agent that was stopped for
// example, it lengthens no run beyond what the controller reckons with.

// Lease bounds the life of a run.
type Lease struct {
	// From is when the node sent the last heartbeat that the controller had heard
	// when it ordered the run. An order that waited for longer than the lease in
	// the socket of a stopped agent is therefore over when it is read.
	From int64 `cbor:"1,keyasint"`
	// Length is the time from the last answered heartbeat until nothing of the run
	// lives; 0 = the run has no lease.
	Length spec.Span `cbor:"2,keyasint,omitempty"`
	// Kill is the part of Length between SIGTERM and SIGKILL.
	Kill spec.Span `cbor:"3,keyasint,omitempty"`
	// Seq is that of the ledger's event that started the attempt.
	Seq uint64 `cbor:"4,keyasint,omitempty"`
}

// Grant is the controller's answer to a heartbeat.
type Grant struct {
	Sent int64 `cbor:"1,keyasint,omitempty"` // when the node sent the heartbeat
	// After is the ledger's last event that gave runs of the node up. Only runs that
	// were started by a later one live on: the others may be running elsewhere.
	After uint64 `cbor:"2,keyasint,omitempty"`
}

// Newer gives the grant that counts of two.
func (g Grant) Newer(other Grant) Grant {
	if other.Sent >= g.Sent {
		return other
	}
	return g
}

// Until is when the lease is over, as far as the newest grant goes.
func (l Lease) Until(newest Grant) int64 {
	from := l.From
	if l.Seq > newest.After {
		from = max(from, newest.Sent)
	}
	return from + int64(l.Length)
}

// Over tells whether no process of the run may live any more.
func (l Lease) Over(newest Grant, now int64) bool {
	return l.Length > 0 && now >= l.Until(newest)
}

// Ending tells whether the run is to be told to end.
func (l Lease) Ending(newest Grant, now int64) bool {
	return l.Length > 0 && now >= l.Until(newest)-int64(min(l.Kill, l.Length))
}
