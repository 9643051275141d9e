package scheduler_test

import (
	"fmt"
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
	given := map[string]int{}
	for i, kind := range []worldKind{{fifo: true, backfill: true}, {partitions: true}, {limits: true},
		{apart: true, blocks: true, backfill: true}, {fifo: true, backfill: true, parts: true},
		{odd: true, backfill: true}, {choosy: true, reserve: true, backfill: true}, {limits: true, partitions: true, odd: true}} {
		rapid.Check(t, func(rt *rapid.T) {
			w := newWorld(rt, kind)
			for range rapid.IntRange(3, 16).Draw(rt, "steps") {
				if i%3 == 1 && w.chance("heterogeneous", 8) {
					w.submitHet()
				}
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
				planned := v.Plan.Of(j.UID)
				if x.Early != 0 && (planned == nil || x.Early < w.now || x.Early >= planned.Start) {
					rt.Fatalf("job %d is planned as %+v, and early at %s", j.ID, planned, when(x.Early))
				}
				for _, a := range x.Advice {
					given[subjectOf(j, a)]++
					w.follow(v, j, a)
				}
			}
		})
	}
	if given["heterogeneous"] == 0 || len(given) < 5 {
		t.Errorf("too little was advised: %v", given)
	}
}

// subjectOf is what an advice is about: the option or, for a heterogeneous job, that.
func subjectOf(j *state.Job, a explain.Advice) string {
	if j.Het != nil {
		return "heterogeneous"
	}
	option, _, _ := strings.Cut(a.Change, "=")
	return option
}

// follow submits the job with the change in its place: it must start when the
// advice says, or earlier.
func (s *session) follow(v *view.View, j *state.Job, a explain.Advice) {
	s.t.Helper()
	jobs := []*state.Job{j}
	change, of, some := strings.Cut(a.Change, " for ")
	if j.Het != nil {
		jobs = v.State.Components(j)
		if !some {
			s.t.Fatalf("advice %q does not say for which component", a.Change)
		}
	}
	t := trial.On(v.State.Fork(), s.now, event.Actor{}, "follow")
	for i, c := range jobs {
		if some && of != "all components" && of != fmt.Sprintf("component %d", i) {
			continue
		}
		js := s.changed(c, change, of == "all components")
		other := trial.On(v.State.Fork(), s.now, event.Actor{}, "follow")
		plain := js
		plain.Queue.Dependency, plain.Queue.Hold, plain.Time.Begin, plain.Time.Deadline = nil, 0, 0, 0
		res, err := scheduler.Decide(other, scheduler.Submit{Spec: &plain}) // what the request counts as
		if spec.CodeOf(err) == spec.CodePartitionUnavailable {
			return // for new jobs; this one was there before
		}
		if err != nil {
			s.t.Fatalf("advice %q is refused: %v", a.Change, err)
		}
		if err := t.Emit(&event.JobUpdated{UID: c.UID, Spec: &js, Req: other.Job(res.UID).Req, Assoc: c.Assoc}); err != nil {
			s.t.Fatal(err)
		}
	}
	out, err := scheduler.Pass(t.Freeze(), s.now, scheduler.PassOptions{Plan: v.Plan})
	if err != nil {
		s.t.Fatal(err)
	}
	start := spec.FarFuture
	if slices.ContainsFunc(out.Starts, func(s scheduler.Start) bool { return s.UID == j.UID }) {
		start = s.now
	} else if p := out.Plan.Of(j.UID); p != nil {
		start = p.Start
	}
	if start > a.Start {
		s.t.Fatalf("job %d was to start at %s with %s, but starts at %s\nspec %+v\nit waits for %+v", j.ID, when(a.Start), a.Change, when(start), j.Spec, out.Reasons)
	}
	if old := v.Plan.Of(j.UID); old != nil && (a.Gain <= 0 || a.Start >= old.Start) {
		s.t.Fatalf("advice %+v gains nothing on %s", a, when(old.Start))
	}
}

// changed is what a job asks for with an advised change; one for all components
// gives nobody more time.
func (s *session) changed(j *state.Job, change string, all bool) spec.JobSpec {
	s.t.Helper()
	js := *j.Spec
	js.Queue.Hold, js.Time.Begin = j.Hold, j.Begin
	what, drop := strings.CutPrefix(change, "without ")
	if !drop {
		for _, o := range options(strings.Fields(change)) {
			if err := s.option(&js, o); err != nil {
				s.t.Fatalf("advice %q: %v", change, err)
			}
		}
		if strings.HasPrefix(change, "--qos=") {
			js.QOSes = nil // it was several
		}
		if all && j.Spec.Time.Limit != 0 {
			js.Time.Limit = min(js.Time.Limit, j.Spec.Time.Limit)
		}
		return js
	}
	switch what {
	case "--nodelist":
		js.Place.Nodes = ""
	case "--exclude":
		js.Place.Exclude = ""
	case "--constraint":
		js.Place.Constraint = ""
	case "--reservation":
		js.Place.Reservation = ""
	case "--licenses":
		js.Licenses = nil
	case "--exclusive":
		js.Place.Sharing = spec.ShareDefault
	case "--segment":
		js.Place.Segment, js.Place.ApartSegments = 0, false
	case "--switches":
		js.Place.Switches = 0
	case "--contiguous":
		js.Place.Contiguous = false
	default:
		s.t.Fatalf("advice %q is not known here", change)
	}
	return js
}
