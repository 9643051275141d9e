package carrier_test

import (
	"bufio"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhpc/muster/internal/transport/munge/carrier"
)

// TestNoAuthority: the command reads, on one line, what is missing and where to copy it from.
func TestNoAuthority(t *testing.T) {
	command, end := net.Pipe()
	defer end.Close()
	done := make(chan error, 1)
	missing := filepath.Join(t.TempDir(), "ca.crt")
	go func() { done <- carrier.Carry(command, []string{"192.0.2.1:6817"}, missing, "") }()
	line, err := bufio.NewReader(end).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(line, "error ") || !strings.Contains(line, missing) || !strings.Contains(line, "tls/ca.crt") {
		t.Errorf("the command reads %q", line)
	}
	if err := <-done; err == nil {
		t.Error("it ended without an error")
	}
}
