package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/transport/framed/client"
	"github.com/musterhpc/muster/internal/transport/limit"
	"github.com/musterhpc/muster/test/attack/hostile"
)

// TestOneUserExhaustsNothing attacks a server in the ways that once exhausted it,
// with less than it took then, and asks after each whether a neighbour is served
// and whether the attack was refused and counted.
func TestOneUserExhaustsNothing(t *testing.T) {
	w := newWalkerWith(t, limit.Config{UserConnections: 20, UserBytes: 1 << 20, AddressConnections: 20})
	if os.Getuid() != 0 {
		t.Skip("only root can be two users")
	}
	for _, attack := range []struct {
		name string
		why  limit.Reason
		do   func(t *testing.T, w *walker)
	}{
		{"idle connections of frames", limit.Connections, idleConnections(hostile.ClientPreface, func(w *walker) (net.Conn, error) { return hostile.DialUnix(context.Background(), w.socket, walkUser) })},
		{"idle connections of REST", limit.Connections, idleConnections("", func(w *walker) (net.Conn, error) {
			return hostile.DialUnix(context.Background(), w.restSocket, walkUser)
		})},
		{"idle connections over TCP", limit.Anonymous, idleConnections("", func(w *walker) (net.Conn, error) { return net.Dial("tcp", w.rest) })},
		{"unfinished messages of gRPC", limit.Bytes, unfinishedMessages},
		{"a body that is announced", limit.Bytes, announcedBody},
		{"JSON of many values", limit.Complexity, manyValues},
	} {
		t.Run(attack.name, func(t *testing.T) {
			before := w.limits.Refused()[attack.why]
			attack.do(t, w)
			if w.limits.Refused()[attack.why] == before {
				t.Errorf("nothing was refused for %s", attack.why)
			}
			w.neighbour(t)
		})
	}
}

// neighbour is another user, who is served.
func (w *walker) neighbour(t *testing.T) {
	t.Helper()
	raw, err := hostile.DialUnix(t.Context(), w.socket, walkOperator)
	if err != nil {
		t.Fatal(err)
	}
	conn := client.New(raw)
	defer conn.Close()
	if err := conn.Call(t.Context(), "/muster.v1.Cluster/Ping", &apiv1.PingRequest{}, &apiv1.PingReply{}); err != nil {
		t.Errorf("a neighbour is not served: %v", err)
	}
	resp, err := w.restAs(walkOperator).Post("http://rest/v1/Cluster/Ping", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatalf("a neighbour is not served by REST: %v", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("a neighbour gets %s from REST", resp.Status)
	}
}

// restAs is a client of the gateway's socket as a user.
func (w *walker) restAs(uid int) *http.Client {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return hostile.DialUnix(ctx, w.restSocket, uid)
	}}
	w.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// idleConnections opens more connections than a party may have and leaves them
// idle. What is refused is closed by the server. first is sent on each: a server
// of gRPC and frames waits for the first bytes to know which of them it is.
func idleConnections(first string, dial func(w *walker) (net.Conn, error)) func(t *testing.T, w *walker) {
	return func(t *testing.T, w *walker) {
		closed := make(chan struct{}, 60)
		for range cap(closed) {
			conn, err := dial(w)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
			// What the server closes of itself it has refused, so nothing may go
			// out that it would end the connection for.
			_, _ = io.WriteString(conn, first)
			go func() {
				_, err := io.Copy(io.Discard, conn)
				_ = err // closed in either case
				closed <- struct{}{}
			}()
		}
		for range cap(closed) - 20 {
			<-closed
		}
	}
}

// unfinishedMessages sends the beginnings of many large messages on one
// connection until the server ends it.
func unfinishedMessages(t *testing.T, w *walker) {
	conn, err := hostile.DialUnix(t.Context(), w.socket, walkUser)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go io.Copy(io.Discard, conn)
	for _, portion := range hostile.UnfinishedMessages(200, 15<<20, 16000) {
		if _, err := conn.Write(portion); err != nil {
			return // the server has ended the connection
		}
	}
	t.Error("the server took 200 unfinished messages")
}

// announcedBody says that much will come, and sends nothing of it.
func announcedBody(t *testing.T, w *walker) {
	conn, err := hostile.DialUnix(t.Context(), w.restSocket, walkUser)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /v1/Cluster/Submit HTTP/1.1\r\nHost: rest\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", 15<<20)
	answer := make([]byte, 64)
	if _, err := io.ReadAtLeast(conn, answer, 12); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 429") {
		t.Errorf("answered with %q, %v", answer, err)
	}
}

// manyValues sends a small body that is expensive to decode.
func manyValues(t *testing.T, w *walker) {
	began := time.Now()
	resp, err := w.restAs(walkUser).Post("http://rest/v1/Cluster/ListJobs", "application/json", strings.NewReader(hostile.ManyValues(200_000)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusBadRequest {
		t.Errorf("answered with %s after %s", resp.Status, time.Since(began))
	}
}
