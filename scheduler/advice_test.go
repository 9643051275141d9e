package scheduler_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/view"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/scheduler/explain"
	"github.com/musterhpc/muster/scheduler/trial"
	"github.com/musterhpc/muster/spec"
)

// What `why` advises is true: with each change, made as the user would make
// it, the job starts when the advice says, at the latest.
func TestAdviceIsTrue(t *testing.T) {
	given := 0
	for _, kind := range []worldKind{{fifo: true, backfill: true}, {partitions: true}, {limits: true},
		{apart: true, blocks: true, backfill: true}, {fifo: true, backfill: true, parts: true}} {
		rapid.Check(t, func(rt *rapid.T) {
			w := newWorld(rt, kind)
			for range rapid.IntRange(3, 25).Draw(rt, "steps") {
				w.step()
			}
			w.now++
			out := w.passAll()
			v := &view.View{State: w.head.Freeze(), Plan: out.Plan}
			for _, j := range w.jobs(func(j *state.Job) bool { return j.State == spec.Pending && !j.IsArrayRecord() }) {
				x, err := explain.Job(v, j, w.now)
				if err != nil {
					rt.Fatal(err)
				}
				for _, a := range x.Advice {
					given++
					w.follow(v, j, a)
				}
			}
		})
	}
	if given < 20 {
		t.Errorf("only %d advices were given", given)
	}
}

// follow submits the job with the change in its place.
func (w *world) follow(v *view.View, j *state.Job, a explain.Advice) {
	w.rt.Helper()
	js := *j.Spec
	js.Queue.Hold, js.Time.Begin = j.Hold, j.Begin
	if what, ok := strings.CutPrefix(a.Change, "without "); ok {
		switch what {
		case "--nodelist":
			js.Place.Nodes = ""
		case "--exclude":
			js.Place.Exclude = ""
		case "--exclusive":
			js.Place.Sharing = spec.ShareDefault
		case "--segment":
			js.Place.Segment, js.Place.ApartSegments = 0, false
		case "--switches":
			js.Place.Switches = 0
		case "--contiguous":
			js.Place.Contiguous = false
		default:
			w.rt.Fatalf("advice %q is not known here", a.Change)
		}
	} else {
		for _, o := range options(strings.Fields(a.Change)) {
			if err := w.option(&js, o); err != nil {
				w.rt.Fatalf("advice %q: %v", a.Change, err)
			}
		}
		if strings.HasPrefix(a.Change, "--qos=") {
			js.QOSes = nil // it was several
		}
	}
	other := trial.On(v.State.Fork(), w.now, event.Actor{}, "follow")
	plain := js
	plain.Queue.Dependency, plain.Queue.Hold, plain.Time.Begin, plain.Time.Deadline = nil, 0, 0, 0
	res, err := scheduler.Decide(other, scheduler.Submit{Spec: &plain}) // what the request counts as
	if spec.CodeOf(err) == spec.CodePartitionUnavailable {
		return // for new jobs; this one was there before
	}
	if err != nil {
		w.rt.Fatalf("advice %q is refused: %v", a.Change, err)
	}
	t := trial.On(v.State.Fork(), w.now, event.Actor{}, "follow")
	if err := t.Emit(&event.JobUpdated{UID: j.UID, Spec: &js, Req: other.Job(res.UID).Req, Assoc: j.Assoc}); err != nil {
		w.rt.Fatal(err)
	}
	out, err := scheduler.Pass(t.Freeze(), w.now, scheduler.PassOptions{Plan: v.Plan})
	if err != nil {
		w.rt.Fatal(err)
	}
	start := spec.FarFuture
	if slices.ContainsFunc(out.Starts, func(s scheduler.Start) bool { return s.UID == j.UID }) {
		start = w.now
	} else if p := out.Plan.Of(j.UID); p != nil {
		start = p.Start
	}
	if start > a.Start {
		w.rt.Fatalf("job %d was to start at %s with %s, but starts at %s\nspec %+v\nit waits for %+v", j.ID, when(a.Start), a.Change, when(start), js, out.Reasons)
	}
	if old := v.Plan.Of(j.UID); old != nil && (a.Gain <= 0 || a.Start >= old.Start) {
		w.rt.Fatalf("advice %+v gains nothing on %s", a, when(old.Start))
	}
}
