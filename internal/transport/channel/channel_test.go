package channel

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster/internal/transport/framed"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
)

// accepted returns both ends of a connection.
func accepted(t *testing.T, network, address string) (client, server net.Conn) {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if client, err = net.Dial(network, l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

func TestProtocolOfALocalClient(t *testing.T) {
	for text, want := range map[string]Protocol{
		framed.Preface + "and more":            Framed,
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nmore": GRPC,
	} {
		client, raw := accepted(t, "unix", filepath.Join(t.TempDir(), "s"))
		if _, err := client.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		client.Close()
		c, err := (&Server{}).Handshake(t.Context(), raw)
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.Protocol()
		if err != nil || got != want || !c.Local || c.Peer.Kind != identity.LocalUser {
			t.Errorf("%q: %s, %v, %+v", text, got, err, c.Peer)
		}
		rest, err := io.ReadAll(c)
		if want == Framed {
			text = text[len(framed.Preface):]
		}
		if err != nil || string(rest) != text {
			t.Errorf("then %q, %v; want %q", rest, err, text)
		}
		again, err := (&Server{}).Handshake(t.Context(), c)
		if err != nil || again != c {
			t.Errorf("a connection that is known already: %v", err)
		}
	}
}

func TestProtocolOfASilentClient(t *testing.T) {
	client, raw := accepted(t, "unix", filepath.Join(t.TempDir(), "s"))
	c, err := (&Server{}).Handshake(t.Context(), raw)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Write([]byte("MUS")); err != nil {
		t.Fatal(err)
	}
	client.Close()
	if p, err := c.Protocol(); !errors.Is(err, io.EOF) {
		t.Errorf("%q, %v", p, err)
	}
}

func TestTCPNeedsTLS(t *testing.T) {
	client, raw := accepted(t, "tcp", "127.0.0.1:0")
	if c, err := (&Server{}).Handshake(t.Context(), raw); err == nil {
		t.Errorf("served %+v", c.Peer)
	}
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the connection stays open: %v", err)
	}
}

func TestTLSByALPN(t *testing.T) {
	dir := pki.Dir(t.TempDir())
	if _, err := dir.Init("c", pki.Holder{Name: "ctl", Hosts: []string{"localhost"}}, time.Now()); err != nil {
		t.Fatal(err)
	}
	source, err := pki.LoadSource(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{TLS: source.Server(false, ALPNGRPC, framed.ALPN), Cluster: "c"}
	for _, x := range []struct {
		alpn string
		send string
		want Protocol
	}{{ALPNGRPC, "x", GRPC}, {framed.ALPN, framed.Preface, Framed}, {framed.ALPN, "PRI * HT", ""}, {"", "x", ""}} {
		client, raw := accepted(t, "tcp", "127.0.0.1:0")
		cfg := source.Client("localhost", identity.Controller, x.alpn)
		if x.alpn == "" {
			cfg.NextProtos, cfg.Certificates = nil, nil
		}
		secure := tls.Client(client, cfg)
		failed := make(chan error, 1)
		go func() {
			_, err := secure.Write([]byte(x.send))
			failed <- err
		}()
		c, err := s.Handshake(t.Context(), raw)
		if err != nil {
			t.Fatal(err)
		}
		kind := identity.Controller
		if x.alpn == "" {
			kind = identity.Anonymous
		}
		got, err := c.Protocol()
		if got != x.want || (err == nil) != (x.want != "") || c.Local || c.Peer.Kind != kind {
			t.Errorf("%+v: %q, %v, %+v", x, got, err, c.Peer)
		}
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	client, raw := accepted(t, "tcp", "127.0.0.1:0")
	secure := tls.Client(client, source.Client("localhost", identity.Controller, ALPNGRPC))
	go secure.Handshake()
	if _, _, err := s.Authenticate(t.Context(), raw); err == nil {
		t.Error("a framed listener took a gRPC client")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, raw = accepted(t, "tcp", "127.0.0.1:0")
	if _, err := s.Handshake(ended, raw); !errors.Is(err, context.Canceled) {
		t.Errorf("a handshake without time: %v", err)
	}
}

func TestDetachKeepsWhatWasRead(t *testing.T) {
	client, raw := accepted(t, "unix", filepath.Join(t.TempDir(), "s"))
	if _, err := client.Write([]byte(framed.Preface + "rest")); err != nil {
		t.Fatal(err)
	}
	client.Close()
	c, err := (&Server{}).Handshake(t.Context(), raw)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Protocol(); err != nil {
		t.Fatal(err)
	}
	_, ahead := c.Detach()
	if b, err := io.ReadAll(ahead); err != nil || string(b) != "rest" {
		t.Errorf("%q, %v", b, err)
	}
	var none *bufio.Reader
	if _, ahead := (&Conn{Conn: raw}).Detach(); ahead == none {
		t.Error("no buffer")
	}
}

func TestAdmissionRefusesMalformedAttestations(t *testing.T) {
	a := &Admission{Now: time.Now}
	login := identity.Identity{Kind: identity.Login, UID: identity.NoID, GID: identity.NoID, Node: "l1"}
	for _, text := range []string{"", ":", "1", "1:", ":1", "-1:1", "1:-1", "4294967296:1", "1:1:1", "root:root", " 1:1"} {
		id, err := a.Admit(t.Context(), login, func(string) (string, bool) { return text, true })
		var e *rpcstatus.Error
		if !errors.As(err, &e) || e.Wire != rpcstatus.InvalidArgument || id.Kind != identity.Anonymous {
			t.Errorf("%q: %+v, %v", text, id, err)
		}
	}
	if _, err := a.Admit(t.Context(), login, func(string) (string, bool) { return "4294967295:1", true }); err == nil {
		t.Error("uid -1")
	}
	if id, err := a.Admit(t.Context(), login, func(string) (string, bool) { return "", false }); err != nil || id.Kind != identity.Login {
		t.Errorf("without attestation: %+v, %v", id, err)
	}
}

// TestTokenOfACall: a token names the user, whoever shows it; it is refused beside an attestation, where tokens are not
// accepted, and when it is not good.
func TestTokenOfACall(t *testing.T) {
	bad := rpcstatus.New(rpcstatus.Unauthenticated, "bad token")
	ada := identity.Identity{Kind: identity.AttestedUser, UID: 1000, GID: 100, User: "ada", Token: true}
	a := &Admission{Now: time.Now, Token: func(text string) (identity.Identity, error) {
		if text != "good" {
			return identity.Nameless(), bad
		}
		return ada, nil
	}}
	root := identity.Identity{Kind: identity.LocalUser}
	node := identity.Identity{Kind: identity.Agent, Node: "n1", Serial: "7", NotAfter: time.Now().Add(time.Hour)}
	for _, channel := range []identity.Identity{root, node} {
		for name, c := range map[string]struct {
			a       *Admission
			headers map[string]string
			ok      bool
		}{
			"good":           {a, map[string]string{framed.HeaderToken: "good"}, true},
			"bad":            {a, map[string]string{framed.HeaderToken: "else"}, false},
			"empty":          {a, map[string]string{framed.HeaderToken: ""}, false},
			"and attested":   {a, map[string]string{framed.HeaderToken: "good", framed.HeaderAttest: "0:0"}, false},
			"not taken here": {&Admission{Now: time.Now}, map[string]string{framed.HeaderToken: "good"}, false},
		} {
			id, err := c.a.Admit(t.Context(), channel, func(key string) (string, bool) { v, ok := c.headers[key]; return v, ok })
			if c.ok && (err != nil || id.UID != 1000 || !id.Token || id.Node == "") || !c.ok && (err == nil || id.Kind != identity.Anonymous) {
				t.Errorf("%s over %s: %+v, %v", name, channel, id, err)
			}
			if name == "bad" && (err == nil || !strings.Contains(err.Error(), "unset SLURM_JWT")) {
				t.Errorf("a token that is not good: %v", err)
			}
		}
	}
}
