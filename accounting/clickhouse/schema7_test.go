package clickhouse

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhpc/muster/accounting/query"
	"github.com/musterhpc/muster/accounting/tally"
)

// An archive from before the runs had all of their columns is read: what it
// lacks is 0.
func TestOlderArchive(t *testing.T) {
	s := openStore(t, startEngine(t).Socket(), "olderarc")
	w, err := s.NewImportWriter(t.Context(), tally.ImportedLedger("old"), "old")
	if err != nil {
		t.Fatal(err)
	}
	b := &tally.Batch{First: 1, Last: 20}
	for i := range uint64(20) {
		at := int64(1_792_454_400_000_000 + i)
		b.Jobs = append(b.Jobs, tally.JobRow{Seq: i + 1, UID: i + 1, JobID: uint32(i + 1), ArrayTask: -1, Count: 1, State: "COMPLETED", Submit: at, Start: at, End: at + 1, HetJobID: 7, HetSize: 2})
	}
	if err := w.Write(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if n := one[uint64](t, s, "SELECT sum(het_job_id) FROM olderarc.jobs"); n != 140 {
		t.Errorf("the columns add up to %d", n)
	}
	names := storedNames("jobs")
	for _, c := range hetColumns() {
		names = strings.Replace(names, ", "+quoteName(c.name), "", 1)
	}
	answer, err := s.Raw(t.Context(), query.Query{SQL: "SELECT " + names + " FROM olderarc.jobs"}, "Parquet", archiveLimits())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "jobs.parquet")
	if err := errors.Join(writeWhole(path, answer, nil), answer.Close()); err != nil {
		t.Fatal(err)
	}
	if err := s.conn.Exec(t.Context(), "TRUNCATE TABLE olderarc.jobs"); err != nil {
		t.Fatal(err)
	}
	if err := s.insertFile(t.Context(), "jobs", path); err != nil {
		t.Fatal(err)
	}
	if got := one[string](t, s, "SELECT concat(toString(count()), ' ', toString(sum(uid)), ' ', toString(sum(het_job_id))) FROM olderarc.jobs"); got != "20 210 0" {
		t.Errorf("read back: %s", got)
	}
}
