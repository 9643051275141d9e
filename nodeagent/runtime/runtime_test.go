package runtime_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/runtime"
	"github.com/musterhpc/muster/spec"
	"golang.org/x/sys/unix"
)

func TestExitCodesAndSignals(t *testing.T) {
	l := newLab(t)
	for _, c := range []struct {
		script string
		code   int32
		signal int32
	}{
		{"exit 0", 0, 0}, {"exit 1", 1, 0}, {"exit 7", 7, 0}, {"exit 127", 127, 0}, {"exit 255", 255, 0}, {"exit 300", 44, 0},
		{"kill -TERM $$", 0, 15}, {"kill -SEGV $$", 0, 11}, {"kill -KILL $$", 0, 9}, {"kill -ABRT $$", 0, 6}, {"kill -INT $$", 0, 2},
	} {
		x, out := l.run(l.job(c.script))
		if x.Code != c.code || x.Signal != c.signal || x.Failure != plan.None || !x.Started {
			t.Errorf("%s: %+v\n%s", c.script, x, out)
		}
		if x.Start == 0 || x.End < x.Start || x.Elapsed <= 0 || x.Usage.PeakRSS == 0 {
			t.Errorf("%s: times or usage missing: %+v", c.script, x)
		}
	}
}

func TestTheScriptSeesWhatSlurmGives(t *testing.T) {
	l := newLab(t)
	sp := l.job(`echo "$0"; pwd; umask; id -u; id -g; id -G; echo "$SLURM_JOB_ID ${MUSTER_RUN%/*}"; test "$SLURM_TASK_PID" = $$ && echo pid; ls -ld "$0" | cut -c1-10; nice; ulimit -n; echo "$1-$2"; readlink /proc/$$/fd/0`)
	sp.Argv = []string{"a b", "c"}
	sp.Umask = 0o027
	sp.Nice = 3
	sp.Rlimits = []plan.Rlimit{{Resource: unix.RLIMIT_NOFILE, Soft: 77, Hard: plan.RlimitKeep}}
	want := []string{filepath.Join(l.cfg.Dir, "r1/spool", fmt.Sprintf("job%05d", sp.JobID), "slurm_script"), l.work, "0027",
		"65534", "65534", "65534 4 5", fmt.Sprintf("%d %s", sp.JobID, sp.Key), "pid", "-r-x------", "3", "77", "a b-c", "/dev/null"}
	if os.Geteuid() == 0 {
		sp.Groups = []uint32{4, 5}
	} else {
		want[3], want[4], want[5] = fmt.Sprint(os.Geteuid()), fmt.Sprint(os.Getegid()), ""
	}
	x, out := l.run(sp)
	got := strings.Split(strings.TrimSpace(out), "\n")
	for i, w := range want {
		if w != "" && (i >= len(got) || got[i] != w) {
			t.Errorf("line %d is not %q:\n%s", i, w, out)
		}
	}
	if x.Code != 0 {
		t.Errorf("%+v", x)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(l.work, sp.Stdout), &st); err != nil || st.Mode&0o777 != 0o640 || st.Uid != sp.UID {
		t.Errorf("output file %o of %d, %v", st.Mode&0o777, st.Uid, err)
	}
	if _, err := os.Stat(filepath.Dir(want[0])); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the spool folder is left behind: %v", err)
	}
}

// The file of a script serves the next one of the same user, and of nobody
// else, unless its owner did anything to it.
func TestAScriptsFileServesTheSameUserAgain(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: only root may write to a file of another")
	}
	l := newLab(t)
	file := func(uid uint32, script string) string { // and when it was made: numbers are used again
		t.Helper()
		sp := l.job(script + "\nstat -c '%i %w %u-%a-%h' \"$0\"; echo end")
		sp.UID, sp.GID = uid, uid
		_, out := l.run(sp)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		want := fmt.Sprintf(" %d-500-1", uid)
		if len(lines) != 2 || lines[1] != "end" || !strings.HasSuffix(lines[0], want) {
			t.Fatalf("%q, want %s in the first of two lines", out, want)
		}
		if strings.Contains(lines[0], " - ") {
			t.Skip("this filesystem does not tell when a file was made")
		}
		return lines[0]
	}
	const user, other = 65534, 65533
	first := file(user, "# a longer script than the next\n"+strings.Repeat("# filling\n", 1000))
	if again := file(user, ":"); again != first {
		t.Errorf("the next script of the user is %s, not %s", again, first)
	}
	if next := file(other, ":"); next == first {
		t.Errorf("the script of another user is the file %s of the first", next)
	}
	kept := filepath.Join(l.work, "kept")
	for _, meddle := range []string{"chmod 777 \"$0\"; ls -l \"$0\" >/dev/null; chmod 500 \"$0\"", "ln \"$0\" " + kept + "; rm " + kept, "touch \"$0\""} {
		was := file(user, meddle)
		if next := file(user, ":"); next == was {
			t.Errorf("after %s the file %s serves again", meddle, next)
		}
	}
	sp := l.job("ln \"$0\" " + kept)
	sp.UID, sp.GID = user, user
	l.run(sp)
	file(user, "# not for the link")
	if b, err := os.ReadFile(kept); err != nil || strings.Contains(string(b), "not for the link") {
		t.Errorf("the link of a script that is over shows the next one, or %v:\n%s", err, b)
	}
}

