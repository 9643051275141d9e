package daemon

import (
	"slices"
	"strconv"

	"github.com/musterhpc/muster/accounting/query"
	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/spec"
)

// openRuns are the runs that are not over at the position that was published,
// and perhaps some more: who asks for others need not look for them in the
// store. Guarded by the service's lock, as the position is, so that both belong
// together.
type openRuns struct {
	known bool
	runs  map[query.RunKey]openRun
}

// openRun is what a question can tell an open run by.
type openRun struct {
	job, array, uid uint32
	user            string
	submit          tally.Micros
}

// openLook is how many looks at open runs, at each for every job or user that is
// named, a question may cost: a fifth of what asking the store does. Meanwhile
// the service's lock is held.
const openLook = 50_000

func (o *openRuns) addRun(rows []tally.LiveRow) {
	for i := range rows {
		if r := &rows[i]; !r.Final {
			o.runs[query.RunKey{UID: r.UID, Restarts: r.Restarts}] = openRun{
				r.JobID,
				r.ArrayJobID,
				r.UserID,
				r.User,
				r.Submit,
			}
		}
	}
}

// forgetOpen: nothing is known of open runs until a generation of them begins.
func (d *Daemon) forgetOpen() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open = openRuns{}
}

// publishOpen publishes a position at which these runs are open and no others.
func (d *Daemon) publishOpen(pos tally.Position, rows []tally.LiveRow) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open = openRuns{known: true, runs: make(map[query.RunKey]openRun, len(rows))}
	d.open.addRun(rows)
	d.publishLocked(pos)
}

// noteOpening notes the runs of a batch that is about to be stored: until its
// position is published they may be seen, and those that end in it are still
// open.
func (d *Daemon) noteOpening(rows []tally.LiveRow) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open.known {
		d.open.addRun(rows)
	}
}

// publishBatch publishes the position of a batch; the runs that ended in it are
// among those that are over from now on.
func (d *Daemon) publishBatch(pos tally.Position, rows []tally.LiveRow) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range rows {
		if r := &rows[i]; r.Final {
			delete(d.open.runs, query.RunKey{UID: r.UID, Restarts: r.Restarts})
		}
	}
	d.publishLocked(pos)
}

// knowsOpenRuns tells whether the open runs in memory are those of a question's ledger and position.
// The caller holds mu.
func (d *Daemon) knowsOpenRuns(scope query.Scope) bool {
	if !d.open.known || !d.stored {
		return false
	}
	return d.ledger == scope.Ledger && d.pos.Seq == scope.Seq && d.pos.Gen == scope.Gen
}

// noneOpen tells that no run which is not over can match a question. Where that
// is not known, at another position or of another ledger, it is false.
func (d *Daemon) noneOpen(scope query.Scope, acct *query.Acct) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.knowsOpenRuns(scope) ||
		len(d.open.runs)*max(1, len(acct.Jobs)+len(acct.Users)) > openLook {
		return false
	}
	for _, r := range d.open.runs {
		if r.mayMatch(scope, acct) {
			return false
		}
	}
	return true
}

// mayMatch tells whether a run can be among those that a question is about. It looks
// at the conditions of query.Acct that keep most runs out.
func (r openRun) mayMatch(scope query.Scope, acct *query.Acct) bool {
	if len(acct.Jobs) > 0 &&
		!slices.ContainsFunc(
			acct.Jobs,
			func(j query.JobRef) bool { return j.ID == r.job || j.ID == r.array },
		) {
		return false
	}
	if len(acct.Users) > 0 && !slices.Contains(acct.Users, r.user) &&
		!slices.Contains(acct.Users, strconv.FormatUint(uint64(r.uid), 10)) {
		return false
	}
	return len(acct.States) > 0 || len(acct.Jobs) > 0 ||
		int64(r.submit) <= int64(acct.End)/int64(spec.Microsecond)
}
