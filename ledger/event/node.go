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

// Configured is what State= of a configured node asks for at the beginning:
// what an administrator wants of it and whether it is on. A node of the cloud
// is off until somebody needs it.
func Configured(nodeSpec *spec.NodeSpec) (NodeAdminState, PowerState) {
	switch nodeSpec.State {
	case "DOWN":
		return NodeDown, 0
	case "DRAIN":
		return NodeDrain, 0
	case "FAIL":
		return NodeFail, 0
	case "CLOUD":
		return NodeResume, PoweredDown
	}
	return NodeResume, 0
}

// NodeStateSet changes whether a node is in service.
type NodeStateSet struct {
	Node   string         `cbor:"1,keyasint"`
	State  NodeAdminState `cbor:"2,keyasint"`
	Reason string         `cbor:"3,keyasint,omitempty"`
	// ResumeAt is when the node returns to service by itself; 0 = it does not.
	ResumeAt spec.Instant `cbor:"4,keyasint,omitempty"`
}

// NodeLost tells that a node has been silent for longer than SlurmdTimeout, or
// that its agent says that it can start nothing.
type NodeLost struct {
	Node     string       `cbor:"1,keyasint"`
	LastSeen spec.Instant `cbor:"2,keyasint"`
	Why      string       `cbor:"3,keyasint,omitempty"` // of the agent; empty: the node is silent
}

// NodeReturned tells that a silent node answers again, in the same life.
type NodeReturned struct {
	Node string `cbor:"1,keyasint"`
}

// FenceCause is what proves that the processes of a given up attempt are gone.
type FenceCause uint8

// The causes; the values are stored.
const (
	FenceAgent    FenceCause = iota + 1 // the node's agent came back and reports the end
	FenceReboot                         // the node has another boot id
	FenceOperator                       // scontrol update nodename=X state=fenced
	FenceProgram                        // the site's fence program confirmed that the node is off
	FenceLease                          // the run's lease is over, at which the shepherd killed it
)

// String gives the cause as people read it.
func (c FenceCause) String() string {
	switch c {
	case FenceAgent:
		return "agent"
	case FenceReboot:
		return "reboot"
	case FenceOperator:
		return "operator"
	case FenceProgram:
		return "program"
	case FenceLease:
		return "lease"
	}
	return "unknown"
}

// RunFenced tells that nothing of an attempt lives any more on a node that was
// given up with it: only now may the job start again, and the node take jobs.
type RunFenced struct {
	Node    string      `cbor:"1,keyasint"`
	UID     spec.JobUID `cbor:"2,keyasint"`
	Attempt uint32      `cbor:"3,keyasint"`
	By      FenceCause  `cbor:"4,keyasint"`
	// What the agent knows, where it reports the end.
	Usage spec.Usage  `cbor:"5,keyasint"`
	Batch *StepResult `cbor:"6,keyasint,omitempty"`
}

// FenceTried tells that the site's fence program has not confirmed that a node is
// off. One that does is told by RunFenced.
type FenceTried struct {
	Node    string `cbor:"1,keyasint"`
	Program string `cbor:"2,keyasint"`
	Try     uint32 `cbor:"3,keyasint"`           // from 1, for the runs that the node owes now
	Why     string `cbor:"4,keyasint,omitempty"` // exit code, signal or timeout, and what the program said
}

// GPUFaulted is something that happened to a GPU of a node, as its agent saw
// it. What follows from it, a drain for example, is an event of its own.
type GPUFaulted struct {
	Node  string        `cbor:"1,keyasint"`
	Fault spec.GPUFault `cbor:"2,keyasint"`
}

// PowerState is what a node is on its way to being, as far as its power goes.
type PowerState uint8

// The states; the values are stored. A node whose power was never touched is
// on, and has none of them.
const (
	PowerOn       PowerState = iota + 1 // its agent is there, or should be
	PowerDownWish                       // to be powered down once no job is on it
	PowerDownASAP                       // likewise, and no job is started on it
	PoweringDown                        // SuspendProgram was told to
	PoweredDown
	PowerUpWish // to be powered up: a job was given the node, or somebody asked
	PoweringUp  // ResumeProgram was told to
)

// NodePowered moves nodes from one state of their power to the next. With
// PoweringDown and PoweringUp the site's program is run once for all of them.
type NodePowered struct {
	Nodes []string   `cbor:"1,keyasint"`
	To    PowerState `cbor:"2,keyasint"`
	Why   string     `cbor:"3,keyasint,omitempty"` // idle, asked for, a job, …
	// Failed tells that the nodes did not come up in time.
	Failed bool `cbor:"4,keyasint,omitempty"`
}

// RebootPhase is how far the reboot of a node is.
type RebootPhase uint8

// The phases; the values are stored.
const (
	RebootWanted RebootPhase = iota + 1 // once no job is on it
	RebootIssued                        // its agent was told to
	RebootOver                          // it came back, was given up or called off
)

// NodeAdded adds a node while the cluster runs (scontrol create nodename=, or an
// agent that brings its own description). It is of those partitions.
type NodeAdded struct {
	Node       spec.NodeSpec `cbor:"1,keyasint"`
	Partitions []string      `cbor:"2,keyasint,omitempty"`
}

// PartitionPut replaces a partition while the cluster runs (scontrol update
// partitionname=): its nodes stay, unless Nodes tells that they are part of it.
type PartitionPut struct {
	Partition spec.PartitionSpec `cbor:"1,keyasint"`
	Nodes     bool               `cbor:"2,keyasint,omitempty"`
}

// NodeChanged replaces what scontrol update can change of a node but its state,
// all of it.
type NodeChanged struct {
	Node      string   `cbor:"1,keyasint"`
	Weight    uint32   `cbor:"2,keyasint,omitempty"`
	Features  []string `cbor:"3,keyasint,omitempty"` // that it has now
	Available []string `cbor:"4,keyasint,omitempty"` // that it may have, where those are more
	Comment   string   `cbor:"5,keyasint,omitempty"`
	Extra     string   `cbor:"6,keyasint,omitempty"`
	Reason    string   `cbor:"7,keyasint,omitempty"` // of the state that it has
}

// PartitionAdded adds a partition while the cluster runs (scontrol create
// partitionname=).
type PartitionAdded struct {
	Partition spec.PartitionSpec `cbor:"1,keyasint"`
}

// PartitionGone takes a partition away that was added so.
type PartitionGone struct {
	Name string `cbor:"1,keyasint"`
}

// NodeDeleted takes a node away that was added so.
type NodeDeleted struct {
	Node string `cbor:"1,keyasint"`
}

// NodeReboot is a step in a node's reboot.
type NodeReboot struct {
	Node   string         `cbor:"1,keyasint"`
	Phase  RebootPhase    `cbor:"2,keyasint"`
	ASAP   bool           `cbor:"3,keyasint,omitempty"` // no job is started on it before
	Next   NodeAdminState `cbor:"4,keyasint,omitempty"` // what it is to be afterwards; 0 = as before
	Reason string         `cbor:"5,keyasint,omitempty"`
}
