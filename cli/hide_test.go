package cli

import (
	"strings"
	"testing"
)

// TestHide: squeue --hide leaves out the jobs that are only in hidden partitions.
func TestHide(t *testing.T) {
	w := everything(t)
	for _, p := range w.parts {
		p.Hidden = p.GetName() == "gpu"
	}
	count := func(line string) (in, all int) {
		r := w.run(strings.Fields(line)...)
		if r.code != 0 {
			t.Fatalf("%s: exit %d: %s", line, r.code, r.errOut)
		}
		for row := range strings.Lines(r.out) {
			all++
			if strings.TrimSpace(row) == "gpu" {
				in++
			}
		}
		return in, all
	}
	shown, _ := count("squeue -h -o %P")
	hidden, _ := count("squeue -h --hide -o %P")
	asked, _ := count("squeue -h --hide -a -o %P")
	if shown == 0 || hidden != 0 || asked != shown {
		t.Errorf("%d, %d and %d jobs of the hidden partition", shown, hidden, asked)
	}
}
