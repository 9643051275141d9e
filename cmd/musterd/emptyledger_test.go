package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhpc/muster/controller/founding"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/ledger/backup"
	"github.com/musterhpc/muster/ledger/log"
	"github.com/musterhpc/muster/ledger/store"
	"github.com/musterhpc/muster/ledger/store/storetest"
	"github.com/musterhpc/muster/scheduler/daemon"
	"github.com/musterhpc/muster/spec"
)

// TestLogIsWhole: a log that ends before the archive is damaged, and is not
// continued: job numbers would be given twice.
func TestLogIsWhole(t *testing.T) {
	dir := t.TempDir()
	s, stop := openServer(t, dir)
	stop()
	if err := os.RemoveAll(filepath.Join(dir, "state", "ledger")); err != nil {
		t.Fatal(err)
	}
	s = &server{cfg: s.cfg, cluster: s.cluster, log: s.log}
	if err := s.openLedger(t.Context(), log.Options{}); !errors.Is(err, log.ErrCorrupt) || !strings.Contains(err.Error(), "was acknowledged") {
		t.Errorf("a log that was lost: %v", err)
	}
}

// TestARefusedStartLeavesRoomForARestore: a controller that refuses to found a cluster
// has made neither keys nor a log, so that those of the backup come back.
func TestARefusedStartLeavesRoomForARestore(t *testing.T) {
	was := storetest.NewFolder(t)
	err := was.Run(func(l *log.Durable, _ *daemon.Machine, _ *store.Archive) { was.Write(l, 3) })
	if err != nil {
		t.Fatal(err)
	}
	put := func(path, text string) string {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	put(filepath.Join(was.Dir, "credential.keys"), "keys")
	if err := os.Mkdir(filepath.Join(was.Dir, "tls"), 0o700); err != nil {
		t.Fatal(err)
	}
	confs := t.TempDir()
	put(filepath.Join(confs, "slurm.conf"), "ClusterName=peer\nNodeName=n[1-8] CPUs=8\nPartitionName=main Nodes=ALL\n")
	configOf := func(name, state string) string {
		return put(filepath.Join(confs, name), fmt.Sprintf("state_dir: %s\nrun_dir: %s\nslurm_conf: slurm.conf\n", state, confs))
	}
	must := func(code int, what string) {
		if code != 0 {
			t.Fatalf("%s ended with %d", what, code)
		}
	}
	to := filepath.Join(t.TempDir(), "backups")
	args := []string{"--to", to, "--config", configOf("was.yaml", was.Dir)}
	must(backup.Command("test", args, io.Discard, os.Stderr), "backup")
	dir := t.TempDir()
	put(filepath.Join(dir, founding.MarkName), "peer\n")
	config := configOf("muster.yaml", dir)
	cfg, err := conffile.Load(config)
	if err != nil {
		t.Fatal(err)
	}
	refused := &server{
		cfg:     cfg,
		cluster: &spec.Config{ClusterName: "peer"},
		log:     slog.New(slog.DiscardHandler),
	}
	if err := refused.openLedger(t.Context(), log.Options{}); !errors.Is(err, founding.ErrLedgerGone) {
		t.Fatal(err)
	}
	must(backup.RestoreCommand([]string{"--from", to, "--config", config}, io.Discard, os.Stderr), "restore")
	if data, err := os.ReadFile(filepath.Join(dir, "credential.keys")); string(data) != "keys" {
		t.Errorf("the key of the backup did not come back: %q, %v", data, err)
	}
	restored := storetest.NewFolder(t)
	restored.Dir = dir
	if got, want := restored.Seq(), was.History.State.Seq; got != want {
		t.Errorf("restored up to event %d of %d", got, want)
	}
}

// TestNoStartDuringARestore: no controller starts in a state folder whose restore has not
// ended.
func TestNoStartDuringARestore(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "restoring"), 0o700); err != nil {
		t.Fatal(err)
	}
	cfg := &conffile.Config{StateDir: dir, RunDir: t.TempDir()}
	err := (&server{cfg: cfg, roles: []string{"controller"}}).run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "muster restore") {
		t.Errorf("it started: %v", err)
	}
}
