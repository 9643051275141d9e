package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/submit"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
)

// sample is how an option is tried: its argument, and what else must stand on
// the line for it to matter.
type sample struct {
	arg  string
	with string // besides the option, in both runs
	line string // instead of the command's usual line
}

// usual are the lines to which options are added.
func usual() map[string]string {
	return map[string]string{
		"sbatch": "sbatch --wrap hostname", "srun": "srun --test-only hostname", "salloc": "salloc true", "sattach": "sattach --layout 36.0", "sbcast": "sbcast --jobid=36 DIR/log /tmp/log", "squeue": "squeue", "sinfo": "sinfo", "scancel": "scancel --me", "scontrol": "scontrol show node",
		"sacct": "sacct", "sreport": "sreport cluster utilization", "sacctmgr": "sacctmgr show user", "sdiag": "sdiag", "why": "muster why 36", "tail": "muster tail 36", "events": "muster events", "traces": "muster traces", "forecast": "muster forecast", "suppose": "muster suppose 'scancel 4'", "audit": "muster audit", "kpi": "muster kpi", "report": "muster report 12", "findings": "muster findings",
		"token": "muster token n7", "hosts": "muster hosts revoke l1", "tokens": "muster tokens", "upgrade": "muster upgrade", "runs": "muster runs", "pods": "muster pods", "completion": "muster completion bash", "man": "muster man squeue", "links": "muster links", "help": "muster help", "version": "muster version",
		"gpu": "muster gpu top", "gpu-bind": "muster gpu-bind /bin/true", "seff": "seff 4", "sstat": "sstat 4", "sprio": "sprio", "sshare": "sshare -u alice,carol", "sql": "muster sql SELECT",
		"accounting": "muster accounting doctor", "sgather": "sgather /tmp/a /tmp/b", "scrontab": "scrontab", "strigger": "strigger", "qsub": "qsub DIR/batch", "qstat": "qstat", "qdel": "qdel 4", "sjobexitmod": "sjobexitmod -e 1 12", "slurmd": "slurmd", "slurmctld": "slurmctld", "slurmdbd": "slurmdbd", "slurmrestd": "slurmrestd",
		"simulate": "muster simulate --swf DIR/log --procs 8",
	}
}

