package members_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster/controller/peers/members"
	"github.com/musterhpc/muster/internal/transport/channel"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/limit"
	"github.com/musterhpc/muster/internal/transport/pki"
)

// host makes the certificates of a host of the cluster.
func host(t *testing.T, ca *pki.CA, h pki.Holder) *pki.Source {
	t.Helper()
	pair, err := ca.Issue(h, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	dir := pki.Dir(t.TempDir())
	if err := dir.SaveEnrolled(pair); err != nil {
		t.Fatal(err)
	}
	source, err := pki.LoadSource(dir)
	if err != nil {
		t.Fatal(err)
	}
	return source
}

// TestDoor: controllers ask each other and carry the log; an agent does neither; who speaks the API's protocols is told by TLS that
// this is a standby until somebody listens for them.
func TestDoor(t *testing.T) {
	dir := pki.Dir(t.TempDir())
	ca, err := dir.Init("lab", pki.Holder{Name: "ctl1", Hosts: []string{"127.0.0.1"}}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	own, err := pki.LoadSource(dir)
	if err != nil {
		t.Fatal(err)
	}
	other := host(t, ca, pki.Holder{Role: identity.Controller, Name: "ctl2"})
	agent := host(t, ca, pki.Holder{Role: identity.Agent, Name: "n1"})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	door := members.Open(members.Config{Listener: l, Certificates: own, Cluster: "lab", Limits: limit.New(limit.Config{}, time.Now), Log: slog.New(slog.DiscardHandler),
		Answer: func(q string) (any, error) {
			if q == "who" {
				return map[string]string{"name": "ctl1"}, nil
			}
			return nil, errors.New("no such question")
		}})
	served := make(chan error, 1)
	go func() { served <- door.Serve() }()
	at := l.Addr().String()

	answer := map[string]string{}
	if err := members.Ask(t.Context(), other, at, "who", &answer); err != nil || answer["name"] != "ctl1" {
		t.Errorf("a controller is told %v, %v", answer, err)
	}
	if err := members.Ask(t.Context(), other, at, "what", &answer); err == nil || !strings.Contains(err.Error(), "no such question") {
		t.Errorf("an unknown question: %v", err)
	}
	if err := members.Ask(t.Context(), agent, at, "who", &answer); err == nil {
		t.Error("an agent is answered")
	}

	knock := func(source *pki.Source) error {
		plain, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		c, err := source.Secure("127.0.0.1", identity.Controller, channel.ALPNGRPC)(t.Context(), plain)
		if err == nil {
			c.Close()
		}
		return err
	}
	if err := knock(agent); !channel.IsStandby(err) {
		t.Errorf("nobody listens for the API: %v", err)
	}
	api := door.Listen(channel.ALPNGRPC)
	came := make(chan identity.Identity, 1)
	go func() {
		c, err := api.Accept()
		if err == nil {
			came <- c.(*channel.Conn).Peer
			c.Close()
		}
	}()
	if err := knock(agent); err != nil {
		t.Errorf("somebody listens for the API: %v", err)
	}
	if id := <-came; id.Kind != identity.Agent || id.Node != "n1" {
		t.Errorf("the API's connection is of %s", id)
	}
	if err := api.Close(); err != nil {
		t.Fatal(err)
	}
	if err := knock(agent); !channel.IsStandby(err) {
		t.Errorf("nobody listens for the API any more: %v", err)
	}

	log := door.Layer("ctl1:6817")
	if log.Addr().String() != "ctl1:6817" {
		t.Errorf("the log is known at %s", log.Addr())
	}
	far := members.Open(members.Config{Listener: l, Certificates: other}).Layer("ctl2:6817")
	go func() {
		if c, err := far.Dial(at, time.Minute); err == nil {
			_, _ = c.Write([]byte("entry"))
			c.Close()
		}
	}()
	c, err := log.Accept()
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	if _, err := c.Read(got); err != nil || string(got) != "entry" {
		t.Errorf("the log carries %q, %v", got, err)
	}
	c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := members.Ask(ctx, other, at, "who", &answer); err == nil {
		t.Error("a question without time is answered")
	}
	if err := door.Close(); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}
