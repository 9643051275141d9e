package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	ch "github.com/ClickHouse/clickhouse-go/v2"

	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/accounting/tally/tallytest"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// shortJobs is a history of n jobs with a GPU each, one at a time.
func shortJobs(t tallytest.TB, n int) []event.Envelope {
	h := tallytest.New(t, spec.AtUnix(1_790_812_800))
	h.Nodes(2, 64, 512_000, 8)
	for range n {
		uid := h.Submit(tallytest.Ask{
			Name:    "train",
			User:    "alice",
			UID:     1001,
			Account: "ml",
			QOS:     "normal",
			CPUs:    4,
			Mem:     4000,
			GPUs:    1,
		})
		h.Wait(spec.Second)
		h.Start(uid, "n1")
		h.Wait(spec.Minute)
		h.Finish(uid, spec.Usage{UserCPU: 50 * spec.Second, HasRSS: true, PeakRSS: 1 << 30})
	}
	return h.Log
}

// mixed is a history with rows for every table, in three parts of which each
// has some of all, and jobs that are open at each cut.
func mixed(t tallytest.TB) (log []event.Envelope, cuts []uint64) {
	h := tallytest.New(t, spec.AtUnix(1_790_812_800-3600))
	h.Nodes(2, 64, 512_000, 8)
	var last spec.JobUID
	for i := range 3 {
		h.Accounts([]string{"ml"}, map[string][]string{"ml": {"alice"}})
		ask := tallytest.Ask{
			Name:    "train",
			User:    "alice",
			UID:     1001,
			Account: "ml",
			CPUs:    4,
			Mem:     4000,
			GPUs:    2,
		}
		for range 5 {
			uid := h.Submit(ask)
			h.Wait(spec.Second)
			h.Start(uid, "n1")
			h.Wait(spec.Minute)
			h.Finish(uid, spec.Usage{UserCPU: 50 * spec.Second})
		}
		if last != 0 {
			h.Finish(last, spec.Usage{})
		}
		last = h.Submit(ask)
		h.Submit(tallytest.Ask{
			Name:    "array",
			User:    "bob",
			Account: "ml",
			Array:   spec.TaskSet{{First: 1, Last: 9, Step: 1}},
		})
		h.Start(last, "n2")
		h.Put(&event.NodeStateSet{Node: "n1", State: event.NodeAdminState(1 + i%2), Reason: "test"})
		h.Wait(20 * spec.Minute)
		cuts = append(cuts, h.State.Seq)
	}
	return h.Log, cuts
}

// appended are the tables of rows that are never changed.
//

var appended = []string{
	"events",
	"jobs",
	"steps",
	"job_nodes",
	"job_gpus",
	"node_states",
	"pending_reasons",
	"associations",
}

// digest describes everything that a reader can see of a ledger.
func digest(t testing.TB, s *Store) string {
	t.Helper()
	pos, err := s.Position(context.Background(), tallytest.LedgerID)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "position %d", pos.Seq)
	for _, table := range appended {
		fmt.Fprintf(&b, ", %s %s", table, one[string](t, s, fmt.Sprintf(
			"SELECT concat(toString(count()), ' ', toString(sum(cityHash64(toString(tuple(* EXCEPT (ledger)))))))"+
				" FROM %s"+
				" WHERE seq <= %d", s.qualifyTable(table), pos.Seq)))
	}
	fmt.Fprintf(&b, ", open %s", one[string](t, s, fmt.Sprintf(
		"SELECT concat(toString(count()), ' ', toString(sum(cityHash64(uid, restarts, seq, state, array_tasks, held_nodes))))"+
			" FROM %s FINAL"+
			" WHERE gen = %d AND NOT final",
		s.qualifyTable("live"), pos.Gen)))
	return b.String()
}

