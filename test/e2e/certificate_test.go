package e2e

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/pki"
)

// TestExpiredController starts a cluster whose controller was off while its certificate expired:
// it has a new one before anything uses it, and its agents reach it.
func TestExpiredController(t *testing.T) {
	c := start(t)
	c.must("down", "--dir", c.dir, "--jobs")
	dir := pki.Dir(filepath.Join(c.dir, "state", "tls"))
	ca, err := dir.CA()
	if err != nil {
		t.Fatal(err)
	}
	first, err := dir.Host()
	if err != nil {
		t.Fatal(err)
	}
	holder := pki.Holder{
		Role:  identity.Controller,
		Name:  first.Leaf.Subject.CommonName,
		Hosts: append([]string{"127.0.0.1"}, first.Leaf.DNSNames...),
	}
	old, err := ca.Issue(holder, time.Now().Add(-100*24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if err := dir.SaveHost(old); err != nil {
		t.Fatal(err)
	}
	c.must("up", "--dir", c.dir)
	c.until("hello", "srun", "-N1", "echo", "hello")
	next, err := dir.Host()
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(next.Leaf.NotAfter); left < 89*24*time.Hour {
		t.Errorf("the certificate ends in %v", left)
	}
}
