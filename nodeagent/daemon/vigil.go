package daemon

import (
	"context"
	"fmt"

	"github.com/musterhpc/muster/spec"
)

// vigil watches whether the shepherd makes progress, which is more than that its
// process exists and its socket is open: a stopped process has both. Silence is
// counted in ticks of the agent, not on a clock, so that an agent that was itself
// stopped does not blame the shepherd for that time.
type vigil struct {
	limit   int    // in ticks; silence for longer is trouble
	silent  int    // ticks since the last answer
	asking  bool   // a question is on its way
	trouble string // what the controller is told; empty while the shepherd answers
}

// defaultMessageTimeout is Slurm's default of MessageTimeout.
const defaultMessageTimeout = 10 * spec.Second

func newVigil(timeout spec.Span) vigil {
	if timeout <= 0 {
		timeout = defaultMessageTimeout
	}
	return vigil{limit: max(1, int(timeout/tickEvery))}
}

// countTick counts one tick of silence. It tells whether this is the one that is too many.
func (v *vigil) countTick() bool {
	v.silent++
	if v.silent <= v.limit || v.trouble != "" {
		return false
	}
	v.trouble = fmt.Sprintf("the shepherd has not answered for %d s", v.silent)
	return true
}

// endSilence ends the silence. It tells whether there was trouble until now.
func (v *vigil) endSilence() bool {
	had := v.trouble != ""
	v.silent, v.trouble = 0, ""
	return had
}

// watchShepherd asks the shepherd for a sign of life once a tick, one question at
// a time. While it gives none the node must get no jobs, which the controller
// learns at once.
func (a *Agent) watchShepherd(ctx context.Context) {
	if a.vigil.countTick() {
		a.log.Error(
			"the shepherd does not answer: no job can start or end here until it does",
			"seconds",
			a.vigil.silent,
		)
		a.showShepherd(false)
		a.beatAt = 0
	}
	if a.vigil.asking {
		return
	}
	a.vigil.asking = true
	a.wg.Go(func() {
		hello, err := a.deps.Shepherd.Hello(ctx)
		if err == nil {
			a.followTree(&hello)
		}
		a.inbox.putItems(func() {
			a.vigil.asking = false
			a.shepherdAnswered(err)
		})
	})
}

// shepherdAnswered takes the outcome of a call to the shepherd.
func (a *Agent) shepherdAnswered(err error) {
	if err != nil {
		a.showShepherd(false)
		return
	}
	if a.vigil.endSilence() {
		a.log.Info("the shepherd answers again")
		a.beatAt = 0
	}
	a.showShepherd(true)
}

// showShepherd shows in metrics and health whether the shepherd answers.
func (a *Agent) showShepherd(up bool) {
	health := a.Health()
	if health.Shepherd == up {
		return
	}
	a.deps.Telemetry.SetShepherdUp(up)
	health.Shepherd = up
	a.health.Store(&health)
}
