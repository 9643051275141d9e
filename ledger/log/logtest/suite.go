package logtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/musterhpc/muster/ledger/log"
)

// Store is one place where a log lives; Open may be called again after the log was closed.
type Store interface {
	Open(t testing.TB, machine log.Machine) (log.Log, error)
	// Fault makes the next appends fail until the returned function is called. nil when this
	// store cannot.
	Fault() (heal func())
}

// Suite is what every implementation of log.Log must pass. fresh returns an empty store.
func Suite(t *testing.T, fresh func(t testing.TB) Store) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, s Store)
	}{
		{"order", testOrder},
		{"pipelined", testPipelined},
		{"concurrent appenders", testConcurrent},
		{"batches are atomic and copied", testCopied},
		{"restart replays exactly", testRestart},
		{"snapshot at any point", testSnapshots},
		{"a refused batch stops the log", testRefused},
		{"nothing follows a failed batch", testFault},
		{"too large", testTooLarge},
		{"close", testClose},
		{"barrier", testBarrier},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, fresh(t)) })
	}
}

func open(t testing.TB, store Store) (log.Log, *Machine) {
	t.Helper()
	machine := &Machine{}
	l, err := store.Open(t, machine)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return l, machine
}

func closeLog(t testing.TB, l log.Log) {
	t.Helper()
	if err := l.Close(context.Background()); err != nil {
		t.Fatalf("close: %v", err)
	}
}

func wait(t testing.TB, pending log.Pending) log.Position {
	t.Helper()
	position, err := pending.Wait(context.Background())
	if err != nil {
		t.Fatalf("wait: %v", err)
	}
	return position
}

func batch(i int) []byte { return fmt.Appendf(nil, "batch %d", i) }

func testOrder(t *testing.T, store Store) {
	l, machine := open(t, store)
	defer closeLog(t, l)
	for i := 1; i <= 200; i++ {
		if position := wait(t, l.Append(batch(i))); position != log.Position(i) {
			t.Fatalf("batch %d got position %d", i, position)
		}
		if got := l.LastPosition(); got != log.Position(i) {
			t.Fatalf("last position %d after batch %d: Wait returned before it was applied", got, i)
		}
	}
	for i, b := range machine.Batches() {
		if !bytes.Equal(b, batch(i+1)) {
			t.Fatalf("position %d holds %q", i+1, b)
		}
	}
}

func testPipelined(t *testing.T, store Store) {
	l, machine := open(t, store)
	defer closeLog(t, l)
	var ps []log.Pending
	for i := 1; i <= 5000; i++ {
		ps = append(ps, l.Append(batch(i)))
	}
	for i, p := range ps {
		if position := wait(t, p); position != log.Position(i+1) {
			t.Fatalf("batch %d got position %d", i+1, position)
		}
	}
	if n := len(machine.Batches()); n != 5000 {
		t.Fatalf("%d batches applied", n)
	}
}

func testConcurrent(t *testing.T, store Store) {
	l, machine := open(t, store)
	const callers, each = 16, 100
	at := make([]map[log.Position]string, callers)
	var wg sync.WaitGroup
	for c := range callers {
		at[c] = map[log.Position]string{}
		wg.Add(1)
		go func() {
			defer wg.Done()
			last := log.Position(0)
			for i := range each {
				b := fmt.Sprintf("%d/%d", c, i)
				position, err := l.Append([]byte(b)).Wait(context.Background())
				if err != nil || position <= last {
					t.Errorf("%s: position %d after %d, %v", b, position, last, err)
					return
				}
				last = position
				at[c][position] = b
			}
		}()
	}
	wg.Wait()
	closeLog(t, l)
	got := machine.Batches()
	if len(got) != callers*each {
		t.Fatalf("%d batches applied, want %d", len(got), callers*each)
	}
	for c := range at {
		for position, b := range at[c] {
			if string(got[position-1]) != b {
				t.Fatalf(
					"position %d holds %q, its caller was told %q", position, got[position-1], b,
				)
			}
		}
	}
}

