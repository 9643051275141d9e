package runtime_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/spec"
)

// image makes a file tree that has the node's programs by mounts, and files of
// its own.
func (l *lab) image() *plan.Container {
	l.t.Helper()
	root := filepath.Join(l.dir, "image")
	for _, d := range []string{"etc", "work", "opt"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			l.t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"etc/os-release": "ID=inside\n", "etc/passwd": "root:x:0:0::/root:/bin/sh\n"} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			l.t.Fatal(err)
		}
	}
	for _, link := range []string{"bin", "lib", "lib64"} {
		if err := os.Symlink("usr/"+link, filepath.Join(root, link)); err != nil && !os.IsExist(err) {
			l.t.Fatal(err)
		}
	}
	return &plan.Container{Image: root, Root: root, Own: true, WorkDir: "/work", Mounts: []spec.ContainerMount{{Source: "/usr", Target: "/usr", ReadOnly: true}},
		Passwd: "nobody:x:65534:65534::/:/bin/sh", Group: "nogroup:x:65534:"}
}

// TestContainer: script and tasks see the image's files and not the node's, as
// their user, in its control group, with the job's private folders and the
// devices; what they write is gone.
func TestContainer(t *testing.T) {
	l := newSpacedLab(t)
	data := filepath.Join(l.dir, "data")
	if err := mkdirMode(data, 0o777); err != nil {
		t.Fatal(err)
	}
	sp := l.spaced(l.job("pwd; cat /etc/os-release; id -un; test -e " + l.work + " || echo apart; ls /dev/null /proc/self/status; echo x > /tmp/mine; echo y > /data/out; " +
		"grep NoNewPrivs /proc/self/status; touch /opt/f 2>/dev/null || echo closed; echo $0"))
	sp.Container = l.image()
	sp.Container.Mounts = append(sp.Container.Mounts, spec.ContainerMount{Source: data, Target: "/data"})
	x, out := l.run(sp)
	want := "/work\nID=inside\nnobody\napart\n/dev/null\n/proc/self/status\nNoNewPrivs:\t1\nclosed\n"
	if x.Code != 0 || !strings.HasPrefix(out, want) {
		t.Errorf("%+v\n%s\nwant\n%s", x, out, want)
	}
	if got, _ := os.ReadFile(filepath.Join(data, "out")); string(got) != "y\n" {
		t.Errorf("a mounted folder: %q", got)
	}
	step := l.stepOf(sp, 0, "cat /etc/os-release /tmp/mine; pwd; exit 3")
	step.Container = l.image()
	step.Tasks.WorkDir = "/work"
	l.launch(step)
	v := newViewer(t).attach(l, step.Key)
	if got := v.all("0.1"); got != "ID=inside\nx\n/work\n" {
		t.Errorf("a step sees %q, %v", got, v.notices)
	}
	if x := l.exit(step.Key); x.Code != 3 {
		t.Errorf("%+v", x)
	}
	beside := l.stepOf(sp, 1, "cat /tmp/mine; test -e "+l.work+" && echo the node")
	if got := l.said(beside); got != "x\nthe node\n" {
		t.Errorf("a step without a container sees %q", got)
	}
	l.vacate(sp.Key)
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), l.dir) {
		t.Errorf("left (%v):\n%s", err, mounts)
	}
}

