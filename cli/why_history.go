package cli

import (
	"fmt"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

// askWhy asks the controller why a job waits and accounting for the reasons it
// had before; of a job that the controller has forgotten accounting tells
// alone. missing says why there is no history, or not all of it.
func (c *call) askWhy() (rep *apiv1.WhyReply, missing string, err error) {
	rep = &apiv1.WhyReply{}
	err = c.ask(methodWhy, &apiv1.WhyRequest{Job: c.args[0]}, rep)
	forgotten := err != nil && explainError(err).code == spec.CodeInvalidJobID
	if err != nil && !forgotten {
		return nil, "", err
	}
	var past apiv1.ReasonsReply
	if aerr := c.ask(methodAcctReasons, &apiv1.ReasonsQuery{Job: c.args[0], MinSeq: rep.GetSeq()}, &past); aerr != nil {
		r := explainError(aerr)
		return rep, or(r.detail, r.text), err
	}
	switch {
	case forgotten && past.GetRun() == nil:
		return nil, "", err
	case forgotten:
		rep = &apiv1.WhyReply{Job: pastJob(past.GetRun()), Now: past.GetNow(), Seq: past.GetSeq()}
	case past.GetBehind() > 0:
		missing = fmt.Sprintf("the accounting store is %d events behind", past.GetBehind())
	}
	rep.History = past.GetPeriods()
	return rep, missing, nil
}

// pastJob is what an explanation needs of a job, out of its accounting row.
func pastJob(r *apiv1.AcctRow) *apiv1.JobInfo {
	j := &apiv1.JobInfo{Uid: r.GetUid(), JobId: r.GetJobId(), ArrayJobId: r.GetArrayJobId(), ArrayTask: r.GetArrayTask(), User: r.GetUser(), UserId: r.GetUserId(),
		Spec: &apiv1.JobSpec{Name: r.GetName()}, Partition: r.GetPartition(), Submit: r.GetSubmit(), Start: r.GetStart(), End: r.GetEnd(),
		Nodes: r.GetNodeList(), ExitCode: r.GetExitCode(), ExitSignal: r.GetExitSignal(), TimeLimit: r.GetTimeLimit()}
	if s, ok := spec.ParseJobState(r.GetState()); ok {
		j.State = uint32(s)
	}
	return j
}

// historyMost is how many spans are printed for people; --json has them all.
const historyMost = 20

// historyLines is a table of the reasons so far. Neighbours that differ only
// in their numbers are one line; the moment before the first look at a job is
// none.
func (v *whyView) historyLines(history []*apiv1.ReasonPeriod) []string {
	var table [][]string
	var last *apiv1.ReasonPeriod
	var from int64
	for _, h := range history {
		to := h.GetTo()
		if to == 0 {
			to = v.now
		}
		code := or(h.GetReason().GetCode(), "None")
		if code == "None" && to-h.GetFrom() < second {
			continue
		}
		switch n := h.GetRestarts(); {
		case n == 1:
			code += " (requeued)"
		case n > 1:
			code += fmt.Sprintf(" (requeued %d times)", n)
		}
		if last != nil && last.GetTo() == h.GetFrom() && table[len(table)-1][2] == code {
			table[len(table)-1][1] = span(to - from)
		} else {
			from = h.GetFrom()
			table = append(table, []string{tableRow + v.time(from), span(to - from), code})
		}
		last = h
	}
	if more := len(table) - historyMost; more > 0 {
		return append([]string{fmt.Sprintf("%d changes before these (--json prints all)", more)}, splitTable(table[more:])...)
	}
	return splitTable(table)
}
