package rpcstatus

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/musterhpc/muster/spec"
)

func TestRefusalCrossesTheWire(t *testing.T) {
	for _, r := range []*spec.Error{
		{Kind: spec.CodeInvalidJobID},
		{Kind: spec.CodeNodeConfigUnavailable, Prefix: "Memory specification can not be satisfied", Detail: "16 GPUs asked, the largest node has 8",
			Reason: &spec.Reason{Code: spec.ReasonResources, TRES: "gres/gpu", Limit: 8, Used: 3, Asked: 16, Subject: "partition/gpu",
				Until: 1234567890123456789, Blocker: 1<<63 + 5, Detail: "n1"}},
		spec.RefuseUnknown(spec.Unknown{Kind: "key", Word: "colr", Of: "a node", Nearest: "colour"}),
		spec.RefuseUnknown(spec.Unknown{Kind: "key", Word: "zz", Of: "a node"}),
		{Kind: spec.CodeDiskReserve, Detail: "x", Reason: &spec.Reason{Code: spec.ReasonNone, Limit: -1}},
	} {
		sent := Convert(fmt.Errorf("%w", error(r)), Numbers())
		got, err := Parse(Append(nil, sent))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got.Refusal(), r) {
			t.Errorf("got %+v, want %+v", got.Refusal(), r)
		}
		if !errors.Is(error(got), r) || got.SlurmText() != r.Kind.String() || got.Error() != r.Error() {
			t.Errorf("%+v is not %v", got, r)
		}
	}
	if New(NotFound, "x").Refusal() != nil {
		t.Error("a refusal without a number")
	}
	wrapped := Convert(fmt.Errorf("submit: %w", &spec.Error{Kind: spec.CodeInvalidJobID}), Numbers())
	if d := wrapped.Refusal().Detail; d != "submit: Invalid job id specified" {
		t.Errorf("context lost: %q", d)
	}
}

func TestNumbers(t *testing.T) {
	table := Numbers()
	for i, r := range table {
		if r.From != r.To || table.Wire(r.From) != r.Wire {
			t.Errorf("row %d: number %d is in an earlier row too", i, r.From)
		}
	}
	if table.Wire(int32(spec.CodeInvalidJobID)) != NotFound || table.Wire(int32(spec.CodeJobHeld)) != FailedPrecondition {
		t.Error("classes")
	}
}
