package credential

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/internal/durable"
	"github.com/musterhpc/muster/spec"
)

const start = spec.Instant(2e18)

func example() Claims {
	return Claims{Cluster: [16]byte{1, 2}, Job: 42, Attempt: 1, Step: spec.StepBatch, UID: 1000, GID: 100, Groups: []uint32{100, 27},
		Nodes: "n[1-4]", Issued: start, Expires: start.Add(2 * spec.Minute), Launch: [32]byte{9}}
}

func pair(t testing.TB) (Ring, *Verifier) {
	t.Helper()
	r, err := NewRing(start)
	if err != nil {
		t.Fatal(err)
	}
	return r, verifier(t, r)
}

func verifier(t testing.TB, r Ring) *Verifier {
	t.Helper()
	v, err := NewVerifier(r.Public())
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func sign(t testing.TB, r Ring, c Claims) []byte {
	t.Helper()
	raw, err := r.Sign(c)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestRoundTrip(t *testing.T) {
	r, v := pair(t)
	rapid.Check(t, func(t *rapid.T) {
		c := Claims{
			Cluster: [16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "cluster")),
			Job:     spec.JobUID(rapid.Uint64Min(1).Draw(t, "job")),
			Attempt: rapid.Uint32Min(1).Draw(t, "attempt"),
			Step:    spec.StepID(rapid.Int32().Draw(t, "step")),
			UID:     rapid.Uint32Max(math.MaxUint32-1).Draw(t, "uid"),
			GID:     rapid.Uint32Max(math.MaxUint32-1).Draw(t, "gid"),
			Groups:  rapid.SliceOfN(rapid.Uint32Max(math.MaxUint32-1), 0, 40).Draw(t, "groups"),
			Nodes:   rapid.StringMatching(`[a-z]{1,5}\[[1-9]-9\]`).Draw(t, "nodes"),
			Issued:  start.Add(spec.Span(rapid.Int64Range(0, 1e9).Draw(t, "issued"))),
			Launch:  [32]byte(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "launch")),
		}
		c.Expires = c.Issued.Add(spec.Span(rapid.Int64Range(1, int64(MaxLife)).Draw(t, "life")))
		raw, err := r.Sign(c)
		if err != nil {
			t.Fatal(err)
		}
		got, err := v.Verify(raw, c.Issued, 0)
		if err != nil || !reflect.DeepEqual(got, c) {
			t.Fatalf("got %+v (%v), want %+v", got, err, c)
		}
		again, err := r.Sign(c)
		if err != nil || !bytes.Equal(raw, again) {
			t.Fatal("the same claims have two encodings")
		}
	})
}

// Every single bit of a credential matters.
func TestEveryBitIsProtected(t *testing.T) {
	r, v := pair(t)
	raw := sign(t, r, example())
	for i := range raw {
		for bit := range 8 {
			bad := bytes.Clone(raw)
			bad[i] ^= 1 << bit
			if c, err := v.Verify(bad, start, 0); err == nil {
				t.Fatalf("byte %d bit %d: accepted as %+v", i, bit, c)
			} else if !reflect.DeepEqual(c, Claims{}) {
				t.Fatalf("byte %d bit %d: claims returned with %v", i, bit, err)
			}
		}
	}
	for i := range raw {
		if _, err := v.Verify(raw[:i], start, 0); !errors.Is(err, ErrMalformed) {
			t.Fatalf("cut at %d: %v", i, err)
		}
	}
	if _, err := v.Verify(append(bytes.Clone(raw), 0), start, 0); !errors.Is(err, ErrMalformed) {
		t.Errorf("trailing byte: %v", err)
	}
}

