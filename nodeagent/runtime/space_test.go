package runtime_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/spec"
)

// newSpacedLab is a node whose own folders are outside of those that jobs have
// for themselves.
func newSpacedLab(t *testing.T, args ...string) *lab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, for mounts")
	}
	t.Setenv("TMPDIR", "/var/tmp")
	return newLab(t, args...)
}

func (l *lab) base() string { return filepath.Join(l.dir, "private") }

// spaced gives a run folders of its attempt alone.
func (l *lab) spaced(sp plan.RunSpec) plan.RunSpec {
	sp.Space = &plan.Space{Base: l.base(), Auto: true, Dirs: []string{"/tmp", "/dev/shm"}}
	return sp
}

// stepOf makes a step of the attempt of a run.
func (l *lab) stepOf(of plan.RunSpec, number int32, command string) plan.RunSpec {
	sp := l.step(1, command)
	sp.Key, sp.JobID = of.Key.StepOf(number), of.JobID
	return l.spaced(sp)
}

// vacate removes the folders of an attempt and fails if anything is left.
func (l *lab) vacate(k plan.RunKey) {
	l.t.Helper()
	if err := l.client.Vacate(context.Background(), k); err != nil {
		l.t.Fatal(err)
	}
	if left := l.leftOf(k); left != "" {
		l.t.Errorf("left of %s:\n%s", k, left)
	}
}

// leftOf lists files and mounts of an attempt's folders.
func (l *lab) leftOf(k plan.RunKey) string {
	l.t.Helper()
	var out []string
	entries, _ := os.ReadDir(l.base())
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), "-"+k.String()) {
			out = append(out, e.Name())
		}
	}
	if _, err := os.Lstat(filepath.Join(l.cfg.Dir, "spaces", k.String())); err == nil {
		out = append(out, "its link")
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		l.t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, l.base()) && strings.Contains(line, "-"+k.String()) {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return strings.Join(out, "\n")
}

// said is all that a step's one task printed.
func (l *lab) said(sp plan.RunSpec) string {
	l.t.Helper()
	l.launch(sp)
	v := newViewer(l.t).attach(l, sp.Key)
	out := v.all("0.1")
	x := l.exit(sp.Key)
	if x.Code != 0 || x.Failure != plan.None {
		l.t.Fatalf("the step failed: %+v\n%s", x, out)
	}
	return out
}

// Batch script, steps, a terminal and a broadcast file of one job are in the same
// private folders, other jobs in others, and the node sees nothing of it.
func TestSpaceIsOfTheJobAlone(t *testing.T) {
	l := newSpacedLab(t)
	mark := fmt.Sprintf("muster-space-%d", os.Getpid())
	gate := l.fifo("gate")
	batch := l.spaced(l.job("umask 077; echo mine > /tmp/" + mark + "; echo shared > /dev/shm/" + mark + "; ls /tmp /dev/shm; read x < " + gate +
		"; cat /tmp/step /tmp/cast; test ! -e /tmp/other && echo apart"))
	l.launch(batch)
	if got := l.said(l.stepOf(batch, 0, "cat /tmp/"+mark+" /dev/shm/"+mark+"; echo from the step > /tmp/step; stat -c %a /tmp /dev/shm")); got != "mine\nshared\n1777\n1777\n" {
		t.Errorf("a step sees %q", got)
	}
	pty := l.stepOf(batch, 1, "cat /tmp/"+mark)
	pty.Tasks.Terminal = &plan.Window{Rows: 20, Columns: 70}
	if got := l.said(pty); got != "mine\r\n" {
		t.Errorf("a step with a terminal sees %q", got)
	}
	cast := l.stepOf(batch, 2, "")
	data := []byte("from sbcast\n")
	cast.Tasks.Argv, cast.Tasks.Cast = []string{"sbcast"}, &spec.Cast{Path: "/tmp/cast", Mode: 0o600, Size: int64(len(data))}
	l.launch(cast)
	sum := sha256.Sum256(data)
	v := newViewer(t).attach(l, cast.Key)
	if err := v.step.Input(context.Background(), spec.InputAll, 0, append(data, sum[:]...)); err != nil {
		t.Fatal(err)
	}
	if x := l.exit(cast.Key); x.Code != 0 {
		t.Errorf("sbcast: %+v", x)
	}
	other := l.spaced(l.job("ls -A /tmp /dev/shm; touch /tmp/other"))
	if x, out := l.run(other); x.Code != 0 || out != "/dev/shm:\n\n/tmp:\n" {
		t.Errorf("another job sees %q (%+v)", out, x)
	}
	for _, dir := range []string{"/tmp", "/dev/shm"} {
		if _, err := os.Stat(filepath.Join(dir, mark)); err == nil {
			t.Errorf("the node sees the job's file in %s", dir)
		}
	}
	if err := l.client.Vacate(context.Background(), batch.Key); err == nil {
		t.Error("the folders of a living job were removed")
	}
	writeGate(t, gate, "go\n")
	x := l.exit(batch.Key)
	out, _ := os.ReadFile(filepath.Join(l.work, batch.Stdout))
	if !strings.Contains(string(out), "from the step\nfrom sbcast\n") || !strings.Contains(string(out), "apart\n") {
		t.Errorf("the batch script: %+v\n%s", x, out)
	}
	l.vacate(batch.Key)
	l.vacate(other.Key)
}

