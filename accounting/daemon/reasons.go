package daemon

import (
	"context"

	"github.com/musterhpc/muster/accounting/query"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

// Reasons tells why a job waited, over its whole life. Accounting owns this
// history, not the controller: the state holds only the last reason of a job,
// and forgets the job some minutes after its end; the ledger's archive holds
// every reason but is ordered by time, so that finding one job's would read
// all that happened since its submission. The store has them by job.
func (s Service) Reasons(
	ctx context.Context, request *apiv1.ReasonsQuery,
) (*apiv1.ReasonsReply, error) {
	ref, err := query.ParseJobRef(request.GetJob())
	if err != nil || ref.Step != "" {
		return nil, spec.Refuse(spec.CodeInvalidJobID, request.GetJob())
	}
	scope, behind, err := s.D.scopeOf(ctx, request.GetCluster(), request.GetMinSeq())
	if err != nil {
		return nil, s.D.storeAway(err)
	}
	ask := &query.Acct{Jobs: []query.JobRef{ref}, Allocations: true, Duplicates: true}
	if err := s.D.restrictToOwn(ctx, scope, ask); err != nil {
		return nil, s.D.storeAway(err)
	}
	ask.Window(scope.Now, scope.Now)
	// Every run, also an array's record that stands no longer for the task that
	// was named.
	a := &answer{scope: scope, ask: ask}
	if err := s.eachRun(ctx, scope, ask, wantedParts(nil), func(run acctRun) error { a.runs = append(a.runs, run); return nil }); err != nil {
		return nil, s.D.storeAway(err)
	}
	reply := &apiv1.ReasonsReply{
		Seq:     scope.Event(),
		Behind:  behind,
		Cluster: scope.Cluster,
		Now:     int64(scope.Now),
	}
	w := waits{ref: ref}
	w.pickRuns(a)
	if w.newestRun() == nil {
		return reply, nil
	}
	if err := s.D.cfg.Store.Query(ctx, query.Reasons(scope, w.uids()), w.readRow); err != nil {
		return nil, s.D.storeAway(err)
	}
	a.runs = []acctRun{{row: w.newestRun()}}
	a.assembleRows(&apiv1.AcctReply{})
	reply.Run, reply.Periods = w.newestRun(), w.makePeriods()
	return reply, nil
}

// waits puts the reasons of one job together. A task of an array waits as part
// of the array's record until it gets a record of its own, mostly at its start.
type waits struct {
	ref   query.JobRef
	array *apiv1.AcctRow   // the array's record, where a task is asked for
	runs  []*apiv1.AcctRow // of the job or task, oldest first
	rows  []waitRow
}

type waitRow struct {
	key    query.RunKey
	at     int64
	reason *apiv1.Reason
}

// pickRuns finds the record and the runs among all that the number names.
func (w *waits) pickRuns(a *answer) {
	for i := range a.runs {
		row := a.runs[i].row
		switch {
		case w.ref.Task != spec.NoTask && row.GetArrayTask() < 0:
			w.array = row
		case w.ref.Task != spec.NoTask, row.GetJobId() == w.ref.ID:
			w.runs = append(w.runs, row)
		}
	}
	if len(w.runs) == 0 && w.array != nil && a.standsForTask(w.array) {
		w.runs, w.array = []*apiv1.AcctRow{w.array}, nil
	}
}

// newestRun is the newest run; nil if there is none.
func (w *waits) newestRun() *apiv1.AcctRow {
	if len(w.runs) == 0 {
		return nil
	}
	return w.runs[len(w.runs)-1]
}

func (w *waits) uids() []uint64 {
	out := []uint64{w.runs[0].GetUid()}
	if w.array != nil {
		out = append(out, w.array.GetUid())
	}
	return out
}

// readRow reads a row of query.Reasons.
func (w *waits) readRow(scan func(...any) error) error {
	row := waitRow{reason: &apiv1.Reason{}}
	reason := row.reason
	if err := scan(&row.key.UID, &row.key.Restarts, &row.at, &reason.Code, &reason.Tres, &reason.Limit, &reason.Used, &reason.Asked, &reason.Subject, &reason.Blocker, &reason.Detail); err != nil {
		return err
	}
	row.at *= micro
	w.rows = append(w.rows, row)
	return nil
}

// makePeriods makes spans of the rows: each lasts until the next of its run, or
// until the run started or was over. Spans without length are left out.
func (w *waits) makePeriods() []*apiv1.ReasonPeriod {
	var periods []*apiv1.ReasonPeriod
	add := func(r *apiv1.AcctRow, uid uint64, until int64) {
		var open *apiv1.ReasonPeriod
		shut := func(at int64) {
			if open != nil && (at == 0 || at > open.From) {
				open.To = at
				periods = append(periods, open)
			}
		}
		for _, row := range w.rows {
			if row.key != (query.RunKey{UID: uid, Restarts: r.GetRestarts()}) ||
				(until != 0 && row.at >= until) {
				continue
			}
			shut(row.at)
			open = &apiv1.ReasonPeriod{Reason: row.reason, From: row.at, Restarts: r.GetRestarts()}
		}
		shut(until)
	}
	first := w.runs[0]
	if w.array != nil {
		at := waitEnd(first)
		for _, row := range w.rows { // a record of its own that waits
			if row.key.UID == first.GetUid() {
				at = row.at
				break
			}
		}
		add(w.array, w.array.GetUid(), at)
	}
	for _, row := range w.runs {
		add(row, row.GetUid(), waitEnd(row))
	}
	return periods
}

// waitEnd is when a run waited no more; 0 = it still waits.
func waitEnd(row *apiv1.AcctRow) int64 {
	if row.GetStart() != 0 {
		return row.GetStart()
	}
	return row.GetEnd()
}
