package daemon

import (
	"context"

	apiv1 "github.com/musterhpc/muster/api/v1"
)

// rereadFor reads the configuration again, takes over what can change while the agent
// runs, and answers. A job that has begun keeps the programs that it began with, but for
// its epilog.
func (a *Agent) rereadFor(ctx context.Context, s *session, request uint64) {
	if a.deps.Reread == nil {
		return
	}
	a.wg.Go(func() {
		got, err := a.deps.Reread(ctx)
		answer := &apiv1.ConfigRead{Ask: request, Restart: got.Restart}
		if err != nil {
			a.log.Error("the new configuration cannot be read; the old one stays", "error", err)
			answer.Failed = err.Error()
		}
		a.inbox.putItems(func() {
			if err == nil {
				a.usePrograms(&got)
			}
			s.sendMessage(&apiv1.AgentMessage{
				Kind: &apiv1.AgentMessage_ConfigRead{ConfigRead: answer},
			})
		})
	})
}

// usePrograms takes the site's programs over. The node's health is looked at soon where
// its program is new; what the old one found counts no more where there is none.
func (a *Agent) usePrograms(got *Reread) {
	got.Apply()
	began := a.deps.Check == nil && got.Check != nil
	rare := a.cfg.CheckEvery != got.CheckEvery
	if a.deps.Check != nil && got.Check == nil {
		a.core.Checked(byProgram, "")
	}
	a.deps.Check = got.Check
	a.cfg.Programs = got.Programs
	if began || rare {
		a.checkAt = a.deps.Clock.Now().Add(got.CheckFirst)
	}
	a.core.usePrograms(got)
	a.log.Info("the configuration was read again", "restart_needed", got.Restart)
}

// usePrograms has what begins from now on run with the new programs.
func (c *Core) usePrograms(got *Reread) {
	c.cfg.Programs = got.Programs
	c.cfg.Node.TaskProlog = got.TaskProlog
	c.cfg.Node.TaskEpilog = got.TaskEpilog
}
