package daemon

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/musterhpc/muster/accounting/query"
	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/spec"
)

// TestOpenRuns: what is known of open runs belongs to the published position; a
// run that ends in a batch is open until the batch's position is published, and
// one that begins in it may be seen before.
func TestOpenRuns(t *testing.T) {
	d := New(Config{})
	d.ledger = [16]byte{1}
	at := func(seq uint64) query.Scope { return query.Scope{Ledger: d.ledger, Seq: seq, Gen: 1} }
	pos := func(seq uint64) tally.Position { return tally.Position{Seq: seq, Gen: 1} }
	live := func(id, array uint32, user string, final bool) tally.LiveRow {
		return tally.LiveRow{Final: final, JobRow: tally.JobRow{UID: uint64(id), JobID: id, ArrayJobID: array, User: user, UserID: 1000 + id, Submit: 5_000_000}}
	}
	job := func(id uint32) query.Acct { return query.Acct{Jobs: []query.JobRef{{ID: id, Task: spec.NoTask}}} }
	user := func(name string, end spec.Instant) query.Acct { return query.Acct{Users: []string{name}, End: end} }
	want := func(when string, s query.Scope, a query.Acct, none bool) {
		t.Helper()
		if got := d.openRunsCannotMatch(s, &a); got != none {
			t.Errorf("%s: none open that matches %+v is %v", when, a, got)
		}
	}
	want("unknown", at(1), job(9), false)
	d.publishGeneration(pos(1), []tally.LiveRow{live(1, 0, "alice", false), live(5, 4, "carol", false)})
	want("begun", at(1), job(1), false)
	want("begun", at(1), job(2), true)
	want("a task", at(1), job(5), false)
	want("its array", at(1), job(4), false)
	want("another position", at(2), job(2), false)
	want("another ledger", query.Scope{Seq: 1, Gen: 1}, job(2), false)
	want("another generation", query.Scope{Ledger: d.ledger, Seq: 1, Gen: 2}, job(2), false)
	want("of a user", at(1), user("alice", 6e9), false)
	want("by number", at(1), user("1001", 6e9), false)
	want("of another", at(1), user("bob", 6e9), true)
	want("submitted later", at(1), user("alice", 4e9), true)
	want("no condition", at(1), query.Acct{End: 6e9}, false)
	many := query.Acct{Jobs: slices.Repeat(job(2).Jobs, maxOpenChecks/2)}
	want("of as many as are looked for", at(1), many, true)
	many.Jobs = append(many.Jobs, many.Jobs[0])
	want("of more", at(1), many, false)
	want("by state", at(1), query.Acct{States: []uint32{uint32(spec.Pending)}, End: 1}, false)

	batch := []tally.LiveRow{live(1, 0, "alice", true), live(2, 0, "bob", false)}
	d.noteOpenRuns(batch)
	want("it ends", at(1), job(1), false)
	want("it begins", at(1), job(2), false)
	d.publishBatch(pos(2), batch)
	want("it ended", at(2), job(1), true)
	want("it began", at(2), job(2), false)
	want("the position before", at(1), job(1), false)
	d.stored = false
	want("restored", at(2), job(1), false)
	d.stored = true
	d.forgetOpenRuns()
	want("forgotten", at(2), job(1), false)
	d.noteOpenRuns(batch)
	d.publishBatch(pos(3), batch)
	want("still forgotten", at(3), job(1), false)
}

// runsStore answers questions about runs that are over with n of them: in
// order when it is asked for that, else the other way round.
type runsStore struct {
	Store
	n     uint64
	asked []string
}

func (s *runsStore) Database() string { return "x" }

// Ping is called where an answer takes longer than 200 ms, as on a busy machine.
func (s *runsStore) Ping(context.Context) error { return nil }

func (s *runsStore) Query(_ context.Context, q query.Query, each func(scan func(dest ...any) error) error) error {
	if strings.Contains(q.SQL, ".live") {
		return nil
	}
	s.asked = append(s.asked, q.SQL)
	for i := range s.n {
		uid := i + 1
		if !strings.Contains(q.SQL, "ORDER BY") {
			uid = s.n - i
		}
		if err := each(func(dest ...any) error { *dest[0].(*uint64) = uid; return nil }); err != nil {
			return err
		}
	}
	return nil
}

// TestSortedHere: some runs that are named by number are sorted by the service,
// many by the store; each comes once and in order.
func TestSortedHere(t *testing.T) {
	for n, statements := range map[uint64]int{0: 1, 1: 1, chunk: 1, chunk + 1: 2} {
		store := &runsStore{n: n}
		s := Service{D: New(Config{Store: store})}
		last := uint64(0)
		err := s.eachRun(t.Context(), query.Scope{}, &query.Acct{Jobs: []query.JobRef{{ID: 1, Task: spec.NoTask}}}, wantedParts([]string{"name"}), func(run acctRun) error {
			if run.key.UID != last+1 {
				t.Fatalf("of %d runs %d comes behind %d", n, run.key.UID, last)
			}
			last = run.key.UID
			return nil
		})
		if err != nil || last != n || len(store.asked) != statements {
			t.Errorf("of %d runs %d came, with %d statements: %v", n, last, len(store.asked), err)
		}
	}
}
