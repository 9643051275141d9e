package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

// recordOf writes the events that describe a job and its start, for the node that runs its
// script: they are all that a ledger which has lost them needs to know the job again.
func (h *hub) recordOf(cluster *state.State, job *state.Job) ([]byte, error) {
	submitted := &event.JobSubmitted{
		UID:      job.UID,
		ID:       job.ID,
		Spec:     job.Spec,
		Req:      job.Req,
		Assoc:    job.Assoc,
		Eligible: job.Eligible,
		Het:      job.Het,
	}
	started := &event.JobStarted{
		UID:      job.UID,
		Attempt:  job.Attempt,
		Alloc:    job.StartedWith(),
		Limit:    job.Limit,
		Backfill: job.Backfill,
		Priority: job.StartPrio,
	}
	data, err := h.c.deps.Codec.Encode([]event.Envelope{
		{Seq: job.StartSeq, At: job.Submitted, Actor: job.Submitter, Event: submitted},
		{Seq: job.StartSeq, At: job.Started, Event: started},
	})
	if err != nil {
		return nil, fmt.Errorf("describe job %d to its node: %w", job.ID, err)
	}
	return data, nil
}

// AdoptOrphans takes runs that the ledger does not know into it. Each becomes a job or stays
// what it is; the answer has those that did before the first that did not.
func (s *nodeCalls) AdoptOrphans(
	ctx context.Context,
	req *apiv1.AdoptOrphansRequest,
) (*apiv1.AdoptOrphansReply, error) {
	actor, err := s.requireKeeper(ctx)
	if err != nil {
		return nil, err
	}
	names := req.GetRuns()
	if len(names) == 0 {
		return nil, spec.Refuse(
			spec.CodeBadRequest,
			"name the runs to adopt, as muster runs prints them",
		)
	}
	chosen, err := s.findOrphans(names)
	if err != nil {
		return nil, err
	}
	out := &apiv1.AdoptOrphansReply{}
	done := map[attemptKey]bool{}
	for _, o := range chosen {
		key := attemptOf(o.run.GetRun())
		if done[key] { // a further node of the same attempt
			continue
		}
		done[key] = true
		adopted, err := s.C.adoptRun(ctx, o.run.GetRun(), actor)
		if err != nil {
			name := orphanName(o.run.GetRun())
			if len(out.Runs) > 0 {
				name += " (those before it were adopted)"
			}
			return nil, prefixRefusal(name, err)
		}
		out.Runs = append(out.Runs, adopted...)
	}
	return out, nil
}