func TestTime(t *testing.T) {
	r, v := pair(t)
	c := example()
	raw := sign(t, r, c)
	for _, x := range []struct {
		name string
		now  spec.Instant
		skew spec.Span
		want error
	}{
		{"at issue", c.Issued, 0, nil},
		{"just before", c.Issued.Add(-1), 0, ErrNotYet},
		{"before, within skew", c.Issued.Add(-spec.Second), spec.Second, nil},
		{"last moment", c.Expires.Add(-1), 0, nil},
		{"at expiry", c.Expires, 0, ErrExpired},
		{"after, within skew", c.Expires, spec.Second, nil},
		{"after skew", c.Expires.Add(spec.Second), spec.Second, ErrExpired},
	} {
		if _, err := v.Verify(raw, x.now, x.skew); !errors.Is(err, x.want) {
			t.Errorf("%s: %v, want %v", x.name, err, x.want)
		}
	}
}

func TestForgeries(t *testing.T) {
	r, v := pair(t)
	other, _ := pair(t)
	if _, err := v.Verify(sign(t, other, example()), start, 0); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("a stranger's key: %v", err)
	}
	// A stranger who claims to be the known key.
	e, claims, err := v.codec.decodeClaims(sign(t, other, example()))
	if err != nil {
		t.Fatal(err)
	}
	e.Key = idOf(r.Public()[0].Key)
	forged, err := v.codec.enc.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.Verify(forged, start, 0); !errors.Is(err, ErrBadSignature) {
		t.Errorf("a known id on a stranger's signature: %v", err)
	}
	// The key's owner signs the bare claims, without our context: not a credential.
	e.Claims, err = v.codec.encodeClaims(claims)
	if err != nil {
		t.Fatal(err)
	}
	e.Signature = ed25519.Sign(r.keys[0].private, e.Claims)
	if forged, err = v.codec.enc.Marshal(e); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Verify(forged, start, 0); !errors.Is(err, ErrBadSignature) {
		t.Errorf("signature without context: %v", err)
	}
}

func TestSignRefuses(t *testing.T) {
	r, _ := pair(t)
	for name, change := range map[string]func(*Claims){
		"no job":        func(c *Claims) { c.Job = 0 },
		"no attempt":    func(c *Claims) { c.Attempt = 0 },
		"no nodes":      func(c *Claims) { c.Nodes = "" },
		"uid -1":        func(c *Claims) { c.UID = math.MaxUint32 },
		"gid -1":        func(c *Claims) { c.GID = math.MaxUint32 },
		"group -1":      func(c *Claims) { c.Groups = []uint32{5, math.MaxUint32} },
		"no life":       func(c *Claims) { c.Expires = c.Issued },
		"lives forever": func(c *Claims) { c.Expires = c.Issued.Add(MaxLife + 1) },
		"before key":    func(c *Claims) { c.Issued-- },
		"too big":       func(c *Claims) { c.Nodes = string(make([]byte, MaxSize)) },
	} {
		c := example()
		change(&c)
		if _, err := r.Sign(c); err == nil {
			t.Errorf("%s: signed", name)
		}
	}
}

func TestCheckNode(t *testing.T) {
	c := example()
	for _, x := range []struct {
		cluster [16]byte
		node    string
		want    error
	}{{c.Cluster, "n4", nil}, {c.Cluster, "n5", ErrOtherNode}, {c.Cluster, "n", ErrOtherNode}, {[16]byte{}, "n4", ErrOtherCluster}} {
		if err := c.CheckNode(x.cluster, x.node); !errors.Is(err, x.want) {
			t.Errorf("%x %s: %v, want %v", x.cluster, x.node, err, x.want)
		}
	}
	c.Nodes = "n[1-"
	if err := c.CheckNode(c.Cluster, "n1"); !errors.Is(err, ErrMalformed) {
		t.Errorf("bad list: %v", err)
	}
}

