package daemon

import (
	"log/slog"

	"github.com/musterhpc/muster/nodeagent/plan"
)

// aboutRun are the fields of a line of the log that is about a run.
func aboutRun(r *run) slog.Attr {
	return slog.Group("", r.key.Fields(r.facts.ID, r.facts.User)...)
}

// aboutKey are those of a run of which no more is known.
func aboutKey(key plan.RunKey, job uint64) slog.Attr {
	return slog.Group("", key.Fields(job, "")...)
}
