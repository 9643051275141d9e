package grpcx_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/musterhpc/muster/internal/transport/channel"
	"github.com/musterhpc/muster/internal/transport/echotest"
	"github.com/musterhpc/muster/internal/transport/framed"
	"github.com/musterhpc/muster/internal/transport/framed/client"
	"github.com/musterhpc/muster/internal/transport/framed/serve"
	"github.com/musterhpc/muster/internal/transport/grpcx"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
)

// start serves the echo service on a unix socket and returns the server and the socket's path.
func start(t testing.TB, service *echotest.Service, limits serve.Limits, unary ...grpc.UnaryServerInterceptor) (*serve.Server, string) {
	t.Helper()
	echotest.NoGoroutines(t, "internal/transport/framed")
	registry := grpcx.NewRegistry(unary, nil)
	registry.RegisterService(echotest.Desc(), service)
	s, err := serve.New(serve.Config{Handler: registry.Handle, Authenticate: (&channel.Server{}).Authenticate, Errors: rpcstatus.Numbers(), Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-served; !errors.Is(err, serve.ErrStopped) {
			t.Errorf("Serve: %v", err)
		}
		if s.Conns() != 0 {
			t.Errorf("%d connections left", s.Conns())
		}
	})
	return s, path
}

func dial(t testing.TB, path string) *client.Client {
	t.Helper()
	c, err := client.Dial(t.Context(), client.Unix(path))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func echo(ctx context.Context, c *client.Client, text string) (string, error) {
	out := new(wrapperspb.StringValue)
	err := c.Call(ctx, echotest.Echo, wrapperspb.String(text), out)
	return out.GetValue(), err
}

func TestUnary(t *testing.T) {
	_, path := start(t, &echotest.Service{}, serve.Limits{})
	c := dial(t, path)
	for _, text := range []string{"", "hello", strings.Repeat("x", 1<<20), strings.Repeat("y", framed.MaxFrame-100)} {
		if got, err := echo(t.Context(), c, text); err != nil || got != text {
			t.Errorf("%d bytes came back as %d, %v", len(text), len(got), err)
		}
	}
	if _, err := echo(t.Context(), c, strings.Repeat("z", framed.MaxFrame)); framedCode(err) != rpcstatus.InvalidArgument || outcome(err) != framed.OutcomeNotSent {
		t.Errorf("a request beyond the bound: %v", err)
	}
	if got, err := echo(t.Context(), c, "still there"); err != nil || got != "still there" {
		t.Errorf("%q, %v", got, err)
	}
}

func framedCode(err error) rpcstatus.Code {
	var e *framed.StatusError
	if !errors.As(err, &e) {
		return rpcstatus.OK
	}
	return e.Wire
}

func outcome(err error) string {
	var e *framed.StatusError
	if !errors.As(err, &e) {
		return ""
	}
	v, _ := e.Detail(framed.DetailOutcome)
	return v
}

func TestPipelined(t *testing.T) {
	_, path := start(t, &echotest.Service{}, serve.Limits{ActiveCalls: 4, QueuedCalls: 2000})
	c := dial(t, path)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			var calls []*client.Pending
			for j := range 100 {
				p, err := c.Start(t.Context(), echotest.Echo, wrapperspb.String(fmt.Sprint(i, j)))
				if err != nil {
					t.Error(err)
					return
				}
				calls = append(calls, p)
			}
			for j, p := range calls {
				out := new(wrapperspb.StringValue)
				if err := p.Wait(out); err != nil || out.GetValue() != fmt.Sprint(i, j) {
					t.Errorf("call %d %d: %q, %v", i, j, out.GetValue(), err)
				}
			}
		})
	}
	wg.Wait()
}

