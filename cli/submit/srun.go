package submit

import (
	"cmp"
	"context"
	"errors"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/tool"
)

// srunAlone makes a job for one step.
func srunAlone(call *tool.Call, list []component, filter *siteFilter) error {
	if call.Opts.On("het-group") {
		return call.Errorf(
			"--het-group names components of a heterogeneous job, and this is not in one",
		)
	}
	calls, specs, err := liveJobs(call, list, filter)
	if err != nil {
		return err
	}
	asks := make([]stepAsk, len(specs))
	for i, part := range calls {
		step, err := makeStep(
			part,
			specs[i],
			part.Opts,
		) // before anything is asked for: it may be wrong
		if err != nil {
			return err
		}
		step.TimeLimit = 0
		step.Nodes = ""
		step.Exclude = ""
		step.MinNodes = 0
		step.MaxNodes = 0
		step.Exact = false
		step.MemPerNode = 0
		step.MemPerCpu = 0
		step.PerNode = nil
		step.PerStep = nil // it has what the job has
		asks[i] = stepAsk{step: step, opts: part.Opts}
	}
	request := &apiv1.SubmitRequest{Spec: specs[0], Rest: specs[1:]}
	return inEarliest(call, request, func(call *tool.Call) error {
		return allocateAndStep(call, specs, asks, filter)
	})
}

// allocateAndStep gets the allocation of a job and runs its only step.
func allocateAndStep(
	call *tool.Call,
	specs []*apiv1.JobSpec,
	asks []stepAsk,
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
	forwarding, endForwarding := context.WithCancel(call.Ctx)
	defer endForwarding()
	display.forwardAll(forwarding, call, a.all)
	go func() { // nobody else reads them: the step ends with the job
		for range a.news {
		}
	}()
	of, shared := a.hostVariables()
	for i, jobSpec := range specs {
		ask, job := &asks[i], a.all[i]
		ask.step.Tasks = job.GetNumTasks()
		ofGPUs := jobSpec.GetTasksPerGpu() > 0 || len(jobSpec.GetPerTask()) > 0 // they say how many
		if jobSpec.GetTasks() == 0 && jobSpec.GetTasksPerNode() == 0 && !ofGPUs {
			ask.step.Tasks = max(job.GetNumNodes(), 1)
		}
		ask.job, ask.vars = tool.Itoa(job.GetJobId()), append(of[i], shared...)
	}
	var code int
	err = broadcastProgram(call, asks)
	if err == nil {
		code, err = runWithScripts(call, asks, func() (int, error) { return runStep(call, asks, filter, true) })
	}
	var exitError *tool.ExitError
	switch {
	case errors.As(err, &exitError) && code == 0:
		code = exitError.Code
	case err != nil && code == 0:
		code = 1
	}
	a.endAllocation(int32(min(code, 255)), 0)
	return stepExit(call, code, err)
}

