package daemon

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/view"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// orphans are the runs that nodes have and that the ledger has never heard of,
// because it was restored from an older copy. They are found anew whenever an
// agent registers, so that nothing of them is kept in the ledger.
type orphans struct {
	mu     sync.Mutex
	byNode map[string]map[attemptKey]*apiv1.HeldRun
	// kept is what a node said of its orphans beyond that, where it kept it.
	kept map[string]map[attemptKey]*apiv1.KeptOrder
}

// attemptKey names an attempt on a node: its steps belong to it.
type attemptKey struct {
	uid, epoch uint64
	attempt    uint32
}

func attemptOf(key *apiv1.RunKey) attemptKey {
	return attemptKey{uid: key.GetJobUid(), epoch: key.GetEpoch(), attempt: key.GetAttempt()}
}

func newOrphans() *orphans {
	return &orphans{
		byNode: map[string]map[attemptKey]*apiv1.HeldRun{},
		kept:   map[string]map[attemptKey]*apiv1.KeptOrder{},
	}
}

// replaceOrphans notes all orphans of a node.
func (o *orphans) replaceOrphans(node string, list []*apiv1.HeldRun) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.byNode, node)
	delete(o.kept, node)
	for _, run := range list {
		if o.byNode[node] == nil {
			o.byNode[node] = map[attemptKey]*apiv1.HeldRun{}
		}
		o.byNode[node][attemptOf(run.GetRun())] = run
	}
}

// removeOrphan forgets an orphan that has ended. It tells how many the node still has,
// and whether this was one.
func (o *orphans) removeOrphan(node string, key attemptKey) (left int, was bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, was = o.byNode[node][key]
	delete(o.byNode[node], key)
	delete(o.kept[node], key)
	return len(o.byNode[node]), was
}

// noteKept notes what a node kept of its orphans.
func (o *orphans) noteKept(node string, runs []*apiv1.KeptOrder) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, run := range runs {
		key := attemptOf(run.GetRun())
		if o.byNode[node][key] == nil {
			continue
		}
		if o.kept[node] == nil {
			o.kept[node] = map[attemptKey]*apiv1.KeptOrder{}
		}
		o.kept[node][key] = run
	}
}

// partsOf gives what nodes have of one attempt, and what they kept of it, by node.
func (o *orphans) partsOf(
	key attemptKey,
) (parts map[string]*apiv1.HeldRun, kept map[string]*apiv1.KeptOrder) {
	o.mu.Lock()
	defer o.mu.Unlock()
	parts, kept = map[string]*apiv1.HeldRun{}, map[string]*apiv1.KeptOrder{}
	for node, runs := range o.byNode {
		if run := runs[key]; run != nil {
			parts[node] = run
		}
		if run := o.kept[node][key]; run != nil {
			kept[node] = run
		}
	}
	return parts, kept
}

// orphan is one run with the node that has it.
type orphan struct {
	node string
	run  *apiv1.HeldRun
}

// countOrphans is how many orphans there are.
func (o *orphans) countOrphans() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	for _, runs := range o.byNode {
		n += len(runs)
	}
	return n
}

// listOrphans gives all orphans by node and job.
func (o *orphans) listOrphans() []orphan {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []orphan
	for node, runs := range o.byNode {
		for _, run := range runs {
			out = append(out, orphan{node, run})
		}
	}
	slices.SortFunc(out, func(a, b orphan) int {
		return cmp.Or(
			cmp.Compare(a.node, b.node),
			cmp.Compare(a.run.GetJobId(), b.run.GetJobId()),
			cmp.Compare(
				a.run.GetRun().GetJobUid(),
				b.run.GetRun().GetJobUid(),
			),
			cmp.Compare(a.run.GetRun().GetAttempt(), b.run.GetRun().GetAttempt()),
		)
	})
	return out
}

// publishOrphans shows in the view how many there are.
func (c *Controller) publishOrphans() {
	// Counted where views have an order: of two counts the later one stays.
	c.publishView(func(v *view.View) { v.Orphans = c.orphans.countOrphans() })
}

// unknownRuns picks the attempts of a registration that belong to no history of
// this ledger. A run without an epoch was started by an older release, which the
// agent's own policy for orphans covers.
func unknownRuns(cluster *state.State, held []*apiv1.HeldRun) []*apiv1.HeldRun {
	var runs []*apiv1.HeldRun
	seen := map[attemptKey]bool{}
	for _, run := range held {
		key := attemptOf(run.GetRun())
		if key.epoch == 0 || seen[key] {
			continue
		}
		if job := cluster.Job(spec.JobUID(key.uid)); job != nil && job.Attempt == key.attempt &&
			job.Epoch == key.epoch {
			continue
		}
		if cluster.HasSeen(key.epoch, run.GetSeq()) {
			continue // known, and over
		}
		seen[key] = true
		runs = append(runs, run)
	}
	return runs
}

