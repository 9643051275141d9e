package grpcx

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/musterhpc/muster/internal/transport/rpcstatus"
	"github.com/musterhpc/muster/spec"
)

func TestThereAndBack(t *testing.T) {
	refusal := &spec.Error{Kind: spec.CodeInvalidJobID, Prefix: "p", Detail: "d"}
	got := FromStatus(ToStatus(fmt.Errorf("%w", error(refusal)), rpcstatus.Numbers()))
	var e *rpcstatus.Error
	if !errors.As(got, &e) || e.Wire != rpcstatus.NotFound || !reflect.DeepEqual(e.Refusal(), refusal) {
		t.Errorf("%+v", got)
	}
	if s, _ := grpcstatus.FromError(ToStatus(refusal, rpcstatus.Numbers())); s.Code() != codes.NotFound || s.Message() != refusal.Error() {
		t.Errorf("what another client sees: %v", s)
	}
	if got := ToStatus(context.DeadlineExceeded, nil); grpcstatus.Code(got) != codes.DeadlineExceeded {
		t.Errorf("%v", got)
	}
	if ToStatus(nil, nil) != nil || FromStatus(nil) != nil || FromStatus(io.EOF) != io.EOF {
		t.Error("nil and EOF change")
	}
	foreign := grpcstatus.Error(codes.DataLoss, "foreign")
	if ToStatus(foreign, nil) != foreign {
		t.Error("a gRPC status changes")
	}
	if got := FromStatus(foreign); !errors.As(got, &e) || e.Wire != rpcstatus.DataLoss || e.Message != "foreign" {
		t.Errorf("%+v", got)
	}
}

func TestLongErrorsFit(t *testing.T) {
	long := &rpcstatus.Error{Wire: rpcstatus.Aborted, Number: 7, Message: strings.Repeat("é\xff", 1<<20), Slurm: "s"}
	for range 1000 {
		long.Details = append(long.Details, rpcstatus.Detail{Key: "k", Value: strings.Repeat("v", 100)})
	}
	sent := ToStatus(long, nil)
	s, _ := grpcstatus.FromError(sent)
	if n := len(s.Message()); n > 2*maxMessage || !utf8.ValidString(s.Message()) || !strings.HasSuffix(s.Message(), "[cut]") {
		t.Errorf("message of %d bytes", n)
	}
	var e *rpcstatus.Error
	if !errors.As(FromStatus(sent), &e) || e.Number != 7 || e.Slurm != "s" {
		t.Errorf("%+v", e)
	}
}
