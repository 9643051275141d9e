package daemon

import (
	"context"

	"github.com/musterhpc/muster/accounting/query"
	apiv1 "github.com/musterhpc/muster/api/v1"
)

// stepsAhead are the ended steps of jobs that are asked for by their numbers:
// the steps have these too, so that they are asked for beside the runs, and not
// when these are known.
type stepsAhead struct {
	cancel  context.CancelFunc
	numbers map[uint32]bool
	done    chan struct{} // closed when what follows stands
	rows    map[query.RunKey][]*apiv1.AcctRow
	err     error
}

// namedMost is for how many jobs steps are asked for ahead.
const namedMost = 1000

// askAhead begins to ask for the steps of the jobs that are named; nil where
// none are. What belongs to others of the answer, as the tasks of an array do,
// is asked for when they are known.
func (a *answer) askAhead() *stepsAhead {
	if a.ask.Allocations || len(a.ask.Jobs) == 0 || len(a.ask.Jobs) > namedMost {
		return nil
	}
	ctx, cancel := context.WithCancel(a.ctx)
	steps := &stepsAhead{
		cancel:  cancel,
		numbers: map[uint32]bool{},
		done:    make(chan struct{}),
		rows:    map[query.RunKey][]*apiv1.AcctRow{},
	}
	var list []uint32
	for _, job := range a.ask.Jobs {
		if !steps.numbers[job.ID] {
			steps.numbers[job.ID] = true
			list = append(list, job.ID)
		}
	}
	parts := a.stepParts()
	q := a.ask.StepsByNumber(a.scope, list, parts)
	go func() {
		defer close(steps.done)
		steps.err = a.s.endedSteps(
			ctx,
			q,
			parts,
			func(query.RunKey) bool { return true },
			steps.rows,
		)
	}()
	return steps
}

// waitForSteps ends when the steps are there.
func (s *stepsAhead) waitForSteps() error {
	if s == nil {
		return nil
	}
	<-s.done
	return s.err
}

// hasSteps tells whether all ended steps of a run are among the rows.
func (s *stepsAhead) hasSteps(
	run *acctRun,
) bool {
	return s != nil && s.numbers[run.row.GetJobId()]
}

// stopAsking gives up what is still asked.
func (s *stepsAhead) stopAsking() {
	if s != nil {
		s.cancel()
		<-s.done
	}
}
