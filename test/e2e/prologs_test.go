package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDeferredBatch: with PrologFlags=DeferBatch the script of a job on two nodes, which
// runs on the first, begins when the prolog of the second is over too. Without it the
// script begins when that of its own node is.
func TestDeferredBatch(t *testing.T) {
	for _, tc := range []struct{ flags, want string }{{"Alloc,DeferBatch", "after"}, {"Alloc", "before"}} {
		t.Run(tc.flags, func(t *testing.T) {
			scripts := shortDir(t)
			// The prolog of the second node waits: for the script where that may begin, and
			// otherwise for long enough that it would have.
			waits := "until test -e began; do sleep 0.1; done"
			if tc.want == "after" {
				waits = "until test -e first; do sleep 0.1; done; sleep 3"
			}
			prolog := filepath.Join(scripts, "prolog")
			text := "#!/bin/sh\nPATH=/usr/bin:/bin\ncd " + scripts + " || exit 1\ncase $SLURMD_NODENAME in\nnode1) touch first;;\nnode2) " + waits + "; touch second;;\nesac\n"
			if err := os.WriteFile(prolog, []byte(text), 0o755); err != nil {
				t.Fatal(err)
			}
			c := start(t, "Prolog="+prolog, "PrologFlags="+tc.flags)
			id := strings.TrimSpace(c.must("sbatch", "--parsable", "-N2", "-w", "node1,node2", "-o", "/dev/null", "--wrap",
				"cd "+scripts+"; test -e second && echo after >began.new || echo before >began.new; mv began.new began"))
			c.until("COMPLETED", "sacct", "-X", "-n", "-P", "-j", id, "-o", "State")
			got, err := os.ReadFile(filepath.Join(scripts, "began"))
			if err != nil || strings.TrimSpace(string(got)) != tc.want {
				t.Errorf("the script began %q the prolog of the second node, want %q: %v", got, tc.want, err)
			}
		})
	}
}
