package daemon

import (
	"slices"
	"strconv"

	"github.com/musterhpc/muster/accounting/query"
	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/spec"
)

// openRuns holds the runs that are open at the published position. It may hold runs that have
// ended, but lacks none that is open: a request that matches none of these runs need not read the
// live table of the store. Daemon.mu guards it together with the position, because the two are
// only true together.
type openRuns struct {
	known bool // false until the first generation of a session is written
	runs  map[query.RunKey]openRun
}

// openRun has the fields of an open run that requests select by.
type openRun struct {
	job, array, uid uint32
	user            string
	submit          tally.Micros
}

// maxOpenChecks limits the comparisons for one request: open runs times the jobs and users that
// it names. The lock of the service is held meanwhile. So many comparisons take a fifth of the
// time of the query that they may save.
const maxOpenChecks = 50_000

func (o *openRuns) addOpen(rows []tally.LiveRow) {
	for i := range rows {
		if row := &rows[i]; !row.Final {
			o.runs[query.RunKey{UID: row.UID, Restarts: row.Restarts}] = openRun{
				row.JobID,
				row.ArrayJobID,
				row.UserID,
				row.User,
				row.Submit,
			}
		}
	}
}

// forgetOpenRuns makes every request read the live table until publishGeneration is called. A new
// session of the ingester calls it, because another writer may have stored runs in between.
func (d *Daemon) forgetOpenRuns() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open = openRuns{}
}

// publishGeneration publishes the position of a new generation, whose rows are all open runs.
func (d *Daemon) publishGeneration(position tally.Position, rows []tally.LiveRow) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open = openRuns{known: true, runs: make(map[query.RunKey]openRun, len(rows))}
	d.open.addOpen(rows)
	d.publishLocked(position)
}

// noteOpenRuns adds the runs that a batch opens before the batch is stored, because readers may
// see its rows before its position is published. The runs that the batch ends stay open until then.
func (d *Daemon) noteOpenRuns(rows []tally.LiveRow) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open.known {
		d.open.addOpen(rows)
	}
}

// publishBatch publishes the position of a batch and removes the runs that the batch ended.
func (d *Daemon) publishBatch(position tally.Position, rows []tally.LiveRow) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range rows {
		if row := &rows[i]; row.Final {
			delete(d.open.runs, query.RunKey{UID: row.UID, Restarts: row.Restarts})
		}
	}
	d.publishLocked(position)
}

// knowsOpenRuns tells whether the open runs in memory are those of a request's ledger and position.
// The caller holds mu.
func (d *Daemon) knowsOpenRuns(scope query.Scope) bool {
	if !d.open.known || !d.stored {
		return false
	}
	return d.ledger == scope.Ledger && d.pos.Seq == scope.Seq && d.pos.Gen == scope.Gen
}

// openRunsCannotMatch tells whether it is certain that no open run matches a request. It is false
// when the request is about another position or ledger, or when the check would take too long.
func (d *Daemon) openRunsCannotMatch(scope query.Scope, acct *query.Acct) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.knowsOpenRuns(scope) {
		return false
	}
	perRun := max(1, len(acct.Jobs)+len(acct.Users))
	if len(d.open.runs)*perRun > maxOpenChecks {
		return false
	}
	for _, run := range d.open.runs {
		if run.mayMatch(acct) {
			return false
		}
	}
	return true
}

// mayMatch tells whether a request can select the run. It checks the conditions of query.Acct
// that exclude most runs. A true answer is only a maybe, and the store decides.
func (r openRun) mayMatch(acct *query.Acct) bool {
	if len(acct.Jobs) > 0 && !slices.ContainsFunc(acct.Jobs, r.isJob) {
		return false
	}
	if len(acct.Users) > 0 && !r.belongsTo(acct.Users) {
		return false
	}
	// As in Acct.windowClause: states have conditions of their own, and a job that is named is
	// shown even if the clock was set back after its submission.
	if len(acct.States) > 0 || len(acct.Jobs) > 0 {
		return true
	}
	return int64(r.submit) <= int64(acct.End)/int64(spec.Microsecond)
}

// isJob tells whether a number of -j names the run: its own, or that of its array.
func (r openRun) isJob(job query.JobRef) bool { return job.ID == r.job || job.ID == r.array }

// belongsTo tells whether one of the users, given by name or by number, owns the run.
func (r openRun) belongsTo(users []string) bool {
	return slices.Contains(users, r.user) ||
		slices.Contains(users, strconv.FormatUint(uint64(r.uid), 10))
}
