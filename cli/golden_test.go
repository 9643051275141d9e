package cli

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
)

// transcript is one command of a recorded session.
type transcript struct {
	command string
	output  string
	code    int
}

// transcripts reads "$ command", its output and "[exit=N]".
func transcripts(text string) []transcript {
	var out []transcript
	for block := range strings.SplitSeq("\n"+text, "\n$ ") {
		command, rest, ok := strings.Cut(block, "\n")
		if !ok {
			continue
		}
		at := strings.LastIndex(rest, "[exit=")
		if at < 0 {
			continue
		}
		tr := transcript{command: command, output: rest[:at]}
		if _, err := fmt.Sscanf(rest[at:], "[exit=%d]", &tr.code); err == nil {
			out = append(out, tr)
		}
	}
	return out
}

// scenario is what the controller holds while commands run.
type scenario struct {
	set      func(w *world)
	commands map[string][]string // file -> commands
}

// TestSlurm compares whole outputs with those of a real Slurm, byte by byte.
// The recordings are not part of this repository: name their folder in
// MUSTER_SLURM_GOLDEN. The transcripts in testdata hold the same layouts.
func TestSlurm(t *testing.T) {
	dir := os.Getenv("MUSTER_SLURM_GOLDEN")
	if dir == "" {
		t.Skip("MUSTER_SLURM_GOLDEN names no folder with recordings")
	}
	all := scenarios()
	maps.Copy(all, moreScenarios())
	for name, s := range all {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s.set(w)
			for file, commands := range s.commands {
				data, err := os.ReadFile(filepath.Join(dir, file))
				if err != nil {
					t.Fatal(err)
				}
				found := map[string]bool{}
				for _, tr := range transcripts(string(data)) {
					line := strings.TrimPrefix(strings.TrimPrefix(tr.command, "runuser -u alice -- "), "runuser -u bob -- ")
					if !slices.Contains(commands, line) || found[line] {
						continue
					}
					found[line] = true
					w.compare(file, line, tr)
				}
				for _, c := range commands {
					if !found[c] {
						t.Errorf("%s has no command %q", file, c)
					}
				}
			}
		})
	}
}

func (w *world) compare(file, line string, want transcript) {
	w.t.Helper()
	got := w.shell(line)
	text := strings.ReplaceAll(got.out+got.errOut, "Sid=localhost:0", "Sid=localhost:3790")
	if text != want.output || got.code != want.code {
		w.t.Errorf("%s: $ %s\n%s[exit=%d]\nSlurm:\n%s[exit=%d]\n", file, line, text, got.code, want.output, want.code)
	}
}

