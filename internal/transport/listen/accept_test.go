package listen_test

import (
	"errors"
	"log/slog"
	"net"
	"syscall"
	"testing"

	"github.com/musterhpc/muster/internal/transport/listen"
)

// script is a listener whose Accept gives these errors, one after the other.
type script struct {
	net.Listener
	errs []error
}

func (s *script) Accept() (net.Conn, error) {
	err := s.errs[0]
	s.errs = s.errs[1:]
	return nil, err
}

// TestAcceptOutlivesFullTables: too many open files pass, a closed listener does not.
func TestAcceptOutlivesFullTables(t *testing.T) {
	full := &net.OpError{Op: "accept", Err: syscall.EMFILE}
	l := &script{errs: []error{full, full, net.ErrClosed}}
	_, err := listen.Accept(l, slog.New(slog.DiscardHandler))
	if !errors.Is(err, net.ErrClosed) || len(l.errs) != 0 {
		t.Errorf("%v, %d errors left", err, len(l.errs))
	}
}
