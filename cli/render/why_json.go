package render

import (
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
	"github.com/musterhpc/muster/spec"
)

func ReasonTree(r *apiv1.Reason) tree.Object {
	return tree.Object{
		{Key: "code", Value: r.GetCode()},
		{Key: "tres", Value: r.GetTres()},
		{Key: "limit", Value: r.GetLimit()},
		{Key: "used", Value: r.GetUsed()},
		{
			Key:   "asked",
			Value: r.GetAsked(),
		},
		{Key: "subject", Value: r.GetSubject()},
		{Key: "until", Value: r.GetUntil() / tool.Second},
		{Key: "detail", Value: r.GetDetail()},
	}
}

// WhyTree is an explanation as data. Times are seconds since 1970, 0 = unknown.
func WhyTree(rep *apiv1.WhyReply) tree.Object {
	job := rep.GetJob()
	nodes := tree.List{}
	blockers := tree.List{}
	advice := tree.List{}
	history := tree.List{}
	for _, n := range rep.GetNodes() {
		nodes = append(
			nodes,
			tree.Object{
				{Key: "nodes", Value: n.GetNodes()},
				{Key: "count", Value: n.GetCount()},
				{Key: "why", Value: n.GetWhy()},
				{Key: "free", Value: n.GetFree()},
				{Key: "need", Value: n.GetNeed()},
			},
		)
	}
	for _, b := range rep.GetBlockers() {
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
	for _, a := range rep.GetAdvice() {
		advice = append(
			advice,
			tree.Object{
				{Key: "change", Value: a.GetChange()},
				{Key: "start", Value: a.GetStart() / tool.Second},
				{Key: "gain_seconds", Value: a.GetGain() / tool.Second},
			},
		)
	}
	for _, h := range rep.GetHistory() {
		history = append(
			history,
			tree.Object{
				{Key: "reason", Value: ReasonTree(h.GetReason())},
				{Key: "from", Value: h.GetFrom() / tool.Second},
				{Key: "to", Value: h.GetTo() / tool.Second},
				{Key: "restarts", Value: int64(h.GetRestarts())},
			},
		)
	}
	view := &WhyView{}
	view.Now = rep.GetNow()
	return tree.Object{
		{
			Key:   "job_id",
			Value: job.GetJobId(),
		}, {Key: "name", Value: job.GetSpec().GetName()}, {Key: "user", Value: job.GetUser()}, {Key: "state", Value: spec.JobState(job.GetState()).String()},
		{
			Key:   "partition",
			Value: job.GetPartition(),
		}, {Key: "submitted", Value: job.GetSubmit() / tool.Second}, {Key: "reason", Value: ReasonTree(rep.GetReason())},
		{Key: "explanation", Value: strings.Join(view.Because(rep), " ")},
		{
			Key:   "planned_start",
			Value: rep.GetPlannedStart() / tool.Second,
		}, {Key: "planned_nodes", Value: rep.GetPlannedNodes()}, {Key: "planned_is_estimate", Value: rep.GetPlannedEstimate()},
		{
			Key:   "ahead",
			Value: int64(rep.GetAhead()),
		}, {Key: "blockers", Value: blockers}, {Key: "nodes", Value: nodes}, {Key: "advice", Value: advice}, {Key: "history", Value: history},
		{Key: "guaranteed", Value: tree.Strings(rep.GetGuarantee())},
		{Key: "promised_start", Value: rep.GetPromisedStart() / tool.Second},
		{Key: "early_start", Value: rep.GetEarlyStart() / tool.Second},
		{Key: "promises", Value: promisesTree(rep.GetPromises())},
		{Key: "prediction", Value: predictionTree(rep.GetPrediction())},
		{Key: "now", Value: rep.GetNow() / tool.Second}, {Key: "seq", Value: rep.GetSeq()},
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
