package embedded

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWithoutTheListener: an engine whose listener for logins cannot be had runs
// all the same, and its log says what to do; told that the listener is needed it
// does not start.
func TestWithoutTheListener(t *testing.T) {
	needLibrary(t)
	password := filepath.Join(t.TempDir(), "reader")
	if err := os.WriteFile(password, []byte("r3ad\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for name, o := range map[string]Options{
		"no password":   {TCP: "127.0.0.1:0", Logins: []Login{{"grafana", password + "-missing", true}}},
		"taken address": {TCP: taken.Addr().String(), Logins: []Login{{"grafana", password, true}}},
	} {
		t.Run(name, func(t *testing.T) {
			log, logger := newTestLog(t)
			o.Log, o.TCPOptional = logger, true
			s := startEngine(t, o)
			if err := s.Ping(t.Context()); err != nil {
				t.Error(err)
			}
			waitFor(t, "the cure in the log", func() bool {
				return strings.Contains(log.String(), "nobody can log in") && strings.Contains(log.String(), "cure=")
			})
		})
	}
}