func Srun() *tool.Command {
	command := &tool.Command{
		Name: "srun", Slurm: true, OwnVerbose: true, BadUsage: 255,
		Summary: "run a command on the nodes of a job, or in a job of its own",
		Usage: []string{
			"[OPTIONS] COMMAND [ARGUMENTS]",
			"[OPTIONS] [COMMAND [ARGUMENTS]] : [OPTIONS] COMMAND [ARGUMENTS] ...",
			"--test-only [OPTIONS] COMMAND [ARGUMENTS]",
		},
		About: `In a batch script or in the shell of salloc, srun starts a step: the command runs once per task on
the job's nodes, and srun prints the output of the tasks and exits with the highest of their exit codes.
Elsewhere it requests an allocation, runs the step and releases the allocation. With --test-only it only
prints when and where it would start.

In a heterogeneous job a step runs in the first component, or in those of --het-group. A : between two
commands creates one step that runs the first command in component 0, the second in component 1 and so on;
its tasks are numbered across components and form one MPI world. Outside a job, a : requests a heterogeneous
job with options before each command; a component without a command runs the next one.

The first Ctrl-C shows which tasks are running, a second one within a second is forwarded to them, a third
one ends the step. SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGALRM and SIGCONT are forwarded. A step ends with
its srun, also if srun is killed.`,
		Env: []tool.Variable{
			{Name: "SLURM_DEBUG", Help: "as many -v as this number"},
			{
				Name: "SLURM_EXIT_ERROR",
				Help: "exit code when the step or the job cannot start, instead of 1",
			},
			{Name: "SLURM_WAIT4SWITCH", Help: "the time of --switches"},
		},
		Exits: []tool.Variable{
			{Name: "255", Help: "invalid option"},
			{
				Name: "as the tasks",
				Help: "the highest of their exit codes; 128 and the signal for one that a signal ended",
			},
		},
		Example: []tool.Example{
			{
				Line: "srun -n 8 --label hostname",
				What: "in a batch script: eight tasks on the job's nodes, each line with the number of its task",
			},
			{
				Line: "srun --exact -n 1 --gpus=1 train 1 & srun --exact -n 1 --gpus=1 train 2 & wait",
				What: "two steps side by side, a GPU each",
			},
			{
				Line: "srun -p gpu --gres=gpu:1 -t 30 --pty bash",
				What: "a shell on a node with a GPU",
			},
			{
				Line: "srun -n 1 -c 8 server : -n 16 client",
				What: "a heterogeneous job of two components, and one step in both",
			},
			{
				Line: "srun --test-only -N 4 --gres=gpu:8 train",
				What: "prints when and where it would start",
			},
		},
		Run: runSrun,
	}
	command.Options = SrunOptions()
	return command
}

// SrunOptions are sbatch's, but for those of batch scripts and those that mean
// something else for steps; its variables are those of srun.
func SrunOptions() []opt.Option {
	options := liveOptions("SLURM_", "SLURM_CLUSTERS", stepOptions())
	for i := range options {
		switch options[i].Long {
		case "ntasks":
			options[i].Env = "SLURM_NTASKS SLURM_NPROCS"
		case "nodes":
			options[i].Env = "SLURM_NNODES SLURM_JOB_NUM_NODES"
		case "cpus-per-task":
			options[i].Env = "SLURM_CPUS_PER_TASK SRUN_CPUS_PER_TASK"
		case "ntasks-per-node":
			options[i].Env = "SLURM_NTASKS_PER_NODE"
		case "ntasks-per-core", "ntasks-per-socket", "ntasks-per-gpu", "dependency":
			options[i].Env = "SLURM_" +
				strings.ToUpper(strings.ReplaceAll(options[i].Long, "-", "_"))
		case "segment":
			options[i].Env = "SRUN_SEGMENT_SIZE"
		case "container", "container-id":
			options[i].Env = "SRUN_" +
				strings.ToUpper(strings.ReplaceAll(options[i].Long, "-", "_"))
		case "cpu-freq":
			options[i].Env = "SLURM_CPU_FREQ_REQ"
		case "oom-kill-step":
			options[i].Env = "SLURM_OOMKILLSTEP"
		case "bb":
			options[i].Env = "SLURM_BURST_BUFFER"
		case "export":
			options[i].Env = "SLURM_EXPORT_ENV SRUN_EXPORT_ENV"
		case "chdir":
			options[i].Env = "SLURM_WORKING_DIR"
		}
	}
	return options
}

