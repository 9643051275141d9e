package catchup

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/musterhpc/muster/accounting/tally/tallytest"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/controller/peers"
	"github.com/musterhpc/muster/ledger/store"
	"github.com/musterhpc/muster/spec"
)

// leader is the ledger of a controller that leads, with some contents.
type leader struct {
	service.LedgerClient
	has   map[spec.Hash][]byte
	asked int
}

func (l *leader) Content(_ context.Context, req *apiv1.ContentRequest, _ ...grpc.CallOption) (*apiv1.ContentReply, error) {
	l.asked++
	data, ok := l.has[spec.Hash(req.GetHash())]
	if !ok {
		return nil, status.Error(codes.NotFound, "no such content")
	}
	return &apiv1.ContentReply{Data: data}, nil
}

// TestALostScriptMayComeBack: a script that nobody had is noted, so that controllers start without
// it. When somebody submits it again the leader has it, and a controller that gets a snapshot must
// have it too before it may lead: its jobs could not start otherwise.
func TestALostScriptMayComeBack(t *testing.T) {
	dir := t.TempDir()
	quiet := slog.New(slog.DiscardHandler)
	archive, err := store.OpenArchive(filepath.Join(dir, "archive"), quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	blobs, err := store.OpenBlobs(filepath.Join(dir, "content"), quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer blobs.Close()
	script := []byte("#!/bin/sh\ntrue\n")
	hash := spec.Hash(sha256.Sum256(script))
	h := tallytest.New(t, spec.AtUnix(1_790_000_000))
	h.Nodes(1, 4, 8000, 0)
	h.Accounts([]string{"ml"}, map[string][]string{"ml": {"alice"}})
	h.Submit(tallytest.Ask{Name: "x", User: "alice", UID: 1001, Account: "ml", CPUs: 1, Script: hash})
	h.State.Seq = 0 // no history is to be fetched: only contents are looked at
	leads := &leader{has: map[spec.Hash][]byte{}}
	c := &CatchUp{Peers: &peers.Peers{}, Archive: archive, Blobs: blobs, StateDir: dir, Log: quiet}
	c.dial = func(context.Context) (service.LedgerClient, func() error, error) {
		return leads, func() error { return nil }, nil
	}
	complete := func(what string) {
		t.Helper()
		if err := c.CompleteSnapshot(t.Context(), h.State); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	complete("nobody has the script")
	if !c.lostContents()[hash] || leads.asked == 0 {
		t.Fatalf("asked %d times, lost %v", leads.asked, c.lostContents())
	}
	c.dial = func(context.Context) (service.LedgerClient, func() error, error) { return nil, nil, errNoLeader }
	complete("a start while nobody leads")

	leads.has[hash] = script
	c.dial = func(context.Context) (service.LedgerClient, func() error, error) {
		return leads, func() error { return nil }, nil
	}
	complete("it was submitted again")
	if !blobs.Has(hash) {
		t.Error("a controller with the snapshot lacks a script that the leader has")
	}
	asked := leads.asked
	complete("all is there")
	if leads.asked != asked {
		t.Errorf("asked %d times more", leads.asked-asked)
	}
}