// writeGate lets a job that reads a line go on.
func writeGate(t *testing.T, path, line string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := f.WriteString(line); err != nil {
		t.Fatal(err)
	}
}

// What the job leaves in its folders is there for its next step after the
// shepherd was killed, and all of it goes with the attempt: also what the last
// shepherd had only begun to make.
func TestSpaceOutlivesTheShepherd(t *testing.T) {
	l := newSpacedLab(t)
	gate := l.fifo("gate")
	batch := l.spaced(l.job("echo before > /tmp/f; sleep 1000 & read x < " + gate + "; cat /tmp/g"))
	batch.TaskEpilog = "/bin/false"
	l.launch(batch)
	l.begun(batch.Key)
	if got := l.said(l.stepOf(batch, 0, "while ! test -s /tmp/f; do sleep 0.01; done; cat /tmp/f")); got != "before\n" {
		t.Fatalf("a step sees %q", got)
	}
	l.killShepherd()
	l.connect()
	if got := l.said(l.stepOf(batch, 1, "cat /tmp/f; echo after > /tmp/g")); got != "before\n" {
		t.Errorf("a step of the next shepherd sees %q", got)
	}
	keys, err := l.client.Spaces(context.Background(), l.base())
	if err != nil || len(keys) != 1 || keys[0] != batch.Key {
		t.Errorf("spaces: %v, %v", keys, err)
	}
	writeGate(t, gate, "go\n")
	l.exit(batch.Key)
	if out, _ := os.ReadFile(filepath.Join(l.work, batch.Stdout)); !strings.Contains(string(out), "after\n") {
		t.Errorf("the script: %s", out)
	}
	l.vacate(batch.Key)

	// A folder without its link, as after a loss of power, and a link whose folder
	// was never made.
	torn := batch.Key
	torn.Attempt = 7
	entries, err := os.ReadDir(l.base())
	if err != nil || len(entries) != 0 {
		t.Fatalf("left: %v, %v", entries, err)
	}
	again := l.spaced(l.job("true"))
	l.run(again)
	if entries, err = os.ReadDir(l.base()); err != nil || len(entries) != 1 {
		t.Fatalf("spaces: %v, %v", entries, err)
	}
	name := strings.TrimSuffix(entries[0].Name(), again.Key.String()) + torn.String()
	if err := os.MkdirAll(filepath.Join(l.base(), name, "0", "deep"), 0o700); err != nil {
		t.Fatal(err)
	}
	unmade := torn
	unmade.Attempt = 8
	if err := os.Symlink(filepath.Join(l.base(), "nowhere"), filepath.Join(l.cfg.Dir, "spaces", unmade.String())); err != nil {
		t.Fatal(err)
	}
	if keys, err = l.client.Spaces(context.Background(), l.base()); err != nil || len(keys) != 3 {
		t.Errorf("spaces: %v, %v", keys, err)
	}
	for _, k := range keys {
		l.vacate(k)
	}
}

// A kill -9 of everything that the job has leaves nothing that Vacate does not
// remove.
func TestSpaceOfAKilledJob(t *testing.T) {
	for _, mode := range []string{"", "none"} {
		t.Run("mode="+mode, func(t *testing.T) {
			l := newSpacedLab(t, "--cgroup-mode", mode)
			sp := l.spaced(l.job("cd /tmp; mkdir d; setsid sh -c 'cd d; exec sleep 1000' & chmod 0 d; exec sleep 1000"))
			l.launch(sp)
			end(t, int(l.begun(sp.Key).PID), syscall.SIGKILL)
			if x := l.exit(sp.Key); x.Signal != 9 {
				t.Errorf("%+v", x)
			}
			l.vacate(sp.Key)
		})
	}
}