//muster:table one entry for each scenario
func scenarios() map[string]scenario {
	const wide = `squeue -o "%.10i %.9P %.20j %.8u %.2t %.10M %.6D %R"`
	const seed = `sinfo -o "%20N %10c %10m %20G %10t"`
	return map[string]scenario{
		"idle": {func(w *world) { w.lab(); w.now = at("01:43:56") }, map[string][]string{
			"idle_sinfo.txt": {"sinfo"}, "idle_sinfo_Nl.txt": {"sinfo -N -l"}, "idle_sinfo_O.txt": {"sinfo -O NodeList,Gres,GresUsed,CPUsState,FreeMem,StateCompact"},
			"idle_sinfo_R.txt": {"sinfo -R"}, "idle_sinfo_h_seed.txt": {`sinfo -h -o "%N|%c|%m|%G|%t|%T|%C|%O|%e|%E"`}, "idle_sinfo_l.txt": {"sinfo -l"}, "idle_sinfo_s.txt": {"sinfo -s"},
			"idle_sinfo_seed.txt": {seed}, "idle_squeue.txt": {"squeue"}, "idle_squeue_seed.txt": {wide}, "scontrol_show_node.txt": {"scontrol show node"},
			"scontrol_show_node_o.txt": {"scontrol -o show node node1"}, "scontrol_show_partition.txt": {"scontrol show partition"}, "scontrol_ping.txt": {"scontrol ping"},
			"scontrol_badjob.txt": {"scontrol show job 99999"}, "scontrol_badnode.txt": {"scontrol show node nosuch"}, "scontrol_badpart.txt": {"scontrol show partition nosuch"},
			"scontrol_badverb.txt": {"scontrol frobnicate"}, "scontrol_show_hostlist.txt": {"scontrol show hostlist node1,node2,node3,node10"},
			"scontrol_show_hostlistsorted.txt": {"scontrol show hostlistsorted node10,node2,node1,node3"}, "scontrol_show_hostnames.txt": {"scontrol show hostnames node[1-3,7,010-012]"},
			"scontrol_show_lic.txt": {"scontrol show licenses"}, "sinfo_helpformat.txt": {"sinfo --helpFormat"}, "s6_scancel.txt": {"scancel foo", "scancel", "scancel 999999"},
		}},
		"running": {(*world).running, map[string][]string{
			"s1_squeue_running.txt": {"squeue", wide, "squeue -l", "squeue --steps", "squeue -O JobID,Name,tres-per-node,tres-alloc,NodeList,Reason", "squeue --start"},
			"s1_sinfo_alloc.txt":    {"sinfo", "sinfo -N -l", seed, "sinfo -N -O NodeList,Gres,GresUsed,CPUsState,StateLong,AllocMem"}, "s1_scontrol_job_running.txt": {"scontrol show job -d 4", "scontrol -o show job 4"},
			"s1_scontrol_node_alloc.txt": {"scontrol show node -d node1"}, "s1_submit.txt": nil,
		}},
		"capped": {(*world).capped, map[string][]string{"s3_qoscap_squeue.txt": {wide, "squeue", "squeue -l", "squeue -t PD -h -o '%i|%T|%r|%q|%b'"}}},
		"array": {(*world).array, map[string][]string{
			"s4_array_squeue.txt":   {wide, "squeue", "squeue --array", "squeue --start", "squeue -t PD -o '%i %A %F %K %T %r'"},
			"s4_array_scontrol.txt": {"scontrol show job 23_18", "scontrol show job 23_1"}, "s4_sinfo.txt": {"sinfo", "scontrol show node node1"},
		}},
		"drained": {func(w *world) { w.running(); w.drained() }, map[string][]string{"s5_drain.txt": {"sinfo", "sinfo -N -l", seed, "sinfo -R", "sinfo -R -l", "scontrol show node node1",
			"scontrol update nodename=node1 state=drain", "scontrol update nodename=node1 state=drain reason='gpu xid 79'"}}},
		"down":    {(*world).powerless, map[string][]string{"s5_down.txt": {"sinfo", "sinfo -R"}}},
		"waiting": {(*world).dependent, map[string][]string{"s6_dep_squeue0.txt": {wide, "squeue -t PD -O JobID,Name:14,Reason:24,Dependency:60"}}},
		"failed":  {(*world).failed, map[string][]string{"s7_scontrol_failed.txt": {"scontrol show job 97", "scontrol show job 95"}}},
		"accounting": {(*world).books, map[string][]string{"s1_sacct_running.txt": {"sacct -j 4 --format=JobID,JobName,Partition,Account,AllocTRES,State,ExitCode,Elapsed,CPUTime,TotalCPU,MaxRSS,ReqMem -P"},
			"s1_sstat.txt": {"sstat -j 4.batch --format=JobID,AveCPU,AveRSS,MaxRSS,MaxVMSize,NTasks"}}},
	}
}

func (w *world) drained() {
	n := w.nodes[0]
	n.State, n.Reason, n.ReasonUser, n.ReasonTime = "MIXED+DRAIN", "gpu xid 79", "root", at("01:47:25")
	n.LastBusy, n.GresUsed = at("01:46:36"), "gpu:1"
	w.now = at("01:47:25")
}

// fewerGPUs has a node in service that found fewer GPUs than are configured, and one
// with a reason that somebody wrote down without taking it out of service.
func (w *world) fewerGPUs() {
	w.lab()
	n := w.nodes[0]
	n.Shortfall = "gres/gpu count too low: 7 found, 8 configured"
	n.Reason, n.ReasonUser, n.ReasonTime = n.Shortfall, "muster", at("01:47:34")
	n = w.nodes[1]
	n.Reason, n.ReasonUser, n.ReasonTime = "watch its fan", "root", at("01:47:34")
}

func (w *world) powerless() {
	w.running()
	n := w.nodes[1]
	n.State, n.Reason, n.ReasonUser, n.ReasonTime = "DOWN", "power", "root", at("01:47:34")
}

