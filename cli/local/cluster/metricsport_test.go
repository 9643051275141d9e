package cluster

import (
	"net"
	"strconv"
	"testing"

	"github.com/musterhpc/muster/internal/conffile"
)

// TestMetricsPortOfANodeInTheMiddle: a node whose place another agent's port
// belongs to gets the next port on which nothing listens.
func TestMetricsPortOfANodeInTheMiddle(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	used := listener.Addr().(*net.TCPAddr).Port
	first := conffile.Addr("127.0.0.1:" + strconv.Itoa(used))

	got := freeMetrics(first, 0, nil)
	_, text, err := net.SplitHostPort(string(got))
	if err != nil {
		t.Fatal(err)
	}
	if port, err := strconv.Atoi(text); err != nil || port <= used {
		t.Errorf("port %d is in use, and %s was chosen", used, got)
	}
	// An agent that has been started and does not listen yet holds its port too.
	if again := freeMetrics(first, 0, []conffile.Addr{got}); again == got || again == first {
		t.Errorf("%s is an agent's, and was chosen again", again)
	}
	for _, fixed := range []conffile.Addr{"off", "", "127.0.0.1:0"} {
		if got := freeMetrics(fixed, 3, nil); got != fixed {
			t.Errorf("%q became %q", fixed, got)
		}
	}
}
