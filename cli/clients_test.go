package cli

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

// clientLine is a program that runs Slurm's commands: one of its command lines and
// the pattern with which it reads the answer. The pattern must match the whole
// line or, with lines, each line.
type clientLine struct {
	name    string
	line    string
	stdin   string
	pattern string
	lines   bool // the pattern is for each line
	code    int
}

// TestClients runs the command lines of programs that people use, and reads
// the answers as those programs do.
//
//muster:table one row for each command line of a client
func TestClients(t *testing.T) {
	const script = "#!/bin/sh\nhostname\n"
	id := `\d+(_(\d+|\[[0-9,\-]+(%\d+)?\]))?`
	for _, c := range []clientLine{
		{name: "submitit", line: "sbatch --wrap x", pattern: `job (?P<id>[0-9]+)`},
		{name: "submitit", line: "sacct -o JobID,State,NodeList --parsable2 -j 4", pattern: `^JobID\|State\|NodeList\n(?:[^|\n]+\|[A-Z ]+\|[^|\n]+\n)+$`},
		{name: "submitit", line: "scancel 4 --signal USR2", pattern: `^$`},
		{name: "submitit", line: "scontrol requeue 4", pattern: `^$`},
		{name: "Nextflow", line: "sbatch", stdin: script, pattern: `^Submitted batch job (\d+)\n$`},
		{name: "Nextflow", line: "squeue --noheader -o '%i %t' -t all -p gpu -u alice", pattern: `^` + id + ` (PD|CF|CG|R|F|CD|S|CA|TO)$`, lines: true},
		{name: "Nextflow", line: "squeue --noheader -o '%i %t' -t all --only-job-state", pattern: `^` + id + ` [A-Z]+$`, lines: true},
		{name: "Snakemake", line: "sbatch --parsable --job-name u --output f --export=ALL --comment c -A ml -p gpu -t 10 --mem 100 --ntasks=1 --cpus-per-task=2 -D /tmp --wrap x", pattern: `^\d+\n$`},
		{name: "Snakemake", line: "sacct -X --parsable2 --clusters all --noheader --format=JobIdRaw,State --starttime 2026-11-20T00:00 --endtime now --name u", pattern: `^\d+\|[A-Z_ ]+$`, lines: true},
		{name: "Snakemake", line: "squeue --format='%i|%T' --states=all --noheader --name gpu-small", pattern: `^` + id + `\|[A-Z_]+$`, lines: true},
		{name: "Snakemake", line: "scontrol show config", pattern: `(?m)^MinJobAge\s+=\s+(\d+) sec$`},
		{name: "Snakemake", line: "scontrol show config", pattern: `(?m)^MaxArraySize\s+= \d+$`},
		{name: "Snakemake", line: "sinfo -o %P", pattern: `^PARTITION\ngpu\*\ndebug\n$`},
		{name: "Snakemake", line: "sacctmgr -n -s list user alice format=account%256", pattern: `^ {254}ml \n$`},
		{name: "Snakemake", line: "sacct -nu alice -o Account%256", pattern: `(?m)^ {254}ml $`},
		{name: "Parsl", line: "sacct -X", pattern: `JobID`},
		{name: "Parsl", line: "sacct -X --noheader --format=jobid,state%20 --job '4,36'", pattern: `^\S+\s+[A-Z ]+$`, lines: true},
		{name: "Parsl", line: "squeue --noheader --format='%i %t' --job 4,99", pattern: `^4 R\n$`},
		{name: "batchspawner", line: "sbatch --parsable", stdin: script, pattern: `^\d+\n$`},
		{name: "batchspawner", line: "squeue -h -j 4 -o '%T %B'", pattern: `^(?:RUNNING|COMPLETING)\s+node1\n$`},
		{name: "OOD", line: "squeue --all --states=all --noconvert -O Account:\x1f,JobID:\x1f,ExcNodes:\x1f,tres-per-node:\x1f,StateCompact:\x1f,StartTime:\x1f,WorkDir:\x1f", pattern: "^([^\x1f\n]*\x1f){7}$", lines: true},
		{name: "OOD", line: "sbatch -H -D /tmp -J x --parsable", stdin: script, pattern: `^\d+(;\S+)?\n$`},
		{name: "OOD", line: "sinfo -aho %F/%C", pattern: `^\d+/\d+/\d+/\d+/\d+/\d+/\d+/\d+\n$`},
		{name: "OOD", line: "sinfo -ahNO nodehost:100,gres:512,gresused:512,statelong", pattern: `^vm {98}gpu:\d {507}gpu:\d {507}\S+\s*$`, lines: true},
		{name: "OOD", line: "sinfo -ho \x1e%c\x1f%n\x1f%f", pattern: "^\x1e8\x1fvm\x1f\\(null\\)$", lines: true},
		{name: "OOD", line: "scontrol show part -o", pattern: `^(\S+=\S* ?)+$`, lines: true},
		{name: "OOD", line: "sacctmgr -nP show users withassoc format=account,qos where user=alice cluster=peer", pattern: `^ml\|gpucap,normal\n$`},
		{name: "OOD", line: "sacct -P --delimiter \x1f -n --units G --allocations -o jobid,state,reqmem --state F,CD -S 2026-11-20 -E now", pattern: "^[^\x1f]+\x1f[A-Z ]+\x1f[0-9.]+G?$", lines: true},
		{name: "ReFrame", line: "sacct -S 2026-11-20 -P -j 4 -o jobid,state,exitcode,end,nodelist", pattern: `(?m)^4\|RUNNING\|0:0\|Unknown\|node1$`},
		{name: "ReFrame", line: `squeue -h -j 4,36 -o "%i|%T|%N|%r"`, pattern: `^[^|]+\|[A-Z]+\|[^|]*\|\S+$`, lines: true},
		{name: "ReFrame", line: "scontrol -a show -o nodes", pattern: `^NodeName=\S+ .*Partitions=\S+ .*BootTime=`, lines: true},
		{name: "ReFrame", line: "scontrol -a show -o nodes", pattern: `State=[A-Z_]+(\+[A-Z_]+)* .*`, lines: true},
		{name: "ReFrame", line: "scontrol -a show -o partitions", pattern: `^PartitionName=\S+ AllowGroups=`, lines: true},
		{name: "ReFrame", line: "scontrol -a show -o reservations", pattern: `No reservations in the system`},
		{name: "ReFrame", line: "scontrol show hostname n[1-2]", pattern: `^n1\nn2\n$`},
		{name: "AiiDA", line: "squeue --noheader -o '%i^^^%t^^^%r^^^%B^^^%u^^^%D^^^%C^^^%R^^^%P^^^%l^^^%M^^^%S^^^%j^^^%V' -ualice", pattern: `^([^^]+\^\^\^){13}[^^]+$`, lines: true},
		{name: "AiiDA", line: "squeue --jobs=99", pattern: `^$`, code: 1},
		{name: "AiiDA", line: "sacct --helpformat", pattern: `(?m)^Account +AdminComment +AllocCPUS +AllocNodes *$`},
		{name: "PSI/J", line: "squeue -O JobArrayID,StateCompact,Reason -t all --me", pattern: `^\S+\s+\S+\s+\S+\s*$`, lines: true},
		{name: "PSI/J", line: "squeue --me -o %i -h -r -t all", pattern: `^\d+(_\d+)?$`, lines: true},
		{name: "PSI/J", line: "scancel -Q 4", pattern: `^$`},
		{name: "radical", line: "scontrol show job 4", pattern: `JobState=RUNNING(?s:.*)ExitCode=0:0(?s:.*)StartTime=2026-11-21T01:44:41`},
		{name: "SkyPilot", line: `squeue --me -h -o "%i" --states running,completing --name gpu-small`, pattern: `^4\n$`},
		{name: "SkyPilot", line: "sinfo -h --Node -o \"%N\\\\x1f%t\\\\x1f%G\\\\x1f%c\\\\x1f%m\\\\x1f%P\"", pattern: `^node\d\\x1f\S+\\x1fgpu:8\\x1f\d+\\x1f16000\\x1f\S+$`, lines: true},
		{name: "SkyPilot", line: `squeue -h --nodelist node1 -o "%b"`, pattern: `^(gres:gpu:\d+|N/A)$`, lines: true},
		{name: "SkyPilot", line: `squeue -h --only-job-state --jobs 4 -o "%T"`, pattern: `^RUNNING\n$`},
		{name: "SkyPilot", line: `squeue -h --jobs 36 --states all -o "%r"`, pattern: `^Resources\n$`},
		{name: "SkyPilot", line: "scontrol show node=node1", pattern: `NodeAddr=127\.0\.0\.1 `},
		{name: "SkyPilot", line: "scontrol show partitions -o", pattern: `PartitionName=(.+?)(?:\s+\w+=|$)`, lines: true},
		{name: "SkyPilot", line: "scontrol show partitions -o", pattern: `Default=YES`},
		{name: "buildkite", line: "sbatch --parsable --job-name=buildkite --comment=URL --output=o --wrap x", pattern: `^\d+\n$`},
		{name: "buildkite", line: "squeue --name=gpu-small --noheader --format=%k,%A", pattern: `^\(null\),4\n$`},
		{name: "TorchX", line: "sinfo --version", pattern: `^slurm \d+\.\d+\.\d+\n$`},
		{name: "TorchX", line: "sinfo --format %P,%m --noconvert", pattern: `(?m)^gpu\*,16000$`},
		{name: "NeMo", line: "squeue --start --noheader -j 36 -o '%i|%S|%T'", pattern: `^36_\[5-9\]\|N/A\|PENDING\n$`},
		{name: "NeMo", line: "scontrol show hostnames=n[1-2]", pattern: `^n1\nn2\n$`},
		{name: "Toil", line: `sinfo -a -o "%P %G %l %p %c %m"`, pattern: `^PARTITION GRES TIMELIMIT PRIO_TIER CPUS MEMORY\n`},
		{name: "Toil", line: `squeue -h --format "%i %t %M"`, pattern: `^\S+ [A-Z]+ [\d:\-]+$`, lines: true},
		{name: "XDMoD", line: "sacct --parsable2 --format jobid,jobidraw,cluster,partition,qos,account,group,gid,user,uid,submit,eligible,start,end,elapsed,exitcode,state,nnodes,ncpus,reqcpus,reqmem,reqtres,alloctres,timelimit,nodelist,jobname", pattern: `^([^|]*\|){25}[^|]*$`, lines: true},
		{name: "vpenso", line: "sinfo -h -o%R,%C", pattern: `^\w+,\d+/\d+/\d+/\d+$`, lines: true},
		{name: "vpenso", line: "squeue -a -r -h -o%P --states=PENDING", pattern: `^\w+$`, lines: true},
		{name: "vpenso", line: "squeue -a -r -h -o '%A|%u|%T|%C'", pattern: `^\d+\|\w+\|[A-Z]+\|\d+$`, lines: true},
		{name: "vpenso", line: "sinfo -h -o %D,%T", pattern: `^\d+,[a-z*]+$`, lines: true},
		{name: "vpenso", line: "sinfo -h -N -O NodeList,AllocMem,Memory,CPUsState,StateLong", pattern: `^node\d\s+\d+\s+16000\s+\d+/\d+/\d+/\d+\s+\w+\s*$`, lines: true},
		{name: "vpenso", line: "sdiag", pattern: `(?m)^\s+Last cycle:\s+(\d+)$`},
		{name: "rivos", line: "sacctmgr show assoc format=User,Account,GrpCPU,GrpMem,GrpJobs,GrpSubmit --noheader --parsable2", pattern: `^\w*\|\w+\|\d*\|\d*\|\d*\|\d*$`, lines: true},
		{name: "gcm", line: "sinfo --all -N -o %all", pattern: `^([^|]*\|)+[^|]*$`, lines: true},
		{name: "gcm", line: "sacctmgr show qos -P", pattern: `^Name\|Priority\|`},
		{name: "gcm", line: "sacctmgr show user format=User -nP", pattern: `^\w+$`, lines: true},
		{name: "gcm", line: "sacctmgr show user withassoc format=User,DefaultAccount,Account,DefaultQOS,QOS -nP", pattern: `^\w+\|\w+\|\w+\|\w*\|[\w,]+$`, lines: true},
		{name: "gcm", line: "scontrol ping", pattern: `UP`},
		{name: "gcm", line: "sinfo -n node1 -o %T -h", pattern: `^mixed\n$`},
		{name: "reportseff", line: "sacct --parsable -n --delimiter=^|^ --format=JobID,State,Elapsed,TotalCPU -j 4", pattern: `^4\^\|\^RUNNING\^\|\^00:00:02\^\|\^00:00:00\^\|\^\n`},
		{name: "ClusterShell", line: `sinfo -h -o "%N" -p gpu`, pattern: `^node\[1-2\]\n$`},
		{name: "ClusterShell", line: `squeue -h -j 4 -o "%N"`, pattern: `^node1\n$`},
		{name: "PRRTE", line: "sbatch -V", pattern: `^slurm 2[3-9]\.\d+`},
	} {
		w := clientsWorld(t)
		w.stdin = c.stdin
		r := w.shell(c.line)
		re := regexp.MustCompile(c.pattern)
		ok := r.code == c.code && (c.lines || re.MatchString(r.out))
		if c.lines {
			list := strings.Split(strings.TrimSuffix(r.out, "\n"), "\n")
			for i, line := range list {
				// Headers, where they were not turned off, read like any line.
				if i == 0 && !strings.Contains(c.line, "-h") && !strings.Contains(c.line, "-n") {
					continue
				}
				ok = ok && re.MatchString(line)
			}
			ok = ok && r.out != ""
		}
		if !ok {
			t.Errorf("%s: %q: exit code %d\n%q\n%s\ndoes not match %s", c.name, c.line, r.code, r.out, r.errOut, c.pattern)
		}
	}
}

