package grpcx_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/musterhpc/muster/internal/transport/channel"
	"github.com/musterhpc/muster/internal/transport/echotest"
	"github.com/musterhpc/muster/internal/transport/framed"
	"github.com/musterhpc/muster/internal/transport/framed/client"
	"github.com/musterhpc/muster/internal/transport/framed/serve"
	"github.com/musterhpc/muster/internal/transport/grpcx"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/listen"
	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
)

const perPeer = 80 // connections of one party; BenchmarkUnary opens 64 of each protocol

// world is a cluster of one controller that serves the echo service on a unix socket and on TLS.
type world struct {
	t        testing.TB
	ca       *pki.CA
	dir      pki.Dir
	source   *pki.Source // the controller's
	endpoint *grpcx.Endpoint
	unix     string
	tcp      string
	admit    *channel.Admission
	hasJob   map[string]uint32
}

func newWorld(t testing.TB, service *echotest.Service, requireCert bool) *world {
	t.Helper()
	echotest.NoGoroutines(t, "internal/transport/framed", "internal/transport/grpcx")
	w := &world{t: t, dir: pki.Dir(t.TempDir()), hasJob: map[string]uint32{}}
	var err error
	if w.ca, err = w.dir.Init("prod", pki.Holder{Name: "ctl", Hosts: []string{"localhost", "127.0.0.1"}}, time.Now()); err != nil {
		t.Fatal(err)
	}
	if w.source, err = pki.LoadSource(w.dir); err != nil {
		t.Fatal(err)
	}
	w.admit = &channel.Admission{Revoked: w.source.Revoked, Now: time.Now,
		JobThere: func(node string, a identity.Attestation) (uint32, bool) { return a.GID, w.hasJob[node] == a.UID }}
	w.endpoint, err = grpcx.NewEndpoint(grpcx.EndpointConfig{
		Channel: &channel.Server{TLS: w.source.Server(requireCert, channel.ALPNGRPC, framed.ALPN), Cluster: "prod"},
		Admit:   w.admit.Admit, Errors: rpcstatus.Numbers(), Limits: serve.Limits{ConnsPerPeer: perPeer},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.endpoint.RegisterService(echotest.Desc(), service)
	w.unix = filepath.Join(t.TempDir(), "s")
	local, err := listen.Unix(w.unix, 0o666)
	if err != nil {
		t.Fatal(err)
	}
	remote, err := listen.TCP(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.tcp = remote.Addr().String()
	for _, l := range []net.Listener{local, remote} {
		served := make(chan error, 1)
		go func() { served <- w.endpoint.Serve(l) }()
		t.Cleanup(func() {
			w.endpoint.Close()
			if err := <-served; err != nil {
				t.Errorf("Serve: %v", err)
			}
		})
	}
	return w
}

// host makes a host of the cluster with a certificate of the given role, made at the given time.
func (w *world) host(ca *pki.CA, role identity.Kind, name string, made time.Time) *pki.Source {
	w.t.Helper()
	p, err := ca.Issue(pki.Holder{Role: role, Name: name, Hosts: []string{"localhost"}}, made)
	if err != nil {
		w.t.Fatal(err)
	}
	dir := pki.Dir(w.t.TempDir())
	if err := dir.SaveEnrolled(p); err != nil {
		w.t.Fatal(err)
	}
	s, err := pki.LoadSource(dir)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// caller is a client of either protocol.
type caller func(ctx context.Context, method string, in, out proto.Message) error

func (w *world) grpcCaller(c *grpc.ClientConn, err error) caller {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	return func(ctx context.Context, method string, in, out proto.Message) error {
		return c.Invoke(ctx, method, in, out)
	}
}

func (w *world) grpcUnix() caller { w.t.Helper(); return w.grpcCaller(grpcx.DialUnix(w.unix)) }

func (w *world) grpcTLS(config func() *tls.Config) caller {
	w.t.Helper()
	return w.grpcCaller(grpcx.DialTLS(w.tcp, config))
}

func (w *world) framedTo(target client.Target) caller {
	w.t.Helper()
	c, err := client.Dial(w.t.Context(), target)
	if err != nil {
		return func(context.Context, string, proto.Message, proto.Message) error { return err }
	}
	w.t.Cleanup(func() { c.Close() })
	return func(ctx context.Context, method string, in, out proto.Message) error {
		if md, ok := metadata.FromOutgoingContext(ctx); ok { // so that one test serves both
			return c.With(framed.Pair{Key: framed.HeaderAttest, Value: md.Get(framed.HeaderAttest)[0]}).Call(ctx, method, in, out)
		}
		return c.Call(ctx, method, in, out)
	}
}

func (w *world) framedTLS(s *pki.Source) caller {
	w.t.Helper()
	return w.framedTo(client.Target{Network: "tcp", Address: w.tcp, Secure: s.Secure("localhost", identity.Controller, framed.ALPN)})
}

// both returns the host's callers over TLS.
func (w *world) both(s *pki.Source) map[string]caller {
	w.t.Helper()
	return map[string]caller{
		"grpc":   w.grpcTLS(func() *tls.Config { return s.Client("localhost", identity.Controller, channel.ALPNGRPC) }),
		"framed": w.framedTLS(s),
	}
}

func whoami(ctx context.Context, call caller) (string, error) {
	out := new(wrapperspb.StringValue)
	err := call(ctx, echotest.WhoAmI, wrapperspb.String("root"), out)
	return out.GetValue(), err
}

func code(err error) rpcstatus.Code {
	var e *rpcstatus.Error
	if !errors.As(err, &e) {
		return rpcstatus.OK
	}
	return e.Wire
}

func TestOneServiceFourWays(t *testing.T) {
	w := newWorld(t, &echotest.Service{}, true)
	node := w.host(w.ca, identity.Agent, "n1", time.Now())
	me := fmt.Sprintf("user %d (uid %d)", os.Getuid(), os.Getuid())
	// Each is dialled when its turn comes: the server does not wait for the first call for ever.
	for name, c := range map[string]struct {
		dial func() caller
		who  string
	}{
		"grpc, unix":   {w.grpcUnix, me},
		"framed, unix": {func() caller { return w.framedTo(client.Unix(w.unix)) }, me},
		"grpc, tls":    {func() caller { return w.both(node)["grpc"] }, "agent n1"},
		"framed, tls":  {func() caller { return w.both(node)["framed"] }, "agent n1"},
	} {
		call := c.dial()
		if got, err := whoami(t.Context(), call); err != nil || got != c.who {
			t.Errorf("%s: I am %q, %v; want %q", name, got, err, c.who)
		}
		out := new(wrapperspb.StringValue)
		large := strings.Repeat("x", 8<<20)
		if err := call(t.Context(), echotest.Echo, wrapperspb.String(large), out); err != nil || out.GetValue() != large {
			t.Errorf("%s: 8 MiB: %v", name, err)
		}
		err := call(t.Context(), echotest.Fail, wrapperspb.String("coded"), out)
		var e *rpcstatus.Error
		if !errors.As(err, &e) || !errors.Is(err, echotest.Refusal()) || !reflect.DeepEqual(e.Refusal(), echotest.Refusal()) || e.SlurmText() == "" {
			t.Errorf("%s: refusal arrives as %+v", name, err)
		}
		if err := call(t.Context(), echotest.Fail, wrapperspb.String("panic"), out); code(err) != rpcstatus.Internal || strings.Contains(err.Error(), "asked for") {
			t.Errorf("%s: panic: %v", name, err)
		}
		if err := call(t.Context(), "/muster.test.Echo/None", wrapperspb.String(""), out); code(err) != rpcstatus.Unimplemented {
			t.Errorf("%s: unknown method: %v", name, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if err := call(ctx, echotest.Block, wrapperspb.String(""), out); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: deadline: %v", name, err)
		}
		cancel()
	}
}

func TestStreamOverGRPC(t *testing.T) {
	w := newWorld(t, &echotest.Service{}, true)
	c, err := grpcx.DialUnix(w.unix)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := c.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, echotest.Count)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.SendMsg(wrapperspb.Int64(1000)), s.CloseSend()); err != nil {
		t.Fatal(err)
	}
	out := new(wrapperspb.Int64Value)
	for i := int64(1); i <= 1000; i++ {
		if err := s.RecvMsg(out); err != nil || out.GetValue() != i {
			t.Fatalf("%d: %d, %v", i, out.GetValue(), err)
		}
	}
	if err := s.RecvMsg(out); err != io.EOF {
		t.Errorf("end: %v", err)
	}
	if s, err = c.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, "/muster.test.Echo/None"); err == nil {
		err = s.RecvMsg(out)
	}
	if code(err) != rpcstatus.Unimplemented {
		t.Errorf("unknown stream: %v", err)
	}
}

func TestWrongCertificates(t *testing.T) {
	w := newWorld(t, &echotest.Service{}, true)
	strangerCA, err := pki.NewCA("prod", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	day := 24 * time.Hour
	trusting := func(s *pki.Source) func() *tls.Config { // trusts the real controller, shows its own certificate
		return func() *tls.Config {
			c := w.source.Client("localhost", identity.Controller, channel.ALPNGRPC)
			c.Certificates = s.Client("localhost", identity.Controller).Certificates
			return c
		}
	}
	gone := w.host(w.ca, identity.Agent, "gone", time.Now())
	list, err := pki.Revocations{}.With(gone.Self().Serial, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	w.source.SetRevoked(list)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for name, config := range map[string]func() *tls.Config{
		"of another authority": trusting(w.host(strangerCA, identity.Agent, "n1", time.Now())),
		"expired":              trusting(w.host(w.ca, identity.Agent, "n1", time.Now().Add(-91*day))),
		"revoked":              trusting(gone),
		"none": func() *tls.Config {
			c := w.source.Client("localhost", identity.Controller, channel.ALPNGRPC)
			c.Certificates = nil
			return c
		},
		"server by another name": func() *tls.Config { return w.source.Client("elsewhere", identity.Controller, channel.ALPNGRPC) },
		"server of another role": func() *tls.Config { return w.source.Client("localhost", identity.Agent, channel.ALPNGRPC) },
		"server of another authority": func() *tls.Config {
			return w.host(strangerCA, identity.Agent, "n1", time.Now()).Client("localhost", identity.Controller, channel.ALPNGRPC)
		},
		"an old version of TLS": func() *tls.Config {
			c := w.source.Client("localhost", identity.Controller, channel.ALPNGRPC)
			c.MinVersion, c.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
			return c
		},
		"neither of the two protocols": func() *tls.Config { return w.source.Client("localhost", identity.Controller, "http/1.1") },
		"without naming a protocol":    func() *tls.Config { return w.source.Client("localhost", identity.Controller) },
	} {
		conn, err := tls.DialWithDialer(&net.Dialer{}, "tcp", w.tcp, config())
		if err == nil { // TLS 1.3: the server's refusal arrives with the first read
			_, err = conn.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
			if err == nil {
				_, err = io.ReadAll(io.LimitReader(conn, 1))
			}
			if err == nil {
				var one [1]byte
				_, err = conn.Read(one[:])
			}
			conn.Close()
		}
		if err == nil {
			t.Errorf("%s: the handshake succeeds", name)
		}
		if got, err := whoami(ctx, w.grpcTLS(config)); name != "without naming a protocol" && (err == nil || code(err) != rpcstatus.Unavailable) {
			t.Errorf("%s: served as %q, %v", name, got, err)
		}
	}
	if got, err := whoami(ctx, w.grpcTLS(trusting(w.host(w.ca, identity.Admin, "ada", time.Now())))); err != nil || got != "administrator ada" {
		t.Errorf("a good certificate: %q, %v", got, err)
	}
}

// A revocation takes effect on connections that are open already.
func TestRevocationDuringAConnection(t *testing.T) {
	w := newWorld(t, &echotest.Service{}, true)
	node := w.host(w.ca, identity.Agent, "n1", time.Now())
	callers := w.both(node)
	for name, call := range callers {
		if got, err := whoami(t.Context(), call); err != nil || got != "agent n1" {
			t.Fatalf("%s: %q, %v", name, got, err)
		}
	}
	list, err := pki.Revocations{}.With(node.Self().Serial, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	w.source.SetRevoked(list)
	for name, call := range callers {
		if got, err := whoami(t.Context(), call); code(err) != rpcstatus.Unauthenticated {
			t.Errorf("%s: still served as %q, %v", name, got, err)
		}
	}
	if n := w.endpoint.Disconnect(func(id identity.Identity) bool { return id.Serial == node.Self().Serial }); n != 2 {
		t.Errorf("%d connections closed", n)
	}
	w.source.SetRevoked(pki.Revocations{})
	if got, err := whoami(t.Context(), callers["framed"]); err == nil {
		t.Errorf("served as %q on a closed connection", got)
	}
}

// A stream that began before the revocation ends with the connection.
func TestDisconnectEndsStreams(t *testing.T) {
	w := newWorld(t, &echotest.Service{}, true)
	node := w.host(w.ca, identity.Agent, "n1", time.Now())
	c, err := grpcx.DialTLS(w.tcp, func() *tls.Config { return node.Client("localhost", identity.Controller, channel.ALPNGRPC) })
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := c.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, echotest.Count)
	if err == nil {
		err = errors.Join(s.SendMsg(wrapperspb.Int64(-1)), s.CloseSend(), s.RecvMsg(new(wrapperspb.Int64Value)))
	}
	if err != nil {
		t.Fatal(err)
	}
	if n := w.endpoint.Disconnect(func(id identity.Identity) bool { return id.Node == "n1" }); n != 1 {
		t.Errorf("%d connections closed", n)
	}
	for err == nil {
		err = s.RecvMsg(new(wrapperspb.Int64Value))
	}
	if code(err) != rpcstatus.Unavailable {
		t.Errorf("the stream ends with %v", err)
	}
}

func TestConnectionsPerPeer(t *testing.T) {
	w := newWorld(t, &echotest.Service{}, true)
	var conns []*grpc.ClientConn
	for i := range perPeer + 1 {
		c, err := grpcx.DialUnix(w.unix)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
		err = c.Invoke(t.Context(), echotest.Echo, wrapperspb.String("x"), new(wrapperspb.StringValue))
		if i < perPeer && err != nil || i == perPeer && code(err) != rpcstatus.Unavailable {
			t.Errorf("connection %d of at most %d: %v", i+1, perPeer, err)
		}
	}
	conns[0].Close()
	for { // the server notices the end when it reads it
		err := conns[perPeer].Invoke(t.Context(), echotest.Echo, wrapperspb.String("x"), new(wrapperspb.StringValue), grpc.WaitForReady(true))
		if err == nil {
			break
		}
		if code(err) != rpcstatus.Unavailable {
			t.Fatal(err)
		}
	}
}

func TestExpiryDuringAConnection(t *testing.T) {
	w := newWorld(t, &echotest.Service{}, true)
	callers := w.both(w.host(w.ca, identity.Agent, "n1", time.Now()))
	for name, call := range callers {
		if _, err := whoami(t.Context(), call); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	w.admit.Now = func() time.Time { return time.Now().Add(pki.LeafLifetime) }
	for name, call := range callers {
		if got, err := whoami(t.Context(), call); code(err) != rpcstatus.Unauthenticated {
			t.Errorf("%s: still served as %q, %v", name, got, err)
		}
	}
}

func TestAttestation(t *testing.T) {
	w := newWorld(t, &echotest.Service{}, true)
	w.hasJob["n1"] = 1000
	login, node := w.both(w.host(w.ca, identity.Login, "l1", time.Now())), w.both(w.host(w.ca, identity.Agent, "n1", time.Now()))
	local := map[string]caller{"grpc": w.grpcUnix(), "framed": w.framedTo(client.Unix(w.unix))}
	for _, c := range []struct {
		name string
		by   map[string]caller
		uid  uint32
		want string // "" = refused
	}{
		{"login host", login, 1000, "user 1000 (uid 1000, attested by l1)"},
		{"root of a login host", login, 0, "user 65534 (uid 65534, attested by l1)"},
		{"node with the user's job", node, 1000, "user 1000 (uid 1000, attested by n1)"},
		{"node without", node, 1001, ""},
		{"a local user who claims to be another", local, 1000, ""},
	} {
		for protocol, call := range c.by {
			got, err := whoami(grpcx.WithAttestation(t.Context(), c.uid, 100), call)
			if c.want == "" && code(err) != rpcstatus.PermissionDenied || c.want != "" && (err != nil || got != c.want) {
				t.Errorf("%s, %s: %q, %v", c.name, protocol, got, err)
			}
		}
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), framed.HeaderAttest, "root")
	for protocol, call := range login {
		if got, err := whoami(ctx, call); code(err) != rpcstatus.InvalidArgument {
			t.Errorf("%s: a malformed attestation: %q, %v", protocol, got, err)
		}
	}
}

func TestEnrolmentWithNothingButAToken(t *testing.T) {
	w := newWorld(t, &echotest.Service{}, false)
	text, _, err := pki.NewToken(w.ca, identity.Agent, "n1", time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	_, pin, err := pki.ParseToken(text)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := whoami(t.Context(), w.grpcTLS(func() *tls.Config { return pki.Pinned(pin, channel.ALPNGRPC) })); err != nil || got != "anonymous" {
		t.Errorf("%q, %v", got, err)
	}
	wrong := pin
	wrong[0] ^= 1
	if _, err := tls.Dial("tcp", w.tcp, pki.Pinned(wrong)); !errors.Is(err, pki.ErrPin) {
		t.Errorf("another pin: %v", err)
	}
	// A node of the right cluster that poses as the controller.
	thief := w.host(w.ca, identity.Agent, "thief", time.Now())
	l, err := tls.Listen("tcp", "127.0.0.1:0", thief.Server(false))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			c.(*tls.Conn).Handshake()
			c.Close()
		}
	}()
	if _, err := tls.Dial("tcp", l.Addr().String(), pki.Pinned(pin)); !errors.Is(err, pki.ErrPin) {
		t.Errorf("a node that poses as the controller: %v", err)
	}
	if _, err := tls.Dial("tcp", l.Addr().String(), w.source.Client("localhost", identity.Controller)); !errors.Is(err, identity.ErrCertificate) {
		t.Errorf("a node that poses as the controller, to one with a certificate: %v", err)
	}
}

func TestRenewedCertificateWithoutRestart(t *testing.T) {
	w := newWorld(t, &echotest.Service{}, true)
	serial := func() string {
		c, err := tls.Dial("tcp", w.tcp, w.source.Client("localhost", identity.Controller, channel.ALPNGRPC))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].SerialNumber.Text(16)
	}
	before := serial()
	p, err := w.ca.Issue(pki.Holder{Role: identity.Controller, Name: "ctl", Hosts: []string{"localhost"}}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.dir.SaveHost(p); err != nil {
		t.Fatal(err)
	}
	if serial() != before {
		t.Error("the certificate changed before Reload")
	}
	if err := w.source.Reload(); err != nil {
		t.Fatal(err)
	}
	after := serial()
	if after == before || after != w.source.Self().Serial {
		t.Errorf("serial %s, before %s, loaded %s", after, before, w.source.Self().Serial)
	}
	if err := os.WriteFile(filepath.Join(string(w.dir), pki.HostFile), []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.source.Reload(); err == nil {
		t.Error("a broken file was loaded")
	}
	if serial() != after {
		t.Error("a broken file took the good certificate out of use")
	}
	if d := time.Until(w.source.RenewAfter()); d < 59*24*time.Hour || d > 61*24*time.Hour {
		t.Errorf("renew in %v", d)
	}
}

func TestShutdownOfBothProtocols(t *testing.T) {
	service := &echotest.Service{Blocked: make(chan struct{}), Release: make(chan struct{})}
	w := newWorld(t, service, true)
	callers := map[string]caller{"grpc": w.grpcUnix(), "framed": w.framedTo(client.Unix(w.unix))}
	ended := make(chan error, len(callers))
	for name, call := range callers {
		go func() {
			out := new(wrapperspb.StringValue)
			err := call(t.Context(), echotest.Block, wrapperspb.String(name), out)
			if err == nil && out.GetValue() != name {
				err = fmt.Errorf("%s: got %q", name, out.GetValue())
			}
			ended <- err
		}()
		<-service.Blocked
	}
	down := make(chan error, 1)
	go func() { down <- w.endpoint.Shutdown(context.Background()) }()
	for { // the socket's file disappears when the listener closes
		if _, err := os.Lstat(w.unix); err != nil {
			break
		}
	}
	close(service.Release)
	for range callers {
		if err := <-ended; err != nil {
			t.Errorf("a call under way: %v", err)
		}
	}
	if err := <-down; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

func TestShutdownHasAnEnd(t *testing.T) {
	service := &echotest.Service{Blocked: make(chan struct{}), Released: make(chan error, 2)}
	w := newWorld(t, service, true)
	for _, call := range []caller{w.grpcUnix(), w.framedTo(client.Unix(w.unix))} {
		go func() {
			if err := call(t.Context(), echotest.Block, wrapperspb.String(""), new(wrapperspb.StringValue)); err == nil {
				t.Error("a call that was cut off succeeded")
			}
		}()
		<-service.Blocked
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.endpoint.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Shutdown: %v", err)
	}
	for range 2 {
		if err := <-service.Released; !errors.Is(err, context.Canceled) {
			t.Errorf("handler: %v", err)
		}
	}
}

func TestClientCredentials(t *testing.T) {
	w := newWorld(t, &echotest.Service{}, true)
	plain := w.grpcCaller(grpc.NewClient("passthrough:///"+w.tcp, grpc.WithTransportCredentials(grpcx.NewLocalCredentials())))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if got, err := whoami(ctx, plain); err == nil {
		t.Errorf("TCP without TLS: %q", got)
	}
	if _, err := grpcx.NewEndpoint(grpcx.EndpointConfig{}); err == nil {
		t.Error("an endpoint that authenticates nobody")
	}
}
