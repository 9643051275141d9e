package state

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/musterhpc/muster/ledger/event"
)

var updateVocabulary = flag.Bool("update-vocabulary", false, "write the list of the newest version")

// TestSnapshotVocabulary compares the fields of a snapshot with the list that was kept of each
// version of the ledger: a controller of an older release reads exactly those.
func TestSnapshotVocabulary(t *testing.T) {
	set, err := snapshotTypes(event.Version)
	if err != nil {
		t.Fatal(err)
	}
	for version := uint32(1); version <= event.Version; version++ {
		path := filepath.Join("testdata", fmt.Sprintf("vocabulary-%d.txt", version))
		got := set.Vocabulary(version)
		data, err := os.ReadFile(path)
		if *updateVocabulary && (version == event.Version || errors.Is(err, fs.ErrNotExist)) {
			data = []byte(strings.Join(got, "\n") + "\n")
			err = os.WriteFile(path, data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		kept := strings.Split(strings.TrimSpace(string(data)), "\n")
		for _, line := range got {
			if !slices.Contains(kept, line) {
				t.Errorf("version %d of the ledger has no %q in its snapshots, and this release would write it: give the field a tag since:\"%d\", and set it only from events of that version",
					version, line, event.Version)
			}
		}
		for _, line := range kept {
			if !slices.Contains(got, line) {
				t.Errorf("version %d of the ledger has %q in its snapshots, and this release does not read it", version, line)
			}
		}
	}
}
