package daemon

import (
	"context"
	"slices"
	"strings"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/spec"
)

// Tuned takes what became of a run's wish for clocks: the run begins either
// way, and finds the notices in its error output.
func (c *Core) Tuned(key plan.RunKey, notices []string) {
	r := c.runs[key]
	switch {
	case r == nil || r.phase != tuning:
	case r.term != nil:
		c.endUnbegun(
			r,
			&plan.Exit{
				Key:     key,
				Signal:  sigTerm,
				Start:   r.since,
				End:     c.clock(),
				Message: "ended before it began",
			},
		)
	default:
		if r.spec != nil {
			r.spec.Notices = append(r.spec.Notices, notices...)
		}
		c.beginRun(r)
	}
}

// Tuning lists the runs for which clocks are, or may be, set.
func (c *Core) Tuning() []string {
	var out []string
	for key, r := range c.runs {
		if slices.Contains([]phase{tuning, asked, living, held}, r.phase) {
			out = append(out, key.String())
		}
	}
	slices.Sort(out)
	return out
}

// runTuner sets clocks, one wish after the other in the order in which they were
// made, so that a device is not set back after its next job has set it.
func (a *Agent) runTuner(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.tunes.wake:
		}
		for _, f := range a.tunes.take() {
			f(ctx)
		}
	}
}

// queueTune sets the clocks of a run's GPUs.
func (a *Agent) queueTune(tune Tune) {
	a.tunes.putItems(func(ctx context.Context) {
		notices := a.tuneNow(ctx, tune)
		a.inbox.putItems(func() { a.core.Tuned(tune.Key, notices) })
	})
}

func (a *Agent) tuneNow(ctx context.Context, tune Tune) []string {
	requested, err := spec.ParseGPUFreq(tune.Freq)
	if err != nil {
		return []string{err.Error()}
	}
	var done, failed []string
	if a.deps.Clocks == nil {
		failed = []string{"the clocks of GPUs cannot be set on this node"}
	} else {
		done, failed = a.deps.Clocks.Tune(ctx, tune.Key.String(), tune.GPUs, requested)
	}
	if len(failed) > 0 {
		a.log.Warn(
			"a job does not get the GPU clocks that it asks for, and runs",
			aboutKey(tune.Key, 0),
			"freq",
			tune.Freq,
			"why",
			strings.Join(failed, "; "),
		)
	}
	if !requested.Verbose {
		done = nil
	}
	for _, f := range failed {
		done = append(done, "--gpu-freq="+tune.Freq+": "+f)
	}
	return done
}

// keepClocks sets back the clocks of runs that are over.
func (a *Agent) keepClocks() {
	if a.deps.Clocks == nil {
		return
	}
	owners := a.core.Tuning()
	a.tunes.putItems(func(ctx context.Context) {
		if err := a.deps.Clocks.Keep(ctx, owners); err != nil && ctx.Err() == nil {
			a.log.Error("GPU clocks cannot be set back; they are tried again", "error", err)
		}
	})
}
