package cli

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

func sallocCommand() *command {
	c := &command{
		name: "salloc", slurm: true, ownVerbose: true, badUsage: 255,
		summary: "hold nodes for a shell or a command on this host",
		usage:   []string{"[OPTIONS] [COMMAND [ARGUMENTS]]", "[OPTIONS] : [OPTIONS] ... [COMMAND [ARGUMENTS]]"},
		about: `It waits until the job has its nodes and then runs the command here, or your shell, with the job's variables set: srun
in it starts steps on the job's nodes. The nodes are given back when the command ends, or salloc itself, also when that is
killed; with --no-shell when the job is cancelled. A : between options begins another component of a heterogeneous job.`,
		env:   []variable{{"SHELL", "the shell that runs without a command"}, {"SLURM_EXIT_ERROR", "exit code when there is no allocation, instead of 1"}},
		exits: []variable{{"255", "an option cannot be read"}, {"as the command", "its exit code; 128 and the signal when one ended it"}},
		example: []example{
			{"salloc -N 2 --gres=gpu:8 -t 1:00:00", "a shell that holds two nodes"},
			{"salloc -n 16 mpirun ./solver", "runs mpirun on what it was given, and gives it back"},
		},
		run: runSalloc,
	}
	c.options = liveOptions("SALLOC_", "SLURM_CLUSTERS", sallocOptions())
	return c
}

// sallocOptions are those that salloc has and sbatch has not, or not so.
//
//muster:table one row for each option
func sallocOptions() []opt.Option {
	return []opt.Option{
		{Long: "bell", Help: "ring the bell when the nodes are there"},
		{Long: "distribution", Short: "m", Arg: "<type>", Env: "SALLOC_DISTRIBUTION", Refused: "say it to the srun in the allocation"},
		{Long: "error", Short: "e", Arg: "<filename_pattern>", Refused: "the command runs here: redirect it in the shell"},
		{Long: "export", Arg: "<variables>", Refused: "the command runs here, with this shell's variables"},
		{Long: "get-user-env", Arg: "<timeout>[mode]", Maybe: true, Refused: "the command runs here, with this shell's variables"},
		immediateOption("SALLOC_IMMEDIATE"),
		{Long: "input", Short: "i", Arg: "<filename_pattern>", Refused: "the command runs here: redirect it in the shell"},
		{Long: "kill-command", Short: "K", Arg: "signal", Maybe: true, Env: "SALLOC_KILL_CMD", Help: "the signal for the command when the job ends first: SIGTERM without a name, and SIGHUP without the option"},
		{Long: "no-bell", Env: "SALLOC_NO_BELL", Help: "do not ring the bell"},
		{Long: "no-shell", Help: "run nothing and go: the job stays until it is cancelled or its time is over"},
		{Long: "open-mode", Arg: "append|truncate", Refused: "the command runs here: redirect it in the shell"},
		{Long: "output", Short: "o", Arg: "<filename_pattern>", Refused: "the command runs here: redirect it in the shell"},
		{Long: "x11", Maybe: true, Arg: "all|first|last", Refused: "no displays are forwarded"},
	}
}

func runSalloc(c *call) error {
	if err := c.checkClusters(); err != nil {
		return err
	}
	list, err := c.components()
	if err != nil {
		return err
	}
	c.args = list[len(list)-1].args
	for _, p := range list {
		if !slices.Equal(p.args, c.args) {
			return c.errorf("one command runs in the allocation, and it stands last: %s", strings.Join(p.args, " "))
		}
	}
	if c.opts.On("test-only") {
		return c.testOnly(list)
	}
	_, specs, err := c.liveJobs(list)
	if err != nil {
		return err
	}
	if specs[0].GetName() == "" {
		specs[0].Name = "interactive"
	}
	sig, err := c.killSignal()
	if err != nil {
		return err
	}
	specs[0].Attended = !c.opts.On("no-shell")
	a, err := c.allocate(specs)
	if err != nil {
		return err
	}
	c.say("Granted job allocation %d", a.id)
	if c.opts.On("bell") && !c.opts.On("no-bell") {
		fmt.Fprint(c.Stderr, "\a")
	}
	nodes := make([]string, len(a.all))
	for i, j := range a.all {
		nodes[i] = j.GetNodes()
	}
	c.say("Nodes %s are ready for job", strings.Join(nodes, ","))
	if c.opts.On("no-shell") {
		a.stop()
		return nil
	}
	code, err := c.inAllocation(a, sig)
	c.say("Relinquishing job allocation %d", a.id)
	a.end(int32(code), 0)
	return c.stepExit(code, err)
}

