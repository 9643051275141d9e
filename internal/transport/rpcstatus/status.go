// Package rpcstatus holds the one error shape that crosses a connection, whichever protocol
// carries it.
//
// A handler returns any Go error. Convert turns it into an *Error: a canonical wire code
// (gRPC's numbers, so that generic tools and retry policies understand it), Muster's own stable
// number, the message for the person who must act, Slurm's text where Slurm has one, and
// details in a fixed order. The client gets the same *Error back and reads it with errors.As; a
// sentinel that carries the same number matches with errors.Is.
package rpcstatus

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sort"
)

// Code is a canonical status code. The numbers are gRPC's and never change.
type Code uint32

// The canonical codes.
const (
	OK                 Code = 0
	Canceled           Code = 1
	Unknown            Code = 2
	InvalidArgument    Code = 3
	DeadlineExceeded   Code = 4
	NotFound           Code = 5
	AlreadyExists      Code = 6
	PermissionDenied   Code = 7
	ResourceExhausted  Code = 8
	FailedPrecondition Code = 9
	Aborted            Code = 10
	OutOfRange         Code = 11
	Unimplemented      Code = 12
	Internal           Code = 13
	Unavailable        Code = 14
	DataLoss           Code = 15
	Unauthenticated    Code = 16
)

const lastCode = Unauthenticated

// String returns the code's name, or "Code(n)" for a number outside the canonical set.
func (c Code) String() string {
	names := [...]string{
		"OK",
		"Canceled",
		"Unknown",
		"InvalidArgument",
		"DeadlineExceeded",
		"NotFound",
		"AlreadyExists",
		"PermissionDenied",
		"ResourceExhausted",
		"FailedPrecondition",
		"Aborted",
		"OutOfRange",
		"Unimplemented",
		"Internal",
		"Unavailable",
		"DataLoss",
		"Unauthenticated",
	}
	if int(c) < len(names) {
		return names[c]
	}
	return fmt.Sprintf("Code(%d)", uint32(c))
}

// Coded is what a domain error implements to keep its identity across the wire: a stable number
// that is never reused.
type Coded interface {
	error
	Code() int32
}

// Detail is one named fact about an error, for programs ("limit" = "gres/gpu=4").
type Detail struct{ Key, Value string }

// Error is an error as it crosses the wire.
type Error struct {
	Wire    Code     // canonical class; never OK
	Number  int32    // Muster's stable error number; 0 = none
	Message string   // for the person who must act
	Slurm   string   // Slurm's error text; "" = Slurm has none
	Details []Detail // sorted by key
}

var _ Coded = (*Error)(nil)

// New makes an error without a Muster number, as the transport itself raises them.
func New(wire Code, format string, args ...any) *Error {
	return &Error{Wire: wire, Message: fmt.Sprintf(format, args...)}
}

// Error returns the message.
func (e *Error) Error() string {
	if e.Message != "" {
		return e.Message
	}
	return e.Wire.String()
}

// Code returns Muster's stable number, 0 if there is none.
func (e *Error) Code() int32 { return e.Number }

// SlurmText returns Slurm's error text, "" if there is none.
func (e *Error) SlurmText() string { return e.Slurm }

// ErrorDetails returns the details as a map; nil if there are none.
func (e *Error) ErrorDetails() map[string]string {
	if len(e.Details) == 0 {
		return nil
	}
	m := make(map[string]string, len(e.Details))
	for _, detail := range e.Details {
		m[detail.Key] = detail.Value
	}
	return m
}

// Detail returns the value of one detail.
func (e *Error) Detail(key string) (string, bool) {
	for _, detail := range e.Details {
		if detail.Key == key {
			return detail.Value, true
		}
	}
	return "", false
}

// Is makes errors.Is work across the wire: a target with the same non-zero number matches, and
// so do the two context errors.
func (e *Error) Is(target error) bool {
	switch target {
	case context.DeadlineExceeded:
		return e.Wire == DeadlineExceeded
	case context.Canceled:
		return e.Wire == Canceled
	}
	c, ok := target.(Coded)
	return ok && e.Number != 0 && c.Code() == e.Number
}

// Temporary reports that the same request may succeed later without a change by the user.
func (e *Error) Temporary() bool {
	return e.Wire == Unavailable || e.Wire == ResourceExhausted || e.Wire == Aborted
}

// Range gives one wire code to the Muster numbers From..To, both included.
type Range struct {
	From, To int32
	Wire     Code
}

// Table maps Muster numbers to wire codes; the first range that holds the number wins.
type Table []Range

// Wire returns the wire code of a Muster number. A number in no range is FailedPrecondition: a
// refusal that a blind retry does not cure.
func (t Table) Wire(number int32) Code {
	for _, r := range t {
		if r.From <= number && number <= r.To {
			return r.Wire
		}
	}
	return FailedPrecondition
}

// Convert turns any error into one that can be sent. nil gives nil. An *Error in the chain is
// kept; its message becomes the whole chain's text, so that context added by %w is not lost.
// For a Coded error the optional methods SlurmText() string and ErrorDetails()
// map[string]string are read too, and a spec.Error is taken apart whole. Anything else becomes
// Unknown with its text.
func Convert(err error, table Table) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		out := *e
		if text := err.Error(); text != e.Error() {
			out.Message = text
		}
		if out.Wire == OK || out.Wire > lastCode {
			out.Wire = Unknown
		}
		return &out
	}
	var coded Coded
	if errors.As(err, &coded) && coded.Code() != 0 {
		return fromCoded(err, coded, table)
	}
	return &Error{Wire: class(err), Message: err.Error()}
}

func fromCoded(err error, coded Coded, table Table) *Error {
	out := &Error{Wire: table.Wire(coded.Code()), Number: coded.Code(), Message: err.Error()}
	if out.Wire == OK || out.Wire > lastCode {
		out.Wire = Unknown
	}
	out.readRefusal(err)
	if s, ok := coded.(interface{ SlurmText() string }); ok {
		out.Slurm = s.SlurmText()
	}
	if d, ok := coded.(interface{ ErrorDetails() map[string]string }); ok {
		for k, v := range d.ErrorDetails() {
			out.Details = append(out.Details, Detail{k, v})
		}
		sort.Slice(
			out.Details,
			func(i, j int) bool { return out.Details[i].Key < out.Details[j].Key },
		)
	}
	return out
}

func class(err error) Code {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return DeadlineExceeded
	case errors.Is(err, context.Canceled):
		return Canceled
	case errors.Is(err, fs.ErrPermission):
		return PermissionDenied
	case errors.Is(err, fs.ErrNotExist):
		return NotFound
	default:
		return Unknown
	}
}
