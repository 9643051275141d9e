package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/musterhpc/muster/accounting/clickhouse"
	"github.com/musterhpc/muster/accounting/tally/tallytest"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/ledger/log"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/store"
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
	s := newSite(t)
	s.grow(3)
	b := s.mustBackup()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, clusterMark), []byte("peer\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	config := siteConfig(t, dir)
	cfg, err := conffile.Load(config)
	if err != nil {
		t.Fatal(err)
	}
	refused := &server{cfg: cfg, cluster: &spec.Config{ClusterName: "peer"}, log: discard()}
	if err := refused.openLedger(t.Context(), log.Options{}); !errors.Is(err, errLedgerGone) {
		t.Fatal(err)
	}
	rep, err := restoreTo(t.Context(), s.to, "", config)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(rep.Restored, filepath.Join(dir, "credential.keys")) {
		t.Errorf("restored %v, kept %v", rep.Restored, rep.Kept)
	}
	if got := stateOf(t, dir); got != b.hash {
		t.Error("it restored something else")
	}
}
