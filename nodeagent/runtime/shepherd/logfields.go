package shepherd

import (
	"log/slog"

	"github.com/musterhpc/muster/nodeagent/plan"
)

// aboutRun are the fields of a line of the log that is about a run.
func aboutRun(r *run) slog.Attr { return slog.Group("", r.Key.Fields(r.JobID, "")...) }

// aboutMark are those of a run of which only the mark in its environment is known, which
// is its key.
func aboutMark(mark string) slog.Attr {
	key, err := plan.ParseRunKey(mark)
	if err != nil {
		return slog.String("run", mark)
	}
	return slog.Group("", key.Fields(0, "")...)
}
