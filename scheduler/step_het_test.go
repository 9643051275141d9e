package scheduler_test

import (
	"slices"
	"testing"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/scheduler/trial"
	"github.com/musterhpc/muster/spec"
)

// hetCluster is a heterogeneous job of two components that runs: uid 1 on n1
// with two tasks, uid 2 on n2 with three.
func hetCluster(t *testing.T) *trial.Trial {
	t.Helper()
	return hetOf(t, hetPart("n1", 2), hetPart("n2", 3))
}

func hetPart(node string, tasks uint32) *spec.JobSpec {
	return &spec.JobSpec{User: "a", UID: 1, Shell: true, Size: spec.Size{Tasks: tasks, MinNodes: 1, MaxNodes: 1}, Place: spec.PlaceAsk{Nodes: node}}
}

func hetOf(t *testing.T, list ...*spec.JobSpec) *trial.Trial {
	t.Helper()
	tr := stepCluster(t)
	for _, cmd := range []scheduler.Command{scheduler.EndJob{UID: 1}, scheduler.Report{Node: "n1", Run: scheduler.Run{UID: 1, Attempt: 1}, Done: &scheduler.NodeDone{}},
		scheduler.Report{Node: "n2", Run: scheduler.Run{UID: 1, Attempt: 1}, Done: &scheduler.NodeDone{}},
		scheduler.Submit{Spec: list[0], Rest: list[1:]}} {
		if _, err := scheduler.Decide(tr, cmd); err != nil {
			t.Fatal(err)
		}
	}
	out, err := scheduler.Pass(tr.State.Freeze(), tr.Now, scheduler.PassOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := scheduler.Decide(tr, scheduler.Starts{Proposal: &out.Proposal}); err != nil {
		t.Fatal(err)
	}
	for uid := spec.JobUID(2); uid < 2+spec.JobUID(len(list)); uid++ {
		if j := tr.Job(uid); j == nil || j.State != spec.Running || j.Het == nil {
			t.Fatalf("component %d does not run: %+v", uid, j)
		}
	}
	return tr
}

// TestStepInComponents: a step in two components begins in both or in none,
// under one number, with its tasks numbered through; it ends as a whole when
// the leader's is named, and when a node of it is lost.
func TestStepInComponents(t *testing.T) {
	ask := func(tasks uint32, rest ...scheduler.StartStep) scheduler.StartStep {
		return scheduler.StartStep{UID: 2, Spec: &spec.StepSpec{Tasks: tasks, Argv: []string{"a"}}, Rest: rest}
	}
	other := scheduler.StartStep{UID: 3, Spec: &spec.StepSpec{Tasks: 3, Argv: []string{"b"}}}
	begin := func(t *testing.T) (*trial.Trial, spec.StepID) {
		tr := hetCluster(t)
		if _, err := scheduler.Decide(tr, ask(1)); err != nil { // numbers differ then
			t.Fatal(err)
		}
		if _, err := scheduler.Decide(tr, ask(2, other)); spec.CodeOf(err) != spec.CodeNodesBusy || len(tr.Job(3).Steps) != 0 {
			t.Fatalf("half a step began: %v, %d steps", err, len(tr.Job(3).Steps))
		}
		if _, err := scheduler.Decide(tr, scheduler.Report{Node: "n1", Run: scheduler.Run{UID: 2, Attempt: 1}, StepOver: &scheduler.StepOver{Step: 0}}); err != nil {
			t.Fatal(err)
		}
		res, err := scheduler.Decide(tr, ask(2, other))
		if err != nil {
			t.Fatal(err)
		}
		sound(t, tr)
		return tr, res.Step
	}
	tr, id := begin(t)
	var ranks []uint32
	for uid := spec.JobUID(2); uid < 4; uid++ {
		st := tr.Job(uid).StepByID(id)
		if st == nil {
			t.Fatalf("component %d has no step %d", uid, id)
		}
		for _, r := range spec.StepRanks(st.Layout, st.Spec) {
			ranks = append(ranks, r...)
		}
		if w := st.Spec.World; w == nil || w.Job != tr.Job(2).ID || !slices.Equal(w.NodeOf(), []uint32{0, 0, 1, 1, 1}) || w.FirstNode() != int(uid)-2 {
			t.Errorf("the step's world in component %d: %+v", uid, w)
		}
	}
	if id != 1 || !slices.Equal(ranks, []uint32{0, 1, 2, 3, 4}) {
		t.Errorf("step %d has the tasks %v", id, ranks)
	}
	if _, err := scheduler.Decide(tr, scheduler.EndStep{UID: 3, Step: id, Signal: 10}); err != nil || tr.Job(2).StepByID(id).Signal != nil || tr.Job(3).StepByID(id).Signal == nil {
		t.Errorf("a signal for one part: %v", err)
	}
	if _, err := scheduler.Decide(tr, scheduler.EndStep{UID: 2, Step: id}); err != nil || tr.Job(3).StepByID(id).Ending == nil || tr.Job(2).StepByID(id).Ending == nil {
		t.Errorf("the end of the whole step: %v", err)
	}
	tr, id = begin(t)
	lost := scheduler.Report{Node: "n2", Run: scheduler.Run{UID: 3, Attempt: 1}, StepOver: &scheduler.StepOver{Step: id, Result: event.StepResult{Unknown: true}}}
	if _, err := scheduler.Decide(tr, lost); err != nil || tr.Job(2).StepByID(id).Ending == nil || tr.Job(2).StepByID(id).Ending.Cause != event.EndNodeLost {
		t.Errorf("the rest of a step whose part was lost goes on: %v", err)
	}
	sound(t, tr)
	for name, rest := range map[string]scheduler.StartStep{"another job": {UID: 1, Spec: other.Spec}, "twice": {UID: 2, Spec: other.Spec}} {
		if _, err := scheduler.Decide(hetCluster(t), ask(1, rest)); err == nil {
			t.Errorf("%s: it began", name)
		}
	}
}

// TestStepsBesideEachOther: of several steps in one heterogeneous job the end,
// or the loss, of one is none of the others', whatever components they are in.
func TestStepsBesideEachOther(t *testing.T) {
	tr := hetOf(t, hetPart("n1", 1), hetPart("n1", 1), hetPart("n2", 1), hetPart("n2", 1))
	begin := func(first spec.JobUID, rest ...spec.JobUID) spec.StepID {
		ask := func(uid spec.JobUID) scheduler.StartStep {
			return scheduler.StartStep{UID: uid, Spec: &spec.StepSpec{Tasks: 1, Overlap: true, Argv: []string{"a"}}}
		}
		c := ask(first)
		for _, uid := range rest {
			c.Rest = append(c.Rest, ask(uid))
		}
		res, err := scheduler.Decide(tr, c)
		if err != nil {
			t.Fatal(err)
		}
		return res.Step
	}
	ending := func(uid spec.JobUID, id spec.StepID) bool { return tr.Job(uid).StepByID(id).Ending != nil }
	far := begin(4, 5)
	near := begin(2, 3)
	lost := scheduler.Report{Node: "n2", Run: scheduler.Run{UID: 5, Attempt: 1}, StepOver: &scheduler.StepOver{Step: far, Result: event.StepResult{Unknown: true}}}
	if _, err := scheduler.Decide(tr, lost); err != nil || !ending(4, far) || ending(2, near) || ending(3, near) {
		t.Errorf("a part of one of two steps was lost: %v", err)
	}
	far = begin(3, 4)
	alone := begin(2)
	for alone < far {
		alone = begin(2)
	}
	if _, err := scheduler.Decide(tr, scheduler.EndStep{UID: 2, Step: alone}); err != nil || !ending(2, alone) || ending(3, far) || ending(4, far) {
		t.Errorf("step %d of the leader alone ends beside step %d of others: %v", alone, far, err)
	}
	if _, err := scheduler.Decide(tr, scheduler.EndStep{UID: 2, Step: near}); err != nil || !ending(2, near) || !ending(3, near) || ending(3, far) {
		t.Errorf("the end of one of two steps: %v", err)
	}
	sound(t, tr)
}
