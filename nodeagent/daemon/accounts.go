package daemon

import (
	"bytes"
	"context"

	"github.com/musterhpc/muster/nodeagent/plan"
)

// needsAccount tells that a batch script gets its home and shell from the node: it
// was submitted without an environment, or asks for the login's.
func needsAccount(job *plan.Job) bool {
	return job.Spec.IO.Login != nil || !hasVariable(job.Env, "HOME")
}

// stepNeedsAccount tells that the tasks of a step do.
func stepNeedsAccount(job *plan.Job) bool {
	return !hasVariable(job.Env, "HOME") || !hasVariable(job.Env, "SHELL")
}

// hasVariable looks for a variable in an environment of NUL-separated NAME=value.
func hasVariable(env []byte, name string) bool {
	first := []byte(name + "=")
	return bytes.HasPrefix(env, first) || bytes.Contains(env, append([]byte{0}, first...))
}

// identifyRun goes on with a run at once, or, where it needs the account of its
// user, when that is known. A user database that hangs holds up the runs that need
// it, and nothing else.
func (c *Core) identifyRun(r *run, uid uint32, needed bool, goOn func(Account, []string)) {
	if !needed || !c.identifies {
		goOn(Account{}, nil)
		return
	}
	r.phase = identifying
	r.awaits = goOn
	c.fx.Identify = append(c.fx.Identify, Identify{Key: r.key, UID: uid})
}

// Identified takes the account of a run's user. A run whose account cannot be looked
// up begins without home and shell, and says so.
func (c *Core) Identified(key plan.RunKey, account Account, err error) {
	r := c.runs[key]
	if r == nil || r.phase != identifying {
		return // it is not to begin any more
	}
	var notices []string
	if err != nil {
		c.log.Warn("the account of a run's user is not known", aboutRun(r), "error", err)
		notices = []string{"HOME and SHELL are not set: " + err.Error()}
	}
	goOn := r.awaits
	r.awaits = nil
	goOn(account, notices)
}

// identifyAccounts looks accounts up, each in a goroutine of its own.
func (a *Agent) identifyAccounts(ctx context.Context, list []Identify) {
	for _, request := range list {
		a.wg.Go(func() {
			account, err := a.deps.Accounts.FindAccount(ctx, request.UID)
			if ctx.Err() != nil {
				return
			}
			a.inbox.putItems(func() { a.core.Identified(request.Key, account, err) })
		})
	}
}
