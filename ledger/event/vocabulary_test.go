package event_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/event/eventtest"
	"github.com/musterhpc/muster/ledger/event/record"
)

// TestVocabulary compares what each version knows with the list that was kept of it. Releases
// that know a version read exactly its list, so a kind or field that is added without saying
// since when would be written where such a release still reads. -update writes the list of the
// newest version only.
func TestVocabulary(t *testing.T) {
	c := newCodec(t)
	for version := uint32(1); version <= event.Version; version++ {
		path := filepath.Join("testdata", fmt.Sprintf("vocabulary-%d.txt", version))
		got := strings.Join(c.Vocabulary(version), "\n") + "\n"
		data, err := os.ReadFile(path)
		if version == event.Version && *update || errors.Is(err, fs.ErrNotExist) && *update {
			data = []byte(got)
			err = os.WriteFile(path, data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		kept := strings.Split(string(data), "\n")
		for _, line := range strings.Split(got, "\n") {
			if !slices.Contains(kept, line) {
				t.Errorf("version %d of the ledger does not know %q, and this release would write it there: give the field a tag since:\"%d\" (a kind, its line in Kind.Since)",
					version, line, event.Version)
			}
		}
		for _, line := range kept {
			if !strings.Contains("\n"+got, "\n"+line+"\n") && line != "" {
				t.Errorf("version %d of the ledger has %q, and this release does not read it", version, line)
			}
		}
	}
}

// TestNeeds looks at random events: what is written says the version that it needs, and an
// event without anything newer is still a batch of version 1.
func TestNeeds(t *testing.T) {
	c := newCodec(t)
	token := &event.UserTokenIssued{ID: "a", User: "alice", Key: "k"}
	if n, what, err := c.Needs(token); n != 1 || what == "UserTokenIssued.Login" || err != nil {
		t.Errorf("a token without a provider needs %d for %s (%v)", n, what, err)
	}
	token.Login = "https://id.example.org"
	if n, what, err := c.Needs(token); n != 2 || what != "UserTokenIssued.Login" || err != nil {
		t.Errorf("a token with its provider needs %d for %s (%v)", n, what, err)
	}
	old, err := event.NewCodecOf(1)
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		env := eventtest.RandomEnvelope(t, eventtest.Wild{})
		needs, _, err := c.Needs(env.Event)
		if err != nil {
			t.Fatal(err)
		}
		data, err := c.Encode([]event.Envelope{{Event: &event.NodeReturned{Node: "n"}}, env})
		if err != nil {
			t.Fatal(err)
		}
		var set record.Set
		d := set.NewDecoder(data)
		if _, err := d.Array(); err != nil {
			t.Fatal(err)
		}
		if version, err := d.Uint(); err != nil || version != uint64(needs) {
			t.Fatalf("a batch with a %s is of version %d (%v), and that needs %d", env.Event.Kind(), version, err, needs)
		}
		if got, err := old.Decode(data); needs == 1 && (err != nil || len(got) != 2) || needs > 1 && !errors.Is(err, event.ErrNewer) {
			t.Fatalf("a release of version 1 reads a %s that needs version %d: %v", env.Event.Kind(), needs, err)
		}
		if u, ok := env.Event.(*event.UserTokenIssued); ok && (u.Login != "" || u.Scope != "") != (needs == 2) {
			t.Fatalf("%+v needs version %d", env.Event, needs)
		}
	})
}
