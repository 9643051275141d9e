package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSattach: two of them see what the tasks on two nodes write after they came,
// what is typed to one reaches a task, and the srun misses nothing.
func TestSattach(t *testing.T) {
	c := start(t)
	came := filepath.Join(c.dir, "came")
	out := filepath.Join(c.dir, "srun.out")
	program := "echo early; while [ ! -e " + came + " ]; do echo tick; sleep 0.05; done; [ $SLURM_PROCID = 0 ] || read x; echo late $x; exit $((SLURM_PROCID * 7))"
	// Its input stays open, or there is none for others either.
	srun := c.waitShell("mkfifo open; exec 3<>open; " + bin("muster") + " srun -N 2 -n 2 -l -o " + out + " sh -c '" + program + "' <&3")
	c.until("1.0", "squeue", "-h", "-s", "-o", "%i")
	if layout := c.must("sattach", "--layout", "1.0"); !strings.Contains(layout, "2 tasks, 2 nodes (node1,node2)") || !strings.Contains(layout, "Node 1 (node2), 1 task(s): 1") {
		t.Errorf("the layout is %q", layout)
	}
	all, one := filepath.Join(c.dir, "all"), filepath.Join(c.dir, "one")
	attach := func(line string) func() int {
		return c.waitShell("while sleep 0.1; do if grep -q tick " + all + " " + one + "; then echo word; break; fi; done | " + bin("muster") + " sattach " + line)
	}
	if err := os.WriteFile(all, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(one, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	first := c.waitShell(bin("muster") + " sattach -l 1.0 </dev/null >" + all)
	second := attach("-Q --output-filter=1 --input-filter=1 1.0 >" + one)
	c.untilShell("grep -q '1: tick' " + all + " && grep -q tick " + one)
	if err := os.WriteFile(came, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, wait := range map[string]func() int{"srun": srun, "first": first, "second": second} {
		if code := wait(); code != 7 {
			t.Errorf("%s ended with %d, want 7", name, code)
		}
	}
	read := func(path string) string {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	for path, want := range map[string][]string{out: {"0: early\n", "1: early\n", "0: late\n", "1: late word\n"}, all: {"0: tick\n", "0: late\n", "1: late word\n"}, one: {"tick\n", "late word\n"}} {
		for _, line := range want {
			if !strings.Contains(read(path), line) {
				t.Errorf("%s has %q, without %q", filepath.Base(path), read(path), line)
			}
		}
	}
	if strings.Contains(read(all), "early") || strings.Contains(read(one), "late\n") {
		t.Errorf("sattach showed what came before it, or another task's output")
	}
	if _, _, code := c.run("sattach", "1.0"); code != 1 {
		t.Errorf("sattach of a step that is over ended with %d", code)
	}
}