// leftovers counts rows beyond the position, which no reader may see.
func leftovers(t testing.TB, s *Store) uint64 {
	var n uint64
	pos, err := s.Position(context.Background(), tallytest.LedgerID)
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range appended {
		n += one[uint64](t, s, fmt.Sprintf("SELECT count() FROM %s WHERE seq > %d", s.qualifyTable(table), pos.Seq))
	}
	return n
}

// resume goes on where the store is, as a new ingester does, up to the last
// cut. hook may stop it.
func resume(ctx context.Context, s *Store, log []event.Envelope, cuts []uint64, hook func(string) error) error {
	w, res, err := s.NewWriter(ctx, tallytest.LedgerID, "peer")
	if err != nil {
		return err
	}
	w.hook = hook
	if hook != nil {
		w.halve = 9 // some tables of some batches
	}
	ta := tally.New()
	ta.Quiet(true)
	apply := func(to uint64) error {
		for ta.Seq() < to {
			if err := ta.Apply(&log[ta.Seq()]); err != nil {
				return err
			}
		}
		return nil
	}
	if err := apply(res.Seq); err != nil {
		return err
	}
	ta.Take()
	ta.Quiet(false)
	if err := w.Generation(ctx, ta.AllLive()); err != nil {
		return err
	}
	if res.Redo != 0 && !slices.Contains(cuts, res.Redo) {
		return fmt.Errorf("it wants the batch up to %d again, which nobody cut", res.Redo)
	}
	for _, cut := range cuts {
		if cut <= res.Seq {
			continue
		}
		if err := apply(cut); err != nil {
			return err
		}
		if err := w.Write(ctx, ta.Take()); err != nil {
			return err
		}
	}
	return nil
}

