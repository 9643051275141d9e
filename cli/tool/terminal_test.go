package tool

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// TestTerminalsAreSafe: what a command prints does not act on a terminal, and is
// exact for a program and as a document.
func TestTerminalsAreSafe(t *testing.T) {
	const hostile = "a\x1b[2J\u009bb\n"
	for _, c := range []struct {
		terminal, exact bool
		want            string
	}{{true, false, "a?[2J?b\n"}, {false, false, hostile}, {true, true, hostile}} {
		var out, errs bytes.Buffer
		e := &Env{Stdout: &out, Stderr: &errs, Now: time.Now, Terminal: func(any) bool { return c.terminal }}
		cmd := &Command{Name: "show", OwnPrecedence: true, Run: func(call *Call) error {
			if c.exact {
				if err := call.Exact(); err != nil {
					return err
				}
			}
			if err := call.WriteOut([]byte(hostile)); err != nil {
				return err
			}
			return Fail(1, "job \x1b[31m is not there")
		}}
		if code := RunCommand(e, cmd, nil); code != 1 || out.String() != c.want || strings.Contains(errs.String(), "\x1b") {
			t.Errorf("terminal %v, exact %v: exit %d, %q and %q", c.terminal, c.exact, code, out.String(), errs.String())
		}
	}
}
