package clients

// launchers run jobs for a person or a program that waits for them.
func launchers() []client {
	return []client{
		{
			name: "submitit", version: "1.5.4", what: "Python functions as jobs",
			files: map[string]string{
				"submission.sh": `#!/bin/bash
#SBATCH --error={dir}/%j/%j_0_log.err
#SBATCH --job-name=submitit
#SBATCH --mem=500MB
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --open-mode=append
#SBATCH --output={dir}/%j/%j_0_log.out
#SBATCH --signal=USR2@90
#SBATCH --time=5
#SBATCH --wckey=submitit
srun --unbuffered --output {dir}/%j/%j_%t_log.out --error {dir}/%j/%j_%t_log.err {dir}/task.sh
`,
				"task.sh": `#!/bin/bash
echo started after ${SLURM_RESTART_COUNT:-0}
[ "${SLURM_RESTART_COUNT:-0}" = 0 ] || exit 0
trap 'echo checkpoint; scontrol requeue $SLURM_JOB_ID' USR2
touch {dir}/ready
while true; do sleep 0.1; done
`,
				"array.sh": `#!/bin/bash
#SBATCH --array=0-3%2
#SBATCH --job-name=submitit
#SBATCH --mem=100
#SBATCH --output={dir}/array_%A_%a.out
[ $SLURM_ARRAY_TASK_ID != 3 ] || exit 1
`,
			},
			steps: []step{
				{does: "submits; the folder of the output appears afterwards", line: "sbatch {dir}/submission.sh", reads: `job (?P<id>[0-9]+)`},
				{does: "makes that folder", line: "sleep 1; mkdir {dir}/{id}"},
				{does: "polls", line: "sacct -o JobID,State,NodeList --parsable2 -j {id}", reads: `^JobID\|State\|NodeList\n{id}\|RUNNING\|(?P<node>node\d)\n`, waits: true},
				{does: "waits for its task", line: "cat {dir}/ready", waits: true},
				{does: "asks for a checkpoint", line: "scancel {id} --signal USR2"},
				{does: "polls until the requeued job has ended", line: "sacct -o JobID,State,NodeList --parsable2 -j {id}", reads: `(?m)^{id}\|COMPLETED\|node\d$`, waits: true},
				{does: "reads the log of both runs", line: "cat {dir}/{id}/{id}_0_log.out", reads: `^started after 0\ncheckpoint\n(?s:.*)started after 1\n$`},
				{does: "submits an array", line: "sbatch {dir}/array.sh", reads: `job (?P<array>[0-9]+)`},
				{does: "polls its tasks", line: "sacct -o JobID,State,NodeList --parsable2 -j {array}", reads: `(?s)^JobID.*{array}_0\|COMPLETED\|node\d\n.*{array}_3\|FAILED\|node\d\n`, waits: true},
				{does: "submits once more", line: "sbatch --wrap 'sleep 600' -J submitit -o /dev/null", reads: `job (?P<slow>[0-9]+)`},
				{does: "polls", line: "sacct -o JobID,State,NodeList --parsable2 -j {slow}", reads: `(?m)^{slow}\|RUNNING\|node\d$`, waits: true},
				{does: "cancels", line: "scancel {slow}"},
				{does: "polls; the first word is the state", line: "sacct -o JobID,State,NodeList --parsable2 -j {slow}", reads: `(?m)^{slow}\|CANCELLED by \d+\|node\d$`, waits: true},
			},
		},
		{
			name: "Open OnDemand", version: "ood_core 0.31.1", what: "web portal; its Slurm adapter",
			steps: []step{
				{does: "counts nodes and CPUs", line: "sinfo -aho %F/%C", reads: `^\d+/\d+/\d+/2/\d+/\d+/\d+/16\n$`},
				{does: "counts GPUs", line: "sinfo -ahNO nodehost:100,gres:512,gresused:512,statelong", reads: `^\S+ +gpu:8 +gpu:\d\(\S+ +\w+ *$`, each: true},
				{does: "lists nodes", line: "sinfo -ho $'\\x1e%c\\x1f%n\\x1f%f'", reads: "^\x1e8\x1f\\S+\x1f\\(null\\)$", each: true},
				{does: "lists queues", line: "scontrol show part -o", reads: `^PartitionName=gpu (?:[^= ]+=\S* ?)+$`, each: true},
				{does: "lists the user's accounts", line: "sacctmgr -nP show users withassoc format=account,qos where user={user} cluster=muster", reads: `(?m)^lab\|normal$`},
				{does: "submits a held job", line: "sbatch -H -D {dir} -J ood -o {dir}/ood.out -t 00:10:00 -p gpu --gpus-per-node 1 --export NONE --parsable", stdin: sleeper, reads: `^(?P<id>\d+)(;\S+)?\n$`},
				{does: "reads all its fields", line: allFields("-j {id}"), reads: "^lab\x1f{id}\x1f(?:[^\x1f\n]*\x1f){32}PD\x1fPENDING\x1f(?:[^\x1f\n]*\x1f){13}gres[:/]gpu:1\x1f\n$"},
				{does: "releases it", line: "scontrol release {id}"},
				{does: "reads its state", line: "squeue --all --states=all --noconvert -O $'JobID:\\x1f,StateCompact:\\x1f,' -j {id} --noheader", reads: "^{id}\x1fR\x1f", waits: true},
				{does: "holds a running job, and shows what that says", line: "scontrol hold {id}", code: 1, reads: `Job is no longer pending execution`},
				{does: "deletes it", line: "scancel {id}"},
				{does: "reads its state", line: "squeue --all --states=all --noconvert -O $'JobID:\\x1f,StateCompact:\\x1f,' -j {id} --noheader", reads: "^{id}\x1fCA\x1f", waits: true},
				{does: "reads its history", line: "sacct -P --delimiter $'\\x1f' -n --units G --allocations -o User,Group,JobId,JobName,Elapsed,ReqMem,AllocCPUS,ReqCPUS,Timelimit,State,TotalCPU,MaxRSS,Partition,Submit,Start,End,ReqTRES --state CA -S {today} -E now -j {id}",
					reads: "^{user}\x1f[^\x1f]+\x1f{id}\x1food\x1f[\\d:]+\x1f0.49G\x1f1\x1f1\x1f00:10:00\x1fCANCELLED by \\d+\x1f", waits: true},
				{does: "submits an array", line: "sbatch -D {dir} -J ood -a 1-3%1 -o /dev/null --parsable", stdin: sleeper, reads: `^(?P<array>\d+)\n$`},
				{does: "tells tasks that wait from the one that runs", line: "squeue --all --states=all --noconvert --noheader -O $'JobArrayID:\\x1f,ArrayJobID:\\x1f,ArrayTaskID:\\x1f,StateCompact:\\x1f' -j {array}", reads: "(?m)^{array}_\\[2-3%1\\]\x1f{array}\x1f2-3%1\x1fPD\x1f\n(?s:.*){array}_1\x1f{array}\x1f1\x1fR\x1f$", waits: true},
				{does: "submits a job behind it", line: "sbatch -D {dir} -J ood -d afterok:{array},afterany:{array} -o /dev/null --parsable", stdin: sleeper, reads: `^(?P<next>\d+)\n$`},
				{does: "reads what it waits for", line: "squeue --all --states=all --noheader -O $'Dependency:\\x1f' -j {next}", reads: `^afterok:{array}_\*\(unfulfilled\),afterany:{array}_\*\(unfulfilled\)`},
				{does: "deletes both", line: "scancel {array} {next}"},
				{does: "asks for a job that it no longer finds", line: "squeue --all --states=all --noheader -O $'JobID:\\x1f' -j 999999", code: 1, reads: `Invalid job id specified`},
				{does: "shows why a submission failed", line: "sbatch -p nosuch --parsable", stdin: sleeper, code: 1, reads: `Invalid partition name specified`},
			},
		},
		{
			name: "batchspawner", version: "1.3.0", what: "JupyterHub's notebooks as jobs",
			steps: []step{
				{does: "submits", line: "sbatch --parsable", stdin: "#!/bin/bash\n#SBATCH --output={dir}/spawn.log\n#SBATCH --job-name=spawner-jupyterhub\n#SBATCH --chdir={dir}\n#SBATCH --export=PATH,JUPYTERHUB_API_TOKEN\n#SBATCH --get-user-env=L\n#SBATCH --mem=500\n#SBATCH --cpus-per-task=2\ntrap 'echo SIGTERM received' TERM\necho notebook starts\nsleep 600 & wait\n", reads: `^(?P<id>\d+)\n$`},
				{does: "polls for the host", line: "squeue -h -j {id} -o '%T %B'", reads: `^(?:RUNNING|COMPLETING)\s+(?P<host>node\d)\n$`, waits: true},
				{does: "connects to the notebook", line: "cat {dir}/spawn.log", reads: `notebook starts`, waits: true},
				{does: "stops the notebook", line: "scancel {id}"},
				{does: "polls until it is gone", line: "squeue -h -j {id} -t PD,R,CG -o '%T %B'", reads: `^$`, waits: true},
				{does: "reads the log", line: "cat {dir}/spawn.log", reads: `SIGTERM received`, waits: true},
			},
		},
		{
			name: "Lightning", version: "2.6", what: "training that requeues itself before its time limit",
			files: map[string]string{"train.sh": `#!/bin/bash
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=1
#SBATCH --signal=SIGUSR1@90
#SBATCH --time=10
#SBATCH --output={dir}/train-%j.out
#SBATCH --open-mode=append
srun {dir}/rank.sh
`, "rank.sh": `#!/bin/bash
echo rank $SLURM_PROCID of $SLURM_NTASKS local $SLURM_LOCALID node $SLURM_NODEID per $SLURM_NTASKS_PER_NODE on $SLURM_NODELIST as $SLURM_JOB_NAME
[ "${SLURM_RESTART_COUNT:-0}" = 0 ] || exit 0
trap 'touch {dir}/saved-$SLURM_PROCID; [ $SLURM_PROCID != 0 ] || scontrol requeue $SLURM_JOB_ID' USR1
trap 'echo bypassed SIGTERM' TERM
touch {dir}/ready-$SLURM_PROCID
while true; do sleep 0.1; done
`},
			steps: []step{
				{does: "submits", line: "sbatch {dir}/train.sh", reads: `Submitted batch job (?P<id>\d+)`},
				{does: "waits for its ranks", line: "cat {dir}/ready-0 {dir}/ready-1", waits: true},
				{does: "receives what --signal sends", line: "scancel --signal=USR1 {id}"},
				{does: "saves in every rank, requeues in one", line: "cat {dir}/saved-0 {dir}/saved-1", waits: true},
				{does: "ends in its second run", line: "sacct -X -n -P -j {id} -o State", reads: `^COMPLETED\n$`, waits: true},
				{does: "was restarted once", line: "scontrol show job {id}", reads: `Requeue=1 Restarts=1 `},
				{does: "found its ranks by environment", line: "sort -u {dir}/train-{id}.out", reads: `rank 0 of 2 local 0 node 0 per 1 on node\[1-2\] as train\nrank 1 of 2 local 0 node 1 per 1 on node\[1-2\] as train\n`},
			},
		},
		{
			name: "TorchX", version: "0.8", what: "distributed PyTorch jobs, also of several roles",
			open: "`srun a : b` writes the log of the second role into the file of the first",
			files: map[string]string{"torchx.sh": `#!/bin/bash
#SBATCH --job-name=trainer-0
#SBATCH --ntasks-per-node=1
#SBATCH --requeue
#SBATCH hetjob
#SBATCH --job-name=trainer-1
#SBATCH --ntasks-per-node=1
srun --output=slurm-"$SLURM_JOB_ID"-trainer-0.out --wait=60 --kill-on-bad-exit=1 echo role 0 : --output=slurm-"$SLURM_JOB_ID"-trainer-1.out echo role 1
`},
			steps: []step{
				{does: "looks for Slurm", line: "sinfo --version", reads: `^slurm (?P<major>\d+)\.\d+\.\d+\n$`},
				{does: "finds the memory of partitions", line: "sinfo --format %P,%m --noconvert", reads: `^PARTITION,MEMORY\ngpu\*,16000\n$`},
				{does: "submits two roles", line: "sbatch --parsable {dir}/torchx.sh", reads: `^(?P<id>\d+)\n$`},
				{does: "describes them", line: "squeue --json -j {id}", holds: "jobs.het_job_offset:{\"infinite\":false,\"number\":0,\"set\":true}.name=trainer-0"},
				{does: "waits for both", line: "sacct --parsable2 -j {id} -X -n -o JobID,State", reads: `^{id}\+0\|COMPLETED\n{id}\+1\|COMPLETED\n$`, waits: true},
				{does: "reads the logs of the roles", line: "sort slurm-{id}-trainer-*.out", reads: `^role 0\nrole 1\n$`},
				{does: "lists all jobs ever", line: "sacct --json -S1970-01-01-00:00:01", holds: "jobs.job_id:{id}.state.current.0=COMPLETED"},
			},
		},
		{
			name: "NeMo-Run", version: "nightly of 2026-08", what: "experiments of NVIDIA NeMo, also on Ray",
			steps: []step{
				{does: "submits", line: "sbatch --requeue --parsable", stdin: "#!/bin/bash\n#SBATCH --account=lab\n#SBATCH --partition=gpu\n#SBATCH --job-name=lab-nemo.exp\n#SBATCH --nodes=1\n#SBATCH --ntasks-per-node=2\n#SBATCH --gpus-per-node=2\n#SBATCH --time=00:10:00\n#SBATCH --exclusive=user\n#SBATCH --open-mode=append\n#SBATCH --output={dir}/nemo_%j.out\nnodes=( $( scontrol show hostnames $SLURM_JOB_NODELIST ) )\nhead_node_ip=$(srun --nodes=1 --ntasks=1 -w \"${nodes[0]}\" hostname)\nsrun --output {dir}/log_%j_${SLURM_RESTART_COUNT:-0}.out --wait=60 --kill-on-bad-exit=1 --overlap bash -c 'echo $SLURM_PROCID/$SLURM_NTASKS'\nsleep 600\n", reads: `^(?P<id>\d+)\n$`},
				{does: "asks when it starts", line: "squeue --start --noheader -j {id} -o '%i|%S|%T'", reads: `^({id}\|\S+\|PENDING\n)?$`},
				{does: "polls", line: "sacct --parsable2 -j {id}", reads: `(?m)^{id}\|lab-nemo.exp\|gpu\|lab\|2\|RUNNING\|0:0$`, waits: true},
				{does: "polls Ray's cluster", line: "squeue -j {id} -h -o %T", reads: `^RUNNING\n$`},
				{does: "finds a job by its name", line: "squeue -n lab-nemo.exp -h -o %A", reads: `^{id}\n$`},
				{does: "reads the log", line: "sort {dir}/log_{id}_0.out", reads: `^0/2\n1/2\n$`, waits: true},
				{does: "cancels", line: "scancel {id}"},
				{does: "polls", line: "sacct --parsable2 -j {id} -X -n -o State", reads: `^CANCELLED by \d+\n$`, waits: true},
			},
		},
		{
			name: "SkyPilot", version: "commands of 0.11", what: "jobs over clouds and clusters",
			steps: []step{
				{does: "lists partitions", line: "scontrol show partitions -o", reads: `^PartitionName=gpu .*Default=YES`, each: true},
				{does: "lists nodes, its separator as typed", line: `sinfo -h --Node -o "%N\\x1f%t\\x1f%G\\x1f%c\\x1f%m\\x1f%P"`, reads: `^node\d\\x1f\S+\\x1fgpu:8\\x1f8\\x1f16000\\x1fgpu\*$`, each: true},
				{does: "submits a job that is a cluster", line: "sbatch --partition=gpu", stdin: "#!/bin/bash\n#SBATCH --job-name=sky-one\n#SBATCH --output={dir}/sky.out\n#SBATCH --nodes=2\n#SBATCH --cpus-per-task=1\n#SBATCH --gres=gpu:1\ntouch {dir}/up\nsleep infinity\n", reads: `Submitted batch job (?P<id>\d+)`},
				{does: "finds it by its name", line: `squeue --me -h -o "%i" --states running,completing --name sky-one`, reads: `^{id}\n$`, waits: true},
				{does: "polls", line: `squeue -h --only-job-state --jobs {id} -o "%T"`, reads: `^RUNNING\n$`},
				{does: "finds its nodes", line: `squeue -h --jobs {id} -o "%N"`, reads: `^(?P<nodes>node\[1-2\])\n$`},
				{does: "expands them", line: "scontrol show hostnames '{nodes}'", reads: `^node1\nnode2\n$`},
				{does: "finds their addresses", line: "for n in node1 node2; do scontrol show node=$n | grep NodeAddr=; done", reads: `NodeAddr=(?P<address>\S+) `},
				{does: "counts the GPUs in use", line: `squeue -h --nodelist node1 -o "%b"`, reads: `(?m)^gres[:/]gpu:1$`},
				{does: "runs a command in it", line: "srun --jobid={id} --overlap --nodes=1 --ntasks=1 -w node2 sh -c 'echo $SLURMD_NODENAME'", reads: `^node2\n$`},
				{does: "stops it", line: "scancel --name sky-one --signal TERM --full && scancel --name sky-one"},
				{does: "polls until it is gone", line: `squeue --me -h -o "%i" --states running,completing --name sky-one`, reads: `^$`, waits: true},
			},
		},
		{
			name: "PSI/J", version: "0.9.11", what: "portable submission interface",
			files: map[string]string{"psij.sh": "#!/bin/bash\n#SBATCH --job-name=psij\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=2\n#SBATCH --time=00:05:00\n#SBATCH -e /dev/null\n#SBATCH -o /dev/null\n#SBATCH --export=ALL\nPSIJ_NODEFILE={dir}/nodefile\nscontrol show hostnames > $PSIJ_NODEFILE\nsrun sh -c 'echo $SLURM_PROCID > {dir}/rank$SLURM_PROCID'\nsleep 600\n"},
			steps: []step{
				{does: "submits", line: "sbatch {dir}/psij.sh", reads: `Submitted batch job (?P<id>\d+)`},
				{does: "polls all jobs in three columns", line: "squeue -O JobArrayID,StateCompact,Reason -t all --me", reads: `^(JOBID +ST +REASON|\S+ +[A-Z]+ +\S+) *$`, each: true},
				{does: "polls until it runs", line: "squeue -O JobArrayID,StateCompact,Reason -t all --me", reads: `(?m)^{id} +R +None *$`, waits: true},
				{does: "lists its jobs", line: "squeue --me -o %i -h -r -t all", reads: `(?m)^{id}$`},
				{does: "finds its nodes and ranks", line: "cat {dir}/nodefile {dir}/rank3", reads: `^node1\nnode2\n3\n$`, waits: true},
				{does: "cancels quietly", line: "scancel -Q {id}", reads: `^$`},
				{does: "polls", line: "squeue -O JobArrayID,StateCompact,Reason -t all --me", reads: `(?m)^{id} +CA +`, waits: true},
			},
		},
		{
			name: "dask-jobqueue", version: "0.9.0", what: "Dask workers as jobs",
			steps: []step{
				{does: "starts two workers", line: "for i in 1 2; do sbatch {dir}/worker.sh; done", reads: `(?s)(?P<one>\d+).*?(?P<two>\d+)`},
				{does: "hears from both", line: "cat {dir}/worker-{one}.up {dir}/worker-{two}.up", waits: true},
				{does: "stops them", line: "scancel {one} && scancel {two}"},
				{does: "left nothing behind", line: "squeue -h -t PD,R,CG -n dask-worker", reads: `^$`, waits: true},
			},
			files: map[string]string{"worker.sh": "#!/usr/bin/env bash\n\n#SBATCH -J dask-worker\n#SBATCH -e {dir}/dask-worker-%J.err\n#SBATCH -o {dir}/dask-worker-%J.out\n#SBATCH -p gpu\n#SBATCH -n 1\n#SBATCH -N 1\n#SBATCH --cpus-per-task=1\n#SBATCH --mem=954M\n#SBATCH -t 00:05:00\ntouch {dir}/worker-$SLURM_JOB_ID.up\nsleep 600\n"},
		},
	}
}

// allFields is the question of Open OnDemand for everything about jobs.
func allFields(which string) string {
	line := "squeue --all --states=all --noconvert --noheader -O $'"
	for _, field := range []string{
		"Account", "JobID", "BatchHost", "MinCpus", "NumCPUs", "MinTmpDisk", "NumNodes", "EndTime", "Dependency", "Feature", "ArrayJobID", "GroupName", "GroupID",
		"OverSubscribe", "Sockets", "JobArrayID", "Cores", "Name", "Threads", "Comment", "ArrayTaskID", "TimeLimit", "TimeLeft", "MinMemory", "TimeUsed", "ReqNodes",
		"NodeList", "Command", "Contiguous", "QOS", "Partition", "PriorityLong", "Reason", "StartTime", "StateCompact", "State", "UserName", "UserID", "Reservation",
		"SubmitTime", "WCKey", "Licenses", "ExcNodes", "CoreSpec", "Nice", "SchedNodes", "SCT", "WorkDir", "tres-alloc", "tres-per-node",
	} {
		line += field + `:\x1f,`
	}
	return line[:len(line)-1] + "' " + which
}
