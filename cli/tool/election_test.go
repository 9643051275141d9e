package tool

import (
	"context"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/transport/framed"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
	"github.com/musterhpc/muster/spec"
)

// answering is a connection whose calls end with the errors of a list, one after the other.
type answering struct {
	Conn
	errs   *[]error
	asked  *int
	closed int
}

func (a *answering) Call(context.Context, string, proto.Message, proto.Message) error {
	*a.asked++
	if len(*a.errs) == 0 {
		return nil
	}
	err := (*a.errs)[0]
	*a.errs = (*a.errs)[1:]
	return err
}

// Start sends a call whose answer has the next error.
func (a *answering) Start(ctx context.Context, method string, request proto.Message) (Pending, error) {
	return answered{a.Call(ctx, method, request, nil)}, nil
}

type answered struct{ err error }

func (a answered) Wait(proto.Message) error { return a.err }

func (a *answering) Close() error {
	a.closed++
	return nil
}

// TestCallsGoThroughAnElection: a command that asks a controller which loses the lead is answered by
// the next one if it can be asked without being done twice.
func TestCallsGoThroughAnElection(t *testing.T) {
	refused := func(code spec.Code) error {
		return rpcstatus.Convert(spec.Refuse(code, ""), rpcstatus.Numbers())
	}
	lost := rpcstatus.New(rpcstatus.Unavailable, "the server closed the connection")
	lost.Details = []rpcstatus.Detail{{Key: framed.DetailOutcome, Value: framed.OutcomeUnknown}}
	numbered := func() proto.Message { return &apiv1.SubmitRequest{Request: 7} }
	for name, c := range map[string]struct {
		request func() proto.Message
		errs    []error
		asked   int
		failed  bool
		again   bool
	}{
		"answered":                    {numbered, nil, 1, false, false},
		"not done":                    {numbered, []error{refused(spec.CodeNotLeader), refused(spec.CodeNotLeader)}, 3, false, false},
		"not done, a cancel":          {func() proto.Message { return &apiv1.CancelRequest{} }, []error{refused(spec.CodeNotLeader)}, 2, false, false},
		"perhaps recorded":            {numbered, []error{refused(spec.CodeOutcomeUnknown)}, 2, false, true},
		"the connection broke":        {numbered, []error{lost}, 2, false, true},
		"perhaps recorded, no number": {func() proto.Message { return &apiv1.SubmitRequest{} }, []error{refused(spec.CodeOutcomeUnknown)}, 1, true, false},
		"perhaps cancelled":           {func() proto.Message { return &apiv1.CancelRequest{} }, []error{lost}, 1, true, false},
		"refused":                     {numbered, []error{refused(spec.CodeAccessDenied)}, 1, true, false},
		"refused after the election":  {numbered, []error{refused(spec.CodeNotLeader), refused(spec.CodeAccessDenied)}, 2, true, false},
	} {
		asked := 0
		now := time.Unix(1_800_000_000, 0)
		dial := func(context.Context) (Conn, error) { return &answering{errs: &c.errs, asked: &asked}, nil }
		call := &Call{Ctx: t.Context(), Env: &Env{
			Now:   func() time.Time { return now },
			Pause: func(_ context.Context, d time.Duration) { now = now.Add(d) },
			Dial:  dial,
		}}
		request := c.request()
		err := call.RPC(MethodSubmit, request, &apiv1.SubmitReply{})
		if (err != nil) != c.failed || asked != c.asked {
			t.Errorf("%s: error %v after %d calls, want %d", name, err, asked, c.asked)
		}
		if submission, is := request.(*apiv1.SubmitRequest); is && submission.GetAgain() != c.again {
			t.Errorf("%s: the submission says that it is repeated: %v", name, submission.GetAgain())
		}
	}
}

// TestQueriesGoThroughAnElection: of several requests that are on their way together, those that are
// not answered are made again at the next controller.
func TestQueriesGoThroughAnElection(t *testing.T) {
	over := rpcstatus.Convert(spec.Refuse(spec.CodeNotLeader, ""), rpcstatus.Numbers())
	errs, asked := []error{nil, over, over}, 0
	call := &Call{Ctx: t.Context(), Env: &Env{
		Now:   time.Now,
		Pause: func(context.Context, time.Duration) {},
		Dial:  func(context.Context) (Conn, error) { return &answering{errs: &errs, asked: &asked}, nil },
	}}
	one := Request{Method: MethodListNodes, Req: &apiv1.ListNodesRequest{}, Resp: &apiv1.ListNodesReply{}}
	if err := call.RPCAll(one, one, one); err != nil || asked != 5 {
		t.Errorf("error %v after %d calls, want 5", err, asked)
	}
}
