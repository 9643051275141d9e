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
	r := o.newRecord(at)
	r.Event.ID = fmt.Sprintf("refusal-%x-%d", at.UnixNano(), n)
	r.Event.Outcome = "failure"
	r.Event.Reason = f.Reason
	if f.Unknown {
		r.Event.Category = []string{"authentication"}
		r.Event.Type = []string{"info"}
		r.Event.Action = "authentication-refused"
	} else {
		r.Event.Category = []string{"api"}
		r.Event.Type = []string{"denied"}
		r.Event.Action = "authorization-refused"
	}
	if f.User != "" || f.UID != "" {
		r.User = &named{ID: f.UID, Name: f.User}
	}
	if address := f.Address; address != "" {
		r.Source = &source{Address: address, IP: address, Port: f.Port}
	} else if f.Node != "" {
		r.Source = &source{Address: f.Node}
	}
	if f.Node != "" {
		r.Host = &named{Name: f.Node}
	}
	r.Muster = muster{Actor: f.Actor, Command: f.Method, Fields: f.Fields}
	r.Message = "refused " + f.Method + ": " + f.Reason
	return r
}

// LeftOut makes the record of refusals that have none.
func (o Origin) LeftOut(at time.Time, n uint64) *Record {
	r := o.newRecord(at)
	r.Event.ID = fmt.Sprintf("left-out-%x", at.UnixNano())
	r.Event.Category = []string{"api"}
	r.Event.Type = []string{"denied"}
	r.Event.Action = "refusals-left-out"
	r.Event.Outcome = "failure"
	r.Muster = muster{Actor: "system", LeftOut: n}
	r.Message = strconv.FormatUint(n, 10) + " refusals have no record: they came faster than they are written"
	return r
}

// Gap makes the record of a place where the trail is not whole.
func (o Origin) Gap(at time.Time, why string) *Record {
	r := o.newRecord(at)
	r.Event.ID = fmt.Sprintf("gap-%x", at.UnixNano())
	r.Event.Category = []string{"configuration"}
	r.Event.Type = []string{"info"}
	r.Event.Action = "audit-gap"
	r.Event.Outcome = "failure"
	r.Event.Reason = why
	r.Muster = muster{Actor: "system"}
	r.Message = "the audit trail is not whole here: " + why
	return r
}
