package daemon

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// TestLinesAboutJobs: a line about a job, a step or a run has the number of the job, the
// attempt, the step, the user and the last event about it as fields of its own, whichever
// of the three it is about.
func TestLinesAboutJobs(t *testing.T) {
	st := state.New()
	job := &state.Job{UID: 3, ID: 12, Task: spec.NoTask, Attempt: 2, Changed: 99, Spec: &spec.JobSpec{User: "alice"}}
	line := func(fields ...any) map[string]any {
		var out bytes.Buffer
		slog.New(slog.NewJSONHandler(&out, nil)).Info("it happened", fields...)
		got := map[string]any{}
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		return got
	}
	lost := &apiv1.RunKey{JobUid: 3, Attempt: 2, Step: 5}
	for name, c := range map[string]struct {
		got  map[string]any
		want map[string]any
	}{
		"job":      {line(aboutJob(st, job)), map[string]any{"job": 12.0, "name": "12", "attempt": 2.0, "user": "alice", "event": 99.0}},
		"step":     {line(aboutStep(st, job, 5)), map[string]any{"job": 12.0, "attempt": 2.0, "step": "5", "event": 99.0}},
		"lost run": {line(aboutLostRun(lost, 12, "alice")), map[string]any{"job": 12.0, "attempt": 2.0, "step": "5", "user": "alice", "run": "3.2.5"}},
		"forgotten": {line(aboutRun(st, scheduler.Run{UID: 3, Attempt: 2}), actorAttr(event.Actor{Kind: event.ActorUser, Name: "bob"})),
			map[string]any{"job_uid": 3.0, "attempt": 2.0, "actor": "user:bob"}},
	} {
		for key, want := range c.want {
			if c.got[key] != want {
				t.Errorf("%s: %s is %v, want %v", name, key, c.got[key], want)
			}
		}
	}
}
