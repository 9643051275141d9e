package pass

import (
	"slices"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// trackTenants makes the timeline record which jobs are on which node, if any class, or a component
// of a heterogeneous job that a class stands for, restricts its neighbours.
func (p *pass) trackTenants() {
	if p.queue.anyMindsNeighbours() ||
		(p.queue.hetClasses > 0 && slices.ContainsFunc(p.queue.classes, func(class *jobClass) bool {
			return !class.isEmpty() &&
				slices.ContainsFunc(p.snapshot.Components(class.request.representative),
					func(component *state.Job) bool {
						return slices.ContainsFunc(component.Spec.Partitions,
							func(name string) bool {
								part := p.snapshot.Parts.Find(name)
								return part != nil && mindsNeighbours(p.cfg, part.Spec, component)
							})
					})
		})) {
		p.line.TrackTenants()
	}
}

// mindsNeighbours tells whether a job in a partition keeps, or may keep, others off its nodes,
// or shares its CPUs with others.
func mindsNeighbours(config *spec.Config, part *spec.PartitionSpec, job *state.Job) bool {
	switch job.Spec.Place.Sharing {
	case spec.ExclusiveUser, spec.ExclusiveMCS, spec.ExclusiveTopo:
		return true
	}
	labelled := config.Labels().Always && job.Spec.MCSLabel != ""
	shares := part.Sharers(job.Spec.Place.Sharing) > 1
	return part.ExclusiveUser || part.ExclusiveTopo || labelled || shares
}

// wholeBlocks tells whether some job keeps whole blocks for itself. What runs on
// a node then affects other nodes, which an incremental pass may not examine.
func (p *pass) wholeBlocks() bool {
	return p.cfg.HasBlocks() && slices.ContainsFunc(p.queue.classes, func(class *jobClass) bool {
		return !class.isEmpty() &&
			(class.request.representative.Spec.Place.Sharing == spec.ExclusiveTopo || class.part.Spec.ExclusiveTopo)
	})
}

// mayHaveRoom tells whether all nodes together may have room for a job of a class.
func (p *pass) mayHaveRoom(class *jobClass) bool {
	return class.demand.Share > 0 || class.demand.Inside != "" || p.line.MayHaveRoom(&class.least)
}