// InitScript runs as root on the node before the folders are mounted; where it
// fails, the job does not run and the node is at fault.
func TestSpaceInitScript(t *testing.T) {
	l := newSpacedLab(t)
	script := filepath.Join(l.dir, "init.sh")
	text := "#!/bin/sh\necho $SLURM_JOB_ID $(/usr/bin/id -u) > " + l.work + "/said; /bin/mkdir $SLURM_JOB_MOUNT_SRC/extra; exit $CODE\n"
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	sp := l.spaced(l.job("echo ran"))
	sp.Space.Init, sp.Space.InitEnv = script, []string{"SLURM_JOB_ID=42", "CODE=0"}
	if x, out := l.run(sp); x.Code != 0 || out != "ran\n" {
		t.Errorf("%+v %q", x, out)
	}
	if got, _ := os.ReadFile(filepath.Join(l.work, "said")); string(got) != "42 0\n" {
		t.Errorf("InitScript said %q", got)
	}
	l.vacate(sp.Key)
	bad := l.spaced(l.job("echo ran"))
	bad.Space.Init, bad.Space.InitEnv = script, []string{"CODE=3"}
	x, out := l.run(bad)
	if x.Failure != plan.FailSpace || !x.Failure.NodeFault() || out != "" || !strings.Contains(x.Message, "exit code 3") {
		t.Errorf("%+v %q", x, out)
	}
	if left := l.leftOf(bad.Key); left != "" {
		t.Errorf("left of a space that was not made:\n%s", left)
	}
}

// A BasePath that cannot be one, and one that would let users put their own in
// the place of a job's folders.
func TestSpaceRefusesABadBase(t *testing.T) {
	l := newSpacedLab(t)
	for _, c := range []struct {
		name string
		prep func(dir string) error
		said string
	}{
		{"missing", func(string) error { return nil }, "create it, or set AutoBasePath=true"},
		{"open", func(dir string) error { return mkdirMode(dir, 0o777) }, "can be written by others"},
		{"file", func(dir string) error { return os.WriteFile(dir, nil, 0o600) }, "not a folder"},
	} {
		sp := l.spaced(l.job("echo ran"))
		sp.Space.Auto, sp.Space.Base = false, filepath.Join(l.dir, c.name)
		if err := c.prep(sp.Space.Base); err != nil {
			t.Fatal(err)
		}
		if x, out := l.run(sp); x.Failure != plan.FailSpace || out != "" || !strings.Contains(x.Message, c.said) {
			t.Errorf("%s: %+v %q", c.name, x, out)
		}
	}
	hidden := l.spaced(l.job("echo ran"))
	hidden.Space.Dirs = []string{l.dir}
	if x, _ := l.run(hidden); x.Failure != plan.FailSpace || !strings.Contains(x.Message, "which is private to each job") {
		t.Errorf("the agent's own folder was covered: %+v", x)
	}
}

func mkdirMode(dir string, mode os.FileMode) error {
	if err := os.Mkdir(dir, mode); err != nil {
		return err
	}
	return os.Chmod(dir, mode)
}

// The work directory is the job's own where it lies in a private folder, and
// output goes to the node's: it is to be read when the job is over.
func TestSpaceFilesAndWorkDirectory(t *testing.T) {
	l := newSpacedLab(t)
	outside, err := os.MkdirTemp("/tmp", "space-out")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(outside) }()
	if err := os.Chmod(outside, 0o777); err != nil {
		t.Fatal(err)
	}
	sp := l.spaced(l.job("pwd; ls -A ."))
	sp.WorkDir, sp.Stdout = outside, filepath.Join(outside, "job.out")
	x := func() plan.Exit { l.launch(sp); return l.exit(sp.Key) }()
	out, _ := os.ReadFile(sp.Stdout)
	if x.Code != 0 || !strings.Contains(string(out), "cannot enter work directory "+outside) || !strings.HasSuffix(string(out), "running in /tmp\n/tmp\n") {
		t.Errorf("%+v\n%s", x, out)
	}
	through := l.spaced(l.job("ls " + outside))
	through.Space.Through = []string{outside, "/tmp/not-there"}
	if x, out := l.run(through); x.Code != 0 || out != "job.out\n" {
		t.Errorf("what is to be seen in spite of the private folder: %+v %q", x, out)
	}
	l.vacate(sp.Key)
	l.vacate(through.Key)
	if _, err := os.Stat(sp.Stdout); err != nil {
		t.Errorf("with the space went what was only shown in it: %v", err)
	}
}