// TestSiteProgramsInContainers: TaskProlog and TaskEpilog of the node run in a
// container too, for a script and for tasks; where the image has no interpreter
// for them the job runs without, and its user is told.
func TestSiteProgramsInContainers(t *testing.T) {
	l := newSpacedLab(t)
	program := func(name, text string) string {
		path := filepath.Join(l.work, name)
		if err := os.WriteFile(path, []byte(text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	data := filepath.Join(l.dir, "data")
	if err := mkdirMode(data, 0o777); err != nil {
		t.Fatal(err)
	}
	prolog := program("prolog", "#!/bin/sh\necho export BY_SITE=yes; . /etc/os-release; echo print in $ID")
	epilog := program("epilog", "#!/bin/sh\necho after $BY_TASK >> /data/epilogs")
	foreign := program("foreign", "#!/not/in/this/image\n")
	contained := func(programs ...string) *plan.Container {
		box := l.image()
		box.Programs = programs
		box.Mounts = append(box.Mounts, spec.ContainerMount{Source: data, Target: "/data"})
		return box
	}

	for path, want := range map[string]string{
		prolog:  "in inside\nsite yes\n",
		foreign: "TaskProlog " + foreign + " is left out: it or its interpreter is not in the image\nsite\n",
	} {
		script := l.job("echo site $BY_SITE")
		script.Container = contained(path)
		script.TaskProlog = path
		if x, out := l.run(script); x.Code != 0 || !strings.HasSuffix(out, want) {
			t.Errorf("a script behind %s: %+v %q, not %q", path, x, out, want)
		}
	}

	job := l.job("sleep 1000")
	l.launch(l.spaced(job))
	l.begun(job.Key)
	step := l.stepOf(job, 0, "echo site $BY_SITE")
	step.Container = contained(prolog, epilog, foreign)
	step.Tasks.Contained = true
	step.Tasks.WorkDir = "/work"
	step.Tasks.Env = append(step.Tasks.Env, "BY_TASK=task")
	step.Tasks.Prologs = []string{prolog, foreign}
	step.Tasks.Epilogs = []string{epilog, foreign}
	l.launch(step)
	v := newViewer(t).attach(l, step.Key)
	if got := v.all("0.1"); got != "in inside\nsite yes\n" {
		t.Errorf("a task writes %q (%q)", got, v.notices)
	}
	if got, want := v.all("0.2"), "TaskProlog "+foreign+" is left out"; !strings.Contains(got, want) {
		t.Errorf("a task's errors are %q, without %q", got, want)
	}
	if x := l.exit(step.Key); x.Code != 0 {
		t.Errorf("%+v", x)
	}
	if got, err := os.ReadFile(filepath.Join(data, "epilogs")); string(got) != "after task\n" {
		t.Errorf("the epilog wrote %q (%v)", got, err)
	}
	if text := strings.Join(v.notices, " "); !strings.Contains(text, "TaskEpilog "+foreign+" is left out") {
		t.Errorf("the user was told %q", text)
	}
	if err := l.client.Kill(context.Background(), job.Key, plan.ScopeRun); err != nil {
		t.Fatal(err)
	}
	l.exit(job.Key)
	l.vacate(job.Key)
}

// TestContainerIsKilled: with all that it has, and nothing is left of its files.
func TestContainerIsKilled(t *testing.T) {
	l := newSpacedLab(t)
	sp := l.job("setsid sleep 1000 & echo $$ > /tmp/muster-boxed; exec sleep 1000")
	sp.Container = l.image()
	l.launch(sp)
	o := l.begun(sp.Key)
	l.killShepherd()
	l.connect()
	if err := l.client.Kill(context.Background(), sp.Key, plan.ScopeRun); err != nil {
		t.Fatal(err)
	}
	l.exit(sp.Key)
	if left := alive(t, sp.Key); len(left) != 0 {
		t.Errorf("alive: %v", left)
	}
	if err := syscall.Kill(int(o.PID), 0); err == nil {
		t.Error("the first process lives")
	}
	_ = os.Remove("/tmp/muster-boxed")
}

// TestContainerGivesNoRights: set-user-ID programs of the image, of a mount and of
// the node do not make their user another; what the user may not reach is not
// mounted; links of the image lead nowhere outside.
func TestContainerGivesNoRights(t *testing.T) {
	l := newSpacedLab(t)
	box := l.image()
	id, err := exec.LookPath("id")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(id)
	if err != nil {
		t.Fatal(err)
	}
	tools := filepath.Join(l.dir, "tools")
	if err := os.Mkdir(tools, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(box.Root, "opt", "suid"), filepath.Join(tools, "suid")} {
		if err := os.WriteFile(path, program, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Chmod(path, 0o4755); err != nil {
			t.Fatal(err)
		}
	}
	sp := l.job("/opt/suid -u; /tools/suid -u")
	sp.Container = box
	box.Mounts = append(box.Mounts, spec.ContainerMount{Source: tools, Target: "/tools"})
	if x, out := l.run(sp); x.Code != 0 || out != "65534\n65534\n" {
		t.Errorf("%+v %q", x, out)
	}

	closed := filepath.Join(l.dir, "closed")
	if err := os.MkdirAll(filepath.Join(closed, "open"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(closed, "open"), 0o777); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*plan.Container){
		"a mount": func(c *plan.Container) {
			c.Mounts = append(c.Mounts, spec.ContainerMount{Source: closed + "/open", Target: "/x"})
		},
		"an image": func(c *plan.Container) { c.Root = closed + "/open" },
	} {
		sp := l.job("echo ran")
		sp.Container = l.image()
		change(sp.Container)
		if x, out := l.run(sp); x.Failure != plan.FailContainer || x.Failure.NodeFault() || out != "" || !strings.Contains(x.Message, "permission denied") {
			t.Errorf("%s that its user may not reach: %+v %q", what, x, out)
		}
	}

	outside := filepath.Join(l.dir, "outside")
	if err := os.Mkdir(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	linked := l.image()
	for _, name := range []string{"tmp", "data"} {
		if err := os.Symlink(outside, filepath.Join(linked.Root, name)); err != nil {
			t.Fatal(err)
		}
	}
	sp = l.job("echo ran")
	sp.Container = linked
	linked.Mounts = append(linked.Mounts, spec.ContainerMount{Source: tools, Target: "/data/below"})
	x, out := l.run(sp)
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 0 {
		t.Errorf("an image's link has led outside: %v, %v (%+v %q)", entries, err, x, out)
	}
}

// TestContainerReadOnly: nothing of the image can be written, and what is mounted can.
func TestContainerReadOnly(t *testing.T) {
	l := newSpacedLab(t)
	for _, readOnly := range []bool{false, true} {
		sp := l.job("touch /open/f && echo written; touch /tmp/muster-ro-$$ && rm /tmp/muster-ro-$$ && echo tmp")
		sp.Container = l.image()
		sp.Container.ReadOnly = readOnly
		if err := os.MkdirAll(filepath.Join(sp.Container.Root, "open"), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(sp.Container.Root, "open"), 0o777); err != nil {
			t.Fatal(err)
		}
		x, out := l.run(sp)
		if x.Code != 0 || strings.Contains(out, "written") == readOnly || !strings.HasSuffix(out, "tmp\n") {
			t.Errorf("read-only %v: %+v %q", readOnly, x, out)
		}
		if _, err := os.Stat(filepath.Join(sp.Container.Root, "open", "f")); err == nil {
			t.Error("the image itself was written")
		}
	}
}

// TestContainerIsLimited: what runs in a container is held to the run's memory.
func TestContainerIsLimited(t *testing.T) {
	l := newSpacedLab(t)
	if !l.client.Hello().Enforces.Memory {
		t.Skip("this machine's control groups do not limit memory")
	}
	sp := l.job("head -c 300M /dev/zero | tail -c 250M > /dev/null; exit $?")
	sp.Container = l.image()
	sp.Limits = plan.Limits{MemoryBytes: 64 << 20, SwapBytes: plan.NoSwap}
	if x, out := l.run(sp); !x.OOM {
		t.Errorf("%+v %q", x, out)
	}
}
