package e2e

import (
	"strings"
	"testing"
)

// Output is read from the node while the job writes it, and a question what would be
// leaves the cluster as it was.
func TestTailAndSuppose(t *testing.T) {
	c := start(t)
	const write = "echo one; echo two; while [ ! -e go ]; do sleep 0.05; done; echo last"
	c.must("sbatch", "-J", "first", "--gres=gpu:8", "-t", "60", "--wrap", write)
	c.must("sbatch", "-J", "second", "--gres=gpu:8", "-t", "90", "--wrap", write)
	c.must("sbatch", "-J", "waits", "--gres=gpu:8", "-t", "30", "--wrap", "true")
	c.until("first\nsecond", "squeue", "-h", "-t", "R", "-S", "i", "-o", "%j")
	c.until("one\ntwo", "tail", "1")
	c.untilShell(bin("muster") + " squeue --start -h -j 3 | grep -v N/A")

	supposed := c.must("suppose", "scancel 1")
	for _, want := range []string{"starts now", "ends", "1 job earlier"} {
		if !strings.Contains(supposed, want) {
			t.Errorf("the answer lacks %q:\n%s", want, supposed)
		}
	}
	c.must("suppose", "scontrol update nodename=node1 state=drain reason=x", "add 3 nodes like node2")
	_, errs, code := c.run("suppose", "scancel 1", "scancel 99")
	if code == 0 || !strings.Contains(errs, "change 2: job 99: Invalid job id specified") {
		t.Errorf("a job that is not there: %d %s", code, errs)
	}
	c.until("first\nsecond", "squeue", "-h", "-t", "R", "-S", "i", "-o", "%j")
	if nodes := c.must("sinfo", "-h", "-o", "%D %T"); nodes != "2 mixed" {
		t.Errorf("after the questions the nodes are %q", nodes)
	}

	follows := c.waitShell(bin("muster") + " tail 1 -f > followed")
	c.untilShell("grep two followed && touch go")
	if code := follows(); code != 0 {
		t.Errorf("tail -f ends with %d", code)
	}
	if code := c.waitShell("printf 'one\\ntwo\\nlast\\n' | cmp - followed")(); code != 0 {
		t.Error("tail -f has not printed what the job wrote")
	}
	c.until("", "squeue", "-h")
}
