// Package catchup brings a controller of a group up to what a snapshot of the ledger names
// and does not hold: the history before it, for the archive, and scripts and environments.
package catchup

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/controller/peers"
	"github.com/musterhpc/muster/internal/clock"
	"github.com/musterhpc/muster/internal/transport/grpcx"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/store"
	"github.com/musterhpc/muster/spec"
)

// CatchUp brings a controller of a group up to what a snapshot names.
type CatchUp struct {
	Peers    *peers.Peers
	Archive  *store.Archive
	Blobs    *store.Blobs
	StateDir string
	Log      *slog.Logger

	dial func(ctx context.Context) (service.LedgerClient, func() error, error) // nil: dialLeader
}

// errNoLeader tells that there is nobody to ask.
var errNoLeader = errors.New("no controller leads")

// dialLeader connects to the ledger of the controller that leads.
func (c *CatchUp) dialLeader(ctx context.Context) (service.LedgerClient, func() error, error) {
	if c.dial != nil {
		return c.dial(ctx)
	}
	conn, _, err := c.Peers.DialLeader(ctx)
	if err == nil && conn == nil {
		err = errNoLeader
	}
	if err != nil {
		return nil, nil, err
	}
	return service.NewLedgerClient(conn), conn.Close, nil
}

// CompleteSnapshot fetches from the leader what a snapshot that it sent names and does not
// hold: the history before it, for the archive, and scripts and environments.
// Until then this controller applies nothing further, so it does not catch up,
// does not get a vote and cannot lead. A snapshot of its own lacks nothing.
//
// A controller that begins a group with a rebuilt ledger has nobody to ask, and what a leader lacks
// is nowhere: both note such contents as lost. A script that was lost may be submitted again, so
// that a leader is asked for it anew; only its own start, when perhaps nobody leads, a controller
// does not put off for what is lost.
func (c *CatchUp) CompleteSnapshot(ctx context.Context, cluster *state.State) error {
	if c.Peers.Founds {
		missing, _ := c.missingContents(cluster)
		return c.noteLost(missing)
	}
	said := ""
	for {
		missing, lost := c.missingContents(cluster)
		behind := c.Archive.Disk.Stats().LastSeq < cluster.Seq
		if !behind && len(missing)+len(lost) == 0 {
			return nil
		}
		err := c.fetchMissing(ctx, cluster, missing, lost)
		if err == nil {
			return nil
		}
		if errors.Is(err, errNoLeader) && !behind && len(missing) == 0 {
			return nil
		}
		if text := err.Error(); text != said {
			said = text
			c.Log.Warn(
				"what a snapshot of the ledger names is not here yet",
				"contents",
				len(missing),
				"history",
				behind,
				"error",
				err,
			)
		}
		if !clock.PauseFor(ctx, peers.TendEvery) {
			return ctx.Err()
		}
	}
}

// missingContents are the contents that jobs name and this controller lacks, and those of them
// that a leader lacked too when it was asked.
func (c *CatchUp) missingContents(cluster *state.State) (missing, lost []spec.Hash) {
	noted := c.lostContents()
	seen := map[spec.Hash]bool{{}: true}
	store.EachJobContent(cluster, func(hash spec.Hash) {
		switch {
		case seen[hash] || c.Blobs.Has(hash):
		case noted[hash]:
			lost = append(lost, hash)
		default:
			missing = append(missing, hash)
		}
		seen[hash] = true
	})
	return missing, lost
}

// fetchMissing asks the leader for history and contents.
func (c *CatchUp) fetchMissing(
	ctx context.Context,
	cluster *state.State,
	missing, lost []spec.Hash,
) error {
	client, done, err := c.dialLeader(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = done() }()
	if err := c.fetchHistory(ctx, client, cluster.Seq); err != nil {
		return fmt.Errorf("history: %w", err)
	}
	for _, hash := range missing {
		found, err := c.fetchContent(ctx, client, hash)
		if err == nil && !found {
			err = c.noteLost([]spec.Hash{hash})
		}
		if err != nil {
			return err
		}
	}
	for _, hash := range lost {
		if _, err := c.fetchContent(ctx, client, hash); err != nil {
			return err
		}
	}
	return nil
}

// fetchContent fetches one content; found is false where the leader has none.
func (c *CatchUp) fetchContent(
	ctx context.Context,
	client service.LedgerClient,
	hash spec.Hash,
) (found bool, err error) {
	reply, err := client.Content(ctx, &apiv1.ContentRequest{Hash: hash[:]})
	if isNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("content %s: %w", hash, err)
	}
	if got, err := c.Blobs.Put(reply.GetData()); err != nil || got != hash {
		return false, errors.Join(fmt.Errorf("content %s: the leader sent %s", hash, got), err)
	}
	return true, nil
}

// isNotFound tells whether the leader answered that it has no such content.
func isNotFound(err error) bool {
	return err != nil && rpcstatus.Convert(grpcx.FromStatus(err), rpcstatus.Numbers()).Wire == rpcstatus.NotFound
}

// lostFile names the contents that the group has lost, one hash in a line: without it a
// controller could not start where nobody leads.
const lostFile = "lost-contents"

// noteLost adds to lostFile.
func (c *CatchUp) noteLost(hashes []spec.Hash) error {
	if len(hashes) == 0 {
		return nil
	}
	path := filepath.Join(c.StateDir, lostFile)
	c.Log.Warn(
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
func (c *CatchUp) lostContents() map[spec.Hash]bool {
	out := map[spec.Hash]bool{}
	data, err := os.ReadFile(filepath.Join(c.StateDir, lostFile))
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
func (c *CatchUp) fetchHistory(ctx context.Context, client service.LedgerClient, upTo uint64) error {
	began := time.Now()
	last := c.Archive.Disk.Stats().LastSeq
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
		if err := c.Archive.Append(batch.GetPosition(), batch.GetFirstSeq(), batch.GetLastSeq(), batch.GetEvents()); err != nil {
			return err
		}
		last = max(last, batch.GetLastSeq())
		if now := time.Now(); now.Sub(told) > 5*time.Second {
			told = now
			c.Log.Info("fetching the history from the leader", "event", last, "of", upTo)
		}
	}
	c.Log.Info("fetched the history from the leader", "events", last, "took", time.Since(began))
	return nil
}
