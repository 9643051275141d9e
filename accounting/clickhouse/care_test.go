package clickhouse

import (
	"strings"
	"testing"

	"github.com/musterhpc/muster/accounting/tally/tallytest"
)

// TestExamine: each thing that is wrong with a store is found by its name, with
// what to do, and hides nothing else.
func TestExamine(t *testing.T) {
	s := openStore(t, startEngine(t).Socket(), "doc")
	exec := func(list ...string) {
		t.Helper()
		for _, sql := range list {
			if err := s.Exec(t.Context(), sql); err != nil {
				t.Fatalf("%s: %v", sql, err)
			}
		}
	}
	found := func() (bad string, all int) {
		t.Helper()
		list, err := s.Examine(t.Context(), tallytest.LedgerID)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range list {
			if f.Bad {
				bad += f.Name + ": " + f.Detail + "\n"
			}
		}
		return bad, len(list)
	}
	const never = "position: this ledger was never stored here\n"
	sound, looks := found()
	if sound != never {
		t.Fatalf("a new store: %s", sound)
	}
	exec("INSERT INTO doc.purges (ledger) VALUES (generateUUIDv4())")
	for name, c := range map[string]struct {
		harm, mend []string
		want       []string
	}{
		"a table is gone": {
			[]string{"DETACH TABLE doc.steps SYNC"},
			[]string{"ATTACH TABLE doc.steps"},
			[]string{
				"missing tables: steps: ATTACH TABLE",
				"imported clusters and what was purged are lost then",
			},
		},
		"the table of runs": {
			[]string{"RENAME TABLE doc.jobs TO doc.elsewhere"},
			[]string{"RENAME TABLE doc.elsewhere TO doc.jobs"},
			[]string{"missing tables: jobs: ", "runs twice: cannot be looked at: "},
		},
		"the versions are gone": {
			[]string{"DETACH TABLE doc.schema_versions SYNC"},
			[]string{"ATTACH TABLE doc.schema_versions"},
			[]string{"schema: its version cannot be read: ", "doc.schema_versions"},
		},
		"newer": {
			[]string{"INSERT INTO doc.schema_versions (version) VALUES (99)"},
			[]string{"DELETE FROM doc.schema_versions WHERE version = 99"},
			[]string{"schema: version 99, this release knows ", "run the release that migrated it"},
		},
		"older": {
			[]string{
				"CREATE TABLE doc.kept AS doc.schema_versions",
				"INSERT INTO doc.kept SELECT * FROM doc.schema_versions",
				"DELETE FROM doc.schema_versions WHERE version > 0",
			},
			[]string{
				"INSERT INTO doc.schema_versions SELECT * FROM doc.kept WHERE version > 0",
				"DROP TABLE doc.kept SYNC",
			},
			[]string{"schema: version 0, this release knows ", "brings it up to date when it starts"},
		},
		"a part is detached": {
			[]string{"ALTER TABLE doc.purges DETACH PARTITION ID 'all'"},
			[]string{"ALTER TABLE doc.purges ATTACH PARTITION ID 'all'"},
			[]string{"detached parts: 1: purges all_", "ATTACH PART"},
		},
		"a column is altered": {
			[]string{"ALTER TABLE doc.steps RENAME COLUMN job_id TO job_number"},
			[]string{"ALTER TABLE doc.steps RENAME COLUMN job_number TO job_id"},
			[]string{"columns: 1 differ from the schema: steps.job_id is missing: "},
		},
	} {
		exec(c.harm...)
		bad, all := found()
		for _, want := range c.want {
			if !strings.Contains(bad, want) {
				t.Errorf("%s: found %q, want %q", name, bad, want)
			}
		}
		if !strings.Contains(bad, never) || all < looks-1 {
			t.Errorf("%s: %d findings, %d of a sound store:\n%s", name, all, looks, bad)
		}
		exec(c.mend...)
		if bad, _ := found(); bad != sound {
			t.Errorf("%s, mended: %s", name, bad)
		}
	}
}
