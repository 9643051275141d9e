package importer_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster/accounting/importer"
	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/spec"
)

// slurmBin is the folder of a real Slurm's commands, or the test is skipped:
// it submits jobs, which must not happen to somebody's cluster by accident.
func slurmBin(t *testing.T) string {
	t.Helper()
	bin := os.Getenv("MUSTER_SLURM_BIN")
	if bin == "" {
		t.Skip("NOT TESTED against a real Slurm: name the folder of its commands in MUSTER_SLURM_BIN; jobs will be submitted to it")
	}
	return bin
}

func slurm(t *testing.T, bin, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), filepath.Join(bin, name), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// TestRealSlurm: jobs of a real Slurm arrive once, while they run and after,
// with what its own sacct says of them.
func TestRealSlurm(t *testing.T) {
	bin := slurmBin(t)
	if out, err := exec.CommandContext(t.Context(), filepath.Join(bin, "sacctmgr"), "-nP", "show", "cluster", "format=cluster").CombinedOutput(); err != nil || len(out) == 0 {
		t.Skipf("NOT TESTED against a real Slurm: its accounting (slurmdbd) does not answer: %v: %s", err, out)
	}
	if out, err := exec.CommandContext(t.Context(), filepath.Join(bin, "squeue"), "-h").CombinedOutput(); err != nil || len(out) > 0 {
		t.Skipf("NOT TESTED against a real Slurm: it must have no other jobs: %v: %s", err, out)
	}
	s := openStore(t)
	cluster := slurm(t, bin, "sacctmgr", "-nP", "show", "cluster", "format=cluster")
	cluster, _, _ = strings.Cut(cluster, "\n")
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	before := time.Now().Add(-time.Minute)
	submit := func(args ...string) string {
		return slurm(t, bin, "sbatch", append([]string{"--parsable", "--chdir=/tmp", "-o", "/dev/null"}, args...)...)
	}
	array, failing := submit("--array=1-3", "-J", "arr", "--wrap", "sleep 1"), submit("-J", "fails", "--wrap", "exit 3")
	long := submit("-J", "a|b", "--wrap", "sleep 12")
	states := func() string {
		return slurm(t, bin, "sacct", "-XnP", "-j", strings.Join([]string{array, failing, long}, ","), "-o", "JobID,State")
	}
	wait := func(what func(string) bool) {
		t.Helper()
		for began := time.Now(); !what(states()); time.Sleep(500 * time.Millisecond) { //muster:sleep another program's state is polled
			if time.Since(began) > 2*time.Minute {
				t.Fatalf("the jobs do not end: %s", states())
			}
		}
	}
	wait(func(s string) bool { return strings.Count(s, "COMPLETED") == 3 && strings.Contains(s, "FAILED") })
	pull := func() *importer.Result {
		t.Helper()
		ledger := tally.ImportedLedger(cluster)
		w, err := s.NewImportWriter(t.Context(), ledger, cluster)
		if err != nil {
			t.Fatal(err)
		}
		source, sum := importer.Slurm{Bin: bin, Cluster: cluster, Step: 20 * time.Second}, &importer.Result{}
		since := before
		if last := w.Position(); last.Seq > 0 {
			since = source.Since(last.At)
		}
		c := importer.Config{Ledger: ledger, Store: importer.In(s), Writer: w, Rejected: func(r importer.Reject) { t.Errorf("rejected: %+v", r) }}
		if err := source.Pull(t.Context(), c, since, time.Now().Add(time.Second), sum.Sum); err != nil {
			t.Fatal(err)
		}
		if !sum.Reconciled() {
			t.Errorf("not reconciled: %+v", sum)
		}
		return sum
	}
	first := pull()
	if first.New < 4 || first.Steps < 4 {
		t.Errorf("first: %+v", first)
	}
	wait(func(s string) bool { return strings.Count(s, "COMPLETED") == 4 })
	second := pull()
	if second.New < 1 {
		t.Errorf("second: %+v", second)
	}
	if third := pull(); third.New != 0 || third.Open > 0 {
		t.Errorf("third: %+v", third)
	}
	// What Slurm itself says, with its own arithmetic.
	for line := range strings.SplitSeq(slurm(t, bin, "sacct", "-XnP", "-j", strings.Join([]string{array, failing, long}, ","),
		"-o", "JobIDRaw,State,ElapsedRaw,AllocCPUS,CPUTimeRAW,ExitCode,JobName"), "\n") {
		f := strings.SplitN(line, "|", 7)
		got := one(t, s, fmt.Sprintf("SELECT toFloat64(countIf(job_id = %s AND state = '%s' AND elapsed_us = %s * 1000000 AND alloc_cpus = %s AND toInt64(alloc_cpus * elapsed_us / 1e6) = %s "+
			"AND concat(toString(exit_code), ':', toString(exit_signal)) = '%s' AND name = '%s')) FROM muster.jobs", f[0], f[1], f[2], f[3], f[4], f[5], f[6]))
		if got != 1 {
			t.Errorf("%s stands %v times in the store", line, got)
		}
	}
	var open []uint64
	open, _, err := s.Open(t.Context(), tally.ImportedLedger(cluster))
	if err != nil || len(open) != 0 {
		t.Errorf("%d are open, %v", len(open), err)
	}
}

// TestFakeSacct: a sacct that fails, or that is none, is said so with its own
// words, and nothing is stored.
func TestFakeSacct(t *testing.T) {
	dir := t.TempDir()
	script := func(text string) importer.Slurm {
		if err := os.WriteFile(filepath.Join(dir, "sacct"), []byte("#!/bin/sh\n"+text), 0o700); err != nil {
			t.Fatal(err)
		}
		return importer.Slurm{Bin: dir, Cluster: "c"}
	}
	fields := "case $1 in --helpformat) echo " + strings.Join(importer.Columns(), " ") + "; exit;; esac\n"
	c := importer.Config{Store: nothing{}, Writer: nothing{}}
	now := time.Unix(0, int64(spec.AtUnix(1_800_000_000)))
	pull := func(s importer.Slurm) error {
		return s.Pull(context.Background(), c, now.Add(-time.Hour), now, func(*importer.Result) {})
	}
	if err := pull(script("echo no database >&2; exit 1\n")); err == nil || !strings.Contains(err.Error(), "no database") {
		t.Errorf("a sacct that fails: %v", err)
	}
	if err := pull(script("echo hello\n")); err == nil || !strings.Contains(err.Error(), "is it Slurm's") {
		t.Errorf("another program: %v", err)
	}
	if err := pull(script(fields + "echo 'Problem talking to the database' >&2; exit 1\n")); err == nil || !strings.Contains(err.Error(), "Problem talking") {
		t.Errorf("a database that is away: %v", err)
	}
	if err := pull(script(fields + "case $* in *--starttime=*) echo 'JobIDRaw|State|Submit|Start|End';; esac\n")); err != nil {
		t.Errorf("nothing new: %v", err)
	}
	if err := pull(importer.Slurm{Bin: filepath.Join(dir, "nowhere")}); err == nil {
		t.Error("a sacct that is not there")
	}
}

// TestSilentCommand: a command that fails without a word is named.
func TestSilentCommand(t *testing.T) {
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "sacct"), []byte("#!/bin/sh\nexit 3\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	source := importer.Slurm{Bin: bin, Cluster: "peer"}
	err := source.Pull(t.Context(), importer.Config{}, time.Now().Add(-time.Hour), time.Now(), nil)
	if err == nil || err.Error() != "ask Slurm's sacct: exit status 3" {
		t.Errorf("%v", err)
	}
}