func TestTypedErrors(t *testing.T) {
	_, path := start(t, &echotest.Service{}, serve.Limits{})
	c := dial(t, path)
	out := new(wrapperspb.StringValue)
	err := c.Call(t.Context(), echotest.Fail, wrapperspb.String("coded"), out)
	var e *framed.StatusError
	want := echotest.Refusal()
	if !errors.As(err, &e) || !errors.Is(err, want) || e.Code() != int32(want.Kind) || e.SlurmText() != want.Kind.String() {
		t.Fatalf("%+v", err)
	}
	if r := e.Refusal(); r.Prefix != want.Prefix || r.Detail != want.Detail || *r.Reason != *want.Reason {
		t.Errorf("%+v", r)
	}
	if err := c.Call(t.Context(), echotest.Fail, wrapperspb.String("plain"), out); framedCode(err) != rpcstatus.Unknown || err.Error() != "plain error" {
		t.Errorf("%v", err)
	}
	if err := c.Call(t.Context(), echotest.Fail, wrapperspb.String("panic"), out); framedCode(err) != rpcstatus.Internal || strings.Contains(err.Error(), "asked for") {
		t.Errorf("%v", err)
	}
	for _, method := range []string{"", "/", "/muster.test.Echo/None", "/muster.test.Echo/Upload"} {
		if err := c.Call(t.Context(), method, wrapperspb.String(""), out); framedCode(err) != rpcstatus.Unimplemented {
			t.Errorf("%q: %v", method, err)
		}
	}
	if err := c.Call(t.Context(), echotest.Echo, wrapperspb.Bytes([]byte{0xff, 0xfe}), out); framedCode(err) != rpcstatus.InvalidArgument {
		t.Errorf("bytes that are not a StringValue: %v", err)
	}
	if _, err := echo(t.Context(), c, "x"); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// What a message says about its sender is irrelevant: the service never reads it, and the answer is the kernel's.
func TestIdentityIsTheChannels(t *testing.T) {
	_, path := start(t, &echotest.Service{}, serve.Limits{})
	c := dial(t, path)
	want := fmt.Sprintf("user %d (uid %d)", os.Getuid(), os.Getuid())
	for _, claim := range []string{"", "root", "uid=4242", "user root (uid 0)"} {
		out := new(wrapperspb.StringValue)
		if err := c.Call(t.Context(), echotest.WhoAmI, wrapperspb.String(claim), out); err != nil || out.GetValue() != want {
			t.Errorf("claiming %q I am %q, %v", claim, out.GetValue(), err)
		}
	}
}

func TestStream(t *testing.T) {
	_, path := start(t, &echotest.Service{}, serve.Limits{})
	c := dial(t, path)
	const n = 60_000 // several windows
	r, err := c.Stream(t.Context(), echotest.Count, wrapperspb.Int64(n))
	if err != nil {
		t.Fatal(err)
	}
	out := new(wrapperspb.Int64Value)
	for i := int64(1); i <= n; i++ {
		if err := r.Recv(out); err != nil || out.GetValue() != i {
			t.Fatalf("message %d: %d, %v", i, out.GetValue(), err)
		}
	}
	if err := r.Recv(out); err != io.EOF {
		t.Errorf("end: %v", err)
	}
	r.Close()
	if err := c.Call(t.Context(), echotest.Count, wrapperspb.Int64(2), out); framedCode(err) != rpcstatus.Internal {
		t.Errorf("a stream called as if it had one answer: %v", err)
	}
}

// A client that does not read one stream stops that stream, and nothing else on its connection.
func TestSlowStreamHoldsNobodyUp(t *testing.T) {
	service := &echotest.Service{Released: make(chan error, 1)}
	_, path := start(t, service, serve.Limits{})
	c := dial(t, path)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := c.Stream(ctx, echotest.Count, wrapperspb.Int64(-1))
	if err != nil {
		t.Fatal(err)
	}
	// An Int64Value of these sizes takes 2 to 4 bytes.
	least, most := int64(framed.DefaultWindow/framed.Cost(4)), int64(framed.DefaultWindow/framed.Cost(2)+1)
	roundTrip := func() {
		if got, err := echo(t.Context(), c, "x"); err != nil || got != "x" {
			t.Fatalf("another call on the connection: %q, %v", got, err)
		}
	}
	for service.Sent.Load() < least {
		roundTrip()
	}
	for range 1000 {
		roundTrip()
	}
	if n := service.Sent.Load(); n > most {
		t.Errorf("%d messages sent to a client that reads none, at most %d fit in the window", n, most)
	}
	out := new(wrapperspb.Int64Value)
	for i := int64(1); i <= most+least; i++ { // reading makes it flow again
		if err := r.Recv(out); err != nil || out.GetValue() != i {
			t.Fatalf("%d, %v", out.GetValue(), err)
		}
	}
	cancel()
	for err = nil; err == nil; {
		err = r.Recv(out)
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if err := <-service.Released; err == nil {
		t.Error("the handler did not learn of it")
	}
}

func TestDeadlineAndCancelReachTheHandler(t *testing.T) {
	service := &echotest.Service{Blocked: make(chan struct{}), Released: make(chan error, 1)}
	_, path := start(t, service, serve.Limits{})
	c := dial(t, path)
	out := new(wrapperspb.StringValue)

	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-service.Blocked; cancel() }()
	if err := c.Call(ctx, echotest.Block, wrapperspb.String(""), out); !errors.Is(err, context.Canceled) || outcome(err) != framed.OutcomeUnknown {
		t.Errorf("cancelled: %v", err)
	}
	if err := <-service.Released; !errors.Is(err, context.Canceled) {
		t.Errorf("handler: %v", err)
	}

	late, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	go func() { <-service.Blocked }()
	if err := c.Call(late, echotest.Block, wrapperspb.String(""), out); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("late: %v", err)
	}
	if err := <-service.Released; err == nil {
		t.Error("the handler has no deadline")
	}
	if err := c.Call(late, echotest.Echo, wrapperspb.String(""), out); !errors.Is(err, context.DeadlineExceeded) || outcome(err) != framed.OutcomeNotSent {
		t.Errorf("begun too late: %v", err)
	}

	go func() { <-service.Blocked; c.Close() }()
	if err := c.Call(t.Context(), echotest.Block, wrapperspb.String(""), out); framedCode(err) != rpcstatus.Canceled {
		t.Errorf("closed here: %v", err)
	}
	if err := <-service.Released; !errors.Is(err, context.Canceled) {
		t.Errorf("handler of a client that is gone: %v", err)
	}
	if _, err := echo(t.Context(), c, "x"); outcome(err) != framed.OutcomeNotSent || c.Usable() {
		t.Errorf("after Close: %v", err)
	}
}

