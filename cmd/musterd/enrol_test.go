package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/musterhpc/muster/accounting/feed"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/local/cluster"
	"github.com/musterhpc/muster/collector"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/transport/channel"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/ledger/log"
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
		if code := cluster.Init(args, io.Discard, &errs); code != 0 {
			t.Fatalf("init: %s", errs.String())
		}
	}
	cfg, err := conffile.Load(filepath.Join(dir, "muster.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	s = &server{cfg: cfg, log: slog.New(slog.DiscardHandler), stop: make(chan struct{}), stopOnce: new(sync.Once), calls: &collector.Calls{}}
	if s.cluster, _, err = conffile.ReadCluster(cfg); err != nil {
		t.Fatal(err)
	}
	if err := s.openLedger(t.Context(), log.Options{}); err != nil {
		t.Fatal(err)
	}
	if err := s.newController(); err != nil {
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
	tok, err := daemon.NewClusterService(s.ctl).CreateToken(as(t, "root", 0), &apiv1.CreateTokenRequest{Node: "node1"})
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

// loginHost is login host l1 of a cluster.
type loginHost struct {
	t      *testing.T
	hosts  *daemon.ClusterService
	agents *daemon.AgentService
	root   context.Context // of a call of root beside the controller
	csr    []byte
}

func newLoginHost(t *testing.T, s *server) *loginHost {
	csr, _, err := pki.NewRequest("l1")
	if err != nil {
		t.Fatal(err)
	}
	return &loginHost{t, daemon.NewClusterService(s.ctl), &daemon.AgentService{C: s.ctl}, as(t, "root", 0), csr}
}

func (l *loginHost) token() string {
	l.t.Helper()
	rep, err := l.hosts.CreateToken(l.root, &apiv1.CreateTokenRequest{Node: "l1", Login: true})
	if err != nil {
		l.t.Fatal(err)
	}
	return rep.GetToken()
}

// enrol gives whom the certificate names.
func (l *loginHost) enrol(token string) (identity.Identity, error) {
	rep, err := l.agents.Enrol(l.t.Context(), &apiv1.EnrolRequest{Token: token, Node: "l1", Csr: l.csr})
	if err != nil {
		return identity.Nameless(), err
	}
	cert, err := pki.ParseCertificate(rep.GetCertificate())
	if err != nil {
		l.t.Fatal(err)
	}
	return identity.FromCertificate(cert, cert.Subject.Organization[0])
}

// renew asks over a connection that was let in before.
func (l *loginHost) renew(id identity.Identity) error {
	_, err := l.agents.Renew(identity.With(l.t.Context(), id), &apiv1.RenewRequest{Csr: l.csr})
	return err
}

func (l *loginHost) revoke(certificates int) {
	l.t.Helper()
	if rep, err := l.hosts.RevokeHost(l.root, &apiv1.RevokeHostRequest{Name: "l1"}); err != nil || len(rep.GetHosts()) != certificates {
		l.t.Fatalf("revoked are %v, %v", rep, err)
	}
}

// TestSentAwayStaysAway: a machine that is revoked does not come back with the
// token and key that it had, nor by asking for its next certificate while it is
// sent away; with a new token it does.
func TestSentAwayStaysAway(t *testing.T) {
	s, stop := openServer(t, t.TempDir())
	defer stop()
	l := newLoginHost(t, s)
	used, unused := l.token(), l.token()
	id, err := l.enrol(used)
	if err == nil {
		err = l.renew(id)
	}
	if err != nil {
		t.Fatal(err)
	}
	l.revoke(2)
	if err := l.renew(id); spec.CodeOf(err) != spec.CodeBadCredential {
		t.Errorf("renewed meanwhile: %v", err)
	}
	for _, tok := range []string{used, unused} {
		if _, err := l.enrol(tok); spec.CodeOf(err) != spec.CodeBadCredential {
			t.Errorf("enrolled again with a token of before: %v", err)
		}
	}
	for _, c := range s.ctl.View().State.Access.Certs {
		if !c.Revoked {
			t.Errorf("certificate %s is still good", c.Serial)
		}
	}
	if _, err := l.enrol(l.token()); err != nil {
		t.Errorf("with a new token: %v", err)
	}
}

// TestRenewalsEnd: a machine that asks for one certificate after the other does
// not fill the ledger with them.
func TestRenewalsEnd(t *testing.T) {
	s, stop := openServer(t, t.TempDir())
	defer stop()
	l := newLoginHost(t, s)
	id, err := l.enrol(l.token())
	for n := 0; err == nil && n < 100; n++ {
		err = l.renew(id)
	}
	if certs := len(s.ctl.View().State.Access.Certs); spec.CodeOf(err) != spec.CodeBadCredential || certs > 50 {
		t.Errorf("%d certificates: %v", certs, err)
	}
	if _, err := l.enrol(l.token()); err != nil {
		t.Errorf("with a new token: %v", err)
	}
}

// TestSentAwayFromAccountingApart: it hears from the controller which
// certificates are let in no more.
func TestSentAwayFromAccountingApart(t *testing.T) {
	s, stop := openServer(t, t.TempDir())
	defer stop()
	l := newLoginHost(t, s)
	first, err := l.enrol(l.token())
	if err != nil {
		t.Fatal(err)
	}
	l.revoke(1)
	second, err := l.enrol(l.token())
	if err != nil {
		t.Fatal(err)
	}
	source, err := pki.LoadSource(pki.Dir(s.cfg.TLS.Dir))
	if err != nil {
		t.Fatal(err)
	}
	rep, err := (&feed.Service{Head: s.ctl, ListRevoked: s.directory().ListRevoked}).Confirm(t.Context(), &apiv1.ConfirmRequest{})
	if err != nil {
		t.Fatal(err)
	}
	apart := &server{apart: &feed.Remote{}}
	revoked := apart.directory().IsRevoked(source)
	if revoked(first.Serial) {
		t.Error("it knows before it has heard")
	}
	apart.apart.RevokedAre(rep.GetRevoked())
	if !revoked(first.Serial) || revoked(second.Serial) {
		t.Errorf("after hearing of %v, it refuses the revoked one: %v, the new one: %v", rep.GetRevoked(), revoked(first.Serial), revoked(second.Serial))
	}
}

// TestTokenOfASentAway: a user's token that was made by way of a machine is worth
// as much as that machine's word.
func TestTokenOfASentAway(t *testing.T) {
	s, stop := openServer(t, t.TempDir())
	defer stop()
	l := newLoginHost(t, s)
	id, err := l.enrol(l.token())
	if err != nil {
		t.Fatal(err)
	}
	ada, err := id.Attest(identity.Attestation{UID: 1000, GID: 1000}, nil)
	if err != nil {
		t.Fatal(err)
	}
	token := func(ctx context.Context) string {
		rep, err := l.hosts.CreateUserToken(ctx, &apiv1.CreateUserTokenRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return rep.GetToken()
	}
	far, near := token(identity.With(t.Context(), ada)), token(l.root)
	source, err := pki.LoadSource(pki.Dir(s.cfg.TLS.Dir))
	if err != nil {
		t.Fatal(err)
	}
	web := func(token string) error {
		r := httptest.NewRequest("GET", "/v1/Cluster/Ping", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		_, err := s.callers().WebIdentity(r, &channel.Admission{Revoked: s.directory().IsRevoked(source), Now: time.Now})
		return err
	}
	if err := web(far); err != nil {
		t.Error(err)
	}
	l.revoke(1)
	if err := web(near); err != nil {
		t.Errorf("a token that was made here: %v", err)
	}
	if err := web(far); err == nil || !strings.Contains(err.Error(), "sent away") {
		t.Errorf("a token that was made there: %v", err)
	}
}
