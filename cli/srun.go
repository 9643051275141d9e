package cli

import (
	"fmt"
	"slices"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
)

func srunCommand() *command {
	c := &command{
		name: "srun", slurm: true, ownVerbose: true, badUsage: 255,
		summary: "run a command on the nodes of a job, or in a job of its own",
		usage:   []string{"[OPTIONS] COMMAND [ARGUMENTS]", "[OPTIONS] [COMMAND [ARGUMENTS]] : [OPTIONS] COMMAND [ARGUMENTS] ...", "--test-only [OPTIONS] COMMAND [ARGUMENTS]"},
		about: `In a batch script, or in the shell of salloc, it starts a step: the command runs as many times as there are tasks,
on the job's nodes, and srun shows what they write and ends with the highest of their exit codes. Anywhere else it asks
for an allocation first, runs its step there and gives the allocation back. With --test-only it only says when and where
it would start.

In a heterogeneous job a step runs in the first component, or in those that --het-group names; a : between two commands
makes it one step that runs the first in component 0, the second in component 1 and so on. Its tasks are numbered through
all of them and are one world to MPI. Outside of a job, a : asks for a heterogeneous job: options before each, and a
component without a command has that of the next.

One Ctrl-C shows which tasks run, a second within a second passes it on to them, a third ends the step. SIGTERM, SIGHUP,
SIGUSR1, SIGUSR2, SIGALRM and SIGCONT are passed on. A step ends with its srun, also when that is killed.`,
		env:   []variable{{"SLURM_EXIT_ERROR", "exit code when the step or the job cannot start, instead of 1"}},
		exits: []variable{{"255", "an option cannot be read"}, {"as the tasks", "the highest of their exit codes; 128 and the signal for one that a signal ended"}},
		example: []example{
			{"srun -n 8 --label hostname", "in a batch script: eight tasks on the job's nodes, each line with the number of its task"},
			{"srun --exact -n 1 --gpus=1 train 1 & srun --exact -n 1 --gpus=1 train 2 & wait", "two steps side by side, a GPU each"},
			{"srun -p gpu --gres=gpu:1 -t 30 --pty bash", "a shell on a node with a GPU"},
			{"srun -n 1 -c 8 server : -n 16 client", "a heterogeneous job of two components, and one step in both"},
			{"srun --test-only -N 4 --gres=gpu:8 train", "says when and where it would start"},
		},
		run: runSrun,
	}
	c.options = srunOptions()
	return c
}

// srunOptions are sbatch's, but for those of batch scripts and those that mean
// something else for steps; its variables are those of srun.
func srunOptions() []opt.Option {
	out := liveOptions("SLURM_", "SLURM_CLUSTERS", stepOptions())
	for i := range out {
		switch out[i].Long {
		case "ntasks":
			out[i].Env = "SLURM_NTASKS SLURM_NPROCS"
		case "nodes":
			out[i].Env = "SLURM_NNODES SLURM_JOB_NUM_NODES"
		case "cpus-per-task":
			out[i].Env = "SLURM_CPUS_PER_TASK SRUN_CPUS_PER_TASK"
		case "ntasks-per-node":
			out[i].Env = "SLURM_NTASKS_PER_NODE"
		case "export":
			out[i].Env = "SLURM_EXPORT_ENV"
		case "chdir":
			out[i].Env = "SLURM_WORKING_DIR"
		}
	}
	return out
}

// liveOptions are the options of a command whose user waits for the job: those
// of sbatch without those of batch scripts, and more.
func liveOptions(prefix, clusters string, more []opt.Option) []opt.Option {
	batch := []string{"array", "batch", "export-file", "hold", "ignore-pbs", "no-requeue", "parsable", "requeue", "wait", "wait-all-nodes", "wrap", "bbf", "oom-kill-step"}
	var out []opt.Option
	for _, o := range jobOptions() {
		own := func(m opt.Option) bool { return m.Long == o.Long }
		if slices.Contains(batch, o.Long) || slices.ContainsFunc(more, own) {
			continue
		}
		o.Option.Env = strings.ReplaceAll(o.Env, "SBATCH_", prefix)
		if o.Long == "clusters" {
			o.Option.Env = clusters
		}
		out = append(out, o.Option)
	}
	return append(out, more...)
}

// immediateOption is -I of srun and salloc.
func immediateOption(env string) opt.Option {
	return opt.Option{Long: "immediate", Short: "I", Arg: "seconds", Maybe: true, Env: env, Help: "give up when it cannot start within so many seconds, one without a number"}
}

