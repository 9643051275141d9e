package cli

import (
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/spec"
)

// jobOptions are sbatch's options, in the order of Slurm's manual.
//
//muster:table one row for each option
func jobOptions() []jobOption {
	yes := func(long, short, arg, env, help string, apply applier) jobOption {
		return jobOption{opt.Option{Long: long, Short: short, Arg: arg, Env: env, Help: help}, apply}
	}
	maybe := func(long, short, arg, env, help string, apply applier) jobOption {
		return jobOption{opt.Option{Long: long, Short: short, Arg: arg, Maybe: true, Env: env, Help: help}, apply}
	}
	no := func(long, short, arg, env, why string) jobOption {
		return jobOption{opt.Option{Long: long, Short: short, Arg: arg, Env: env, Refused: why}, nil}
	}
	noMaybe := func(long, short, arg, env, why string) jobOption {
		return jobOption{opt.Option{Long: long, Short: short, Arg: arg, Maybe: true, Env: env, Refused: why}, nil}
	}
	const (
		noBB        = "there are no burst buffers"
		noBind      = "tasks are not bound apart yet; each job is confined to its own CPUs and GPUs"
		noContainer = "OCI containers are not started yet"
		noMail      = "the wish is kept with the job, but this release sends no mail"
		noPower     = "nodes are not booted on demand"
	)
	return []jobOption{
		yes("account", "A", "<account>", "SBATCH_ACCOUNT", "charge this account", textTo(func(s *apiv1.JobSpec) *string { return &s.Account })),
		yes("acctg-freq", "", "<datatype>=<interval>", "SBATCH_ACCTG_FREQ", "sample CPU and memory every so many seconds (task=30), or never (task=0)", applyAcctgFreq),
		yes("array", "a", "<indexes>", "SBATCH_ARRAY_INX", "submit an array: 0-15, 1,3,7, 0-31:4, 0-99%10", applyArray),
		no("batch", "", "<list>", "SBATCH_BATCH", "the batch script runs on the job's first node"),
		no("bb", "", "<spec>", "", noBB),
		no("bbf", "", "<file_name>", "", noBB),
		yes("begin", "b", "<time>", "", "do not start before this time: now+1hour, 16:00, 2026-12-01T08:00", momentTo("begin", func(s *apiv1.JobSpec) *int64 { return &s.Begin })),
		yes("chdir", "D", "<directory>", "", "run in this folder instead of the current one",
			func(r *jobRequest, v opt.Value) error { r.spec.WorkDir = r.path(v.Text); return nil }),
		no("cluster-constraint", "", "[!]<list>", "", "there is no federation"),
		yes("clusters", "M", "<string>", "SBATCH_CLUSTERS SLURM_CLUSTERS", "check that this is the cluster's name, and print it with the job's number", nil),
		yes("comment", "", "<string>", "", "a text to show with the job", textTo(func(s *apiv1.JobSpec) *string { return &s.Comment })),
		{opt.Option{Long: "consolidate-segments", Help: "put the segments into as few blocks as may be", Always: "segments are placed in as few blocks as may be"}, nil},
		yes("constraint", "C", "<list>", "SBATCH_CONSTRAINT", "only nodes with these features: a&b, a|b", textTo(func(s *apiv1.JobSpec) *string { return &s.Constraint })),
		no("container", "", "<path_to_container>", "SBATCH_CONTAINER", noContainer),
		no("container-id", "", "<container_id>", "SBATCH_CONTAINER_ID", noContainer),
		yes("contiguous", "", "", "", "only nodes that are neighbours", switchTo(func(s *apiv1.JobSpec) *bool { return &s.Contiguous })),
		yes("core-spec", "S", "<num>", "SBATCH_CORE_SPEC", "leave this many cores of each node to the system; the job has its nodes for itself", countTo("core-spec", func(s *apiv1.JobSpec) *uint32 { return &s.CoreSpec })),
		yes("cores-per-socket", "", "<cores>", "", "only nodes with at least so many cores on each socket", countTo("cores-per-socket", func(s *apiv1.JobSpec) *uint32 { return &s.CoresPerSocket })),
		no("cpu-freq", "", "<p1>[-p2][:p3]", "", "frequencies are not set"),
		yes("cpus-per-gpu", "", "<ncpus>", "SBATCH_CPUS_PER_GPU", "CPUs for each GPU", countTo("cpus-per-gpu", func(s *apiv1.JobSpec) *uint32 { return &s.CpusPerGpu })),
		yes("cpus-per-task", "c", "<ncpus>", "", "CPUs for each task", countTo("cpus-per-task", func(s *apiv1.JobSpec) *uint32 { return &s.CpusPerTask })),
		yes("deadline", "", "<time>", "", "remove the job if it cannot end by this time", momentTo("deadline", func(s *apiv1.JobSpec) *int64 { return &s.Deadline })),
		no("delay-boot", "", "<minutes>", "SBATCH_DELAY_BOOT", noPower),
		yes("dependency", "d", "<dependency_list>", "", "wait for other jobs: afterok:12:13,singleton", applyDependency),
		no("distribution", "m", "<type>", "SBATCH_DISTRIBUTION", "say it to the srun in the script"),
		yes("error", "e", "<filename_pattern>", "SBATCH_ERROR", "file of the standard error; else it goes where the output goes", textTo(func(s *apiv1.JobSpec) *string { return &s.Stderr })),
		yes("exclude", "x", "<node_name_list>", "", "not on these nodes", applyHosts("exclude", func(s *apiv1.JobSpec) *string { return &s.Exclude })),
		maybe("exclusive", "", "user|mcs|topo", "SBATCH_EXCLUSIVE", "share no node with other jobs, with those of other users or of another MCS label, or no block of the topology", applyExclusive),
		yes("export", "", "ALL|NONE|NIL|<variables>", "SBATCH_EXPORT", "which variables the job gets; NAME=value sets one", nil),
		yes("export-file", "", "<filename>|<fd>", "", "read more variables from a file of NAME=value with a NUL after each", nil),
		yes("extra", "", "<string>", "", "a further text to keep with the job", textTo(func(s *apiv1.JobSpec) *string { return &s.Extra })),
		yes("extra-node-info", "B", "<sockets>[:cores[:threads]]", "", "as --sockets-per-node, --cores-per-socket and --threads-per-core; * = any", applyNodeInfo),
		maybe("get-user-env", "", "<timeout>[mode]", "SBATCH_GET_USER_ENV", "let the node make the user's login environment", nil),
		no("gid", "", "<group>", "", "who submits is known from the connection"),
		yes("gpu-bind", "", "[verbose,]<type>", "SBATCH_GPU_BIND", "which of the GPUs each task has that muster gpu-bind starts: closest, single:N, per_task:N, map_gpu:list, mask_gpu:list, none", applyGPUBind),
		yes("gpu-freq", "", "[<type>=]<value>", "SBATCH_GPU_FREQ", "clocks of the job's GPUs: low, medium, high, highm1 or MHz, memory=… of their memory; verbose says what was set", applyGPUFreq),
		yes("gpus", "G", "[type:]<number>", "SBATCH_GPUS", "GPUs for the whole job", gresTo("gpus", "gpu", func(s *apiv1.JobSpec) *[]*apiv1.Count { return &s.PerJob })),
		yes("gpus-per-node", "", "[type:]<number>", "SBATCH_GPUS_PER_NODE", "GPUs on each node", gresTo("gpus-per-node", "gpu", func(s *apiv1.JobSpec) *[]*apiv1.Count { return &s.PerNode })),
		yes("gpus-per-socket", "", "[type:]<number>", "", "GPUs near each of the sockets that --sockets-per-node asks for", gresTo("gpus-per-socket", "gpu", func(s *apiv1.JobSpec) *[]*apiv1.Count { return &s.PerSocket })),
		yes("gpus-per-task", "", "[type:]<number>", "SBATCH_GPUS_PER_TASK", "GPUs for each task", gresTo("gpus-per-task", "gpu", func(s *apiv1.JobSpec) *[]*apiv1.Count { return &s.PerTask })),
		yes("gres", "", "<list>", "SBATCH_GRES", "generic resources on each node: gpu:2, gpu:h100:1,nic:1", applyGRES),
		no("gres-flags", "", "<type>", "SBATCH_GRES_FLAGS", noBind),
		yes("hint", "", "multithread|nomultithread|compute_bound", "SBATCH_HINT", "whether tasks use all threads of a core or one", applyHint),
		yes("hold", "H", "", "", "accept the job, but do not start it until it is released", switchTo(func(s *apiv1.JobSpec) *bool { return &s.Hold })),
		{opt.Option{Long: "ignore-pbs", Env: "SBATCH_IGNORE_PBS", Help: "ignore #PBS lines", Always: "they are never read"}, nil},
		yes("input", "i", "<filename_pattern>", "SBATCH_INPUT", "file of the standard input", textTo(func(s *apiv1.JobSpec) *string { return &s.Stdin })),
		yes("job-name", "J", "<jobname>", "SBATCH_JOB_NAME", "name of the job; else that of the script", textTo(func(s *apiv1.JobSpec) *string { return &s.Name })),
		yes("kill-on-invalid-dep", "", "yes|no", "", "whether the job ends when its dependency can never be met", applyKillInvalid),
		yes("licenses", "L", "<license>[:count],...", "", "licences that the job holds; a|b = one of them", applyLicenses),
		{opt.Option{Long: "mail-type", Arg: "<type>", Help: "when mail is wished for: NONE, BEGIN, END, FAIL, REQUEUE, ALL, TIME_LIMIT", Warn: noMail}, applyMailType},
		{opt.Option{Long: "mail-user", Arg: "<user>", Help: "who is to get it"}, textTo(func(s *apiv1.JobSpec) *string { return &s.MailUser })},
		no("mcs-label", "", "<mcs>", "", "there are no MCS labels"),
		yes("mem", "", "<size>[units]", "SBATCH_MEM_PER_NODE", "memory on each node (MiB, or with K, M, G, T); 0 = all of it", applyMemory),
		no("mem-bind", "", "<type>", "SBATCH_MEM_BIND", noBind),
		yes("mem-per-cpu", "", "<size>[units]", "SBATCH_MEM_PER_CPU", "memory for each CPU", memoryTo("mem-per-cpu", func(s *apiv1.JobSpec) *int64 { return &s.MemPerCpu })),
		yes("mem-per-gpu", "", "<size>[units]", "SBATCH_MEM_PER_GPU", "memory for each GPU", memoryTo("mem-per-gpu", func(s *apiv1.JobSpec) *int64 { return &s.MemPerGpu })),
		yes("mincpus", "", "<n>", "", "at least this many CPUs on each node", countTo("mincpus", func(s *apiv1.JobSpec) *uint32 { return &s.MinCpusPerNode })),
		no("network", "", "<type>", "SBATCH_NETWORK", "there is no switch to set up"),
		maybe("nice", "", "adjustment", "", "lower the job's priority by this much, 100 without a number", applyNice),
		maybe("no-kill", "k", "off", "SBATCH_NO_KILL", "go on when a node is lost, but for the first, where the script runs; off takes that back", applyNoKill),
		yes("no-requeue", "", "", "SBATCH_NO_REQUEUE", "never requeue the job", applyNoRequeue),
		yes("nodefile", "F", "<node_file>", "", "on the nodes that this file names", applyNodeFile),
		yes("nodelist", "w", "<node_name_list>", "", "on these nodes", applyHosts("nodelist", func(s *apiv1.JobSpec) *string { return &s.Nodes })),
		yes("nodes", "N", "<minnodes>[-maxnodes]", "", "how many nodes", applyNodes),
		yes("ntasks", "n", "<number>", "", "how many tasks", countTo("ntasks", func(s *apiv1.JobSpec) *uint32 { return &s.Tasks })),
		yes("ntasks-per-core", "", "<ntasks>", "", "tasks on each core", countTo("ntasks-per-core", func(s *apiv1.JobSpec) *uint32 { return &s.TasksPerCore })),
		yes("ntasks-per-gpu", "", "<ntasks>", "", "tasks for each GPU", countTo("ntasks-per-gpu", func(s *apiv1.JobSpec) *uint32 { return &s.TasksPerGpu })),
		yes("ntasks-per-node", "", "<ntasks>", "", "tasks on each node", countTo("ntasks-per-node", func(s *apiv1.JobSpec) *uint32 { return &s.TasksPerNode })),
		yes("ntasks-per-socket", "", "<ntasks>", "", "at most so many tasks for each socket of a node; their CPUs are spread over the sockets", countTo("ntasks-per-socket", func(s *apiv1.JobSpec) *uint32 { return &s.TasksPerSocket })),
		noMaybe("oom-kill-step", "", "0|1", "", "the kernel ends what needs the memory; srun -K ends the rest"),
		yes("open-mode", "", "append|truncate", "SBATCH_OPEN_MODE", "how the output files are opened", applyOpenMode),
		yes("output", "o", "<filename_pattern>", "SBATCH_OUTPUT", "file of the standard output; else slurm-%j.out, slurm-%A_%a.out of arrays", textTo(func(s *apiv1.JobSpec) *string { return &s.Stdout })),
		yes("overcommit", "O", "", "SBATCH_OVERCOMMIT", "the tasks of a node share the CPUs of one task", switchTo(func(s *apiv1.JobSpec) *bool { return &s.Overcommit })),
		yes("oversubscribe", "s", "", "", "the job may share what it holds, where the partition allows it",
			func(r *jobRequest, _ opt.Value) error { r.spec.Sharing = uint32(spec.Oversubscribe); return nil }),
		yes("parsable", "", "", "", "print only the job's number (and ;cluster with -M)", nil),
		yes("partition", "p", "<partition_names>", "SBATCH_PARTITION", "partitions in which the job may run, whichever starts it first",
			func(r *jobRequest, v opt.Value) error { r.spec.Partitions = splitList(v.Text); return nil }),
		yes("prefer", "", "<list>", "", "features that are wished for, not needed", textTo(func(s *apiv1.JobSpec) *string { return &s.Prefer })),
		yes("priority", "", "<value>", "", "set the priority (operators)", applyPriority),
		no("profile", "", "<type>", "SBATCH_PROFILE", "every job's usage is recorded; there are no profile files"),
		maybe("propagate", "", "rlimit[,rlimit...]", "", "which limits of this shell the job gets: ALL (so without the option), NONE, or names", applyPropagate),
		yes("qos", "q", "<qos>", "SBATCH_QOS", "quality of service", textTo(func(s *apiv1.JobSpec) *string { return &s.Qos })),
		yes("quiet", "Q", "", "", "do not print that the job was submitted", nil),
		yes("reboot", "", "", "", "reboot the nodes first", switchTo(func(s *apiv1.JobSpec) *bool { return &s.Reboot })),
		maybe("requeue", "", "expedite", "SBATCH_REQUEUE", "requeue the job when its node fails or it is preempted", applyRequeue),
		yes("reservation", "", "<reservation_names>", "SBATCH_RESERVATION", "run in this reservation", textTo(func(s *apiv1.JobSpec) *string { return &s.Reservation })),
		no("resources", "", "<resource_names>", "", "there are no hierarchical resources; use --licenses"),
		noMaybe("resv-ports", "", "count", "", "no ports are reserved"),
		yes("segment", "", "<segment_size>", "SBATCH_SEGMENT_SIZE", "nodes in groups of so many, each within one block", countTo("segment", func(s *apiv1.JobSpec) *uint32 { return &s.Segment })),
		yes("signal", "", "[{R|B}:]<sig_num>[@sig_time]", "SBATCH_SIGNAL", "send this signal so many seconds before the end, 60 without a number; B: to the batch script only", applySignal),
		yes("sockets-per-node", "", "<sockets>", "", "only nodes with at least so many sockets", countTo("sockets-per-node", func(s *apiv1.JobSpec) *uint32 { return &s.SocketsPerNode })),
		yes("spread-job", "", "", "SBATCH_SPREAD_JOB", "use as many nodes as there may be, evenly", switchTo(func(s *apiv1.JobSpec) *bool { return &s.Spread })),
		yes("spread-segments", "", "", "", "each segment in a block of its own", switchTo(func(s *apiv1.JobSpec) *bool { return &s.SpreadSegments })),
		no("stepmgr", "", "", "", "the controller starts the steps of all jobs"),
		yes("switches", "", "<count>[@max-time]", "SBATCH_REQ_SWITCH", "at most this many leaf switches", applySwitches),
		yes("test-only", "", "", "", "say when and where the job would start, and submit nothing", nil),
		yes("thread-spec", "", "<num>", "SBATCH_THREAD_SPEC", "leave this many threads of each node to the system; the job has its nodes for itself", countTo("thread-spec", func(s *apiv1.JobSpec) *uint32 { return &s.ThreadSpec })),
		yes("threads-per-core", "", "<threads>", "SBATCH_THREADS_PER_CORE", "use so many threads of each core", countTo("threads-per-core", func(s *apiv1.JobSpec) *uint32 { return &s.ThreadsPerCore })),
		yes("time", "t", "<time>", "SBATCH_TIMELIMIT", "time limit: minutes, h:m:s, d-h, UNLIMITED", spanTo("time", func(s *apiv1.JobSpec) *int64 { return &s.TimeLimit })),
		yes("time-min", "", "<time>", "", "the least time limit that is enough", spanTo("time-min", func(s *apiv1.JobSpec) *int64 { return &s.TimeMin })),
		yes("tmp", "", "<size>[units]", "", "temporary disk space on each node", memoryTo("tmp", func(s *apiv1.JobSpec) *int64 { return &s.TmpDisk })),
		no("tres-bind", "", "<tres>:<type>", "SBATCH_TRES_BIND", noBind),
		yes("tres-per-task", "", "<list>", "SBATCH_TRES_PER_TASK", "resources of each task: cpu=4,gres/gpu=1", applyTRESPerTask),
		no("uid", "", "<user>", "", "who submits is known from the connection"),
		yes("use-min-nodes", "", "", "SBATCH_USE_MIN_NODES", "of a range of nodes take as few as will do", switchTo(func(s *apiv1.JobSpec) *bool { return &s.UseMinNodes })),
		yes("wait", "W", "", "SBATCH_WAIT", "wait for the job's end and return its exit code", nil),
		{opt.Option{Long: "wait-all-nodes", Arg: "<value>", Env: "SBATCH_WAIT_ALL_NODES", Help: "wait until every node is ready", Always: "a job starts only when all its nodes are"}, nil},
		yes("wckey", "", "<wckey>", "SBATCH_WCKEY", "a key by which work is told apart", textTo(func(s *apiv1.JobSpec) *string { return &s.Wckey })),
		yes("wrap", "", "<command_string>", "", "submit this command in a small shell script", nil),
	}
}

// applyGRES adds to what --gpus-per-node asks for.
func applyGRES(r *jobRequest, v opt.Value) error {
	have := r.spec.PerNode
	if err := gresTo("gres", "", func(s *apiv1.JobSpec) *[]*apiv1.Count { return &s.PerNode })(r, v); err != nil {
		return err
	}
	r.spec.PerNode = append(have, r.spec.PerNode...)
	return nil
}
