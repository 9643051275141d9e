package clickhouse

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/musterhpc/muster/accounting/query"
)

// TestArchiveOfOlder: an archive that was written before there were columns is
// read back; these are then as empty as those of rows that stayed.
func TestArchiveOfOlder(t *testing.T) {
	ctx := t.Context()
	s := openStore(t, startEngine(t).Socket(), "older")
	if err := s.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	for table, more := range map[string][]string{
		"jobs":  {"admin_comment", "mcs_label", "segment"},
		"steps": {"peak_vm", "cpu_khz"},
	} {
		young := func(name string) bool { return slices.Contains(more, strings.Trim(name, "`")) }
		list := slices.DeleteFunc(strings.Split(storedNames(table), ", "), young)
		if err := s.conn.Exec(ctx, "INSERT INTO "+s.qualifyTable(table)+" (ledger, uid, job_id) VALUES ('b0010203-0405-0607-0809-0a0b0c0d0e0f', 1, 7)"); err != nil {
			t.Fatal(err)
		}
		answer, err := s.Raw(ctx, query.Query{SQL: "SELECT " + strings.Join(list, ", ") + " FROM " + s.qualifyTable(table)}, "Parquet", archiveLimits())
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(answer)
		answer.Close()
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "f.parquet")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := s.insertFile(ctx, table, path); err != nil {
			t.Fatalf("%s: %v", table, err)
		}
		if n := one[[]uint64](t, s, "SELECT [count(), uniqExact(tuple(*))] FROM "+s.qualifyTable(table)); !slices.Equal(n, []uint64{2, 1}) {
			t.Errorf("%s: %d rows of %d kinds, not 2 of one", table, n[0], n[1])
		}
	}
}