// stepOptions are those of steps.
//
//muster:table one row for each option
func stepOptions() []opt.Option {
	const (
		noScript = "the site's prologs run on the nodes; srun runs none of its own"
		noCast   = "libraries are not copied with --bcast: use sbcast"
	)
	return []opt.Option{
		{Long: "accel-bind", Arg: "<options>", Refused: "use --gpu-bind"},
		{Long: "async", Refused: "put it into the background of the shell"},
		{Long: "bcast", Arg: "<dest_path>", Maybe: true, Env: "SLURM_BCAST", Help: "copy the program to this path on the job's nodes first and run the copy; a folder with / at its end, or no path for the working directory, gives it a name"},
		{Long: "bcast-exclude", Arg: "<exclude_path>", Env: "SLURM_BCAST_EXCLUDE", Refused: noCast},
		compressOption("SLURM_COMPRESS"),
		{Long: "cpu-bind", Arg: "[verbose,]<type>", Env: "SLURM_CPU_BIND", Help: "which of the step's CPUs each task has: cores, threads, rank, map_cpu:list, mask_cpu:list; none: they share them"},
		{Long: "disable-status", Short: "X", Env: "SLURM_DISABLE_STATUS", Help: "the first Ctrl-C goes to the tasks"},
		{Long: "distribution", Short: "m", Arg: "block|cyclic|plane=<size>", Env: "SLURM_DISTRIBUTION", Help: "how tasks are numbered and dealt over the nodes"},
		{Long: "epilog", Arg: "<executable>", Env: "SLURM_EPILOG", Refused: noScript},
		{Long: "error", Short: "e", Arg: "<filename_pattern>", Env: "SLURM_STDERRMODE", Help: "where the standard error of the tasks goes, as --output"},
		{Long: "exact", Env: "SLURM_EXACT", Help: "take only the CPUs that the tasks ask for; else all of the job's on the step's nodes"},
		{Long: "exclusive", Arg: "user|mcs|topo", Maybe: true, Env: "SLURM_EXCLUSIVE", Help: "of a job: share no node with others; of a step: as --exact"},
		{Long: "external-launcher", Env: "SLURM_EXTERNAL_LAUNCHER", Help: "start the daemons of an MPI's own launcher: the step shares everything and holds nothing"},
		{Long: "get-user-env", Arg: "<timeout>[mode]", Maybe: true, Refused: "the tasks have srun's own variables"},
		{Long: "het-group", Arg: "<expr>", Env: "SLURM_HET_GROUP", Help: "the components of a heterogeneous job that the step runs in: 0,2-3; the first is 0"},
		immediateOption("SLURM_IMMEDIATE"),
		{Long: "input", Short: "i", Arg: "<mode>", Env: "SLURM_STDINMODE", Help: "who reads srun's input: all (so without the option), none, the number of a task; or a file, with %t one for each task"},
		{Long: "jobid", Arg: "<jobid>", Help: "start a step in this job of yours"},
		{Long: "kill-on-bad-exit", Short: "K", Arg: "0|1", Maybe: true, Env: "SLURM_KILL_BAD_EXIT", Help: "end the step when a task ends with an exit code that is not 0"},
		{Long: "label", Short: "l", Env: "SLURM_LABELIO", Help: "put the number of its task before each line"},
		{Long: "mpi", Arg: "<mpi_type>", Env: "SLURM_MPI_TYPE", Help: "pmi2 (so without the option; PMI-1 too), none; list names them. What needs PMIx is started with mpirun in the allocation"},
		{Long: "msg-timeout", Arg: "<seconds>", Help: "how long nodes may take to answer", Always: "srun waits as long as the nodes need"},
		{Long: "multi-prog", Env: "SLURM_MULTI_PROG", Help: "the command is a file that names the programs of the tasks"},
		{Long: "no-allocate", Short: "Z", Refused: "whatever runs on a node is in the ledger"},
		{Long: "ntasks-per-tres", Arg: "<ntasks>", Refused: "use --ntasks-per-gpu"},
		{Long: "output", Short: "o", Arg: "<mode>", Env: "SLURM_STDOUTMODE", Help: "where the standard output of the tasks goes: here (all), none, only that of a task by its number, or a file; %t, %n and %N in its name make one for each task or node"},
		{Long: "overlap", Env: "SLURM_OVERLAP", Help: "share CPUs, memory and GPUs with the job's other steps"},
		{Long: "preserve-env", Short: "E", Env: "SLURM_PRESERVE_ENV", Help: "keep the job's numbers of nodes and tasks", Always: "the number of nodes and tasks is that of the step"},
		{Long: "prolog", Arg: "<executable>", Env: "SLURM_PROLOG", Refused: noScript},
		{Long: "pty", Arg: "<fd>", Maybe: true, Env: "SLURM_PTY", Help: "the first task gets a terminal, with this one behind it"},
		{Long: "quit-on-interrupt", Help: "the first Ctrl-C ends the step"},
		{Long: "relative", Short: "r", Arg: "<n>", Help: "begin with this node of the job, the first being 0"},
		{Long: "resv-ports", Arg: "count", Maybe: true, Env: "SLURM_RESV_PORTS", Refused: "no ports are reserved"},
		{Long: "send-libs", Arg: "yes|no", Maybe: true, Refused: noCast},
		{Long: "slurmd-debug", Arg: "<level>", Env: "SLURMD_DEBUG", Refused: "what a node logs is set there"},
		{Long: "task-epilog", Arg: "<executable>", Env: "SLURM_TASK_EPILOG", Help: "run this after each task"},
		{Long: "task-prolog", Arg: "<executable>", Env: "SLURM_TASK_PROLOG", Help: "run this before each task; it can set variables"},
		{Long: "threads", Short: "T", Arg: "<nthreads>", Env: "SLURM_THREADS", Help: "threads that start a step", Always: "one message starts a step on all its nodes"},
		{Long: "treewidth", Arg: "<size>", Env: "SLURM_TREE_WIDTH", Help: "how messages are fanned out", Always: "one message starts a step on all its nodes"},
		{Long: "unbuffered", Short: "u", Env: "SLURM_UNBUFFEREDIO", Help: "show output as it comes, not line by line"},
		{Long: "wait", Short: "W", Arg: "<seconds>", Env: "SLURM_WAIT", Help: "end the step so many seconds after the first task has ended"},
		{Long: "wait-for-children", Help: "wait for what the tasks leave behind", Always: "a step is over when no process of it is left"},
		{Long: "x11", Maybe: true, Arg: "all|first|last", Env: "SLURM_X11", Refused: "no displays are forwarded"},
	}
}