// findOrphans gives the orphans of some names, on all their nodes; each name must be of one.
func (s *nodeCalls) findOrphans(names []string) ([]orphan, error) {
	var chosen []orphan
	found := map[string]bool{}
	for _, o := range s.C.orphans.listOrphans() {
		name := orphanName(o.run.GetRun())
		if slices.Contains(names, name) {
			chosen = append(chosen, o)
			found[name] = true
		}
	}
	var missing []string
	for _, name := range names {
		if !found[name] {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return nil, spec.Refuse(
			spec.CodeBadRequest,
			fmt.Sprintf(
				"not a run of a lost history: %s (muster runs lists them)",
				strings.Join(missing, ", "),
			),
		)
	}
	return chosen, nil
}

// prefixRefusal names the run that a refusal is about.
func prefixRefusal(name string, err error) error {
	var refused *spec.Error
	if !errors.As(err, &refused) {
		return fmt.Errorf("run %s: %w", name, err)
	}
	return spec.Refuse(refused.Kind, "run "+name+": "+refused.Detail)
}

// adoptRun makes a job of an attempt of a lost history.
func (c *Controller) adoptRun(
	ctx context.Context,
	run *apiv1.RunKey,
	actor event.Actor,
) ([]*apiv1.OrphanRun, error) {
	parts, kept := c.orphans.partsOf(attemptOf(run))
	command, err := c.describeRun(run, parts, kept)
	if err != nil {
		return nil, err
	}
	rep := c.writer.commitCommand(ctx, &request{cmd: *command, actor: actor})
	if rep.err != nil {
		return nil, rep.err
	}
	var out []*apiv1.OrphanRun
	for _, node := range slices.Sorted(maps.Keys(parts)) {
		info := orphanInfo(orphan{node, parts[node]})
		info.JobId = uint32(rep.res.ID)
		out = append(out, info)
		c.orphanGone(ctx, node, run, "a run of a lost history was adopted")
	}
	return out, nil
}

// describeRun makes the command that adopts a run, from what its nodes kept. What they say is
// believed only as far as this cluster signed it: user, script, environment and allocation.
func (c *Controller) describeRun(
	run *apiv1.RunKey,
	parts map[string]*apiv1.HeldRun,
	kept map[string]*apiv1.KeptOrder,
) (*scheduler.AdoptRun, error) {
	refuse := func(format string, args ...any) (*scheduler.AdoptRun, error) {
		return nil, spec.Refuse(spec.CodeBadRequest, fmt.Sprintf(format, args...))
	}
	var order *apiv1.Launch
	var next int32
	for _, node := range slices.Sorted(maps.Keys(kept)) {
		next = max(next, kept[node].GetNextStep())
		if len(kept[node].GetOrder().GetRecord()) > 0 {
			order = kept[node].GetOrder()
		}
	}
	if order == nil {
		return refuse("the run cannot be adopted: no connected node has kept its order, because " +
			"the node of its script is away, an older release started it, or it has no script")
	}
	events, err := c.deps.Codec.Decode(order.GetRecord())
	if err != nil || len(events) != 2 {
		return refuse("the run cannot be adopted: its order cannot be read: %v", err)
	}
	submitted, isJob := events[0].Event.(*event.JobSubmitted)
	started, isStart := events[1].Event.(*event.JobStarted)
	if !isJob || !isStart || submitted.Spec == nil || started.Alloc == nil {
		return refuse("the run cannot be adopted: its order does not describe a job")
	}
	var missing []string
	for _, node := range started.Alloc.NodeNames() {
		conn := c.hub.connOf(node)
		if parts[node] == nil || conn == nil || !conn.adopts {
			missing = append(missing, node)
		}
	}
	if len(missing) > 0 {
		return refuse("the run cannot be adopted: its part on %s is not known; adopt it when the "+
			"agents there are connected and of this release", hostlist.Fold(missing))
	}
	if why := c.misses(run, order, submitted, started, parts); why != "" {
		return refuse("the run cannot be adopted: %s; end it with muster runs kill", why)
	}
	first := parts[started.Alloc.Nodes[0].Name]
	return &scheduler.AdoptRun{
		Submitted: *submitted,
		Started:   *started,
		Job: event.AdoptedJob{
			At:       events[0].At,
			By:       &events[0].Actor,
			Restarts: order.GetJob().GetRestarts(),
		},
		Run: event.AdoptedRun{
			Epoch:    run.GetEpoch(),
			Seq:      first.GetSeq(),
			At:       events[1].At,
			NextStep: spec.StepID(next),
		},
		Array: spec.JobID(order.GetJob().GetArrayJobId()),
		Task:  order.GetJob().GetArrayTask(),
	}, nil
}

// misses says why an order is not that of a run; empty if it is.
func (c *Controller) misses(
	run *apiv1.RunKey,
	order *apiv1.Launch,
	submitted *event.JobSubmitted,
	started *event.JobStarted,
	parts map[string]*apiv1.HeldRun,
) string {
	claims, err := c.deps.Access.VerifyOld(order.GetCredential())
	if err != nil {
		return "this cluster's keys did not sign its order (" + err.Error() +
			"): restore credential.keys from a backup"
	}
	job := &state.Job{
		UID:     started.UID,
		ID:      submitted.ID,
		Spec:    submitted.Spec,
		Attempt: started.Attempt,
		Alloc:   started.Alloc,
	}
	hash := launchHash(job)
	switch {
	case claims.Cluster != c.View().State.UUID:
		return "its order is of another cluster"
	case claims.Run != hash, claims.UID != job.Spec.UID, claims.GID != job.Spec.GID:
		return "its order is not what was signed"
	case uint64(claims.Job) != run.GetJobUid(), claims.Attempt != run.GetAttempt(),
		claims.Epoch != run.GetEpoch(), claims.Job != started.UID, claims.Job != submitted.UID,
		claims.Attempt != started.Attempt:
		return "its order is of another run"
	}
	for _, node := range started.Alloc.NodeNames() {
		if here := parts[node].GetLaunch(); !slices.Equal(here, hash[:]) {
			return "what runs on " + node + " is not what was signed"
		}
	}
	return ""
}
