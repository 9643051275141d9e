package submit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

func Salloc() *tool.Command {
	command := &tool.Command{
		Name: "salloc", Slurm: true, OwnVerbose: true, BadUsage: 255,
		Summary: "allocate nodes for a shell or a command on this host",
		Usage: []string{
			"[OPTIONS] [COMMAND [ARGUMENTS]]",
			"[OPTIONS] : [OPTIONS] ... [COMMAND [ARGUMENTS]]",
		},
		About: `Waits until the job has its nodes and then runs the command, or your shell, on this host with the
job's environment variables; srun in it starts steps on the job's nodes. The allocation is released when the
command or salloc ends, also if salloc is killed; with --no-shell, when the job is cancelled. A : between
options starts the next component of a heterogeneous job.`,
		Env: []tool.Variable{
			{Name: "SALLOC_DEBUG", Help: "as many -v as this number"},
			{Name: "SHELL", Help: "the shell that runs without a command"},
			{Name: "SLURM_EXIT_ERROR", Help: "exit code when there is no allocation, instead of 1"},
			{Name: "SALLOC_WAIT4SWITCH", Help: "the time of --switches"},
		},
		Exits: []tool.Variable{
			{Name: "255", Help: "invalid option"},
			{Name: "as the command", Help: "its exit code; 128 and the signal when one ended it"},
		},
		Example: []tool.Example{
			{
				Line: "salloc -N 2 --gres=gpu:8 -t 1:00:00",
				What: "opens a shell with an allocation of two nodes",
			},
			{
				Line: "salloc -n 16 mpirun ./solver",
				What: "runs mpirun on what it was given, and gives it back",
			},
		},
		Run: runSalloc,
	}
	command.Options = liveOptions(
		"SALLOC_",
		"SALLOC_CLUSTERS SLURM_CLUSTERS",
		append(sallocOptions(), ofSteps()...),
	)
	return command
}

// sallocOptions are those that salloc has and sbatch has not, or not so.
//
//muster:table one row for each option
func sallocOptions() []opt.Option {
	return []opt.Option{
		{Long: "container", Arg: "<path_to_bundle>", Env: "SALLOC_CONTAINER", Help: "run the steps in the OCI bundle in this folder: it is the --container of each srun in the allocation"},
		{Long: "bell", Env: "SALLOC_BELL", Help: "ring the terminal bell when the nodes are allocated"},
		{Long: "error", Short: "e", Arg: "<filename_pattern>", Refused: "the command runs on this host: use shell redirection"},
		{Long: "export", Arg: "<variables>", Refused: "the command runs on this host with the environment of this shell"},
		{Long: "get-user-env", Arg: "<timeout>[mode]", Maybe: true, Refused: "the command runs on this host with the environment of this shell"},
		immediateOption("SALLOC_IMMEDIATE"),
		{Long: "input", Short: "i", Arg: "<filename_pattern>", Refused: "the command runs on this host: use shell redirection"},
		{Long: "kill-command", Short: "K", Arg: "signal", Maybe: true, Env: "SALLOC_KILL_CMD", Help: "signal for the command when the job ends first (default: SIGHUP; SIGTERM if no name is given)"},
		{Long: "no-bell", Env: "SALLOC_NO_BELL", Help: "do not ring the terminal bell"},
		{Long: "no-shell", Help: "exit without running a command; the job stays until it is cancelled or its time limit is reached"},
		{Long: "open-mode", Arg: "append|truncate", Refused: "the command runs on this host: use shell redirection"},
		{Long: "output", Short: "o", Arg: "<filename_pattern>", Refused: "the command runs on this host: use shell redirection"},
		{Long: "wait-all-nodes", Arg: "<value>", Env: "SALLOC_WAIT_ALL_NODES", Help: "wait until all nodes are ready", Always: "a job always starts only when all its nodes are ready"},
		{Long: "x11", Maybe: true, Arg: "all|first|last", Help: "let programs on all nodes, the first or the last one reach the X display of this session"},
	}
}

func runSalloc(call *tool.Call) error {
	warnOf(call, sallocOptions())
	if isVerbose(call, "SALLOC_DEBUG") {
		printOptions(call)
	}
	list, err := splitComponents(call)
	if err != nil {
		return err
	}
	call.Operands = list[len(list)-1].args
	for _, p := range list {
		if !slices.Equal(p.args, call.Operands) {
			return call.Errorf(
				"one command runs in the allocation, and it stands last: %s",
				strings.Join(p.args, " "),
			)
		}
	}
	filter, err := loadFilter(call)
	if err != nil {
		return err
	}
	if call.Opts.On("test-only") {
		return testOnly(call, list, filter)
	}
	_, specs, err := liveJobs(call, list, filter)
	if err != nil {
		return err
	}
	if specs[0].GetName() == "" {
		specs[0].Name = "interactive"
	}
	sig, err := killSignal(call)
	if err != nil {
		return err
	}
	folder, err := commandFolder(call)
	if err != nil {
		return err
	}
	specs[0].Attended = !call.Opts.On("no-shell")
	request := &apiv1.SubmitRequest{Spec: specs[0], Rest: specs[1:]}
	return inEarliest(call, request, func(call *tool.Call) error {
		return allocateAndRun(call, specs, folder, sig, filter)
	})
}

