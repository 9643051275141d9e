package daemon

import (
	"context"
	"sync"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// How long a client may be away: for a connection that broke, and after a
// start of the controller, which broke all of them.
const (
	absence      = 10 * spec.Second
	startAbsence = 60 * spec.Second
)

// attended is what a client attends: a step, or with ofJob the whole job.
type attended struct {
	job     spec.JobUID
	attempt uint32
	step    spec.StepID
}

// ofJob in attended.step is the job itself, in any attempt.
const ofJob = spec.StepExtern

func jobKey(uid spec.JobUID) attended { return attended{job: uid, step: ofJob} }

// presence knows which clients are there. A job that srun or salloc made, and a
// step, are ended when their client has gone for too long.
type presence struct {
	c    *Controller
	mu   sync.Mutex
	here map[attended]int
	left map[attended]spec.Instant
}

func newPresence(controller *Controller) *presence {
	return &presence{c: controller, here: map[attended]int{}, left: map[attended]spec.Instant{}}
}

// expectClient notes that a client should come: it may have gone while its request
// was carried out.
func (p *presence) expectClient(k attended) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.here[k] == 0 {
		p.left[k] = p.c.deps.Clock.Now()
	}
}

// enterClient notes that a client is there, until it leaves.
func (p *presence) enterClient(k attended) (leave func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.here[k]++
	delete(p.left, k)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.here[k]--
		if p.here[k] <= 0 {
			delete(p.here, k)
			p.left[k] = p.c.deps.Clock.Now()
		}
	}
}

// takeOverdue takes those who have been away for too long.
func (p *presence) takeOverdue(now spec.Instant) []attended {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []attended
	for k, at := range p.left {
		if now.Sub(at) >= absence {
			out = append(out, k)
			delete(p.left, k)
		}
	}
	return out
}

// run ends what nobody attends, until the context ends.
func (p *presence) run(ctx context.Context) error {
	swept := false
	for p.c.sleepFor(ctx, spec.Second) {
		now := p.c.deps.Clock.Now()
		if !swept && now.Sub(p.c.started) >= startAbsence-absence {
			swept = true
			p.markMissing(now)
		}
		for _, k := range p.takeOverdue(now) {
			p.endJob(ctx, k)
		}
	}
	return nil
}

// markMissing counts everybody as gone from now on who should be there and has not
// come since the controller started, or is only about to.
func (p *presence) markMissing(now spec.Instant) {
	p.mu.Lock()
	defer p.mu.Unlock()
	note := func(k attended) {
		if _, gone := p.left[k]; p.here[k] == 0 && !gone {
			p.left[k] = now
		}
	}
	cluster := p.c.View().State
	for _, set := range [...]*state.Set{&cluster.Active, &cluster.Waiting} {
		set.Range(func(uid uint64, _ struct{}) bool {
			job := cluster.Job(spec.JobUID(uid))
			if job.Spec.Attended && !job.State.Terminal() {
				note(jobKey(job.UID))
			}
			for i := range job.Steps {
				if job.Steps[i].Live() && job.Steps[i].Ticket != "" {
					note(attended{job.UID, job.Attempt, job.Steps[i].ID})
				}
			}
			return true
		})
	}
}

// endJob acts as the client would have: it is the user's own.
func (p *presence) endJob(ctx context.Context, k attended) {
	job := p.c.View().State.Job(k.job)
	if job == nil || job.State.Terminal() {
		return
	}
	actor := event.Actor{Kind: event.ActorUser, UID: job.Spec.UID, Name: job.Spec.User}
	var command scheduler.Command = scheduler.Cancel{
		Target: scheduler.Target{UID: k.job, Task: spec.NoTask},
	}
	if k.step != ofJob {
		step := job.StepByID(k.step)
		if step == nil || !step.Live() || job.Attempt != k.attempt {
			return
		}
		command = scheduler.EndStep{UID: k.job, Step: k.step}
	}
	about := aboutJob(p.c.View().State, job)
	if k.step != ofJob {
		about = aboutStep(p.c.View().State, job, k.step)
	}
	p.c.deps.Logger.Info("the client of a job or step is gone: it is ended", about, actorAttr(actor))
	if rep := p.c.writer.commitCommand(ctx, &request{cmd: command, actor: actor}); rep.err != nil &&
		ctx.Err() == nil &&
		spec.CodeOf(rep.err) != spec.CodeAlreadyDone {
		p.c.deps.Logger.Warn(
			"unattended jobs could not be ended; retrying",
			about,
			"error",
			rep.err,
		)
		p.expectClient(k)
	}
}
