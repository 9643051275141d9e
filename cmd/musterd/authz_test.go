package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/collector"
	"github.com/musterhpc/muster/controller/doors"
	"github.com/musterhpc/muster/internal/transport/authz"
	"github.com/musterhpc/muster/internal/transport/channel"
	"github.com/musterhpc/muster/internal/transport/framed"
	"github.com/musterhpc/muster/internal/transport/framed/client"
	"github.com/musterhpc/muster/internal/transport/grpcx"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/limit"
	"github.com/musterhpc/muster/internal/transport/listen"
	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/internal/transport/rest"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
	"github.com/musterhpc/muster/internal/transport/usertoken"
	"github.com/musterhpc/muster/scheduler/daemon"
	"github.com/musterhpc/muster/test/attack/hostile"
)

// The users of the walk. No user of this machine has these numbers, so that
// accounting knows them by their numbers.
const (
	walkUser = 400000001 + iota
	walkCoordinator
	walkOperator
	walkAdministrator
)

// walker calls the API of one server with real credentials.
type walker struct {
	t      *testing.T
	ca     *pki.CA
	roots  *x509.CertPool
	tls    string // address of gRPC and frames
	rest   string // address of the gateway
	socket string
	// The gateway for users of this host.
	restSocket string
	limits     *limit.Table
	issue      func(uid uint32, scope string) string // a user's token
}

// wayIn is a role with the credentials that prove it.
type wayIn struct {
	role  authz.Role
	cert  *tls.Certificate // nil = none
	uid   int              // attested by the certificate; -1 = nobody
	token string           // over REST
	local int              // uid of the process on the local socket; -1 = over TLS
}

func newWalker(t *testing.T) *walker { return newWalkerWith(t, limit.Config{}) }

// newWalkerWith is a walker whose server has limits of its own.
func newWalkerWith(t *testing.T, limits limit.Config) *walker {
	s, stop := openServer(t, t.TempDir())
	t.Cleanup(stop)
	s.calls = &collector.Calls{}
	s.limits = limit.New(limits, time.Now)
	root := as(t, "root", 0)
	policy := daemon.NewClusterService(s.ctl)
	change := func(entity string, names string, set ...*apiv1.ConfigEntry) {
		t.Helper()
		req := &apiv1.PolicyChangeRequest{Verb: apiv1.PolicyChangeRequest_ADD, Entity: entity, Names: []string{names}, Set: set}
		if _, err := policy.ChangePolicy(root, req); err != nil {
			t.Fatal(err)
		}
	}
	entry := func(key, value string) *apiv1.ConfigEntry { return &apiv1.ConfigEntry{Key: key, Value: value} }
	change("account", "physics")
	change("user", strconv.Itoa(walkCoordinator), entry("account", "physics"))
	change("coordinator", strconv.Itoa(walkCoordinator), entry("account", "physics"))
	change("user", strconv.Itoa(walkOperator), entry("account", "physics"), entry("adminlevel", "Operator"))
	change("user", strconv.Itoa(walkAdministrator), entry("account", "physics"), entry("adminlevel", "Administrator"))

	w := &walker{t: t, limits: s.limits}
	var err error
	if w.ca, err = pki.Dir(s.cfg.TLS.Dir).CA(); err != nil {
		t.Fatal(err)
	}
	w.roots = x509.NewCertPool()
	w.roots.AddCert(w.ca.Certificate())
	source, err := pki.LoadSource(pki.Dir(s.cfg.TLS.Dir))
	if err != nil {
		t.Fatal(err)
	}
	w.issue = func(uid uint32, scope string) string {
		text, err := s.tokens.Issue(usertoken.Bearer{ID: "walk", User: strconv.Itoa(int(uid)), UID: uid, GID: uid, Scope: scope}, time.Now(), time.Now().Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	ep, err := s.newEndpoint(source)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ep.Close)
	gateway := s.newGateway(source)
	users := registrars{ep, gateway}
	service.RegisterClusterServer(users, policy)
	service.RegisterAgentsServer(ep, &daemon.AgentService{C: s.ctl})
	service.RegisterAccountingServer(users, service.UnimplementedAccountingServer{})
	service.RegisterShellServer(ep, service.UnimplementedShellServer{})
	service.RegisterLedgerServer(ep, service.UnimplementedLedgerServer{})

	// Other users reach the socket only through folders that are open to them.
	dir, err := os.MkdirTemp("", "authz")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	w.socket = filepath.Join(dir, "api.sock")
	local, err := listen.Unix(w.socket, 0o666)
	if err != nil {
		t.Fatal(err)
	}
	secure, web := loopback(t), loopback(t)
	w.tls, w.rest = secure.Addr().String(), web.Addr().String()
	w.restSocket = filepath.Join(dir, "rest.sock")
	webLocal, err := listen.Unix(w.restSocket, 0o666)
	if err != nil {
		t.Fatal(err)
	}
	srv := doors.GatewayServer(t.Context(), gateway, source.Server(false, "h2", "http/1.1"))
	t.Cleanup(func() { srv.Close() })
	go ep.Serve(local)
	go ep.Serve(secure)
	go srv.ServeTLS(&rest.Listener{Listener: web, Table: s.limits}, "", "")
	go srv.Serve(&rest.Listener{Listener: webLocal, Table: s.limits})
	return w
}

func loopback(t *testing.T) net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (w *walker) certificate(kind identity.Kind, name string) *tls.Certificate {
	w.t.Helper()
	pair, err := w.ca.Issue(pki.Holder{Role: kind, Name: name}, time.Now())
	if err != nil {
		w.t.Fatal(err)
	}
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		w.t.Fatal(err)
	}
	return &cert
}

