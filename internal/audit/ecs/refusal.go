package ecs

import (
	"fmt"
	"strconv"
	"time"
)

// Refusal is a call that was refused because of who asked.
type Refusal struct {
	// Unknown tells that it was not proved who asks: a bad token, a revoked
	// certificate. Else the caller is known and may not do it.
	Unknown bool
	Actor   string // user, node, …
	User    string
	UID     string
	Node    string // machine whose certificate it was, or that vouched for the user
	Address string // of the network, empty = this host
	Port    int
	Method  string // Cluster/Cancel
	Reason  string
	Fields  map[string]any // what was asked
}

// FromRefusal makes the record of the nth refusal of a process.
func (o Origin) FromRefusal(at time.Time, n uint64, f Refusal) *Record {
	record := o.newRecord(at)
	record.Event.ID = fmt.Sprintf("refusal-%x-%d", at.UnixNano(), n)
	record.Event.Outcome = "failure"
	record.Event.Reason = f.Reason
	if f.Unknown {
		record.Event.Category = []string{"authentication"}
		record.Event.Type = []string{"info"}
		record.Event.Action = "authentication-refused"
	} else {
		record.Event.Category = []string{"api"}
		record.Event.Type = []string{"denied"}
		record.Event.Action = "authorization-refused"
	}
	if f.User != "" || f.UID != "" {
		record.User = &named{ID: f.UID, Name: f.User}
	}
	if address := f.Address; address != "" {
		record.Source = &source{Address: address, IP: address, Port: f.Port}
	} else if f.Node != "" {
		record.Source = &source{Address: f.Node}
	}
	if f.Node != "" {
		record.Host = &named{Name: f.Node}
	}
	record.Muster = muster{Actor: f.Actor, Command: f.Method, Fields: f.Fields}
	record.Message = "refused " + f.Method + ": " + f.Reason
	return record
}

// LeftOut makes the record of refusals that have none.
func (o Origin) LeftOut(at time.Time, n uint64) *Record {
	record := o.newRecord(at)
	record.Event.ID = fmt.Sprintf("left-out-%x", at.UnixNano())
	record.Event.Category = []string{"api"}
	record.Event.Type = []string{"denied"}
	record.Event.Action = "refusals-left-out"
	record.Event.Outcome = "failure"
	record.Muster = muster{Actor: "system", LeftOut: n}
	record.Message = strconv.FormatUint(n, 10) +
		" refusals have no record: they came faster than they are written"
	return record
}

// Gap makes the record of a place where the trail is not whole.
func (o Origin) Gap(at time.Time, why string) *Record {
	record := o.newRecord(at)
	record.Event.ID = fmt.Sprintf("gap-%x", at.UnixNano())
	record.Event.Category = []string{"configuration"}
	record.Event.Type = []string{"info"}
	record.Event.Action = "audit-gap"
	record.Event.Outcome = "failure"
	record.Event.Reason = why
	record.Muster = muster{Actor: "system"}
	record.Message = "the audit trail is not whole here: " + why
	return record
}
