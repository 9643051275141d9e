package pki

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster/internal/durable"
	"github.com/musterhpc/muster/internal/transport/identity"
)

func at(days int) time.Time {
	return time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).AddDate(0, 0, days)
}

func newTestCA(t *testing.T, cluster string) *CA {
	t.Helper()
	ca, err := NewCA(cluster, at(0))
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// verify checks a certificate as a TLS peer would.
func verify(cert *x509.Certificate, ca *CA, host string, usage x509.ExtKeyUsage, now time.Time) error {
	roots := x509.NewCertPool()
	roots.AddCert(ca.Certificate())
	_, err := cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: host, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}})
	return err
}

func TestControllerCertificate(t *testing.T) {
	ca := newTestCA(t, "prod")
	pair, err := ca.Issue(Holder{Role: identity.Controller, Name: "ctl1", Hosts: []string{"ctl1.site", "10.0.0.1", "::1"}}, at(0))
	if err != nil {
		t.Fatal(err)
	}
	cert, err := ParseCertificate(pair.Cert)
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"ctl1.site", "10.0.0.1", "::1"} {
		if err := verify(cert, ca, host, x509.ExtKeyUsageServerAuth, at(1)); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	for name, err := range map[string]error{
		"another host":      verify(cert, ca, "ctl2.site", x509.ExtKeyUsageServerAuth, at(1)),
		"after 90 days":     verify(cert, ca, "ctl1.site", x509.ExtKeyUsageServerAuth, at(91)),
		"another authority": verify(cert, newTestCA(t, "prod"), "ctl1.site", x509.ExtKeyUsageServerAuth, at(1)),
	} {
		if err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	id, err := identity.FromCertificate(cert, "prod")
	if err != nil || id.Kind != identity.Controller || id.Node != "ctl1" {
		t.Errorf("%+v, %v", id, err)
	}
	if got := RenewAfter(cert.NotBefore, cert.NotAfter); got.Before(at(59)) || got.After(at(61)) {
		t.Errorf("renew at %v", got)
	}
}

func TestAdminCannotServe(t *testing.T) {
	ca := newTestCA(t, "c")
	pair, err := ca.Issue(Holder{Role: identity.Admin, Name: "ada", Hosts: []string{"ctl"}}, at(0))
	if err != nil {
		t.Fatal(err)
	}
	cert, err := ParseCertificate(pair.Cert)
	if err != nil {
		t.Fatal(err)
	}
	if verify(cert, ca, "ctl", x509.ExtKeyUsageServerAuth, at(1)) == nil {
		t.Error("an administrator's certificate serves")
	}
	if err := verify(cert, ca, "", x509.ExtKeyUsageClientAuth, at(1)); err != nil {
		t.Error(err)
	}
}

func TestLeafEndsWithTheAuthority(t *testing.T) {
	ca := newTestCA(t, "c")
	end := ca.Certificate().NotAfter
	pair, err := ca.Issue(Holder{Role: identity.Controller, Name: "x"}, end.Add(-24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if cert, _ := ParseCertificate(pair.Cert); !cert.NotAfter.Equal(end) {
		t.Errorf("leaf ends %v, authority %v", cert.NotAfter, end)
	}
	if _, err := ca.Issue(Holder{Role: identity.Controller, Name: "x"}, end); err == nil {
		t.Error("an expired authority signs")
	}
}

func TestBadNames(t *testing.T) {
	if _, err := NewCA("a/b", at(0)); err == nil {
		t.Error("cluster a/b")
	}
	ca := newTestCA(t, "c")
	if _, err := ca.Issue(Holder{Role: identity.LocalUser, Name: "x"}, at(0)); err == nil {
		t.Error("a certificate for a user")
	}
	if _, _, err := NewToken(ca, identity.Controller, "n", at(1)); err == nil {
		t.Error("a token for a controller")
	}
	if _, _, err := NewToken(ca, identity.Agent, "n/..", at(1)); err == nil {
		t.Error("a token for n/..")
	}
}

func TestParseRequestRefuses(t *testing.T) {
	good, _, err := NewRequest("n1")
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(good)
	block.Bytes[len(block.Bytes)-1] ^= 1
	_, edKey, _ := ed25519.GenerateKey(rand.Reader)
	ed, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, edKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, csr := range map[string][]byte{
		"empty":     nil,
		"other PEM": []byte(strings.Replace(string(good), "CERTIFICATE REQUEST", "CERTIFICATE", 2)),
		"signature": pem.EncodeToMemory(block),
		"cut":       pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes[:50]}),
		"other key": pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: ed}),
	} {
		if _, err := ParseRequest(csr); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestDirInit(t *testing.T) {
	dir := Dir(filepath.Join(t.TempDir(), "pki"))
	ca, err := dir.Init("prod", Holder{Name: "ctl", Hosts: []string{"localhost"}}, at(0))
	if err != nil {
		t.Fatal(err)
	}
	for name, perm := range map[string]os.FileMode{CAKeyFile: 0o600, HostFile: 0o600, CACertFile: 0o644} {
		info, err := os.Stat(dir.pathOf(name))
		if err != nil || info.Mode().Perm() != perm {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	if info, err := os.Stat(string(dir)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("folder: %v, %v", info.Mode(), err)
	}
	again, err := dir.CA()
	if err != nil || again.Pin() != ca.Pin() || again.Cluster() != "prod" {
		t.Fatalf("%v, %v", again, err)
	}
	if _, err := dir.Init("prod", Holder{Name: "ctl"}, at(1)); !errors.Is(err, ErrExists) {
		t.Errorf("second init: %v", err)
	}
	h, err := dir.Host()
	if err != nil || h.Leaf.Subject.CommonName != "ctl" || h.Revoked.Len() != 0 {
		t.Fatalf("%+v, %v", h, err)
	}
	if err := os.Chmod(dir.pathOf(CAKeyFile), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := dir.CA(); !errors.Is(err, durable.ErrExposed) {
		t.Errorf("exposed key: %v", err)
	}
}

func TestDirRefusesMixtures(t *testing.T) {
	dir := Dir(t.TempDir())
	ca, err := dir.Init("c", Holder{Name: "ctl"}, at(0))
	if err != nil {
		t.Fatal(err)
	}
	other, err := ca.Issue(Holder{Role: identity.Controller, Name: "ctl"}, at(0))
	if err != nil {
		t.Fatal(err)
	}
	mine, err := dir.Host()
	if err != nil {
		t.Fatal(err)
	}
	if err := dir.SaveHost(Pair{Cert: encodeCert(mine.Leaf.Raw), Key: other.Key}); err != nil {
		t.Fatal(err)
	}
	if _, err := dir.Host(); err == nil || !strings.Contains(err.Error(), "do not belong together") {
		t.Errorf("key of another certificate: %v", err)
	}
	stranger, err := newTestCA(t, "c").Issue(Holder{Role: identity.Controller, Name: "ctl"}, at(0))
	if err != nil {
		t.Fatal(err)
	}
	if err := dir.SaveHost(stranger); err != nil {
		t.Fatal(err)
	}
	if _, err := dir.Host(); err == nil || !strings.Contains(err.Error(), "not signed by") {
		t.Errorf("certificate of another authority: %v", err)
	}
	if err := durable.WriteFile(dir.pathOf(CAKeyFile), stranger.Key, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := dir.CA(); err == nil {
		t.Error("authority with another key")
	}
	if err := dir.SaveEnrolled(Pair{Cert: ca.CertPEM()}); !errors.Is(err, ErrBadPEM) {
		t.Errorf("an answer without a leaf: %v", err)
	}
}

func TestRevocationList(t *testing.T) {
	dir := Dir(t.TempDir())
	ca, err := dir.Init("c", Holder{Name: "ctl"}, at(0))
	if err != nil {
		t.Fatal(err)
	}
	var none Revocations
	one, err := none.With("AbC", at(1))
	if err != nil {
		t.Fatal(err)
	}
	two, err := one.With("ff", at(2))
	if err != nil {
		t.Fatal(err)
	}
	if none.Len() != 0 || one.Len() != 1 || !two.Has("abc") || !two.Has("ff") || two.Has("fe") || one.Has("ff") {
		t.Error("sets are not values")
	}
	if again, err := two.With("ff", at(9)); err != nil || again.Len() != 2 || !again.at["ff"].Equal(at(2)) {
		t.Error("the first revocation counts")
	}
	if _, err := none.With("xyz", at(1)); err == nil {
		t.Error("serial xyz")
	}
	save := func(signer *CA, r Revocations, number int64) error {
		list, err := signer.SignList(r, number, at(3))
		if err != nil {
			t.Fatal(err)
		}
		return dir.SaveList(list)
	}
	if err := save(ca, two, 5); err != nil {
		t.Fatal(err)
	}
	if err := save(ca, one, 4); err == nil {
		t.Error("an older list replaced a newer")
	}
	if err := save(newTestCA(t, "c"), one, 6); err == nil {
		t.Error("a stranger's list was stored")
	}
	h, err := dir.Host()
	if err != nil || h.Number != 5 || h.Revoked.Len() != 2 || !h.Revoked.Has("abc") {
		t.Errorf("%+v, %v", h, err)
	}
}