func TestShutdownAnswersWhatItTook(t *testing.T) {
	service := &echotest.Service{Blocked: make(chan struct{}), Release: make(chan struct{})}
	s, path := start(t, service, serve.Limits{})
	idle, busy := dial(t, path), dial(t, path)
	if _, err := echo(t.Context(), idle, "x"); err != nil {
		t.Fatal(err)
	}
	call, err := busy.Start(t.Context(), echotest.Block, wrapperspb.String("kept"))
	if err != nil {
		t.Fatal(err)
	}
	<-service.Blocked
	down := make(chan error, 1)
	go func() { down <- s.Shutdown(context.Background()) }()
	for busy.Usable() { // until the news arrives
		if _, err := echo(t.Context(), busy, "x"); err != nil && (framedCode(err) != rpcstatus.Unavailable || outcome(err) != framed.OutcomeNotSent) {
			t.Fatalf("a call during the shutdown: %v", err)
		}
	}
	if _, err := echo(t.Context(), busy, "x"); framedCode(err) != rpcstatus.Unavailable || outcome(err) != framed.OutcomeNotSent {
		t.Errorf("a new call: %v", err)
	}
	select {
	case err := <-down:
		t.Fatalf("down with a call under way: %v", err)
	default:
	}
	close(service.Release)
	out := new(wrapperspb.StringValue)
	if err := call.Wait(out); err != nil || out.GetValue() != "kept" {
		t.Errorf("the call under way: %q, %v", out.GetValue(), err)
	}
	if err := <-down; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if _, err := echo(t.Context(), idle, "x"); framedCode(err) != rpcstatus.Unavailable {
		t.Errorf("after the shutdown: %v", err)
	}
	if _, err := client.Dial(t.Context(), client.Unix(path)); framedCode(err) != rpcstatus.Unavailable || !strings.Contains(err.Error(), path) {
		t.Errorf("dialling a server that is down: %v", err)
	}
}

func TestFramedShutdownHasAnEnd(t *testing.T) {
	service := &echotest.Service{Blocked: make(chan struct{}), Released: make(chan error, 1)}
	s, path := start(t, service, serve.Limits{})
	c := dial(t, path)
	call, err := c.Start(t.Context(), echotest.Block, wrapperspb.String(""))
	if err != nil {
		t.Fatal(err)
	}
	<-service.Blocked
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Shutdown: %v", err)
	}
	if err := <-service.Released; !errors.Is(err, context.Canceled) {
		t.Errorf("handler: %v", err)
	}
	if err := call.Wait(new(wrapperspb.StringValue)); err == nil {
		t.Error("the call succeeded")
	}
}