// killSignal is what the command gets when the job ends before it.
func (c *call) killSignal() (syscall.Signal, error) {
	v, ok := c.opts.Get("kill-command")
	switch {
	case !ok:
		return syscall.SIGHUP, nil
	case v.Text == "":
		return syscall.SIGTERM, nil
	}
	n, err := format.ParseSignal(v.Text)
	if err != nil {
		return 0, c.errorf("Invalid --kill-command specification: %s", v.Text)
	}
	return syscall.Signal(n), nil
}

// inAllocation runs the command, or a shell, until it ends. With a terminal it
// is in the foreground there, as a program that a shell starts.
func (c *call) inAllocation(a *allocation, sig syscall.Signal) (int, error) {
	argv := c.args
	if len(argv) == 0 {
		shell := c.Getenv("SHELL")
		if shell == "" {
			shell = "/bin/sh"
		}
		argv = []string{shell}
		if c.Terminal(c.Stdin) {
			argv = append(argv, "-i")
		}
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Dir, cmd.Env = c.Stdin, c.Stdout, c.Stderr, c.Dir, c.allocationEnv(a)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	tty := -1
	if f, ok := c.Stdin.(*os.File); ok && c.Terminal(f) {
		tty = int(f.Fd())
		cmd.SysProcAttr.Foreground, cmd.SysProcAttr.Ctty = true, tty
	}
	signal.Ignore(syscall.SIGTTOU)
	if err := cmd.Start(); err != nil {
		return 1, c.errorf("%s: %v", argv[0], err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	defer signal.Stop(signals)
	if tty >= 0 {
		defer func() { _ = unix.IoctlSetPointerInt(tty, unix.TIOCSPGRP, unix.Getpgrp()) }()
	}
	revoked, news := false, a.news
	for {
		select {
		case err := <-ended:
			return exitOfCommand(err)
		case s := <-signals:
			_ = syscall.Kill(-cmd.Process.Pid, s.(syscall.Signal))
		case j, ok := <-news:
			if !ok {
				news = nil
			}
			if !revoked && (!ok || spec.JobState(j.GetState()).Terminal()) {
				revoked = true
				c.say("Job allocation %d has been revoked.", a.id)
				_ = syscall.Kill(-cmd.Process.Pid, sig)
				_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGCONT)
			}
		}
	}
}

// allocationEnv is this host's environment with the job's variables instead of
// those of a job around it.
func (c *call) allocationEnv(a *allocation) []string {
	e := newEnvironment()
	for _, kv := range c.Environ {
		name, value, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, "SLURM_") || name == "SLURM_CONF" {
			e.set(name, value)
		}
	}
	of, shared := a.variables()
	for _, kv := range append(of[0], shared...) {
		name, value, _ := strings.Cut(kv, "=")
		e.set(name, value)
	}
	return strings.Split(strings.TrimSuffix(string(e.bytes()), "\x00"), "\x00")
}

// exitOfCommand is a program's exit as a shell gives it.
func exitOfCommand(err error) (int, error) {
	var x *exec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case !errors.As(err, &x):
		return 1, err
	}
	if st, ok := x.Sys().(syscall.WaitStatus); ok && st.Signaled() {
		return 128 + int(st.Signal()), nil
	}
	return x.ExitCode(), nil
}
