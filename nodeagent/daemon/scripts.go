package daemon

import (
	"context"
)

// scripts runs prologs and epilogs, each in a goroutine of its own. What an
// agent that ends has begun is ended, and run again by the next.
func (a *Agent) scripts(ctx context.Context, fx *Effects) {
	for _, s := range fx.Prepare {
		run, abort := context.WithCancel(ctx)
		a.aborts[s.Key] = abort
		a.script(ctx, s, func() error { return a.deps.Scripts.Prolog(run, s.Env) }, func(why string) {
			abort()
			delete(a.aborts, s.Key)
			a.core.Prepared(s.Key, why)
		})
	}
	for _, k := range fx.Abort {
		if abort := a.aborts[k]; abort != nil {
			abort()
		}
	}
	for _, s := range fx.Clean {
		a.script(ctx, s, func() error { return a.deps.Scripts.Epilog(ctx, s.Env) }, func(why string) { a.core.Cleaned(s.Key, why) })
	}
}

// script runs one and tells the owner how it went.
func (a *Agent) script(ctx context.Context, s Script, do func() error, tell func(why string)) {
	a.wg.Go(func() {
		began := a.deps.Clock.Now()
		err := do()
		if ctx.Err() != nil {
			return
		}
		a.log.Debug("a prolog or epilog has ended", "run", s.Key.String(), "took", a.deps.Clock.Now().Sub(began).Seconds(), "error", err)
		why := ""
		if err != nil {
			why = err.Error()
		}
		a.inbox.put(func() { tell(why) })
	})
}
