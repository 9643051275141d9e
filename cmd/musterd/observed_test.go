package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster/accounting/embedded/enginetest"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/cli/local/cluster"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/transport/grpcx"
)

func TestMain(m *testing.M) { os.Exit(enginetest.Main(m.Run)) }

// fakeSlurm writes commands that answer as a Slurm's do; jobs is what sacct
// prints below its header, and may change.
func fakeSlurm(t *testing.T, dir string) (jobs string) {
	t.Helper()
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	fields := "JobIDRaw JobID Cluster Partition Account User UID State ExitCode Submit Eligible Start End NNodes AllocCPUS ReqTRES AllocTRES NodeList TotalCPU MaxRSS NTasks JobName"
	jobs = filepath.Join(dir, "jobs")
	for name, text := range map[string]string{
		"sacct":    "case $1 in --helpformat) echo " + fields + "; exit;; esac\necho '" + strings.ReplaceAll(fields, " ", "|") + "'\ncat " + jobs + "\n",
		"scontrol": "case \"$*\" in 'show config') echo 'PrivateData             = jobs,usage';; *) echo '{}';; esac\n",
		"squeue":   "echo '{}'\n", "sinfo": "case $1 in -h) printf 'n1|8|16000|gpu|mixed|gpu:a100:2(S:0)|none\nn1|8|16000|all|mixed|gpu:a100:2|none\nn2|8|16000|gpu|down*|(null)|fan\n';; *) echo '{}';; esac\n",
		"sacctmgr": "echo '|1|Unknown|||'\n" + fmt.Sprintf("echo 'n2|%d|%d|DOWN*|root|fan broke'\n", time.Now().Add(-3*time.Hour).Unix(), time.Now().Add(-time.Hour).Unix()), "sdiag": "true\n", "sshare": "true\n",
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return jobs
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// A site that keeps Slurm runs an observer with accounting: its jobs are in
// the store, are asked for as one's own, and make KPIs; what is new follows.
func TestObserverKeepsHistory(t *testing.T) {
	enginetest.Need(t)
	dir, err := os.MkdirTemp("", "obs")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	jobs := fakeSlurm(t, dir)
	now := time.Now()
	line := func(id int, user, state string, ran time.Duration) string {
		start, end := fmt.Sprint(now.Add(-time.Hour).Unix()), "Unknown"
		if ran > 0 {
			end = fmt.Sprint(now.Add(ran - time.Hour).Unix())
		}
		return fmt.Sprintf("%d|%d|peer|gpu|ml|%s|1001|%s|0:0|%s|%s|%s|%s|1|4|cpu=4,mem=1G,node=1|cpu=4,gres/gpu=2,mem=1G,node=1|n1|00:10:00|||job%d\n", id, id, user, state, start, start, start, end, id)
	}
	write := func(text string) {
		if err := os.WriteFile(jobs, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(line(1, "alice", "COMPLETED", 10*time.Minute) + line(2, "bob", "RUNNING", 0) + "rubbish\n")
	if code := cluster.Init([]string{"--dir", dir, "--port", "23400"}, io.Discard, os.Stderr); code != 0 {
		t.Fatal("muster init fails")
	}
	cfg, err := conffile.Load(filepath.Join(dir, "muster.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Listen.Metrics, cfg.Listen.AccountingMetrics, cfg.Listen.AccountingAPI = conffile.Addr(freePort(t)), conffile.Addr(freePort(t)), ""
	cfg.Observe.Bin, cfg.Observe.Cluster = filepath.Join(dir, "bin"), ""
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := runObserver(ctx, cfg, "", true, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "observe.cluster") {
		t.Fatalf("without a name: %v", err)
	}
	cfg.Listen.Metrics = conffile.Addr(freePort(t))
	cfg.Observe.Cluster = "peer"
	cfg.Observe.AccountingEvery = 200_000_000
	ended := make(chan error, 1)
	go func() { ended <- runObserver(ctx, cfg, "", true, slog.New(slog.NewTextHandler(t.Output(), nil))) }()
	conn, err := grpcx.DialUnix(cfg.AccountingSocket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	acct := service.NewAccountingClient(conn)
	states := func() string {
		rep, err := acct.Jobs(ctx, &apiv1.AcctQuery{AllUsers: true, AllocationsOnly: true, Start: now.Add(-24 * time.Hour).UnixNano(), End: now.Add(time.Hour).UnixNano()})
		if err != nil {
			return err.Error()
		}
		out := rep.GetCluster()
		for _, r := range rep.GetRows() {
			out += fmt.Sprintf(" %d:%s:%s", r.GetJobId(), r.GetUser(), r.GetState())
		}
		return out
	}
	until := func(what string, see func() string) {
		t.Helper()
		for began := time.Now(); see() != what; time.Sleep(50 * time.Millisecond) {
			select {
			case err := <-ended:
				t.Fatalf("the observer ended with %v", err)
			default:
			}
			if time.Since(began) > 60*time.Second {
				t.Fatalf("it is %q, not %q", see(), what)
			}
		}
	}
	until("peer 1:alice:COMPLETED 2:bob:RUNNING", states)
	write(line(1, "alice", "COMPLETED", 10*time.Minute) + line(2, "bob", "TIMEOUT", 30*time.Minute))
	until("peer 1:alice:COMPLETED 2:bob:TIMEOUT", states)
	// Two nodes of 8 CPUs; n2 was down for two of these four hours, and is again.
	until("right", func() string {
		rep, err := acct.Report(ctx, &apiv1.ReportQuery{Report: "cluster utilization", Start: now.Add(-4 * time.Hour).UnixNano(), End: now.UnixNano()})
		if err != nil {
			return err.Error()
		}
		seconds := map[string]int64{}
		for i, c := range rep.GetColumns() {
			seconds[c.GetName()] = rep.GetRows()[0].GetCells()[i].GetInt()
		}
		if down := seconds["Down"]; seconds["Reported"] < 16*4*3600-100 || seconds["Reported"] > 16*4*3600 || down < 8*2*3600-200 || down > 8*2*3600+200 || seconds["Allocated"] != 4*600+4*1800 {
			return fmt.Sprint(seconds)
		}
		return "right"
	})
	until("found", func() string {
		resp, err := http.Get("http://" + string(cfg.Listen.AccountingMetrics) + "/metrics")
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			return err.Error()
		}
		if strings.Contains(string(text), `muster_kpi_throughput`) && strings.Contains(string(text), `cluster="peer"`) {
			return "found"
		}
		return fmt.Sprintf("%d bytes", len(text))
	})
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the observer ended with %v", err)
	}
}
