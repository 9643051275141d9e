package channel

import (
	"strings"
	"testing"

	"github.com/musterhpc/muster/internal/transport/identity"
)

// FuzzAttestation: a statement about who asks is two numbers, and is taken from
// nobody who may not make it.
func FuzzAttestation(f *testing.F) {
	for _, text := range []string{"1000:1000", "0:0", "-1:0", "4294967295:0", "1:2:3", " 1:1", "1000"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		claim, err := parseAttestation(text)
		if err != nil {
			return
		}
		if strings.Trim(text, "0123456789:+") != "" || strings.Count(text, ":") != 1 {
			t.Fatalf("%q is read as %+v", text, claim)
		}
		for _, kind := range []identity.Kind{identity.Anonymous, identity.LocalUser, identity.AttestedUser, identity.Controller} {
			if id, err := (identity.Identity{Kind: kind, UID: 1000, GID: 1000}).Attest(claim, nil); err == nil {
				t.Fatalf("%s attests %q: %+v", kind, text, id)
			}
		}
		id, err := (identity.Identity{Kind: identity.Login, Node: "l1"}).Attest(claim, nil)
		if err == nil && (id.UID == 0 || id.GID == 0) {
			t.Fatalf("%q makes somebody of another machine root: %+v", text, id)
		}
	})
}
