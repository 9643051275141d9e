package daemon

import (
	"context"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/view"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/scheduler/trial"
)

// supposition is a copy of the cluster on which a service makes the changes that it
// would else send through the writer. It belongs to one call and to one goroutine.
type supposition struct {
	base  *view.View // that was copied
	trial *trial.Trial
}

// newSupposition copies what the view shows. The copy shares what does not change.
func newSupposition(controller *Controller) *supposition {
	base := controller.View()
	system := event.Actor{Kind: event.ActorSystem}
	copied := trial.On(base.State.Fork(), controller.deps.Clock.Now(), system, "suppose")
	copied.East = controller.deps.East
	return &supposition{base: base, trial: copied}
}

// currentView is the base with the changes that were made so far.
func (p *supposition) currentView() *view.View {
	out := *p.base
	out.State = p.trial.Freeze()
	return &out
}

// decideRequest makes one change, which the rules may refuse.
func (p *supposition) decideRequest(r *request) reply {
	p.trial.Actor = r.actor
	result, err := scheduler.Decide(p.trial, r.cmd)
	return reply{res: result, err: err, seq: p.trial.Seq}
}

// currentView is the cluster, or the copy on which this service supposes changes.
func (s *head) currentView() *view.View {
	if s.supposed != nil {
		return s.supposed.currentView()
	}
	return s.C.View()
}

// commitCommand makes a change durable, or makes it on the copy on which this
// service supposes changes.
func (s *head) commitCommand(ctx context.Context, r *request) reply {
	if s.supposed != nil {
		return s.supposed.decideRequest(r)
	}
	return s.C.writer.commitCommand(ctx, r)
}

// enqueueCommand enqueues a change; awaitReply gets the answer.
func (s *head) enqueueCommand(ctx context.Context, r *request) error {
	if s.supposed != nil {
		r.reply = make(chan reply, 1)
		r.reply <- s.supposed.decideRequest(r)
		return nil
	}
	return s.C.writer.enqueueCommand(ctx, r)
}

// awaitReply is the answer to a change that was enqueued.
func (s *head) awaitReply(ctx context.Context, r *request) reply {
	if s.supposed != nil {
		return <-r.reply
	}
	return s.C.writer.awaitReply(ctx, r)
}
