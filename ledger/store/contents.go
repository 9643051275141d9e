package store

import (
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// EachJobContent visits the scripts and environments that jobs of the state name.
func EachJobContent(cluster *state.State, visit func(spec.Hash)) {
	cluster.Jobs.Range(func(_ uint64, job *state.Job) bool {
		visit(job.Spec.Script)
		visit(job.Spec.Env)
		for i := range job.Steps {
			if step := job.Steps[i].Spec; step != nil {
				visit(step.Env)
			}
		}
		return true
	})
}

// EachContent visits the scripts and environments that an event names.
func EachContent(ev event.Event, visit func(spec.Hash)) {
	switch e := ev.(type) {
	case *event.JobSubmitted:
		if e.Spec != nil {
			visit(e.Spec.Script)
			visit(e.Spec.Env)
		}
	case *event.StepStarted:
		if e.Spec != nil {
			visit(e.Spec.Env)
		}
	}
}