func clientsWorld(t *testing.T) *world {
	w := newWorld(t)
	w.books()
	w.policyOf()
	w.jobs = append(w.jobs, labJob(36, "arr", "bob", spec.Pending, tasks(36, 5, 9), waits("Resources")), labJob(7, "x", "alice", spec.Completed, ran("01:40:00", "01:41:00", "node1")))
	w.jobs[0].Submit, w.jobs[1].Submit, w.jobs[2].Submit = at("01:44:00"), at("01:44:00"), at("01:39:00")
	w.acct = append(w.acct, &apiv1.AcctRow{JobId: 7, Uid: 7, ArrayTask: -1, State: "COMPLETED", Account: "ml", ReqMem: 500, NodeList: "node1"})
	w.config.Cluster, w.config.Controller = "peer", "vm"
	w.diag = &apiv1.DiagReply{Now: w.now, StartedAt: at("01:00:00"), PassLast: 850_000}
	return w
}

// TestJSON: documents parse, and hold what programs look for in them.
func TestJSON(t *testing.T) {
	for line, want := range map[string]string{
		"squeue --json":                 `jobs.0.job_state.0=RUNNING jobs.0.job_id=4 jobs.0.array_job_id.set=true jobs.0.time_limit.number=60 jobs.0.gres_detail.0=gpu:1(IDX:0) jobs.0.job_resources.nodes.allocation.0.sockets.0.cores.0.index=0 jobs.0.exit_code.status.0=SUCCESS`,
		"squeue --json -j 36":           `jobs.0.array_task_string=5-9 jobs.0.state_reason=Resources jobs.0.start_time.number=0`,
		"sinfo --json":                  `sinfo.0.node.state.0=MIXED sinfo.0.nodes.nodes.0=node1 sinfo.0.cpus.total=8 sinfo.0.partition.name=gpu`,
		"scontrol show job 4 --json":    `jobs.0.job_id=4 jobs.0.tres_alloc_str=cpu=1,mem=500M,node=1,billing=1,gres/gpu=1`,
		"scontrol show nodes --json":    `nodes.0.name=node1 nodes.0.gres=gpu:8 nodes.0.state.0=MIXED nodes.0.free_mem.number=19507`,
		"scontrol show part --json":     `partitions.0.name=gpu partitions.0.partition.state.0=UP partitions.0.maximums.time.number=1440 partitions.0.maximums.nodes.infinite=true`,
		"scontrol ping --json":          `pings.0.hostname=vm pings.0.pinged=UP`,
		"sacct --json":                  `jobs.0.job_id=4 jobs.0.state.current.0=RUNNING jobs.0.steps.0.step.id=4.batch jobs.0.tres.allocated.0.type=cpu`,
		"sacctmgr list clusters --json": `clusters.0.name=peer`,
		"sacctmgr show user bob --json": `users.0.name=bob users.0.default.account=physics users.0.associations.0.account=physics`,
		"sdiag --json":                  `statistics.schedule_cycle_last=850`,
	} {
		w := clientsWorld(t)
		r := w.shell(line)
		var doc any
		if err := json.Unmarshal([]byte(r.out), &doc); err != nil || r.code != 0 {
			t.Errorf("%s: %d %v\n%s%s", line, r.code, err, r.out, r.errOut)
			continue
		}
		for _, pair := range strings.Fields(want) {
			path, value, _ := strings.Cut(pair, "=")
			if got := lookIn(doc, path); got != value {
				t.Errorf("%s: %s is %q, want %q", line, path, got, value)
			}
		}
		for _, key := range []string{"meta.slurm.release", "meta.plugin.data_parser"} {
			if lookIn(doc, key) == "" {
				t.Errorf("%s has no %s", line, key)
			}
		}
	}
}

// lookIn finds a value by a path of keys and indices.
func lookIn(doc any, path string) string {
	for key := range strings.SplitSeq(path, ".") {
		switch v := doc.(type) {
		case map[string]any:
			doc = v[key]
		case []any:
			n := int(key[0] - '0')
			if n >= len(v) {
				return "(none)"
			}
			doc = v[n]
		default:
			return "(none)"
		}
	}
	b, err := json.Marshal(doc)
	if err != nil || doc == nil {
		return ""
	}
	return strings.Trim(string(b), `"`)
}
