package slurm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// commandsIn writes shell scripts that stand for Slurm's commands where the
// real ones cannot be made to fail.
func commandsIn(t *testing.T, scripts map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range scripts {
		writeCommand(t, filepath.Join(dir, name), text)
	}
	return dir
}

// writeCommand writes a shell script. Nothing may fork meanwhile: a child that other tests start
// at that moment would inherit the open file until it runs its program, and the kernel refuses to
// run a file that is open for writing.
func writeCommand(t *testing.T, path, text string) {
	t.Helper()
	syscall.ForkLock.Lock()
	defer syscall.ForkLock.Unlock()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

const (
	jobsNew = `{"jobs":[{"job_state":["RUNNING","COMPLETING"],"state_reason":"None","user_name":"al\"ice","account":"ml","partition":"gpu","qos":"normal","cpus":{"set":true,"infinite":false,"number":4},
		"node_count":{"set":true,"number":2},"tres_alloc_str":"cpu=4,mem=1.50G,node=2,gres/gpu=2,gres/gpu:h100=2","hold":false,"eligible_time":{"set":true,"number":100}},
		{"job_state":["PENDING"],"state_reason":"JobHeldUser","user_name":"bob","account":"ml","partition":"gpu,debug","cpus":{"set":true,"number":1},"hold":true,"array_task_string":"1-9:2,20%3","resv_name":"maint one","licenses":"matlab:2,ansys"}],"meta":{}}`
	nodesNew = `{"meta":{},"nodes":[{"name":"n1","state":["MIXED","DRAIN"],"reason":"fan","reason_changed_at":{"set":true,"number":7},"partitions":["gpu"],"active_features":["a","b"],
		"gres":"gpu:h100:8(S:0-1)","gres_used":"gpu:h100:2(IDX:0-1)","cpus":64,"effective_cpus":62,"alloc_cpus":4,"real_memory":1000,"alloc_memory":100,"free_memory":{"set":true,"number":500}}]}`
	sdiagText = "Server thread count:  3\nAgent queue size:     1\n\nMain schedule statistics (microseconds):\n\tLast cycle:   10\n\tTotal cycles: 2\n\tMean cycle:   5\n\nMain scheduler exit:\n\tEnd of job queue: 2\n" +
		"\nBackfilling stats\n\tLast cycle when: Sun Nov 22 00:00:00 2026 (1795305600)\n\nRemote Procedure Call statistics by message type\n\tREQUEST_PING ( 1008) count:4 ave_time:10 total_time:40\n\n" +
		"Remote Procedure Call statistics by user\n\troot ( 0) count:5 ave_time:10 total_time:50"
)

func fakes() map[string]string {
	return map[string]string{
		"squeue": "cat <<'E'\n" + jobsNew + "\nE",
		"sinfo":  "exit 9", // not asked in this release
		"scontrol": `case "$*" in
"show config") printf 'Configuration data\nClusterName             = east\nSLURM_VERSION           = 23.11.4\n';;
"show nodes --json") cat <<'E'
` + nodesNew + `
E
;;
*partition) echo 'PartitionName=gpu AllowGroups=ALL Nodes=n1';;
*reservation) echo 'ReservationName=maint one StartTime=2026-11-22T00:00:00 EndTime=2026-11-22T01:00:00 Nodes=n1 NodeCnt=1 CoreCnt=64 PartitionName=(null) Users=root Accounts=(null) State=ACTIVE';;
*license) echo 'LicenseName=matlab Total=10 Used=3 Free=7 Reserved=2 Remote=no';;
esac`,
		"sdiag":  "cat <<'E'\n" + sdiagText + "\nE",
		"sshare": "printf 'root|||0.000000|0||1.000000|1.000000|\n ml|bob|1|0.5|12|0.25|0.75|0.375|\n'",
	}
}

func source(dir string) *Source {
	return New(Options{Bin: dir, Timeout: 2 * time.Second, Log: slog.New(slog.DiscardHandler)})
}

func TestSnapshotOfNewReleases(t *testing.T) {
	s := source(commandsIn(t, fakes()))
	s.Refresh(context.Background())
	snap := s.Latest()
	for _, sec := range snap.Sections {
		if sec.Err != nil || sec.At.IsZero() {
			t.Errorf("%s: %v", sec.Name, sec.Err)
		}
	}
	got := fmt.Sprintf("%s %s\n%+v\n%+v\n%v\n%+v\n%+v\n%+v\n%v %v %v %v %v %+v %+v", snap.Cluster, snap.Version, snap.Jobs, snap.Nodes, snap.Partitions, snap.Licenses, snap.Shares[1], snap.Reservations[0].Name,
		snap.Sched.Numbers["Agent queue size"], snap.Sched.Numbers["Main schedule statistics/Mean cycle"], snap.Sched.Numbers["Main scheduler exit/End of job queue"],
		snap.Sched.Numbers["Backfilling stats/Last cycle when"], len(snap.Commands), snap.Sched.RPCs, snap.Sched.Users)
	const want = `east 23.11.4
[{State:RUNNING Reason:None Flags:[COMPLETING] User:al"ice Account:ml QOS:normal Partition:gpu TRES:cpu=4,mem=1.50G,node=2,gres/gpu=2,gres/gpu:h100=2 GPUType:h100 CPUs:4 Mem:1536 GPUs:2 Nodes:2 Tasks:1 Held:false Reservation: Licenses:[] Eligible:100 Started:0 Ended:0} {State:PENDING Reason:JobHeldUser Flags:[] User:bob Account:ml QOS: Partition:gpu TRES: GPUType: CPUs:1 Mem:0 GPUs:0 Nodes:0 Tasks:6 Held:true Reservation:maint one Licenses:[{Name:matlab N:2} {Name:ansys N:1}] Eligible:0 Started:0 Ended:0}]
[{Name:n1 State:MIXED Reason:fan Flags:[DRAIN] Partitions:[gpu] Features:a,b GRES:gpu:h100:8(S:0-1) GRESUsed:gpu:h100:2(IDX:0-1) CPUs:64 CPUAlloc:4 CPUIdle:0 CPUsForJobs:62 Mem:1000 MemAlloc:100 MemFree:500 ReasonAt:7}]
[gpu]
[{Name:matlab Total:10 Used:3 Reserved:2}]
{Account:ml User:bob RawShares:1 NormShares:0.5 NormUsage:0.25 EffectUsage:0.375 RawUsage:12 FairShare:0.75 HasFairShare:true SharesParent:false}
maint one
1 5 2 1795305600 4 [{Name:REQUEST_PING Count:4 Micro:40}] [{Name:root Count:5 Micro:50}]`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestFaults: each fault is told and bounded, and the last good values stay.
func TestFaults(t *testing.T) {
	for name, tc := range map[string]struct{ script, want string }{
		"away":       {"echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1", "Unable to contact slurm controller"},
		"hangs":      {"sleep 60 & sleep 60", "took too long: more than 2s"},
		"no JSON":    {"echo 'JOBID PARTITION'", "does not begin with an object"},
		"cut off":    {`printf '{"jobs":[{"job_state":"RUNNING"},'`, "in jobs, byte"},
		"no jobs":    {`printf '{"errors":[]}'`, "has no key jobs"},
		"other type": {`printf '{"jobs":[{"cpus":"many"}]}'`, `"many" is not a number`},
		"endless":    {`printf '{"jobs":['; exec yes '{"job_state":"RUNNING"},'`, "printed too much: more than 100000 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := commandsIn(t, fakes())
			s := source(dir)
			s.o.MaxBytes = 100_000
			s.Refresh(context.Background())
			first := s.Latest()
			writeCommand(t, filepath.Join(dir, "squeue"), tc.script)
			began := time.Now()
			s.Refresh(context.Background())
			snap := s.Latest()
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("it took %s", took)
			}
			sec := snap.Sections[0]
			if sec.Err == nil || !strings.Contains(sec.Err.Error(), tc.want) {
				t.Errorf("got %v, want %q", sec.Err, tc.want)
			}
			if len(snap.Jobs) != 2 || !sec.At.Equal(first.Sections[0].At) || snap.Sections[1].Err != nil {
				t.Errorf("the last good values did not stay: %d jobs of %s", len(snap.Jobs), sec.At)
			}
			if name == "hangs" && errors.Is(sec.Err, errTime) == false {
				t.Errorf("%v is not a time limit", sec.Err)
			}
		})
	}
}

