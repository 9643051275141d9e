package scheduler

import (
	"slices"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// tellApart makes the timeline keep who is on which node, if any of the lots
// minds, or a component of a heterogeneous job that one stands for.
func (p *pass) tellApart() {
	if p.queue.anyPicky() || (p.queue.hets > 0 && slices.ContainsFunc(p.queue.lots, func(l *lot) bool {
		return !l.empty() && slices.ContainsFunc(p.st.Components(l.kin.like), func(c *state.Job) bool {
			return slices.ContainsFunc(c.Spec.Partitions, func(name string) bool {
				part := p.st.Parts.Find(name)
				return part != nil && picky(p.cfg, part.Spec, c)
			})
		})
	})) {
		p.line.Apart()
	}
}

// picky tells whether a job in a partition keeps others off its nodes, be it
// only perhaps, or shares its CPUs with others.
func picky(cfg *spec.Config, part *spec.PartitionSpec, j *state.Job) bool {
	switch j.Spec.Place.Sharing {
	case spec.ExclusiveUser, spec.ExclusiveMCS, spec.ExclusiveTopo:
		return true
	}
	return part.ExclusiveUser || part.ExclusiveTopo || (cfg.Labels().Always && j.Spec.MCSLabel != "") || part.Sharers(j.Spec.Place.Sharing) > 1
}

// wholeBlocks tells whether some job keeps whole blocks for itself. What is on
// a node then bears on others, which an incremental pass may not look at.
func (p *pass) wholeBlocks() bool {
	return p.cfg.HasBlocks() && slices.ContainsFunc(p.queue.lots, func(l *lot) bool {
		return !l.empty() && (l.kin.like.Spec.Place.Sharing == spec.ExclusiveTopo || l.part.Spec.ExclusiveTopo)
	})
}

// roomy tells whether all nodes together may have room for a job of a lot.
func (p *pass) roomy(l *lot) bool {
	return l.demand.Share > 0 || l.demand.Inside != "" || p.line.Room(&l.least)
}

// checkSharing refuses what cannot be kept apart here, and labels the job.
func (d *decision) checkSharing(js *spec.JobSpec) error {
	mcs := d.t.Config.Labels()
	js.MCSLabel = ""
	if mcs.Enforced || js.Place.Sharing == spec.ExclusiveMCS {
		switch mcs.By {
		case "user":
			js.MCSLabel = js.User
		case "account":
			js.MCSLabel = js.Account
		}
	}
	switch {
	case js.Place.Sharing == spec.ExclusiveMCS && mcs.By == "":
		return spec.Refuse(spec.CodeDisabled, "--exclusive=mcs needs labels: MCSPlugin=mcs/user or mcs/account")
	case js.Place.Sharing == spec.ExclusiveMCS && mcs.Never:
		return spec.Refuse(spec.CodeDisabled, "--exclusive=mcs: MCSParameters=noselect")
	case js.Place.Sharing == spec.ExclusiveTopo && !d.t.Config.HasBlocks():
		return spec.Refuse(spec.CodeDisabled, "--exclusive=topo needs to know the blocks: TopologyPlugin=topology/block and topology.conf")
	}
	return nil
}