// stepOptions are those of steps.
//
//muster:table one row for each option
func stepOptions() []opt.Option {
	const (
		noCast = "--bcast does not copy shared libraries; use sbcast"
	)
	return []opt.Option{
		{Long: "accel-bind", Arg: "<options>", Refused: "use --gpu-bind"},
		{Long: "async", Refused: "run srun in the background of the shell"},
		{Long: "bcast", Arg: "<dest_path>", Maybe: true, Env: "SLURM_BCAST", Help: "copy the program to this path on the job's nodes and run the copy; a path that ends with /, or no path (the working directory), is a folder"},
		{Long: "bcast-exclude", Arg: "<exclude_path>", Env: "SLURM_BCAST_EXCLUDE", Help: "folders whose shared libraries are not copied", Always: "--bcast copies no shared libraries"},
		compressOption("SLURM_COMPRESS"),
		{Long: "cpu-bind", Arg: "[verbose,]<type>", Env: "SLURM_CPU_BIND", Help: "binding of tasks to CPUs: cores, threads, rank, map_cpu:list, mask_cpu:list, none"},
		{Long: "disable-status", Short: "X", Env: "SLURM_DISABLE_STATUS", Help: "forward the first Ctrl-C to the tasks"},
		{Long: "distribution", Short: "m", Arg: "{*|block|cyclic|arbitrary|plane=<size>}[:<sockets>[:<cores>]][,{Pack|NoPack}]", Env: "SLURM_DISTRIBUTION", Help: "distribution of tasks over nodes; what is said of sockets and cores is not followed"},
		{Long: "epilog", Arg: "<executable>", Env: "SLURM_EPILOG", Help: "program that srun runs on this host when the step has ended; none disables"},
		{Long: "error", Short: "e", Arg: "<filename_pattern>", Env: "SLURM_STDERRMODE SRUN_ERROR", Help: "destination of the tasks' standard error, as for --output"},
		{Long: "exact", Env: "SLURM_EXACT", Help: "allocate only the CPUs that the tasks request (default: all CPUs of the job on the step's nodes)"},
		{Long: "exclusive", Arg: "user|mcs|topo", Maybe: true, Env: "SLURM_EXCLUSIVE", Help: "for a job: do not share nodes with other jobs; for a step: same as --exact"},
		{Long: "external-launcher", Env: "SLURM_EXTERNAL_LAUNCHER", Help: "launch the daemons of an MPI launcher in a step that shares all resources and allocates none"},
		{Long: "get-user-env", Arg: "<timeout>[mode]", Maybe: true, Refused: "tasks inherit the environment of srun"},
		{Long: "het-group", Also: "pack-group", Arg: "<expr>", Env: "SLURM_HET_GROUP", Help: "components of a heterogeneous job to run the step in: 0,2-3; counted from 0"},
		immediateOption("SLURM_IMMEDIATE"),
		{Long: "input", Short: "i", Arg: "<mode>", Env: "SLURM_STDINMODE SRUN_INPUT", Help: "who reads srun's standard input: all (default), none or a task number; or a file, with %t one per task"},
		{Long: "jobid", Arg: "<jobid>", Help: "run the step in this existing job"},
		{Long: "kill-on-bad-exit", Short: "K", Arg: "0|1", Maybe: true, Env: "SLURM_KILL_BAD_EXIT", Help: "end the step when a task exits with a nonzero code"},
		{Long: "label", Short: "l", Env: "SLURM_LABELIO", Help: "prefix each line with the task number"},
		{Long: "mpi", Arg: "<mpi_type>", Env: "SLURM_MPI_TYPE", Help: "MPI interface: pmi2 (includes PMI-1; default unless MpiDefault says otherwise), pmix (Open MPI), pmix_vN for one version of its library, none; list prints them"},
		{Long: "msg-timeout", Arg: "<seconds>", Help: "time to wait for an answer of the nodes", Always: "srun waits as long as the nodes need"},
		{Long: "multi-prog", Env: "SLURM_MULTI_PROG", Help: "the command is a configuration file that lists the program of each task"},
		{Long: "no-allocate", Short: "Z", Refused: "everything that runs on a node requires an allocation"},
		{Long: "output", Short: "o", Arg: "<mode>", Env: "SLURM_STDOUTMODE SRUN_OUTPUT", Help: "destination of the tasks' standard output: all (this terminal), none, a task number, or a file; %t, %n and %N in its name create one per task or node"},
		{Long: "overlap", Env: "SLURM_OVERLAP", Help: "share CPUs, memory and GPUs with other steps of the job"},
		{Long: "preserve-env", Short: "E", Env: "SLURM_PRESERVE_ENV", Help: "pass SLURM_NNODES, SLURM_NTASKS, SLURM_NPROCS and SLURM_TASKS_PER_NODE to the tasks as srun has them, instead of those of the step"},
		{Long: "prolog", Arg: "<executable>", Env: "SLURM_PROLOG", Help: "program that srun runs on this host before the step starts; none disables"},
		{Long: "pty", Arg: "<fd>", Maybe: true, Env: "SLURM_PTY", Help: "connect the first task to a pseudo-terminal"},
		{Long: "quit-on-interrupt", Help: "end the step on the first Ctrl-C"},
		{Long: "relative", Short: "r", Arg: "<n>", Help: "relative number of the job's first node to use, counted from 0"},
		{Long: "resv-ports", Arg: "count", Maybe: true, Env: "SLURM_RESV_PORTS", Refused: "Muster does not reserve ports"},
		{Long: "send-libs", Arg: "yes|no", Maybe: true, Env: "SLURM_SEND_LIBS", Refused: noCast},
		{Long: "slurmd-debug", Arg: "<level>", Env: "SLURMD_DEBUG", Help: "log level of the node's daemon for this step", Warn: "the log level of a node is set in its muster.yaml"},
		{Long: "task-epilog", Arg: "<executable>", Env: "SLURM_TASK_EPILOG", Help: "program to run after each task"},
		{Long: "task-prolog", Arg: "<executable>", Env: "SLURM_TASK_PROLOG", Help: "program to run before each task; it can set environment variables"},
		{Long: "threads", Short: "T", Arg: "<nthreads>", Env: "SLURM_THREADS", Help: "number of threads that launch a step", Always: "one message starts a step on all its nodes"},
		{Long: "treewidth", Arg: "<size>", Env: "SLURM_TREE_WIDTH", Help: "fan-out of messages", Always: "one message starts a step on all its nodes"},
		{Long: "unbuffered", Short: "u", Env: "SLURM_UNBUFFEREDIO", Help: "do not buffer output by line"},
		{Long: "wait", Short: "W", Arg: "<seconds>", Env: "SLURM_WAIT", Help: "end the step this number of seconds after the first task has ended"},
		{Long: "whole", Help: "allocate all CPUs of the job on the step's nodes", Always: "a step has them unless --exact or -c is given"},
		{Long: "wait-for-children", Help: "wait for processes that the tasks leave behind", Always: "a step is over when no process of it is left"},
		{Long: "x11", Maybe: true, Arg: "all|first|last", Env: "SLURM_X11", Help: "let programs on all nodes of a new job, its first or its last one reach the X display of this session"},
	}
}

