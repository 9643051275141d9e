package keys

import (
	"path/filepath"
	"testing"

	"github.com/musterhpc/muster/internal/transport/credential"
	"github.com/musterhpc/muster/scheduler/credentials"
	"github.com/musterhpc/muster/scheduler/daemon"
	"github.com/musterhpc/muster/spec"
)

// TestCredentialKeysRotate: whatever was signed at any time of a year with three changes
// of the key verifies to its end by the keys that agents had been told an hour before it
// was signed, with two keys at most, and across restarts. What the oldest key has signed
// is refused once that is over.
func TestCredentialKeysRotate(t *testing.T) {
	const every = 90 * spec.Day
	begin := spec.Instant(1_800_000_000 * int64(spec.Second))
	ring, err := credential.NewRing(begin)
	if err != nil {
		t.Fatal(err)
	}
	a := &Access{ringFile: filepath.Join(t.TempDir(), "credential.keys")}
	a.useRing(ring)
	if err := ring.Save(a.ringFile); err != nil {
		t.Fatal(err)
	}
	verifier := func() *credential.Verifier {
		t.Helper()
		var list []credential.PublicKey
		for _, b := range a.Keys() {
			k, err := credential.ParsePublicKey(b)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, k)
		}
		v, err := credential.NewVerifier(list)
		if err != nil || len(list) > 2 {
			t.Fatalf("%d keys are live, %v", len(list), err)
		}
		return v
	}
	sign := func(now spec.Instant) []byte {
		t.Helper()
		raw, err := a.Sign(credentials.Claims{Cluster: [16]byte{1}, Job: 7, Attempt: 1, UID: 1000, GID: 1000, Nodes: []string{"n1"}, Issued: now, Expires: now.Add(daemon.CredentialLife)})
		if err != nil {
			t.Fatalf("at day %d: %v", now.Sub(begin)/spec.Day, err)
		}
		return raw
	}
	first := sign(begin)
	type signed struct {
		raw     []byte
		expires spec.Instant
	}
	var live []signed
	changes := 0
	earlier := verifier()
	for now := begin; now < begin.Add(365*spec.Day); now = now.Add(12 * spec.Hour) {
		before := len(a.Keys())
		changed, err := a.rotateKey(now, every)
		if err != nil {
			t.Fatal(err)
		}
		if changed && len(a.Keys()) > before {
			changes++
		}
		if changed {
			again := &Access{ringFile: a.ringFile} // a restart reads what was saved
			if err := again.reloadKeys(); err != nil {
				t.Fatal(err)
			}
			a.useRing(again.ring)
		}
		raw := sign(now)
		// The keys that agents were told up to now; a lead of an hour at least is over.
		if _, err := earlier.Verify(raw, now, 0); err != nil {
			t.Fatalf("at day %d agents do not know the key that signs: %v", now.Sub(begin)/spec.Day, err)
		}
		earlier = verifier()
		live = append(live, signed{raw, now.Add(daemon.CredentialLife)})
		for len(live) > 0 && live[0].expires <= now {
			live = live[1:]
		}
		for _, one := range live {
			if _, err := earlier.Verify(one.raw, now, 0); err != nil {
				t.Fatalf("at day %d one does not verify that holds until day %d: %v", now.Sub(begin)/spec.Day, one.expires.Sub(begin)/spec.Day, err)
			}
		}
	}
	if changes != 4 {
		t.Errorf("%d changes in a year, want one every %d days", changes, every/spec.Day)
	}
	if _, err := earlier.Verify(first, begin.Add(spec.Hour), 0); err == nil {
		t.Error("the first key is accepted after its time")
	}
	if changed, err := a.rotateKey(begin.Add(9000*spec.Day), spec.Infinite); err != nil || changed && len(a.Keys()) > 1 {
		t.Errorf("forever: %v, %v", changed, err)
	}
}
