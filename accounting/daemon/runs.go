package daemon

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/musterhpc/muster/accounting/query"
	apiv1 "github.com/musterhpc/muster/api/v1"
)

// askingAtOnce is how many questions about runs are answered at the same time.
// Each holds up to three connections to the store (the runs that are over,
// those that are not, and steps), one while it waits for another: there are
// always enough for all of them to go on, and some are left for whoever stores
// rows and computes figures.
const askingAtOnce = 8

// liveChunk is how many runs that are not over are read ahead.
const liveChunk = 1024

// awaitTurn waits for a place among the questions about runs.
func (s Service) awaitTurn(ctx context.Context) (over func(), err error) {
	select {
	case s.D.asking <- struct{}{}:
		return func() { <-s.D.asking }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// eachRun asks for runs when it is its turn.
func (s Service) eachRun(
	ctx context.Context,
	scope query.Scope,
	request *query.Acct,
	want func(query.RunPart) bool,
	each func(acctRun) error,
) error {
	over, err := s.awaitTurn(ctx)
	if err != nil {
		return err
	}
	defer over()
	return s.queryRuns(ctx, scope, request, want, each)
}

// queryRuns asks for runs, those that are over and, unless it is known that there are
// none, those that are not at once, and hands them on one after the other, in
// the order of both.
func (s Service) queryRuns(
	ctx context.Context,
	scope query.Scope,
	request *query.Acct,
	want func(query.RunPart) bool,
	each func(acctRun) error,
) error {
	few := len(request.Jobs) > 0
	over, live := request.Runs(scope, want, few)
	ended := func(each func(acctRun) error) error { return s.scanRuns(ctx, over, want, each) }
	if few {
		ended = func(each func(acctRun) error) error {
			err := s.sortedRuns(ctx, over, want, each)
			if errors.Is(err, errMany) {
				over, _ = request.Runs(scope, want, false)
				err = s.scanRuns(ctx, over, want, each)
			}
			return err
		}
	}
	if s.D.openRunsCannotMatch(scope, request) {
		return ended(each)
	}
	ctx, cancel := context.WithCancel(ctx)
	ahead := readAhead(
		func(each func(acctRun) error) error { return s.scanRuns(ctx, live, want, each) },
		ctx.Done(),
	)
	defer ahead.awaitReader()
	defer cancel()
	err := ended(func(run acctRun) error {
		for next := ahead.headRun(); next != nil && comesBefore(next.row, run.row); next = ahead.headRun() {
			if err := each(*next); err != nil {
				return err
			}
			ahead.popRun()
		}
		return each(run)
	})
	for next := ahead.headRun(); err == nil && next != nil; next = ahead.headRun() {
		err = each(*next)
		ahead.popRun()
	}
	if err == nil {
		err = ahead.err
	}
	return err
}

// errMany tells that runs are too many to be sorted here.
var errMany = errors.New("many runs")

// sortedRuns asks a question whose answer comes in no order, and sorts it: for
// some runs that is less work than the store has with it. Of more it hands on
// none.
func (s Service) sortedRuns(
	ctx context.Context,
	q query.Query,
	want func(query.RunPart) bool,
	each func(acctRun) error,
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all []acctRun
	err := s.scanRuns(ctx, q, want, func(run acctRun) error {
		if len(all) == chunk {
			cancel() // else the answer is read to its end
			return errMany
		}
		all = append(all, run)
		return nil
	})
	slices.SortFunc(all, func(x, y acctRun) int { return runOrder(x.row, y.row) })
	for i := range all {
		if err == nil {
			err = each(all[i])
		}
	}
	return err
}

// scanRuns asks one question about runs.
func (s Service) scanRuns(
	ctx context.Context,
	q query.Query,
	want func(query.RunPart) bool,
	each func(acctRun) error,
) error {
	sc := newRunScan(want)
	return s.D.cfg.Store.Query(ctx, q, func(scan func(...any) error) error {
		if err := scan(sc.dest...); err != nil {
			return err
		}
		return each(sc.nextRow())
	})
}

// comesBefore tells which of two runs comes first.
func comesBefore(x, y *apiv1.AcctRow) bool { return runOrder(x, y) < 0 }

// runOrder is that of Acct.Runs.
func runOrder(x, y *apiv1.AcctRow) int {
	number := func(r *apiv1.AcctRow) uint32 { return cmp.Or(r.GetArrayJobId(), r.GetJobId()) }
	rest := func(row *apiv1.AcctRow) int {
		if row.GetArrayTask() < 0 {
			return 1
		}
		return 0
	}
	return cmp.Or(
		cmp.Compare(number(x), number(y)),
		cmp.Compare(rest(x), rest(y)),
		cmp.Compare(x.GetArrayTask(), y.GetArrayTask()),
		cmp.Compare(x.GetUid(), y.GetUid()),
		cmp.Compare(x.GetRestarts(), y.GetRestarts()),
	)
}

// runsAhead are runs that are read by a goroutine of their own, some thousand
// ahead of who takes them.
type runsAhead struct {
	chunks chan []acctRun // closed at the end
	now    []acctRun
	err    error // why it ended early; known once chunks is closed
}

// readAhead starts to read, until stop is closed at the latest.
func readAhead(read func(each func(acctRun) error) error, stop <-chan struct{}) *runsAhead {
	ahead := &runsAhead{chunks: make(chan []acctRun, 1)}
	go func() {
		defer close(ahead.chunks)
		var chunk []acctRun
		pass := func() {
			select {
			case ahead.chunks <- chunk:
			case <-stop:
			}
			chunk = nil
		}
		ahead.err = read(func(run acctRun) error {
			chunk = append(chunk, run)
			if len(chunk) == liveChunk {
				pass()
			}
			return nil
		})
		if len(chunk) > 0 {
			pass()
		}
	}()
	return ahead
}

// headRun is the next run, for which it waits; nil at the end.
func (a *runsAhead) headRun() *acctRun {
	for len(a.now) == 0 {
		chunk, more := <-a.chunks
		if !more {
			return nil
		}
		a.now = chunk
	}
	return &a.now[0]
}

// popRun takes the run that head gave.
func (a *runsAhead) popRun() { a.now = a.now[1:] }

// awaitReader ends when the reader has; its stop must be closed, or all be read.
func (a *runsAhead) awaitReader() {
	for range a.chunks {
	}
}
