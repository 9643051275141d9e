package founding

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster/accounting/clickhouse"
	"github.com/musterhpc/muster/accounting/tally/tallytest"
	"github.com/musterhpc/muster/controller/peers"
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
	g := &Guard{StateDir: dir, Blobs: func() int { return blobs.Disk.Stats().Blobs }}
	empty := state.New()
	if err := g.RefuseEmpty(empty); err != nil {
		t.Errorf("the first start: %v", err)
	}
	if _, err := blobs.Put([]byte("#!/bin/sh")); err != nil {
		t.Fatal(err)
	}
	if err := g.RefuseEmpty(empty); !errors.Is(err, ErrLedgerGone) {
		t.Errorf("beside a script: %v", err)
	}
	if err := g.MarkCluster(tallytest.New(t, spec.AtUnix(1_790_000_000)).State); err != nil {
		t.Fatal(err)
	}
	if err := g.RefuseEmpty(empty); !errors.Is(err, ErrLedgerGone) || !strings.Contains(err.Error(), "peer ") || !strings.Contains(err.Error(), "--new-cluster") {
		t.Errorf("beside the mark of a cluster: %v", err)
	}
	g.Anew = true
	if err := g.RefuseEmpty(empty); err != nil {
		t.Errorf("with --new-cluster: %v", err)
	}
}

// TestAClusterThatTheStoreKnowsIsNotFounded: an empty ledger does not begin where the
// accounting store has a cluster of this name, unless it is told to; a store that does
// not answer keeps nobody from beginning.
func TestAClusterThatTheStoreKnowsIsNotFounded(t *testing.T) {
	g := &Guard{Cluster: &spec.Config{ClusterName: "peer"}, Log: slog.New(slog.DiscardHandler)}
	asking := func(ask LedgersOf) *Guard {
		g.AskStore = ask
		return g
	}
	asked := ""
	knows := func(_ context.Context, cluster string) ([]clickhouse.KnownLedger, error) {
		asked = cluster
		return []clickhouse.KnownLedger{{Ledger: tallytest.LedgerID, Seq: 7, At: spec.AtUnix(1_790_000_000)}}, nil
	}
	err := asking(knows).refuseKnown(t.Context(), state.New())
	if !errors.Is(err, ErrClusterKnown) || asked != "peer" {
		t.Fatalf("asked for %q: %v", asked, err)
	}
	for _, word := range []string{"2026-09-21T14:13:20Z", "muster restore", "--new-cluster"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("it says nothing of %s: %v", word, err)
		}
	}
	if err := asking(knows).refuseKnown(t.Context(), tallytest.New(t, spec.AtUnix(1_790_000_000)).State); err != nil {
		t.Errorf("with a ledger: %v", err)
	}
	silent := func(context.Context, string) ([]clickhouse.KnownLedger, error) { return nil, errors.New("away") }
	if err := asking(silent).refuseKnown(t.Context(), state.New()); err != nil {
		t.Errorf("a store that is away: %v", err)
	}
	g.Anew = true
	if err := asking(knows).refuseKnown(t.Context(), state.New()); err != nil {
		t.Errorf("with --new-cluster: %v", err)
	}
}

// TestAClusterThatNodesHaveJoinedIsNotFounded: neither where the agent of a node shows a certificate
// of this cluster, unless it is told to.
func TestAClusterThatNodesHaveJoinedIsNotFounded(t *testing.T) {
	g := &Guard{Cluster: &spec.Config{ClusterName: "peer"}}
	joined := peers.Joined{Node: "n7", Address: "10.0.0.7:6818", Since: time.Unix(1_790_000_000, 0)}
	shows := func(context.Context) (peers.Joined, bool) { return joined, true }
	err := g.refuseJoined(t.Context(), shows)
	if !errors.Is(err, ErrClusterJoined) {
		t.Fatalf("%v", err)
	}
	for _, word := range []string{"n7", "10.0.0.7:6818", "cluster peer", "2026-09-21", "muster restore", "--new-cluster"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("it says nothing of %s: %v", word, err)
		}
	}
	if err := g.refuseJoined(t.Context(), func(context.Context) (peers.Joined, bool) { return joined, false }); err != nil {
		t.Errorf("nobody has joined: %v", err)
	}
	g.Anew = true
	if err := g.refuseJoined(t.Context(), shows); err != nil {
		t.Errorf("with --new-cluster: %v", err)
	}
}
