package query

import (
	"cmp"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/fetch"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

// askWhy asks the controller why a job waits and accounting for the reasons it
// had before; of a job that the controller has forgotten accounting tells
// alone. missing says why there is no history, or not all of it.
func askWhy(call *tool.Call) (reply *apiv1.WhyReply, missing string, err error) {
	reply = &apiv1.WhyReply{}
	err = call.RPC(tool.MethodWhy, &apiv1.WhyRequest{Job: call.Operands[0]}, reply)
	forgotten := err != nil && tool.ExplainError(err).Code == spec.CodeInvalidJobID
	if err != nil && !forgotten {
		return nil, "", err
	}
	var past apiv1.ReasonsReply
	if aerr := call.RPC(
		tool.MethodAcctReasons,
		&apiv1.ReasonsQuery{Job: call.Operands[0], MinSeq: reply.GetSeq()},
		&past,
	); aerr != nil {
		refusal := tool.ExplainError(aerr)
		return reply, cmp.Or(refusal.Detail, refusal.Text), err
	}
	switch {
	case forgotten && past.GetRun() == nil:
		return nil, "", err
	case forgotten:
		reply = &apiv1.WhyReply{
			Job: fetch.JobOfRow(past.GetRun()),
			Now: past.GetNow(),
			Seq: past.GetSeq(),
		}
	case past.GetBehind() > 0:
		missing = "the accounting store is " + format.Plural(past.GetBehind(), "event", "events") + " behind"
	}
	reply.History = past.GetPeriods()
	return reply, missing, nil
}
