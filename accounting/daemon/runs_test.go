package daemon_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/musterhpc/muster/accounting/query"
	"github.com/musterhpc/muster/accounting/tally/tallytest"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

// TestRunsOfBothTables: runs that are over and runs that are not come in one
// order, as one question over both tables would give them; a user's number is
// as good as the name, and steps have what they have of their runs. Jobs that are
// named by number, of which not all is asked for one behind the other, have the
// rows that they have among all.
func TestRunsOfBothTables(t *testing.T) {
	engine := startEngine(t)
	over, live, steps := 0, 0, 0
	for seed := range 3 {
		h := rapid.Custom(func(t *rapid.T) *tallytest.History { return tallytest.Random(t, 300) }).Example(seed)
		ledger := newLedger(t)
		ledger.add(t, h.Log, 25)
		r := newRigIn(t, engine.Socket(), fmt.Sprintf("runs%d", seed), ledger)
		r.clock.set(h.Now.Add(spec.Minute))
		r.start()
		r.stored(uint64(len(h.Log)))
		pos, err := r.store.Position(t.Context(), tallytest.LedgerID)
		if err != nil {
			t.Fatal(err)
		}
		var want, got []string
		ids := map[uint64]uint32{}
		listed := query.Query{SQL: listedRuns(seed, pos.Seq, pos.Gen, h.Now.Add(spec.Minute))}
		err = r.store.Query(t.Context(), listed, func(scan func(...any) error) error {
			var uid uint64
			var restarts, id, attempt uint32
			var isOver bool
			if err := scan(&uid, &restarts, &id, &attempt, &isOver); err != nil {
				return err
			}
			want, ids[uid] = append(want, fmt.Sprint(uid, restarts, attempt)), id
			if isOver {
				over++
			} else {
				live++
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		rows := r.acct(&apiv1.AcctQuery{AllUsers: true, Duplicates: true, Start: 1})
		users := map[uint32]int{}
		var last *apiv1.AcctRow
		for _, row := range rows {
			if row.GetStep() == "" {
				last = row
				got = append(got, fmt.Sprint(row.GetUid(), row.GetRestarts(), row.GetAttempt()))
				users[row.GetUserId()]++
				continue
			}
			steps++
			if row.GetUid() != last.GetUid() || row.GetJobId() != last.GetJobId() || row.GetAttempt() != last.GetAttempt() || row.GetUser() != last.GetUser() ||
				row.GetAccount() != last.GetAccount() || row.GetUserId() != last.GetUserId() {
				t.Errorf("seed %d: a step of run %v is %v", seed, last, row)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("seed %d:\ngot  %v\nwant %v", seed, got, want)
		}
		byNumber(t, r, rows, h.Now.Add(spec.Minute))
		for id, n := range users {
			if of := r.acct(&apiv1.AcctQuery{Users: []string{fmt.Sprint(id), "nobody-known"}, AllocationsOnly: true, Duplicates: true, Start: 1}); len(of) != n {
				t.Errorf("seed %d: user %d has %d runs, by number %d are found", seed, id, n, len(of))
			}
			if of := r.acct(&apiv1.AcctQuery{Users: []string{fmt.Sprintf("0%d", id)}, AllocationsOnly: true, Duplicates: true, Start: 1}); len(of) != 0 {
				t.Errorf("seed %d: %d runs are of user 0%d", seed, len(of), id)
			}
		}
		r.stop()
	}
	if over == 0 || live == 0 || steps == 0 {
		t.Errorf("%d runs are over, %d are not, %d steps: the histories show nothing", over, live, steps)
	}
}

// listedRuns asks for the runs of both tables that a listing has at an instant, in its order: those
// that count by then, because nothing but room is missing to them.
func listedRuns(seed int, seq uint64, gen uint32, now spec.Instant) string {
	part := func(table, over, where string) string {
		const counts = "ifNull(ifNull(eligible, start) <= fromUnixTimestamp64Micro(%d, 'UTC'), false)"
		return fmt.Sprintf("SELECT job_id, array_job_id, array_task, uid, restarts, user_id, attempt, %s AS over"+
			" FROM runs%d.%s WHERE %s AND "+counts, over, seed, table, where, int64(now)/1000)
	}
	ended := part("jobs", "true", fmt.Sprintf("seq <= %d", seq))
	open := part("live FINAL", "false", fmt.Sprintf("gen = %d AND (NOT final OR seq > %d)", gen, seq))
	return "SELECT uid, restarts, user_id, attempt, over FROM (" + ended + " UNION ALL " + open + ")" +
		" ORDER BY if(array_job_id = 0, job_id, array_job_id), array_task < 0, array_task, uid, restarts"
}

// byNumber compares what is said of some jobs that are named with what is said of them among all.
// A job that is named is shown also where it does not count yet.
func byNumber(t *testing.T, r *rig, all []*apiv1.AcctRow, now spec.Instant) {
	t.Helper()
	numbers := map[uint32]bool{}
	for _, row := range all {
		numbers[row.GetJobId()], numbers[cmp.Or(row.GetArrayJobId(), row.GetJobId())] = true, true
	}
	some := slices.Sorted(maps.Keys(numbers))
	for i := 0; i < len(some); i += 1 + len(some)/20 {
		n := some[i]
		of := slices.DeleteFunc(slices.Clone(all), func(row *apiv1.AcctRow) bool { return row.GetJobId() != n && row.GetArrayJobId() != n })
		got := r.acct(&apiv1.AcctQuery{Jobs: []string{fmt.Sprint(n)}, Duplicates: true})
		got = slices.DeleteFunc(got, func(row *apiv1.AcctRow) bool {
			since := cmp.Or(row.GetEligible(), row.GetStart())
			return row.GetStep() == "" && (since == 0 || since > int64(now))
		})
		if !slices.EqualFunc(got, of, func(x, y *apiv1.AcctRow) bool { return proto.Equal(x, y) }) {
			t.Errorf("job %d:\ngot  %v\nwant %v", n, got, of)
		}
	}
}
