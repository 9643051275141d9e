package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestTranscripts runs the sessions in testdata/transcripts: "world NAME" sets
// what the controller holds, "run" runs command lines one after the other.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata/transcripts", func(t *testing.T, path string) {
		var w *world
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "world":
				w = newWorld(t)
				worlds()[d.CmdArgs[0].Key](w)
				return ""
			case "env":
				for _, a := range d.CmdArgs {
					w.env[a.Key] = strings.Join(a.Vals, ",")
				}
				return ""
			case "run":
				w.t = t
				w.stdin = ""
				var b strings.Builder
				for line := range strings.Lines(d.Input) {
					line = strings.TrimSuffix(line, "\n")
					r := w.shell(line)
					if strings.Contains(d.Input, "\n") {
						fmt.Fprintf(&b, "$ %s\n", line)
					}
					b.WriteString(r.out)
					for e := range strings.Lines(strings.ReplaceAll(r.errOut, w.socket, "SOCKET")) {
						b.WriteString("! " + e)
					}
					if r.code != 0 {
						fmt.Fprintf(&b, "[exit=%d]\n", r.code)
					}
				}
				return visible(b.String())
			}
			d.Fatalf(t, "unknown directive %s", d.Cmd)
			return ""
		})
	})
}

// visible marks blanks at the ends of lines, which editors would drop, and
// empty lines, which datadriven would not keep.
func visible(s string) string {
	lines := strings.Split(strings.TrimSuffix(s, "\n"), "\n")
	for i, l := range lines {
		if l == "" || strings.HasSuffix(l, " ") {
			lines[i] = l + "$"
		}
	}
	return strings.Join(lines, "\n")
}

// worlds are what the controller can hold.
func worlds() map[string]func(*world) {
	out := map[string]func(*world){
		"explained":  (*world).explained,
		"fewer-gpus": (*world).fewerGPUs,
	}
	for name, s := range scenarios() {
		out[strings.ReplaceAll(name, " ", "-")] = s.set
	}
	for name, s := range moreScenarios() {
		out[strings.ReplaceAll(name, " ", "-")] = s.set
	}
	return out
}
