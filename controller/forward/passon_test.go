package forward

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	_ "github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/internal/transport/framed"
	"github.com/musterhpc/muster/internal/transport/framed/serve"
	"github.com/musterhpc/muster/internal/transport/gate"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/spec"
)

// TestPassOn: a call of REST that its controller could not carry out because it leads no longer is
// passed on, for whoever made it, and only one that cannot be carried out twice.
func TestPassOn(t *testing.T) {
	leads := make(chan struct{})
	over := make(chan struct{})
	close(over)
	refused := func(code spec.Code) error { return spec.Refuse(code, "") }
	const submit, list = "/muster.v1.Cluster/Submit", "/muster.v1.Cluster/ListJobs"
	for name, c := range map[string]struct {
		method string
		req    proto.Message
		failed error
		over   chan struct{}
		passed bool
	}{
		"answered":                     {list, &apiv1.ListJobsRequest{}, nil, over, false},
		"refused":                      {submit, &apiv1.SubmitRequest{}, refused(spec.CodeAccessDenied), over, false},
		"not the leader":               {submit, &apiv1.SubmitRequest{}, refused(spec.CodeNotLeader), leads, true},
		"stopping":                     {submit, &apiv1.SubmitRequest{}, refused(spec.CodeStopping), over, true},
		"reading, outcome unknown":     {list, &apiv1.ListJobsRequest{}, refused(spec.CodeOutcomeUnknown), over, true},
		"perhaps submitted":            {submit, &apiv1.SubmitRequest{}, refused(spec.CodeOutcomeUnknown), over, false},
		"perhaps submitted, numbered":  {submit, &apiv1.SubmitRequest{Request: 7}, refused(spec.CodeOutcomeUnknown), over, true},
		"cut off by the end of a lead": {list, &apiv1.ListJobsRequest{}, context.Canceled, over, true},
		"the client has gone away":     {list, &apiv1.ListJobsRequest{}, context.Canceled, leads, false},
	} {
		passed := false
		p := PassOn{Again: gate.Again, Over: c.over, Forward: func(ctx context.Context, call serve.RelayCall, send func([]byte) error) error {
			passed = true
			if ctx.Err() != nil {
				t.Errorf("%s: passed on with a context that has ended", name)
			}
			if call.Method != c.method || call.For != framed.Attest(1000, 100) {
				t.Errorf("%s: passed on as %s for %v", name, call.Method, call.For)
			}
			if again := new(apiv1.SubmitRequest); c.req.ProtoReflect().Descriptor().Name() == "SubmitRequest" && spec.CodeOf(c.failed) == spec.CodeOutcomeUnknown {
				if err := proto.Unmarshal(call.Payload, again); err != nil || !again.GetAgain() {
					t.Errorf("%s: a submission is repeated without saying so: %v %v", name, again, err)
				}
			}
			return send(nil)
		}}
		ctx, cancel := context.WithCancel(identity.With(t.Context(), identity.Identity{Kind: identity.LocalUser, UID: 1000, GID: 100}))
		cancel() // the context of a request ends with the lead
		reply, err := p.Unary(ctx, c.req, &grpc.UnaryServerInfo{FullMethod: c.method}, func(context.Context, any) (any, error) {
			return &apiv1.ListJobsReply{}, c.failed
		})
		switch {
		case passed != c.passed:
			t.Errorf("%s: passed on: %v", name, passed)
		case c.passed && (err != nil || reply == nil):
			t.Errorf("%s: %v, %v", name, reply, err)
		case !c.passed && !errors.Is(err, c.failed):
			t.Errorf("%s: the error is %v", name, err)
		}
	}
}

// askedStream is a stream with one request. Like those of REST it sends nothing once the context of
// its request has ended, unless it is told to outlive it.
type askedStream struct {
	grpc.ServerStream
	ctx     context.Context
	request proto.Message
	sent    *[]proto.Message
}

func (s *askedStream) Context() context.Context { return s.ctx }

func (s *askedStream) RecvMsg(into any) error {
	proto.Merge(into.(proto.Message), s.request)
	return nil
}

func (s *askedStream) SendMsg(m any) error {
	if err := s.ctx.Err(); err != nil {
		return err
	}
	*s.sent = append(*s.sent, m.(proto.Message))
	return nil
}

func (s *askedStream) Outlive(ctx context.Context) grpc.ServerStream {
	return &askedStream{ctx: ctx, request: s.request, sent: s.sent}
}

// TestPassOnStream: a call that is answered by several messages is passed on like one with a single
// answer, unless its caller has a part of the answer already.
func TestPassOnStream(t *testing.T) {
	over := make(chan struct{})
	close(over)
	user := identity.Identity{Kind: identity.LocalUser, UID: 1000, GID: 100}
	request := &apiv1.ListJobsRequest{Detail: true}
	for name, c := range map[string]struct {
		reads, answers bool
		failed         error
		sent           int // messages that the caller gets
	}{
		"answered":                           {true, true, nil, 1},
		"refused":                            {true, false, spec.Refuse(spec.CodeAccessDenied, ""), 0},
		"not the leader, before reading":     {false, false, spec.Refuse(spec.CodeNotLeader, ""), 2},
		"not the leader":                     {true, false, spec.Refuse(spec.CodeNotLeader, ""), 2},
		"cut off":                            {true, false, context.Canceled, 2},
		"cut off after a part of the answer": {true, true, context.Canceled, 1},
	} {
		var sent []proto.Message
		ctx, endLead := context.WithCancel(identity.With(t.Context(), user))
		p := PassOn{Again: gate.Again, Over: over, Forward: func(_ context.Context, call serve.RelayCall, send func([]byte) error) error {
			again := new(apiv1.ListJobsRequest)
			if err := proto.Unmarshal(call.Payload, again); err != nil || !proto.Equal(again, request) {
				t.Errorf("%s: passed on %v, %v", name, again, err)
			}
			return errors.Join(send(nil), send(nil))
		}}
		stream := &askedStream{ctx: ctx, request: request, sent: &sent}
		info := &grpc.StreamServerInfo{FullMethod: "/muster.v1.Cluster/StreamJobs", IsServerStream: true}
		err := p.Stream(nil, stream, info, func(_ any, stream grpc.ServerStream) error {
			if c.reads {
				if err := stream.RecvMsg(new(apiv1.ListJobsRequest)); err != nil {
					return err
				}
			}
			if c.answers {
				if err := stream.SendMsg(&apiv1.ListJobsReply{}); err != nil {
					return err
				}
			}
			endLead()
			return c.failed
		})
		if len(sent) != c.sent {
			t.Errorf("%s: the caller got %d messages, want %d", name, len(sent), c.sent)
		}
		if passed := c.sent == 2; passed == (err != nil) && c.failed != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
