package daemon

import (
	"slices"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// prologs are the nodes of attempts on which the prolog is over, where a batch script
// waits for all of them. The agents know it: what this controller forgets they tell
// again, when it orders the attempt again.
type prologs struct {
	attempts map[spec.JobUID]preparedNodes // the hub's turn guards it
}

// preparedNodes are those of one attempt.
type preparedNodes struct {
	attempt uint32
	nodes   map[string]bool
}

// noteProlog notes that the prolog of an attempt is over on a node, and tells whether that is new.
func (p *prologs) noteProlog(job *state.Job, node string) bool {
	if p.hasProlog(job, node) {
		return false
	}
	known := p.attempts[job.UID]
	if known.attempt != job.Attempt {
		known = preparedNodes{attempt: job.Attempt, nodes: map[string]bool{}}
	}
	known.nodes[node] = true
	if p.attempts == nil {
		p.attempts = map[spec.JobUID]preparedNodes{}
	}
	p.attempts[job.UID] = known
	return true
}

// hasProlog tells whether the prolog of an attempt is known to be over on a node.
func (p *prologs) hasProlog(job *state.Job, node string) bool {
	known := p.attempts[job.UID]
	return known.attempt == job.Attempt && known.nodes[node]
}

// forgetJob forgets the attempts of a job.
func (p *prologs) forgetJob(uid spec.JobUID) { delete(p.attempts, uid) }

// defersBatch tells whether the script of a job waits for the prologs of all nodes.
func defersBatch(cluster *state.State, job *state.Job) bool {
	scripts := cluster.Config.Ctl
	return scripts != nil && scripts.DeferBatch && !job.Spec.Shell && len(job.Alloc.Nodes) > 1
}

// isPrepared tells whether the prolog of a job is over on all nodes that it holds. An
// agent of an older release does not say so, and is not waited for.
func (h *hub) isPrepared(job *state.Job) bool {
	for i := range job.Alloc.Nodes {
		name := job.Alloc.Nodes[i].Name
		if job.Done.Has(i) || slices.Contains(job.Leaving, name) || h.prologs.hasProlog(job, name) {
			continue
		}
		conn := h.connOf(name)
		if conn == nil || conn.prepares {
			return false
		}
	}
	return true
}

// takePrepared takes what an agent says of a prolog. With the last one the script is
// ordered again, to begin. That order makes the script's agent say it once more, and what is known
// already orders nothing.
func (h *hub) takePrepared(node string, run *apiv1.RunKey) {
	h.turn.Lock()
	defer h.turn.Unlock()
	cluster := h.c.View().State
	job := cluster.Job(spec.JobUID(run.GetJobUid()))
	if job == nil || job.Attempt != run.GetAttempt() || job.Alloc == nil || !job.GoesOn() {
		return
	}
	isNew := h.prologs.noteProlog(job, node)
	if isNew && h.isPrepared(job) {
		h.orderLaunch(cluster, job.UID, job.Alloc.Nodes[0].Name)
	}
}
