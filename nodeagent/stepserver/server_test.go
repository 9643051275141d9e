package stepserver

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/musterhpc/muster/nodeagent/plan/stepio"
)

// Another user's credential is of no use to who has got hold of it, and nobody
// is root on another machine.
func TestOnlyItsOwnUserAttaches(t *testing.T) {
	for _, c := range []struct {
		uid, of uint32
		root    bool
		want    bool
	}{{1234, 1234, false, true}, {1235, 1234, false, false}, {0, 1234, true, true}, {0, 1234, false, false}} {
		open := &stepio.Message{UID: c.uid}
		if err := mayAttach(open, c.of, c.root); (err == nil) != c.want {
			t.Errorf("user %d with the credential of %d (root here: %v): %v", c.uid, c.of, c.root, err)
		}
	}
}

// A client that does not wait for answers fills nobody's memory.
func TestInputWithoutEnd(t *testing.T) {
	for what, c := range map[string]struct{ size, most int }{
		"small pieces":     {1, stepio.MaxPieces},
		"large pieces":     {stepio.MaxInput, stepio.MaxWindow / stepio.MaxInput},
		"too large pieces": {stepio.MaxInput + 1, 0},
	} {
		conn := &stepConn{inputs: make(chan *stepio.Message, stepio.MaxPieces)}
		n := 0
		var err error
		for ; err == nil && n <= 2*stepio.MaxPieces; n++ {
			err = conn.queueInput(&stepio.Message{Kind: stepio.Input, Data: make([]byte, c.size)})
		}
		var no *refused
		if n-1 != c.most || !errors.As(err, &no) {
			t.Errorf("%s: %d were taken: %v", what, n-1, err)
		}
	}
}

// A user who connects without end leaves room for the others.
func TestConnectionsOfOneUserAreCounted(t *testing.T) {
	var c callers
	var leave func()
	for range maxOfUser {
		var ok bool
		if leave, ok = c.enterCaller(7); !ok {
			t.Fatal("refused too soon")
		}
	}
	if _, ok := c.enterCaller(7); ok {
		t.Error("one more is let in")
	}
	for _, uid := range []uint32{0, 8} {
		if _, ok := c.enterCaller(uid); !ok {
			t.Errorf("user %d is kept out by user 7", uid)
		}
	}
	leave()
	if _, ok := c.enterCaller(7); !ok {
		t.Error("who has left is still counted")
	}
}

// crowded is a listener that finds no room for the first who comes.
type crowded struct {
	net.Listener
	results chan net.Conn // nil: no room
}

func (l *crowded) Accept() (net.Conn, error) {
	sock, ok := <-l.results
	if !ok {
		return nil, net.ErrClosed
	}
	if sock == nil {
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return sock, nil
}

func (l *crowded) Close() error { return nil }

// Who finds no room keeps nobody out who comes later.
func TestStepsAreServedAfterTooManyFilesWereOpen(t *testing.T) {
	l := &crowded{results: make(chan net.Conn, 2)}
	ours, theirs := net.Pipe()
	l.results <- nil
	l.results <- theirs
	s := &Server{tcp: l, log: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	s.Serve(ctx, &wg)
	_ = ours.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := ours.Read(make([]byte, 1)); !errors.Is(err, io.EOF) { // it speaks no TLS
		t.Errorf("the second is not looked at: %v", err)
	}
	close(l.results)
	cancel()
	wg.Wait()
}
