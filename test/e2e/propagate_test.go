package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPropagatedLimits: a job has the limits of the shell in which it was submitted, but
// for those that slurm.conf keeps back and --propagate does not name.
func TestPropagatedLimits(t *testing.T) {
	const open, stack = "333", "5000" // of the shell; no node has these by itself
	for _, tc := range []struct {
		conf, option string
		open, stack  bool // which of them the job has
	}{
		{"PropagateResourceLimits=ALL", "", true, true},
		{"PropagateResourceLimits=STACK", "", false, true},
		{"PropagateResourceLimits=NONE", "", false, false},
		{"PropagateResourceLimitsExcept=STACK", "", true, false},
		{"PropagateResourceLimits=NONE", "--propagate=NOFILE", true, false},
	} {
		t.Run(tc.conf+tc.option, func(t *testing.T) {
			t.Parallel()
			c := start(t, tc.conf)
			out := filepath.Join(c.dir, "limits")
			cmd := exec.Command("bash", "-c", "ulimit -Sn "+open+"; ulimit -Ss "+stack+"; exec "+bin("muster")+
				" sbatch -W "+tc.option+" -o "+out+" --wrap 'bash -c \"ulimit -Sn; ulimit -Ss\"'")
			cmd.Env = append(os.Environ(), "MUSTER_SOCKET="+filepath.Join(c.dir, "run", "muster.sock"))
			if text, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, text)
			}
			text, err := os.ReadFile(out)
			got := strings.Fields(string(text))
			if err != nil || len(got) != 2 || (got[0] == open) != tc.open || (got[1] == stack) != tc.stack {
				t.Errorf("open files and stack of the job are %q, of the shell %s and %s: %v", got, open, stack, err)
			}
		})
	}
}
