package confirm_test

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc"

	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/controller/confirm"
	"github.com/musterhpc/muster/ledger/log"
	"github.com/musterhpc/muster/ledger/store"
	"github.com/musterhpc/muster/ledger/store/storetest"
	"github.com/musterhpc/muster/scheduler/daemon"
	"github.com/musterhpc/muster/spec"
)

var errRefused = errors.New("refused")

// call calls a method through the interceptor. ran tells that the handler ran.
func call(t *testing.T, lead confirm.Lead, method string, failure error) (ran bool, err error) {
	t.Helper()
	info := &grpc.UnaryServerInfo{FullMethod: method}
	_, err = lead.Unary(t.Context(), nil, info, func(context.Context, any) (any, error) {
		ran = true
		return nil, failure
	})
	return ran, err
}

// TestAlone: a controller that is the only one answers everything at once.
func TestAlone(t *testing.T) {
	alone := confirm.Of(nil)
	if err := alone.Confirm(t.Context()); err != nil {
		t.Error(err)
	}
	if ran, err := call(t, alone, service.Cluster_Ping_FullMethodName, errRefused); !ran || !errors.Is(err, errRefused) {
		t.Errorf("it ran: %v, %v", ran, err)
	}
}

// TestLeader: a leader answers, as the log of a real ledger confirms it.
func TestLeader(t *testing.T) {
	folder := storetest.NewFolder(t)
	err := folder.Run(func(l *log.Durable, _ *daemon.Machine, _ *store.Archive) {
		lead := confirm.Of(l.PresentLead())
		if err := lead.Confirm(t.Context()); err != nil {
			t.Error(err)
		}
		for _, method := range []string{service.Cluster_Ping_FullMethodName, service.Cluster_Submit_FullMethodName} {
			if ran, err := call(t, lead, method, nil); !ran || err != nil {
				t.Errorf("%s ran: %v, %v", method, ran, err)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// majority answers each question with an error.
type majority struct{ failure error }

func (m majority) Now() log.Moment                           { return 0 }
func (m majority) Confirm(context.Context, log.Moment) error { return m.failure }

// TestOvertaken: a controller that was overtaken answers no call. A submission is carried out first,
// so its outcome is unknown, unless it was not carried out.
func TestOvertaken(t *testing.T) {
	for _, c := range []struct {
		failure error
		want    spec.Code
	}{
		{log.ErrNotLeader, spec.CodeNotLeader},
		{log.ErrClosed, spec.CodeStopping},
	} {
		lead := confirm.By(majority{c.failure})
		if err := lead.Confirm(t.Context()); spec.CodeOf(err) != c.want {
			t.Errorf("%v: %v", c.failure, err)
		}
		if ran, err := call(t, lead, service.Cluster_Ping_FullMethodName, nil); ran || spec.CodeOf(err) != c.want {
			t.Errorf("%v: a question ran: %v, %v", c.failure, ran, err)
		}
		for handled, want := range map[spec.Code]spec.Code{
			spec.CodeOf(nil):        spec.CodeOutcomeUnknown,
			spec.CodeAccessDenied:   spec.CodeOutcomeUnknown,
			spec.CodeStopping:       spec.CodeStopping,
			spec.CodeNotLeader:      spec.CodeNotLeader,
			spec.CodeOutcomeUnknown: spec.CodeOutcomeUnknown,
		} {
			var failed error
			if handled != spec.CodeOf(nil) {
				failed = spec.Refuse(handled, "")
			}
			ran, err := call(t, lead, service.Cluster_Submit_FullMethodName, failed)
			if !ran || spec.CodeOf(err) != want {
				t.Errorf("%v: a submission with %v ran: %v, %v", c.failure, failed, ran, err)
			}
		}
		begun := false
		err := lead.Stream(nil, endless{ctx: t.Context()}, nil, func(any, grpc.ServerStream) error {
			begun = true
			return nil
		})
		if begun || spec.CodeOf(err) != c.want {
			t.Errorf("%v: a stream began: %v, %v", c.failure, begun, err)
		}
	}
}

// endless is a stream on which nothing comes.
type endless struct {
	grpc.ServerStream
	ctx context.Context
}

func (s endless) Context() context.Context { return s.ctx }
