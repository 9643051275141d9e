package main

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/internal/transport/channel"
	"github.com/musterhpc/muster/internal/transport/grpcerr"
	"github.com/musterhpc/muster/internal/transport/grpcx"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/status"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/store"
	"github.com/musterhpc/muster/spec"
)

// completeSnapshot fetches from the leader what a snapshot that it sent names and does not
// hold: the history before it, for the archive, and scripts and environments.
// Until then this controller applies nothing further, so it does not catch up,
// does not get a vote and cannot lead. A snapshot of its own lacks nothing.
//
// A controller that begins a group with a rebuilt ledger has nobody to ask, and what a leader lacks
// is nowhere: both note such contents as lost.
func (s *server) completeSnapshot(ctx context.Context, st *state.State) error {
	if s.peers == nil {
		return nil
	}
	if s.peers.founds {
		return s.noteLost(s.missingContents(st))
	}
	said := ""
	for {
		missing := s.missingContents(st)
		behind := s.archive.Disk.Stats().LastSeq < st.Seq
		if !behind && len(missing) == 0 {
			return nil
		}
		err := s.fetchMissing(ctx, st, missing)
		if err == nil {
			continue
		}
		if text := err.Error(); text != said {
			said = text
			s.log.Warn(
				"what a snapshot of the ledger names is not here yet",
				"contents",
				len(missing),
				"history",
				behind,
				"error",
				err,
			)
		}
		if !pauseFor(ctx, tendEvery) {
			return ctx.Err()
		}
	}
}

// missingContents are the contents that jobs name and this controller lacks.
func (s *server) missingContents(st *state.State) []spec.Hash {
	seen := s.lostContents()
	seen[spec.Hash{}] = true
	var out []spec.Hash
	want := func(hash spec.Hash) {
		if !seen[hash] && !s.blobs.Has(hash) {
			out = append(out, hash)
		}
		seen[hash] = true
	}
	store.EachJobContent(st, want)
	return out
}

// fetchMissing asks the leader for history and contents.
func (s *server) fetchMissing(ctx context.Context, st *state.State, missing []spec.Hash) error {
	conn, err := s.dialLeader(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	client := service.NewLedgerClient(conn)
	if err := s.fetchHistory(ctx, client, st.Seq); err != nil {
		return fmt.Errorf("history: %w", err)
	}
	for _, hash := range missing {
		rep, err := client.Content(ctx, &apiv1.ContentRequest{Hash: hash[:]})
		if isNotFound(err) {
			if err := s.noteLost([]spec.Hash{hash}); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("content %s: %w", hash, err)
		}
		if got, err := s.blobs.Put(rep.GetData()); err != nil || got != hash {
			return errors.Join(fmt.Errorf("content %s: the leader sent %s", hash, got), err)
		}
	}
	return nil
}

// isNotFound tells whether the leader answered that it has no such content.
func isNotFound(err error) bool {
	return err != nil && status.Convert(grpcerr.From(err), status.Numbers()).Wire == status.NotFound
}

// lostFile names the contents that the group has lost, one hash in a line: without it each
// start would ask for them again.
const lostFile = "lost-contents"

// noteLost adds to lostFile.
func (s *server) noteLost(hashes []spec.Hash) error {
	if len(hashes) == 0 {
		return nil
	}
	path := filepath.Join(s.cfg.StateDir, lostFile)
	s.log.Warn(
		"scripts or environments of jobs are lost: those jobs cannot start again",
		"contents",
		len(hashes),
		"listed in",
		path,
	)
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	for _, hash := range hashes {
		if _, err := fmt.Fprintln(file, hash); err != nil {
			return errors.Join(err, file.Close())
		}
	}
	return file.Close()
}

// lostContents reads lostFile. A line that cannot be read counts for nothing: its content is
// asked for again.
func (s *server) lostContents() map[spec.Hash]bool {
	out := map[spec.Hash]bool{}
	data, err := os.ReadFile(filepath.Join(s.cfg.StateDir, lostFile))
	if err != nil {
		return out
	}
	for line := range strings.Lines(string(data)) {
		var hash spec.Hash
		raw, err := hex.DecodeString(strings.TrimSpace(line))
		if err == nil && len(raw) == len(hash) {
			copy(hash[:], raw)
			out[hash] = true
		}
	}
	return out
}

// fetchHistory brings the archive up to an event.
func (s *server) fetchHistory(ctx context.Context, client service.LedgerClient, upTo uint64) error {
	began := time.Now()
	last := s.archive.Disk.Stats().LastSeq
	if last >= upTo {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := client.Subscribe(ctx, &apiv1.SubscribeRequest{FromSeq: last + 1})
	if err != nil {
		return err
	}
	told := began
	for last < upTo {
		batch, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("the leader's archive ends at event %d, before %d", last, upTo)
		}
		if err != nil {
			return err
		}
		if err := s.archive.Append(batch.GetPosition(), batch.GetFirstSeq(), batch.GetLastSeq(), batch.GetEvents()); err != nil {
			return err
		}
		last = max(last, batch.GetLastSeq())
		if now := time.Now(); now.Sub(told) > 5*time.Second {
			told = now
			s.log.Info("fetching the history from the leader", "event", last, "of", upTo)
		}
	}
	s.log.Info("fetched the history from the leader", "events", last, "took", time.Since(began))
	return nil
}

// dialLeader makes a client of the controller that leads.
func (s *server) dialLeader(ctx context.Context) (*grpc.ClientConn, error) {
	lead := findLeader(s.peers.askOthers(ctx))
	if lead == nil {
		return nil, errors.New("no controller leads")
	}
	host, _, err := net.SplitHostPort(lead.of.Address)
	if err != nil {
		return nil, err
	}
	return grpcx.DialTLS(
		lead.of.Address,
		func() *tls.Config { return s.peers.source.Client(host, identity.Controller, channel.ALPNGRPC) },
	)
}
