package replay

import (
	"errors"
	"slices"
	"testing"

	"github.com/musterhpc/muster/scheduler/policy"
	"github.com/musterhpc/muster/spec"
)

// What accounting keeps of runs is replayed with what they asked for, on as many
// nodes as then; what enforces associations and limits has somebody to enforce
// them on; a change of a QOS counts.
func TestImported(t *testing.T) {
	config := Machine{Nodes: 2, CPUs: 8, GPUs: 4}.Config(Settings{Priority: spec.PriorityConfig{Basic: true}})
	config.Enforce.Associations, config.Enforce.Limits, config.Enforce.QOS = true, true, true
	at := func(second int64) spec.Instant { return epoch.Add(spec.Span(second) * spec.Second) }
	gpus := spec.TRES{CPU: 2, Node: 1}.With("gres/gpu", 4).With("gres/gpu:a100", 4).With("license/matlab", 1)
	run := func(eligible int64, r Record) Record {
		r.Name, r.Eligible, r.Start, r.Run, r.Limit, r.Ended = "j", at(eligible), at(eligible+5), 100*spec.Second, 200*spec.Second, true
		return r
	}
	never := run(10, Record{User: "ann", Account: "a"})
	never.Start, never.Ended = 0, false
	records := []Record{
		run(30, Record{User: "bob", Account: "b", QOS: "fast", Nodes: 2, Asked: spec.TRES{CPU: 16, Mem: 4000, Node: 2}, Failed: true}),
		run(20, Record{User: "ann", Account: "a", QOS: "fast", Nodes: 2, Asked: spec.TRES{CPU: 3, Node: 2}.With("gres/gpu", 3)}),
		run(20, Record{User: "ann", Account: "b", QOS: "slow", Nodes: 1, Asked: gpus}),
		run(600, Record{User: "root", Account: "root", QOS: "normal", Nodes: 1, Asked: spec.TRES{CPU: 1}}),
		never,
		run(999, Record{User: "ann", Account: "a"}),
	}
	w, left, err := Imported(config, records, at(10), at(900))
	if err != nil {
		t.Fatal(err)
	}
	if left != 1 || len(w.Jobs) != 4 {
		t.Fatalf("%d jobs, %d left out", len(w.Jobs), left)
	}
	a, b, c := w.Jobs[0].Spec, w.Jobs[1].Spec, w.Jobs[2].Spec
	if a.Size.Tasks != 3 || a.Size.MinNodes != 2 || !slices.Equal(a.Size.PerJob, []spec.Count{{Name: "gpu", N: 3}}) {
		t.Errorf("what cannot be divided: %+v", a.Size)
	}
	if b.Size.CPUsPerTask != 2 || !slices.Equal(b.Size.PerNode, []spec.Count{{Name: "gpu", Type: "a100", N: 4}}) || !slices.Equal(b.Licenses, []spec.Count{{Name: "matlab", N: 1}}) || b.UID != a.UID {
		t.Errorf("%+v %+v %d %d", b.Size, b.Licenses, a.UID, b.UID)
	}
	if c.Size.Tasks != 2 || c.Size.CPUsPerTask != 8 || c.Size.MemPerNode != 2000 || c.UID == a.UID || !w.Jobs[2].Failed {
		t.Errorf("%+v %d", c.Size, c.UID)
	}
	w.Jobs = []Job{w.Jobs[0], w.Jobs[2]} // the machine has no a100 and no licences
	waits := func(w *Workload) (out []spec.Span) {
		res, err := Run(t.Context(), w, Rule{Name: "muster"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range res.Jobs {
			if !res.Jobs[i].Started() {
				t.Errorf("job %d never ran: %v", i, res.Jobs[i].Refused)
			}
			out = append(out, res.Jobs[i].Wait())
		}
		return out
	}
	if got := waits(w); !slices.Equal(got, []spec.Span{0, 90 * spec.Second}) {
		t.Errorf("they wait %v", got)
	}
	w.Jobs[1].Spec.Size.CPUsPerTask = 1 // they fit beside each other
	if got := waits(w); !slices.Equal(got, []spec.Span{0, 0}) {
		t.Errorf("they wait %v", got)
	}
	set := []spec.KeyValue{{Key: "GrpJobs", Value: "1"}}
	limited, err := w.With(nil, []policy.Change{{Verb: policy.Modify, Entity: "qos", Names: []string{"fast"}, Set: set}})
	if err != nil {
		t.Fatal(err)
	}
	if got := waits(limited); !slices.Equal(got, []spec.Span{0, 90 * spec.Second}) {
		t.Errorf("with one job of the QOS at a time they wait %v", got)
	}
	if _, _, err := Imported(config, records, at(2000), at(3000)); !errors.Is(err, ErrNoHistory) {
		t.Errorf("a span without history: %v", err)
	}
}
