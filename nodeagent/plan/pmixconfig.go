package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/musterhpc/muster/spec"
)

// PMIxNode is the PMIx of a node.
type PMIxNode struct {
	Program string // muster-pmix; empty: the node has none that works
	Why     string // then
	Version string // of the library: 4 of 4.2.2
	Base    string // folder in which steps have theirs; empty: /tmp
	Env     []string
}

// mpiType is the MPI interface of the step: none, pmi2, or one of PMIx.
func (s *StepPart) mpiType() string {
	switch {
	case s.Spec.Cast != nil:
		return spec.MPINone
	case s.Spec.MPI != "":
		return s.Spec.MPI
	case s.Spec.Pty:
		// Who types into a terminal starts programs that would all take the same
		// connection for theirs.
		return spec.MPINone
	}
	return spec.MPIPMI2
}

// pmixConfig is what the tasks' PMIx is told; nil where they have another
// interface.
func (s *StepPart) pmixConfig(node *Node, mpi string) (*PMIx, error) {
	if !spec.IsPMIx(mpi) {
		return nil, nil
	}
	own := node.PMIx
	if own.Program == "" {
		return nil, fmt.Errorf("--mpi=%s: node %s cannot serve PMIx: %s", mpi, node.Name, own.Why)
	}
	if _, version, ok := strings.Cut(mpi, "_v"); ok && version != own.Version {
		return nil, fmt.Errorf(
			"--mpi=%s: the PMIx library of node %s has version %s; use --mpi=pmix_v%s, or pmix, which takes any",
			mpi, node.Name, own.Version, own.Version,
		)
	}
	for i, host := range s.Hosts {
		if slices.Contains(s.Hosts[:i], host) {
			return nil, fmt.Errorf(
				"--mpi=%s: several components of the step are on node %s, which PMIx does not allow; "+
					"choose nodes that differ with --nodelist, or use --mpi=pmi2",
				mpi, host,
			)
		}
	}
	base := own.Base
	if base == "" {
		base = "/tmp"
	}
	return &PMIx{
		Program:   own.Program,
		Namespace: s.pmixNamespace(),
		Node:      uint32(s.Index),
		Hosts:     s.Hosts,
		NodeOf:    s.NodeOf,
		Ranks:     s.Ranks,
		Folder:    path.Join(base, "muster-pmix."+s.Key.String()+"."+formatNumber(uint64(s.Index))),
		Env:       own.Env,
	}, nil
}

// pmixNamespace names the step to PMIx. Other users of a node must not know the name
// under which the tasks find their server: it is all that one needs to speak with
// it.
func (s *StepPart) pmixNamespace() string {
	id := s.Job.ID
	if world := s.Spec.World; world != nil {
		id = uint64(world.Job)
	}
	name := fmt.Sprintf("muster.pmix.%d.%d", id, s.Key.Step)
	if len(s.Secret) > 0 {
		sum := sha256.Sum256(s.Secret)
		name += "." + hex.EncodeToString(sum[:16])
	}
	return name
}