// credentials are all ways in that a transport has.
func (w *walker) credentials(over authz.Transport) []wayIn {
	login := w.certificate(identity.Login, "l1")
	out := []wayIn{
		{role: authz.Anonymous, uid: -1, local: -1},
		{role: authz.Root, cert: w.certificate(identity.Admin, "ops"), uid: -1, local: -1},
		{role: authz.Node, cert: w.certificate(identity.Agent, "node1"), uid: -1, local: -1},
		{role: authz.LoginHost, cert: login, uid: -1, local: -1},
		{role: authz.Controller, cert: w.certificate(identity.Controller, "c2"), uid: -1, local: -1},
	}
	users := map[authz.Role]int{authz.User: walkUser, authz.Coordinator: walkCoordinator, authz.Operator: walkOperator, authz.Administrator: walkAdministrator}
	for role, uid := range users {
		if over == authz.REST {
			out = append(out, wayIn{role: role, uid: -1, local: -1, token: w.issue(uint32(uid), "")})
			continue
		}
		out = append(out, wayIn{role: role, cert: login, uid: uid, local: -1})
		if os.Getuid() == 0 {
			out = append(out, wayIn{role: role, uid: -1, local: uid})
		}
	}
	if over == authz.REST {
		return append(out,
			wayIn{role: authz.Root, uid: -1, local: -1, token: w.issue(0, "")},
			wayIn{role: authz.Connector, uid: -1, local: -1, token: w.issue(walkUser, identity.ScopePods)},
			wayIn{role: authz.Connector, uid: -1, local: -1, token: w.issue(walkAdministrator, identity.ScopePods)},
		)
	}
	return append(out, wayIn{role: authz.RemoteRoot, cert: login, uid: 0, local: -1}, wayIn{role: authz.Root, uid: -1, local: os.Getuid()})
}

func (w *walker) tlsConfig(c wayIn, protocol string) *tls.Config {
	cfg := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: w.roots, NextProtos: []string{protocol},
		InsecureSkipVerify: true} // the walk is about the client, not about the name of the server
	if c.cert != nil {
		cfg.Certificates = []tls.Certificate{*c.cert}
	}
	return cfg
}

// emptyMessage makes an empty request or answer of a method.
func emptyMessage(m authz.Method, input bool) proto.Message {
	name := protoreflect.FullName("muster.v1." + m.Service + "." + m.Name)
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	if err != nil {
		panic(err)
	}
	method := d.(protoreflect.MethodDescriptor)
	if input {
		return dynamicpb.NewMessage(method.Input())
	}
	return dynamicpb.NewMessage(method.Output())
}

func streams(m authz.Method) (clientStreams, serverStreams bool) {
	d, _ := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName("muster.v1." + m.Service + "." + m.Name))
	method := d.(protoreflect.MethodDescriptor)
	return method.IsStreamingClient(), method.IsStreamingServer()
}

// verdict tells what became of a call: whether somebody refused it for who
// called, and what was said.
type verdict struct {
	refused bool
	text    string
}

// isRefusal sets apart the one request that is invalid when it is empty and has
// the class of a refusal: an administrator's certificate must name a user.
func isRefusal(denied bool, text string) bool {
	return denied && !strings.Contains(text, "certificate names no user: say whose token")
}

func verdictOf(err error) verdict {
	var e *rpcstatus.Error
	switch {
	case err == nil || errors.Is(err, io.EOF):
		return verdict{}
	case errors.As(err, &e):
		return verdict{isRefusal(e.Wire == rpcstatus.PermissionDenied || e.Wire == rpcstatus.Unauthenticated, e.Error()), e.Error()}
	}
	return verdict{text: err.Error()}
}

// apiCall calls a method with an empty request.
type apiCall func(ctx context.Context, m authz.Method) verdict

