package scheduler_test

import (
	"fmt"
	"strings"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/view"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/scheduler/explain"
	"github.com/musterhpc/muster/scheduler/order"
	"github.com/musterhpc/muster/spec"
)

// pass runs the scheduler over the queue and commits all that it proposes. It
// prints what started; (backfill) marks a start ahead of jobs that wait.
//
//	$ pass
//	started 1 on n1
func pass(s *session, _ []string) error {
	out, err := scheduler.Pass(s.head.Freeze(), s.now, scheduler.PassOptions{Plan: s.plan})
	if err != nil {
		return err
	}
	user := s.user
	s.user = "root"
	res := s.must(scheduler.Starts{Proposal: &out.Proposal})
	s.user = user
	if res.Stale != 0 || res.Started != len(out.Starts) || res.Preempted != len(out.Preempts) {
		s.t.Fatalf("of %d proposals on an unchanged head %d were dropped", len(out.Starts), res.Stale)
	}
	s.plan = out.Plan
	for i := range s.last {
		if e, ok := s.last[i].Event.(*event.JobEndRequested); ok && e.Cause == event.EndPreempt {
			how := "cancelled"
			if e.Requeue {
				how = "requeued"
			}
			s.printf("%s is %s for %s, grace %s\n", s.title(s.head.Job(e.UID)), how, s.title(s.head.Job(e.For)), clock(e.Grace))
		}
	}
	for i := range s.last {
		switch e := s.last[i].Event.(type) {
		case *event.JobSuspended:
			s.printf("%s stands still\n", s.title(s.head.Job(e.UID)))
		case *event.JobResumed:
			s.printf("%s goes on\n", s.title(s.head.Job(e.UID)))
		}
	}
	for _, e := range started(s.last) {
		j := s.head.Job(e.UID)
		note := ""
		if e.Backfill {
			note = " (backfill)"
		}
		s.printf("started %s on %s%s\n", s.title(j), s.where(j), note)
	}
	if out.Exit != "end of job queue" {
		s.printf("ended: %s\n", out.Exit)
	}
	return nil
}

// planned shows the predicted starts of the last pass, as squeue --start.
//
//	$ start
//	JOBID START NODES
func planned(s *session, _ []string) error {
	rows := [][]string{{"JOBID", "START", "END", "SCHEDNODES", "WAITSFOR"}}
	for i := range s.plan.Jobs {
		p := &s.plan.Jobs[i]
		j := s.head.Job(p.UID)
		name := s.title(j)
		if p.Task != spec.NoTask {
			name = fmt.Sprintf("%d_%d", j.ID, p.Task)
		}
		if p.Estimate {
			name += " (estimate)"
		}
		var for_ []string
		for _, uid := range p.Blockers {
			for_ = append(for_, s.title(s.head.Job(uid)))
		}
		rows = append(rows, []string{name, when(p.Start), when(p.End), s.nodeNames(p.Nodes), strings.Join(for_, ",")})
	}
	s.table(rows)
	return nil
}

// why explains one pending job.
//
//	$ why 4
func why(s *session, args []string) error {
	_, j, err := s.target(args[1])
	if err != nil {
		return err
	}
	v := &view.View{State: s.head.Freeze(), Plan: s.plan}
	x, err := explain.Job(v, j, s.now)
	if err != nil {
		return err
	}
	s.printf("%s%s\n", j.Reason, reasonNumbers(s, j.Reason))
	for _, n := range x.Nodes {
		s.printf("  %s: %s", strings.Join(n.Names, ","), n.Why)
		if n.Need > 0 {
			s.printf(", %d free of the %d needed", n.Free, n.Need)
		}
		s.printf("\n")
	}
	for _, uid := range x.Blockers {
		s.printf("  waits for %s\n", s.title(s.head.Job(uid)))
	}
	if x.Free != 0 {
		s.printf("  enough of them are over by %s\n", when(x.Free))
	}
	if x.Early != 0 {
		s.printf("  from %s on if running jobs end as predicted\n", when(x.Early))
	}
	s.printf("  %d ahead\n", x.Ahead)
	for _, g := range x.Guarantee {
		s.printf("  %s\n", g)
	}
	for _, a := range x.Advice {
		s.printf("  with %s it would start at %s, %s earlier\n", a.Change, when(a.Start), clock(a.Gain))
		s.follow(v, j, a)
	}
	return nil
}

// show prints one job's record.
//
//	$ show 4
func show(s *session, args []string) error {
	_, j, err := s.target(args[1])
	if err != nil {
		return err
	}
	s.printf("%s %s reason=%s priority=%d restarts=%d attempt=%d limit=%s begin=%s eligible=%s exit=%d:%d req=%s\n", s.title(j), j.State, j.Reason, order.NewRunning(s.head, s.now).Of(j),
		j.Restarts, j.Attempt, clock(limitOf(j)), when(j.Begin), when(j.Eligible), j.Exit.Code, j.Exit.Signal, j.Req)
	if j.Alloc != nil && j.State != spec.Pending {
		s.printf("  %s %s\n", s.where(j), j.Alloc.TRES)
		for i := range j.Alloc.Nodes {
			a := &j.Alloc.Nodes[i]
			s.printf("  %s cpus %s mem %d tasks %d\n", a.Name, ranges(a.CPUs), a.Mem, a.Tasks)
		}
	}
	return nil
}

func limitOf(j *state.Job) spec.Span {
	if j.State.Active() || j.State.Terminal() {
		return j.Limit
	}
	return j.Spec.Time.Limit
}
