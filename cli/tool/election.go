package tool

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

// How long a command on a controller's own host waits for another controller to lead, and how
// often it tries. The controller that it asked passes calls on as soon as it stands by.
const (
	electionPatience = 20 * time.Second
	electionPause    = 100 * time.Millisecond
)

// callThroughElection makes a call, and repeats it where the controller that was asked has lost the
// lead before it carried the call out. Between a host and a controller on another the agent does that.
func (c *Call) callThroughElection(
	ctx context.Context, conn Conn, method string, request, resp proto.Message,
) error {
	until := c.Now().Add(electionPatience)
	for {
		err := c.Patiently(ctx, func() error { return conn.Call(ctx, method, request, resp) })
		if err == nil || !c.mayDialAgain(conn) || !prepareRepeat(request, err) {
			return err
		}
		if ctx.Err() != nil || c.Now().After(until) {
			return err
		}
		c.Pause(ctx, electionPause)
		fresh, failed := c.Dial(c.Ctx)
		if failed != nil {
			return err // it is gone, and did not become a standby
		}
		_ = conn.Close() // what was asked over it is answered
		c.Conn = fresh
		conn = fresh
	}
}

// mayDialAgain tells whether a connection is to a controller, and this call's own. A command that
// runs in a controller for somebody else ends with its lead, and is passed on as a whole.
func (c *Call) mayDialAgain(conn Conn) bool {
	return conn == c.Conn && !c.lent && c.API == nil && c.Relay == nil
}

// prepareRepeat tells whether a call that failed may be made again. One that a controller refused
// because it does not lead was not carried out. Of others nobody knows: a submission with a
// number is marked as a repetition, so that the ledger recognises it.
func prepareRepeat(request proto.Message, failed error) bool {
	refusal := ExplainError(failed)
	if refusal.Code == spec.CodeNotLeader {
		return true
	}
	if refusal.Code != spec.CodeOutcomeUnknown && !refusal.Lost {
		return false
	}
	submission, is := request.(*apiv1.SubmitRequest)
	if !is || submission.GetRequest() == 0 {
		return false
	}
	submission.Again = true
	return true
}
