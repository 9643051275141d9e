package daemon

import (
	"context"
	"fmt"
	"reflect"
	"runtime"
	"runtime/debug"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/view"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// sameConfig compares configurations.
func sameConfig(a, b *spec.Config) bool { return reflect.DeepEqual(a, b) }

// wantPass asks for a pass when something happened that may let a job start:
// at once if something became free or was changed, soon if there are only new
// jobs, which in a deep queue mostly have to wait behind the others.
func (c *Controller) wantPass(events []event.Envelope) {
	wanted := (chan struct{})(nil)
	for i := range events {
		switch events[i].Event.(type) {
		case *event.ReasonsChanged, *event.JobEligible, *event.JobStarted, *event.JobPrepared, *event.JobEpilogOver, *event.JobSignalled, *event.ArrayTaskSplit,
			*event.StepStarted, *event.StepEnded, *event.StepNodeDone, *event.StepEndRequested, *event.StepSignalled, *event.StepUpdated, *event.JobShrunk, *event.NodeLost, *event.TokenIssued, *event.TokenSpent, *event.CertificateIssued, *event.JobPurged:
		case *event.JobSubmitted:
			if wanted == nil {
				wanted = c.arrived
			}
		default:
			wanted = c.kick
		}
	}
	if wanted != nil {
		token(wanted)
	}
}

func token(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// runPasses runs the scheduler whenever it is wanted, and at least each
// sched_interval. A pass that took long is followed by a pause of the same
// length, so that a deep queue never takes more than half of a core; where
// only new jobs ask for the next one, of nine times the length. What becomes
// free during a pause is given out at once by incremental passes.
func (c *Controller) runPasses(ctx context.Context) error {
	select {
	case <-c.numbered:
	case <-ctx.Done():
		return nil
	}
	wake := spec.FarFuture // when time alone changes something for a waiting job
	var run planner
	var took spec.Span
	for ctx.Err() == nil {
		fires, stop := c.deps.Clock.After(c.passInterval(wake))
		select {
		case <-ctx.Done():
		case <-c.kick:
		case <-c.arrived:
			c.gatherJobs(ctx, min(9*took, spec.Second))
		case <-fires:
		}
		stop()
		if ctx.Err() != nil {
			return nil
		}
		var err error
		took, wake, err = c.runPass(ctx, &run, false)
		if err != nil {
			return err
		}
		if took > 5*spec.Millisecond {
			if err := c.restAfter(ctx, min(took, 2*spec.Second), &run); err != nil {
				return err
			}
		}
	}
	return nil
}

// planner is what one pass leaves to the next.
type planner struct {
	queue scheduler.Queue
	kept  *scheduler.Promises // of the last full pass
}

// quickFrom is how long a full pass takes at least before incremental ones
// are worth their while.
const quickFrom = 20 * spec.Millisecond

// restAfter pauses after a pass that took long. If something becomes free
// meanwhile, an incremental pass gives it out, and a full one is due at the
// end.
func (c *Controller) restAfter(ctx context.Context, pause spec.Span, run *planner) error {
	if pause < quickFrom || run.kept == nil {
		c.sleepFor(ctx, pause)
		return nil
	}
	fires, stop := c.deps.Clock.After(pause)
	defer stop()
	freed := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-fires:
			if freed {
				token(c.kick)
			}
			return nil
		case <-c.kick:
			freed = true
			if _, _, err := c.runPass(ctx, run, true); err != nil {
				return err
			}
			if !c.sleepFor(ctx, 5*spec.Millisecond) {
				return nil
			}
		}
	}
}

// passInterval is how long no pass is due if nothing happens.
func (c *Controller) passInterval(wake spec.Instant) spec.Span {
	state := c.View().State
	interval := state.Config.Sched.Interval
	if interval == 0 {
		interval = 60 * spec.Second
	}
	if state.Waiting.Len() > 0 {
		interval = min(interval, 30*spec.Second)
	}
	if wake != spec.FarFuture {
		interval = min(interval, max(wake.Sub(c.deps.Clock.Now()), spec.Millisecond))
	}
	return interval
}

// deepQueue is from how many waiting records on new jobs are looked at together.
const deepQueue = 500

// gatherJobs lets new jobs come together after a pass that took long, until
// something asks for a pass at once.
func (c *Controller) gatherJobs(ctx context.Context, pause spec.Span) {
	if pause < 4*spec.Millisecond || c.View().State.Waiting.Len() < deepQueue {
		return
	}
	fires, stop := c.deps.Clock.After(pause)
	defer stop()
	select {
	case <-fires:
	case <-c.kick:
	case <-ctx.Done():
	}
}

