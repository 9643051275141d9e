package clients

// workflows run many jobs, each after what it needs.
func workflows() []client {
	return []client{
		{
			name: "Snakemake", version: "executor plugin 2.7.1", what: "workflows of files",
			steps: []step{
				{does: "reads how long ended jobs are known", line: "scontrol show config", reads: `(?m)^MinJobAge\s+=\s+(\d+) sec$`},
				{does: "reads the largest array", line: "scontrol show config", reads: `(?m)^MaxArraySize\s+= (\d+)$`},
				{does: "finds the default partition", line: "sinfo -o %P", reads: `(?m)^gpu\*$`},
				{does: "checks the account", line: `sacctmgr -n -s list user "{user}" format=account%256`, reads: `(?m)^ {253}lab $`},
				{does: "submits", line: "sbatch --parsable --job-name 0f3a-snake --output {dir}/%j.log --export=ALL --comment rule_a -A lab -p gpu -t 10 --mem 500 --ntasks=1 --cpus-per-task=2 -D {dir} --wrap='echo $SLURM_CPUS_PER_TASK; echo done > a.txt'", reads: `^(?P<id>\d+)\n$`},
				{does: "submits one that fails", line: "sbatch --parsable --job-name 0f3a-snake --output {dir}/b.log --comment rule_b -A lab -t 10 --mem 500 --wrap='exit 3'", reads: `^(?P<bad>\d+)\n$`},
				{does: "polls by its name", line: "sacct -X --parsable2 --clusters all --noheader --format=JobIdRaw,State --starttime {today}T00:00 --endtime now --name 0f3a-snake", reads: `(?s)^{id}\|COMPLETED\n{bad}\|FAILED\n$`, waits: true},
				{does: "polls without accounting", line: "squeue --format='%i|%T' --states=all --noheader --name 0f3a-snake", reads: `(?m)^{bad}\|FAILED$`},
				{does: "finds the output", line: "cat {dir}/a.txt", reads: `^done\n$`},
				{does: "reports efficiency", line: "sacct --name 0f3a-snake --parsable2 --noheader --format=JobID,JobName,Comment,Elapsed,TotalCPU,NNodes,NCPUS,MaxRSS,ReqMem", reads: `(?m)^{id}\|0f3a-snake\|rule_a\|[\d:]+\|[\d:.]+\|1\|2\|\|500M\n{id}.batch\|batch\|`},
				{does: "cancels what is left", line: "scancel {id} {bad} --clusters=all"},
			},
		},
		{
			name: "Nextflow", version: "26.08", what: "workflows of processes",
			files: map[string]string{".command.run": "#!/bin/bash\n#SBATCH -J nf-align\n#SBATCH -o {dir}/.command.log\n#SBATCH --no-requeue\n#SBATCH --signal B:USR2@30\n#SBATCH -c 2\n#SBATCH -t 01:00:00\n#SBATCH --mem 500M\n#SBATCH -p gpu\n#SBATCH --array 0-1\nexport SLURM_MARK=$SLURM_ARRAY_TASK_ID\necho $SLURM_ARRAY_JOB_ID $SLURM_MARK > {dir}/.exitcode$SLURM_MARK\nsleep 600\n"},
			steps: []step{
				{does: "submits an array of tasks", line: "sbatch < {dir}/.command.run", reads: `^Submitted batch job (?P<id>\d+)\n$`},
				{does: "polls the queue", line: "squeue --noheader -o '%i %t' -t all -p gpu -u {user}", reads: `(?m)^{id}_1 R$`, waits: true},
				{does: "polls states only", line: "squeue --noheader -o '%i %t' -t all --only-job-state", reads: `(?m)^{id}_0 R$`},
				{does: "sees each task's mark", line: "cat {dir}/.exitcode0 {dir}/.exitcode1", reads: `^{id} 0\n{id} 1\n$`, waits: true},
				{does: "kills both", line: "scancel {id}_0 {id}_1"},
				{does: "polls the queue", line: "squeue --noheader -o '%i %t' -t all -u {user}", reads: `(?s)(?:^|\n){id}_[01] CA\n(?:.*\n)?{id}_[01] CA\n`, waits: true},
			},
		},
		{
			name: "Parsl", version: "2026.07.27", what: "parallel Python in pilot jobs",
			files: map[string]string{"block.sh": "#!/bin/bash\n#SBATCH --job-name=parsl.block\n#SBATCH --output={dir}/block.stdout\n#SBATCH --error={dir}/block.stderr\n#SBATCH --nodes=2\n#SBATCH --time=5\n#SBATCH --ntasks-per-node=1\n#SBATCH --mem=1g\n#SBATCH --partition=gpu\nexport CORES=$SLURM_CPUS_ON_NODE\nsrun --ntasks 2 -l bash -c 'echo manager $SLURM_NODEID; sleep 600'\n"},
			steps: []step{
				{does: "looks for accounting", line: "sacct -X", reads: `^JobID +JobName +`},
				{does: "submits a block", line: "sbatch {dir}/block.sh", reads: `Submitted batch job (?P<id>\S*)`},
				{does: "polls", line: "sacct -X --noheader --format=jobid,state%20 --job '{id}'", reads: `^{id} +RUNNING *\n$`, waits: true},
				{does: "polls without accounting", line: "squeue --noheader --format='%i %t' --job '{id}'", reads: `^{id} R\n$`},
				{does: "sees a manager on each node", line: "sort {dir}/block.stdout", reads: `^0: manager 0\n1: manager 1\n$`, waits: true},
				{does: "scales in", line: "scancel {id}"},
				{does: "polls", line: "sacct -X --noheader --format=jobid,state%20 --job '{id}'", reads: `^{id} +CANCELLED by \d+ *\n$`, waits: true},
			},
		},
		{
			name: "ReFrame", version: "4.11", what: "regression tests of systems",
			files: map[string]string{"rfm_job.sh": "#!/bin/bash\n#SBATCH --job-name=\"rfm_job\"\n#SBATCH --ntasks=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --output={dir}/rfm_job.out\n#SBATCH --error={dir}/rfm_job.err\n#SBATCH --time=0:10:0\n#SBATCH --hint=nomultithread\nsrun hostname\nexit 2\n"},
			steps: []step{
				{does: "finds nodes", line: "scontrol -a show -o nodes", reads: `^NodeName=node\d .* State=[A-Z_]+(?:\+[A-Z_]+)* .*Partitions=gpu `, each: true},
				{does: "finds the default partition", line: "scontrol -a show -o partitions", reads: `PartitionName=gpu .*Default=YES`},
				{does: "finds reservations", line: "scontrol -a show -o reservations", reads: `No reservations in the system`},
				{does: "asks whether options fit", line: "srun --partition=gpu --test-only true"},
				{does: "submits", line: "sbatch {dir}/rfm_job.sh", reads: `Submitted batch job (?P<id>\d+)`},
				{does: "polls the queue", line: `squeue -h -j {id} -o "%i|%T|%N|%r"`, reads: `^{id}\|[A-Z]+\|[^|]*\|\S+\n$`},
				{does: "polls, times in seconds", line: "SLURM_TIME_FORMAT=%s sacct -S {today} -P -j {id} -o jobid,state,exitcode,end,nodelist", reads: `(?m)^{id}\|FAILED\|2:0\|\d{10}\|node\[1-2\]$`, waits: true},
				{does: "expands the nodes", line: "scontrol show hostname node[1-2]", reads: `^node1\nnode2\n$`},
				{does: "reads the output", line: "cat {dir}/rfm_job.out", reads: `^\S+\n\S+\n$`},
			},
		},
		{
			name: "AiiDA", version: "2.8", what: "computations with their provenance",
			steps: []step{
				{does: "submits", line: "sbatch _aiidasubmit.sh", reads: `[Ss]ubmitted batch job\s+(?P<id>\d+)`},
				{does: "polls the user's jobs", line: "SLURM_TIME_FORMAT='standard' squeue --noheader -o '%i^^^%t^^^%r^^^%B^^^%u^^^%D^^^%C^^^%R^^^%P^^^%l^^^%M^^^%S^^^%j^^^%V' -u{user}", reads: `(?m)^{id}\^\^\^R\^\^\^None\^\^\^(?P<host>node\d)\^\^\^{user}\^\^\^1\^\^\^1\^\^\^node\d\^\^\^gpu\^\^\^30:00\^\^\^[\d:]+\^\^\^[\dT:-]+\^\^\^aiida-1\^\^\^[\dT:-]+$`, waits: true},
				{does: "polls one job, twice named", line: "squeue --noheader -o '%i^^^%t' --jobs={id},{id}", reads: `^{id}\^\^\^R\n`},
				{does: "kills", line: "scancel {id}"},
				{does: "lists the fields of accounting", line: "sacct --helpformat", reads: `(?m)^Account +AdminComment `},
				{does: "keeps all of them", line: "sacct --format=$(sacct --helpformat | tr -s '\\n' ' ' | tr ' ' ',' | sed 's/,$//') --parsable --jobs={id}", reads: `^Account\|AdminComment\|(?s:.*)CANCELLED by `, waits: true},
				{does: "asks for one job that is gone", line: "squeue --noheader --jobs=999999", code: 1, reads: `Invalid job id specified`},
				{does: "asks for two that are gone", line: "squeue --noheader --jobs=999998,999999", reads: `^$`},
			},
			files: map[string]string{"_aiidasubmit.sh": "#!/bin/bash\n#SBATCH --no-requeue\n#SBATCH --job-name=\"aiida-1\"\n#SBATCH --get-user-env\n#SBATCH --output=_scheduler-stdout.txt\n#SBATCH --error=_scheduler-stderr.txt\n#SBATCH --nodes=1\n#SBATCH --ntasks-per-node=1\n#SBATCH --time=00:30:00\nsleep 600\n"},
		},
		{
			name: "Toil", version: "5.7 to 2026-07", what: "pipelines, also of CWL and WDL",
			steps: []step{
				{does: "finds partitions", line: `sinfo -a -o "%P %G %l %p %c %m"`, reads: `^PARTITION GRES TIMELIMIT PRIO_TIER CPUS MEMORY\ngpu\* gpu:8 7-00:00:00 1 8 16000\n$`},
				{does: "submits", line: "sbatch -J toil_job_1 --signal=B:INT@30 --time=0:300 --mem=500 --cpus-per-task=1 --export=ALL,OMP_NUM_THREADS=1 -o /dev/null -e /dev/null --wrap 'trap \"exit 0\" INT; sleep 600 & wait'", reads: `Submitted batch job (?P<id>\d+)`},
				{does: "polls the queue", line: `squeue -h --format "%i %t %M"`, reads: `(?m)^{id} R \d+:\d\d$`, waits: true},
				{does: "polls accounting", line: "sacct -n -j {id} --format JobIDRaw,State,ExitCode -P -S {today} -E now", reads: `^{id}\|RUNNING\|0:0\n`, waits: true},
				{does: "asks the controller", line: "scontrol show job {id}", reads: `JobId={id} (?s:.*)JobState=RUNNING (?s:.*)ExitCode=0:0\n`},
				{does: "interrupts the script", line: "scancel --batch --signal=INT {id}"},
				{does: "polls accounting", line: "sacct -n -j {id} --format JobIDRaw,State,ExitCode -P -S {today} -E now", reads: `^{id}\|COMPLETED\|0:0\n`, waits: true},
			},
		},
	}
}
