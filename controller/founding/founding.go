// Package founding keeps a controller from founding a cluster where there is one: its jobs would be
// forgotten, and their numbers given away again.
package founding

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/musterhpc/muster/accounting/clickhouse"
	"github.com/musterhpc/muster/controller/peers"
	"github.com/musterhpc/muster/ledger/log"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// ErrLedgerGone is why a controller does not found a cluster where there was one.
var ErrLedgerGone = errors.New("the ledger is empty, but this state folder had a cluster")

// ErrClusterKnown is why a controller does not found a cluster whose accounting exists.
var ErrClusterKnown = errors.New(
	"the ledger is empty, but the accounting store has a cluster of this name",
)

// ErrClusterJoined is why a controller does not found a cluster whose nodes have one.
var ErrClusterJoined = errors.New(
	"the ledger is empty, but nodes have joined a cluster of this name",
)

// storePatience is how long the accounting store, and then the nodes, may take to answer before a
// cluster is founded.
const storePatience = 5 * time.Second

// MarkName is the file in the state folder that says which cluster it belongs
// to. It stays when the ledger is lost.
const MarkName = "cluster"

// Guard knows where traces of an older cluster may be.
type Guard struct {
	StateDir string
	Cluster  *spec.Config
	Anew     bool       // the administrator asked for another cluster of this name
	Blobs    func() int // scripts and environments that are kept
	AskStore LedgersOf
	// AgentPort is the port of the agents; "" = they listen nowhere.
	AgentPort string
	Log       *slog.Logger
}

// NewUUID makes the identity of a new cluster.
func NewUUID() ([16]byte, error) { return uuid.NewRandom() }

// MarkCluster notes which cluster the state folder belongs to.
func (g *Guard) MarkCluster(cluster *state.State) error {
	path := filepath.Join(g.StateDir, MarkName)
	text := fmt.Sprintf("%s %s\n", cluster.ClusterName, uuid.UUID(cluster.UUID))
	if have, err := os.ReadFile(path); err == nil && string(have) == text {
		return nil
	}
	return os.WriteFile(path, []byte(text), 0o600)
}

// ReadMark is what MarkCluster noted in a state folder; empty without it.
func ReadMark(stateDir string) string {
	text, err := os.ReadFile(filepath.Join(stateDir, MarkName))
	if err != nil {
		return "" // a folder that was never a leader's has none
	}
	return strings.TrimSpace(string(text))
}

// RefuseFresh refuses to found a cluster before anything is made for it, keys and a log,
// so that a restore finds the folder as it was. archived tells that the archive holds something.
func (g *Guard) RefuseFresh(ctx context.Context, archived bool) error {
	fresh, err := log.Fresh(log.OS(), filepath.Join(g.StateDir, "ledger"))
	if err != nil || !fresh {
		return err
	}
	if archived {
		return nil // opening the log tells what is wrong, and what to do
	}
	if err := g.RefuseEmpty(state.New()); err != nil {
		return err
	}
	if err := g.refuseKnown(ctx, state.New()); err != nil {
		return err
	}
	if g.AgentPort == "" {
		return nil
	}
	return g.refuseJoined(ctx, func(ctx context.Context) (peers.Joined, bool) {
		return peers.FindJoined(ctx, g.Cluster.ClusterName, g.Cluster.Nodes, g.AgentPort)
	})
}

// refuseJoined refuses to found a cluster while agents of its nodes have joined one of this name:
// they may run its jobs, whose numbers would be given away again. Nodes that do not answer keep
// nobody from beginning.
func (g *Guard) refuseJoined(
	ctx context.Context,
	find func(ctx context.Context) (peers.Joined, bool),
) error {
	if g.Anew {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, storePatience)
	defer cancel()
	joined, ok := find(ctx)
	if !ok {
		return nil
	}
	return fmt.Errorf(
		"%w: node %s (%s) shows a certificate of cluster %s, made %s; restore its ledger from a backup (muster restore), "+
			"or start once with musterd --new-cluster to begin another cluster of this name, and enrol the nodes anew",
		ErrClusterJoined,
		joined.Node,
		joined.Address,
		g.Cluster.ClusterName,
		joined.Since.UTC().Format(time.RFC3339),
	)
}

// LedgersOf asks the accounting store which ledgers of a cluster it knows.
type LedgersOf func(ctx context.Context, cluster string) ([]clickhouse.KnownLedger, error)

// refuseKnown refuses to found a cluster that the accounting store knows by its name: a
// controller on a new host, or with a new disk, whose ledger was not restored. A store
// that does not answer is no reason not to begin, as jobs run without one.
func (g *Guard) refuseKnown(ctx context.Context, cluster *state.State) error {
	if cluster.Seq > 0 || g.Anew {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, storePatience)
	defer cancel()
	name := g.Cluster.ClusterName
	known, err := g.AskStore(ctx, name)
	if err != nil {
		g.Log.Warn(
			"a new cluster begins, and the accounting store did not answer whether it knows one of this name",
			"cluster",
			name,
			"error",
			err,
		)
		return nil
	}
	if len(known) == 0 {
		return nil
	}
	var text []string
	for _, ledger := range known {
		text = append(
			text,
			fmt.Sprintf(
				"%s up to %s",
				uuid.UUID(ledger.Ledger),
				time.Unix(0, int64(ledger.At)).UTC().Format(time.RFC3339),
			),
		)
	}
	return fmt.Errorf("%w: cluster %s (%s); restore its ledger from a backup (muster restore), "+
		"or start once with musterd --new-cluster to begin another cluster of this name", ErrClusterKnown, name, strings.Join(text, ", "))
}

// RefuseEmpty refuses to found a cluster where the ledger of an older one is gone:
// its jobs would be forgotten, and their numbers given away again. What is left of
// it are its mark, and scripts and environments. An archive is looked at when the
// log is opened, which it must not be ahead of.
func (g *Guard) RefuseEmpty(cluster *state.State) error {
	if cluster.Seq > 0 || g.Anew {
		return nil
	}
	path := filepath.Join(g.StateDir, MarkName)
	mark, err := os.ReadFile(path)
	blobs := g.Blobs()
	trace := ""
	switch {
	case err == nil:
		trace = fmt.Sprintf("%s (%s)", strings.TrimSpace(string(mark)), path)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	case blobs > 0:
		trace = fmt.Sprintf(
			"%d of its scripts and environments are in %s",
			blobs,
			filepath.Join(g.StateDir, "content"),
		)
	default:
		return nil
	}
	return fmt.Errorf(
		"%w: %s; restore a backup (muster restore; with the archive alone: musterd ledger rebuild), "+
			"or start once with musterd --new-cluster to begin with an empty ledger",
		ErrLedgerGone,
		trace,
	)
}
