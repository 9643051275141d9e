package tally

import (
	"slices"
	"strings"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// day is a day of UTC.
const day = Micros(spec.Day / spec.Microsecond)

// node is a node of the configuration with what decides its state. Now is
// the row that was last made of it.
type node struct {
	Name    string               `cbor:"1,keyasint"`
	Config  string               `cbor:"2,keyasint,omitempty"` // the configured initial state
	Admin   event.NodeAdminState `cbor:"3,keyasint"`
	Known   bool                 `cbor:"4,keyasint,omitempty"` // it has registered
	Lost    bool                 `cbor:"5,keyasint,omitempty"`
	Invalid string               `cbor:"6,keyasint,omitempty"`
	Reason  string               `cbor:"7,keyasint,omitempty"`
	By      string               `cbor:"8,keyasint,omitempty"`
	ByUID   uint32               `cbor:"9,keyasint,omitempty"`
	TRES    spec.TRES            `cbor:"10,keyasint"`           // as configured
	GPUs    []string             `cbor:"11,keyasint,omitempty"` // types of the devices it registered, never more than configured
	Parts   []string             `cbor:"12,keyasint,omitempty"`
	Gone    bool                 `cbor:"13,keyasint,omitempty"` // not configured any more; a job may still hold it
	Power   event.PowerState     `cbor:"14,keyasint,omitempty"`
	Reboots bool                 `cbor:"15,keyasint,omitempty"` // it takes no jobs for that
	Silent  bool                 `cbor:"16,keyasint,omitempty"` // Reason only says that it does not answer
}

// applyConfig follows a new configuration: nodes that are new, changed or gone.
func (t *Tally) applyConfig(envelope *event.Envelope, e *event.ConfigAdopted) error {
	if e.Config == nil {
		return contradictionError("there is no configuration")
	}
	parts := map[string][]string{}
	for i := range e.Config.Partitions {
		partition := &e.Config.Partitions[i]
		for _, name := range partition.NodeNames {
			parts[name] = append(parts[name], partition.Name)
		}
	}
	seen := map[string]bool{}
	for i := range e.Config.Nodes {
		nodeSpec := &e.Config.Nodes[i]
		seen[nodeSpec.Name] = true
		t.applyNodeSpec(envelope, nodeSpec, parts[nodeSpec.Name])
	}
	for _, name := range slices.Clone(t.names) {
		if !seen[name] {
			t.applyNodeRemoved(name, envelope)
		}
	}
	return nil
}

// applyNodeSpec follows the description of one node.
func (t *Tally) applyNodeSpec(envelope *event.Envelope, nodeSpec *spec.NodeSpec, parts []string) {
	n := t.nodes[nodeSpec.Name]
	if n != nil && n.Gone && !t.holds(nodeSpec.Name) {
		n = nil // it was forgotten, and is a new one
	}
	if n == nil {
		n = &node{Name: nodeSpec.Name, Reason: nodeSpec.Reason}
		n.Admin, n.Power = event.Configured(nodeSpec)
		t.nodes[nodeSpec.Name] = n
	}
	if at, ok := slices.BinarySearch(t.names, nodeSpec.Name); !ok {
		t.names = slices.Insert(t.names, at, nodeSpec.Name)
	}
	n.Gone = false
	n.Config = nodeSpec.State
	n.TRES = nodeSpec.NodeTRES()
	n.Parts = parts
	t.state(n, envelope, false)
}

// movePartition puts nodes into a partition, or takes them out of one.
func (t *Tally) movePartition(envelope *event.Envelope, names []string, in, out string) {
	for _, name := range names {
		n := t.nodes[name]
		if n == nil || n.Gone {
			continue
		}
		parts := slices.DeleteFunc(slices.Clone(n.Parts), func(p string) bool { return p == out })
		if in != "" {
			parts = append(parts, in)
		}
		if !slices.Equal(parts, n.Parts) {
			n.Parts = parts
			t.state(n, envelope, false)
		}
	}
}

// holds tells whether an open run still holds a node.
func (t *Tally) holds(name string) bool {
	//muster:unordered any one will do
	for _, job := range t.jobs {
		for i := range job.Done {
			if job.Done[i].At == 0 && job.Alloc.Nodes[i].Name == name {
				return true
			}
		}
	}
	return false
}

func (t *Tally) applyNodeRemoved(name string, envelope *event.Envelope) {
	t.nodes[name].Gone = true
	t.names = slices.DeleteFunc(t.names, func(s string) bool { return s == name })
	if !t.quiet {
		t.out.NodeStates = append(
			t.out.NodeStates,
			NodeStateRow{
				Seq:   envelope.Seq,
				At:    Cut(envelope.At),
				Node:  name,
				State: "REMOVED",
				Class: ClassGone,
			},
		)
	}
}

// node returns a node; one that was removed while a job held it may still be
// heard of.
func (t *Tally) node(name string) *node { return t.nodes[name] }

func (t *Tally) applyRegistered(envelope *event.Envelope, e *event.NodeRegistered) error {
	n := t.node(e.Node)
	if n == nil {
		return nil
	}
	n.Known = true
	n.Invalid = e.Invalid
	n.clearSilence()
	n.GPUs = nil
	for i := range e.Inventory.GPUs {
		if int64(len(n.GPUs)) < n.TRES.Get("gres/gpu") {
			n.GPUs = append(n.GPUs, e.Inventory.GPUs[i].Type)
		}
	}
	t.state(n, envelope, false)
	return nil
}

func (t *Tally) nodeSet(envelope *event.Envelope, e *event.NodeStateSet) error {
	n := t.node(e.Node)
	if n == nil {
		return nil
	}
	n.Admin = e.State
	n.setReason(e.Reason, envelope.Actor)
	if e.State == event.NodeResume {
		n.clearReason()
	}
	t.state(n, envelope, false)
	return nil
}

// nodeChanged notes a reason that was set without a state.
func (t *Tally) nodeChanged(envelope *event.Envelope, e *event.NodeChanged) {
	n := t.node(e.Node)
	if n == nil || n.Reason == e.Reason {
		return
	}
	n.setReason(e.Reason, envelope.Actor)
	if e.Reason == "" {
		n.clearReason()
	}
	t.state(n, envelope, false)
}

// notResponding is the reason that a silent node shows when it has no other.
const notResponding = "Not responding"

// setReason notes why a node is as it is, and who said so.
func (n *node) setReason(reason string, by event.Actor) {
	n.Reason = reason
	n.By = by.Name
	n.ByUID = by.UID
	n.Silent = false
}

func (n *node) clearReason() { n.setReason("", event.Actor{}) }

// clearSilence takes back what a node got by being silent.
func (n *node) clearSilence() {
	n.Lost = false
	if n.Silent {
		n.clearReason()
	}
}

func (t *Tally) nodeLost(envelope *event.Envelope, e *event.NodeLost) error {
	n := t.node(e.Node)
	if n == nil {
		return nil
	}
	n.Lost = true
	if n.Reason == "" {
		reason := notResponding
		if e.Why != "" {
			reason += ": " + e.Why
		}
		n.setReason(reason, event.Actor{})
		n.Silent = true
	}
	t.state(n, envelope, false)
	return nil
}

func (t *Tally) nodeReturned(envelope *event.Envelope, e *event.NodeReturned) error {
	n := t.node(e.Node)
	if n == nil {
		return nil
	}
	n.clearSilence()
	t.state(n, envelope, false)
	return nil
}

// applyPowered follows what is done about the power of nodes. One that is powered
// down is out of service on purpose; nobody waits for it to answer.
func (t *Tally) applyPowered(envelope *event.Envelope, e *event.NodePowered) {
	for _, name := range e.Nodes {
		n := t.node(name)
		if n == nil {
			continue
		}
		n.Power = e.To
		if e.To == event.PoweredDown {
			n.clearSilence()
		}
		t.state(n, envelope, false)
	}
}

func (t *Tally) applyReboot(envelope *event.Envelope, e *event.NodeReboot) {
	if n := t.node(e.Node); n != nil {
		n.Reboots = e.Phase == event.RebootIssued ||
			e.Phase == event.RebootWanted && e.ASAP // asked anew: as asked last
		t.state(n, envelope, false)
	}
}

// state makes a row of a node as it is now.
func (t *Tally) state(n *node, envelope *event.Envelope, restated bool) {
	if t.quiet || n.Gone {
		return
	}
	row := NodeStateRow{
		Seq:        envelope.Seq,
		At:         Cut(envelope.At),
		Node:       n.Name,
		Restated:   restated,
		Partitions: n.Parts,
		Reason:     n.Reason,
		By:         n.By,
		ByUID:      n.ByUID,
	}
	if restated {
		row.At = t.midnight
	}
	row.State, row.Class = n.showState()
	amounts := amountsOf(n.nodeCapacity())
	row.CPUs = amounts.CPUs
	row.Mem = amounts.Mem
	row.GPUs = amounts.GPUs
	row.Other = amounts.Other
	t.out.NodeStates = append(t.out.NodeStates, row)
}

// showState names the node's state and its class in reports.
func (n *node) showState() (name, class string) {
	switch {
	case n.Power >= event.PoweredDown: // whether anybody has seen it or not
	case n.Config == "FUTURE":
		if !n.Known {
			return n.Config, ClassPlanned
		}
	case !n.Known:
		return "UNKNOWN", ClassDown
	}
	switch {
	case n.Invalid != "":
		return "INVAL", ClassDown
	case n.Admin == event.NodeDown:
		return "DOWN", ClassDown
	case n.Lost && n.Power < event.PoweredDown: // one that is powered up is not expected to answer yet
		return "NOT_RESPONDING", ClassDown
	case n.Admin == event.NodeFail:
		return "FAIL", ClassDown
	case n.Admin == event.NodeDrain, n.Power == event.PowerDownASAP:
		return "DRAIN", ClassDown
	case n.Reboots:
		return "REBOOT", ClassDown
	case n.Power == event.PoweringDown:
		return "POWERING_DOWN", ClassPlanned
	case n.Power == event.PoweredDown:
		return "POWERED_DOWN", ClassPlanned
	case n.Power == event.PowerUpWish, n.Power == event.PoweringUp:
		return "POWERING_UP", ClassUp
	}
	return "UP", ClassUp
}

// nodeCapacity is what the node is for: the configuration. A device that it lost was
// bought like the others, so it stays in every denominator. Where the
// configuration names no types, those of the devices that registered count.
func (n *node) nodeCapacity() spec.TRES {
	tres := n.TRES
	typed := slices.ContainsFunc(
		tres.Other,
		func(t spec.TRESCount) bool { return strings.HasPrefix(t.Name, "gres/gpu:") },
	)
	if !n.Known || typed {
		return tres
	}
	for _, typ := range n.GPUs {
		if typ != "" {
			tres = tres.With("gres/gpu:"+typ, tres.Get("gres/gpu:"+typ)+1)
		}
	}
	return tres
}

// beginDay says the state of every node again when a day of UTC has begun.
func (t *Tally) beginDay(envelope *event.Envelope) {
	now := Cut(envelope.At)
	midnight := now - now%day
	if midnight <= t.midnight {
		return
	}
	t.midnight = midnight
	for _, name := range t.names {
		t.state(t.nodes[name], envelope, true)
	}
}

func (t *Tally) putAssociation(envelope *event.Envelope, association *spec.Association) {
	t.assocs[association.ID] = *association
	t.association(envelope, association, false)
}

func (t *Tally) association(envelope *event.Envelope, assoc *spec.Association, removed bool) {
	if t.quiet {
		return
	}
	shares := assoc.Shares
	if assoc.SharesParent {
		shares = SharesParent
	}
	t.out.Associations = append(
		t.out.Associations,
		AssociationRow{
			Seq:       envelope.Seq,
			At:        Cut(envelope.At),
			ID:        assoc.ID,
			Account:   assoc.Account,
			User:      assoc.User,
			Partition: assoc.Partition,
			Parent:    assoc.Parent,
			Shares:    shares,
			Removed:   removed,
		},
	)
}

func (t *Tally) dropAssociations(envelope *event.Envelope, gone func(a *spec.Association) bool) {
	for _, id := range sortedKeys(t.assocs) {
		if association := t.assocs[id]; gone(&association) {
			delete(t.assocs, id)
			t.association(envelope, &association, true)
		}
	}
}
