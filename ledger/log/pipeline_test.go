package log

import (
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// loopback is a Layer on a loopback address.
type loopback struct{ net.Listener }

func (loopback) Dial(address string, timeout time.Duration) (net.Conn, error) {
	return net.DialTimeout("tcp", address, timeout)
}

func openLoopback(t *testing.T) raft.Transport {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	trans := NewTransport(loopback{l}, time.Minute, slog.New(slog.DiscardHandler))
	t.Cleanup(func() { trans.(raft.WithClose).Close() }) //nolint:errcheck // at the end of a test
	return trans
}

// TestUnreadAnswers sends through a pipeline whose answers nobody reads, as raft does after an
// answer that was not a success: it must not wait for room. Where it does, this test never ends,
// as musterd did at its shutdown.
func TestUnreadAnswers(t *testing.T) {
	here, there := openLoopback(t), openLoopback(t)
	go func() {
		for call := range there.Consumer() {
			call.Respond(&raft.AppendEntriesResponse{Term: 9}, nil)
		}
	}()
	p, err := here.AppendEntriesPipeline("there", there.LocalAddr())
	if err != nil {
		t.Fatal(err)
	}
	const requests = 50
	for range requests {
		if _, err := p.AppendEntries(&raft.AppendEntriesRequest{Term: 1}, new(raft.AppendEntriesResponse)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range requests { // nothing is lost to one who reads late
		if answer := <-p.Consumer(); answer.Error() != nil || answer.Response().Term != 9 {
			t.Fatalf("answer %d: %+v, %v", i, answer.Response(), answer.Error())
		}
	}
	for range 2 {
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
