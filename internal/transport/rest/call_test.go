package rest_test

import (
	"errors"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/rest"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
	"github.com/musterhpc/muster/spec"
)

// TestCallStream: each message of a stream is handed over as the caller, behind the
// guard of streams, and whoever has had enough ends it.
func TestCallStream(t *testing.T) {
	guard := func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		if identity.From(s.Context()).User != "ada" {
			return spec.Refuse(spec.CodeAccessDenied, "")
		}
		return next(srv, s)
	}
	g := rest.New(rest.Config{Identify: ada, Errors: rpcstatus.Numbers(), Stream: []grpc.StreamServerInterceptor{guard}, Version: "1"})
	service.RegisterClusterServer(g, &cluster{})
	who, err := ada(nil)
	if err != nil {
		t.Fatal(err)
	}
	const method = "/muster.v1.Cluster/WatchJob"
	got := 0
	count := func(m proto.Message) error {
		if j, ok := m.(*apiv1.JobInfo); !ok || j.GetJobId() != 5 || j.GetAttempt() != uint32(got) {
			t.Errorf("message %d is %v", got, m)
		}
		got++
		return nil
	}
	if err := g.CallStream(t.Context(), who, method, &apiv1.WatchJobRequest{JobId: 5}, count); spec.CodeOf(err) != spec.CodeStopping || got != 3 {
		t.Errorf("%d messages, then %v", got, err)
	}
	enough := errors.New("enough")
	got = 0
	if err := g.CallStream(t.Context(), who, method, &apiv1.WatchJobRequest{JobId: 5}, func(m proto.Message) error {
		_ = count(m)
		return enough
	}); !errors.Is(err, enough) || got != 1 {
		t.Errorf("after enough: %d messages, %v", got, err)
	}
	got = 0
	if err := g.CallStream(t.Context(), identity.Nameless(), method, &apiv1.WatchJobRequest{JobId: 5}, count); spec.CodeOf(err) != spec.CodeAccessDenied || got != 0 {
		t.Errorf("to nobody: %d messages, %v", got, err)
	}
	if err := g.CallStream(t.Context(), who, "/muster.v1.Cluster/ListJobs", &apiv1.ListJobsRequest{}, count); err == nil {
		t.Error("a method with one answer is called as a stream")
	}
}