func TestArrayTasks(t *testing.T) {
	for text, want := range map[string]int64{"": 0, "5": 1, "1-10": 10, "0-9:3,12%4": 5, "1-3,...": 3, "x": 0, "9-1": 0} {
		if got := tasksOf(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

// TestRealSlurm reads the Slurm whose commands are in PATH, where PEER or
// MUSTER_SLURM_BIN says that there is one; with MUSTER_SLURM_REST also through
// that slurmrestd (MUSTER_SLURM_USER, MUSTER_SLURM_TOKEN_FILE), which must say
// the same. Without slurmdbd there is no fair share to read.
func TestRealSlurm(t *testing.T) {
	bin := os.Getenv("MUSTER_SLURM_BIN")
	if os.Getenv("PEER") == "" && bin == "" {
		t.Skip("NOT TESTED: neither PEER nor MUSTER_SLURM_BIN is set: nothing was read from a real Slurm")
	}
	config, err := exec.Command(filepath.Join(bin, "scontrol"), "show", "config").CombinedOutput()
	if err != nil {
		t.Skipf("NOT TESTED: no Slurm answers: %v: %s", err, config)
	}
	accounts := strings.Contains(string(config), "accounting_storage/slurmdbd")
	if !accounts {
		t.Log("NOT TESTED: fair share, this Slurm has no slurmdbd")
	}
	s := New(Options{Bin: bin, Log: slog.New(slog.DiscardHandler)})
	began := time.Now()
	s.Refresh(context.Background())
	snap := s.Latest()
	for _, sec := range snap.Sections {
		t.Logf("%-12s %8s %v", sec.Name, sec.Took.Round(time.Millisecond), sec.Err)
		if sec.Err != nil && (accounts || sec.Name != "fairshare") {
			t.Errorf("%s: %v", sec.Name, sec.Err)
		}
	}
	t.Logf("cluster %s, Slurm %s: %d jobs, %d nodes, partitions %v, %d shares, %d figures, in %s", snap.Cluster, snap.Version, len(snap.Jobs), len(snap.Nodes),
		snap.Partitions, len(snap.Shares), len(snap.Sched.Numbers), time.Since(began))
	if snap.Cluster == "" || len(snap.Nodes) == 0 || len(snap.Partitions) == 0 || accounts && len(snap.Shares) == 0 || snap.Sched.Numbers["Backfilling stats/Last depth cycle"] < 0 {
		t.Error("something is missing")
	}
	for _, n := range snap.Nodes {
		if n.Name == "" || n.CPUs <= 0 || n.Mem <= 0 || slurmWord(n.State) {
			t.Errorf("node %+v", n)
		}
	}
	out, err := exec.Command(filepath.Join(bin, "squeue"), "-h", "-r", "-t", "PD", "-o", "%i").Output()
	if err != nil {
		t.Fatal(err)
	}
	pending := int64(0)
	for _, j := range snap.Jobs {
		if j.State == "PENDING" {
			pending += j.Tasks
		}
	}
	if want := int64(strings.Count(string(out), "\n")); pending < want*9/10-5 || pending > want*11/10+5 { // others may submit meanwhile
		t.Errorf("%d pending, squeue counts %d", pending, want)
	}
	t.Run("slurmrestd", func(t *testing.T) { sameByREST(t, snap) })
}

// sameByREST reads the same Slurm again through slurmrestd.
func sameByREST(t *testing.T, want *Snapshot) {
	url := os.Getenv("MUSTER_SLURM_REST")
	if url == "" {
		t.Skip("NOT TESTED: MUSTER_SLURM_REST is not set: nothing was read from a real slurmrestd")
	}
	s := New(Options{Log: slog.New(slog.DiscardHandler), REST: &REST{URL: url, User: os.Getenv("MUSTER_SLURM_USER"), TokenFile: os.Getenv("MUSTER_SLURM_TOKEN_FILE"), Cluster: want.Cluster}})
	s.Refresh(context.Background())
	got := s.Latest()
	for _, sec := range got.Sections {
		if sec.Err != nil {
			t.Errorf("%s: %v", sec.Name, sec.Err)
		}
	}
	for i := range got.Reservations { // scontrol says the state, slurmrestd the times
		if got.Reservations[i].State != "" {
			t.Errorf("a reservation's state is %s", got.Reservations[i].State)
		}
		got.Reservations[i].State, got.Reservations[i].Flags = want.Reservations[i].State, want.Reservations[i].Flags
	}
	for _, list := range [...][]Node{got.Nodes, want.Nodes} {
		for i := range list {
			list[i].MemFree = 0 // it changes
		}
	}
	text := func(s *Snapshot) string {
		return fmt.Sprintf("%s %s\n%+v\n%+v\n%v\n%+v\n%+v", s.Cluster, s.Version, s.Jobs, s.Nodes, s.Partitions, s.Reservations, s.Licenses)
	}
	if text(got) != text(want) {
		t.Errorf("slurmrestd says\n%s\nthe commands\n%s", text(got), text(want))
	}
	for name := range want.Sched.Numbers {
		if _, ok := got.Sched.Numbers[name]; !ok {
			t.Logf("only sdiag has %q", name)
		}
	}
	for name, n := range got.Sched.Numbers {
		if was, ok := want.Sched.Numbers[name]; !ok || strings.HasPrefix(name, "Jobs ") && n != was {
			t.Errorf("%s is %d, sdiag says %d (%v)", name, n, was, ok)
		}
	}
	if len(got.Sched.RPCs) == 0 || len(got.Sched.Users) == 0 {
		t.Error("no calls")
	}
}

// slurmWord tells a word that is no state.
func slurmWord(s string) bool { return s == "" || strings.ToUpper(s) != s }
