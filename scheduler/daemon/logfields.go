package daemon

import (
	"log/slog"

	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// aboutJob are the fields of a line of the log that is about a job: its name and number,
// the attempt, whose it is, and the last event of the ledger about it (muster events
// --from). The number is the one that agents write, whatever the name.
func aboutJob(cluster *state.State, job *state.Job) slog.Attr {
	return slog.Group(
		"",
		"job", uint64(job.ID),
		"name", wire.JobName(cluster, job, spec.NoTask),
		"attempt", job.Attempt,
		"user", job.Spec.User,
		"event", job.Changed,
	)
}

// aboutStep are those of one that is about a step.
func aboutStep(cluster *state.State, job *state.Job, step spec.StepID) slog.Attr {
	return slog.Group("", aboutJob(cluster, job), "step", step.String())
}

// aboutRun are those of one about an attempt whose job may be forgotten.
func aboutRun(cluster *state.State, run scheduler.Run) slog.Attr {
	job := cluster.Job(run.UID)
	if job == nil {
		return slog.Group("", "job_uid", uint64(run.UID), "attempt", run.Attempt)
	}
	return slog.Group("", aboutJob(cluster, job), "run_attempt", run.Attempt)
}

// actorAttr is who caused what a line is about.
func actorAttr(actor event.Actor) slog.Attr {
	who := wire.ActorKindName(actor.Kind)
	if actor.Name != "" {
		who += ":" + actor.Name
	}
	return slog.String("actor", who)
}