// allocateAndRun gets the allocation and runs the command in it.
func allocateAndRun(
	call *tool.Call,
	specs []*apiv1.JobSpec,
	folder string,
	sig syscall.Signal,
	filter *siteFilter,
) error {
	display, err := displayFor(call, specs)
	if err != nil {
		return err
	}
	a, err := allocateJob(call, specs)
	if err != nil {
		return err
	}
	filter.tellSubmitted(a.id, 0)
	printLine(call, "Granted job allocation %d", a.id)
	if call.Opts.On("bell") && !call.Opts.On("no-bell") {
		fmt.Fprint(call.Stderr, "\a")
	}
	nodes := make([]string, len(a.all))
	for i, job := range a.all {
		nodes[i] = job.GetNodes()
	}
	printLine(call, "Nodes %s are ready for job", strings.Join(nodes, ","))
	if call.Opts.On("no-shell") {
		a.stop()
		return forwardAllBehind(call, a.all)
	}
	forwarding, endForwarding := context.WithCancel(call.Ctx)
	defer endForwarding()
	display.forwardAll(forwarding, call, a.all)
	code, err := inAllocation(call, a, folder, sig)
	printLine(call, "Relinquishing job allocation %d", a.id)
	a.endAllocation(int32(code), 0)
	return stepExit(call, code, err)
}

// commandFolder is where the command runs on this host: in that of --chdir, as steps do.
func commandFolder(call *tool.Call) (string, error) {
	folder := call.Opts.Text("chdir")
	if folder == "" {
		return call.Dir, nil
	}
	if !filepath.IsAbs(folder) {
		folder = filepath.Join(call.Dir, folder)
	}
	entered, err := os.Stat(folder)
	if err == nil && !entered.IsDir() {
		err = syscall.ENOTDIR
	}
	if err != nil {
		if inner := errors.Unwrap(err); inner != nil {
			err = inner
		}
		text := err.Error()
		return "", call.Errorf("chdir(%s): %s", folder, strings.ToUpper(text[:1])+text[1:])
	}
	return folder, nil
}

// killSignal is what the command gets when the job ends before it.
func killSignal(call *tool.Call) (syscall.Signal, error) {
	value, ok := call.Opts.Get("kill-command")
	switch {
	case !ok:
		return syscall.SIGHUP, nil
	case value.Text == "":
		return syscall.SIGTERM, nil
	}
	n, err := format.ParseSignal(value.Text)
	if err != nil {
		return 0, call.Errorf("Invalid --kill-command specification: %s", value.Text)
	}
	return syscall.Signal(n), nil
}

// inAllocation runs the command, or a shell, until it ends. With a terminal it
// is in the foreground there, as a program that a shell starts.
func inAllocation(
	call *tool.Call, a *allocation, folder string, sig syscall.Signal,
) (int, error) {
	argv := call.Operands
	if len(argv) == 0 {
		shell := call.Getenv("SHELL")
		if shell == "" {
			shell = "/bin/sh"
		}
		argv = []string{shell}
		if call.Terminal(call.Stdin) {
			argv = append(argv, "-i")
		}
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin = call.Stdin
	cmd.Stdout = call.Stdout
	cmd.Stderr = call.Stderr
	cmd.Dir = folder
	cmd.Env = allocationEnv(call, a)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	tty := -1
	if f, ok := call.Stdin.(*os.File); ok && call.Terminal(f) {
		tty = int(f.Fd())
		cmd.SysProcAttr.Foreground, cmd.SysProcAttr.Ctty = true, tty
	}
	signal.Ignore(syscall.SIGTTOU)
	if err := cmd.Start(); errors.Is(err, exec.ErrNotFound) {
		fmt.Fprintf(call.Stderr,
			"salloc: error: _fork_command: Unable to find command \"%s\"\n", argv[0])
		return 1, nil
	} else if err != nil {
		return 1, call.Errorf("%s: %v", argv[0], err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	signals := make(chan os.Signal, 4)
	signal.Notify(
		signals,
		syscall.SIGINT,
		syscall.SIGTERM,
		syscall.SIGHUP,
		syscall.SIGQUIT,
		syscall.SIGUSR1,
		syscall.SIGUSR2,
	)
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
		case job, ok := <-news:
			if !ok {
				news = nil
			}
			if !revoked && (!ok || spec.JobState(job.GetState()).Terminal()) {
				revoked = true
				printLine(call, "Job allocation %d has been revoked.", a.id)
				_ = syscall.Kill(-cmd.Process.Pid, sig)
				_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGCONT)
			}
		}
	}
}

// allocationEnv is this host's environment with the job's variables instead of
// those of a job around it.
func allocationEnv(call *tool.Call, a *allocation) []string {
	e := newEnvironment()
	for _, kv := range call.Environ {
		name, value, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, "SLURM_") || name == "SLURM_CONF" {
			e.setVariable(name, value)
		}
	}
	if folder := call.Opts.Text("container"); folder != "" {
		e.setVariable("SRUN_CONTAINER", path.Clean((&jobRequest{env: call.Env}).absolutePath(folder)))
	}
	of, shared := a.hostVariables()
	for _, kv := range append(of[0], shared...) {
		name, value, _ := strings.Cut(kv, "=")
		e.setVariable(name, value)
	}
	return strings.Split(strings.TrimSuffix(string(e.encodeEnv()), "\x00"), "\x00")
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
