package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhpc/muster/test/ports"
)

// cluster is a lab of its own, up for the length of a test.
type cluster struct {
	t    *testing.T
	dir  string
	port int
}

func bin(name string) string {
	wd, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	return filepath.Join(wd, "..", "..", "bin", name)
}

// labPorts are those of all labs: tests that run at the same time must not find the same ones.
var labPorts ports.Finder

// freePorts finds ports for a lab.
func freePorts(t *testing.T) int {
	t.Helper()
	start, err := labPorts.Free(ports.Lab)
	if err != nil {
		t.Fatal(err)
	}
	return start
}

// need skips a test whose programs are not built. Where MUSTER_REQUIRE_ENGINE says that nothing
// may be left out, it fails instead: an "ok" would be taken for a pass.
func need(t *testing.T) {
	t.Helper()
	leaveOut := t.Skipf
	if os.Getenv("MUSTER_REQUIRE_ENGINE") != "" {
		leaveOut = t.Fatalf
	}
	for _, name := range []string{"muster", "musterd", "muster-agent", "muster-shepherd"} {
		if _, err := os.Stat(bin(name)); err != nil {
			leaveOut("%v: run `make build` first (`make e2e` does)", err)
		}
	}
}

// shortDir is a folder whose name leaves room for the names of sockets.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "e2e")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Logf("%v", err)
		}
	})
	return dir
}

func start(t *testing.T, conf ...string) *cluster {
	t.Helper()
	return startWith(t, nil, conf...)
}

// startWith is start with further options of up.
func startWith(t *testing.T, up []string, conf ...string) *cluster {
	t.Helper()
	need(t)
	c := &cluster{t: t, dir: shortDir(t), port: freePorts(t)}
	args := []string{"init", "--dir", c.dir, "--nodes", "2", "--gpus", "8", "--port", strconv.Itoa(c.port)}
	for _, line := range conf {
		args = append(args, "--conf", line)
	}
	c.must(args...)
	c.must(append([]string{"up", "--dir", c.dir}, up...)...)
	t.Cleanup(func() {
		c.run("down", "--dir", c.dir, "--jobs")
		if t.Failed() {
			for _, log := range []string{"musterd.log", "accounting.log", "agent-node1.log"} {
				data, _ := os.ReadFile(filepath.Join(c.dir, "run", log))
				t.Logf("%s:\n%s", log, data[max(0, len(data)-4000):])
			}
		}
	})
	return c
}

// run runs a muster command and gives its output and exit code.
func (c *cluster) run(args ...string) (stdout, stderr string, code int) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin("muster"), args...)
	cmd.Env = append(os.Environ(), "MUSTER_SOCKET="+filepath.Join(c.dir, "run", "muster.sock"))
	cmd.Dir = c.dir
	var out, errb bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errb
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		c.t.Fatalf("muster %v: %v", args, err)
	}
	return out.String(), errb.String(), cmd.ProcessState.ExitCode()
}

func (c *cluster) must(args ...string) string {
	c.t.Helper()
	out, errs, code := c.run(args...)
	if code != 0 {
		c.t.Fatalf("muster %s: exit %d\n%s%s", strings.Join(args, " "), code, out, errs)
	}
	return strings.TrimSpace(out)
}

