package serve_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/musterhpc/muster/internal/transport/channel"
	"github.com/musterhpc/muster/internal/transport/echotest"
	"github.com/musterhpc/muster/internal/transport/framed"
	"github.com/musterhpc/muster/internal/transport/framed/client"
	"github.com/musterhpc/muster/internal/transport/framed/serve"
	"github.com/musterhpc/muster/internal/transport/grpcx"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
)

func serveOn(t *testing.T, cfg serve.Config, network, address string) (*serve.Server, string) {
	t.Helper()
	s, err := serve.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		<-served
	})
	return s, l.Addr().String()
}

// TestLoginHost runs the whole way: a tool on a login host, its agent's socket, TLS, the controller.
func TestLoginHost(t *testing.T) {
	echotest.NoGoroutines(t, "internal/transport/framed")
	ctl, login := pki.Dir(t.TempDir()), pki.Dir(t.TempDir())
	ca, err := ctl.Init("prod", pki.Holder{Name: "ctl", Hosts: []string{"localhost"}}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	p, err := ca.Issue(pki.Holder{Role: identity.Login, Name: "l1"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := login.SaveEnrolled(p); err != nil {
		t.Fatal(err)
	}
	ctlSource, err := pki.LoadSource(ctl)
	if err != nil {
		t.Fatal(err)
	}
	loginSource, err := pki.LoadSource(login)
	if err != nil {
		t.Fatal(err)
	}
	registry := grpcx.NewRegistry(nil, nil)
	service := &echotest.Service{Blocked: make(chan struct{}, 300)}
	registry.RegisterService(echotest.Desc(), service)
	ch := &channel.Server{TLS: ctlSource.Server(true, framed.ALPN), Cluster: "prod"}
	admit := &channel.Admission{Now: time.Now, Token: func(text string) (identity.Identity, error) {
		if text != "ada's" {
			return identity.Nameless(), errors.New("not valid")
		}
		return identity.Identity{Kind: identity.AttestedUser, UID: 1000, GID: 100, User: "ada", Token: true}, nil
	}}
	controller, address := serveOn(t, serve.Config{Handler: registry.Handle, Authenticate: ch.Authenticate, Admit: admit.Admit, Errors: rpcstatus.Numbers()}, "tcp", "127.0.0.1:0")

	secure := loginSource.Secure("localhost", identity.Controller, framed.ALPN)
	r := serve.NewRelay(serve.RelayOptions{Dial: func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		plain, err := d.DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		return secure(ctx, plain)
	}})
	_, socket := serveOn(t, serve.Config{Handler: r.Handle, Authenticate: (&channel.Server{}).Authenticate}, "unix", filepath.Join(t.TempDir(), "s"))
	defer r.Close()

	c, err := client.Dial(t.Context(), client.Unix(socket))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	uid := os.Getuid()
	if uid == 0 {
		uid = int(identity.Nobody)
	}
	out := new(wrapperspb.StringValue)
	// A token goes to the controller as it is, and is not mixed with the kernel's word.
	for token, who := range map[string]string{"ada's": "user ada (uid 1000, attested by l1)", "else": ""} {
		err := c.With(framed.Pair{Key: framed.HeaderToken, Value: token}).Call(t.Context(), echotest.WhoAmI, wrapperspb.String("root"), out)
		if (err == nil) != (who != "") || err == nil && out.GetValue() != who {
			t.Errorf("the token %q is of %q (%v)", token, out.GetValue(), err)
		}
	}
	want := fmt.Sprintf("user %d (uid %d, attested by l1)", uid, uid)
	if err := c.Call(t.Context(), echotest.WhoAmI, wrapperspb.String("root"), out); err != nil || out.GetValue() != want {
		t.Errorf("I am %q, %v; want %q", out.GetValue(), err, want)
	}
	if err := c.With(framed.Attest(0, 0)).Call(t.Context(), echotest.WhoAmI, wrapperspb.String(""), out); !is(err, rpcstatus.PermissionDenied) {
		t.Errorf("a user who attests: %q, %v", out.GetValue(), err)
	}
	if err := c.Call(t.Context(), echotest.Fail, wrapperspb.String("coded"), out); !errors.Is(err, echotest.Refusal()) {
		t.Errorf("refusal: %v", err)
	}
	s, err := c.Stream(t.Context(), echotest.Count, wrapperspb.Int64(50_000))
	if err != nil {
		t.Fatal(err)
	}
	n := new(wrapperspb.Int64Value)
	for i := int64(1); i <= 50_000; i++ {
		if err := s.Recv(n); err != nil || n.GetValue() != i {
			t.Fatalf("%d: %d, %v", i, n.GetValue(), err)
		}
	}
	if err := s.Recv(n); !errors.Is(err, io.EOF) {
		t.Errorf("end: %v", err)
	}
	// More who wait than one connection to the controller serves at a time, and a command beside them.
	watching, stopWatching := context.WithCancel(t.Context())
	for range 3 {
		w, err := client.Dial(t.Context(), client.Unix(socket))
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		for range 100 {
			if _, err := w.Start(watching, echotest.Block, wrapperspb.String("")); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 300 {
		<-service.Blocked
	}
	if err := c.Call(t.Context(), echotest.WhoAmI, wrapperspb.String(""), out); err != nil {
		t.Errorf("a command beside 300 who wait: %v", err)
	}
	if n := controller.Conns(); n != 3 {
		t.Errorf("300 who wait have %d connections, want 3", n)
	}
	stopWatching()
	if n := controller.Disconnect(func(id identity.Identity) bool { return id.Kind == identity.Login }); n != 3 {
		t.Errorf("%d connections to the controller", n)
	}
	for { // the relay notices, and dials again
		err := c.Call(t.Context(), echotest.WhoAmI, wrapperspb.String(""), out)
		if err == nil {
			break
		}
		if !is(err, rpcstatus.Unavailable) {
			t.Fatal(err)
		}
	}
	controller.Close()
	for {
		err := c.Call(t.Context(), echotest.WhoAmI, wrapperspb.String(""), out)
		if !is(err, rpcstatus.Unavailable) {
			t.Fatalf("without a controller: %v", err)
		}
		if e := new(rpcstatus.Error); errors.As(err, &e) && e.Message != "" && e.Details[0].Value == framed.OutcomeNotSent {
			break // it could not be dialled
		}
	}
}

// TestCrowd: of many who come while the controller is being dialled no more share the connection than it serves at a time.
func TestCrowd(t *testing.T) {
	const callers = 300
	registry := grpcx.NewRegistry(nil, nil)
	service := &echotest.Service{Blocked: make(chan struct{}, callers)}
	registry.RegisterService(echotest.Desc(), service)
	controller, address := serveOn(t, serve.Config{Handler: registry.Handle, Authenticate: (&channel.Server{}).Authenticate,
		Admit: func(_ context.Context, id identity.Identity, _ func(string) (string, bool)) (identity.Identity, error) {
			return id, nil
		}},
		"unix", filepath.Join(t.TempDir(), "controller"))
	reachable, came := make(chan struct{}), make(chan struct{}, callers)
	r := serve.NewRelay(serve.RelayOptions{Dial: func(ctx context.Context) (net.Conn, error) {
		<-reachable
		var d net.Dialer
		return d.DialContext(ctx, "unix", address)
	}})
	defer r.Close()
	front := func(ctx context.Context, call *serve.Call) error {
		came <- struct{}{}
		return r.Handle(ctx, call)
	}
	_, socket := serveOn(t, serve.Config{Handler: front, Authenticate: (&channel.Server{}).Authenticate}, "unix", filepath.Join(t.TempDir(), "s"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 3 {
		c, err := client.Dial(ctx, client.Unix(socket))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for range callers / 3 {
			if _, err := c.Start(ctx, echotest.Block, wrapperspb.String("")); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range callers {
		<-came
	}
	close(reachable)
	for range callers {
		<-service.Blocked
	}
	if n := controller.Conns(); n != 3 {
		t.Errorf("%d who wait have %d connections, want 3", callers, n)
	}
}

func is(err error, code rpcstatus.Code) bool {
	var e *rpcstatus.Error
	return errors.As(err, &e) && e.Wire == code
}

// TestResetEndsADialThatHangs: a stopped controller takes connections and never
// answers. Once another leads, nobody waits for the stopped one any more.
func TestResetEndsADialThatHangs(t *testing.T) {
	echotest.NoGoroutines(t, "internal/transport/framed")
	hanging, ended := make(chan struct{}), make(chan error, 1)
	first := true
	r := serve.NewRelay(serve.RelayOptions{Patience: time.Minute, Dial: func(ctx context.Context) (net.Conn, error) {
		if !first {
			return nil, errors.New("the second dial")
		}
		first = false
		close(hanging)
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ctx.Err()
	}})
	defer r.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- r.Handle(ctx, &serve.Call{Method: echotest.WhoAmI, Peer: identity.Identity{Kind: identity.LocalUser}})
	}()
	<-hanging
	r.Reset()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the dial that hangs ended with %v", err)
	}
	cancel()
	<-done
}

// TestProbe: a relay without a controller answers at once the ping that asks
// whether it works. Every other call waits for a controller until its caller
// gives up.
func TestProbe(t *testing.T) {
	dialed := make(chan struct{})
	r := serve.NewRelay(serve.RelayOptions{Patience: time.Hour, Dial: func(ctx context.Context) (net.Conn, error) {
		select {
		case dialed <- struct{}{}:
		case <-ctx.Done():
		}
		return nil, errors.New("no controller leads")
	}})
	defer r.Close()
	config := serve.Config{Handler: r.Handle, Authenticate: (&channel.Server{}).Authenticate}
	_, socket := serveOn(t, config, "unix", filepath.Join(t.TempDir(), "s"))
	c, err := client.Dial(t.Context(), client.Unix(socket))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()

	answered := make(chan error, 1)
	ask := func(ctx context.Context, c *client.Client) {
		out := new(wrapperspb.StringValue)
		answered <- c.Call(ctx, echotest.WhoAmI, wrapperspb.String(""), out)
	}
	go ask(t.Context(), c.With(framed.Pair{Key: framed.HeaderProbe, Value: "1"}))
	if err := <-answered; !is(err, rpcstatus.Unavailable) {
		t.Errorf("the probe was answered with %v", err)
	}

	// The caller sets no deadline: it would travel with the call, and the relay's
	// answer to it could come before the caller's own clock says so.
	ctx, cancel := context.WithCancel(t.Context())
	go ask(ctx, c)
	for range 3 {
		select {
		case <-dialed:
		case err := <-answered:
			t.Fatalf("a call that is no probe did not wait for a controller: %v", err)
		}
	}
	cancel()
	if err := <-answered; !errors.Is(err, context.Canceled) && !is(err, rpcstatus.Canceled) {
		t.Errorf("the call that its caller gave up was answered with %v", err)
	}
}
