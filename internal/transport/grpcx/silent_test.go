package grpcx

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/musterhpc/muster/internal/transport/echotest"
)

// freezing is a connection to a process that may be stopped: then it takes what is sent, as the
// kernel does for the process, and nothing comes back.
type freezing struct {
	net.Conn
	frozen *atomic.Bool
	closed chan struct{}
	once   sync.Once
}

func (c *freezing) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.frozen.Load() {
		<-c.closed
		return 0, net.ErrClosed
	}
	return n, err
}

func (c *freezing) Write(b []byte) (int, error) {
	if c.frozen.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *freezing) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// pipes is a listener of connections in memory.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	conn, open := <-p
	if !open {
		return nil, net.ErrClosed
	}
	return conn, nil
}
func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// TestSilentServerIsNoticed: an agent's stream to a controller that is stopped, and not dead, ends
// after the interval of pings and the patience with one; a stream on which nothing is said for an
// hour by right does not end, also at a server of a release that allows a ping every 10 s.
func TestSilentServerIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener := make(pipes)
		server := grpc.NewServer(grpc.KeepaliveEnforcementPolicy(
			keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true},
		))
		server.RegisterService(echotest.Desc(), &echotest.Service{})
		go func() { _ = server.Serve(listener) }()
		defer server.Stop()
		defer close(listener)
		var frozen atomic.Bool
		dial := func(context.Context, string) (net.Conn, error) {
			near, far := net.Pipe()
			listener <- far
			return &freezing{Conn: near, frozen: &frozen, closed: make(chan struct{})}, nil
		}
		conn, err := newClient(
			"passthrough:///ctl",
			insecure.NewCredentials(),
			[]grpc.DialOption{grpc.WithContextDialer(dial)},
		)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		ended := make(chan error, 1)
		go func() {
			ended <- conn.Invoke(t.Context(), echotest.Block, nil, nil)
		}()
		select {
		case err := <-ended:
			t.Fatalf("a call that waits by right ended with %v", err)
		case <-time.After(time.Hour + time.Second): // a second after a ping
		}
		frozen.Store(true)
		began := time.Now()
		err = <-ended
		if took := time.Since(began); err == nil || took > 15*time.Second {
			t.Errorf("the call to the stopped server ended after %v: %v", took, err)
		}
	})
}
