package event

import "github.com/musterhpc/muster/spec"

// NodeRegistered is a node's agent presenting its inventory. A boot id that
// differs from the last one proves that whatever ran there is gone.
type NodeRegistered struct {
	Node      string         `cbor:"1,keyasint"`
	Inventory spec.Inventory `cbor:"2,keyasint"`
	// Invalid says why the inventory does not fit the configuration; such a
	// node gets no jobs.
	Invalid string `cbor:"3,keyasint,omitempty"`
}

// NodeAdminState is what an administrator, or the controller for a reason,
// wants of a node.
type NodeAdminState uint8

// The wishes; the values are stored.
const (
	NodeResume NodeAdminState = iota + 1 // back in service
	NodeDrain                            // finish what runs, start nothing
	NodeDown                             // unusable: what runs there is lost
	NodeFail                             // like drain, and known to be failing
)

// NodeStateSet changes whether a node is in service.
type NodeStateSet struct {
	Node   string         `cbor:"1,keyasint"`
	State  NodeAdminState `cbor:"2,keyasint"`
	Reason string         `cbor:"3,keyasint,omitempty"`
}

// NodeLost tells that a node has been silent for longer than SlurmdTimeout.
type NodeLost struct {
	Node     string       `cbor:"1,keyasint"`
	LastSeen spec.Instant `cbor:"2,keyasint"`
}

// NodeReturned tells that a silent node answers again, in the same life.
type NodeReturned struct {
	Node string `cbor:"1,keyasint"`
}

// GPUFaulted is something that happened to a GPU of a node, as its agent saw
// it. What follows from it, a drain for example, is an event of its own.
type GPUFaulted struct {
	Node  string        `cbor:"1,keyasint"`
	Fault spec.GPUFault `cbor:"2,keyasint"`
}
