package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/musterhpc/muster/accounting/clickhouse"
	"github.com/musterhpc/muster/ledger/log"
	"github.com/musterhpc/muster/ledger/state"
)

// errLedgerGone is why a controller does not found a cluster where there was one.
var errLedgerGone = errors.New("the ledger is empty, but this state folder had a cluster")

// errClusterKnown is why a controller does not found a cluster whose accounting exists.
var errClusterKnown = errors.New(
	"the ledger is empty, but the accounting store has a cluster of this name",
)

// storePatience is how long the accounting store may take to answer before a cluster is
// founded.
const storePatience = 5 * time.Second

// clusterMark is the file in the state folder that says which cluster it belongs
// to. It stays when the ledger is lost.
const clusterMark = "cluster"

// markCluster writes clusterMark.
func (s *server) markCluster(st *state.State) error {
	path := filepath.Join(s.cfg.StateDir, clusterMark)
	text := fmt.Sprintf("%s %s\n", st.ClusterName, uuid.UUID(st.UUID))
	if have, err := os.ReadFile(path); err == nil && string(have) == text {
		return nil
	}
	return os.WriteFile(path, []byte(text), 0o600)
}

// refuseFresh refuses to found a cluster before anything is made for it, keys and a log,
// so that a restore finds the folder as it was.
func (s *server) refuseFresh(ctx context.Context, founds bool) error {
	fresh, err := log.Fresh(log.OS(), filepath.Join(s.cfg.StateDir, "ledger"))
	if err != nil || !fresh || !founds {
		return err
	}
	if _, last := s.archive.Disk.Bounds(); last > 0 {
		return nil // opening the log tells what is wrong, and what to do
	}
	if err := s.refuseEmpty(state.New()); err != nil {
		return err
	}
	return s.refuseKnown(ctx, state.New(), s.askStore)
}

// ledgersOf is what is asked of the accounting store before a cluster is founded.
type ledgersOf func(ctx context.Context, cluster string) ([]clickhouse.KnownLedger, error)

// refuseKnown refuses to found a cluster that the accounting store knows by its name: a
// controller on a new host, or with a new disk, whose ledger was not restored. A store
// that does not answer is no reason not to begin, as jobs run without one.
func (s *server) refuseKnown(ctx context.Context, st *state.State, ask ledgersOf) error {
	if st.Seq > 0 || s.anew {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, storePatience)
	defer cancel()
	name := s.cluster.ClusterName
	known, err := ask(ctx, name)
	if err != nil {
		s.log.Warn(
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
	for _, k := range known {
		text = append(
			text,
			fmt.Sprintf("%s up to %s", uuid.UUID(k.Ledger), time.Unix(0, int64(k.At)).UTC().Format(time.RFC3339)),
		)
	}
	return fmt.Errorf("%w: cluster %s (%s); restore its ledger from a backup (muster restore), "+
		"or start once with musterd --new-cluster to begin another cluster of this name", errClusterKnown, name, strings.Join(text, ", "))
}

// askStore asks the store of a DSN. The embedded engine has its data in the state
// folder, or is not there before accounting runs.
func (s *server) askStore(
	ctx context.Context,
	cluster string,
) (_ []clickhouse.KnownLedger, err error) {
	if s.cfg.UsesEmbedded() {
		return nil, nil
	}
	opts, err := s.storeOptions()
	if err != nil {
		return nil, err
	}
	store, err := clickhouse.Open(opts)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return store.LedgersOf(ctx, cluster)
}

// refuseEmpty refuses to found a cluster where the ledger of an older one is gone:
// its jobs would be forgotten, and their numbers given away again. What is left of
// it are its mark, and scripts and environments. An archive is looked at when the
// log is opened, which it must not be ahead of.
func (s *server) refuseEmpty(st *state.State) error {
	if st.Seq > 0 || s.anew {
		return nil
	}
	path := filepath.Join(s.cfg.StateDir, clusterMark)
	mark, err := os.ReadFile(path)
	blobs := s.blobs.Disk.Stats().Blobs
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
			filepath.Join(s.cfg.StateDir, "content"),
		)
	default:
		return nil
	}
	return fmt.Errorf(
		"%w: %s; restore a backup (muster restore; with the archive alone: musterd ledger rebuild), "+
			"or start once with musterd --new-cluster to begin with an empty ledger",
		errLedgerGone,
		trace,
	)
}