func TestRotation(t *testing.T) {
	const lead, overlap = spec.Minute, 10 * spec.Minute
	first, old := pair(t)
	both, err := first.Rotate(start, lead, overlap)
	if err != nil {
		t.Fatal(err)
	}
	if len(first.Public()) != 1 || len(both.Public()) != 2 {
		t.Fatal("a ring is a value")
	}
	if _, err := both.Rotate(start.Add(lead), lead, overlap); !errors.Is(err, ErrRotating) {
		t.Errorf("a third key: %v", err)
	}
	now := verifier(t, both)
	during := example() // before the new key signs
	raw := sign(t, both, during)
	for name, v := range map[string]*Verifier{"old": old, "new": now} {
		if _, err := v.Verify(raw, during.Issued, 0); err != nil {
			t.Errorf("in the lead, a node that knows the %s keys: %v", name, err)
		}
	}
	after := example()
	after.Issued, after.Expires = start.Add(lead), start.Add(lead+spec.Minute)
	raw2 := sign(t, both, after)
	if _, err := now.Verify(raw2, after.Issued, 0); err != nil {
		t.Error(err)
	}
	if _, err := old.Verify(raw2, after.Issued, 0); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("a node that missed the new key: %v", err)
	}
	if _, err := now.Verify(raw, start.Add(lead+spec.Second), 0); err != nil {
		t.Errorf("a credential of the old key during the overlap: %v", err)
	}
	late := example()
	late.Expires = start.Add(lead + overlap + 1)
	if _, err := both.Sign(late); err == nil {
		t.Error("signed a credential that outlives its key")
	}
	done := both.Prune(start.Add(lead + overlap))
	if len(done.Public()) != 1 || !slices.Equal(done.Public()[0].Key, both.Public()[1].Key) {
		t.Fatal("the old key should be gone, the new stay")
	}
	if _, err := done.Rotate(start.Add(lead+overlap), lead, overlap); err != nil {
		t.Errorf("next rotation: %v", err)
	}
}

func TestSaveLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	r, _ := pair(t)
	r, err := r.Rotate(start, spec.Minute, spec.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Save(path); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info.Mode(), err)
	}
	got, err := LoadRing(path)
	if err != nil || !reflect.DeepEqual(got.Public(), r.Public()) || !bytes.Equal(sign(t, got, example()), sign(t, r, example())) {
		t.Fatalf("%v", err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadRing(path); !errors.Is(err, durable.ErrExposed) {
		t.Errorf("exposed: %v", err)
	}
	for _, bad := range []string{"", "{}", `{"format":2,"keys":[{}]}`, `{"format":1,"keys":[{"seed":"AAAA","from":1,"until":2}]}`} {
		if _, err := ParseRing([]byte(bad)); err == nil {
			t.Errorf("%q accepted", bad)
		}
	}
	if _, err := NewVerifier([]PublicKey{{Key: make([]byte, 31)}}); err == nil {
		t.Error("short public key")
	}
}

func FuzzVerify(f *testing.F) {
	r, v := pair(f)
	raw := sign(f, r, example())
	f.Add(raw)
	f.Add(raw[:40])
	f.Add([]byte{0x84, 1, 0x40, 0x40, 0x40})
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := v.Verify(b, start, 0)
		if err == nil && !bytes.Equal(b, raw) {
			t.Fatalf("forged: %x", b)
		}
		if err != nil && !reflect.DeepEqual(c, Claims{}) {
			t.Fatal("claims with an error")
		}
		e, claims, err := v.codec.decodeClaims(b)
		if err != nil {
			return
		}
		inner, err := v.codec.encodeClaims(claims)
		if err != nil || !bytes.Equal(inner, e.Claims) {
			t.Fatalf("two encodings: %x", b)
		}
	})
}

func BenchmarkSign(b *testing.B) {
	r, _ := pair(b)
	c := example()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Sign(c); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkVerify(b *testing.B) {
	r, v := pair(b)
	raw := sign(b, r, example())
	b.ReportMetric(float64(len(raw)), "bytes")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := v.Verify(raw, start, 0); err != nil {
			b.Fatal(err)
		}
	}
}