// samples has an entry for each option that does something.
//
//muster:table one entry for each option
func samples() map[string]map[string]sample {
	s := func(arg string) sample { return sample{arg: arg} }
	with := func(arg, more string) sample { return sample{arg: arg, with: more} }
	on := func(line, arg string) sample { return sample{arg: arg, line: line} }
	types := on("strigger --set --down -p /bin/true", "")
	out := map[string]map[string]sample{
		"sbatch": {
			"container": s("/bundles/app"), "container-image": s("nvcr.io#team/app:1"), "container-mounts": with("/data:/data:ro", "--container-image=app"), "container-workdir": with("/work", "--container-image=app"),
			"container-env": with("PATH,HOME", "--container-image=app"), "container-mount-home": with("", "--container-image=app"), "container-readonly": with("", "--container-image=app"),
			"account": s("physics"), "acctg-freq": s("task=5"), "extra": s("more"), "array": s("0-9%2"), "begin": s("now+1hour"), "chdir": s("/tmp"), "clusters": with("peer", "--parsable"), "comment": s("hi"), "constraint": s("a&b"),
			"contiguous": s(""), "cores-per-socket": s("4"), "extra-node-info": s("2:4"), "segment": s("2"), "sockets-per-node": s("2"), "spread-segments": s(""), "hint": s("nomultithread"), "spread-job": s(""), "core-spec": s("2"), "cpus-per-gpu": s("2"), "cpus-per-task": s("2"), "deadline": s("now+2hours"), "dependency": s("afterok:1"), "error": s("e"),
			"exclude": s("n1"), "exclusive": s(""), "export": s("NIL"), "export-file": s("EXPORTFILE"), "get-user-env": s(""), "gpus": s("2"), "gpus-per-node": s("h100:2"), "gpus-per-socket": s("1"),
			"gpus-per-task": s("1"), "gpu-bind": s("closest"), "gpu-freq": s("low"), "gres": s("gpu:1,nic:2"), "hold": s(""), "input": s("in"), "job-name": s("x"), "kill-on-invalid-dep": s("yes"), "no-kill": s(""), "licenses": s("a:2"),
			"distribution": s("cyclic:block"), "gres-flags": s("disable-binding"), "mem-bind": s("local"), "cpu-freq": s("high"), "network": s("any"), "stepmgr": s(""), "profile": s("all"), "oom-kill-step": s("1"), "tres-bind": s("gres/gpu:closest"), "uid": s("nobody-at-all"), "gid": s("nogroup-at-all"), "mail-type": s("END"), "mail-user": s("root"), "mem": s("4G"), "mem-per-cpu": s("2G"), "mem-per-gpu": s("1G"), "mincpus": s("3"), "nice": s("5"), "no-requeue": s(""),
			"nodefile": s("NODEFILE"), "nodelist": s("n[1-2]"), "nodes": s("2-4"), "ntasks": s("3"), "ntasks-per-core": s("1"), "ntasks-per-gpu": s("1"), "ntasks-per-node": s("2"),
			"ntasks-per-socket": s("1"), "open-mode": s("append"), "output": s("o"), "oversubscribe": s(""), "parsable": s(""), "partition": s("gpu,debug"), "prefer": s("f"), "priority": s("5"),
			"propagate": s("CORE"), "qos": s("q"), "quiet": s(""), "reboot": s(""), "requeue": s(""), "reservation": s("r"), "signal": s("B:USR1@30"), "switches": s("1@10"), "test-only": s(""),
			"threads-per-core": s("1"), "overcommit": s(""), "use-min-nodes": s(""), "thread-spec": s("2"), "time": s("30"), "time-min": s("10"), "tmp": s("1G"), "tres-per-task": s("cpu=2,gres/gpu=1"), "wait": s(""), "wckey": s("w"), "wrap": s("other"), "x11": s("all"),
		},
		"squeue": {
			"account": s("ml"), "array": s(""), "clusters": s("peer"), "expand-patterns": with("", "-O stdout"), "format": s("%i"), "Format": s("JobID"), "helpformat": s(""), "helpreason": s(""), "helpstate": s(""), "hide": s(""),
			"iterate": on("squeue", "1"), "jobs": s("4"), "json": s(""), "licenses": s("none"), "long": s(""), "me": s(""), "name": s("x"), "noconvert": with("", "-o %m"), "nodelist": s("node1"), "noheader": s(""),
			"notme": s(""), "partition": s("gpu"), "priority": with("", "-o %P"), "qos": s("normal"), "reservation": s("r"), "running-over": s("1-0"), "running-under": s("0:01"), "sort": s("-i"), "start": s(""),
			"states": s("PD"), "steps": s(""), "user": s("bob"), "yaml": s(""),
		},
		"sinfo": {
			"all": s(""), "clusters": s("peer"), "dead": s(""), "exact": with("", "-o %c"), "format": s("%n"), "Format": s("NodeList"), "helpformat": s(""), "helpstate": s(""), "hide": with("", "--all"), "iterate": s("1"), "json": s(""), "list-reasons": s(""),
			"long": s(""), "Node": s(""), "nodes": s("node1"), "noheader": s(""), "partition": s("debug"), "reservation": s(""), "responding": s(""), "sort": s("-P"), "states": s("idle"), "summarize": s(""), "yaml": s(""), "future": s(""),
		},
		"strigger": {
			"set": on("strigger --down -p /bin/true", ""), "get": s(""), "clear": on("strigger --id=1", ""),
			"id": on("strigger --get", "1"), "jobid": on("strigger --set --fini -p /bin/true", "36"), "node": on("strigger --get", "n1"),
			"offset": on("strigger --set --down -p /bin/true", "60"), "program": on("strigger --set --down", "/bin/true"),
			"user": on("strigger --get", "bob"), "flags": on("strigger --set --down -p /bin/true", "PERM"), "clusters": on("strigger --get", "other"),
			"noheader": on("strigger --get", ""), "quiet": s(""), "verbose": on("strigger --set --down -p /bin/true", ""),
			"primary_slurmctld_failure": types, "primary_slurmctld_resumed_operation": types, "primary_slurmctld_resumed_control": types,
			"backup_slurmctld_assumed_control": types, "down": on("strigger --set --up -p /bin/true", ""), "drained": types, "draining": types, "fail": types, "idle": types,
			"fini": on("strigger --set -j 36 --down -p /bin/true", ""), "time": on("strigger --set -j 36 --down -p /bin/true", ""), "reconfig": types, "resume": types, "up": types,
		},
		"scrontab": {"list": s(""), "remove": s(""), "user": on("scrontab -l", "bob")},
		"scancel": {
			"admin-comment": on("scancel 4", "why"), "cron": on("scancel 4", ""), "account": s("ml"), "batch": s(""), "clusters": s("other"), "full": s(""), "interactive": s(""), "jobname": s("x"), "name": s("x"), "me": on("scancel 4", ""), "nodelist": s("node1"), "partition": s("gpu"),
			"qos": s("q"), "reservation": s("r"), "quiet": on("scancel 87", ""), "signal": s("USR1"), "state": s("PENDING"), "user": on("scancel 4", "bob"), "verbose": on("scancel 4", ""), "wckey": s("w"),
		},
		"scontrol": {
			"all": on("scontrol show partition", ""), "clusters": s("other"), "details": s(""), "hide": on("scontrol --all show partition", ""), "json": s(""), "oneliner": s(""), "quiet": on("scontrol reconfigure", ""), "yaml": s(""), "future": on("scontrol show node", ""),
		},
		"sacct": {
			"associations": s("8"), "batch-script": with("", "-j 4"), "completion": s(""), "env-vars": with("", "-j 4"),
			"accounts": s("ml"), "allclusters": s(""), "array": s(""), "allocations": s(""), "allusers": s(""), "brief": s(""), "clusters": s("other"), "constraints": s("x"), "delimiter": with(",", "-P"), "duplicates": s(""), "endtime": s("now"),
			"flags": s("x"), "format": s("jobid"), "gid": s("5"), "group": s("g"), "helpformat": s(""), "helpreason": s(""), "helpstate": s(""), "jobs": s("4"), "json": s(""), "long": s(""), "name": s("x"), "ncpus": s("9"), "nnodes": s("9"),
			"noconvert": with("", "-o reqmem"), "nodelist": s("node1"), "noheader": s(""), "parsable": s(""), "parsable2": s(""), "partition": s("gpu"), "qos": s("q"), "reason": s("x"), "starttime": s("now-1day"), "state": s("F"),
			"timelimit-max": with("4:00:00", "-k 1:30:00 -o jobid"), "timelimit-min": s("10"), "truncate": with("", "-S 01:44:42 -o start"), "uid": s("bob"), "user": s("bob"), "units": with("M", "-o reqmem"), "wckeys": s("w"), "whole-hetjob": s("yes"), "yaml": s(""),
		},
		"sstat": {"allsteps": s(""), "format": s("jobid"), "helpformat": s(""), "jobs": on("sstat", "4"), "noconvert": s(""), "noheader": s(""), "parsable": s(""), "parsable2": s(""), "pidformat": s(""), "json": s(""), "yaml": s("")},
		"seff":  {"debug": s("")}, "accounting": {"json": s(""), "quiet": s("")},
		"sql": {"format": s("csv"), "explain-report": on("muster sql", "kpi"), "output": on("muster sql -f parquet SELECT", "SQLFILE"), "noheader": s(""), "views": on("muster sql", "")},
		"sreport": {
			"cluster": s("other"), "all_clusters": s(""), "noheader": s(""), "parsable": s(""), "parsable2": s(""), "quiet": s(""), "time-format": s("hours"), "tres": s("gres/gpu"), "json": s(""), "yaml": s(""),
		},
		"sacctmgr": {
			"associations": s(""), "immediate": on("sacctmgr add account x", ""), "json": s(""), "noheader": s(""), "parsable": s(""), "parsable2": s(""), "quiet": on("sacctmgr -i add account x", ""),
			"readonly": on("sacctmgr -i add account x", ""), "yaml": s(""),
		},
		"sprio": {"helpformat": s(""), "clusters": s("other"), "format": s("%i"), "jobs": s("8"), "long": s(""), "noheader": s(""), "norm": s(""), "partition": s("debug"), "sort": s("-i"), "user": s("bob"), "weights": s(""), "json": s(""), "yaml": s("")},
		"sshare": {"helpformat": s(""), "accounts": s("vision"), "all": on("sshare", ""), "clusters": s("other"), "format": s("user"), "json": s(""), "long": s(""), "noheader": s(""), "parsable": s(""), "parsable2": s(""),
			"partition": s(""), "users": on("sshare", "bob"), "Users": s(""), "yaml": s("")},
		"sdiag": {"reset": s(""), "sort-by-id": s(""), "sort-by-time": s(""), "sort-by-time2": s(""), "cluster": s("other"), "json": s(""), "yaml": s("")},
		"audit": {"actors": s("bob"), "all": s(""), "jobs": s("36"), "json": s(""), "nodelist": s("node1"), "since": s("now-1hour"), "until": s("now"), "what": s("JobStarted")},
		"tail":  {"err": s(""), "bytes": s("5")},
		"events": {"from": s("5"), "jobs": s("36"), "json": s(""), "kinds": s("JobStarted"), "list-kinds": s(""), "nodelist": s("node1"),
			"since": s("now-1hour"), "until": s("now"), "users": s("bob")},
		"forecast": {"partition": s("batch"), "qos": s("high"), "size": s("2cpu"), "time": s("90"), "json": s(""), "yaml": s("")},
		"traces":   {"jobs": s("36"), "until": s("now"), "users": s("bob")},
		"suppose":  {"all": s(""), "json": s(""), "yaml": s("")},
		"why":      {"json": s(""), "yaml": s(""), "watch": s("3")},
		"gpu":      {"nodes": s("node1"), "user": s("bob"), "all": on("muster gpu idle", ""), "width": on("muster gpu job 4", "20"), "iterate": s("1"), "json": s(""), "yaml": s(""), "noheader": s("")},
		"gpu-bind": {"gpu-bind": on("muster gpu-bind --local-id=0 true", "verbose,single:2"), "local-id": s("1")},
		"kpi":      {"all": on("muster kpi --by account", ""), "by": s("account"), "kpi": s("throughput"), "clusters": s("other"), "window": s("7d"), "json": s(""), "yaml": s(""), "noheader": s("")},
		"findings": {
			"window": s("30d"), "start": s("2026-11-01"), "end": s("2026-11-20"), "users": s("bob"), "accounts": s("ml"), "lines": s("5"), "clusters": s("other"),
			"sql": s(""), "json": s(""), "yaml": s(""),
		},
		"report": {
			"sql":    on("muster report findings", ""),
			"window": on("muster report site", "7d"), "start": on("muster report site", "2026-11-01"), "end": on("muster report site", "2026-11-20"), "lines": on("muster report site", "5"),
			"memory-below": on("muster report waste", "20%"), "accounts": on("muster report waste", "ml"), "users": on("muster report waste", "bob"), "csv": on("muster report waste", ""),
			"brief": s(""), "clusters": s("other"), "json": s(""), "yaml": s(""), "html": s(""), "mail": s("nobody at all"), "from": on("muster report --mail=a@b 12", "nobody at all"),
			"smtp": on("muster report --mail=a@b 12", "127.0.0.1:1"), "smtp-user": on("muster report --mail=a@b --smtp=h:1 12", "muster"),
			"smtp-password-file": on("muster report --mail=a@b --smtp=h:1 12", "/f"),
		},
		"qsub": {"account": s("ml"), "begin": s("202701010800"), "error": s("host:e"), "hold": s(""), "interactive": s(""), "array": s("0-3"), "join": on("qsub -e /err DIR/batch", "oe"), "resource": s("nodes=2:ppn=4"), "mail-user": s("x"), "mail-options": s("ae"),
			"name": s("n"), "output": s("o"), "priority": s("-10"), "queue": s("gpu"), "rerunable": s("n"), "array-range": s("0-3%2"), "variables": s("A=1"), "attributes": s("depend=afterok:1"), "workdir": s("/tmp"), "quiet": s("")},
		"qstat":  {"full": s(""), "queues": s(""), "user": s("bob")},
		"slurmd": {"node": s("n1"), "conf-file": s("/f"), "dynamic": s(""), "conf": s("Gres=gpu:1")},
		"token":  {"lifetime": s("2d"), "login": s("")},
		"sjobexitmod": {
			"cluster": s("other"), "exit-code": on("sjobexitmod -r full 12", "2"), "list": s(""), "reason": s("full"),
		},
		"upgrade": {
			"to": s("22.05.8"), "raise": s(""), "json": s(""), "yaml": s(""),
		},
		"tokens": {
			"user": s("alice"), "reason": on("muster tokens revoke t1", "gone"), "json": s(""), "yaml": s(""),
		},
		"hosts": {"role": s("login"), "reason": s("gone")},
		"pods": {
			"json": s(""), "yaml": s(""), "why": on("muster pods release 43", "cluster k3 is gone"),
		},
		"runs": {"json": s(""), "yaml": s(""), "grace": on("muster runs kill 1.1.batch.ff", "10")},
		"man":  {"dir": on("muster man", "MANDIR")},
		"simulate": {
			"openb": on("muster simulate", "DIR/."), "shuffles": on("muster simulate --openb DIR/.", "2"), "inflate": on("muster simulate --openb DIR/.", "200"),
			"load": on("muster simulate --openb DIR/. --itp DIR/itp --shuffles 1 --pods 9", "50"), "pods": on("muster simulate --openb DIR/. --itp DIR/itp --shuffles 1 --pods 9", "7"),
			"packing": on("muster simulate --openb DIR/.", "best-fit"), "swf": on("muster simulate --procs 8", "DIR/log"), "itp": on("muster simulate --nodes 2 --gpus 4", "DIR/itp"), "graham": on("muster simulate --procs 8", "DIR/graham"),
			"cluster": on("muster simulate --itp DIR/itp --nodes 2 --gpus 4", "c2"), "procs": on("muster simulate --swf DIR/log", "8"), "nodes": on("muster simulate --swf DIR/log --cpus 8", "2"),
			"cpus": on("muster simulate --swf DIR/log", "9"), "gpus": s("4"), "policy": s("fcfs"), "exact": s(""), "out": s("/nowhere/schedule"), "json": s(""), "yaml": s(""),
		},
	}
	step := func(arg string) sample { return on("srun --jobid=36 hostname", arg) }
	out["srun"] = map[string]sample{"clusters": s("other"), "test-only": on("srun hostname", ""), "cpu-bind": step("cores"), "distribution": step("cyclic"), "error": step("e-%t"),
		"exact": step(""), "exclusive": step(""), "export": step("NONE"), "external-launcher": step(""), "bcast": step("/tmp/x"), "compress": on("srun --jobid=36 --bcast=/tmp/x DIR/log", "lz4"), "het-group": step("1"), "immediate": step(""), "input": step("none"), "jobid": on("srun hostname", "36"),
		"kill-on-bad-exit": step(""), "mpi": step("none"), "multi-prog": on("srun --jobid=36 DIR/log", ""), "open-mode": step("append"), "output": step("o-%t"), "overlap": step(""), "pty": step(""), "relative": step("1"),
		"x11": on("srun hostname", "all"), "slurmd-debug": step("3"), "preserve-env": step(""), "prolog": step("/bin/echo"), "epilog": step("/bin/echo"), "task-epilog": step("/bin/e"), "task-prolog": step("/bin/p"), "unbuffered": step(""), "wait": step("5")}
	out["sbcast"] = map[string]sample{"compress": s("lz4"), "force": s(""), "jobid": on("sbcast DIR/log /tmp/log", "36"), "nodelist": s("n1"), "preserve": s("")}
	out["salloc"] = map[string]sample{"clusters": s("other"), "container": s("/bundles/app"), "no-shell": s(""), "quiet": on("salloc --test-only true", ""), "test-only": s(""), "x11": s("all")}
	for name, options := range map[string][]opt.Option{"srun": submit.SrunOptions(), "salloc": submit.Salloc().Options} {
		for _, o := range options {
			if x, ok := out["sbatch"][o.Long]; ok && o.Always == "" && out[name][o.Long] == (sample{}) {
				out[name][o.Long] = x
			}
		}
	}
	return out
}

