package clients

const curl = "curl -sS --unix-socket {lab}/run/rest.sock http://muster"

// observers count and show what others run. Each submits one job to have something to see.
func observers() []client {
	return []client{
		{
			name: "Slurm-web", version: "6.0", what: "dashboard over Slurm's REST API",
			steps: []step{
				mark("slurmweb"), running("slurmweb"),
				{does: "finds the version of the API", line: curl + "/slurm/v0.0.44/ping", holds: "pings.0.responding=true"},
				{does: "lists jobs", line: curl + "/slurm/v0.0.44/jobs", holds: "jobs.job_id:{id}.job_state.0=RUNNING jobs.job_id:{id}.tres_alloc_str=cpu=1,mem=500M,node=1,billing=1,gres/gpu=1"},
				{does: "shows a job", line: curl + "/slurm/v0.0.44/job/{id}", holds: "jobs.0.name=slurmweb jobs.0.account=lab"},
				{does: "shows its accounting", line: curl + "/slurmdb/v0.0.44/job/{id}", holds: "jobs.0.job_id={id} jobs.0.association.account=lab", waits: true},
				{does: "lists nodes", line: curl + "/slurm/v0.0.44/nodes", holds: "nodes.name:node1.gres=gpu:8 nodes.name:node2.cpus=8"},
				{does: "shows a node", line: curl + "/slurm/v0.0.44/node/node2", holds: "nodes.0.name=node2 nodes.0.real_memory=16000"},
				{does: "lists partitions", line: curl + "/slurm/v0.0.44/partitions", holds: "partitions.0.name=gpu partitions.0.nodes.configured=node[1-2]"},
				{does: "lists reservations", line: curl + "/slurm/v0.0.44/reservations", holds: "reservations=[]"},
				{does: "lists QOS", line: curl + "/slurmdb/v0.0.44/qos", holds: "qos.name:normal.name=normal"},
				{does: "lists accounts", line: curl + "/slurmdb/v0.0.44/accounts", holds: "accounts.name:lab.name=lab"},
				{does: "lists associations", line: curl + "/slurmdb/v0.0.44/associations", holds: "associations.user:{user}.cluster=muster"},
				{does: "asks for a node that is not there", line: curl + "/slurm/v0.0.44/node/nosuch -o /dev/null -w '%{http_code}'", reads: `^(404|500)$`},
				unmark(),
			},
		},
		{
			name: "jobstats", version: "1.0", what: "summary of one job",
			steps: []step{
				mark("jobstats"), running("jobstats"),
				{does: "finds the version", line: "sacct -V", reads: `^slurm \d+\.\d+\.\d+\n$`},
				{does: "reads a job's row", line: "SLURM_TIME_FORMAT=%s sacct -P -X -o jobidraw,start,end,cluster,alloctres,admincomment,user,account,state,nnodes,ncpus,reqmem,qos,partition,timelimitraw,jobname -j {id}", reads: `^JobIDRaw\|Start\|End\|Cluster\|AllocTRES\|AdminComment\|User\|Account\|State\|NNodes\|NCPUS\|ReqMem\|QOS\|Partition\|TimelimitRaw\|JobName\n{id}\|\d{10}\|Unknown\|muster\|billing=1,cpu=1,gres/gpu=1,mem=500M,node=1\|\|{user}\|lab\|RUNNING\|1\|1\|500M\|normal\|gpu\|60\|jobstats\n$`},
				{does: "reads its script", line: "sacct -j {id} -B", reads: `(?s)^Batch Script for {id}\n-+\n#!/bin/bash\nsleep 600\n`},
				unmark(),
			},
		},
		{
			name: "reportseff", version: "2.10.3", what: "efficiency of jobs in a table",
			steps: []step{
				mark("seff"), running("seff"),
				{does: "lists the fields", line: "sacct --helpformat", reads: `(?m)^Account +AdminComment `},
				{does: "reads rows with a separator of its own", line: "sacct --parsable -n --delimiter='^|^' --format=AdminComment,AllocCPUS,Elapsed,JobID,JobIDRaw,MaxRSS,NNodes,NTasks,NodeList,REQMEM,State,Timelimit,TotalCPU -j {id}", reads: `(?m)^\^\|\^1\^\|\^[\d:]+\^\|\^{id}\^\|\^{id}\^\|\^\^\|\^1\^\|\^\^\|\^node\d\^\|\^500M\^\|\^RUNNING\^\|\^01:00:00\^\|\^[\d:.]+\^\|\^\n\^\|\^1\^\|\^[\d:]+\^\|\^{id}\.batch\^\|\^`},
				unmark(),
			},
		},
		{
			name: "XDMoD", version: "11.5", what: "metrics of a centre; its shredder for Slurm",
			steps: []step{
				mark("xdmod"), running("xdmod"), unmark(),
				{does: "reads jobs that ended, times in UTC", line: "TZ=UTC sacct --allusers --parsable2 --noheader --allocations --duplicates --clusters muster --format jobid,jobidraw,cluster,partition,qos,account,group,gid,user,uid,submit,eligible,start,end,elapsed,exitcode,state,nnodes,ncpus,reqcpus,reqmem,reqtres,alloctres,timelimit,nodelist,jobname --state CANCELLED,COMPLETED,FAILED,NODE_FAIL,PREEMPTED,TIMEOUT,OUT_OF_MEMORY,REQUEUED --starttime {today}T00:00:00 --endtime now", reads: `(?m)^{id}\|{id}\|muster\|gpu\|normal\|lab\|[^|]+\|\d+\|{user}\|\d+(\|[\dT:-]+){4}\|[\d:]+\|0:0\|CANCELLED by \d+\|1\|1\|1\|500M\|billing=1,cpu=1,gres/gpu=1,mem=500M,node=1\|billing=1,cpu=1,gres/gpu=1,mem=500M,node=1\|01:00:00\|node\d\|xdmod$`, waits: true},
			},
		},
		{
			name: "slurm_exporter (SckyzO)", version: "1.8.4", what: "Prometheus exporter",
			steps: []step{
				mark("sckyzo"), running("sckyzo"),
				{does: "reads the queue", line: `squeue -a -r -h -O "JobID:|,Account:|,UserName:|,Partition:|,State:|,NumNodes:|,NumCPUs:|,tres-alloc:"`, reads: `(?m)^{id}\|lab\|{user}\|gpu\|RUNNING\|1\|1\|cpu=1,mem=500M,node=1,billing=1,gres/gpu=1 *$`},
				{does: "counts states", line: `squeue -h -o "%P|%T|%C|%r|%u" --states=all`, reads: `^gpu\|[A-Z_]+\|\d+\|[^|]+\|\S+$`, each: true},
				{does: "counts GPUs", line: `sinfo -a -h --Format="Nodes: ,StateLong: ,Gres: ,GresUsed:"`, reads: `^\d+ [a-z]+[*]? gpu:8 gpu:\d\S*\s*$`, each: true},
				{does: "counts GPUs of a partition", line: `sinfo -h --Format="Nodes: ,Partition: ,Gres: ,GresUsed:" --state=idle,allocated`, reads: `^(\d+ gpu\*? gpu:8 gpu:\d\S*|0 gpu\*? \(null\) \(null\))\s*$`, each: true},
				{does: "reads nodes", line: `sinfo -h -N -O "NodeList: ,AllocMem: ,Memory: ,CPUsState: ,StateLong: ,Partition: ,Gres: ,GresUsed:"`, reads: `^node\d \d+ 16000 \d/\d/\d/8 \w+ gpu\* gpu:8 gpu:\d\S*\s*$`, each: true},
				{does: "counts nodes by features", line: `sinfo -h -o "%R|%D|%T|%b"`, reads: `^gpu\|\d\|[a-z]+\|\(null\)$`, each: true},
				{does: "reads shares", line: "sshare -a -P -n -o Account,User,RawShares,NormShares,RawUsage,NormUsage,FairShare", reads: `(?m)^ +lab\|{user}\|1\|[\d.]+\|\d+\|[\d.]+\|[\d.]+$`},
				{does: "reads why nodes are away", line: `sinfo -h -N -o "%N|%E|%H|%T"`, reads: `^node\d\|none\|Unknown\|\w+$`, each: true},
				{does: "reads efficiency", line: "sacct -P -n --starttime {today}T00:00:00 --endtime now --format JobID,User,Account,AllocCPUS,Elapsed,TotalCPU,CPUTime,MaxRSS,ReqMem --state COMPLETED,FAILED,TIMEOUT,CANCELLED", reads: `^(\S+\|\S*\|\w*\|\d+\|[\d:-]+\|[\d:.-]+\|[\d:-]+\|[\d.KMG]*\|[\d.KMG]*)?$`, each: true},
				{does: "reads the scheduler", line: "sdiag", reads: `(?m)^DBD Agent queue size: +\d+$(?s:.*)^\s+Last cycle: +\d+$(?s:.*)Mean cycle: +\d+`},
				{does: "reads licences and reservations", line: "scontrol show licenses -o; scontrol show reservation", reads: `No reservations in the system`},
				unmark(),
			},
		},
		{
			name: "prometheus-slurm-exporter (vpenso)", version: "0.20", what: "Prometheus exporter",
			steps: []step{
				mark("vpenso"), running("vpenso"),
				{does: "counts CPUs", line: "sinfo -h -o %C", reads: `^\d+/\d+/\d+/16\n$`},
				{does: "counts CPUs of partitions", line: "sinfo -h -o%R,%C", reads: `^gpu,\d+/\d+/\d+/16\n$`},
				{does: "counts what waits", line: "squeue -a -r -h -o%P --states=PENDING", reads: `^(gpu)?$`, each: true},
				{does: "reads jobs", line: "squeue -a -r -h -o '%A|%u|%T|%C'", reads: `(?m)^{id}\|{user}\|RUNNING\|1$`},
				{does: "counts states", line: "squeue -a -r -h -o %A,%T,%r --states=all", reads: `(?m)^{id},RUNNING,None$`},
				{does: "counts nodes", line: "sinfo -h -o %D,%T", reads: `^\d,[a-z*]+$`, each: true},
				{does: "reads nodes", line: "sinfo -h -N -O NodeList,AllocMem,Memory,CPUsState,StateLong", reads: `^node\d +\d+ +16000 +\d/\d/\d/8 +\w+ *$`, each: true},
				{does: "reads shares", line: "sshare -n -P -o account,fairshare", reads: `(?m)^ lab\|`},
				{does: "reads the scheduler", line: "sdiag", reads: `(?m)^DBD Agent queue size: +\d+$(?s:.*)^\s+Last cycle: +\d+$(?s:.*)^\s+Mean cycle: +\d+$`},
				unmark(),
			},
		},
		{
			name: "prometheus-slurm-exporter (rivos)", version: "1.7.0", what: "Prometheus exporter",
			steps: []step{
				mark("rivos"), running("rivos"),
				{does: "reads jobs", line: "squeue --json", holds: "jobs.job_id:{id}.job_state.0=RUNNING jobs.job_id:{id}.user_name={user} jobs.job_id:{id}.partition=gpu"},
				{does: "reads nodes", line: "sinfo --json", holds: "sinfo.0.partition.name=gpu sinfo.0.cpus.total=8"},
				{does: "reads the scheduler", line: "sdiag --json", holds: "statistics.parts_packed=1"},
				{does: "reads jobs as lines of JSON", line: `squeue --states=all -h -r -o '{"a": "%a", "id": %A, "end_time": "%e", "u": "%u", "state": "%T", "p": "%P", "cpu": %C, "mem": "%m", "array_id": "%K", "r": "%R"}' | grep '"id": {id},'`, holds: "a=lab id={id} state=RUNNING cpu=1 mem=500M array_id=N/A"},
				{does: "reads nodes as lines of JSON", line: `sinfo -h -o '{"s": "%T", "mem": %m, "n": "%n", "l": "%O", "p": "%R", "fmem": "%e", "cstate": "%C", "w": %w}' | head -n 1`, holds: "mem=16000 p=gpu w=1"},
				{does: "reads limits", line: "sacctmgr show assoc format=User,Account,GrpCPU,GrpMem,GrpJobs,GrpSubmit --noheader --parsable2", reads: `(?m)^{user}\|lab\|\|\|\|$`},
				{does: "reads licences", line: "scontrol show lic --json", holds: "licenses=[]"},
				unmark(),
			},
		},
		{
			name: "CEEMS", version: "0.10.1", what: "energy and emissions of jobs",
			steps: []step{
				mark("ceems"), running("ceems"),
				{does: "reads jobs", line: "SLURM_TIME_FORMAT='%Y-%m-%dT%H:%M:%S%z' sacct -D -X --noheader --allusers --parsable2 --format jobidraw,partition,qos,account,group,gid,user,uid,submit,start,end,elapsed,elapsedraw,exitcode,state,alloctres,nodelist,jobname,workdir --state CANCELLED,COMPLETED,FAILED,NODE_FAIL,PREEMPTED,TIMEOUT,RUNNING --starttime {today}T00:00:00 --endtime now", reads: `(?m)^{id}\|gpu\|normal\|lab\|[^|]+\|\d+\|{user}\|\d+\|\S+[+-]\d{4}\|\S+[+-]\d{4}\|Unknown\|[\d:]+\|\d+\|0:0\|RUNNING\|billing=1,cpu=1,gres/gpu=1,mem=500M,node=1\|node\d\|ceems\|/\S+$`, waits: true},
				{does: "reads users", line: "sacctmgr --parsable2 --noheader list associations format=Account,User", reads: `(?m)^lab\|{user}$`},
				unmark(),
			},
		},
		{
			name: "gcm", version: "2025-12", what: "monitoring and health checks of GPU clusters",
			steps: []step{
				mark("gcm"), running("gcm"),
				{does: "reads nodes", line: "sinfo --all -N -o %all", reads: `^([^|]*\|)+[^|]*$`, each: true},
				{does: "reads QOS", line: "sacctmgr show qos -P", reads: `^Name\|Priority\|(?s:.*)\nnormal\|`},
				{does: "reads users", line: "sacctmgr show user format=User -nP", reads: `(?m)^{user}$`},
				{does: "reads a user", line: "sacctmgr show user {user} withassoc format=User,DefaultAccount,Account,DefaultQOS,QOS -nP", reads: `(?m)^{user}\|lab\|lab\|\w*\|normal$`},
				{does: "reads running jobs", line: "sacct -P -s running,r --delimiter '|#' -a -o all --duplicates --noconvert", reads: `^Account\|#AdminComment\|#(?s:.*)\|#{id}\|#`},
				{does: "reads partitions", line: "scontrol show partition -a -o", reads: `^PartitionName=gpu `},
				{does: "reads the scheduler", line: "sdiag --all --json", holds: "statistics.parts_packed=1"},
				{does: "looks for the controller", line: "scontrol ping | grep -c UP", reads: `^1\n$`},
				{does: "reads a node's state", line: "sinfo -n node1 -o %T -h", reads: `^[a-z]+\n$`},
				{does: "counts runaway jobs", line: "yes N | sacctmgr show runaway -P | grep RUNNING | wc -l", reads: `^0\n$`},
				unmark(),
			},
		},
	}
}

// mark submits a job for an observer to find, and learns its number.
func mark(name string) step {
	return step{does: "(a user submits a job)", line: "sbatch --parsable -J " + name + " --gpus=1 -o /dev/null", stdin: sleeper, reads: `^(?P<id>\d+)\n$`}
}

// running waits until accounting knows that the job runs.
func running(name string) step {
	return step{does: "(it starts)", line: "sacct -n -P -X -o JobName,State -j {id}", reads: "^" + name + `\|RUNNING\n$`, waits: true}
}

func unmark() step {
	return step{does: "(the user cancels it)", line: "scancel {id}"}
}