// compareRuns compares what an agent has seen with this ledger before its node is
// taken into service. Where history was lost it says so, raises the job numbers
// above all that the agent has seen, and drains a node that has runs of the lost
// history. It tells whether history was lost. A controller that only believes to
// lead comes no further: what it would record needs a majority.
func (c *Controller) compareRuns(
	ctx context.Context,
	reg *apiv1.Registration,
	actor event.Actor,
) (unknown []*apiv1.HeldRun, lost bool, err error) {
	cluster := c.View().State
	node := reg.GetNode()
	unknown = unknownRuns(cluster, reg.GetHeld())
	c.orphans.replaceOrphans(node, unknown)
	c.publishOrphans()
	seen := event.Position{Epoch: reg.GetSeen().GetEpoch(), Seq: reg.GetSeen().GetSeq(),
		NextUID: spec.JobUID(
			reg.GetSeen().GetNextJobUid(),
		), NextID: spec.JobID(reg.GetSeen().GetNextJobId())}
	lost = reg.GetSeen() != nil && !cluster.HasSeen(seen.Epoch, seen.Seq)
	for _, run := range unknown {
		if !lost { // the agent's memory of the position is gone, its runs are not
			seen.Epoch = run.GetRun().GetEpoch()
			seen.Seq = run.GetSeq()
			lost = true
		}
		seen.NextUID = max(seen.NextUID, spec.JobUID(run.GetRun().GetJobUid())+1)
		seen.NextID = max(seen.NextID, spec.JobID(run.GetJobId())+1)
	}
	if lost {
		if err := c.noteLost(ctx, "node "+node, seen, actor); err != nil {
			return nil, false, err
		}
	}
	return unknown, lost, c.holdOrphans(ctx, node, len(unknown))
}

// NoteLost records that a witness which is no agent (the archive, or the
// accounting store) has seen a position that this ledger does not hold.
func (c *Controller) NoteLost(ctx context.Context, witness string, seen event.Position) error {
	return c.noteLost(ctx, witness, seen, event.Actor{Kind: event.ActorSystem})
}

// noteLost records what a witness has seen, unless this ledger holds it. Job
// numbers go on above those that were seen.
func (c *Controller) noteLost(
	ctx context.Context,
	witness string,
	seen event.Position,
	actor event.Actor,
) error {
	c.deps.Logger.Error(
		"this ledger has lost history: a witness has seen more of it than is here; job numbers go on above what it saw",
		"witness",
		witness,
		"epoch",
		fmt.Sprintf("%016x", seen.Epoch),
		"seq",
		seen.Seq,
		"head",
		c.View().State.Seq,
	)
	return c.writer.commitCommand(
		ctx,
		&request{cmd: scheduler.NoteLostHistory{Witness: witness, Seen: seen}, actor: actor},
	).err
}

// holdOrphans keeps a node out of service while it has orphans.
func (c *Controller) holdOrphans(ctx context.Context, node string, runs int) error {
	r := &request{
		cmd:   scheduler.HoldOrphans{Node: node, Runs: runs},
		actor: event.Actor{Kind: event.ActorSystem},
	}
	return c.writer.commitCommand(ctx, r).err
}

// recallJobs gives jobs back to the queue that were started on a node while nobody
// knew that it has runs of a lost history, which hold a part of it. Only those are
// recalled that the node can never have heard of: they were started in this
// epoch, and the node was not connected in it.
func (c *Controller) recallJobs(ctx context.Context, node string) {
	cluster := c.View().State
	n := cluster.Node(node)
	if n == nil {
		return
	}
	for _, uid := range n.Jobs {
		job := cluster.Job(uid)
		if job == nil || job.Alloc == nil || job.Spec.Runner() != spec.ByAgents {
			continue
		}
		if job.Epoch != cluster.CurrentEpoch() || !job.GoesOn() {
			continue
		}
		failed := &scheduler.LaunchFailed{Text: "node " + node +
			" has runs of a lost history (muster runs)", Again: true}
		report := scheduler.Report{
			Node:         node,
			Run:          scheduler.Run{UID: uid, Attempt: job.Attempt},
			Epoch:        job.Epoch,
			LaunchFailed: failed,
		}
		if rep := c.writer.commitCommand(ctx, &request{cmd: report, actor: event.Actor{Kind: event.ActorSystem}}); rep.err != nil &&
			ctx.Err() == nil {
			c.deps.Logger.Warn(
				"a job could not be given back to the queue",
				aboutJob(cluster, job),
				"node",
				node,
				"error",
				rep.err,
			)
		}
	}
}

// orphanEnded notes that a node has nothing more of an orphan.
func (c *Controller) orphanEnded(ctx context.Context, node string, key *apiv1.RunKey) {
	c.orphanGone(ctx, node, key, "a run of a lost history has ended")
}

// orphanGone notes that a node has one orphan less, and why; without any it is back in service.
func (c *Controller) orphanGone(
	ctx context.Context,
	node string,
	key *apiv1.RunKey,
	what string,
) {
	left, was := c.orphans.removeOrphan(node, attemptOf(key))
	if !was {
		return
	}
	c.publishOrphans()
	c.deps.Logger.Info(
		what,
		"node",
		node,
		aboutLostRun(key, 0, ""),
		"left",
		left,
	)
	if left == 0 {
		if err := c.holdOrphans(ctx, node, 0); err != nil && ctx.Err() == nil {
			c.deps.Logger.Warn(
				"a node without orphans could not be put back into service",
				"node",
				node,
				"error",
				err,
			)
		}
	}
}