func runSrun(call *tool.Call) error {
	if call.Opts.Text("mpi") == "list" {
		return listMPI(call.Stdout)
	}
	warnOf(call, stepOptions())
	if isVerbose(call, "SLURM_DEBUG") {
		printOptions(call)
	}
	list, err := splitComponents(call)
	if err != nil {
		return err
	}
	if len(list[len(list)-1].args) == 0 {
		return tool.Fail(1, "srun: fatal: No command given to execute.")
	}
	filter, err := loadFilter(call)
	if err != nil {
		return err
	}
	if call.Opts.On("test-only") {
		return testOnly(call, list, filter)
	}
	job := stepJob(call)
	if job == "" {
		return srunAlone(call, list, filter)
	}
	if value, ok := call.Opts.Get("clusters"); !ok || value.From != opt.FromCommand {
		return srunWithin(call, job, list, filter) // the job is in the cluster of its node
	}
	return call.OneCluster(func(call *tool.Call) error {
		return srunWithin(call, job, list, filter)
	})
}

// stepJob is the job in which a step is to start; empty where srun makes a job.
func stepJob(call *tool.Call) string {
	return cmp.Or(call.Opts.Text("jobid"), call.Getenv("SLURM_JOB_ID"))
}

// srunWithin starts a step in a job, or in components of a heterogeneous job.
func srunWithin(call *tool.Call, job string, list []component, filter *siteFilter) error {
	asks, err := stepsWithin(call, job, list, filter)
	if err != nil {
		return err
	}
	if err := broadcastProgram(call, asks); err != nil {
		return err
	}
	code, err := runWithScripts(call, asks, func() (int, error) { return runStep(call, asks, filter, false) })
	return stepExit(call, code, err)
}
