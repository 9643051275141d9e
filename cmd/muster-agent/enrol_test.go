package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/transport/channel"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/listen"
	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/nodeagent/assembly"
	"github.com/musterhpc/muster/nodeagent/controllers"
	"github.com/musterhpc/muster/nodeagent/enrolment"
)

// authority is the controller's side of enrolment, made of the real parts.
type authority struct {
	ca     *pki.CA
	tokens *pki.MemoryTokens
	dir    pki.Dir
}

// serveTLS brings the controller up on TCP and gives its address.
func (l *lab) serveTLS(a *authority) string {
	l.t.Helper()
	source, err := pki.LoadSource(a.dir)
	if err != nil {
		l.t.Fatal(err)
	}
	sock, err := listen.TCP(context.Background(), "127.0.0.1:0")
	if err != nil {
		l.t.Fatal(err)
	}
	l.ep = l.endpoint(sock, &channel.Server{TLS: source.Server(false, channel.ALPNGRPC), Cluster: "lab"})
	return sock.Addr().String()
}

func newAuthority(t *testing.T) *authority {
	a := &authority{tokens: &pki.MemoryTokens{}, dir: pki.Dir(t.TempDir())}
	var err error
	if a.ca, err = a.dir.Init("lab", pki.Holder{Name: "ctl", Hosts: []string{"127.0.0.1"}}, time.Now()); err != nil {
		t.Fatal(err)
	}
	return a
}

// token writes a token for a node into a file.
func (a *authority) token(t *testing.T, node string) string {
	text, record, err := pki.NewToken(a.ca, identity.Agent, node, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	a.tokens.Add(record)
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestEnrolment(t *testing.T) {
	l, a := newLab(t), newAuthority(t)
	lose := true // the answer to the first request
	l.enrol = func(req *apiv1.EnrolRequest) (*apiv1.EnrolReply, error) {
		issued, err := pki.Enrol(context.Background(), a.ca, a.tokens, pki.Request{Token: req.GetToken(), Node: req.GetNode(), CSR: req.GetCsr()}, time.Now())
		if err == nil && lose {
			lose = false
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, err
		}
		return &apiv1.EnrolReply{Certificate: issued.CertPEM, Ca: a.ca.CertPEM()}, nil
	}
	l.opts.Controller = l.serveTLS(a)
	l.opts.TokenFile = a.token(t, "n1")
	if err := assembly.Serve(t.Context(), l.opts, version, l.log); err == nil {
		t.Fatal("enrolled without an answer")
	}
	// The same token and key, since nobody knows whether the first request
	// came through.
	l.startAgent()
	l.awaitStream(1)
	l.mu.Lock()
	peers := strings.Join(l.peers, " ")
	l.mu.Unlock()
	if !strings.Contains(peers, "agent n1") {
		t.Errorf("the agent came as %q", peers)
	}
	l.order(l.job(key(1), "#!/bin/sh\nexit 7\n"))
	if got := exitOf(l.ended(key(1))); got != "7:0" {
		t.Errorf("ended %s", got)
	}
	for _, f := range []string{"enrol.key", "enrol.csr"} {
		if _, err := os.Stat(filepath.Join(l.opts.StateDir, "tls", f)); err == nil {
			t.Errorf("%s is left", f)
		}
	}
	l.stopAgent()

	// A new certificate, for the channel that the old one proves.
	l.renew = func(id identity.Identity, req *apiv1.RenewRequest) (*apiv1.EnrolReply, error) {
		issued, err := pki.Renew(a.ca, id, req.GetCsr(), nil, time.Now())
		return &apiv1.EnrolReply{Certificate: issued.CertPEM, Ca: a.ca.CertPEM()}, err
	}
	dir := pki.Dir(filepath.Join(l.opts.StateDir, "tls"))
	source, err := pki.LoadSource(dir)
	if err != nil {
		t.Fatal(err)
	}
	before := source.Self().Serial
	ctl := controllers.NewControllers([]string{l.opts.Controller}, source)
	if err := enrolment.Renew(t.Context(), source, dir, ctl); err != nil || source.Self().Serial == before || source.Self().Node != "n1" {
		t.Errorf("renewed %s as %v: %v", before, source.Self(), err)
	}
	if err := ctl.Close(); err != nil {
		t.Error(err)
	}

	// From now on the certificate is enough, but only for its own node.
	l.opts.TokenFile = ""
	l.startAgent()
	l.awaitStream(2)
	l.stopAgent()
	other := l.opts
	other.Node = "n2"
	refusesToServe(t, other, "not of node n2")
}

func TestEnrolmentRefused(t *testing.T) {
	l, a, stranger := newLab(t), newAuthority(t), newAuthority(t)
	asked := 0
	l.enrol = func(*apiv1.EnrolRequest) (*apiv1.EnrolReply, error) { asked++; return nil, pki.ErrTokenUnknown }
	l.opts.Controller = l.serveTLS(a)
	open := filepath.Join(l.dir, "open")
	if err := os.WriteFile(open, []byte("muster1.x.y"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ file, why string }{
		{"", "muster token n1"},
		{open, "chmod 600"},
		{stranger.token(t, "n1"), "not a controller of the cluster"},
	} {
		opts := l.opts
		opts.TokenFile = c.file
		refusesToServe(t, opts, c.why)
	}
	if asked != 0 {
		t.Error("a token was shown to a controller of another cluster")
	}
	l.opts.TokenFile = a.token(t, "n1")
	refusesToServe(t, l.opts, "enrolment token is not known")
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}
