package event

import "github.com/musterhpc/muster/spec"

// ForeignHoldTaken tells that another scheduler has something on a node from
// now on. It is written before the other scheduler's program may start there.
type ForeignHoldTaken struct {
	Node string           `cbor:"1,keyasint"`
	Hold spec.ForeignHold `cbor:"2,keyasint"` // its Since is the event's instant
	// CPUs are the ones that are added to those which the holds of the node share.
	CPUs spec.Bitset `cbor:"3,keyasint,omitempty"`
}

// ForeignHoldReleased tells that a hold has been given back: what was there is
// gone.
type ForeignHoldReleased struct {
	Node string `cbor:"1,keyasint"`
	ID   string `cbor:"2,keyasint"`
	// CPUs are the ones that the holds which are left do not need.
	CPUs spec.Bitset `cbor:"3,keyasint,omitempty"`
	Why  string      `cbor:"4,keyasint,omitempty"` // Succeeded, Failed, deleted, never bound
}
