package device

import (
	"strconv"
	"strings"

	"github.com/musterhpc/muster/spec"
)

// Unknown marks a number that the provider could not learn.
const Unknown = -1

// Device is one physical GPU of a node.
type Device struct {
	UUID      string // "GPU-…": the name the ledger uses, stable across restarts
	Index     int    // position in PCI bus order, from 0, the number CUDA counts under PCI_BUS_ID
	Minor     int    // the N of /dev/nvidiaN; Unknown when there is no such file
	PCIBusID  string // domain:bus:device.function, eight hexadecimal digits of domain
	Model     string // as the driver prints it
	Type      string // gres type the site declared ("h100"); empty when it declared none
	MemoryMiB int64
	NUMA      int    // NUMA node; Unknown when the platform does not say
	CPUs      []int  // CPUs near the device, ascending; nil when unknown
	Links     []Link // one per device of the inventory, in its order; LinkSelf for the device itself
	MIG       []MIG  // instances, by GPU instance then compute instance; nil when MIG is off
	Files     []string
	Driver    string // driver version; empty when unknown
	Lost      bool   // does not answer: only the UUID and Index are sure
}

// MIG is one compute instance of a partitioned device.
type MIG struct {
	UUID            string // "MIG-…"
	GPUInstance     int    // GPU_I_ID
	ComputeInstance int
	Profile         string // "1g.10gb"
	MemoryMiB       int64
	Slices          int // compute slices out of seven
}

// LinkKind is how two devices of one node reach each other, best last.
type LinkKind uint8

// The kinds of link, from unknown to NVLink.
const (
	LinkUnknown LinkKind = iota
	LinkSelf
	LinkSystem     // across sockets
	LinkNode       // same NUMA node, different host bridges
	LinkHostBridge // same host bridge
	LinkMultiple   // several PCIe switches
	LinkSingle     // one PCIe switch
	LinkBoard      // same board
	LinkNVLink
)

// Link is the best path between two devices; NVLinks counts the NVLink lanes
// of a LinkNVLink and is 0 otherwise.
type Link struct {
	Kind    LinkKind
	NVLinks uint8
}

// String gives the link as topology matrices of the field print it: NV18, PIX.
func (l Link) String() string {
	switch l.Kind {
	case LinkSelf:
		return "X"
	case LinkSystem:
		return "SYS"
	case LinkNode:
		return "NODE"
	case LinkHostBridge:
		return "PHB"
	case LinkMultiple:
		return "PXB"
	case LinkSingle:
		return "PIX"
	case LinkBoard:
		return "PSB"
	case LinkNVLink:
		return "NV" + strconv.Itoa(int(l.NVLinks))
	case LinkUnknown:
	}
	return "?"
}

// linkLanes is how many counts of lanes there are of one kind of link.
const linkLanes = 64

// Closeness puts links in an order, the closest last: the kind first, then
// NVLink's lanes. It is what nodes register.
func (l Link) Closeness() int32 { return int32(l.Kind)*linkLanes + int32(min(l.NVLinks, linkLanes-1)) }

// LinkOf is the link of a closeness; LinkUnknown of a number that is none.
func LinkOf(closeness int32) Link {
	kind := closeness / linkLanes
	if closeness < 0 || kind > int32(LinkNVLink) {
		return Link{}
	}
	return Link{Kind: LinkKind(kind), NVLinks: uint8(closeness % linkLanes)}
}

// GresLinks gives the Links value of gres.conf for a device: -1 for itself,
// the number of NVLinks otherwise.
func (d Device) GresLinks() string {
	var text strings.Builder
	for i, link := range d.Links {
		if i > 0 {
			text.WriteByte(',')
		}
		if link.Kind == LinkSelf {
			text.WriteString("-1")
			continue
		}
		text.WriteString(strconv.Itoa(int(link.NVLinks)))
	}
	return text.String()
}

// Clocks are the frequencies of a device in MHz, as a setting: 0 where one is
// not known.
type Clocks struct {
	Memory   uint32 `json:"memory"`
	Graphics uint32 `json:"graphics"`
	// Locked: set by holding the clocks there, which is how devices work that
	// have no application clocks any more.
	Locked bool `json:"locked,omitempty"`
}

// Value is one field's reading in the fixed point of the field.
type Value struct {
	Field Field
	N     int64
}

// Reading is what one device or MIG instance says at one instant.
type Reading struct {
	UUID   string  // of the device, or of the MIG instance when MIG is on
	Lost   bool    // the device did not answer: fallen off the bus or reset
	Values []Value // ascending by Field, each field at most once
}

// Get finds a field; ok is false when the provider did not read it.
func (r *Reading) Get(field Field) (n int64, ok bool) {
	for i := range r.Values {
		if r.Values[i].Field == field {
			return r.Values[i].N, true
		}
	}
	return 0, false
}

// Sample is one collection of a whole node. A provider overwrites it in place,
// so the owner clones what it keeps.
type Sample struct {
	At       spec.Instant
	Readings []Reading
}

// Resize makes room for n readings and keeps the memory of earlier ones.
func (s *Sample) Resize(n int) {
	for cap(s.Readings) < n {
		s.Readings = append(s.Readings[:cap(s.Readings)], Reading{})
	}
	s.Readings = s.Readings[:n]
}

// Clone copies a sample so that the provider may reuse its own.
func (s *Sample) Clone() *Sample {
	c := &Sample{At: s.At, Readings: make([]Reading, len(s.Readings))}
	total := 0
	for i := range s.Readings {
		total += len(s.Readings[i].Values)
	}
	values := make([]Value, 0, total)
	for i := range s.Readings {
		reading := &s.Readings[i]
		from := len(values)
		values = append(values, reading.Values...)
		c.Readings[i] = Reading{
			UUID:   reading.UUID,
			Lost:   reading.Lost,
			Values: values[from:len(values):len(values)],
		}
	}
	return c
}

// Find gives the reading of a device or MIG instance, or nil.
func (s *Sample) Find(uuid string) *Reading {
	for i := range s.Readings {
		if s.Readings[i].UUID == uuid {
			return &s.Readings[i]
		}
	}
	return nil
}

// Process is one process that holds a context on a device.
type Process struct {
	PID       int
	UUID      string // of the device or MIG instance
	MemoryMiB int64  // Unknown when the driver does not say
}

// EventKind is a kind of hardware event.
type EventKind uint8

// The kinds of hardware event.
const (
	EventXID EventKind = iota + 1
	EventLost
	EventReturned
	EventThermal
	EventECC
	EventMIGChanged
)

// String names the kind as logs and metrics show it.
func (k EventKind) String() string {
	switch k {
	case EventXID:
		return "xid"
	case EventLost:
		return "lost"
	case EventReturned:
		return "returned"
	case EventThermal:
		return "thermal"
	case EventECC:
		return "ecc"
	case EventMIGChanged:
		return "mig_changed"
	}
	return "unknown"
}

// Event is something that happened to a device.
type Event struct {
	At   spec.Instant // when it happened, or when it was noticed if the provider has no better
	Kind EventKind
	UUID string
	XID  int // of an EventXID
	Text string
}
