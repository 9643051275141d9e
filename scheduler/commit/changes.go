// Package commit holds what both sides of the scheduler do to a trial state: they
// start a job, end it, put it back into the queue, preempt it. Package decide does
// so for commands, and package pass while it works out what to propose, so that a
// proposal means the same to both.
//
// Changes.Emit is the door: each event goes through it together with what follows
// from it for other jobs. The package also holds the Proposal, which a pass hands to
// the command that commits it.
package commit

import (
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/scheduler/trial"
	"github.com/musterhpc/muster/spec"
)

// Changes writes events into a trial together with what follows from them: the
// components of a heterogeneous job share their fate, and an attempt that is to
// end before it began is over at once.
type Changes struct{ t *trial.Trial }

// On writes into a trial.
func On(t *trial.Trial) Changes { return Changes{t} }

func (d Changes) Emit(ev event.Event) error {
	switch e := ev.(type) {
	case *event.JobEnded:
		e.Epilog = d.owesEpilog(e.UID)
	case *event.JobRequeued:
		e.Epilog = d.owesEpilog(e.UID)
	}
	if err := d.t.Emit(ev); err != nil {
		return err
	}
	if err := d.tellSiblings(ev); err != nil {
		return err
	}
	return d.neverRan(ev)
}

// owesEpilog tells whether the end of a job's attempt asks for EpilogSlurmctld.
func (d Changes) owesEpilog(uid spec.JobUID) bool {
	job, scripts := d.t.Job(uid), d.t.Config.Ctl
	return scripts != nil && scripts.Epilog != "" && job != nil && job.State.Active()
}
