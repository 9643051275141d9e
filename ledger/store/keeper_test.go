package store_test

import (
	"testing"
	"time"

	"github.com/musterhpc/muster/ledger/blob"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/store/storetest"
	"github.com/musterhpc/muster/spec"
)

// TestRetention: nothing goes before it is old and accounting has stored it;
// then the events go, and the scripts that nothing names any more.
func TestRetention(t *testing.T) {
	w := storetest.NewWorld(t)
	w.End(w.Job("old"))
	waits := w.Job("waits")
	w.End(w.Job("again"))
	old := w.Archive.Stats().LastSeq
	w.Later(40 * 24 * time.Hour)
	w.End(w.Job("new"))
	all := []string{"old", "waits", "again", "new"}
	gone := func(first uint64, scripts string) {
		t.Helper()
		w.Look()
		if got, have := w.Archive.Stats().FirstSeq, w.Have(all...); got != first || have != scripts {
			t.Errorf("the history begins with event %d, want %d; scripts %q, want %q", got, first, have, scripts)
		}
	}
	gone(1, "old waits again new") // accounting has said nothing
	w.From = 3
	gone(1, "old waits again new") // and not stored the first batch
	w.Retention = spec.Infinite
	w.From = old + 1
	gone(1, "old waits again new")
	w.Retention = 30 * spec.Day

	// While a sweep runs a user submits an old script again: the writer finds it
	// in the store and leaves it out of the batch.
	named := w.Applied
	w.Applied = func() (uint64, *state.State) {
		w.Blobs.Has(spec.Hash(blob.Sum([]byte("again"))))
		return named()
	}
	gone(old+1, "waits again new")
	if snaps, err := w.Archive.Snapshots(); err != nil || len(snaps) != 1 || snaps[0].Seq != w.History.State.Seq {
		t.Errorf("snapshots %v, %v", snaps, err)
	}
	w.Applied = named

	w.End(waits)
	w.Later(40 * 24 * time.Hour)
	w.Job("newest")
	all = append(all, "newest")
	w.From = w.Archive.Stats().LastSeq
	gone(w.Archive.Stats().LastSeq, "newest")
	if first, _ := w.Archive.Bounds(); first == 1 {
		t.Error("nothing was dropped")
	}
}
