package clickhouse

import (
	"os"
	"testing"
)

// TestReleasedSchema compares version 1 of the schema with the one that was
// released. MUSTER_WRITE_SCHEMA=1 writes the file, which is right only until
// the first release.
func TestReleasedSchema(t *testing.T) {
	got := ""
	for _, l := range []Layout{{}, {Cluster: "c"}} {
		for _, step := range migrationSteps(1, "muster", l) {
			got += step.sql + ";\n\n"
		}
	}
	const file = "testdata/schema-1.sql"
	if os.Getenv("MUSTER_WRITE_SCHEMA") != "" {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("schema version 1 differs from %s, which existing stores have: put the change into a new version", file)
	}
}