func (w *world) dependent() {
	w.lab()
	w.now = at("01:47:52")
	wait := func(id uint32, name, dep string) *apiv1.JobInfo {
		return labJob(id, name, "alice", spec.Pending, prio(5458), waits("Dependency"), edit(func(j *apiv1.JobInfo) { j.Dependency = dep }))
	}
	u := func(s string) string { return s + "(unfulfilled)" }
	w.jobs = []*apiv1.JobInfo{
		labJob(66, "susp", "alice", spec.Cancelled, prio(5458), ran("01:47:48", "01:47:48", "node1"), edit(func(j *apiv1.JobInfo) { j.Completing = true })),
		labJob(67, "dep-ok", "alice", spec.Pending, prio(5458)), labJob(68, "dep-fail", "alice", spec.Pending, prio(5458)),
		labJob(69, "dep-arr", "alice", spec.Pending, prio(5458), tasks(69, 1, 3)),
		wait(70, "d-afterok", u("afterok:67")), wait(71, "d-afterok-ko", u("afterok:68")), wait(72, "d-afternotok", u("afternotok:68")), wait(73, "d-notok-ok", u("afternotok:67")),
		wait(74, "d-any", u("afterany:67")+","+u("afterany:68")), wait(75, "d-and", u("afterok:67")+","+u("afterany:68")), wait(76, "d-or", u("afterok:67")+"?"+u("afterok:68")),
		labJob(77, "d-corr", "alice", spec.Pending, prio(5458), tasks(77, 1, 3), edit(func(j *apiv1.JobInfo) { j.Dependency = u("aftercorr:69_*") })),
		wait(78, "d-after", u("after:67")), wait(79, "dep-ok", u("singleton")), wait(80, "d-kill", u("afterok:68")), wait(81, "d-arrok", u("afterok:69_*")), wait(82, "d-arrtask", u("afterok:69_1")),
	}
}

func (w *world) failed() {
	w.lab()
	w.now = at("01:51:00")
	back := edit(func(j *apiv1.JobInfo) {
		j.Backfilled, j.Priority = true, 5459
		j.Submit, j.Eligible, j.LastSchedEval = at("01:48:52"), at("01:48:52"), at("01:48:53")
	})
	w.jobs = []*apiv1.JobInfo{
		labJob(95, "timeout", "alice", spec.TimedOut, back, waits("TimeLimit"), edit(func(j *apiv1.JobInfo) { j.TimeLimit, j.ExitSignal = hour/60, 15 }), ran("01:48:53", "01:50:17", "node1")),
		labJob(97, "s7-exit1", "alice", spec.Failed, back, waits("NonZeroExitCode"), edit(func(j *apiv1.JobInfo) { j.ExitCode = 1 }), ran("01:48:53", "01:48:53", "node1")),
	}
}

// books is what accounting has of the small GPU job.
func (w *world) books() {
	w.running()
	held := &apiv1.Tres{Cpu: 1, Mem: 500, Node: 1, Billing: 1, Other: []*apiv1.NamedCount{{Name: "gres/gpu", N: 1}}}
	batch := &apiv1.Tres{Cpu: 1, Mem: 500, Node: 1, Other: []*apiv1.NamedCount{{Name: "gres/gpu", N: 1}}}
	w.acct = []*apiv1.AcctRow{
		{Uid: 4, JobId: 4, ArrayTask: -1, Name: "gpu-small", User: "alice", UserId: 1001, Account: "ml", Partition: "gpu", Qos: "normal", State: "RUNNING", Submit: at("01:44:41"), Eligible: at("01:44:41"),
			Start: at("01:44:41"), Elapsed: 2 * tool.Second, TimeLimit: hour, ReqTres: held, AllocTres: held, ReqNodes: 1, ReqCpus: 1, ReqMem: 500, NodeList: "node1", Reason: "None"},
		{Uid: 4, JobId: 4, ArrayTask: -1, Step: "batch", Name: "batch", Account: "ml", State: "RUNNING", Submit: at("01:44:41"), Start: at("01:44:41"), Elapsed: 2 * tool.Second, AllocTres: batch, ReqCpus: 1, NodeList: "node1", Tasks: 1},
	}
	w.live = &apiv1.StepUsageReply{Jobs: []*apiv1.JobSteps{{Job: "4", JobId: 4, Nodes: "node1", Alloc: held, Steps: []*apiv1.StepMeasured{{Step: -5, Tasks: 1,
		Nodes: []*apiv1.Measurement{{Node: "node1", Usage: &apiv1.Usage{PeakRss: 3316 << 10, HasRss: true, ReadBytes: 11085, WriteBytes: 1 << 20, UserCpu: tool.Second / 2}, PeakVm: 5512 << 10, HasVm: true, Pids: []int32{71, 72}}}}}}}}
	w.at = time.Unix(0, at("01:44:43")).UTC()
}
