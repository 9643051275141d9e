package scheduler_test

import (
	"slices"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/scheduler/timeline"
	"github.com/musterhpc/muster/spec"
)

// features draws what a node has.
func (w *world) features() []string {
	return pick(w, "features", nil, []string{"x"}, []string{"y"}, []string{"x", "y"})
}

// choosy draws restrictions on the choice of nodes.
func (w *world) choosy(js *spec.JobSpec) {
	switch w.n("choosy", 0, 8) {
	case 8:
		js.Place.Switches, js.Place.SwitchWait = 1, spec.Span(w.n("switch wait", 0, 2))*spec.Minute
	case 0, 1, 2:
		js.Place.Constraint = pick(w, "constraint", "x", "x&y", "x|y", "[x|y]", "x*1", "[x*1&y*1]", "(x|y)&y", "y*2")
	case 3:
		js.Place.Prefer = pick(w, "prefer", "x", "y", "x&y")
	case 4:
		js.Place.Contiguous = true
	case 5:
		js.Place.Spread = true
	case 6:
		if js.Time.Limit > 0 {
			js.Time.Min = js.Time.Limit / spec.Span(w.n("min part", 1, 4))
		}
	case 7:
		if w.head.Config.Sched.Cores {
			js.Size.ThreadsPerCore, js.Size.TasksPerCore = uint32(w.n("threads", 0, 1)), uint32(w.n("per core", 0, 2))
		}
	}
}

// judgeChoice: the nodes of a start are such as the job asked for.
func (w *world) judgeChoice(before *state.State, j *state.Job, s *scheduler.Start) {
	w.rt.Helper()
	x, y, both, any := 0, 0, 0, 0
	nodes := len(s.Alloc.Nodes)
	for i := range s.Alloc.Nodes {
		n := before.NodeByID(s.Alloc.Nodes[i].ID)
		hasX, hasY := slices.Contains(n.Spec.Features, "x"), slices.Contains(n.Spec.Features, "y")
		x, y, both, any = x+one(hasX), y+one(hasY), both+one(hasX && hasY), any+one(hasX || hasY)
		if i > 0 && j.Spec.Place.Contiguous && s.Alloc.Nodes[i-1].ID+1 != n.ID {
			w.rt.Fatalf("job %d wants neighbours and gets %v", j.ID, s.Alloc.NodeNames())
		}
		if t := int64(n.Spec.ThreadsPerCore); j.Spec.Size.ThreadsPerCore == 1 && !j.Spec.Size.Overcommit && before.Config.Sched.Cores &&
			int64(s.Alloc.Nodes[i].CPUs.Count()) < t*int64(s.Alloc.Nodes[i].Tasks)*max(int64(j.Spec.Size.CPUsPerTask), 1) {
			w.rt.Fatalf("job %d uses one thread of each core and gets %d CPUs for %d tasks", j.ID, s.Alloc.Nodes[i].CPUs.Count(), s.Alloc.Nodes[i].Tasks)
		}
	}
	ok := map[string]bool{"": true, "x": x == nodes, "x&y": both == nodes, "x|y": any == nodes, "[x|y]": x == nodes || y == nodes, "x*1": x >= 1,
		"[x*1&y*1]": any == nodes && x >= 1 && y >= 1 && nodes >= 2, "(x|y)&y": y == nodes, "y*2": y >= 2}
	if !ok[j.Spec.Place.Constraint] {
		w.rt.Fatalf("job %d wants %s; of its %d nodes %d have x, %d y, %d both", j.ID, j.Spec.Place.Constraint, nodes, x, y, both)
	}
	if wait := j.Spec.Place.SwitchWait; j.Spec.Place.Switches == 1 && j.Eligible != 0 && w.now.Sub(j.Eligible) < max(wait, spec.Minute) {
		for i := range s.Alloc.Nodes {
			if leafOf(before, s.Alloc.Nodes[i].Name) != leafOf(before, s.Alloc.Nodes[0].Name) {
				w.rt.Fatalf("job %d wants one switch and gets %v", j.ID, s.Alloc.NodeNames())
			}
		}
	}
	// An update may bring the limit below --time-min, and a job ends with its reservation.
	asked := j.Spec.Time.Limit
	if view, barred := timeline.ViewReservations(before, j.Spec, w.now); barred == nil {
		asked = view.CapLimit(asked, w.now)
	}
	least := min(j.Spec.Time.Min, asked)
	if s.Limit < least || (s.Limit < asked && least == 0) {
		w.rt.Fatalf("job %d gets the time limit %d; it can have %d, at least %d", j.ID, s.Limit, asked, least)
	}
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

func leafOf(st *state.State, node string) string {
	for _, s := range st.Config.Topology {
		if s.Level == 0 && slices.Contains(s.Nodes, node) {
			return s.Name
		}
	}
	return ""
}

// tree connects nodes by two leaf switches below one.
func (w *world) tree(names []string) []spec.Switch {
	k := w.n("first leaf", 0, len(names))
	out := []spec.Switch{}
	for i, list := range [][]string{names[:k], names[k:]} {
		if len(list) > 0 {
			out = append(out, spec.Switch{Name: string(rune('a' + i)), Nodes: list})
		}
	}
	root := spec.Switch{Name: "root", Level: 1, Nodes: names}
	for i := range out {
		root.Switches = append(root.Switches, out[i].Name)
	}
	return append(out, root)
}