// until asks again until the answer is the wanted one. A command may fail
// before that: on a busy machine a service may still be starting.
func (c *cluster) until(want string, args ...string) {
	c.t.Helper()
	var got string
	for range 2000 {
		out, errs, code := c.run(args...)
		got = strings.TrimSpace(out)
		if code != 0 {
			got += fmt.Sprintf(" (exit %d: %s)", code, strings.TrimSpace(errs))
		}
		if got == want {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	c.t.Fatalf("muster %s\nsays  %q\nnot   %q", strings.Join(args, " "), got, want)
}

func (c *cluster) kill9(name string) {
	c.t.Helper()
	data, err := os.ReadFile(filepath.Join(c.dir, "run", name+".pid"))
	if err != nil {
		c.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		c.t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		c.t.Fatal(err)
	}
	for { // the kernel takes its time over a large process
		if _, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err != nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func TestDemo(t *testing.T) {
	need(t)
	cmd := exec.Command("../../deploy/lab/demo.sh")
	cmd.Env = append(os.Environ(), "LAB="+filepath.Join(shortDir(t), "lab"), fmt.Sprintf("LAB_PORT=%d", freePorts(t)))
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatalf("the demo failed: %v", err)
	}
}

func TestJobsSurviveTheDeathOfControllerAndAgent(t *testing.T) {
	c := start(t)
	id := c.must("sbatch", "--parsable", "--gres=gpu:1", "--wrap", "sleep 4; exit 7")
	c.until("R", "squeue", "-h", "-j", id, "-o", "%t")
	c.kill9("musterd")
	c.kill9("agent-node1")
	c.kill9("agent-node2")
	if _, errs, code := c.run("squeue"); code != 1 || !strings.Contains(errs, "nable to contact") {
		t.Errorf("squeue without a controller: exit %d, %q", code, errs)
	}
	c.must("up", "--dir", c.dir)
	c.until("FAILED|7:0", "sacct", "-n", "-X", "-P", "-j", id, "-o", "State,ExitCode")
	if again := c.must("sbatch", "--parsable", "--wrap", "true"); again == id {
		t.Errorf("job id %s was given twice", id)
	}
}

// TestUpWaitsForTheAgentsItStarts: the controller has not noticed yet that an
// agent was killed, and still `muster up` returns only when the new one works.
func TestUpWaitsForTheAgentsItStarts(t *testing.T) {
	c := start(t)
	for range 3 {
		c.kill9("agent-node1")
		c.must("up", "--dir", c.dir)
		resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/readyz", c.port+10))
		if err != nil {
			t.Fatalf("the agent does not answer after muster up: %v", err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("the agent is not ready after muster up: %s", resp.Status)
		}
	}
}

// TestAnEndIsWhenItWas: a job and its steps end while the controller is dead, which
// hears of it later. All that shows the end shows the moment that the job itself noted.
func TestAnEndIsWhenItWas(t *testing.T) {
	c := start(t)
	stamp := filepath.Join(c.dir, "stamp")
	id := c.must("sbatch", "--parsable", "-o", "/dev/null", "--wrap",
		"srun true; touch "+stamp+".go; while [ ! -e "+stamp+".dead ]; do sleep 0.1; done; date +%s > "+stamp)
	exists := func(path string) {
		for {
			if data, err := os.ReadFile(path); err == nil && (len(data) > 0 || path != stamp) {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	exists(stamp + ".go")
	c.kill9("musterd")
	if err := os.WriteFile(stamp+".dead", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	exists(stamp)
	time.Sleep(6 * time.Second) // the controller stays dead for longer than a clock rounds
	c.must("up", "--dir", c.dir)
	c.until("COMPLETED", "sacct", "-n", "-X", "-P", "-j", id, "-o", "State")
	want, err := strconv.ParseInt(c.content("stamp"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"sacct", "-n", "-X", "-P", "-j", id, "-o", "End"},
		{"sacct", "-n", "-P", "-j", id + ".batch", "-o", "End"},
		{"squeue", "-h", "-t", "all", "-j", id, "-o", "%e"},
	} {
		text := c.must(args...)
		end, err := time.ParseInLocation("2006-01-02T15:04:05", text, time.Local)
		if err != nil {
			t.Fatalf("muster %v: %v", args, err)
		}
		if late := end.Unix() - want; late < 0 || late > 2 {
			t.Errorf("muster %v: the job ended %d s after it did", args, late)
		}
	}
	elapsed := c.must("sacct", "-n", "-X", "-P", "-j", id, "-o", "Elapsed")
	if shown := c.must("squeue", "-h", "-t", "all", "-j", id, "-O", "TimeUsed:20"); !strings.HasSuffix(elapsed, strings.TrimSpace(shown)) {
		t.Errorf("sacct: %s, squeue: %s", elapsed, shown)
	}
}

func TestRefusalsAreClear(t *testing.T) {
	c := start(t)
	for _, r := range []struct {
		args []string
		code int
		text string
	}{
		{[]string{"sbatch", "--gres=gpu:16", "-N1", "--wrap", "true"}, 1, "sbatch: error: Batch job submission failed: Requested node configuration is not available"},
		{[]string{"sbatch", "-p", "nosuch", "--wrap", "true"}, 1, "sbatch: error: Batch job submission failed: Invalid partition name specified"},
		{[]string{"sbatch", "--qos=nosuch", "--wrap", "true"}, 1, "sbatch: error: Batch job submission failed: Invalid qos specification"},
		{[]string{"squeue", "-j", "4711"}, 1, "slurm_load_jobs error: Invalid job id specified"},
		{[]string{"sbatch", "--no-such-option"}, 255, "--no-such-option"},
	} {
		out, errs, code := c.run(r.args...)
		if code != r.code || !strings.Contains(errs, r.text) {
			t.Errorf("muster %s: exit %d, %q %q; expected %d and %q", strings.Join(r.args, " "), code, out, errs, r.code, r.text)
		}
	}
}

func TestOutputExitAndTimeLimit(t *testing.T) {
	t.Parallel() // it waits for a minute to be over
	c := start(t, "KillWait=2")
	id := c.must("sbatch", "--parsable", "-o", "out-%j.txt", "--wrap", "echo $SLURM_JOB_ID on $SLURM_JOB_NODELIST; echo err >&2")
	c.until("COMPLETED", "sacct", "-n", "-X", "-P", "-j", id, "-o", "State")
	data, err := os.ReadFile(filepath.Join(c.dir, "out-"+id+".txt"))
	if err != nil || !strings.HasPrefix(string(data), id+" on node") || !strings.Contains(string(data), "err\n") {
		t.Errorf("output %q, %v", data, err)
	}
	id = c.must("sbatch", "--parsable", "-t", "1", "--wrap", "sleep 300") // limits are whole minutes, as Slurm's
	c.until("TIMEOUT", "sacct", "-n", "-X", "-P", "-j", id, "-o", "State")
	data, _ = os.ReadFile(filepath.Join(c.dir, "slurm-"+id+".out"))
	if !strings.Contains(string(data), "DUE TO TIME LIMIT") {
		t.Errorf("the job's output does not say why it ended: %q", data)
	}
	id = c.must("sbatch", "--parsable", "--wrap", "sleep 60")
	c.until("R", "squeue", "-h", "-j", id, "-o", "%t")
	c.must("scancel", id)
	c.until(fmt.Sprintf("CANCELLED by %d", os.Getuid()), "sacct", "-n", "-X", "-P", "-j", id, "-o", "State")
}

func TestABusyPortNamesItsOwner(t *testing.T) {
	need(t)
	c := &cluster{t: t, dir: shortDir(t), port: freePorts(t)}
	c.must("init", "--dir", c.dir, "--nodes", "1", "--port", strconv.Itoa(c.port))
	var cfg net.ListenConfig
	l, err := cfg.Listen(t.Context(), "tcp", ":"+strconv.Itoa(c.port))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, errs, code := c.run("up", "--dir", c.dir)
	if want := fmt.Sprintf("is in use by process %d", os.Getpid()); code != 1 || !strings.Contains(errs, want) || !strings.Contains(errs, "listen.grpc") {
		c.run("down", "--dir", c.dir)
		t.Errorf("muster up with a busy port: exit %d, %q; expected the key and %q", code, errs, want)
	}
}