// elsewhere are options whose effect begins when a step or an allocation is
// there, or that have no end: TestStepOutput, TestInterrupts, TestEventsFollowContinues
// and the end-to-end tests try them.
var elsewhere = map[string][]string{"scrontab": {"edit"}, "events": {"follow"}, "traces": {"follow", "since"}, "srun": {"label", "disable-status", "quit-on-interrupt"}, "sattach": {"error-filter", "input-filter", "label", "layout", "output-filter", "quiet", "usage"}, "sgather": {"force", "keep", "preserve"}, "salloc": {"bell", "no-bell", "kill-command", "immediate"}, "slurmd": {"print-config", "print-gres"}, "tail": {"follow"}}

// everything is a world in which each option has something to act on.
func everything(t *testing.T) *world {
	w := newWorld(t)
	w.env = map[string]string{"LANG": "C"} // for --export=NONE to leave out
	w.capped()
	w.books()
	w.live.Jobs[0].Steps = append(w.live.Jobs[0].Steps, &apiv1.StepMeasured{Nodes: w.live.Jobs[0].Steps[0].Nodes})
	w.people()
	w.usage()
	w.running()
	w.policyOf()
	w.priorities()
	w.shares("alice")
	hidden := proto.Clone(w.parts[1]).(*apiv1.PartitionInfo)
	hidden.Name, hidden.Hidden = "secret", true
	w.parts = append(w.parts, hidden)
	w.nodes[0].MetricsAddr, w.nodes[0].Gpus = "node1:9400", []*apiv1.GpuInfo{{Uuid: "GPU-a"}, {Uuid: "GPU-b"}}
	n := w.nodes[1]
	n.State, n.Reason, n.ReasonUser, n.ReasonTime, n.Cpus, n.Partitions = "DOWN+NOT_RESPONDING", "power", "root", at("01:40:00"), 4, append(n.GetPartitions(), "secret")
	two := edit(func(j *apiv1.JobInfo) { j.Partition, j.Spec.MemPerCpu, j.Spec.MemPerNode = "gpu,debug", 0, 2048 })
	w.jobs = append(w.jobs, labJob(36, "arr", "bob", spec.Pending, tasks(36, 5, 9), two, waits("Resources")), labJob(7, "x", "alice", spec.Completed, ran("01:40:00", "01:41:00", "node1")))
	w.results = []*apiv1.JobResult{{Job: "87", Error: &apiv1.Error{Code: 2002, Text: spec.CodeAccessDenied.String()}}}
	w.acct[0].TimeLimit, w.acct[0].ReqMem = 3*hour, 2048
	w.acct = append(w.acct, &apiv1.AcctRow{JobId: 36, Uid: 36, ArrayJobId: 36, ArrayTask: -1, ArrayTasks: "5-9", State: "PENDING"})
	w.scripts = &apiv1.AcctScriptReply{Scripts: []*apiv1.AcctScript{{Row: w.acct[0], Data: []byte("A=1\x00B=2\x00")}}}
	w.behind = 3
	w.changed = []string{"x"}
	w.reply[tool.MethodEvents] = func(proto.Message) (proto.Message, error) {
		// The second one is bookkeeping, which muster audit leaves out.
		return &apiv1.EventsReply{Seq: 9, Events: []*apiv1.EventInfo{labEvent(8), {Seq: 9, At: at("01:44:41"), Kind: "JobEligible", ActorKind: "system", Job: "36"}}}, nil
	}
	w.reply[tool.MethodReadOutput] = readOutput
	w.reply[tool.MethodNoteJobs] = func(proto.Message) (proto.Message, error) { return &apiv1.NoteJobsReply{}, nil }
	w.reply[tool.MethodSuppose] = func(proto.Message) (proto.Message, error) {
		out := &apiv1.SupposeReply{Now: w.now}
		for i := range 50 { // more than are listed without --all
			out.Jobs = append(out.Jobs, &apiv1.SupposedJob{JobId: uint32(i), Job: fmt.Sprint(i)})
		}
		return out, nil
	}
	w.reply[tool.MethodWhy] = func(proto.Message) (proto.Message, error) {
		job := w.jobs[1]
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.seen) > 1 { // with --watch: it starts
			job = w.jobs[0]
		}
		return &apiv1.WhyReply{Job: job, Reason: &apiv1.Reason{Code: "Resources"}, Now: w.now}, nil
	}
	w.diag = &apiv1.DiagReply{Now: w.now, StartedAt: at("01:00:00"), Passes: 3, PassTotal: 9000,
		Methods: []*apiv1.CallFigure{{Name: "Cluster/ListJobs", Count: 9, Nanos: 9_000_000}, {Name: "Cluster/Submit", Count: 3, Nanos: 12_000_000}, {Name: "Cluster/ListNodes", Count: 1, Nanos: 8_000_000}},
		Callers: []*apiv1.CallFigure{{Name: "alice", Count: 9, Nanos: 5_000_000}, {Name: "root", Count: 4, Nanos: 24_000_000}}}
	w.watch = func(send func(*apiv1.JobInfo) error) error {
		return send(&apiv1.JobInfo{State: uint32(spec.Failed), ExitCode: 9})
	}
	w.reported()
	util := w.reply[tool.MethodAcctReport]
	w.reply[tool.MethodAcctReport] = func(req proto.Message) (proto.Message, error) {
		resp, err := util(req)
		if rep, ok := resp.(*apiv1.ReportReply); ok {
			rep.Behind = 2
		}
		return resp, err
	}
	for file, text := range map[string]string{"log": tinyLog, "batch": "#!/bin/sh\n", "itp": tinyITP, "graham": tinyGraham, "EXPORTFILE": "A=1\x00B=2\x00", "NODEFILE": "n1\nn2\n",
		"openb_node_list_all_node.csv": tinyNodes, "openb_pod_list_default.csv": tinyPods} {
		if err := os.WriteFile(filepath.Join(w.dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// policyOf sets the policy and configuration again, which other scenarios reset.
func (w *world) policyOf() {
	jobs, nodes, parts := w.jobs, w.nodes, w.parts
	w.people()
	w.jobs, w.nodes, w.parts = jobs, nodes, parts
}

// behaviour is all that a run shows to the outside.
func (w *world) behaviour(words []string) string {
	w.forget()
	w.pauses, w.stdin, w.nextID = nil, "", 40
	if slices.Contains(words, "--iterate=1") {
		return w.iterated(words)
	}
	r := w.run(words...)
	var b strings.Builder
	w.mu.Lock()
	defer w.mu.Unlock()
	pauses := w.pauses
	if words[0] == "salloc" || words[0] == "srun" || words[0] == "sbcast" {
		pauses = nil // whoever watches beside the command may, or may not, have come to one
	}
	fmt.Fprintf(&b, "exit %d\n%s\n%s\npauses %v\n", r.code, r.out, r.errOut, pauses)
	var asked []string
	for _, q := range w.seen {
		if s, ok := q.req.(*apiv1.SubmitRequest); ok {
			s.Spec.SubmitLine = "" // it holds every option as it was typed
		}
		if s, ok := q.req.(*apiv1.RunStepRequest); ok {
			s.Ticket = nil // it is another each time
		}
		asked = append(asked, fmt.Sprintf("%s %v\n", q.method, q.req))
	}
	slices.Sort(asked) // requests that were sent together are answered in any order
	b.WriteString(strings.Join(asked, ""))
	files, err := filepath.Glob(filepath.Join(w.dir, "man", "*"))
	if err != nil {
		w.t.Fatal(err)
	}
	return b.String() + strings.Join(files, " ")
}

// TestEveryOption: an option changes what is asked or printed, or it is refused
// by name, or it says that it asks for what holds anyway, and then it does.
func TestEveryOption(t *testing.T) {
	all := samples()
	for _, e := range commandEntries() {
		cmd := e.Make()
		t.Run(cmd.Name, func(t *testing.T) {
			w := everything(t)
			if err := os.Mkdir(filepath.Join(w.dir, "man"), 0o700); err != nil {
				t.Fatal(err)
			}
			for _, o := range cmd.Options {
				if slices.Contains(elsewhere[cmd.Name], o.Long) {
					continue
				}
				s, ok := all[cmd.Name][o.Long]
				if !ok && o.Refused == "" && o.Always == "" {
					t.Errorf("--%s has no sample", o.Long)
					continue
				}
				w.tryOption(cmd, o, s)
			}
		})
	}
}

func (w *world) tryOption(cmd *tool.Command, o opt.Option, s sample) {
	w.t.Helper()
	line := usual()[cmd.Name]
	if s.line != "" {
		line = s.line
	}
	words, err := tool.ShellWords(strings.ReplaceAll(line, "DIR/", w.dir+"/"))
	if err != nil {
		w.t.Fatal(err)
	}
	words = append(words, strings.Fields(s.with)...)
	arg := strings.ReplaceAll(s.arg, "DIR/", w.dir+"/")
	switch arg {
	case "EXPORTFILE", "NODEFILE", "SQLFILE":
		arg = filepath.Join(w.dir, arg)
	case "MANDIR":
		arg = filepath.Join(w.dir, "man")
	}
	given := "--" + o.Long
	switch {
	case o.Arg != "" && (arg != "" || !o.Maybe):
		given += "=" + cmp.Or(arg, "1")
	}
	at := 1
	if words[0] == "muster" {
		at = 2
	}
	with := slices.Insert(slices.Clone(words), at, given)
	if slices.Contains([]string{"wrap", "hide", "pods"}, o.Long) { // the last one counts
		with = append(slices.Clone(words), given)
	}
	plain, changed := w.behaviour(words), w.behaviour(with)
	switch {
	case o.Refused != "":
		if !strings.Contains(changed, "--"+o.Long+" is not supported in this release") || strings.Contains(changed, "/muster.v1") {
			w.t.Errorf("%v is not refused: %s", with, changed)
		}
	case o.Always != "":
		if plain != changed {
			w.t.Errorf("%v changes something, but says that it does not:\n%s\n%s", with, plain, changed)
		}
	case plain == changed:
		w.t.Errorf("%v changes nothing:\n%s", with, changed)
	case strings.Contains(changed, "Try \""):
		w.t.Errorf("%v is not understood:\n%s", with, changed)
	}
}

// iterated runs a command that repeats, and ends it in its second pause.
func (w *world) iterated(words []string) string {
	var out strings.Builder
	e := w.world(words, &out, &out)
	rounds := 0
	e.Pause = func(context.Context, time.Duration) {
		if rounds++; rounds == 2 {
			panic(errEnough)
		}
	}
	func() {
		defer func() {
			if r := recover(); r != errEnough {
				w.t.Errorf("%v: %v", words, r)
			}
		}()
		Main(e)
	}()
	return out.String()
}

var errEnough = errors.New("seen enough")

// TestTables: every row says what it is for, in a form that fits its places.
func TestTables(t *testing.T) {
	seen := map[string]bool{}
	markdown := Markdown()
	for _, e := range commandEntries() {
		c := e.Make()
		if c.Name != e.Name || seen[c.Name] || c.Summary == "" || strings.HasSuffix(c.Summary, ".") || (c.Run == nil) == (c.Program == nil) || len(c.Usage) == 0 {
			t.Errorf("%s: name, summary, usage or run", e.Name)
		}
		seen[c.Name] = true
		help := tool.HelpText(c)
		man := manPage(c, "test")
		options := c.AllOptions()
		letters := map[string]bool{}
		for i := range options {
			o := &options[i]
			if (o.Help == "") == (o.Refused == "") || strings.HasSuffix(o.Help+o.Refused, ".") || (o.Maybe && o.Arg == "") {
				t.Errorf("%s --%s: exactly one of help and refusal, without a full stop", c.Name, o.Long)
			}
			if o.Short != "" && letters[o.Short] {
				t.Errorf("%s -%s stands for two options", c.Name, o.Short)
			}
			letters[o.Short] = true
			if !strings.Contains(help, "--"+o.Long) || !strings.Contains(man, roff("--"+o.Long)) || !strings.Contains(markdown, strings.ReplaceAll(tool.Spelling(o), "|", "\\|")) {
				t.Errorf("%s --%s is not in the help or the manual", c.Name, o.Long)
			}
		}
		for _, x := range c.Example {
			if x.Line == "" || x.What == "" || strings.HasSuffix(x.What, ".") {
				t.Errorf("%s: example %q", c.Name, x.Line)
			}
		}
	}
	for _, name := range []string{"smail"} {
		if notYet(name) == "" || findCommand(name) != nil {
			t.Errorf("%s", name)
		}
	}
}

// TestManual keeps docs/cli.md what the table says.
func TestManual(t *testing.T) {
	const path = "../docs/cli.md"
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(path, []byte(Markdown()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(path)
	if err != nil || string(have) != Markdown() {
		t.Errorf("%s is stale (%v): run this test with UPDATE_GOLDEN=1", path, err)
	}
}
