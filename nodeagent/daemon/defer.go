package daemon

import (
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/nodeagent/plan"
)

// notePrepared goes on with a run whose prolog is over. A script that waits for the
// prologs of other nodes begins when the controller orders it again without that.
func (c *Core) notePrepared(r *run) {
	if r.tells {
		c.fx.Prepared = append(c.fx.Prepared, r.key)
	}
	if r.waits {
		r.phase = deferred
		return
	}
	c.beginRun(r)
}

// defersAgain takes what an order that came again says of the prologs: the controller
// may be another one, which was told nothing, and the script may begin now.
func (c *Core) defersAgain(r *run, launch *apiv1.Launch) {
	r.tells = launch.GetTellPrepared()
	r.waits = launch.GetDefer()
	if r.phase == deferred && !r.waits {
		c.notePrepared(r)
		return
	}
	switch r.phase {
	case deferred, tuning, asked, living, held:
		if r.tells {
			c.fx.Prepared = append(c.fx.Prepared, r.key)
		}
	case queued, identifying, containing, preparing, closing, measuring, cleaning, reported:
	}
}

// tellPrepared tells the controller of prologs that are over. Where there is none now,
// the one that comes orders the runs again, and is told then.
func (a *Agent) tellPrepared(keys []plan.RunKey) {
	if a.session == nil {
		return
	}
	for _, key := range keys {
		a.session.sendMessage(&apiv1.AgentMessage{Kind: &apiv1.AgentMessage_Prepared{
			Prepared: &apiv1.Prepared{Run: wireKey(key)},
		}})
	}
}