func testCopied(t *testing.T, store Store) {
	l, machine := open(t, store)
	defer closeLog(t, l)
	buffer := bytes.Repeat([]byte{7}, 100_000)
	pending := l.Append(buffer)
	for i := range buffer {
		buffer[i] = 9
	}
	wait(t, pending)
	wait(t, l.Append(nil))
	got := machine.Batches()
	if !bytes.Equal(got[0], bytes.Repeat([]byte{7}, 100_000)) || len(got[1]) != 0 {
		t.Fatal("a batch changed after Append returned")
	}
}

func testRestart(t *testing.T, store Store) {
	want := 0
	for round := range 5 {
		l, machine := open(t, store)
		if n := len(machine.Batches()); n != want || l.LastPosition() != log.Position(want) {
			t.Fatalf("round %d: %d batches, position %d, want %d", round, n, l.LastPosition(), want)
		}
		for range 50 {
			want++
			if position := wait(t, l.Append(batch(want))); position != log.Position(want) {
				t.Fatalf("batch %d got position %d", want, position)
			}
		}
		if round == 2 {
			if err := l.Snapshot(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		closeLog(t, l)
		for i, b := range machine.Batches() {
			if !bytes.Equal(b, batch(i+1)) {
				t.Fatalf("position %d holds %q", i+1, b)
			}
		}
	}
}

func testSnapshots(t *testing.T, store Store) {
	n := 0
	for round := range 8 {
		l, machine := open(t, store)
		for range 37 {
			n++
			pending := l.Append(batch(n))
			if n%(5+round) == 0 {
				if err := l.Snapshot(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
			wait(t, pending)
		}
		live := machine.Hash()
		closeLog(t, l)
		l, machine = open(t, store)
		if machine.Hash() != live || len(machine.Batches()) != n {
			t.Fatalf(
				"round %d: %d batches after the restart, want %d",
				round,
				len(machine.Batches()),
				n,
			)
		}
		if machine.Restored() == 0 {
			t.Fatal("the restart did not begin with the snapshot")
		}
		closeLog(t, l)
	}
}

var errRefused = errors.New("the machine does not like 13")

func testRefused(t *testing.T, store Store) {
	refuse := func(position log.Position, _ []byte) error {
		if position == 13 {
			return errRefused
		}
		return nil
	}
	machine := &Machine{Refuse: refuse}
	l, err := store.Open(t, machine)
	if err != nil {
		t.Fatal(err)
	}
	var ps []log.Pending
	for i := 1; i <= 20; i++ {
		ps = append(ps, l.Append(batch(i)))
	}
	for i, pending := range ps {
		_, err := pending.Wait(context.Background())
		if (i < 12) != (err == nil) {
			t.Fatalf("batch %d: %v", i+1, err)
		}
		if err != nil && !errors.Is(err, errRefused) {
			t.Fatalf("batch %d failed without the cause: %v", i+1, err)
		}
	}
	<-l.Done()
	if !errors.Is(l.Err(), errRefused) || len(machine.Batches()) != 12 {
		t.Fatalf("stopped with %v after %d batches", l.Err(), len(machine.Batches()))
	}
	if _, err := l.Append(batch(21)).Wait(context.Background()); !errors.Is(err, log.ErrStopped) {
		t.Fatalf("append to a stopped log: %v", err)
	}
	if err := l.Resume(context.Background()); !errors.Is(err, log.ErrStopped) {
		t.Fatalf("resume of a stopped log: %v", err)
	}
	closeLog(t, l)
	// The same machine refuses the same batch again, at once and by name; a mended one goes on.
	if _, err := store.Open(t, &Machine{Refuse: refuse}); !errors.Is(err, errRefused) {
		t.Fatalf("reopened over a batch the machine refuses: %v", err)
	}
	l, machine = open(t, store)
	defer closeLog(t, l)
	if n := len(machine.Batches()); n < 13 {
		t.Fatalf("%d batches after the machine was mended", n)
	}
}

func testFault(t *testing.T, store Store) {
	l, machine := open(t, store)
	defer closeLog(t, l)
	wait(t, l.Append(batch(1)))
	mend := store.Fault()
	if mend == nil {
		t.Skip("this store has no faults")
	}
	var failures int
	for i := 2; i < 400; i++ {
		if _, err := l.Append(bytes.Repeat(batch(i), 200)).Wait(context.Background()); err != nil {
			failures++
			if !errors.Is(err, log.ErrDiskFull) && !errors.Is(err, log.ErrNotLeader) {
				t.Fatalf("batch %d failed with %v", i, err)
			}
		} else if failures > 0 {
			t.Fatalf("batch %d was accepted after an earlier one failed", i)
		}
	}
	if failures == 0 {
		t.Fatal("the fault did not show")
	}
	applied := len(machine.Batches())
	if err := l.Barrier(context.Background()); err == nil {
		t.Fatal("a barrier passed a failed batch")
	}
	mend()
	if err := l.Resume(context.Background()); err != nil {
		t.Fatalf("resume: %v", err)
	}
	if n := len(machine.Batches()); n != applied {
		t.Fatalf("%d batches after the failure, %d now: one that failed was applied", applied, n)
	}
	if position := wait(t, l.Append([]byte("after"))); position != log.Position(applied+1) {
		t.Fatalf("position %d after %d", position, applied)
	}
}

func testTooLarge(t *testing.T, store Store) {
	l, machine := open(t, store)
	defer closeLog(t, l)
	first := l.Append(batch(1))
	if _, err := l.Append(make([]byte, log.MaxBatchBytes+1)).Wait(context.Background()); !errors.Is(
		err,
		log.ErrTooLarge,
	) {
		t.Fatalf("a huge batch: %v", err)
	}
	if _, err := l.Append(batch(2)).Wait(context.Background()); !errors.Is(err, log.ErrTooLarge) {
		t.Fatalf("a batch behind a refused one: %v", err)
	}
	wait(t, first)
	if err := l.Resume(context.Background()); err != nil {
		t.Fatal(err)
	}
	wait(t, l.Append(batch(3)))
	if n := len(machine.Batches()); n != 2 {
		t.Fatalf("%d batches", n)
	}
}

func testClose(t *testing.T, store Store) {
	l, machine := open(t, store)
	var ps []log.Pending
	for i := 1; i <= 100; i++ {
		ps = append(ps, l.Append(batch(i)))
	}
	closeLog(t, l)
	for i, p := range ps {
		if _, err := p.Wait(context.Background()); err != nil {
			t.Fatalf("batch %d, appended before Close: %v", i+1, err)
		}
	}
	if n := len(machine.Batches()); n != 100 {
		t.Fatalf("%d batches applied at Close", n)
	}
	<-l.Done()
	for name, err := range map[string]error{
		"Append":   func() error { _, err := l.Append(batch(0)).Wait(context.Background()); return err }(),
		"Barrier":  l.Barrier(context.Background()),
		"Resume":   l.Resume(context.Background()),
		"Snapshot": l.Snapshot(context.Background()),
		"Err":      l.Err(),
	} {
		if !errors.Is(err, log.ErrClosed) {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
	closeLog(t, l)
}

func testBarrier(t *testing.T, store Store) {
	l, machine := open(t, store)
	defer closeLog(t, l)
	for i := 1; i <= 30; i++ {
		l.Append(batch(i))
		if err := l.Barrier(context.Background()); err != nil {
			t.Fatal(err)
		}
		if n := len(machine.Batches()); n != i {
			t.Fatalf("%d batches behind barrier %d", n, i)
		}
	}
	if position := l.LastPosition(); position != 30 {
		t.Fatalf("barriers took positions: %d", position)
	}
	if lead := l.Leader(); !lead.Known || !lead.Self {
		t.Fatalf("leader %+v", lead)
	}
	if headroom, err := l.Headroom(); err != nil || headroom.Low() {
		t.Fatalf("headroom %+v, %v", headroom, err)
	}
}
