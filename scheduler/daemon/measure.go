package daemon

import (
	"cmp"
	"context"
	"maps"
	"slices"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/view"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

// Bounds of what one question about running jobs may cost.
const (
	measurePatience = 5 * spec.Second // for the slowest node
	maxMeasureJobs  = 1000            // jobs and array tasks of one question
	maxMeasureAsks  = 256             // questions that wait for one agent
	maxMeasuredPIDs = 4096            // that one node may name for one run
)

// queueMeasure queues a question; false when the agent has too many unread.
func (a *agentConn) queueMeasure(measure *apiv1.Measure) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.asks) >= maxMeasureAsks {
		return false
	}
	a.asks = append(a.asks, measure)
	a.wakeSender()
	return true
}

// measureAttempts asks nodes about attempts and waits for their answers. A node that
// is not in the result did not answer.
func (h *hub) measureAttempts(
	ctx context.Context,
	of map[string][]*apiv1.RunKey,
) map[string][]*apiv1.Measurement {
	out := map[string][]*apiv1.Measurement{}
	conns := map[string]*agentConn{}
	for node := range of {
		if conn := h.connOf(node); conn != nil {
			conns[node] = conn
		}
	}
	query, back := h.asks.beginQuestion(maps.Keys(conns), len(conns))
	defer h.asks.endQuestion(query)
	left := 0
	for node, conn := range conns {
		if conn.queueMeasure(&apiv1.Measure{Ask: query, Attempts: of[node]}) {
			left++
		}
	}
	late, stop := h.c.deps.Clock.After(measurePatience)
	defer stop()
	for ; left > 0; left-- {
		select {
		case a := <-back:
			out[a.node] = a.reply.GetRuns()
		case <-late:
			return out
		case <-ctx.Done():
			return out
		case <-h.c.stopping:
			return out
		}
	}
	return out
}

// StepUsage tells what running jobs have used so far. As in Slurm a job shows
// this only to those who may change it.
func (s *stepCalls) StepUsage(
	ctx context.Context,
	req *apiv1.StepUsageRequest,
) (*apiv1.StepUsageReply, error) {
	caller, _, err := s.knownCaller(ctx)
	if err != nil {
		return nil, err
	}
	snapshot := s.C.View()
	out := &apiv1.StepUsageReply{}
	of := map[string][]*apiv1.RunKey{}
	var asked []*state.Job // beside out.Jobs; nil = refused
	for _, expr := range req.GetJobs() {
		list, err := s.measurableJobs(snapshot, caller, expr)
		if err != nil {
			out.Jobs = append(out.Jobs, &apiv1.JobSteps{Job: expr, Error: wire.Error(err)})
			asked = append(asked, nil)
		}
		for _, job := range list {
			if len(asked) >= maxMeasureJobs {
				return nil, spec.Refuse(
					spec.CodeBadRequest,
					"one question is about at most 1000 jobs",
				)
			}
			out.Jobs = append(out.Jobs, jobSteps(expr, job))
			asked = append(asked, job)
			for i := range nodesOf(job) {
				if !job.Done.Has(i) {
					node := job.Alloc.Nodes[i].Name
					of[node] = append(of[node], runKey(job))
				}
			}
		}
	}
	answers := s.C.hub.measureAttempts(ctx, of)
	for i, job := range asked {
		if job != nil {
			fillSteps(out.Jobs[i], job, answers)
		}
	}
	out.Now = int64(s.C.deps.Clock.Now())
	return out, nil
}

// measurableJobs lists the jobs of an expression: those that run, or one that is
// known and does not.
func (s *stepCalls) measurableJobs(
	snapshot *view.View,
	caller Caller,
	expr string,
) ([]*state.Job, *spec.Error) {
	list, err := visibleTargets(snapshot.State, expr, s.visibleTo(caller))
	if err != nil {
		return nil, spec.Refuse(spec.CodeInvalidJobID, "")
	}
	var jobs, still []*state.Job
	for _, target := range list {
		job := snapshot.State.Job(target.UID)
		switch {
		case job == nil:
		case !s.mayChange(caller, job):
			return nil, spec.Refuse(spec.CodeAccessDenied, "")
		case job.State.Active():
			jobs = append(jobs, job)
		default:
			still = append(still, job)
		}
	}
	if len(jobs) == 0 && len(still) == 0 {
		return nil, spec.Refuse(spec.CodeInvalidJobID, "")
	}
	if len(jobs) == 0 {
		jobs = still[:1]
	}
	return jobs, nil
}

// nodesOf are the nodes on which something of a job may run.
func nodesOf(job *state.Job) []spec.NodeAlloc {
	if job.Alloc == nil || !job.State.Active() {
		return nil
	}
	return job.Alloc.Nodes
}

// jobSteps is a job before its nodes have answered.
func jobSteps(expr string, job *state.Job) *apiv1.JobSteps {
	steps := &apiv1.JobSteps{Job: expr, JobId: uint32(job.ID)}
	if nodes := nodesOf(job); len(nodes) > 0 {
		steps.Nodes, steps.Alloc = hostlist.Fold(job.Alloc.NodeNames()), wire.TRES(job.Alloc.TRES)
	}
	return steps
}

// fillSteps sorts what the nodes say by step. Only what was asked for is
// taken: an agent speaks for its own node and the job's attempt.
func fillSteps(out *apiv1.JobSteps, job *state.Job, answers map[string][]*apiv1.Measurement) {
	steps := map[int32]*apiv1.StepMeasured{}
	for i, allocation := range nodesOf(job) {
		node := allocation.Name
		runs, answered := answers[node]
		if !answered && !job.Done.Has(i) {
			out.Silent = append(out.Silent, node)
		}
		seen := map[int32]bool{}
		for _, measurement := range runs {
			key := measurement.GetRun()
			if key.GetJobUid() != uint64(job.UID) || key.GetAttempt() != job.Attempt ||
				seen[key.GetStep()] {
				continue
			}
			seen[key.GetStep()] = true
			step := steps[key.GetStep()]
			if step == nil {
				step = &apiv1.StepMeasured{
					Step:  key.GetStep(),
					Tasks: stepTasks(job, spec.StepID(key.GetStep())),
				}
				steps[key.GetStep()] = step
			}
			measurement.Node, measurement.Pids = node, measurement.GetPids()[:min(len(measurement.GetPids()), maxMeasuredPIDs)]
			step.Nodes = append(step.Nodes, measurement)
		}
	}
	for _, st := range steps {
		st.Tasks = max(st.Tasks, uint32(len(st.Nodes)))
		out.Steps = append(out.Steps, st)
	}
	slices.SortFunc(
		out.Steps,
		func(a, b *apiv1.StepMeasured) int { return cmp.Compare(a.Step, b.Step) },
	)
}

// stepTasks is how many tasks a step has; 0 = the ledger does not say.
func stepTasks(job *state.Job, step spec.StepID) uint32 {
	if step == spec.StepBatch {
		return 1
	}
	for i := range job.Steps {
		if job.Steps[i].ID == step {
			return job.Steps[i].Tasks
		}
	}
	return 0
}
