package journal

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/musterhpc/muster/internal/durable/durabletest"
)

// TestReadsFormat1 opens a journal as the first format wrote it, and once after a rewrite.
func TestReadsFormat1(t *testing.T) {
	dir := durabletest.Golden(t, "testdata/v1.tar.gz", func(dir string) {
		for _, name := range []string{"appended", "rewritten"} {
			j := open(t, filepath.Join(dir, name))
			if _, err := j.Append([]byte("launch 1"), []byte("exit 1")); err != nil {
				t.Fatal(err)
			}
			if name == "rewritten" {
				err := j.Rewrite(func(add func([]byte) error) error { return add([]byte("launch 2")) })
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := j.Sync(j.Last()); err != nil {
				t.Fatal(err)
			}
		}
	})
	for name, want := range map[string][]string{
		"appended":  {"launch 1", "exit 1"},
		"rewritten": {"launch 2"},
	} {
		got, torn, err := read(t, filepath.Join(dir, name))
		if err != nil || torn != 0 || !slices.Equal(got, want) {
			t.Errorf("%s: %q, torn %d, %v", name, got, torn, err)
		}
	}
}
