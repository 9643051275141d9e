package submit

import (
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
)

// JobOptions are sbatch's options, in the order of Slurm's manual.
//
//muster:table one row for each option
func JobOptions() []jobOption {
	yes := func(long, short, arg, env, help string, apply applier) jobOption {
		return jobOption{opt.Option{Long: long, Short: short, Arg: arg, Env: env, Help: help}, apply}
	}
	maybe := func(long, short, arg, env, help string, apply applier) jobOption {
		return jobOption{opt.Option{Long: long, Short: short, Arg: arg, Maybe: true, Env: env, Help: help}, apply}
	}
	no := func(long, short, arg, env, reason string) jobOption {
		return jobOption{
			opt.Option{Long: long, Short: short, Arg: arg, Env: env, Refused: reason}, nil,
		}
	}
	noMaybe := func(long, short, arg, env, reason string) jobOption {
		return jobOption{
			opt.Option{Long: long, Short: short, Arg: arg, Maybe: true, Env: env, Refused: reason},
			nil,
		}
	}
	tunes := func(long, arg, env, help, warn string) jobOption {
		return jobOption{opt.Option{Long: long, Arg: arg, Env: env, Help: help, Warn: warn}, ignoreTuning}
	}
	const (
		noBB      = "Muster has no burst buffers"
		noMemBind = "tasks are not bound to NUMA nodes: the kernel places their memory near their CPUs"
		noID      = "containers have no names of their own: each script and each step has one, which ends with it"
		noNamed   = "containers have no names: each script and each step has its own, which ends with it"
		noWriting = "the files of an image are not changed; write into --container-mounts, the home or /tmp"
		noRemap   = "the user is the same inside and outside of the container"
	)
	return []jobOption{
		yes("account", "A", "<account>", "SBATCH_ACCOUNT", "charge this account", textTo(func(s *apiv1.JobSpec) *string { return &s.Account })),
		yes("acctg-freq", "", "<datatype>=<interval>", "SBATCH_ACCTG_FREQ", "sampling interval of CPU and memory in seconds (task=30); task=0 disables", applyAcctgFreq),
		yes("array", "a", "<indexes>", "SBATCH_ARRAY_INX", "submit an array: 0-15, 1,3,7, 0-31:4, 0-99%10", applyArray),
		no("batch", "", "<list>", "SBATCH_BATCH", "the batch script runs on the job's first node"),
		no("bb", "", "<spec>", "", noBB),
		no("bbf", "", "<file_name>", "", noBB),
		yes("begin", "b", "<time>", "", "earliest start: now+1hour, 16:00, 2026-12-01T08:00", momentTo("begin", func(s *apiv1.JobSpec) *int64 { return &s.Begin })),
		yes("chdir", "D", "<directory>", "", "working directory of the job (default: the current one)",
			func(r *jobRequest, v opt.Value) error { r.spec.WorkDir = r.absolutePath(v.Text); return nil }),
		no("cluster-constraint", "", "[!]<list>", "", tool.NoFederation),
		yes("clusters", "M", "<string>", "SBATCH_CLUSTERS SLURM_CLUSTERS", "clusters to submit to: of several, or of all known ones with all, the one that starts the job first; its name is printed with the job id", nil),
		yes("comment", "", "<string>", "", "comment to show with the job", textTo(func(s *apiv1.JobSpec) *string { return &s.Comment })),
		{opt.Option{Long: "consolidate-segments", Help: "place the segments in as few blocks as possible", Always: "segments are always placed in as few blocks as possible"}, nil},
		yes("constraint", "C", "<list>", "SBATCH_CONSTRAINT", "required node features: a&b, a|b", textTo(func(s *apiv1.JobSpec) *string { return &s.Constraint })),
		yes("container", "", "<path_to_bundle>", "SBATCH_CONTAINER", "run in the OCI bundle in this folder, by its config.json", applyBundle),
		yes("container-env", "", "<NAME>[,NAME...]", "", "variables of the job that those of the image do not replace",
			containerTo(func(x *apiv1.Container, text string) error { x.Keep = tool.SplitList(text); return nil })),
		no("container-entrypoint", "", "", "", "the command is run, and not the image's entrypoint"),
		no("container-entrypoint-log", "", "", "", "the command is run, and not the image's entrypoint"),
		no("container-id", "", "<container_id>", "SBATCH_CONTAINER_ID", noID),
		yes("container-image", "", "[REGISTRY#]IMAGE[:TAG]|<folder>", "", "run in the files of this image: of a registry, or a folder with a file tree", containerTo(applyImage)),
		no("container-image-save", "", "<path>", "", noWriting),
		yes("container-mount-home", "", "", "", "show the home directory in the container", containerTo(func(x *apiv1.Container, _ string) error { x.Home = true; return nil })),
		yes("container-mounts", "", "SRC:DST[:ro][,SRC:DST...]", "", "files and folders of the node to show in the container", containerTo(applyMounts)),
		no("container-name", "", "<name>", "", noNamed),
		yes("container-readonly", "", "", "", "make the container's own files read-only; otherwise what is written there is lost at the end",
			containerTo(func(x *apiv1.Container, _ string) error { x.ReadOnly = true; return nil })),
		no("container-remap-root", "", "", "", noRemap),
		no("container-save", "", "<path>", "", noWriting),
		no("container-unshare", "", "<namespaces>", "", "the container has its own files and shares the rest with the node"),
		yes("container-workdir", "", "<directory>", "", "working directory in the container (default: the image's)", containerTo(applyContainerDir)),
		no("container-writable", "", "", "", noWriting),
		no("context", "", "<context>", "", "Muster does not set SELinux contexts"),
		yes("contiguous", "", "", "", "allocate adjacent nodes only", switchTo(func(s *apiv1.JobSpec) *bool { return &s.Contiguous })),
		yes("core-spec", "S", "<num>", "SBATCH_CORE_SPEC", "cores per node to reserve for the system; implies exclusive nodes", countTo("core-spec", func(s *apiv1.JobSpec) *uint32 { return &s.CoreSpec })),
		yes("cores-per-socket", "", "<cores>", "", "minimum number of cores per socket", countTo("cores-per-socket", func(s *apiv1.JobSpec) *uint32 { return &s.CoresPerSocket })),
		tunes("cpu-freq", "<p1>[-p2][:p3]", "", "CPU frequency", "CPU frequencies are left as the node has them"),
		yes("cpus-per-gpu", "", "<ncpus>", "SBATCH_CPUS_PER_GPU", "number of CPUs per GPU", countTo("cpus-per-gpu", func(s *apiv1.JobSpec) *uint32 { return &s.CpusPerGpu })),
		yes("cpus-per-task", "c", "<ncpus>", "", "number of CPUs per task", countTo("cpus-per-task", func(s *apiv1.JobSpec) *uint32 { return &s.CpusPerTask })),
		yes("deadline", "", "<time>", "", "cancel the job if it cannot end by this time", momentTo("deadline", func(s *apiv1.JobSpec) *int64 { return &s.Deadline })),
		{opt.Option{Long: "delay-boot", Arg: "<minutes>", Env: "SBATCH_DELAY_BOOT", Help: "time to wait for nodes that have the features without a reboot", Always: "nodes are never rebooted to change their features"}, nil},
		yes("dependency", "d", "<dependency_list>", "", "defer the start until other jobs reach a state: afterok:12:13,singleton", applyDependency),
		yes("distribution", "m", "{*|block|cyclic|arbitrary|plane=<size>}[:<sockets>[:<cores>]][,{Pack|NoPack}]", "SBATCH_DISTRIBUTION", "distribution of the tasks of steps over nodes; what is said of sockets and cores is passed on as $SLURM_DISTRIBUTION", applyDistribution),
		yes("error", "e", "<filename_pattern>", "SBATCH_ERROR", "file for standard error (default: same as standard output)", textTo(func(s *apiv1.JobSpec) *string { return &s.Stderr })),
		yes("exclude", "x", "<node_name_list>", "", "exclude these nodes", applyHosts("exclude", func(s *apiv1.JobSpec) *string { return &s.Exclude })),
		maybe("exclusive", "", "user|mcs|topo", "SBATCH_EXCLUSIVE", "do not share nodes with other jobs, with jobs of other users (user) or of other MCS labels (mcs), or do not share topology blocks (topo)", applyExclusive),
		yes("export", "", "ALL|NONE|NIL|<variables>", "SBATCH_EXPORT", "environment variables to pass to the job; NAME=value sets one", nil),
		yes("export-file", "", "<filename>|<fd>", "", "file or descriptor with further variables, NAME=value, each ending with a NUL", nil),
		no("external", "", "", "", "a job without a script on its nodes stands for pods of Kubernetes, and muster-kube makes those"),
		yes("extra", "", "<string>", "", "arbitrary text to store with the job", textTo(func(s *apiv1.JobSpec) *string { return &s.Extra })),
		yes("extra-node-info", "B", "<sockets>[:cores[:threads]]", "", "as --sockets-per-node, --cores-per-socket and --threads-per-core; * = any", applyNodeInfo),
		maybe("get-user-env", "", "<timeout>[mode]", "SBATCH_GET_USER_ENV", "read the login environment of the user on the node, for at most this many seconds; mode L: with the login files (default), S: without", applyLogin),
		yes("gid", "", "<group>", "", "group of the job: that of the submitting user, or as root another", applyGroup),
		yes("gpu-bind", "", "[verbose,]<type>", "SBATCH_GPU_BIND", "GPUs of each task that muster gpu-bind starts: closest, single:N, per_task:N, map_gpu:list, mask_gpu:list, none", applyGPUBind),
		yes("gpu-freq", "", "[<type>=]<value>", "SBATCH_GPU_FREQ", "clock frequency of the GPUs: low, medium, high, highm1 or MHz; memory=… for their memory; verbose prints what was set", applyGPUFreq),
		yes("gpus", "G", "[type:]<number>", "SBATCH_GPUS", "number of GPUs for the whole job", gresTo("gpus", "gpu", func(s *apiv1.JobSpec) *[]*apiv1.Count { return &s.PerJob })),
		yes("gpus-per-node", "", "[type:]<number>", "SBATCH_GPUS_PER_NODE", "number of GPUs per node", gresTo("gpus-per-node", "gpu", func(s *apiv1.JobSpec) *[]*apiv1.Count { return &s.PerNode })),
		yes("gpus-per-socket", "", "[type:]<number>", "", "number of GPUs per socket; requires --sockets-per-node", gresTo("gpus-per-socket", "gpu", func(s *apiv1.JobSpec) *[]*apiv1.Count { return &s.PerSocket })),
		yes("gpus-per-task", "", "[type:]<number>", "SBATCH_GPUS_PER_TASK", "number of GPUs per task", gresTo("gpus-per-task", "gpu", func(s *apiv1.JobSpec) *[]*apiv1.Count { return &s.PerTask })),
		yes("gres", "", "<list>", "SBATCH_GRES", "generic resources per node: gpu:2, gpu:h100:1,nic:1", applyGRES),
		jobOption{opt.Option{Long: "gres-flags", Arg: "<type>", Env: "SBATCH_GRES_FLAGS", Help: "how GPUs and CPUs are taken together: enforce-binding, disable-binding, multiple-tasks-per-sharing, one-task-per-sharing, allow-task-sharing",
			Warn: "GPUs near the job's CPUs are preferred, and others are taken where there are none"}, applyGRESFlags},
		yes("hint", "", "multithread|nomultithread|compute_bound", "SBATCH_HINT", "hint about the use of cores: multithread (all threads of a core), nomultithread (one), compute_bound", applyHint),
		yes("hold", "H", "", "", "submit the job in held state", switchTo(func(s *apiv1.JobSpec) *bool { return &s.Hold })),
		{opt.Option{Long: "ignore-pbs", Env: "SBATCH_IGNORE_PBS", Help: "ignore #PBS lines", Always: "#PBS lines are never read"}, nil},
		yes("input", "i", "<filename_pattern>", "SBATCH_INPUT", "file for standard input", textTo(func(s *apiv1.JobSpec) *string { return &s.Stdin })),
		yes("job-name", "J", "<jobname>", "SBATCH_JOB_NAME", "name of the job (default: the name of the script)", textTo(func(s *apiv1.JobSpec) *string { return &s.Name })),
		yes("kill-on-invalid-dep", "", "yes|no", "", "cancel the job when its dependency can never be satisfied", applyKillInvalid),
		yes("licenses", "L", "<license>[:count],...", "", "licences to allocate; a|b means one of them", applyLicenses),
		{opt.Option{Long: "mail-type", Arg: "<type>", Help: "events to send mail for: NONE, BEGIN, END, FAIL, REQUEUE, INVALID_DEPEND, ALL (these five), TIME_LIMIT, TIME_LIMIT_90, TIME_LIMIT_80, TIME_LIMIT_50, ARRAY_TASKS (for each task, not once for the array)"}, applyMailType},
		{opt.Option{Long: "mail-user", Arg: "<user>", Help: "recipient of the mail (default: the submitting user)"}, textTo(func(s *apiv1.JobSpec) *string { return &s.MailUser })},
		no("mcs-label", "", "<mcs>", "", "the label follows from MCSPlugin and cannot be chosen"),
		yes("mem", "", "<size>[units]", "SBATCH_MEM_PER_NODE", "memory per node in MiB, or with suffix K, M, G, T; 0 means all of it", applyMemory),
		tunes("mem-bind", "[{quiet|verbose},]<type>", "SBATCH_MEM_BIND", "binding of memory", noMemBind),
		yes("mem-per-cpu", "", "<size>[units]", "SBATCH_MEM_PER_CPU", "memory per CPU", memoryTo("mem-per-cpu", func(s *apiv1.JobSpec) *int64 { return &s.MemPerCpu })),
		yes("mem-per-gpu", "", "<size>[units]", "SBATCH_MEM_PER_GPU", "memory per GPU", memoryTo("mem-per-gpu", func(s *apiv1.JobSpec) *int64 { return &s.MemPerGpu })),
		yes("mincpus", "", "<n>", "", "minimum number of CPUs per node", countTo("mincpus", func(s *apiv1.JobSpec) *uint32 { return &s.MinCpusPerNode })),
		tunes("network", "<type>", "SBATCH_NETWORK", "network options", "network switches are not configured by jobs"),
		maybe("nice", "", "adjustment", "", "lower the priority of the job by this amount (default: 100)", applyNice),
		maybe("no-kill", "k", "off", "SBATCH_NO_KILL", "keep the job running when one of its nodes fails, except the first, where the script runs; off disables", applyNoKill),
		{opt.Option{Long: "no-container-entrypoint", Help: "do not run the image's entrypoint", Always: "the image's entrypoint is never run"}, nil},
		{opt.Option{Long: "no-container-mount-home", Help: "do not show the home directory in the container", Always: "it is shown with --container-mount-home only"}, nil},
		{opt.Option{Long: "no-container-remap-root", Help: "do not be root in the container", Always: noRemap}, nil},
		yes("no-requeue", "", "", "SBATCH_NO_REQUEUE", "do not requeue the job", applyNoRequeue),
		yes("nodefile", "F", "<node_file>", "", "file that lists the required nodes", applyNodeFile),
		yes("nodelist", "w", "<node_name_list>", "", "required nodes", applyHosts("nodelist", func(s *apiv1.JobSpec) *string { return &s.Nodes })),
		yes("nodes", "N", "<minnodes>[-maxnodes]", "", "number of nodes, or a range", applyNodes),
		yes("ntasks", "n", "<number>", "", "number of tasks", countTo("ntasks", func(s *apiv1.JobSpec) *uint32 { return &s.Tasks })),
		yes("ntasks-per-core", "", "<ntasks>", "", "number of tasks per core", countTo("ntasks-per-core", func(s *apiv1.JobSpec) *uint32 { return &s.TasksPerCore })),
		{opt.Option{Long: "ntasks-per-gpu", Also: "ntasks-per-tres", Arg: "<ntasks>", Help: "number of tasks per GPU"}, countTo("ntasks-per-gpu", func(s *apiv1.JobSpec) *uint32 { return &s.TasksPerGpu })},
		{opt.Option{Long: "ntasks-per-node", Also: "tasks-per-node", Arg: "<ntasks>", Help: "number of tasks per node"}, countTo("ntasks-per-node", func(s *apiv1.JobSpec) *uint32 { return &s.TasksPerNode })},
		yes("ntasks-per-socket", "", "<ntasks>", "", "maximum number of tasks per socket; their CPUs are spread over the sockets", countTo("ntasks-per-socket", func(s *apiv1.JobSpec) *uint32 { return &s.TasksPerSocket })),
		jobOption{opt.Option{Long: "oom-kill-step", Arg: "0|1", Maybe: true, Help: "end a whole step when a process of it runs out of memory", Warn: "the kernel kills the process that runs out of memory; srun -K ends the rest of the step"}, ignoreTuning},
		yes("open-mode", "", "append|truncate", "SBATCH_OPEN_MODE", "how to open output files", applyOpenMode),
		yes("output", "o", "<filename_pattern>", "SBATCH_OUTPUT", "file for standard output (default: slurm-%j.out; slurm-%A_%a.out for arrays)", textTo(func(s *apiv1.JobSpec) *string { return &s.Stdout })),
		yes("overcommit", "O", "", "SBATCH_OVERCOMMIT", "all tasks of a node share the CPUs of one task", switchTo(func(s *apiv1.JobSpec) *bool { return &s.Overcommit })),
		yes("oversubscribe", "s", "", "", "allow sharing of the allocated resources, if the partition permits it",
			func(r *jobRequest, _ opt.Value) error { r.spec.Sharing = uint32(spec.Oversubscribe); return nil }),
		yes("parsable", "", "", "", "print only the job id (and ;cluster with -M)", nil),
		yes("partition", "p", "<partition_names>", "SBATCH_PARTITION", "partitions that may run the job; the one that can start it first does",
			func(r *jobRequest, v opt.Value) error { r.spec.Partitions = tool.SplitList(v.Text); return nil }),
		yes("prefer", "", "<list>", "", "preferred, not required, node features", textTo(func(s *apiv1.JobSpec) *string { return &s.Prefer })),
		yes("priority", "", "<value>", "", "set the priority (operators)", applyPriority),
		tunes("profile", "<type>", "SBATCH_PROFILE", "profiles to record", "no profile files are written; usage is recorded for every job: muster report, muster gpu"),
		maybe("propagate", "", "rlimit[,rlimit...]", "", "resource limits of this shell to apply to the job: ALL (default), NONE, or names", applyPropagate),
		yes("qos", "q", "<qos>", "SBATCH_QOS", "quality of service", textTo(func(s *apiv1.JobSpec) *string { return &s.Qos })),
		yes("quiet", "Q", "", "", "do not print that the job was submitted", nil),
		yes("reboot", "", "", "", "reboot the nodes first", switchTo(func(s *apiv1.JobSpec) *bool { return &s.Reboot })),
		maybe("requeue", "", "expedite", "SBATCH_REQUEUE", "requeue the job if its node fails or it is preempted", applyRequeue),
		yes("reservation", "", "<reservation_names>", "SBATCH_RESERVATION", "reservation to run in", textTo(func(s *apiv1.JobSpec) *string { return &s.Reservation })),
		no("resources", "", "<resource_names>", "", "Muster has no hierarchical resources; use --licenses"),
		noMaybe("resv-ports", "", "count", "", "Muster does not reserve ports"),
		yes("segment", "", "<segment_size>", "SBATCH_SEGMENT_SIZE", "size of the groups of nodes, each of which is placed within one block", countTo("segment", func(s *apiv1.JobSpec) *uint32 { return &s.Segment })),
		yes("signal", "", "[{R|B}:]<sig_num>[@sig_time]", "SBATCH_SIGNAL", "signal to send some seconds before the time limit (default: 60); B: signals the batch script only", applySignal),
		yes("sockets-per-node", "", "<sockets>", "", "minimum number of sockets per node", countTo("sockets-per-node", func(s *apiv1.JobSpec) *uint32 { return &s.SocketsPerNode })),
		yes("spread-job", "", "", "SBATCH_SPREAD_JOB", "spread the job evenly over as many nodes as possible", switchTo(func(s *apiv1.JobSpec) *bool { return &s.Spread })),
		yes("spread-segments", "", "", "", "place each segment in a different block", switchTo(func(s *apiv1.JobSpec) *bool { return &s.SpreadSegments })),
		tunes("stepmgr", "", "", "create the job's steps on its first node", "the controller creates the steps of all jobs"),
		yes("switches", "", "<count>[@max-time]", "SBATCH_REQ_SWITCH", "maximum number of leaf switches", applySwitches),
		yes("test-only", "", "", "", "print when and where the job would start, without submitting it", nil),
		yes("thread-spec", "", "<num>", "SBATCH_THREAD_SPEC", "threads per node to reserve for the system; implies exclusive nodes", countTo("thread-spec", func(s *apiv1.JobSpec) *uint32 { return &s.ThreadSpec })),
		yes("threads-per-core", "", "<threads>", "SBATCH_THREADS_PER_CORE", "number of threads to use per core", countTo("threads-per-core", func(s *apiv1.JobSpec) *uint32 { return &s.ThreadsPerCore })),
		yes("time", "t", "<time>", "SBATCH_TIMELIMIT", "time limit: minutes, H:M:S, D-H, UNLIMITED", spanTo("time", func(s *apiv1.JobSpec) *int64 { return &s.TimeLimit })),
		yes("time-min", "", "<time>", "", "minimum time limit that is acceptable", spanTo("time-min", func(s *apiv1.JobSpec) *int64 { return &s.TimeMin })),
		yes("tmp", "", "<size>[units]", "", "temporary disk space per node", memoryTo("tmp", func(s *apiv1.JobSpec) *int64 { return &s.TmpDisk })),
		yes("tres-bind", "", "<tres>:[verbose,]<type>", "SBATCH_TRES_BIND", "binding of tasks to generic resources: gres/gpu:closest, as --gpu-bind", applyTRESBind),
		yes("tres-per-task", "", "<list>", "SBATCH_TRES_PER_TASK", "resources per task: cpu=4,gres/gpu=1", applyTRESPerTask),
		yes("uid", "", "<user>", "", "user of the job: the submitting one, or as root another", applyUser),
		yes("use-min-nodes", "", "", "SBATCH_USE_MIN_NODES", "allocate as few nodes of a range as possible", switchTo(func(s *apiv1.JobSpec) *bool { return &s.UseMinNodes })),
		yes("wait", "W", "", "SBATCH_WAIT", "wait until the job ends and return its exit code", nil),
		{opt.Option{Long: "wait-all-nodes", Arg: "<value>", Env: "SBATCH_WAIT_ALL_NODES", Help: "wait until all nodes are ready", Always: "a job always starts only when all its nodes are ready"}, applyWaitNodes},
		yes("wckey", "", "<wckey>", "SBATCH_WCKEY", "workload characterization key for accounting", textTo(func(s *apiv1.JobSpec) *string { return &s.Wckey })),
		yes("wrap", "", "<command_string>", "", "wrap this command in a shell script and submit it", nil),
		maybe("x11", "", "all|batch|first|last", "", "let programs on the node of the script (batch, the default), on all nodes, the first or the last one reach the X display of this session", applyX11),
	}
}

// applyGRES adds to what --gpus-per-node asks for.
func applyGRES(request *jobRequest, value opt.Value) error {
	have := request.spec.PerNode
	if err := gresTo("gres", "", func(s *apiv1.JobSpec) *[]*apiv1.Count { return &s.PerNode })(request, value); err != nil {
		return err
	}
	request.spec.PerNode = append(have, request.spec.PerNode...)
	return nil
}
