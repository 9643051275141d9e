package rest_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/rest"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
	"github.com/musterhpc/muster/spec"
)

// A call within the process passes the same guards as one from outside, as whoever is
// in its context, and has the same errors.
func TestLocalCalls(t *testing.T) {
	c, _, g := serve(t, ada)
	who, err := ada(nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx := identity.With(t.Context(), who)
	var list apiv1.ListJobsReply
	if err := g.Ask(ctx, "/muster.v1.Cluster/ListJobs", &apiv1.ListJobsRequest{Detail: true}, &list); err != nil || list.GetJobs()[0].GetJobId() != 7 || !c.list.GetDetail() || c.who.User != "ada" {
		t.Errorf("ListJobs: %v, %v", &list, err)
	}
	refused := func(ctx context.Context, method, name string, number int32) {
		t.Helper()
		err := g.Ask(ctx, method, &apiv1.SubmitRequest{Spec: &apiv1.JobSpec{Name: name}}, &apiv1.SubmitReply{})
		var e *rpcstatus.Error
		if !errors.As(err, &e) || e.Number != number {
			t.Errorf("%s: %v, want number %d", method, err, number)
		}
	}
	refused(t.Context(), "/muster.v1.Cluster/Submit", "", int32(spec.CodeAccessDenied)) // nobody asks
	refused(ctx, "/muster.v1.Cluster/Submit", "refused", int32(spec.CodeInvalidPartition))
	refused(ctx, "/muster.v1.Cluster/WatchJob", "", 0) // it answers with a stream
	refused(ctx, "/muster.v1.Cluster/Nothing", "", 0)
	if err := g.Ask(ctx, "/muster.v1.Cluster/ListJobs", &apiv1.SubmitRequest{}, &list); err == nil {
		t.Error("a message of another type is accepted")
	}

	s, err := g.Stream(ctx, "/muster.v1.Cluster/WatchJob", &apiv1.WatchJobRequest{JobId: 5})
	if err != nil {
		t.Fatal(err)
	}
	var j apiv1.JobInfo
	for i := range uint32(3) {
		if err := s.Recv(&j); err != nil || j.GetJobId() != 5 || j.GetAttempt() != i {
			t.Errorf("message %d: %v, %v", i, &j, err)
		}
	}
	if err := s.Recv(&j); spec.CodeOf(err) != spec.CodeStopping && !errors.Is(err, &rpcstatus.Error{Number: int32(spec.CodeStopping)}) || errors.Is(err, io.EOF) {
		t.Errorf("the stream ended with %v", err)
	}
	s.Close()
	// Whoever goes away early leaves no handler behind: Close waits for it.
	if s, err = g.Stream(ctx, "/muster.v1.Cluster/WatchJob", &apiv1.WatchJobRequest{}); err != nil {
		t.Fatal(err)
	}
	s.Close()
}

// mounted is an API under a path of the gateway.
type mounted struct{ asked identity.Identity }

func (m *mounted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.asked = identity.From(r.Context())
	if r.URL.Query().Get("panic") != "" {
		panic("planted")
	}
	w.WriteHeader(http.StatusTeapot)
}

func (m *mounted) Refuse(w http.ResponseWriter, _ *http.Request, code int, e *rpcstatus.Error) {
	http.Error(w, "own words: "+e.Error(), code)
}

// A mounted API is asked as whoever the gateway found, and words its own refusals.
func TestMount(t *testing.T) {
	nobody := false
	_, srv, g := serve(t, func(r *http.Request) (identity.Identity, error) {
		if nobody {
			return identity.Nameless(), rpcstatus.New(rpcstatus.Unauthenticated, "who are you")
		}
		return ada(r)
	})
	m := &mounted{}
	g.Mount("/own/", m, false)
	g.Mount("/open", m, true)
	if code, _ := do(t, "GET", srv.URL+"/own/thing", ""); code != http.StatusTeapot || m.asked.User != "ada" {
		t.Errorf("%d, asked by %v", code, m.asked)
	}
	if code, _ := do(t, "GET", srv.URL+"/own/thing?panic=1", ""); code != http.StatusInternalServerError {
		t.Errorf("a panic: %d", code)
	}
	nobody = true
	if code, text := do(t, "GET", srv.URL+"/own/thing", ""); code != http.StatusUnauthorized || text != "own words: who are you\n" {
		t.Errorf("nobody: %d %q", code, text)
	}
	if code, _ := do(t, "GET", srv.URL+"/open", ""); code != http.StatusTeapot || m.asked.Kind != identity.Anonymous {
		t.Errorf("open: %d, asked by %v", code, m.asked)
	}
	var _ rest.Mounted = m
}
