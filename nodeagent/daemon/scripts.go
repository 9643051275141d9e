package daemon

import (
	"context"
	"errors"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/spec"
)

// runScripts runs prologs and epilogs, each in a goroutine of its own. What an
// agent that ends has begun is ended, and run again by the next.
func (a *Agent) runScripts(ctx context.Context, effects *Effects) {
	for _, script := range effects.Prepare {
		run, abort := context.WithCancel(ctx)
		a.aborts[script.Key] = abort
		a.runScript(
			ctx,
			script,
			func() error { return a.deps.Scripts.Prolog(run, script.Env, a.placeIn(run, script.In)) },
			func(reason string) {
				abort()
				delete(a.aborts, script.Key)
				a.core.Prepared(script.Key, reason)
			},
		)
	}
	for _, key := range effects.Abort {
		if abort := a.aborts[key]; abort != nil {
			abort()
		}
	}
	for _, script := range effects.Clean {
		a.runScript(
			ctx,
			script,
			func() error { return a.cleanJob(ctx, script) },
			func(reason string) { a.core.Cleaned(script.Key, reason) },
		)
	}
}

// placeIn gives what puts the processes of a program into a run; nil for the zero key.
func (a *Agent) placeIn(ctx context.Context, in plan.RunKey) func(pid int) error {
	if in == (plan.RunKey{}) {
		return nil
	}
	return func(pid int) error { return a.deps.Shepherd.Adopt(ctx, in, pid) }
}

// cleanJob runs a job's epilog, if there is one, and removes its private folders.
func (a *Agent) cleanJob(ctx context.Context, script Script) error {
	var err error
	if script.Env != nil {
		err = a.deps.Scripts.Epilog(ctx, script.Env)
	}
	if a.cfg.Node.Space != nil {
		a.vacateSpace(ctx, script.Key)
	}
	return err
}

// vacateSpace removes the private folders of an attempt. What cannot be removed is
// logged, and tried again with each list of runs: a job is not held up by it.
func (a *Agent) vacateSpace(ctx context.Context, key plan.RunKey) {
	for wait := 50 * spec.Millisecond; ; wait = min(2*wait, 2*spec.Second) {
		err := a.deps.Shepherd.Vacate(ctx, key)
		if err == nil || ctx.Err() != nil {
			return
		}
		if !errors.Is(err, ErrDown) {
			a.log.Error(
				"the private folders of a job cannot be removed; it is tried again",
				aboutKey(key, 0),
				"error",
				err,
			)
			return
		}
		if !a.sleepFor(ctx, wait) {
			return
		}
	}
}

// sweepSpaces removes private folders that no job needs, one after the other.
func (a *Agent) sweepSpaces(ctx context.Context, spaces []plan.RunKey) {
	left := a.core.Abandoned(spaces)
	if len(left) == 0 || a.sweeping {
		return
	}
	a.sweeping = true
	a.wg.Go(func() {
		for _, key := range left {
			a.log.Info("private folders of a job that is over are removed", aboutKey(key, 0))
			a.vacateSpace(ctx, key)
		}
		a.inbox.putItems(func() { a.sweeping = false })
	})
}

// runScript runs one and tells the owner how it went.
func (a *Agent) runScript(
	ctx context.Context,
	script Script,
	do func() error,
	tell func(reason string),
) {
	a.wg.Go(func() {
		began := a.deps.Clock.Now()
		err := do()
		if ctx.Err() != nil {
			return
		}
		a.log.Debug(
			"a prolog or epilog has ended",
			aboutKey(script.Key, 0),
			"took",
			a.deps.Clock.Now().Sub(began).Seconds(),
			"error",
			err,
		)
		reason := ""
		if err != nil {
			reason = err.Error()
		}
		a.inbox.putItems(func() { tell(reason) })
	})
}
