package daemon

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// realScripts run real programs; what begins and what has ended is told.
type realScripts struct{ began, ended map[string]chan struct{} }

func (r realScripts) Run(ctx context.Context, program string, _ spec.Span, env []string) error {
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	name := filepath.Base(program)
	r.began[name] <- struct{}{}
	err := cmd.Run()
	r.ended[name] <- struct{}{}
	return err
}

// site is a controller with programs that wait at a gate; what they were told
// is in a file of each.
type site struct {
	*world
	dir          string
	began, ended map[string]chan struct{}
	conf         *spec.Config
}

func newSite(t *testing.T) *site {
	s := &site{dir: t.TempDir(), began: map[string]chan struct{}{}, ended: map[string]chan struct{}{}, conf: testConfig()}
	for _, name := range []string{"prolog", "epilog"} {
		s.began[name], s.ended[name] = make(chan struct{}, 8), make(chan struct{}, 8)
		script := "#!/bin/sh\nexport PATH=/usr/bin:/bin\nenv > " + s.dir + "/$SLURM_JOB_ID." + name + "\n"
		if name == "prolog" {
			script += "read code < " + s.dir + "/gate\nexit $code\n"
		}
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(s.dir, "gate"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.conf.Ctl = &spec.CtlScripts{Prolog: s.dir + "/prolog", Epilog: s.dir + "/epilog"}
	s.world = startDeps(t, s.conf, func(d *Deps) { d.Scripts = realScripts{s.began, s.ended} })
	return s
}

// open lets one program that runs, or the next one, end with a code. The gate
// stays open: of two programs that read from it each gets a line of its own.
func (s *site) open(code string) {
	s.t.Helper()
	gate, err := os.OpenFile(filepath.Join(s.dir, "gate"), os.O_RDWR, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = gate.Close() })
	if _, err := gate.WriteString(code + "\n"); err != nil {
		s.t.Fatal(err)
	}
}

// over waits for a program's end.
func (s *site) over(name string) { <-s.ended[name] }

// told tells whether a program had all of these variables.
func (s *site) told(file string, want ...string) {
	s.t.Helper()
	b, err := os.ReadFile(filepath.Join(s.dir, file))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, w := range want {
		if !strings.Contains("\n"+string(b), "\n"+w+"\n") {
			s.t.Errorf("%s was not told %s:\n%s", file, w, b)
		}
	}
}

// Nothing of a job starts before its PrologSlurmctld has ended well, also if
// the controller is stopped meanwhile; behind it runs EpilogSlurmctld.
func TestPrologSlurmctld(t *testing.T) {
	w := newSite(t)
	agent, _ := w.connect("n1")
	<-agent.out
	w.deps.Identify = func(context.Context) Caller { return Caller{UID: 1000, GID: 1000, User: "alice"} }
	w.c.deps.Identify = w.deps.Identify
	id := spec.JobID(w.submit(&apiv1.JobSpec{Name: "one", WorkDir: "/w"}))
	w.until("preparing", func() bool {
		j := w.c.View().State.JobByID(id)
		return j.Prepares && j.Reason.Code == spec.ReasonProlog
	})
	<-w.began["prolog"]
	w.stop()
	w.over("prolog") // ended by the shutdown, which says nothing about the job
	w.run(w.conf)
	if j := w.c.View().State.JobByID(id); !j.Prepares || j.Restarts != 0 {
		t.Fatalf("%+v", j)
	}
	agent, _ = w.connect("n1")
	welcome := <-agent.out
	if n := len(welcome.GetWelcome().GetDesired()); n != 1 {
		t.Errorf("%d runs are wanted of the agent", n)
	}
	w.c.deps.Identify = w.deps.Identify
	w.open("0")
	w.over("prolog")
	if o := agent.orders(t); o[0].GetLaunch() == nil || w.c.View().State.JobByID(id).Prepares {
		t.Fatalf("%v", o)
	}
	w.told("1.prolog", "SLURM_JOB_ID=1", "SLURM_JOB_NAME=one", "SLURM_JOB_UID=1000", "SLURM_JOB_NODELIST=n1", "SLURM_JOB_WORK_DIR=/w", "SLURM_SCRIPT_CONTEXT=prolog_slurmctld")
	w.must(scheduler.Report{Node: "n1", Run: scheduler.Run{UID: 1, Attempt: 1}, Done: &scheduler.NodeDone{Batch: &event.StepResult{Exit: spec.ExitStatus{Code: 3}}}})
	w.over("epilog")
	w.told("1.epilog", "SLURM_JOB_ID=1", "SLURM_JOB_EXIT_CODE=768", "SLURM_JOB_EXIT_CODE2=3:0", "SLURM_SCRIPT_CONTEXT=epilog_slurmctld")
}

// An EpilogSlurmctld that a controller had not seen the end of is run by the
// next one, with what its attempt was, however far its job is; one that was
// seen is not run again.
func TestEpilogSlurmctldIsMadeUpFor(t *testing.T) {
	w := newSite(t)
	script := "#!/bin/sh\nexport PATH=/usr/bin:/bin\necho \"$SLURM_JOB_RESTART_COUNT $SLURM_JOB_NODELIST $SLURM_JOB_EXIT_CODE2\" >> " + w.dir + "/$SLURM_JOB_ID.epilogs\nread code < " + w.dir + "/gate\n"
	if err := os.WriteFile(filepath.Join(w.dir, "epilog"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	w.conf.Ctl.Prolog = ""
	w.must(scheduler.Configure{Config: w.conf})
	w.register("n1")
	id := spec.JobID(w.submit(&apiv1.JobSpec{Name: "one"}))
	job := func() *state.Job { return w.c.View().State.JobByID(id) }
	w.until("running", func() bool { return job().State == spec.Running })
	w.must(scheduler.Requeue{Target: scheduler.Target{UID: 1, Task: spec.NoTask}, Hold: spec.HeldByAdmin})
	w.must(scheduler.Report{Node: "n1", Run: scheduler.Run{UID: 1, Attempt: 1}, Done: &scheduler.NodeDone{Batch: &event.StepResult{Exit: spec.ExitStatus{Signal: 15}}}})
	<-w.began["epilog"]
	w.stop()
	w.run(w.conf)
	<-w.began["epilog"] // that of a job that waits again
	if j := job(); j.State != spec.Pending || len(j.Epilogs) != 1 {
		t.Fatalf("%+v", j)
	}
	for range 2 {
		w.open("0")
		w.over("epilog")
	}
	w.until("recorded", func() bool { return job().Epilogs == nil })
	w.stop()
	w.run(w.conf)
	w.must(scheduler.Cancel{Target: scheduler.Target{UID: 1, Task: spec.NoTask}})
	if b, err := os.ReadFile(filepath.Join(w.dir, "1.epilogs")); err != nil || string(b) != strings.Repeat("0 n1 0:0\n", 2) || len(w.began["epilog"]) > 0 {
		t.Errorf("%q %v, %d more", b, err, len(w.began["epilog"]))
	}
}

// A PrologSlurmctld that fails queues its job again; a job that is cancelled
// ends its PrologSlurmctld.
func TestPrologSlurmctldFails(t *testing.T) {
	w := newSite(t)
	w.register("n1")
	id := spec.JobID(w.submit(&apiv1.JobSpec{Name: "bad"}))
	run := scheduler.Run{UID: 1, Attempt: 1}
	w.open("7")
	w.over("prolog")
	w.until("to be queued again", func() bool {
		j := w.c.View().State.JobByID(id)
		return j.Ending != nil && j.Ending.Requeue && strings.Contains(j.Ending.Detail, "exit status 7")
	})
	w.must(scheduler.Report{Node: "n1", Run: run, Done: &scheduler.NodeDone{}})
	w.over("epilog")
	<-w.began["prolog"]
	<-w.began["prolog"]
	if j := w.c.View().State.JobByID(id); !j.Prepares || j.Attempt != 2 {
		t.Errorf("%+v", j)
	}
	w.must(scheduler.Cancel{Target: scheduler.Target{UID: 1, Task: spec.NoTask}})
	w.over("prolog") // nobody opened the gate
	w.must(scheduler.Report{Node: "n1", Run: scheduler.Run{UID: 1, Attempt: 2}, Done: &scheduler.NodeDone{}})
	w.over("epilog")
	if j := w.c.View().State.JobByID(id); j.State != spec.Cancelled || j.Prepares {
		t.Errorf("%+v", j)
	}
}

// Of several QOS the programs are told the one that the job runs in.
func TestScriptsAreToldTheQOS(t *testing.T) {
	j := &state.Job{Spec: &spec.JobSpec{QOS: "fast", QOSes: []string{"fast", "spare"}}, State: spec.Running, Alloc: &spec.Allocation{QOS: "spare"}}
	if env := jobEnv(state.New(), j); !slices.Contains(env, "SLURM_JOB_QOS=spare") {
		t.Error(env)
	}
}
