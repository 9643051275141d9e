package clickhouse

import (
	"context"
	"errors"
	"testing"

	"github.com/musterhpc/muster/accounting/tally"
)

// TestInterruptedImport: an import that dies anywhere in a batch leaves
// nothing of it, and what was stored before stays; the next goes on.
func TestInterruptedImport(t *testing.T) {
	s := openStore(t, startEngine(t).Socket(), "imported")
	ledger := tally.ImportedLedger("old")
	const day = int64(86_400_000_000)
	batch := func(first, n uint64, shift int64) *tally.Batch {
		b := &tally.Batch{First: first, Last: first + n - 1}
		for i := range n {
			at := 20_000*day + int64(first+i)*day*9 // several partitions
			r := tally.JobRow{
				Seq:       first + i,
				UID:       first + i,
				JobID:     uint32(first + i),
				Attempt:   1,
				ArrayTask: -1,
				Count:     1,
				State:     "COMPLETED",
				Submit:    at,
				Start:     at,
				End:       at + shift,
			}
			b.Jobs = append(b.Jobs, r)
			b.Nodes = append(b.Nodes, tally.NodeRow{
				Seq:  r.Seq,
				UID:  r.UID,
				Node: "n",
				From: at,
				To:   r.End,
				End:  r.End,
			})
			b.Live = append(b.Live, tally.LiveRow{JobRow: tally.JobRow{
				Seq:       r.Seq,
				UID:       1000 + r.UID,
				ArrayTask: -1,
				Count:     1,
				State:     "PENDING",
				Submit:    at,
			}})
		}
		return b
	}
	open := func() *Writer {
		t.Helper()
		w, err := s.NewImportWriter(t.Context(), ledger, "old")
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	if err := open().Write(t.Context(), batch(1, 10, 5)); err != nil {
		t.Fatal(err)
	}
	died := errors.New("died")
	for _, at := range []string{
		"intent",
		"jobs",
		"after jobs",
		"job_nodes",
		"after job_nodes",
		"live",
		"position",
	} {
		w := open()
		w.hook = func(step string) error {
			if step == at {
				return died
			}
			return nil
		}
		if err := w.Write(t.Context(), batch(11, 7, 6)); !errors.Is(err, died) {
			t.Fatalf("it does not die at %s: %v", at, err)
		}
	}
	// The next import cuts otherwise and has other rows.
	w := open()
	if w.Position().Seq != 10 {
		t.Errorf("the position is %d", w.Position().Seq)
	}
	if err := w.Write(t.Context(), batch(11, 3, 9)); err != nil {
		t.Fatal(err)
	}
	for table, want := range map[string]uint64{"jobs": 13, "job_nodes": 13} {
		var n, distinct uint64
		if err := s.conn.QueryRow(context.Background(), "SELECT count(), uniqExact(uid) FROM "+s.qualifyTable(table)).Scan(&n, &distinct); err != nil || n != want || distinct != want {
			t.Errorf("%s has %d rows of %d runs, %v", table, n, distinct, err)
		}
	}
	uids, _, err := s.Open(t.Context(), ledger)
	if err != nil || len(uids) < 13 {
		t.Errorf("%d runs are open, %v", len(uids), err)
	}
	runs, _, _, _, err := s.Sums(t.Context(), ledger)
	if err != nil || runs != 13 {
		t.Errorf("%d runs, %v", runs, err)
	}
	if uids, _, err = s.Ended(t.Context(), ledger, 0, 40_000*day); err != nil || len(uids) != 13 {
		t.Errorf("%d runs ended, %v", len(uids), err)
	}
}
