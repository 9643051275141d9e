package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhpc/muster/accounting/clickhouse"
	"github.com/musterhpc/muster/accounting/tally/tallytest"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/ledger/backup"
	"github.com/musterhpc/muster/ledger/log"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/store"
	"github.com/musterhpc/muster/ledger/store/storetest"
	"github.com/musterhpc/muster/scheduler/daemon"
	"github.com/musterhpc/muster/spec"
)

// TestAnEmptyLedgerBesideDataIsRefused: a controller whose ledger is gone does not
// found a cluster beside what is left of the old one, unless it is told to.
func TestAnEmptyLedgerBesideDataIsRefused(t *testing.T) {
	dir := t.TempDir()
	blobs, err := store.OpenBlobs(filepath.Join(dir, "content"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer blobs.Close()
	s := &server{cfg: &conffile.Config{StateDir: dir}, blobs: blobs}
	empty := state.New()
	if err := s.refuseEmpty(empty); err != nil {
		t.Errorf("the first start: %v", err)
	}
	if _, err := blobs.Put([]byte("#!/bin/sh")); err != nil {
		t.Fatal(err)
	}
	if err := s.refuseEmpty(empty); !errors.Is(err, errLedgerGone) {
		t.Errorf("beside a script: %v", err)
	}
	if err := s.markCluster(tallytest.New(t, spec.AtUnix(1_790_000_000)).State); err != nil {
		t.Fatal(err)
	}
	if err := s.refuseEmpty(empty); !errors.Is(err, errLedgerGone) || !strings.Contains(err.Error(), "peer ") || !strings.Contains(err.Error(), "--new-cluster") {
		t.Errorf("beside the mark of a cluster: %v", err)
	}
	s.anew = true
	if err := s.refuseEmpty(empty); err != nil {
		t.Errorf("with --new-cluster: %v", err)
	}
}

// TestAClusterThatTheStoreKnowsIsNotFounded: an empty ledger does not begin where the
// accounting store has a cluster of this name, unless it is told to; a store that does
// not answer keeps nobody from beginning.
func TestAClusterThatTheStoreKnowsIsNotFounded(t *testing.T) {
	s := &server{cfg: &conffile.Config{}, cluster: &spec.Config{ClusterName: "peer"}, log: slog.New(slog.DiscardHandler)}
	asked := ""
	knows := func(_ context.Context, cluster string) ([]clickhouse.KnownLedger, error) {
		asked = cluster
		return []clickhouse.KnownLedger{{Ledger: tallytest.LedgerID, Seq: 7, At: spec.AtUnix(1_790_000_000)}}, nil
	}
	err := s.refuseKnown(t.Context(), state.New(), knows)
	if !errors.Is(err, errClusterKnown) || asked != "peer" {
		t.Fatalf("asked for %q: %v", asked, err)
	}
	for _, word := range []string{"2026-09-21T14:13:20Z", "muster restore", "--new-cluster"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("it says nothing of %s: %v", word, err)
		}
	}
	if err := s.refuseKnown(t.Context(), tallytest.New(t, spec.AtUnix(1_790_000_000)).State, knows); err != nil {
		t.Errorf("with a ledger: %v", err)
	}
	silent := func(context.Context, string) ([]clickhouse.KnownLedger, error) { return nil, errors.New("away") }
	if err := s.refuseKnown(t.Context(), state.New(), silent); err != nil {
		t.Errorf("a store that is away: %v", err)
	}
	s.anew = true
	if err := s.refuseKnown(t.Context(), state.New(), knows); err != nil {
		t.Errorf("with --new-cluster: %v", err)
	}
}

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
	put(filepath.Join(dir, clusterMark), "peer\n")
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
	if err := refused.openLedger(t.Context(), log.Options{}); !errors.Is(err, errLedgerGone) {
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
