package rpcstatus

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

type domainError struct {
	n       int32
	text    string
	slurm   string
	details map[string]string
}

func (d domainError) Error() string                   { return d.text }
func (d domainError) Code() int32                     { return d.n }
func (d domainError) SlurmText() string               { return d.slurm }
func (d domainError) ErrorDetails() map[string]string { return d.details }

func TestConvert(t *testing.T) {
	table := Table{{From: 2000, To: 2099, Wire: InvalidArgument}, {From: 2000, To: 2999, Wire: NotFound}}
	limit := domainError{n: 2050, text: "16 GPUs asked, node has 8", slurm: "Requested node configuration is not available",
		details: map[string]string{"z": "1", "a": "2"}}
	cases := []struct {
		name string
		in   error
		want *Error
	}{
		{"nil", nil, nil},
		{"plain", errors.New("disk gone"), &Error{Wire: Unknown, Message: "disk gone"}},
		{"deadline", fmt.Errorf("append: %w", context.DeadlineExceeded), &Error{Wire: DeadlineExceeded, Message: "append: context deadline exceeded"}},
		{"canceled", context.Canceled, &Error{Wire: Canceled, Message: "context canceled"}},
		{"permission", fs.ErrPermission, &Error{Wire: PermissionDenied, Message: "permission denied"}},
		{"missing", fs.ErrNotExist, &Error{Wire: NotFound, Message: "file does not exist"}},
		{"coded first range", limit, &Error{Wire: InvalidArgument, Number: 2050, Message: limit.text, Slurm: limit.slurm,
			Details: []Detail{{"a", "2"}, {"z", "1"}}}},
		{"coded wrapped keeps context", fmt.Errorf("submit: %w", limit), &Error{Wire: InvalidArgument, Number: 2050,
			Message: "submit: " + limit.text, Slurm: limit.slurm, Details: []Detail{{"a", "2"}, {"z", "1"}}}},
		{"coded second range", domainError{n: 2100, text: "x"}, &Error{Wire: NotFound, Number: 2100, Message: "x"}},
		{"coded unmapped", domainError{n: 7, text: "x"}, &Error{Wire: FailedPrecondition, Number: 7, Message: "x"}},
		{"coded zero is plain", domainError{n: 0, text: "x"}, &Error{Wire: Unknown, Message: "x"}},
		{"own kept", New(Unavailable, "full %d", 3), &Error{Wire: Unavailable, Message: "full 3"}},
		{"own wrapped", fmt.Errorf("a: %w", New(Aborted, "b")), &Error{Wire: Aborted, Message: "a: b"}},
		{"never OK", &Error{Message: "m"}, &Error{Wire: Unknown, Message: "m"}},
	}
	for _, c := range cases {
		if got := Convert(c.in, table); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestIsAcrossTheWire(t *testing.T) {
	sentinel := domainError{n: 2050, text: "local text"}
	sent := Convert(domainError{n: 2050, text: "remote text"}, nil)
	got, err := Parse(Append(nil, sent))
	if err != nil {
		t.Fatal(err)
	}
	wrapped := fmt.Errorf("submit: %w", error(got))
	if !errors.Is(wrapped, sentinel) {
		t.Error("same number does not match")
	}
	if errors.Is(wrapped, domainError{n: 2051}) || errors.Is(New(Unknown, "x"), domainError{}) {
		t.Error("another number or no number matches")
	}
	var e *Error
	if !errors.As(wrapped, &e) || e.Code() != 2050 {
		t.Errorf("errors.As: %+v", e)
	}
	if !errors.Is(New(DeadlineExceeded, "late"), context.DeadlineExceeded) || !errors.Is(New(Canceled, "c"), context.Canceled) {
		t.Error("context errors do not match")
	}
	if errors.Is(New(Canceled, "c"), context.DeadlineExceeded) {
		t.Error("canceled matches deadline")
	}
}

func TestWireRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := &Error{
			Wire:    Code(rapid.Uint32Range(1, uint32(lastCode)).Draw(t, "wire")),
			Number:  rapid.Int32().Draw(t, "number"),
			Message: rapid.String().Draw(t, "message"),
			Slurm:   rapid.String().Draw(t, "slurm"),
		}
		for range rapid.IntRange(0, 5).Draw(t, "details") {
			e.Details = append(e.Details, Detail{rapid.String().Draw(t, "key"), rapid.String().Draw(t, "value")})
		}
		got, err := Parse(Append(nil, e))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, e) {
			t.Fatalf("got %+v, want %+v", got, e)
		}
	})
}

func TestAppendIsAlwaysSendable(t *testing.T) {
	e := &Error{Wire: Unknown, Message: strings.Repeat("é\xff", 64<<10), Details: make([]Detail, 1000)}
	got, err := Parse(Append(nil, e))
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Message) > maxText || !utf8.ValidString(got.Message) || len(got.Details) != maxDetails {
		t.Errorf("message %d bytes valid %v, %d details", len(got.Message), utf8.ValidString(got.Message), len(got.Details))
	}
}

func TestParseNeverReadsAsSuccess(t *testing.T) {
	for _, b := range [][]byte{nil, Append(nil, &Error{Wire: OK}), Append(nil, &Error{Wire: 99})} {
		if e, err := Parse(b); err != nil || e.Wire != Unknown {
			t.Errorf("%x: %+v, %v", b, e, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(nil))
	f.Add(Append(nil, &Error{Wire: NotFound, Number: -7, Message: "m", Slurm: "s", Details: []Detail{{"k", "v"}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := Parse(b)
		if err != nil {
			return
		}
		again, err := Parse(Append(nil, e))
		if err != nil || !reflect.DeepEqual(again, e) {
			t.Fatalf("%+v re-encodes to %+v (%v)", e, again, err)
		}
	})
}

func TestStrings(t *testing.T) {
	if Unauthenticated.String() != "Unauthenticated" || Code(99).String() != "Code(99)" || (&Error{Wire: NotFound}).Error() != "NotFound" {
		t.Error("names")
	}
	e := &Error{Wire: Unavailable, Details: []Detail{{"a", "1"}}}
	if v, ok := e.Detail("a"); !ok || v != "1" || !e.Temporary() || e.ErrorDetails()["a"] != "1" {
		t.Error("details")
	}
	if _, ok := e.Detail("b"); ok || New(NotFound, "x").Temporary() {
		t.Error("absent detail or permanent error")
	}
}
