package daemon

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// UserPrograms runs programs on this host as the users whose they are.
type UserPrograms interface {
	// May tells whether programs can be run as a user here.
	May(uid uint32) bool
	// RunAs returns when the program has ended.
	RunAs(ctx context.Context, who ProgramOwner, program string, args ...string) error
}

// ProgramOwner is a user as whom a program runs.
type ProgramOwner struct {
	User     string
	UID, GID uint32
	Groups   []uint32
	Cluster  string
}

// Bounds of the programs of triggers: how many run at the same time, and how long one may.
const (
	mostTriggerPrograms = 16
	triggerProgramTime  = 5 * spec.Minute
)

// triggerRuns runs the programs of triggers that are due. That a run is due is in the
// ledger, and that it has ended; a controller that stops in between leaves it to the next
// one, so that a program may run twice for one cause, and never not.
type triggerRuns struct {
	c     *Controller
	slots chan struct{}

	mu    sync.Mutex
	begun map[triggerRun]bool
}

type triggerRun struct {
	id   uint32
	pull spec.TriggerPull
}

func newTriggerRuns(controller *Controller) *triggerRuns {
	return &triggerRuns{
		c:     controller,
		slots: make(chan struct{}, mostTriggerPrograms),
		begun: map[triggerRun]bool{},
	}
}

// run serves until the context ends and waits for the programs that run.
func (r *triggerRuns) run(ctx context.Context) error {
	if r.c.deps.UserPrograms == nil {
		return nil
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		view, changed := r.c.Changed()
		next := r.startDue(ctx, &wg, view.State)
		wait := spec.Span(spec.Hour)
		if next != 0 {
			wait = max(next.Sub(r.c.deps.Clock.Now()), spec.Second/10)
		}
		later, stop := r.c.deps.Clock.After(wait)
		select {
		case <-ctx.Done():
			stop()
			return nil
		case <-changed:
		case <-later:
		}
		stop()
	}
}

// startDue starts the programs that are due and tells when the next one is; 0 = there is
// none.
func (r *triggerRuns) startDue(
	ctx context.Context,
	wg *sync.WaitGroup,
	cluster *state.State,
) (next spec.Instant) {
	now := r.c.deps.Clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forgetEnded(cluster)
	for i := range cluster.Triggers {
		trigger := cluster.Triggers[i]
		for _, pull := range trigger.Pulls {
			key := triggerRun{trigger.ID, pull}
			if r.begun[key] {
				continue
			}
			if pull.Due > now {
				if next == 0 || pull.Due < next {
					next = pull.Due
				}
				continue
			}
			r.begun[key] = true
			wg.Go(func() { r.runProgram(ctx, cluster.ClusterName, trigger, pull) })
		}
	}
	return next
}

// forgetEnded drops the runs whose end a state holds. States come in order, so that none
// that comes later still names them.
func (r *triggerRuns) forgetEnded(cluster *state.State) {
	for key := range r.begun {
		if t := cluster.Trigger(key.id); t == nil || !slices.Contains(t.Pulls, key.pull) {
			delete(r.begun, key)
		}
	}
}

func (r *triggerRuns) runProgram(
	ctx context.Context,
	cluster string,
	trigger spec.Trigger,
	pull spec.TriggerPull,
) {
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
		return
	}
	owner := ProgramOwner{
		User:    trigger.User,
		UID:     trigger.UID,
		GID:     trigger.GID,
		Groups:  trigger.Groups,
		Cluster: cluster,
	}
	words := strings.Fields(trigger.Program)
	args := words[1:]
	if pull.What != "" {
		args = append(args, pull.What)
	}
	bounded, stop := context.WithCancel(ctx)
	defer stop()
	late, free := r.c.deps.Clock.After(triggerProgramTime)
	defer free()
	go func() {
		select {
		case <-late:
			stop()
		case <-bounded.Done():
		}
	}()
	err := r.c.deps.UserPrograms.RunAs(bounded, owner, words[0], args...)
	if ctx.Err() != nil {
		return // it was ended, and the next controller runs it again
	}
	if err != nil {
		r.c.deps.Logger.Warn("the program of a trigger failed",
			"trigger", trigger.ID, "user", trigger.User, "program", words[0], "error", err)
	}
	rep := r.c.writer.commitCommand(ctx, &request{
		cmd:   scheduler.TriggerRan{ID: trigger.ID, Pull: pull},
		actor: event.Actor{Kind: event.ActorSystem},
	})
	if rep.err != nil && ctx.Err() == nil {
		r.c.deps.Logger.Warn(
			"the end of a trigger's program could not be recorded; it may run again",
			"trigger", trigger.ID, "error", rep.err)
	}
}
