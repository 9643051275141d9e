package e2e

import (
	"strings"
	"syscall"
	"testing"
)

// ledgerFields are what sacct can tell of a job that is over without the store.
const ledgerFields = "jobid,jobname,partition,account,user,state,exitcode,submit,eligible,start,end," +
	"elapsed,timelimit,alloccpus,reqtres,alloctres,nnodes,nodelist,ntasks,priority,qos,workdir,submitline"

// TestSacctWithoutTheStore: while the store hangs, sacct shows what the controller knows, the
// same as the store had it, and claims success only where nothing can be missing.
func TestSacctWithoutTheStore(t *testing.T) {
	c := start(t)
	one := c.must("sbatch", "--parsable", "-J", "one", "-n2", "--wrap", bin("muster")+" srun -n2 true; exit 3")
	list := c.must("sbatch", "--parsable", "-J", "list", "-a", "1-3", "--wrap", "true")
	long := c.must("sbatch", "--parsable", "-J", "long", "-t", "10", "--wrap", "sleep 300")
	c.until("FAILED", "sacct", "-nPXj", one, "-o", "state")
	c.until("COMPLETED\nCOMPLETED\nCOMPLETED", "sacct", "-nPXj", list, "-o", "state")
	c.until("RUNNING", "sacct", "-nPXj", long, "-o", "state")
	ask := func(jobs string) []string {
		return []string{"sacct", "-nPj", jobs, "-o", ledgerFields}
	}
	want := c.must(ask(one)...)
	wantTasks := c.must(ask(list + "_2")...)
	engine := c.process("embedded-clickhouse", "")
	// It is stopped anew for each question: the supervisor replaces it after half a minute.
	stopped := func(args ...string) (string, string, int) {
		t.Helper()
		if err := syscall.Kill(engine, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		out, errs, code := c.run(args...)
		if err := syscall.Kill(engine, syscall.SIGCONT); err != nil {
			t.Fatalf("the engine was replaced before the answer came: %v", err)
		}
		return strings.TrimSpace(out), errs, code
	}
	out, errs, code := stopped(ask(one)...)
	if out != want || code != 0 || !strings.Contains(errs, "what the controller knows by itself") {
		t.Errorf("exit %d, %s\n%s\nwith the store:\n%s", code, errs, out, want)
	}
	if out, _, _ := stopped(ask(list + "_2")...); out != wantTasks {
		t.Errorf("a task:\n%s\nwith the store:\n%s", out, wantTasks)
	}
	out, errs, code = stopped("sacct", "-nPX", "-s", "R", "-o", "jobname")
	if out != "long" || code != 1 || !strings.Contains(errs, "older jobs are missing above") {
		t.Errorf("jobs that run: exit %d, %s%s", code, errs, out)
	}
	out, errs, code = stopped("sacct", "-nPXj", one+",4711", "-o", "jobname")
	if out != "one" || code != 1 || !strings.Contains(errs, "missing above: 4711") {
		t.Errorf("a job that nobody knows: exit %d, %s%s", code, errs, out)
	}
	for _, args := range [][]string{{"sreport", "cluster", "utilization"}, {"sql", "SELECT 1"}} {
		out, errs, code := stopped(args...)
		if code != 1 || out != "" || !strings.Contains(errs, "does not answer in time") {
			t.Errorf("%v: exit %d, %s%s", args, code, errs, out)
		}
	}
}

// TestSacctWithAccountingStopped: where accounting is a process of its own that hangs or is
// gone, sacct shows what the controller knows, and the others say which process is meant.
func TestSacctWithAccountingStopped(t *testing.T) {
	c := startWith(t, []string{"--apart"})
	job := c.must("sbatch", "--parsable", "-J", "one", "--wrap", "exit 3")
	ask := []string{"sacct", "-nPj", job, "-o", ledgerFields}
	c.until("FAILED", "sacct", "-nPXj", job, "-o", "state")
	want := c.must(ask...)
	accounting := c.process("accounting", "--role")
	if err := syscall.Kill(accounting, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	out, errs, code := c.run(ask...)
	if strings.TrimSpace(out) != want || code != 0 || !strings.Contains(errs, "accounting accepts connections but has not answered") {
		t.Errorf("stopped: exit %d, %s\n%s\nbefore:\n%s", code, errs, out, want)
	}
	_, errs, code = c.run("sreport", "cluster", "utilization")
	if code != 1 || !strings.Contains(errs, "accounting accepts connections but has not answered") {
		t.Errorf("sreport: exit %d, %s", code, errs)
	}
	if err := syscall.Kill(accounting, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	c.kill9("accounting")
	c.fails("start it with musterd --role accounting (nothing listens at", "sreport", "cluster", "utilization")
	out, errs, code = c.run(ask...)
	if strings.TrimSpace(out) != want || code != 0 {
		t.Errorf("killed: exit %d, %s\n%s\nbefore:\n%s", code, errs, out, want)
	}
}