func runSrun(c *call) error {
	if c.opts.Text("mpi") == "list" {
		return fail(0, "MPI plugin types are...", "\tnone", "\tpmi2")
	}
	list, err := c.components()
	if err != nil {
		return err
	}
	if len(list[len(list)-1].args) == 0 {
		return fail(1, "srun: fatal: No command given to execute.")
	}
	if err := c.checkClusters(); err != nil {
		return err
	}
	if c.opts.On("test-only") {
		return c.testOnly(list)
	}
	job := c.opts.Text("jobid")
	if job == "" {
		job = c.Getenv("SLURM_JOB_ID")
	}
	if job == "" {
		return c.srunAlone(list)
	}
	return c.srunWithin(job, list)
}

func (c *call) testOnly(list []component) error {
	_, specs, err := c.liveJobs(list)
	if err != nil {
		return err
	}
	var rep apiv1.SubmitReply
	if err := c.ask(methodSubmit, &apiv1.SubmitRequest{Spec: specs[0], Rest: specs[1:], TestOnly: true}, &rep); err != nil {
		return c.submitFailed(err, true)
	}
	if !c.opts.On("quiet") {
		c.sayTested(&rep)
	}
	return nil
}

// liveJob is the job of an srun or salloc: without a script, and over with it.
func (c *call) liveJob(argv []string) (*apiv1.JobSpec, error) {
	js := &apiv1.JobSpec{WorkDir: c.Dir, SubmitLine: c.submitLine(), SubmitHost: c.Host, Umask: c.umask(), Rlimits: c.Rlimits(), Shell: true, Attended: true}
	if len(argv) > 0 {
		js.Name, js.Command, js.Args = baseName(argv[0]), argv[0], argv[1:]
	}
	if err := c.request(js, c.opts); err != nil {
		return nil, err
	}
	js.Stdin, js.Stdout, js.Stderr = "", "", "" // they are the step's
	return js, nil
}

// sayTested prints the answer to --test-only.
func (c *call) sayTested(rep *apiv1.SubmitReply) {
	for line := range strings.Lines(rep.GetMessage()) {
		fmt.Fprintf(c.Stderr, "%s: %s\n", c.cmd.name, strings.TrimRight(line, "\n"))
	}
	fmt.Fprintf(c.Stderr, "%s: Job %d to start at %s using %d processors on nodes %s in partition %s\n", c.cmd.name, rep.GetJobId(),
		c.time(rep.GetPlannedStart()), rep.GetPlannedCpus(), rep.GetPlannedNodes(), rep.GetPlannedPartition())
}
