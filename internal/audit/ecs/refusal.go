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
func (o Origin) FromRefusal(at time.Time, n uint64, refusal Refusal) *Record {
	record := o.newRecord(at)
	record.Event.ID = fmt.Sprintf("refusal-%x-%d", at.UnixNano(), n)
	record.Event.Outcome = "failure"
	record.Event.Reason = refusal.Reason
	if refusal.Unknown {
		record.Event.Category = []string{"authentication"}
		record.Event.Type = []string{"info"}
		record.Event.Action = "authentication-refused"
	} else {
		record.Event.Category = []string{"api"}
		record.Event.Type = []string{"denied"}
		record.Event.Action = "authorization-refused"
	}
	if refusal.User != "" || refusal.UID != "" {
		record.User = &named{ID: refusal.UID, Name: refusal.User}
	}
	if address := refusal.Address; address != "" {
		record.Source = &source{Address: address, IP: address, Port: refusal.Port}
	} else if refusal.Node != "" {
		record.Source = &source{Address: refusal.Node}
	}
	if refusal.Node != "" {
		record.Host = &named{Name: refusal.Node}
	}
	record.Muster = muster{Actor: refusal.Actor, Command: refusal.Method, Fields: refusal.Fields}
	record.Message = "refused " + refusal.Method + ": " + refusal.Reason
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
func (o Origin) Gap(at time.Time, reason string) *Record {
	record := o.newRecord(at)
	record.Event.ID = fmt.Sprintf("gap-%x", at.UnixNano())
	record.Event.Category = []string{"configuration"}
	record.Event.Type = []string{"info"}
	record.Event.Action = "audit-gap"
	record.Event.Outcome = "failure"
	record.Event.Reason = reason
	record.Muster = muster{Actor: "system"}
	record.Message = "the audit trail is not whole here: " + reason
	return record
}