// TestCrashPoints stops the writer at every step of a batch, and lets another
// go on: whatever step it was, everything is there once, and nothing of a half
// batch was ever visible.
func TestCrashPoints(t *testing.T) {
	socket := startEngine(t).Socket()
	log, cuts := mixed(t)
	ref := openStore(t, socket, "ref")
	var mu sync.Mutex
	steps := 0
	halves := 0
	err := resume(context.Background(), ref, log, cuts, func(step string) error {
		mu.Lock()
		defer mu.Unlock()
		steps++
		if strings.HasPrefix(step, "second half") {
			halves++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := digest(t, ref)
	if steps < 50 || halves < 3 {
		t.Fatalf("only %d steps, %d of them between halves of an insert", steps, halves)
	}
	stopped := errors.New("stopped by the test")
	dense := 12 // all of the first batch, then some
	if os.Getenv("MUSTER_LONG") == "" {
		dense = 2
	}
	for k := 1; k <= steps; k += 1 + k/dense {
		s := openStore(t, socket, fmt.Sprintf("crash%d", k))
		n, name := 0, ""
		err := resume(context.Background(), s, log, cuts, func(step string) error {
			mu.Lock()
			defer mu.Unlock()
			if n++; n == k {
				name = step
			}
			if n >= k {
				return stopped
			}
			return nil
		})
		if !errors.Is(err, stopped) {
			t.Fatalf("step %d: %v", k, err)
		}
		left := leftovers(t, s)
		if err := resume(context.Background(), s, log, cuts, nil); err != nil {
			t.Fatalf("after a stop at step %d (%s): %v", k, name, err)
		}
		if got := digest(t, s); got != want {
			t.Fatalf("after a stop at step %d (%s, %d rows beyond the position)\nwant %s\ngot  %s", k, name, left, want, got)
		}
	}
}

// TestRetry: the same writer may write a batch again after an error, also
// when rows of it are missing although the server has its token.
func TestRetry(t *testing.T) {
	s := openStore(t, startEngine(t).Socket(), "retry")
	log, cuts := mixed(t)
	if err := resume(context.Background(), s, log, cuts, nil); err != nil {
		t.Fatal(err)
	}
	want := digest(t, s)
	ctx := context.Background()
	r := openStore(t, s.opts.Socket, "retry2")
	ta := tally.New()
	w, _ := newWriter(t, r, ta)
	fault := errors.New("the test's fault")
	for i, cut := range cuts {
		b := fold(t, ta, log[ta.Seq():cut])
		w.hook = func(step string) error {
			if step == "live" {
				return fault
			}
			return nil
		}
		if err := w.Write(ctx, b); !errors.Is(err, fault) {
			t.Fatal(err)
		}
		// The rows are there; take some away behind the deduplication's back.
		sql := fmt.Sprintf("ALTER TABLE %s DELETE WHERE seq > %d", r.qualifyTable(appended[i]), b.First)
		if err := r.conn.Exec(ch.Context(ctx, ch.WithSettings(ch.Settings{"mutations_sync": 2})), sql); err != nil {
			t.Fatal(err)
		}
		w.hook = nil
		if err := w.Write(ctx, b); err != nil {
			t.Fatal(err)
		}
	}
	if got := digest(t, r); got != want {
		t.Errorf("\nwant %s\ngot  %s", want, got)
	}
	b := &tally.Batch{First: 5, Last: 6}
	if err := w.Write(ctx, b); !errors.Is(err, tally.ErrOrder) {
		t.Errorf("a batch that does not follow: %v", err)
	}
}

// TestWrongCut: a batch that was interrupted must be written as it was cut.
func TestWrongCut(t *testing.T) {
	s := openStore(t, startEngine(t).Socket(), "cut")
	log, cuts := mixed(t)
	fault := errors.New("the test's fault")
	err := resume(context.Background(), s, log, cuts, func(step string) error {
		if step == "live" {
			return fault
		}
		return nil
	})
	if !errors.Is(err, fault) {
		t.Fatal(err)
	}
	if err := resume(context.Background(), s, log, cuts[1:], nil); err == nil {
		t.Error("another cut was accepted")
	}
	if err := resume(context.Background(), s, log, cuts, nil); err != nil {
		t.Error(err)
	}
}

// victimEnv holds socket, database and step of the process that is to die.
const victimEnv = "MUSTER_TEST_VICTIM"

// failer is a test of the victim process, which has no testing.T.
type failer struct{}

func (failer) Helper() {}
func (failer) Fatalf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	os.Exit(1)
}

// victim is an ingester that kills itself at a step.
func victim() int {
	var socket, db, at string
	if n, err := fmt.Sscan(os.Getenv(victimEnv), &socket, &db, &at); n != 3 || err != nil {
		return 1
	}
	last, err := strconv.Atoi(at)
	if err != nil {
		return 1
	}
	s, err := Open(Options{Socket: socket, Database: db})
	if err != nil {
		return 1
	}
	log, cuts := mixed(failer{})
	var mu sync.Mutex
	n := 0
	err = resume(context.Background(), s, log, cuts, func(string) error {
		mu.Lock()
		defer mu.Unlock()
		if n++; n == last {
			return syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		return nil
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// TestKill9 kills ingesters, one after the other, at one step after another,
// each going on where the last one was, until one comes through.
func TestKill9(t *testing.T) {
	socket := startEngine(t).Socket()
	log, cuts := mixed(t)
	ref := openStore(t, socket, "ref")
	if err := resume(context.Background(), ref, log, cuts, nil); err != nil {
		t.Fatal(err)
	}
	want := digest(t, ref)
	s := openStore(t, socket, "kill")
	kills := 0
	for step := 3; ; step += 4 {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s kill %d", victimEnv, socket, step))
		cmd.Stderr = os.Stderr
		err := cmd.Run()
		if err == nil {
			break
		}
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("the ingester ended otherwise than by its kill at step %d: %v", step, err)
		}
		kills++
	}
	if kills < 5 {
		t.Errorf("only %d ingesters were killed", kills)
	}
	if got := digest(t, s); got != want {
		t.Errorf("after %d kills\nwant %s\ngot  %s", kills, want, got)
	}
}
