package grpcerr

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

	"github.com/musterhpc/muster/internal/transport/status"
	"github.com/musterhpc/muster/spec"
)

func TestThereAndBack(t *testing.T) {
	refusal := &spec.Error{Kind: spec.CodeInvalidJobID, Prefix: "p", Detail: "d"}
	got := From(To(fmt.Errorf("%w", error(refusal)), status.Numbers()))
	var e *status.Error
	if !errors.As(got, &e) || e.Wire != status.NotFound || !reflect.DeepEqual(e.Refusal(), refusal) {
		t.Errorf("%+v", got)
	}
	if s, _ := grpcstatus.FromError(To(refusal, status.Numbers())); s.Code() != codes.NotFound || s.Message() != refusal.Error() {
		t.Errorf("what another client sees: %v", s)
	}
	if got := To(context.DeadlineExceeded, nil); grpcstatus.Code(got) != codes.DeadlineExceeded {
		t.Errorf("%v", got)
	}
	if To(nil, nil) != nil || From(nil) != nil || From(io.EOF) != io.EOF {
		t.Error("nil and EOF change")
	}
	foreign := grpcstatus.Error(codes.DataLoss, "foreign")
	if To(foreign, nil) != foreign {
		t.Error("a gRPC status changes")
	}
	if got := From(foreign); !errors.As(got, &e) || e.Wire != status.DataLoss || e.Message != "foreign" {
		t.Errorf("%+v", got)
	}
}

func TestLongErrorsFit(t *testing.T) {
	long := &status.Error{Wire: status.Aborted, Number: 7, Message: strings.Repeat("é\xff", 1<<20), Slurm: "s"}
	for range 1000 {
		long.Details = append(long.Details, status.Detail{Key: "k", Value: strings.Repeat("v", 100)})
	}
	sent := To(long, nil)
	s, _ := grpcstatus.FromError(sent)
	if n := len(s.Message()); n > 2*maxMessage || !utf8.ValidString(s.Message()) || !strings.HasSuffix(s.Message(), "[cut]") {
		t.Errorf("message of %d bytes", n)
	}
	var e *status.Error
	if !errors.As(From(sent), &e) || e.Number != 7 || e.Slurm != "s" {
		t.Errorf("%+v", e)
	}
}
