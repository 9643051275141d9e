package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/scheduler/daemon"
	"github.com/musterhpc/muster/spec"
)

// openServer makes a cluster in a folder, or opens the one that is there, with
// a controller that listens nowhere; stop ends it.
func openServer(t *testing.T, dir string, conf ...string) (s *server, stop func()) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(dir, "muster.yaml")); err != nil {
		var errs bytes.Buffer
		args := []string{"--dir", dir, "--nodes", "2"}
		for _, line := range conf {
			args = append(args, "--conf", line)
		}
		if code := initCommand(args, io.Discard, &errs); code != 0 {
			t.Fatalf("init: %s", errs.String())
		}
	}
	cfg, err := conffile.Load(filepath.Join(dir, "muster.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	s = &server{cfg: cfg, log: slog.New(slog.DiscardHandler), stop: make(chan struct{})}
	if s.cluster, _, err = readCluster(cfg); err != nil {
		t.Fatal(err)
	}
	if err := s.openLedger(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- s.ctl.Run(ctx, daemon.Create{Config: s.cluster, UUID: [16]byte{1}}, ready) }()
	select {
	case <-ready:
	case err := <-done:
		t.Fatalf("the controller ended: %v", err)
	}
	return s, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := s.closeLedger(); err != nil {
			t.Error(err)
		}
	}
}

// as is a call of a local user.
func as(t *testing.T, user string, uid uint32) context.Context {
	id := identity.Nameless()
	id.Kind, id.UID, id.GID, id.User = identity.LocalUser, uid, uid, user
	return identity.With(t.Context(), id)
}

// TestEnrolmentAnswerLost: a node whose answer was lost asks again with the
// same token and key and gets a certificate, also from a controller that has
// started again since; another key is refused, for good.
func TestEnrolmentAnswerLost(t *testing.T) {
	dir := t.TempDir()
	s, stop := openServer(t, dir)
	tok, err := (&daemon.ClusterService{C: s.ctl}).CreateToken(as(t, "root", 0), &apiv1.CreateTokenRequest{Node: "node1"})
	if err != nil {
		t.Fatal(err)
	}
	request := func(node string) []byte {
		csr, _, err := pki.NewRequest(node)
		if err != nil {
			t.Fatal(err)
		}
		return csr
	}
	mine, thief := request("node1"), request("node1")
	enrol := func(node string, csr []byte) (*apiv1.EnrolReply, error) {
		return (&daemon.AgentService{C: s.ctl}).Enrol(t.Context(), &apiv1.EnrolRequest{Token: tok.GetToken(), Node: node, Csr: csr})
	}
	refused := func(node string, csr []byte, why string) {
		t.Helper()
		if rep, err := enrol(node, csr); spec.CodeOf(err) != spec.CodeBadCredential || !strings.Contains(err.Error(), why) {
			t.Errorf("%s got %d bytes, %v; want a refusal with %q", node, len(rep.GetCertificate()), err, why)
		}
	}
	refused("node2", request("node2"), "for another host")
	first, err := enrol("node1", mine)
	if err != nil {
		t.Fatal(err)
	}
	refused("node1", thief, "used already")
	stop()
	s, stop = openServer(t, dir)
	defer stop()
	again, err := enrol("node1", mine)
	if err != nil {
		t.Fatalf("the retry is refused: %v", err)
	}
	a, err := pki.ParseCertificate(first.GetCertificate())
	if err != nil {
		t.Fatal(err)
	}
	b, err := pki.ParseCertificate(again.GetCertificate())
	if err != nil {
		t.Fatal(err)
	}
	if a.Subject.String() != b.Subject.String() || !bytes.Equal(a.RawSubjectPublicKeyInfo, b.RawSubjectPublicKeyInfo) {
		t.Errorf("the retry got a certificate for %s, not for %s and its key", b.Subject, a.Subject)
	}
	refused("node1", thief, "used already")
	if n := len(s.ctl.View().State.Access.Certs); n != 2 {
		t.Errorf("the ledger has %d certificates, want both that were issued", n)
	}
}

// TestSentAwayStaysAway: a machine that is revoked does not come back with the
// token and key that it had, nor by asking for its next certificate while it is
// sent away; with a new token it does.
func TestSentAwayStaysAway(t *testing.T) {
	s, stop := openServer(t, t.TempDir())
	defer stop()
	hosts, agents, root := &daemon.ClusterService{C: s.ctl}, &daemon.AgentService{C: s.ctl}, as(t, "root", 0)
	csr, _, err := pki.NewRequest("l1")
	if err != nil {
		t.Fatal(err)
	}
	token := func() string {
		t.Helper()
		rep, err := hosts.CreateToken(root, &apiv1.CreateTokenRequest{Node: "l1", Login: true})
		if err != nil {
			t.Fatal(err)
		}
		return rep.GetToken()
	}
	enrol := func(token string) (*apiv1.EnrolReply, error) {
		return agents.Enrol(t.Context(), &apiv1.EnrolRequest{Token: token, Node: "l1", Csr: csr})
	}
	used, unused := token(), token()
	got, err := enrol(used)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := pki.ParseCertificate(got.GetCertificate())
	if err != nil {
		t.Fatal(err)
	}
	channel, err := identity.FromCertificate(cert, s.cluster.ClusterName)
	if err != nil {
		t.Fatal(err)
	}
	renew := func() error { // as of a connection that was let in before
		_, err := agents.Renew(identity.With(t.Context(), channel), &apiv1.RenewRequest{Csr: csr})
		return err
	}
	if err := renew(); err != nil {
		t.Fatal(err)
	}
	if rep, err := hosts.RevokeHost(root, &apiv1.RevokeHostRequest{Name: "l1"}); err != nil || len(rep.GetHosts()) != 2 {
		t.Fatalf("revoked are %v, %v", rep, err)
	}
	if err := renew(); spec.CodeOf(err) != spec.CodeBadCredential {
		t.Errorf("renewed meanwhile: %v", err)
	}
	for _, tok := range []string{used, unused} {
		if _, err := enrol(tok); spec.CodeOf(err) != spec.CodeBadCredential {
			t.Errorf("enrolled again with a token of before: %v", err)
		}
	}
	for _, c := range s.ctl.View().State.Access.Certs {
		if !c.Revoked {
			t.Errorf("certificate %s is still good", c.Serial)
		}
	}
	if _, err := enrol(token()); err != nil {
		t.Errorf("with a new token: %v", err)
	}
}
