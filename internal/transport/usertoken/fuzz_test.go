package usertoken

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/musterhpc/muster/internal/transport/identity"
)

// FuzzToken: nothing but the tokens that were issued is accepted.
func FuzzToken(f *testing.F) {
	now := time.Unix(1_800_000_000, 0)
	keys, err := Open(filepath.Join(f.TempDir(), "key"), "lab", func() time.Time { return now })
	if err != nil {
		f.Fatal(err)
	}
	genuine, err := keys.Issue(Bearer{ID: "t1", User: "ada", UID: 1000, GID: 100}, now, now.Add(DefaultLife))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(genuine)
	f.Add(genuine + "=")
	f.Add("eyJhbGciOiJub25lIn0.e30.")
	f.Fuzz(func(t *testing.T, text string) {
		id, err := keys.Verify(text)
		if err == nil && text != genuine {
			t.Fatalf("%q is accepted as %s", text, id)
		}
		if err != nil && id.Kind != identity.Anonymous {
			t.Fatalf("%q is refused and is %s", text, id)
		}
	})
}
