package log_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/musterhpc/muster/ledger/log"
	"github.com/musterhpc/muster/ledger/log/logtest"
)

// TestMain runs the child of TestKill when asked to.
func TestMain(m *testing.M) {
	if dir := os.Getenv("MUSTER_LOG_CHILD"); dir != "" {
		if err := child(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child appends batches for ever from eight callers and prints "position number" for each acknowledged one.
func child(dir string) error {
	start, err := strconv.Atoi(os.Getenv("MUSTER_LOG_START"))
	if err != nil {
		return err
	}
	m := &logtest.Machine{}
	l, err := log.Open(bg, log.Options{Dir: dir, Machine: m, SegmentBytes: 256 << 10, SnapshotEvery: 700})
	if err != nil {
		return err
	}
	type flight struct {
		n int
		p log.Pending
	}
	flights := make(chan flight, 64)
	go func() {
		for n := start; ; n++ {
			flights <- flight{n, l.Append(payload(n))}
		}
	}()
	for f := range flights {
		pos, err := f.p.Wait(bg)
		if err != nil {
			return err
		}
		if _, err := fmt.Printf("%d %d\n", pos, f.n); err != nil {
			return err
		}
	}
	return nil
}

// TestKill kills a process that appends, twenty times, and looks at what it had acknowledged.
func TestKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	h := &history{next: 1, acked: map[log.Position]int{}}
	rng := rand.New(rand.NewPCG(1, 7))
	rounds := 20
	if os.Getenv("MUSTER_LONG") == "" {
		rounds = 8
	}
	for round := range rounds {
		cmd := exec.Command(os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), "MUSTER_LOG_CHILD="+dir, "MUSTER_LOG_START="+strconv.Itoa(h.next))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		quota, seen := 1+rng.IntN(3000), 0
		in := bufio.NewScanner(out)
		for in.Scan() {
			var pos log.Position
			var n int
			// The line that the kill cut in two is not an acknowledgement.
			if _, err := fmt.Sscanf(in.Text(), "%d %d", &pos, &n); err != nil || n != h.next {
				continue
			}
			h.acked[pos] = n
			h.next = n + 1
			if seen++; seen == quota {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := in.Err(); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed
		if seen < quota {
			t.Fatalf("round %d: the child ended by itself after %d batches", round, seen)
		}
		h.next += 1000 // batches under way at the kill may be there
		m := &logtest.Machine{}
		l := mustOpen(t, log.Options{Dir: dir, Machine: m, SegmentBytes: 256 << 10, SnapshotEvery: 700})
		if err := h.check(m); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		mustClose(t, l)
	}
	t.Logf("%d batches acknowledged over 20 kills, none lost", len(h.acked))
}
