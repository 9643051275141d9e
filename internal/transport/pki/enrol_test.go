package pki

import (
	"crypto/x509"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/musterhpc/muster/internal/transport/identity"
)

func newTestToken(t *testing.T, ca *CA, store *MemoryTokens, node string) string {
	t.Helper()
	text, record, err := NewToken(ca, identity.Agent, node, at(1))
	if err != nil {
		t.Fatal(err)
	}
	store.Add(record)
	return text
}

func newTestRequest(t *testing.T, node string) []byte {
	t.Helper()
	csr, _, err := NewRequest(node)
	if err != nil {
		t.Fatal(err)
	}
	return csr
}

func TestEnrol(t *testing.T) {
	ca, store := newTestCA(t, "prod"), &MemoryTokens{}
	token := newTestToken(t, ca, store, "n1")
	if _, pin, err := ParseToken(token + "\n"); err != nil || pin != ca.Pin() {
		t.Fatalf("pin %x, %v", pin, err)
	}
	csr, key, err := NewRequest("n1")
	if err != nil {
		t.Fatal(err)
	}
	got, err := Enrol(t.Context(), ca, store, Request{Token: token, Node: "n1", CSR: csr}, at(0))
	if err != nil {
		t.Fatal(err)
	}
	cert, err := ParseCertificate(got.CertPEM)
	if err != nil {
		t.Fatal(err)
	}
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth} {
		if err := verify(cert, ca, "n1", usage, at(89)); err != nil {
			t.Error(err)
		}
	}
	id, err := identity.FromCertificate(cert, "prod")
	if err != nil || id.Kind != identity.Agent || id.Node != "n1" || id.Serial != got.Serial || !got.NotAfter.Equal(at(90)) {
		t.Errorf("%+v, %v", id, err)
	}
	dir := Dir(t.TempDir())
	if err := dir.SaveEnrolled(Pair{Cert: got.CertPEM, Key: key}); err != nil {
		t.Fatal(err)
	}
	if h, err := dir.Host(); err != nil || !h.Authority.Equal(ca.Certificate()) {
		t.Errorf("%v", err)
	}
}

func TestEnrolRefuses(t *testing.T) {
	ca, store := newTestCA(t, "prod"), &MemoryTokens{}
	token := newTestToken(t, ca, store, "n1")
	foreign := newTestToken(t, newTestCA(t, "prod"), &MemoryTokens{}, "n1")
	n1, n2 := newTestRequest(t, "n1"), newTestRequest(t, "n2")
	cases := []struct {
		name string
		ask  Request
		day  int
		want error
	}{
		{"wrong node", Request{token, "n2", n2}, 0, ErrWrongNode},
		{"request for another node", Request{token, "n1", n2}, 0, ErrWrongNode},
		{"said another node", Request{token, "n2", n1}, 0, ErrWrongNode},
		{"expired", Request{token, "n1", n1}, 1, ErrTokenExpired},
		{"unknown", Request{foreign, "n1", n1}, 0, ErrTokenUnknown},
		{"empty", Request{"", "n1", n1}, 0, ErrTokenMalformed},
		{"cut", Request{token[:len(token)-3], "n1", n1}, 0, ErrTokenMalformed},
		{"changed", Request{strings.Replace(token, "muster1.", "muster1.A", 1), "n1", n1}, 0, ErrTokenMalformed},
		{"no request", Request{token, "n1", nil}, 0, ErrBadPEM},
	}
	for _, c := range cases {
		if _, err := Enrol(t.Context(), ca, store, c.ask, at(c.day)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	// None of these spent the token.
	if _, err := Enrol(t.Context(), ca, store, Request{token, "n1", n1}, at(0)); err != nil {
		t.Fatalf("the token is gone: %v", err)
	}
	// The host that lost its answer may ask again, with the same key only.
	if _, err := Enrol(t.Context(), ca, store, Request{token, "n1", n1}, at(0)); err != nil {
		t.Errorf("repeated by its owner: %v", err)
	}
	if _, err := Enrol(t.Context(), ca, store, Request{token, "n1", newTestRequest(t, "n1")}, at(0)); !errors.Is(err, ErrTokenUsed) {
		t.Errorf("reused by another key: %v", err)
	}
	if _, err := Enrol(t.Context(), ca, store, Request{token, "n1", n1}, at(1)); !errors.Is(err, ErrTokenExpired) {
		t.Errorf("repeated after its end: %v", err)
	}
}

func TestEnrolRaceHasOneWinner(t *testing.T) {
	ca, store := newTestCA(t, "prod"), &MemoryTokens{}
	token := newTestToken(t, ca, store, "n1")
	const thieves = 16
	requests := make([][]byte, thieves)
	for i := range requests {
		requests[i] = newTestRequest(t, "n1")
	}
	results := make([]error, thieves)
	var wg sync.WaitGroup
	for i := range thieves {
		wg.Go(func() {
			_, results[i] = Enrol(t.Context(), ca, store, Request{token, "n1", requests[i]}, at(0))
		})
	}
	wg.Wait()
	won := 0
	for _, err := range results {
		if err == nil {
			won++
		} else if !errors.Is(err, ErrTokenUsed) {
			t.Error(err)
		}
	}
	if won != 1 {
		t.Errorf("%d of %d requests with different keys got a certificate", won, thieves)
	}
}

func TestRenew(t *testing.T) {
	ca := newTestCA(t, "prod")
	channel := identity.Identity{Kind: identity.Agent, Node: "n1", Cluster: "prod", Serial: "5", NotAfter: at(90)}
	csr := newTestRequest(t, "n1")
	got, err := Renew(ca, channel, csr, nil, at(60))
	if err != nil || !got.NotAfter.Equal(at(150)) || got.Serial == "5" || got.Role != identity.Agent || got.Node != "n1" {
		t.Fatalf("%+v, %v", got, err)
	}
	revoked := func(serial string) bool { return serial == "5" }
	if _, err := Renew(ca, channel, csr, revoked, at(60)); !errors.Is(err, ErrRevoked) {
		t.Errorf("revoked: %v", err)
	}
	if _, err := Renew(ca, channel, newTestRequest(t, "n2"), nil, at(60)); !errors.Is(err, ErrNotRenewable) {
		t.Errorf("for another node: %v", err)
	}
	if _, err := Renew(ca, channel, csr, nil, at(90)); !errors.Is(err, ErrNotRenewable) {
		t.Errorf("expired: %v", err)
	}
	for _, other := range []identity.Identity{identity.Nameless(), {Kind: identity.Controller, Node: "n1", Cluster: "prod", Serial: "5", NotAfter: at(90)},
		{Kind: identity.AttestedUser, Node: "n1", Cluster: "prod", Serial: "5", NotAfter: at(90)},
		{Kind: identity.Agent, Node: "n1", Cluster: "test", Serial: "5", NotAfter: at(90)},
		{Kind: identity.Agent, Node: "n1", Cluster: "prod", NotAfter: at(90)}} {
		if _, err := Renew(ca, other, csr, nil, at(60)); !errors.Is(err, ErrNotRenewable) {
			t.Errorf("%+v: %v", other, err)
		}
	}
}

func FuzzParseToken(f *testing.F) {
	f.Add("muster1.AAAA.BBBB")
	f.Fuzz(func(t *testing.T, text string) {
		secret, pin, err := ParseToken(text)
		if err != nil && (!errors.Is(err, ErrTokenMalformed) || secret != Hash{} || pin != Hash{}) {
			t.Fatalf("%v", err)
		}
	})
}
