package daemon

import (
	"cmp"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/spec"
)

// beginExtern begins the extern step of a job on this node. Nothing else of the job
// begins before it has: a login of its user finds it, and the prolog may run in it.
func (c *Core) beginExtern(job *run, of *plan.Job) {
	job.phase = containing
	runSpec := plan.Extern(of, &c.cfg.Node)
	runSpec.Launch = job.launch
	runSpec.Seq = job.seq
	if job.spec != nil {
		runSpec.Lease = job.spec.Lease
	}
	if r := c.runs[runSpec.Key]; r != nil {
		if r.phase == living && r.from != 0 {
			c.externBegan(r.key) // of an agent that ended before the job had begun
		}
		return
	}
	r := &run{
		key:    runSpec.Key,
		wanted: true,
		phase:  asked,
		since:  c.clock(),
		launch: job.launch,
		seq:    job.seq,
		user:   of.UID,
		facts: facts{
			ID:        of.ID,
			User:      of.User,
			Account:   of.Spec.Account,
			Partition: of.Partition,
			CPUs:      of.Here.CPUs.Count(),
			MemoryMiB: of.Here.Mem,
			Every:     job.facts.Every,
		},
		spec: &runSpec,
	}
	c.runs[runSpec.Key] = r
	c.fx.Launch = append(c.fx.Launch, runSpec)
}

// externBegan goes on with a job whose extern step has a process. That the shepherd has
// accepted it is not enough: nothing can be put into it before.
func (c *Core) externBegan(key plan.RunKey) {
	job := c.runs[jobKey(key)]
	if key.Step == plan.StepExtern && job != nil && job.phase == containing {
		c.showDisplay(job)
	}
}

// externOver takes the end of an extern step: the controller learns what it used with
// the node's part of the job. A job that waits for it cannot begin.
func (c *Core) externOver(r *run, ended *apiv1.RunEnded) {
	c.closeAccounts(r)
	delete(c.runs, r.key)
	c.fx.Jobs = true
	if r.exit != nil {
		c.fx.Forget = append(c.fx.Forget, r.key)
	}
	job := c.runs[jobKey(r.key)]
	if job == nil {
		return
	}
	used := spec.Usage{}
	if r.usage != nil {
		used = *r.usage
	}
	job.extern = &used
	if (job.phase == containing || job.phase == displaying) && job.term == nil {
		reason := cmp.Or(ended.GetDetail(), "it ended at once")
		c.refuseRun(
			job,
			refusal{text: "the extern step of the job could not be started: " +
				reason, drain: true},
		)
		return
	}
	c.stepOver(r.key)
}
