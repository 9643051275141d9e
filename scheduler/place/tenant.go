package place

import (
	"slices"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// Tenant is what decides whether two jobs may be on one node at the same time.
type Tenant struct {
	User  uint32
	Label string // of MCS
	// Class is the partition whose jobs share CPUs with each other; empty for a
	// job that has its CPUs for itself. The two kinds do not mix on a node: how
	// many CPUs are left for one kind would depend on which the other has.
	Class string
	Apart spec.Apart
}

// With tells whether two jobs may be on one node.
func (a *Tenant) With(b *Tenant) bool {
	apart := a.Apart | b.Apart
	mayShareUser := apart&spec.ApartUser == 0 || a.User == b.User
	mayShareLabel := apart&spec.ApartMCS == 0 || a.Label == b.Label
	return a.Class == b.Class && mayShareUser && mayShareLabel && apart&spec.ApartTopo == 0
}

// TenantIn is the tenant that a job is in a partition, and how many jobs may be
// on each of its CPUs; 0 = it has them for itself.
func TenantIn(
	config *spec.Config,
	part *spec.PartitionSpec,
	job *spec.JobSpec,
) (tenant Tenant, share int64) {
	tenant = Tenant{User: job.UID, Label: job.MCSLabel}
	want := job.Place.Sharing
	if want == spec.ExclusiveUser || part.ExclusiveUser {
		tenant.Apart |= spec.ApartUser
	}
	if mcs := config.Labels(); job.MCSLabel != "" && !mcs.Never &&
		(mcs.Always || want == spec.ExclusiveMCS) {
		tenant.Apart |= spec.ApartMCS
	}
	if want == spec.ExclusiveTopo || part.ExclusiveTopo {
		tenant.Apart |= spec.ApartTopo
	}
	if n := part.Sharers(want); n > 1 && job.Size.CoreSpec+job.Size.ThreadSpec == 0 &&
		!job.Queue.Reboot &&
		config.Sched.Turns(part) == 0 {
		tenant.Class, share = part.Name, int64(n)
	}
	return tenant, share
}

// TenantOf is the tenant that a running job is.
func TenantOf(job *state.Job) Tenant {
	tenant := Tenant{User: job.Spec.UID, Label: job.Spec.MCSLabel, Apart: job.Alloc.Apart}
	if job.Alloc.Share > 0 {
		tenant.Class = job.Alloc.Partition
	}
	return tenant
}

// Neighbours are the nodes on which a job that keeps a whole block for itself
// meets others: by node id those of its block, nil for a node in none. One that is
// in blocks of several topologies meets those of all of them.
func Neighbours(cluster *state.State) [][]spec.NodeID {
	if !cluster.Config.HasBlocks() {
		return nil
	}
	out := make([][]spec.NodeID, len(cluster.NodeIDs))
	add := func(blocks []spec.Block) {
		for i := range blocks {
			var ids []spec.NodeID
			for _, name := range blocks[i].Nodes {
				if id, ok := cluster.NodeIDs[name]; ok {
					ids = append(ids, id)
				}
			}
			for _, id := range ids {
				if out[id] != nil {
					all := append(slices.Clone(out[id]), ids...)
					slices.Sort(all)
					out[id] = slices.Compact(all)
					continue
				}
				out[id] = ids
			}
		}
	}
	add(cluster.Config.Blocks)
	for i := range cluster.Config.Topologies {
		add(cluster.Config.Topologies[i].Blocks)
	}
	return out
}

// Welcome tells whether a job may be on a node beside those that are there
// now, and in its block beside those that are in the block.
func Welcome(
	cluster *state.State, node *state.Node, tenant *Tenant, neighbours [][]spec.NodeID,
) bool {
	if tenant.Apart != 0 && len(node.Holds) > 0 {
		return false // what another scheduler runs there is nobody's job
	}
	for _, uid := range node.Jobs {
		if o := TenantOf(cluster.Job(uid)); !tenant.With(&o) {
			return false
		}
	}
	if neighbours == nil {
		return true
	}
	for _, id := range neighbours[node.ID] {
		near := cluster.NodeByID(id)
		if near == nil || near.ID == node.ID {
			continue
		}
		for _, uid := range near.Jobs {
			if (tenant.Apart|cluster.Job(uid).Alloc.Apart)&spec.ApartTopo != 0 {
				return false
			}
		}
	}
	return true
}
