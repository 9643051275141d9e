package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster/spec"
)

// The programs run with nothing but their environment, are ended when they
// take too long, and what they said last is why they failed.
func TestCtlScripts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "prolog")
	write := func(text string) {
		if err := os.WriteFile(file, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c := CtlScripts{}
	write(`test "$A" = b && test -z "$HOME" && test "$(/bin/pwd)" = /`)
	if err := c.Run(t.Context(), file, spec.Infinite, []string{"A=b"}); err != nil {
		t.Error(err)
	}
	write("echo first; echo no licence server >&2; exit 3")
	if err := c.Run(t.Context(), file, 0, nil); err == nil || err.Error() != file+": exit status 3: no licence server" {
		t.Error(err)
	}
	write("/bin/sleep 600 & wait")
	began := time.Now()
	if err := c.Run(t.Context(), file, spec.Span(50*time.Millisecond), nil); err == nil || !strings.Contains(err.Error(), "it was ended after 50ms") {
		t.Error(err)
	}
	if time.Since(began) > time.Minute {
		t.Error("what it had started was not ended")
	}
	if err := (CtlScripts{User: "no such user"}).Run(t.Context(), file, 0, nil); os.Geteuid() == 0 && (err == nil || !strings.Contains(err.Error(), "SlurmUser no such user")) {
		t.Error(err)
	}
}
