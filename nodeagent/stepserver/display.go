package stepserver

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/plan/stepio"
)

// Displays are the X displays of the jobs on this node. Displays of package display is one.
type Displays interface {
	// Has tells whether a job has a display here.
	Has(key plan.RunKey) bool
	// Attach tells of each X client that waits, until the context ends or somebody else
	// forwards the display.
	Attach(ctx context.Context, key plan.RunKey, tell func(id uint64) error) error
	// Claim gives the connection of an X client that waits.
	Claim(key plan.RunKey, id uint64) (net.Conn, error)
}

// serveDisplay serves a command that forwards the display of a job, or carries one client
// of that.
func (s *Server) serveDisplay(
	ctx context.Context,
	sock net.Conn,
	reader clientStream,
	open *stepio.Message,
) error {
	if s.screens == nil {
		return &refused{stepio.Over, errors.New("this node forwards no displays")}
	}
	if open.Display == stepio.DisplayClient {
		return s.carryClient(ctx, sock, reader.raw, open)
	}
	if !s.screens.Has(open.Run) { // it may be opened only now
		return &refused{stepio.Unreachable, errors.New("the job has no display on this node")}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // it has nothing to say: this waits for its end
		defer cancel()
		_, _ = reader.Next()
	}()
	send := func(message *stepio.Message) error {
		_ = sock.SetWriteDeadline(time.Now().Add(OpenWait))
		_, err := sock.Write(stepio.Append(nil, message))
		return err
	}
	if err := send(&stepio.Message{Kind: stepio.Opened}); err != nil {
		return err
	}
	err := s.screens.Attach(ctx, open.Run, func(id uint64) error {
		return send(&stepio.Message{Kind: stepio.Called, Channel: id})
	})
	if err == nil || ctx.Err() != nil {
		return err
	}
	return &refused{stepio.Over, err}
}

// carryClient carries the bytes of an X client until one side ends.
func (s *Server) carryClient(ctx context.Context, sock net.Conn, buffered io.Reader, open *stepio.Message) error {
	client, err := s.screens.Claim(open.Run, open.Channel)
	if err != nil {
		return &refused{stepio.Over, err}
	}
	defer func() { _ = client.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = client.Close() })
	defer stop()
	if _, err := sock.Write(stepio.Append(nil, &stepio.Message{Kind: stepio.Opened})); err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(client, buffered)
		_ = client.Close()
	}()
	_, _ = io.Copy(sock, client)
	_ = sock.Close()
	return nil
}
