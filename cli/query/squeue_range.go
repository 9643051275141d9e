package query

import (
	"fmt"
	"slices"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
)

// maxRanged bounds the jobs whose planned starts get a range, because the controller plans
// anew for each of them.
const maxRanged = 50

// rangeFields are columns of -O that Slurm does not have, and that ALL leaves out: parsers of
// its layout see no others than before.
func rangeFields() []jobField {
	return []jobField{
		{"", "EarlyStart", "EARLY_START", func(view *render.JobView, row render.JobRow) string {
			return view.TimeOr(view.Ranges[row.GetUid()].GetEarlyStart(), render.NotAvailable)
		}},
		{"", "PromisesKept", "PROMISES_KEPT", func(view *render.JobView, row render.JobRow) string {
			promises := view.Ranges[row.GetUid()].GetPromises()
			all := promises.GetKept() + promises.GetBroken()
			if all == 0 {
				return render.NotAvailable
			}
			return fmt.Sprintf("%d/%d", promises.GetKept(), all)
		}},
	}
}

// showsRanges tells whether the starts of jobs are wanted as ranges.
func (q *jobQuery) showsRanges() bool {
	own := rangeFields()
	for _, column := range q.columns {
		if slices.ContainsFunc(own, func(field jobField) bool { return field.name == column.Field }) {
			return true
		}
	}
	return false
}

// readRanges asks why the first of the jobs that have a planned start wait. A job that is gone
// since has no range.
func readRanges(call *tool.Call, rows []render.JobRow) (map[uint64]*apiv1.WhyReply, error) {
	out := map[uint64]*apiv1.WhyReply{}
	for _, row := range rows {
		if len(out) == maxRanged {
			break
		}
		if !row.Pending() || row.GetPlannedStart() == 0 || out[row.GetUid()] != nil {
			continue
		}
		id := tool.Itoa(row.GetJobId())
		if row.GetArrayJobId() != 0 {
			id = tool.Itoa(row.GetArrayJobId())
		}
		var reply apiv1.WhyReply
		if err := call.RPC(tool.MethodWhy, &apiv1.WhyRequest{Job: id}, &reply); err != nil {
			if tool.ExplainError(err).Code == 0 {
				return nil, err
			}
			continue
		}
		out[row.GetUid()] = &reply
	}
	return out, nil
}