func TestQueueIsBounded(t *testing.T) {
	service := &echotest.Service{Blocked: make(chan struct{}), Release: make(chan struct{})}
	_, path := start(t, service, serve.Limits{ActiveCalls: 2, QueuedCalls: 3})
	c := dial(t, path)
	var calls []*client.Pending
	for range 8 {
		p, err := c.Start(t.Context(), echotest.Block, wrapperspb.String("b"))
		if err != nil {
			t.Fatal(err)
		}
		calls = append(calls, p)
	}
	<-service.Blocked
	<-service.Blocked
	refused := 0
	for _, p := range calls[5:] {
		if err := p.Wait(new(wrapperspb.StringValue)); framedCode(err) != rpcstatus.ResourceExhausted {
			t.Errorf("beyond the queue: %v", err)
		}
		refused++
	}
	close(service.Release)
	go func() {
		for range 3 {
			<-service.Blocked
		}
	}()
	for i, p := range calls[:5] {
		if err := p.Wait(new(wrapperspb.StringValue)); err != nil {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if refused != 3 {
		t.Errorf("%d refused", refused)
	}
}

func TestLargeRequestsAreBounded(t *testing.T) {
	_, path := start(t, &echotest.Service{}, serve.Limits{SmallFrame: 1000, Buffered: 10_000})
	c := dial(t, path)
	for _, n := range []int{900, 5000, 9000} {
		if _, err := echo(t.Context(), c, strings.Repeat("x", n)); err != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	for range 3 { // what was taken is given back
		if _, err := echo(t.Context(), c, strings.Repeat("x", 20_000)); framedCode(err) != rpcstatus.ResourceExhausted {
			t.Errorf("20,000 bytes: %v", err)
		}
		if _, err := echo(t.Context(), c, strings.Repeat("x", 9000)); err != nil {
			t.Errorf("9,000 bytes: %v", err)
		}
	}
}

func TestFramedConnectionsPerPeer(t *testing.T) {
	_, path := start(t, &echotest.Service{}, serve.Limits{ConnsPerPeer: 2})
	a, b := dial(t, path), dial(t, path)
	for _, c := range []*client.Client{a, b} {
		if _, err := echo(t.Context(), c, "x"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := echo(t.Context(), dial(t, path), "x"); framedCode(err) != rpcstatus.Unavailable {
		t.Errorf("a third connection: %v", err)
	}
	a.Close()
	for { // the server notices the end of a when it reads it
		c := dial(t, path)
		got, err := echo(t.Context(), c, "x")
		c.Close()
		if err == nil && got == "x" {
			break
		} else if framedCode(err) != rpcstatus.Unavailable {
			t.Fatal(err)
		}
	}
}

func TestGarbageEndsTheConnectionOnly(t *testing.T) {
	_, path := start(t, &echotest.Service{}, serve.Limits{})
	for name, text := range map[string]string{
		"not the preface": "GET / HTTP/1.1\r\n\r\n", "short": "MUST", "unknown kind": framed.Preface + "\x00\x00\x00\x02\x63\x01",
		"huge": framed.Preface + "\xff\xff\xff\xff", "answer from a client": framed.Preface + "\x00\x00\x00\x03\x04\x01\x01",
		"same id twice": framed.Preface + strings.Repeat("\x00\x00\x00\x06\x01\x01\x00\x00\x00\x00", 2),
	} {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte(text)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := conn.(*net.UnixConn).CloseWrite(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := io.Copy(io.Discard, conn); err != nil && !errors.Is(err, net.ErrClosed) && !strings.Contains(err.Error(), "reset") {
			t.Errorf("%s: %v", name, err)
		}
		conn.Close()
	}
	if _, err := echo(t.Context(), dial(t, path), "x"); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestClientNeedsTLSForTCP(t *testing.T) {
	if _, err := client.Dial(t.Context(), client.Target{Network: "tcp", Address: "127.0.0.1:1"}); err == nil || !strings.Contains(err.Error(), "without TLS") {
		t.Errorf("%v", err)
	}
}

func TestInterceptorsRunInOrder(t *testing.T) {
	var mu sync.Mutex
	var order []string
	note := func(name string) grpc.UnaryServerInterceptor {
		return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			mu.Lock()
			order = append(order, name+info.FullMethod)
			mu.Unlock()
			if m, ok := grpc.Method(ctx); !ok || m != echotest.Echo {
				return nil, fmt.Errorf("grpc.Method gives %q", m)
			}
			return handler(ctx, req)
		}
	}
	_, path := start(t, &echotest.Service{}, serve.Limits{}, note("a"), note("b"), note("c"))
	if _, err := echo(t.Context(), dial(t, path), "x"); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(order, " "); got != "a"+echotest.Echo+" b"+echotest.Echo+" c"+echotest.Echo {
		t.Errorf("%s", got)
	}
}

func TestRegistryPanicsOnMistakes(t *testing.T) {
	for name, f := range map[string]func(*grpcx.Registry){
		"wrong type": func(r *grpcx.Registry) { r.RegisterService(echotest.Desc(), struct{}{}) },
		"twice": func(r *grpcx.Registry) {
			r.RegisterService(echotest.Desc(), &echotest.Service{})
			r.RegisterService(echotest.Desc(), &echotest.Service{})
		},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f(grpcx.NewRegistry(nil, nil))
		}()
	}
}
