package pki

import (
	"errors"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/musterhpc/muster/internal/transport/identity"
)

func TestRenewController(t *testing.T) {
	dir := Dir(t.TempDir())
	made := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	holder := Holder{Name: "ctl", Hosts: []string{"localhost", "ctl.example", "10.0.0.1", "::1"}}
	if _, err := dir.Init("test", holder, made); err != nil {
		t.Fatal(err)
	}
	source, err := LoadSource(dir)
	if err != nil {
		t.Fatal(err)
	}
	first, err := dir.Host()
	if err != nil {
		t.Fatal(err)
	}
	day := 24 * time.Hour
	if renewed, err := dir.RenewController(made.Add(59 * day)); renewed || err != nil {
		t.Fatalf("on day 59: %v, %v", renewed, err)
	}
	for _, after := range []time.Duration{60 * day, 400 * day} { // the second time long expired
		now := made.Add(after)
		if renewed, err := dir.RenewController(now); !renewed || err != nil {
			t.Fatalf("after %v: %v, %v", after, renewed, err)
		}
		if renewed, err := dir.RenewController(now); renewed || err != nil {
			t.Fatalf("after %v, at once again: %v, %v", after, renewed, err)
		}
		if err := source.Reload(); err != nil {
			t.Fatal(err)
		}
		next, err := dir.Host()
		if err != nil {
			t.Fatal(err)
		}
		self := source.Self()
		if self.Kind != identity.Controller || self.Node != "ctl" || self.Cluster != "test" {
			t.Errorf("after %v: it names %v", after, self)
		}
		if want := now.Add(LeafLifetime); !next.Leaf.NotAfter.Equal(want) {
			t.Errorf("after %v: until %v, want %v", after, next.Leaf.NotAfter, want)
		}
		if !slices.Equal(next.Leaf.DNSNames, first.Leaf.DNSNames) ||
			!slices.EqualFunc(next.Leaf.IPAddresses, first.Leaf.IPAddresses, net.IP.Equal) {
			t.Errorf("after %v: for %v %v", after, next.Leaf.DNSNames, next.Leaf.IPAddresses)
		}
		if next.Leaf.SerialNumber.Cmp(first.Leaf.SerialNumber) == 0 {
			t.Errorf("after %v: the serial number is the old one", after)
		}
	}
}

func TestWitnessCannotRenew(t *testing.T) {
	dir := Dir(t.TempDir())
	made := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	if _, err := dir.Init("test", Holder{Name: "wit"}, made); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(dir.pathOf(CAKeyFile)); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(dir.pathOf(HostFile))
	if err != nil {
		t.Fatal(err)
	}
	renewed, err := dir.RenewController(made.Add(89 * 24 * time.Hour))
	if renewed || !errors.Is(err, ErrNoAuthority) {
		t.Errorf("%v, %v", renewed, err)
	}
	after, err := os.ReadFile(dir.pathOf(HostFile))
	if err != nil || string(after) != string(before) {
		t.Errorf("the certificate changed (%v)", err)
	}
}

func TestNodesDoNotRenewThemselves(t *testing.T) {
	made := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	ca, err := NewCA("test", made)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue(Holder{Role: identity.Agent, Name: "n1"}, made)
	if err != nil {
		t.Fatal(err)
	}
	dir := Dir(t.TempDir())
	if err := dir.SaveEnrolled(pair); err != nil {
		t.Fatal(err)
	}
	if renewed, err := dir.RenewController(made.Add(89 * 24 * time.Hour)); renewed || err != nil {
		t.Errorf("%v, %v", renewed, err)
	}
}
