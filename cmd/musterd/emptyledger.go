package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"github.com/musterhpc/muster/ledger/state"
)

// errLedgerGone is why a controller does not found a cluster where there was one.
var errLedgerGone = errors.New("the ledger is empty, but this state folder had a cluster")

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
	blobs := s.blobs.s.Stats().Blobs
	trace := ""
	switch {
	case err == nil:
		trace = fmt.Sprintf("%s (%s)", strings.TrimSpace(string(mark)), path)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	case blobs > 0:
		trace = fmt.Sprintf("%d of its scripts and environments are in %s", blobs, filepath.Join(s.cfg.StateDir, "content"))
	default:
		return nil
	}
	return fmt.Errorf("%w: %s; put the folders ledger and archive back from a backup (with the archive alone: musterd ledger rebuild), "+
		"or start once with musterd --new-cluster to begin with an empty ledger", errLedgerGone, trace)
}
