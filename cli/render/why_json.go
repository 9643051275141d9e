package render

import (
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
	"github.com/musterhpc/muster/spec"
)

func ReasonTree(reason *apiv1.Reason) tree.Object {
	return tree.Object{
		{Key: "code", Value: reason.GetCode()},
		{Key: "tres", Value: reason.GetTres()},
		{Key: "limit", Value: reason.GetLimit()},
		{Key: "used", Value: reason.GetUsed()},
		{
			Key:   "asked",
			Value: reason.GetAsked(),
		},
		{Key: "subject", Value: reason.GetSubject()},
		{Key: "until", Value: reason.GetUntil() / tool.Second},
		{Key: "detail", Value: reason.GetDetail()},
	}
}

// WhyTree is an explanation as data. Times are seconds since 1970, 0 = unknown.
func WhyTree(reply *apiv1.WhyReply) tree.Object {
	job := reply.GetJob()
	nodes := tree.List{}
	blockers := tree.List{}
	advice := tree.List{}
	history := tree.List{}
	for _, verdict := range reply.GetNodes() {
		nodes = append(
			nodes,
			tree.Object{
				{Key: "nodes", Value: verdict.GetNodes()},
				{Key: "count", Value: verdict.GetCount()},
				{Key: "why", Value: verdict.GetWhy()},
				{Key: "free", Value: verdict.GetFree()},
				{Key: "need", Value: verdict.GetNeed()},
			},
		)
	}
	for _, b := range reply.GetBlockers() {
		blockers = append(
			blockers,
			tree.Object{
				{Key: "job_id", Value: b.GetJobId()},
				{Key: "name", Value: b.GetSpec().GetName()},
				{Key: "user", Value: b.GetUser()},
				{
					Key:   "state",
					Value: spec.JobState(b.GetState()).String(),
				},
				{Key: "nodes", Value: b.GetNodes()},
				{Key: "tres", Value: TRESText(b.GetAllocTres())},
				{Key: "end", Value: b.GetEnd() / tool.Second},
			},
		)
	}
	for _, a := range reply.GetAdvice() {
		advice = append(
			advice,
			tree.Object{
				{Key: "change", Value: a.GetChange()},
				{Key: "start", Value: a.GetStart() / tool.Second},
				{Key: "gain_seconds", Value: a.GetGain() / tool.Second},
			},
		)
	}
	for _, period := range reply.GetHistory() {
		history = append(
			history,
			tree.Object{
				{Key: "reason", Value: ReasonTree(period.GetReason())},
				{Key: "from", Value: period.GetFrom() / tool.Second},
				{Key: "to", Value: period.GetTo() / tool.Second},
				{Key: "restarts", Value: int64(period.GetRestarts())},
			},
		)
	}
	view := &WhyView{}
	view.Now = reply.GetNow()
	return tree.Object{
		{
			Key:   "job_id",
			Value: job.GetJobId(),
		}, {Key: "name", Value: job.GetSpec().GetName()}, {Key: "user", Value: job.GetUser()}, {Key: "state", Value: spec.JobState(job.GetState()).String()},
		{
			Key:   "partition",
			Value: job.GetPartition(),
		}, {Key: "submitted", Value: job.GetSubmit() / tool.Second},
		{Key: "reason", Value: ReasonTree(reply.GetReason())},
		{Key: "explanation", Value: strings.Join(view.Because(reply), " ")},
		{
			Key:   "planned_start",
			Value: reply.GetPlannedStart() / tool.Second,
		}, {Key: "planned_nodes", Value: reply.GetPlannedNodes()},
		{Key: "planned_is_estimate", Value: reply.GetPlannedEstimate()},
		{
			Key:   "ahead",
			Value: int64(reply.GetAhead()),
		}, {Key: "blockers", Value: blockers}, {Key: "nodes", Value: nodes}, {Key: "advice", Value: advice}, {Key: "history", Value: history},
		{Key: "guaranteed", Value: tree.Strings(reply.GetGuarantee())},
		{Key: "promised_start", Value: reply.GetPromisedStart() / tool.Second},
		{Key: "early_start", Value: reply.GetEarlyStart() / tool.Second},
		{Key: "promises", Value: promisesTree(reply.GetPromises())},
		{Key: "prediction", Value: predictionTree(reply.GetPrediction())},
		{Key: "now", Value: reply.GetNow() / tool.Second}, {Key: "seq", Value: reply.GetSeq()},
	}
}

// promisesTree is how the promised starts of the job's partition were kept; late is in seconds.
func promisesTree(promises *apiv1.PromisesKept) tree.Object {
	return tree.Object{
		{Key: "partition", Value: promises.GetPartition()},
		{Key: "kept", Value: promises.GetKept()},
		{Key: "broken", Value: promises.GetBroken()},
		{Key: "late", Value: promises.GetLate() / tool.Second},
	}
}

// predictionTree is how long the job will probably run, in seconds; runs is 0
// where nothing is known.
func predictionTree(prediction *apiv1.RunPrediction) tree.Object {
	return tree.Object{
		{Key: "length", Value: prediction.GetLength() / tool.Second},
		{Key: "shortest", Value: prediction.GetShortest() / tool.Second},
		{Key: "longest", Value: prediction.GetLongest() / tool.Second},
		{Key: "runs", Value: int64(prediction.GetRuns())},
		{Key: "similar", Value: prediction.GetSimilar()},
	}
}
