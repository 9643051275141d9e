package listen_test

import (
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"testing"

	"github.com/musterhpc/muster/internal/transport/listen"
)

// TestSwitch: connections go to the track in use, back to the standby's when that is closed, and
// the end of the switch ends both.
func TestSwitch(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	socket, err := listen.Unix(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	s := listen.NewSwitch(socket)
	ended := make(chan error, 1)
	go func() { ended <- s.Run(slog.New(slog.DiscardHandler)) }()
	// comesTo sends a byte to the socket and sees it arrive on the track.
	comesTo := func(track *listen.Track, sent byte) {
		t.Helper()
		client, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		if _, err := client.Write([]byte{sent}); err != nil {
			t.Fatal(err)
		}
		server, err := track.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		got := make([]byte, 1)
		if _, err := server.Read(got); err != nil || got[0] != sent {
			t.Errorf("the track got %d, %v, want %d", got[0], err, sent)
		}
	}
	comesTo(s.Standby(), 1)
	lead := s.TakeOver()
	comesTo(lead, 2)
	if err := lead.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := lead.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed track accepts: %v", err)
	}
	comesTo(s.Standby(), 3)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the switch ended with %v", err)
	}
	if _, err := s.Standby().Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the standby's track accepts after the end: %v", err)
	}
}
