package scheduler

import (
	"slices"

	"github.com/musterhpc/muster/spec"
)

// tellApart makes the timeline keep who is on which node, if any of the lots
// minds.
func (p *pass) tellApart(lots []*lot) {
	if slices.ContainsFunc(lots, func(l *lot) bool {
		return apartOf(p.cfg, l) || l.part.Spec.Sharers(l.kin.like.Spec.Place.Sharing) > 1
	}) {
		p.line.Apart()
	}
}

// apartOf tells whether the jobs of a lot keep others off their nodes, be it
// only perhaps.
func apartOf(cfg *spec.Config, l *lot) bool {
	switch l.kin.like.Spec.Place.Sharing {
	case spec.ExclusiveUser, spec.ExclusiveMCS, spec.ExclusiveTopo:
		return true
	}
	return l.part.Spec.ExclusiveUser || l.part.Spec.ExclusiveTopo || (cfg.Labels().Always && l.kin.like.Spec.MCSLabel != "")
}

// wholeBlocks tells whether some job keeps whole blocks for itself. What is on
// a node then bears on others, which an incremental pass may not look at.
func (p *pass) wholeBlocks() bool {
	return len(p.cfg.Blocks) > 0 && slices.ContainsFunc(p.queue.lots, func(l *lot) bool {
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
	case js.Place.Sharing == spec.ExclusiveTopo && len(d.t.Config.Blocks) == 0:
		return spec.Refuse(spec.CodeDisabled, "--exclusive=topo needs to know the blocks: TopologyPlugin=topology/block and topology.conf")
	}
	return nil
}