func (w *walker) overGRPC(c wayIn) apiCall {
	var conn *grpc.ClientConn
	var err error
	if c.local >= 0 {
		conn, err = grpcx.DialUnix(w.socket, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return hostile.DialUnix(ctx, w.socket, c.local) }))
	} else {
		conn, err = grpcx.DialTLS(w.tls, func() *tls.Config { return w.tlsConfig(c, channel.ALPNGRPC) })
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { conn.Close() })
	return func(ctx context.Context, m authz.Method) verdict {
		if c.uid >= 0 {
			ctx = metadata.AppendToOutgoingContext(ctx, framed.HeaderAttest, fmt.Sprintf("%d:%d", c.uid, c.uid))
		}
		clientStreams, serverStreams := streams(m)
		if !clientStreams && !serverStreams {
			return verdictOf(conn.Invoke(ctx, m.FullName(), emptyMessage(m, true), emptyMessage(m, false)))
		}
		stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: clientStreams, ServerStreams: serverStreams}, m.FullName())
		if err == nil && !clientStreams {
			err = stream.SendMsg(emptyMessage(m, true))
		}
		if err == nil {
			err = stream.CloseSend()
		}
		if err == nil {
			err = stream.RecvMsg(emptyMessage(m, false))
		}
		return verdictOf(err)
	}
}

func (w *walker) overFrames(c wayIn) apiCall {
	var conn *client.Client
	if c.local >= 0 {
		raw, err := hostile.DialUnix(w.t.Context(), w.socket, c.local)
		if err != nil {
			w.t.Fatal(err)
		}
		conn = client.New(raw)
	} else {
		raw, err := tls.Dial("tcp", w.tls, w.tlsConfig(c, framed.ALPN))
		if err != nil {
			w.t.Fatal(err)
		}
		conn = client.New(raw)
	}
	w.t.Cleanup(func() { conn.Close() })
	if c.uid >= 0 {
		conn = conn.With(framed.Attest(uint32(c.uid), uint32(c.uid)))
	}
	return func(ctx context.Context, m authz.Method) verdict {
		if _, serverStreams := streams(m); !serverStreams {
			return verdictOf(conn.Call(ctx, m.FullName(), emptyMessage(m, true), emptyMessage(m, false)))
		}
		stream, err := conn.Stream(ctx, m.FullName(), emptyMessage(m, true))
		if err != nil {
			return verdictOf(err)
		}
		defer stream.Close()
		return verdictOf(stream.Recv(emptyMessage(m, false)))
	}
}

func (w *walker) overREST(c wayIn) apiCall {
	transport := &http.Transport{TLSClientConfig: w.tlsConfig(c, "http/1.1")}
	w.t.Cleanup(transport.CloseIdleConnections)
	return func(ctx context.Context, m authz.Method) verdict {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+w.rest+"/v1/"+m.Service+"/"+m.Name, bytes.NewReader([]byte("{}")))
		if err != nil {
			return verdict{text: err.Error()}
		}
		if c.token != "" {
			req.Header.Set("Authorization", "Bearer "+c.token)
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			return verdict{text: err.Error()}
		}
		defer resp.Body.Close()
		var reply struct {
			Error struct{ Message string }
		}
		_ = json.NewDecoder(resp.Body).Decode(&reply) // an answer has no error in it
		refused := resp.StatusCode == http.StatusForbidden || resp.StatusCode == http.StatusUnauthorized
		return verdict{isRefusal(refused, reply.Error.Message), reply.Error.Message}
	}
}

// TestEveryoneEverywhere calls every method as every role over every transport,
// with real certificates, tokens and processes, and compares what happens with
// the table that docs/authorization.md is made from.
func TestEveryoneEverywhere(t *testing.T) {
	w := newWalker(t)
	calls := 0
	for over, open := range map[authz.Transport]func(wayIn) apiCall{authz.GRPC: w.overGRPC, authz.Framed: w.overFrames, authz.REST: w.overREST} {
		for _, c := range w.credentials(over) {
			call := open(c)
			for _, m := range authz.Methods() {
				if !slices.Contains(m.Transports, over) {
					continue
				}
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				got := call(ctx, m)
				cancel()
				calls++
				atDoor := strings.Contains(got.text, "may not call") || strings.Contains(got.text, "may do this, not") || strings.Contains(got.text, "has no privileges here") || strings.Contains(got.text, "controller's own host")
				grant := m.Grant(c.role)
				tokenMakesTokens := over == authz.REST && c.token != "" && m.Name == "CreateUserToken"
				elsewhere := c.uid >= 0 || c.token != "" && c.role != authz.Root
				where := fmt.Sprintf("%s as %s over %s (%s)", m.FullName(), c.role, over, place(c))
				switch {
				case strings.Contains(got.text, "internal error"):
					t.Errorf("%s: the handler panicked", where)
				case tokenMakesTokens, grant == authz.None, grant == authz.Here && elsewhere:
					if !got.refused {
						t.Errorf("%s is not refused: %q", where, got.text)
					}
				case grant == authz.Limited:
					// The anonymous are refused by REST before anything is asked.
					if atDoor {
						t.Errorf("%s is refused at the door: %q", where, got.text)
					}
				case got.refused:
					t.Errorf("%s is refused: %q", where, got.text)
				}
			}
		}
	}
	if calls < 1200 {
		t.Errorf("only %d calls were made", calls)
	}
}

func place(c wayIn) string {
	switch {
	case c.local >= 0:
		return "local socket"
	case c.token != "":
		return "token"
	case c.uid >= 0:
		return "attested"
	case c.cert != nil:
		return "certificate"
	}
	return "nothing shown"
}