// runPass runs once over the newest view and sends what it proposes through the
// writer. It returns how long that took and when to look again at the latest.
func (c *Controller) runPass(
	ctx context.Context,
	run *planner,
	quick bool,
) (spec.Span, spec.Instant, error) {
	snapshot := c.View()
	if snapshot.State.Waiting.Len()+snapshot.State.Sleeping.Len() == 0 {
		run.kept = nil
		if snapshot.Plan != nil && len(snapshot.Plan.Jobs) > 0 {
			c.publishView(func(v *view.View) { v.Plan = nil })
		}
		return 0, spec.FarFuture, nil
	}
	began := c.deps.Clock.Now()
	outcome, err := onePass(snapshot, began, run, quick)
	took := max(c.deps.Clock.Now().Sub(began), 0)
	if err != nil { // jobs that run go on, and what is submitted is kept: no reason to stop
		c.figures.invariantFailures.Add(1)
		c.deps.Logger.Error("a scheduling pass failed", "error", err)
		return max(took, spec.Second), spec.FarFuture, nil
	}
	run.kept = outcome.Promises
	if outcome.Exit == "start limit" && !quick {
		run.kept = nil // not everybody has been promised what is theirs
	}
	dropped := 0
	// Who sees the reasons of this pass must find its plan.
	c.publishView(func(v *view.View) { v.Plan = outcome.Plan })
	if !outcome.Empty() {
		rep := c.writer.commitCommand(
			ctx,
			&request{
				cmd:   scheduler.Starts{Proposal: &outcome.Proposal},
				actor: event.Actor{Kind: event.ActorSystem},
			},
		)
		if rep.err != nil {
			if ctx.Err() == nil {
				c.deps.Logger.Warn("a scheduling pass could not be committed", "error", rep.err)
			}
			return took, spec.FarFuture, nil
		}
		dropped = rep.res.Stale
	}
	c.deps.Verbosity.notePass(outcome, took, quick, dropped)
	c.publishView(func(v *view.View) {
		pass := &v.Pass
		pass.Dropped += uint64(dropped)
		if quick {
			pass.QuickPasses++
			return
		}
		pass.Passes++
		pass.Count(took)
		pass.Last = took
		pass.Max = max(pass.Max, took)
		pass.Total += took
		pass.LastAt = began
		pass.Depth, pass.DepthTotal = outcome.Depth, pass.DepthTotal+uint64(outcome.Depth)
		pass.Planned = int64(len(outcome.Plan.Jobs))
		pass.Queue = outcome.Queue
		pass.Exit = outcome.Exit
		pass.QueueTotal, pass.PlannedTotal = pass.QueueTotal+uint64(
			max(pass.Queue, 0),
		), pass.PlannedTotal+uint64(
			pass.Planned,
		)
		switch outcome.Exit {
		case "bf_max_job_test":
			pass.ExitDepth++
		case "start limit":
			pass.ExitStarts++
		default:
			pass.ExitEnd++
		}
	})
	if dropped > 0 || outcome.Exit == "start limit" || (outcome.Again && !quick) {
		token(c.kick)
	}
	return took, outcome.Wake, nil
}

// onePass makes an error of a panic: it has only read a frozen state, and what
// it remembers of the queue is dropped.
func onePass(
	snapshot *view.View,
	now spec.Instant,
	run *planner,
	quick bool,
) (outcome *scheduler.Outcome, err error) {
	defer func() {
		if p := recover(); p != nil {
			*run = planner{}
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	options := scheduler.PassOptions{
		Starts: 2000,
		Plan:   snapshot.Plan,
		Queue:  &run.queue,
		Yield:  runtime.Gosched,
	}
	if quick {
		options.Keep, options.Incremental = run.kept, true
	}
	return scheduler.Pass(snapshot.State, now, options)
}

// runTicks lets time pass in the ledger once a second, and watches the disk.
func (c *Controller) runTicks(ctx context.Context) error {
	for c.sleepFor(ctx, spec.Second) {
		low, err := c.deps.Log.Low()
		if err != nil {
			c.deps.Logger.Warn("free space of the ledger's disk is not known", "error", err)
		} else if was := c.writer.low.Swap(low); was != low {
			c.deps.Logger.Warn("the reserve of the ledger's disk changed", "reached", low)
		}
		r := &request{
			cmd:   scheduler.Tick{East: c.deps.East},
			actor: event.Actor{Kind: event.ActorSystem},
		}
		if rep := c.writer.commitCommand(ctx, r); rep.err != nil && ctx.Err() == nil {
			c.deps.Logger.Warn("time could not pass in the ledger", "error", rep.err)
		}
	}
	return nil
}
