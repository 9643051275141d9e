package daemon

import (
	"context"
	"slices"
	"strings"

	"github.com/musterhpc/muster/nodeagent/plan"
)

// Displays are the X displays that jobs have on the node.
type Displays interface {
	// Show gives the job of an extern step a display, and the variables by which its
	// programs find it. Asked again, it gives the same. The error is for the user.
	Show(key plan.RunKey, uid, gid uint32) ([]string, error)
	// Keep closes the displays of all extern steps but these.
	Keep(keys []plan.RunKey)
}

// Show asks for the display of a job, which is known by its extern step.
type Show struct {
	Key plan.RunKey
	UID uint32
	GID uint32
}

// showDisplay gives a job its display before anything of it begins, where it asks for one
// on this node.
func (c *Core) showDisplay(job *run) {
	if !job.facts.X11 {
		c.runProlog(job)
		return
	}
	job.phase = displaying
	c.askDisplay(job)
}

func (c *Core) askDisplay(job *run) {
	c.fx.Show = append(c.fx.Show, Show{job.key.StepOf(plan.StepExtern), job.user, job.group})
}

// Shown takes the display of a job. A job that gets none runs without, and its error
// output says why.
func (c *Core) Shown(key plan.RunKey, env []string, reason string) {
	job := c.runs[jobKey(key)]
	if job == nil {
		return
	}
	job.facts.Display = env
	if job.phase != displaying {
		return
	}
	if job.spec != nil {
		job.spec.Env = withDisplay(job.spec.Env, env)
		if reason != "" {
			job.spec.Notices = append(job.spec.Notices, noDisplay+reason)
		}
	}
	c.runProlog(job)
}

const noDisplay = "X11 is not forwarded on this node: "

// giveDisplay gives a step the display of its job.
func (c *Core) giveDisplay(step, job *run) {
	if step.spec.Tasks != nil {
		step.spec.Tasks.Env = withDisplay(step.spec.Tasks.Env, job.facts.Display)
	}
}

// withDisplay replaces the variables of a display.
func withDisplay(env, display []string) []string {
	if len(display) == 0 {
		return env
	}
	out := slices.DeleteFunc(slices.Clone(env), func(e string) bool {
		return strings.HasPrefix(e, "DISPLAY=") || strings.HasPrefix(e, "XAUTHORITY=")
	})
	return append(out, display...)
}

// displaysKept are the extern steps whose displays are needed: those of jobs here that are
// not over, and of jobs that the controller names while nothing here knows them. An agent
// that died before it saved a job learns of that job from its order, behind the Welcome.
func (c *Core) displaysKept() []plan.RunKey {
	var keys []plan.RunKey
	for _, key := range c.sortedKeys() {
		r := c.runs[key]
		over := r.phase == measuring || r.phase == cleaning || r.phase == reported
		if !r.isStep() && !over {
			keys = append(keys, key.StepOf(plan.StepExtern))
		}
	}
	for _, named := range []map[plan.RunKey]bool{c.desired, c.unknown} {
		for key := range named {
			if job := jobKey(key); c.runs[job] == nil {
				keys = append(keys, job.StepOf(plan.StepExtern))
			}
		}
	}
	return keys
}

// showDisplays opens displays, each in a goroutine of its own: its file may be on a slow disk.
func (a *Agent) showDisplays(ctx context.Context, list []Show) {
	for _, request := range list {
		a.wg.Go(func() {
			var env []string
			reason := "the agent of this node has no place for displays"
			if a.deps.Displays != nil {
				var err error
				reason = ""
				env, err = a.deps.Displays.Show(request.Key, request.UID, request.GID)
				if err != nil {
					reason = err.Error()
					a.log.Error("a job gets no display", aboutKey(request.Key, 0), "error", err)
				}
			}
			if ctx.Err() == nil {
				a.inbox.putItems(func() { a.core.Shown(request.Key, env, reason) })
			}
		})
	}
}

// keepDisplays closes the displays of jobs that are over. Before the controller has spoken
// it is not known which those are.
func (a *Agent) keepDisplays() {
	if a.deps.Displays != nil && a.core.complete {
		a.deps.Displays.Keep(a.core.displaysKept())
	}
}