func TestCommandsAreSearchedInTheirPath(t *testing.T) {
	l := newLab(t)
	sp := l.job("")
	sp.Script, sp.Argv = nil, []string{"sh", "-c", "echo ran; exit 3"}
	sp.Key.Step = 0
	if x, out := l.run(sp); x.Code != 3 || out != "ran\n" {
		t.Errorf("%+v %q", x, out)
	}
	sp = l.job("")
	sp.Script, sp.Argv = nil, []string{"no-such-command"}
	if x, out := l.run(sp); x.Code != int32(unix.ENOENT) || x.Failure != plan.FailExec || !strings.Contains(out, "cannot execute no-such-command: No such file") {
		t.Errorf("%+v %q", x, out)
	}
}

func TestOutputModes(t *testing.T) {
	l := newLab(t)
	first := l.job("echo one; echo err >&2")
	l.run(first)
	second := l.job("echo two")
	second.Stdout, second.Append = first.Stdout, true
	if _, out := l.run(second); out != "one\nerr\ntwo\n" {
		t.Errorf("appended: %q", out)
	}
	third := l.job("echo three")
	third.Stdout = first.Stdout
	if _, out := l.run(third); out != "three\n" {
		t.Errorf("truncated: %q", out)
	}
	split := l.job("cat; echo err >&2")
	split.Stderr, split.Stdin = "split.err", "split.in"
	if err := os.WriteFile(filepath.Join(l.work, "split.in"), []byte("from stdin\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, out := l.run(split)
	errText, err := os.ReadFile(filepath.Join(l.work, "split.err"))
	if out != "from stdin\n" || string(errText) != "err\n" || err != nil {
		t.Errorf("split: %q %q %v", out, errText, err)
	}
}

func TestFilesThatCannotBeOpenedFailTheJobAsInSlurm(t *testing.T) {
	l := newLab(t)
	out := l.job("echo never")
	out.Stdout = "no/such/folder/out"
	in := l.job("echo never")
	in.Stdin = "no-such-input"
	fifo := l.job("echo never")
	fifo.Stdout = l.fifo("nobody-reads")
	for _, c := range []struct {
		sp   plan.RunSpec
		fail plan.Failure
	}{{out, plan.FailOutput}, {in, plan.FailInput}, {fifo, plan.FailOutput}} {
		x, _ := l.run(c.sp)
		if x.Failure != c.fail || x.Code != 0 || x.Signal != plan.IOErrorSignal || x.Message == "" || x.Started || x.Failure.NodeFault() {
			t.Errorf("%+v", x)
		}
	}
	if os.Geteuid() == 0 {
		forbidden := l.job("echo never")
		forbidden.Stdout = "/etc/muster-test-must-not-exist"
		if x, _ := l.run(forbidden); x.Failure != plan.FailOutput || !strings.Contains(x.Message, "Permission denied") {
			t.Errorf("the file was opened with root's rights: %+v", x)
		}
	}
}

// Clients make the folder of a job's output just after they have submitted it.
func TestOutputWhoseFolderAppearsLate(t *testing.T) {
	l := newLab(t)
	sp := l.job("echo written")
	sp.Stdout = "late/out"
	early, late := filepath.Join(l.work, "early"), filepath.Join(l.work, "late")
	if err := os.Mkdir(early, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(early, 0o777); err != nil { // the job's user is another
		t.Fatal(err)
	}
	l.launch(sp)
	time.AfterFunc(300*time.Millisecond, func() {
		if err := os.Rename(early, late); err != nil {
			t.Error(err)
		}
	})
	x := l.exit(sp.Key)
	out, err := os.ReadFile(filepath.Join(l.work, sp.Stdout))
	if x.Failure != plan.None || x.Code != 0 || err != nil || string(out) != "written\n" {
		t.Errorf("%+v %q %v", x, out, err)
	}
}

// A job's end reaches its processes by several ways, and its steps by one more; they
// get one SIGTERM all the same.
func TestTerminateSendsItsSignalOnce(t *testing.T) {
	l := newLab(t)
	gate := l.fifo("gate")
	sp := l.job("n=0; trap 'n=$((n+1)); echo term $n' TERM; trap 'exit 0' USR1; echo up > " + gate + "; while :; do sleep 0.05; done")
	l.launch(sp)
	waitGate(t, gate)
	for range 3 {
		if err := l.client.Terminate(context.Background(), plan.Terminate{Key: sp.Key, Scope: plan.ScopeJob, Grace: spec.Hour}); err != nil {
			t.Fatal(err)
		}
		//muster:sleep the script counts signals that come apart
		time.Sleep(200 * time.Millisecond)
	}
	if err := l.client.Signal(context.Background(), sp.Key, 10, plan.ScopeRun); err != nil {
		t.Fatal(err)
	}
	l.exit(sp.Key)
	if out, err := os.ReadFile(filepath.Join(l.work, sp.Stdout)); err != nil || strings.Count(string(out), "term") != 1 {
		t.Errorf("%q %v", out, err)
	}
}

func TestMissingWorkDirectoryRunsInTmpAndSaysSo(t *testing.T) {
	l := newLab(t)
	sp := l.job("pwd")
	sp.WorkDir = filepath.Join(l.work, "missing")
	sp.Stdout = filepath.Join(l.work, "missing.out")
	l.launch(sp)
	x := l.exit(sp.Key)
	b, err := os.ReadFile(sp.Stdout)
	want := "slurmstepd-n1: error: cannot enter work directory " + sp.WorkDir + ": No such file or directory; running in /tmp\n/tmp\n"
	if x.Code != 0 || err != nil || string(b) != want {
		t.Errorf("%+v %v %q", x, err, b)
	}
}

func TestScriptsThatCannotBeExecuted(t *testing.T) {
	l := newLab(t)
	bad := l.job("")
	bad.Script = []byte("#!/nonexist/interp\n")
	if x, out := l.run(bad); x.Code != 2 || x.Failure != plan.FailExec ||
		out != "slurmstepd-n1: error: cannot execute the script: bad interpreter (/nonexist/interp): No such file or directory\n" {
		t.Errorf("%+v %q", x, out)
	}
	none := l.job("")
	none.Script = []byte("no shebang\n")
	if x, out := l.run(none); x.Code != int32(unix.ENOEXEC) || !strings.Contains(out, "Exec format error") {
		t.Errorf("%+v %q", x, out)
	}
}

// What a user puts into variables and scripts need not be UTF-8. It reaches the
// job as it is, and stops neither the agent's connection nor the next shepherd.
func TestBytesThatAreNoText(t *testing.T) {
	l := newLab(t)
	sp := l.job(`echo "$PLACE"`)
	sp.Env = append(sp.Env, "PLACE=caf\xe9")
	if x, out := l.run(sp); x.Code != 0 || out != "caf\xe9\n" {
		t.Errorf("%+v %q", x, out)
	}
	step := l.step(1, `echo "$PLACE"`)
	step.Tasks.Env = append(step.Tasks.Env, "PLACE=caf\xe9")
	l.launch(step)
	if out := newViewer(t).attach(l, step.Key).all("0.1"); out != "caf\xe9\n" {
		t.Errorf("%q", out)
	}
	bad := l.job("")
	bad.Script = []byte("#!/nonexist/caf\xe9\n")
	if x, out := l.run(bad); x.Failure != plan.FailExec || !strings.Contains(out, "caf\xe9") {
		t.Errorf("%+v %q", x, out)
	}
	l.killShepherd()
	l.mu.Lock()
	delete(l.exits, bad.Key)
	l.mu.Unlock()
	l.connect()
	if x := l.exit(bad.Key); x.Failure != plan.FailExec || !strings.Contains(x.Message, "caf\xe9") {
		t.Errorf("after a restart: %+v", x)
	}
}

// A soft limit above the node's hard one is cut to it; one that the user named stays
// the node's, and the user is told.
func TestLimitsAboveTheNodes(t *testing.T) {
	l := newLab(t)
	sp := l.job("ulimit -Hn; ulimit -Sn")
	sp.Rlimits = []plan.Rlimit{{Resource: unix.RLIMIT_NOFILE, Soft: 5000, Hard: 100}}
	if _, out := l.run(sp); out != "100\n100\n" {
		t.Errorf("%q", out)
	}
	sp = l.job("ulimit -Sn; ulimit -Hn")
	sp.Rlimits = []plan.Rlimit{{Resource: unix.RLIMIT_NOFILE, Soft: 1 << 40, Hard: plan.RlimitKeep, Asked: true}}
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &own); err != nil {
		t.Fatal(err)
	}
	_, out := l.run(sp)
	told := fmt.Sprintf("Can't propagate RLIMIT_NOFILE of %d from submit host: Invalid argument\n", 1<<40)
	if !strings.Contains(out, told) || !strings.HasSuffix(out, fmt.Sprintf("\n%d\n", own.Max)) {
		t.Errorf("%q, want %q and %d", out, told, own.Max)
	}
}

// The login files run in the job and hang with it; another's job does not wait.
func TestLoginEnvironment(t *testing.T) {
	l := newLab(t)
	home := l.work // its user can enter it
	if err := os.WriteFile(filepath.Join(home, ".profile"), []byte("export FROM=profile BOTH=profile PATH=/site\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	sp := l.job(`echo "$FROM $BOTH $PATH"`)
	sp.Env = []string{"BOTH=job"}
	sp.Login = &plan.Login{User: "alice", Home: home, Timeout: spec.Minute}
	if _, out := l.run(sp); out != "profile job /site\n" {
		t.Errorf("%q", out)
	}
	if err := os.Remove(filepath.Join(home, ".profile")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(home, ".profile"), 0o644); err != nil {
		t.Fatal(err)
	}
	slow := l.job(`echo "$FROM"`)
	slow.Login = &plan.Login{User: "alice", Home: home, Timeout: spec.Hour}
	if res, err := l.client.Launch(context.Background(), []plan.RunSpec{slow}); err != nil || res[0].Status != plan.Accepted {
		t.Fatalf("%+v %v", res, err)
	}
	l.begun(slow.Key)
	if _, out := l.run(l.job("echo quick")); out != "quick\n" {
		t.Errorf("another job: %q", out)
	}
	openGate(t, filepath.Join(home, ".profile"))
	l.exit(slow.Key)
}

func TestLaunchingTwiceStartsOnce(t *testing.T) {
	l := newLab(t)
	sp := l.job("echo x >> side-effect; read a < " + l.fifo("gate"))
	if res, err := l.client.Launch(context.Background(), []plan.RunSpec{sp, sp}); err != nil || res[0].Status != plan.Accepted || res[1].Status != plan.Known {
		t.Fatalf("%+v %v", res, err)
	}
	l.begun(sp.Key)
	if res, err := l.client.Launch(context.Background(), []plan.RunSpec{sp}); err != nil || res[0].Status != plan.Known {
		t.Fatalf("%+v %v", res, err)
	}
	openGate(t, filepath.Join(l.work, "gate"))
	l.exit(sp.Key)
	again := func() plan.LaunchStatus {
		res, err := l.client.Launch(context.Background(), []plan.RunSpec{sp})
		if err != nil {
			t.Fatal(err)
		}
		return res[0].Status
	}
	if st := again(); st != plan.Known {
		t.Errorf("after the exit: %v", st)
	}
	if err := l.client.Ack(context.Background(), []plan.RunKey{sp.Key}); err != nil {
		t.Fatal(err)
	}
	if st := again(); st != plan.Ended {
		t.Errorf("after the acknowledgement: %v", st)
	}
	l.killShepherd()
	l.connect()
	if st := again(); st != plan.Ended {
		t.Errorf("after the shepherd's death: %v", st)
	}
	if b, err := os.ReadFile(filepath.Join(l.work, "side-effect")); err != nil || string(b) != "x\n" {
		t.Errorf("side effect %q, %v", b, err)
	}
}

// openGate lets jobs that read from the pipe go on.
func openGate(t testing.TB, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = f.WriteString("go\n")
	_ = f.Close()
}

// killShepherd kills it as nothing can be prepared for.
func (l *lab) killShepherd() {
	l.t.Helper()
	end(l.t, int(l.client.Hello().PID), syscall.SIGKILL)
	<-l.client.Done()
	l.client.Close()
}

func TestTheWholeTreeIsKilled(t *testing.T) {
	for _, mode := range []string{"", "v1", "none"} {
		t.Run("mode="+mode, func(t *testing.T) {
			l := newLab(t, "--cgroup-mode", mode)
			t.Logf("control groups: %s", l.client.Hello().CgroupMode)
			gate := l.fifo("gate")
			// A background child, a daemon that left session and parent, and one
			// that ignores SIGTERM; the leader too.
			sp := l.job(`trap "" TERM; sleep 1000 & setsid sh -c 'trap "" TERM; (sleep 1001 & sleep 1002) & echo up > ` + gate + `' & wait; sleep 1003`)
			l.launch(sp)
			waitGate(t, gate)
			for len(alive(t, sp.Key)) < 4 { // the kernel shows no environment during an exec
			}
			if err := l.client.Terminate(context.Background(), plan.Terminate{Key: sp.Key, Scope: plan.ScopeRun, Grace: 100 * spec.Millisecond}); err != nil {
				t.Fatal(err)
			}
			x := l.exit(sp.Key)
			if x.Signal != int32(unix.SIGKILL) || x.Elapsed < 100*spec.Millisecond {
				t.Errorf("%+v", x)
			}
			if left := alive(t, sp.Key); len(left) > 0 {
				t.Errorf("left over: %v", left)
			}
		})
	}
}

func waitGate(t testing.TB, path string) {
	t.Helper()
	if _, err := os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
}

func TestDaemonsEndWithTheirJob(t *testing.T) {
	for _, mode := range []string{"", "v1", "none"} {
		t.Run("mode="+mode, func(t *testing.T) {
			l := newLab(t, "--cgroup-mode", mode)
			x, _ := l.run(l.job("setsid sh -c '(sleep 1000 &) ; (sleep 1000 &)'; exit 5"))
			if x.Code != 5 || x.Signal != 0 {
				t.Errorf("%+v", x)
			}
			if left := alive(t, x.Key); len(left) > 0 {
				t.Errorf("left over: %v", left)
			}
		})
	}
}

func TestTerminateGivesTimeAndWritesTheNoticeFirst(t *testing.T) {
	l := newLab(t)
	gate := l.fifo("gate")
	sp := l.job("trap 'echo got term; exit 0' TERM; echo up > " + gate + "; sleep 1000 & wait")
	l.launch(sp)
	waitGate(t, gate)
	notice := "*** JOB 1 ON n1 CANCELLED AT 2026-11-21T01:50:17 DUE TO TIME LIMIT ***"
	if err := l.client.Terminate(context.Background(), plan.Terminate{Key: sp.Key, Scope: plan.ScopeJob, Grace: spec.Hour, Notice: notice}); err != nil {
		t.Fatal(err)
	}
	x := l.exit(sp.Key)
	out, err := os.ReadFile(filepath.Join(l.work, sp.Stdout))
	if x.Code != 0 || err != nil || string(out) != "slurmstepd-n1: error: "+notice+"\ngot term\n" {
		t.Errorf("%+v %q %v", x, out, err)
	}
}

// A shell that is told to end ends at once. An srun that it started goes on until the
// step has ended, within the time that the script was given; other programs do not.
func TestStepClientOutlivesItsScript(t *testing.T) {
	for _, mode := range []string{"", "none"} {
		t.Run("mode="+mode, func(t *testing.T) {
			l := newLab(t, "--cgroup-mode", mode)
			gate, other := l.fifo("gate"), l.fifo("other")
			shell, err := os.ReadFile("/bin/sh")
			if err != nil {
				t.Fatal(err)
			}
			client := filepath.Join(l.work, "srun")
			if err := os.WriteFile(client, shell, 0o755); err != nil {
				t.Fatal(err)
			}
			late := client + ` -c 'trap "" TERM; echo up > ` + gate + `; sleep 0.5; echo late; exec sleep 1000'`
			sp := l.job(`sh -c 'trap "" TERM; echo up > ` + other + `; sleep 1000; echo wrong' & ` + late)
			l.launch(sp)
			waitGate(t, other)
			waitGate(t, gate)
			if err := l.client.Terminate(context.Background(), plan.Terminate{Key: sp.Key, Scope: plan.ScopeRun, Grace: spec.Hour}); err != nil {
				t.Fatal(err)
			}
			x := l.exit(sp.Key) // once the client has become another program
			out, err := os.ReadFile(filepath.Join(l.work, sp.Stdout))
			if x.Signal != int32(unix.SIGTERM) || err != nil || string(out) != "Terminated\nlate\n" && string(out) != "late\n" {
				t.Errorf("%+v %q %v", x, out, err)
			}
			if left := alive(t, sp.Key); len(left) > 0 {
				t.Errorf("left over: %v", left)
			}
		})
	}
}

func TestSignalScopes(t *testing.T) {
	l := newLab(t)
	gate := l.fifo("gate")
	trap := "trap 'echo usr1' USR1; trap 'exit 9' USR2; echo up > " + gate + "; while :; do sleep 1000 & wait; done"
	batch, step := l.job(trap), l.job("")
	step.Key = plan.Key(batch.Key.Job, 0, 0)
	step.Script, step.Argv = nil, []string{"sh", "-c", trap}
	l.launch(batch)
	waitGate(t, gate)
	l.launch(step)
	waitGate(t, gate)
	send := func(sig unix.Signal, scope plan.Scope) {
		t.Helper()
		if err := l.client.Signal(context.Background(), batch.Key, int32(sig), scope); err != nil {
			t.Fatal(err)
		}
	}
	send(unix.SIGUSR2, plan.ScopeSteps)
	if x := l.exit(step.Key); x.Code != 9 {
		t.Errorf("step: %+v", x)
	}
	runs, err := l.client.List(context.Background())
	if err != nil || len(runs) != 2 || runs[0].Key != batch.Key || runs[0].State != plan.Running {
		t.Fatalf("the batch script was hit too: %+v %v", runs, err)
	}
	send(unix.SIGUSR2, plan.ScopeLeader)
	if x := l.exit(batch.Key); x.Code != 9 {
		t.Errorf("batch: %+v", x)
	}
	err = l.client.Signal(context.Background(), plan.Key(1<<60, 0, 0), 15, plan.ScopeRun)
	if !errors.Is(err, runtime.ErrNotFound) {
		t.Errorf("an unknown run: %v", err)
	}
	if err := l.client.Signal(context.Background(), batch.Key, 99, plan.ScopeRun); err == nil {
		t.Error("signal 99 was taken")
	}
}

func TestFiveHundredAtOnce(t *testing.T) {
	l := newLab(t)
	gate := l.fifo("gate")
	var specs []plan.RunSpec
	for i := range 500 {
		// Opening the pipe for reading blocks until the gate opens.
		specs = append(specs, l.job(fmt.Sprintf("echo %d; exec 3< %s; exit %d", i, gate, i%200)))
	}
	l.launch(specs...)
	l.await(func() bool { return len(l.started) == 500 })
	u, err := l.client.Usage(context.Background())
	if err != nil || len(u) != 500 {
		t.Fatalf("%d usages, %v", len(u), err)
	}
	f, err := os.OpenFile(gate, os.O_RDWR, 0) // both ends: nobody blocks any more
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for i, sp := range specs {
		x := l.exit(sp.Key)
		out, err := os.ReadFile(filepath.Join(l.work, sp.Stdout))
		if int(x.Code) != i%200 || string(out) != fmt.Sprintf("%d\n", i) || err != nil {
			t.Fatalf("run %d: %+v %q %v", i, x, out, err)
		}
	}
}

func TestUsageWhileRunningAndAtTheEnd(t *testing.T) {
	for _, mode := range []string{"", "v1", "none"} {
		t.Run("mode="+mode, func(t *testing.T) {
			l := newLab(t, "--cgroup-mode", mode)
			gate, hold := l.fifo("gate"), l.fifo("hold")
			// The work is done by a child that nobody waits for.
			sp := l.job("(a=$(head -c 30000000 /dev/zero | tr '\\0' x); i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; echo up > " + gate + "; read x < " + hold + "; echo ${#a}) & wait")
			l.launch(sp)
			waitGate(t, gate)
			u, err := l.client.Usage(context.Background(), sp.Key)
			if err != nil || len(u) != 1 || u[0].RSS < 30_000_000 || u[0].UserCPU+u[0].SystemCPU < 10*spec.Millisecond || u[0].Procs < 2 {
				t.Fatalf("%+v %v", u, err)
			}
			openGate(t, hold)
			x := l.exit(sp.Key)
			if x.Usage.UserCPU+x.Usage.SystemCPU < u[0].UserCPU+u[0].SystemCPU-10*spec.Millisecond || x.Usage.PeakRSS < 30_000_000 {
				t.Errorf("at the end %+v, before %+v", x.Usage, u[0])
			}
		})
	}
}

func TestOutOfMemoryIsReported(t *testing.T) {
	l := newLab(t)
	if !l.client.Hello().Enforces.Memory {
		t.Skip("memory limits are not enforced on this machine")
	}
	sp := l.job("a=$(head -c 200000000 /dev/zero | tr '\\0' x); echo survived")
	sp.Limits = plan.Limits{MemoryBytes: 32 << 20, SwapBytes: plan.NoSwap}
	x, out := l.run(sp)
	if !x.OOM || x.Usage.OOMKills == 0 || !strings.Contains(out, "oom_kill") {
		t.Errorf("%+v %q", x, out)
	}
}

func TestAgentDiesAndHearsEveryExitUntilAcknowledged(t *testing.T) {
	l := newLab(t)
	gate := l.fifo("gate")
	var keys []plan.RunKey
	var specs []plan.RunSpec
	for range 20 {
		sp := l.job("exec 3< " + gate)
		specs, keys = append(specs, sp), append(keys, sp.Key)
	}
	l.launch(specs...)
	l.await(func() bool { return len(l.started) == 20 })
	l.client.Close() // as when the agent is killed
	f, err := os.OpenFile(gate, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for range 3 {
		l.mu.Lock()
		clear(l.exits)
		l.mu.Unlock()
		l.connect()
		for _, k := range keys {
			l.exit(k)
		}
		if err := l.client.Ack(context.Background(), keys[:5]); err != nil {
			t.Fatal(err)
		}
		keys = keys[5:]
		l.client.Close()
	}
	l.connect()
	runs, err := l.client.List(context.Background())
	if err != nil || len(runs) != 5 {
		t.Fatalf("%d runs left, %v", len(runs), err)
	}
	for _, r := range runs {
		if r.State != plan.Exited || r.Exit == nil {
			t.Errorf("%+v", r)
		}
	}
}

func TestSpecsThatCannotBeCarriedOutAreRefused(t *testing.T) {
	l := newLab(t)
	empty := l.job("")
	empty.Script = nil
	relative := l.job("true")
	relative.WorkDir = "work"
	zero := l.job("true")
	zero.Env = append(zero.Env, "A=\x00")
	res, err := l.client.Launch(context.Background(), []plan.RunSpec{empty, relative, zero})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range res {
		if r.Status != plan.Refused || r.Code != plan.RefusedSpec || r.Reason == "" {
			t.Errorf("%+v", r)
		}
	}
}

func TestBinaryScriptsOfAnySizePass(t *testing.T) {
	l := newLab(t)
	sp := l.job("")
	sp.Script = append([]byte("#!/bin/sh\nexit 6\n#"), bytes.Repeat([]byte("x"), 4<<20)...)
	if x, _ := l.run(sp); x.Code != 6 {
		t.Errorf("%+v", x)
	}
}

// The site's TaskProlog runs as the job's user in the job's place, changes its
// environment and prints into its output; the script is then what it is without.
// TaskEpilog runs behind the script as its user, with its environment and in
// its folder, and changes nothing of how the script ended.
func TestTaskEpilog(t *testing.T) {
	l := newLab(t)
	epilog := filepath.Join(l.dir, "taskepilog")
	if err := os.WriteFile(epilog, []byte("#!/bin/sh\n"+
		"echo \"$(id -u) $SLURM_SCRIPT_CONTEXT $MINE\" > epilogue\necho oops >&2\n[ -z \"$GATE\" ] || exec sleep 600 < \"$GATE\"\nexit ${FAIL:-0}\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	job := func(script string, more ...string) plan.RunSpec {
		sp := l.job(script)
		sp.TaskEpilog, sp.Env = epilog, append(append(sp.Env, "MINE=yes"), more...)
		return sp
	}
	wrote := filepath.Join(l.work, "epilogue")
	sp := job("echo script; test ! -e epilogue || echo early; exit 3")
	x, out := l.run(sp)
	said, err := os.ReadFile(wrote)
	if want := fmt.Sprintf("%d epilog_task yes\n", sp.UID); err != nil || string(said) != want || x.Code != 3 || out != "script\noops\n" {
		t.Errorf("%+v: %q %v, output %q", x, said, err, out)
	}
	if x, out = l.run(job("kill -9 $$", "FAIL=4")); x.Signal != 9 || !strings.Contains(out, "TaskEpilog "+epilog+": exit code 4") {
		t.Errorf("a TaskEpilog that fails behind a script that was killed: %+v:\n%s", x, out)
	}
	sp = job("exit 2")
	sp.TaskEpilog = "/nonexistent"
	if x, out = l.run(sp); x.Code != 2 || !strings.Contains(out, "TaskEpilog /nonexistent: ") {
		t.Errorf("a TaskEpilog that is not there: %+v:\n%s", x, out)
	}

	// The shepherd dies while it runs: what became of the script is known, and
	// the rest is cleared away. Before, the run was not over.
	gate := l.fifo("gate")
	sp = job("exit 5", "GATE="+gate)
	l.launch(sp)
	openGate(t, gate)
	runs, err := l.client.List(t.Context())
	if err != nil || !slices.ContainsFunc(runs, func(o plan.Observed) bool { return o.Key == sp.Key && o.State == plan.Ending }) {
		t.Errorf("%+v %v", runs, err)
	}
	l.killShepherd()
	l.connect()
	if x := l.exit(sp.Key); x.Code != 5 || x.Failure != plan.None {
		t.Errorf("%+v", x)
	}
	if left := alive(t, sp.Key); len(left) != 0 {
		t.Errorf("left: %v", left)
	}

	// It dies while the script runs, and the next one knows what to run behind it.
	if err := os.Remove(wrote); err != nil {
		t.Fatal(err)
	}
	gate = l.fifo("gate2")
	sp = job("exec 3< " + gate + "; exit 6")
	l.launch(sp)
	l.begun(sp.Key)
	l.killShepherd()
	l.connect()
	openGate(t, gate)
	if x := l.exit(sp.Key); tellsExits() && (x.Code != 6 || x.Failure != plan.None) {
		t.Errorf("%+v", x)
	}
	if said, err := os.ReadFile(wrote); tellsExits() && (err != nil || !strings.Contains(string(said), "epilog_task yes")) {
		t.Errorf("behind an adopted script: %q %v", said, err)
	}

	// A kill reaches it.
	gate = l.fifo("gate3")
	sp = job("exit 0", "GATE="+gate)
	l.launch(sp)
	openGate(t, gate)
	if err := l.client.Kill(t.Context(), sp.Key, plan.ScopeRun); err != nil {
		t.Fatal(err)
	}
	if x := l.exit(sp.Key); x.Code != 0 {
		t.Errorf("%+v", x)
	}
}

func TestTaskProlog(t *testing.T) {
	l := newLab(t)
	prolog := filepath.Join(l.dir, "taskprolog")
	if err := os.WriteFile(prolog, []byte("#!/bin/sh\n"+
		"echo export SCRATCH=/scratch/$SLURM_JOB_ID\necho unset SECRET\necho \"print it is $(id -u) with $SLURM_TASK_PID\"\necho oops >&2\nexit ${FAIL:-0}\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	job := func(more ...string) plan.RunSpec {
		sp := l.job(`echo "$SCRATCH,${SECRET-none},$1"; test "$SLURM_TASK_PID" = $$ && echo pid; ulimit -n; exit 3`)
		sp.UID, sp.GID = uint32(os.Geteuid()), uint32(os.Getegid()) // who may read the test's own program
		sp.TaskProlog, sp.Argv = prolog, []string{"a b"}
		sp.Env = append(append(sp.Env, "SECRET=1", asShepherd+"=1"), more...)
		sp.Rlimits = []plan.Rlimit{{Resource: unix.RLIMIT_NOFILE, Soft: 77, Hard: plan.RlimitKeep}}
		return sp
	}
	sp := job()
	x, out := l.run(sp)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	want := []string{"oops", "", fmt.Sprintf("/scratch/%d,none,a b", sp.JobID), "pid", "77"}
	if x.Code != 3 || len(lines) != len(want) || !strings.HasPrefix(lines[1], fmt.Sprintf("it is %d with ", os.Geteuid())) {
		t.Fatalf("%+v:\n%s", x, out)
	}
	for i, w := range want {
		if w != "" && lines[i] != w {
			t.Errorf("line %d is not %q:\n%s", i, w, out)
		}
	}
	if x, out = l.run(job("FAIL=4")); x.Code != 1 || !strings.Contains(out, "TaskProlog "+prolog+": exit status 4") || strings.Contains(out, "none") {
		t.Errorf("a TaskProlog that fails: %+v:\n%s", x, out)
	}
	sp = job()
	sp.TaskProlog = "/nonexistent"
	if x, out = l.run(sp); x.Code != 1 || !strings.Contains(out, "TaskProlog /nonexistent: ") {
		t.Errorf("a TaskProlog that is not there: %+v:\n%s", x, out)
	}
	sp = job()
	sp.Script = []byte("#!/nonexistent\n")
	if x, out = l.run(sp); x.Code != 127 || !strings.Contains(out, "bad interpreter (/nonexistent)") {
		t.Errorf("a script that cannot be executed: %+v:\n%s", x, out)
	}
}
