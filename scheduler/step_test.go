package scheduler_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/scheduler/trial"
	"github.com/musterhpc/muster/spec"
)

// stepper is what a test of steps needs of testing.T and rapid.T.
type stepper interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// TestStepTimeLimitChanges: a step's time limit can be shortened by its user and
// raised by an administrator while it runs; without a step it is that of all.
func TestStepTimeLimitChanges(t *testing.T) {
	tr := stepCluster(t)
	begin := func(limit spec.Span, ticket string) spec.StepID {
		res, err := scheduler.Decide(tr, scheduler.StartStep{UID: 1, Spec: &spec.StepSpec{Tasks: 1, Overlap: true, Limit: limit}, Ticket: ticket})
		if err != nil {
			t.Fatal(err)
		}
		return res.Step
	}
	first, second := begin(10*spec.Minute, "a"), begin(0, "b")
	for _, x := range []struct {
		cmd  scheduler.UpdateStep
		want spec.Code
	}{
		{scheduler.UpdateStep{UID: 1, Step: first, Limit: "20"}, spec.CodeAccessDenied},
		{scheduler.UpdateStep{UID: 1, Step: first, Limit: "20", Admin: true}, 0},
		{scheduler.UpdateStep{UID: 1, Step: first, Limit: "-5"}, 0},
		{scheduler.UpdateStep{UID: 1, Step: first, Limit: "soon"}, spec.CodeInvalidTimeLimit},
		{scheduler.UpdateStep{UID: 1, Step: 7, Limit: "1"}, spec.CodeAlreadyDone},
		{scheduler.UpdateStep{UID: 1, All: true, Limit: "3"}, 0},
		{scheduler.UpdateStep{UID: 1, Step: second, Limit: "UNLIMITED", Admin: true}, 0},
	} {
		if _, err := scheduler.Decide(tr, x.cmd); spec.CodeOf(err) != x.want && (err != nil || x.want != 0) {
			t.Errorf("%+v: %v, want %d", x.cmd, err, x.want)
		}
	}
	if a, b := tr.Job(1).StepByID(first).TimeLimit(), tr.Job(1).StepByID(second).TimeLimit(); a != 3*spec.Minute || b != 0 {
		t.Errorf("limits %d and %d", a, b)
	}
	tr.Now = tr.Now.Add(3 * spec.Minute)
	if _, err := scheduler.Decide(tr, scheduler.Tick{}); err != nil {
		t.Fatal(err)
	}
	if a, b := tr.Job(1).StepByID(first), tr.Job(1).StepByID(second); a.Ending == nil || a.Ending.Cause != event.EndTimeLimit || b.Ending != nil {
		t.Errorf("endings %+v and %+v", a.Ending, b.Ending)
	}
	sound(t, tr)
}

// TestShrinkEndsSteps: a job that gives a node back ends the steps that have a part
// there, starts none there, and goes on with what is left.
func TestShrinkEndsSteps(t *testing.T) {
	tr := stepCluster(t)
	must := func(cmd scheduler.Command) scheduler.Result {
		t.Helper()
		res, err := scheduler.Decide(tr, cmd)
		if err != nil {
			t.Fatal(err)
		}
		sound(t, tr)
		return res
	}
	both := must(scheduler.StartStep{UID: 1, Spec: &spec.StepSpec{Tasks: 2, Overlap: true}, Ticket: "a"})
	one := must(scheduler.StartStep{UID: 1, Spec: &spec.StepSpec{Nodes: "n1", Overlap: true}, Ticket: "b"})
	before := tr.Job(1).Alloc.TRES
	must(scheduler.UpdateJob{Target: scheduler.Target{UID: 1, Task: spec.NoTask}, Changes: []spec.KeyValue{{Key: "numnodes", Value: "1"}}})
	if a, b := tr.Job(1).StepByID(both.Step), tr.Job(1).StepByID(one.Step); a.Ending == nil || b.Ending != nil {
		t.Errorf("endings %+v and %+v", a.Ending, b.Ending)
	}
	if _, err := scheduler.Decide(tr, scheduler.StartStep{UID: 1, Spec: &spec.StepSpec{MinNodes: 2, MaxNodes: 2}, Ticket: "c"}); spec.CodeOf(err) != spec.CodeNodeCountInvalid {
		t.Errorf("a step on both nodes: %v", err)
	}
	must(scheduler.Report{Node: "n2", Run: scheduler.Run{UID: 1, Attempt: 1}, Done: &scheduler.NodeDone{}})
	j := tr.Job(1)
	if j.State != spec.Running || len(j.Alloc.Nodes) != 1 || j.Alloc.TRES.CPU*2 != before.CPU || len(j.StartedWith().Nodes) != 2 || len(j.Leaving) != 0 {
		t.Errorf("%s with %s of %s", j.State, j.Alloc.TRES, before)
	}
	if tr.Node("n2").Jobs != nil {
		t.Error("the node still has the job")
	}
	must(scheduler.StartStep{UID: 1, Spec: &spec.StepSpec{Overlap: true}, Ticket: "d"})
}

// stepCluster is a job of two tasks a node, four CPUs and two GPUs on each of
// two nodes, that runs.
func stepCluster(t stepper) *trial.Trial {
	t.Helper()
	tr := trial.On(state.New(), spec.AtUnix(1_000_000), event.Actor{}, "")
	cfg := &spec.Config{ClusterName: "c", GresTypes: []string{"gpu"}, Partitions: []spec.PartitionSpec{{Name: "p", NodeNames: []string{"n1", "n2"}, Default: true}}}
	cmds := []scheduler.Command{scheduler.Policy{Events: []event.Event{&event.ClusterCreated{UUID: [16]byte{1}, Name: "c", Version: 1}}}, scheduler.Configure{Config: cfg}}
	for _, name := range []string{"n1", "n2"} {
		cfg.Nodes = append(cfg.Nodes, spec.NodeSpec{Name: name, CPUs: 4, Mem: 1000, GRES: []spec.GRESSpec{{Name: "gpu", N: 2}}})
		cmds = append(cmds, scheduler.RegisterNode{Node: name, Inventory: spec.Inventory{BootID: "b", CPUs: 4, Mem: 1000, Socket: "/s",
			GPUs: []spec.GPU{{Index: 0, UUID: name + "-0"}, {Index: 1, UUID: name + "-1"}}}})
	}
	size := spec.Size{MinNodes: 2, TasksPerNode: 2, CPUsPerTask: 2, MemPerNode: 800, PerNode: []spec.Count{{Name: "gpu", N: 2}}}
	cmds = append(cmds, scheduler.Submit{Spec: &spec.JobSpec{User: "a", UID: 1, Name: "j", Shell: true, Size: size}})
	for _, cmd := range cmds {
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
	if j := tr.Job(1); j.State != spec.Running {
		t.Fatalf("the job is %s", j.State)
	}
	return tr
}

// laid writes a layout: node:tasks/cpus/gpus.
func laid(st *state.Step) string {
	var out []string
	for i := range st.Layout {
		a := &st.Layout[i]
		out = append(out, fmt.Sprintf("%s:%d/%d/%d", a.Name, a.Tasks, a.CPUs.Count(), len(a.GPUs)))
	}
	return strings.Join(out, " ")
}

func sound(t stepper, tr *trial.Trial) {
	t.Helper()
	if err := tr.Check(); err != nil {
		t.Fatal(err)
	}
}

// TestStepLayout: what a step gets of an empty job, and that a second one
// waits for it, or does not.
func TestStepLayout(t *testing.T) {
	gpus := func(n int64) []spec.Count { return []spec.Count{{Name: "gpu", N: n}} }
	for name, tc := range map[string]struct {
		ask  spec.StepSpec
		want string // the layout, or a code
		next string // of the same step again
	}{
		"all of the job":         {spec.StepSpec{Tasks: 4}, "n1:2/4/2 n2:2/4/2", "2016"},
		"one task a node":        {spec.StepSpec{}, "n1:1/4/2 n2:1/4/2", "2016"},
		"one task":               {spec.StepSpec{Tasks: 1}, "n1:1/4/2", "n2:1/4/2"},
		"one node":               {spec.StepSpec{MinNodes: 1, MaxNodes: 1}, "n1:1/4/2", "n2:1/4/2"},
		"three tasks":            {spec.StepSpec{Tasks: 3}, "n1:2/4/2 n2:1/4/2", "2016"},
		"six tasks":              {spec.StepSpec{Tasks: 6}, "n1:3/4/2 n2:3/4/2", "2016"},
		"six tasks, cyclic":      {spec.StepSpec{Tasks: 6, Distribution: "cyclic"}, "n1:3/4/2 n2:3/4/2", "2016"},
		"five tasks in planes":   {spec.StepSpec{Tasks: 5, Distribution: "plane=2"}, "n1:3/4/2 n2:2/4/2", "2016"},
		"by a host file":         {spec.StepSpec{Tasks: 4, Nodes: "n2,n1", Distribution: "arbitrary", TaskNodes: []string{"n2", "n2", "n1", "n2"}}, "n1:1/4/2 n2:3/4/2", "2016"},
		"a full host file":       {spec.StepSpec{Tasks: 5, Nodes: "n1", Distribution: "arbitrary", TaskNodes: []string{"n1", "n1", "n1", "n1", "n1"}}, "2005", ""},
		"a wrong host file":      {spec.StepSpec{Tasks: 2, Nodes: "n1", MinNodes: 1, MaxNodes: 1, Distribution: "arbitrary", TaskNodes: []string{"n1", "n2"}}, "2023", ""},
		"too many tasks":         {spec.StepSpec{Tasks: 9}, "2005", ""},
		"overcommitted":          {spec.StepSpec{Tasks: 9, Overcommit: true, TasksPerNode: 5}, "n1:5/4/2 n2:4/4/2", "2016"},
		"three nodes":            {spec.StepSpec{MinNodes: 3, MaxNodes: 3}, "2006", ""},
		"exact":                  {spec.StepSpec{Tasks: 1, Exact: true, NoGRES: true}, "n1:1/1/0", "n1:1/1/0"},
		"exact takes the GPUs":   {spec.StepSpec{Tasks: 1, Exact: true}, "n1:1/1/2", "n2:1/1/2"},
		"a GPU each":             {spec.StepSpec{Tasks: 1, Exact: true, PerNode: gpus(1)}, "n1:1/1/1", "n1:1/1/1"},
		"GPUs of the step":       {spec.StepSpec{Tasks: 2, Exact: true, PerStep: gpus(3)}, "n1:1/1/2 n2:1/1/1", "2016"},
		"GPUs of the step, even": {spec.StepSpec{Tasks: 2, Exact: true, PerStep: gpus(2)}, "n1:1/1/1 n2:1/1/1", "n1:1/1/1 n2:1/1/1"},
		"GPUs of tasks":          {spec.StepSpec{Tasks: 3, Exact: true, PerTask: gpus(1)}, "n1:2/2/2 n2:1/1/1", "2016"},
		"too many GPUs":          {spec.StepSpec{Tasks: 1, PerNode: gpus(3)}, "2005", ""},
		"too many GPUs in all":   {spec.StepSpec{Tasks: 2, PerStep: gpus(5)}, "2072", ""},
		"named node":             {spec.StepSpec{Nodes: "n2"}, "n2:1/4/2", "2016"},
		"not that node":          {spec.StepSpec{Exclude: "n1"}, "n2:1/4/2", "2016"},
		"from the second":        {spec.StepSpec{Relative: 2}, "n2:1/4/2", "2016"},
		"a foreign node":         {spec.StepSpec{Nodes: "n7"}, "2014", ""},
		"overlapping":            {spec.StepSpec{Tasks: 4, Overlap: true}, "n1:2/4/2 n2:2/4/2", "n1:2/4/2 n2:2/4/2"},
		"a launcher":             {spec.StepSpec{External: true, TasksPerNode: 1}, "n1:1/4/2 n2:1/4/2", "n1:1/4/2 n2:1/4/2"},
		"memory is counted":      {spec.StepSpec{Tasks: 1, Exact: true, NoGRES: true, MemPerNode: 500}, "n1:1/1/0", "n2:1/1/0"},
		"too much memory":        {spec.StepSpec{Tasks: 1, MemPerNode: 900}, "2005", ""},
		"CPUs of tasks":          {spec.StepSpec{Tasks: 1, CPUsPerTask: 3, Exact: true, NoGRES: true}, "n1:1/3/0", "n2:1/3/0"},
		"more tasks than nodes":  {spec.StepSpec{MinNodes: 2, MaxNodes: 2, Tasks: 1}, "2025", ""},
	} {
		t.Run(name, func(t *testing.T) {
			tr := stepCluster(t)
			for i, want := range []string{tc.want, tc.next} {
				if want == "" {
					break
				}
				res, err := scheduler.Decide(tr, scheduler.StartStep{UID: 1, Spec: &tc.ask, Ticket: fmt.Sprint(i)})
				got := ""
				if err != nil {
					got = fmt.Sprint(int(spec.CodeOf(err)))
				} else {
					got = laid(tr.Job(1).StepByID(res.Step))
				}
				if got != want {
					t.Fatalf("step %d: %s (%v), want %s", i, got, err, want)
				}
			}
			sound(t, tr)
		})
	}
}

// TestStepLife: a step is made once for each ticket, ends when its last node
// has reported, with the worst exit, and with its job at the latest.
func TestStepLife(t *testing.T) {
	tr := stepCluster(t)
	must := func(cmd scheduler.Command) scheduler.Result {
		t.Helper()
		res, err := scheduler.Decide(tr, cmd)
		if err != nil {
			t.Fatal(err)
		}
		sound(t, tr)
		return res
	}
	over := func(node string, id spec.StepID, code int32) scheduler.Report {
		return scheduler.Report{Node: node, Run: scheduler.Run{UID: 1, Attempt: 1}, StepOver: &scheduler.StepOver{Step: id,
			Result: event.StepResult{Exit: spec.ExitStatus{Code: code}}, Usage: spec.Usage{UserCPU: 3}}}
	}
	ask := &spec.StepSpec{Tasks: 4}
	if a, b := must(scheduler.StartStep{UID: 1, Spec: ask, Ticket: "x"}), must(scheduler.StartStep{UID: 1, Spec: ask, Ticket: "x"}); a.Step != 0 || b.Step != 0 {
		t.Fatalf("steps %d and %d for one ticket", a.Step, b.Step)
	}
	must(over("n2", 0, 7))
	if again := must(over("n2", 0, 9)); again.Stale != 1 {
		t.Error("a node's end counted twice")
	}
	if st := tr.Job(1).StepByID(0); !st.Live() {
		t.Fatal("the step is over before its last node is")
	}
	must(over("n1", 0, 2))
	if st := tr.Job(1).StepByID(0); st.State != spec.Failed || st.Result.Exit.Code != 7 || st.Usage.UserCPU != 6 {
		t.Fatalf("%s, exit %d, used %d", st.State, st.Result.Exit.Code, st.Usage.UserCPU)
	}
	two := must(scheduler.StartStep{UID: 1, Spec: &spec.StepSpec{Tasks: 4, Limit: spec.Minute}, Ticket: "y"})
	tr.Now = tr.Now.Add(spec.Minute)
	must(scheduler.Tick{})
	if st := tr.Job(1).StepByID(two.Step); st.Ending == nil || st.Ending.Cause != event.EndTimeLimit {
		t.Fatal("a step goes on behind its time limit")
	}
	must(over("n1", two.Step, 143))
	must(scheduler.EndJob{UID: 1, Exit: spec.ExitStatus{Code: 7}})
	if j := tr.Job(1); j.State != spec.Failed || j.Exit.Code != 7 || j.Derived.Code != 143 {
		t.Fatalf("the job is %s, exit %d, worst %d", j.State, j.Exit.Code, j.Derived.Code)
	}
	for _, node := range []string{"n1", "n2"} {
		must(scheduler.Report{Node: node, Run: scheduler.Run{UID: 1, Attempt: 1}, Done: &scheduler.NodeDone{}})
	}
	if st := tr.Job(1).StepByID(two.Step); st.State != spec.TimedOut || !st.Result.Unknown {
		t.Fatalf("the rest of the step is %s", st.State)
	}
	if _, err := scheduler.Decide(tr, scheduler.StartStep{UID: 1, Spec: ask, Ticket: "z"}); spec.CodeOf(err) != spec.CodeAlreadyDone {
		t.Errorf("a step in a job that is over: %v", err)
	}
}

// TestStepsOfManyTasks: no node gets more tasks than the site allows, however a
// step is asked for.
func TestStepsOfManyTasks(t *testing.T) {
	tr := stepCluster(t)
	tr.Config.Limits.MaxTasksPerNode = 3
	for i, ask := range []spec.StepSpec{{Tasks: 7, Overcommit: true}, {Tasks: 7, External: true}, {Tasks: 7}, {TasksPerNode: 4, Overcommit: true}} {
		if _, err := scheduler.Decide(tr, scheduler.StartStep{UID: 1, Spec: &ask, Ticket: fmt.Sprint(i)}); spec.CodeOf(err) != spec.CodeTooManyCPUs {
			t.Errorf("%+v: %v", ask, err)
		}
	}
	for _, ask := range []spec.StepSpec{{Tasks: 6, Overcommit: true, Overlap: true}, {Tasks: 6, External: true}, {Tasks: 6}} {
		res, err := scheduler.Decide(tr, scheduler.StartStep{UID: 1, Spec: &ask, Ticket: fmt.Sprintf("%+v", ask)})
		if err != nil {
			t.Fatal(err)
		}
		if got := laid(tr.Job(1).StepByID(res.Step)); got != "n1:3/4/2 n2:3/4/2" {
			t.Errorf("%+v gets %s", ask, got)
		}
	}
	sound(t, tr)
}

// TestWorstStep: the derived exit of a job is the worst of its steps', and a
// signal counts where none ended with a code; a batch script that fails after a
// step ran out of memory makes its job one that did.
func TestWorstStep(t *testing.T) {
	for name, tc := range map[string]struct {
		steps   []scheduler.StepOver
		batch   int32
		derived spec.ExitStatus
		state   spec.JobState
	}{
		"a signal":           {[]scheduler.StepOver{{Result: event.StepResult{Exit: spec.ExitStatus{Signal: 9}}}}, 0, spec.ExitStatus{Signal: 9}, spec.Completed},
		"a code is worse":    {[]scheduler.StepOver{{Result: event.StepResult{Exit: spec.ExitStatus{Code: 1}}}, {Result: event.StepResult{Exit: spec.ExitStatus{Signal: 9}}}}, 0, spec.ExitStatus{Code: 1}, spec.Completed},
		"memory, it failed":  {[]scheduler.StepOver{{Result: event.StepResult{Exit: spec.ExitStatus{Signal: 9}}, Usage: spec.Usage{OOMKilled: true}}}, 3, spec.ExitStatus{Signal: 125}, spec.OutOfMemory},
		"memory, it did not": {[]scheduler.StepOver{{Result: event.StepResult{Exit: spec.ExitStatus{Signal: 9}}, Usage: spec.Usage{OOMKilled: true}}}, 0, spec.ExitStatus{Signal: 125}, spec.Completed},
	} {
		t.Run(name, func(t *testing.T) {
			tr := stepCluster(t)
			run := scheduler.Run{UID: 1, Attempt: 1}
			for i, over := range tc.steps {
				res, err := scheduler.Decide(tr, scheduler.StartStep{UID: 1, Spec: &spec.StepSpec{Nodes: "n1"}, Ticket: fmt.Sprint(i)})
				if err != nil {
					t.Fatal(err)
				}
				over.Step = res.Step
				if _, err := scheduler.Decide(tr, scheduler.Report{Node: "n1", Run: run, StepOver: &over}); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := scheduler.Decide(tr, scheduler.EndJob{UID: 1, Exit: spec.ExitStatus{Code: tc.batch}}); err != nil {
				t.Fatal(err)
			}
			if j := tr.Job(1); j.Derived != tc.derived || j.State != tc.state {
				t.Errorf("%s, derived %+v; want %s, %+v", j.State, j.Derived, tc.state, tc.derived)
			}
		})
	}
}

// TestStepOutOfMemory: a step of which the kernel killed something for memory
// shows Slurm's state and code for it, and so does the job of the srun that ran
// it; what it was asked for is not kept when it is over.
func TestStepOutOfMemory(t *testing.T) {
	tr := stepCluster(t)
	res, err := scheduler.Decide(tr, scheduler.StartStep{UID: 1, Spec: &spec.StepSpec{Nodes: "n1"}, Ticket: "x"})
	if err != nil {
		t.Fatal(err)
	}
	for _, cmd := range []scheduler.Command{
		scheduler.Report{Node: "n1", Run: scheduler.Run{UID: 1, Attempt: 1}, StepOver: &scheduler.StepOver{Step: res.Step,
			Result: event.StepResult{Exit: spec.ExitStatus{Signal: 9}}, Usage: spec.Usage{OOMKilled: true}}},
		scheduler.EndJob{UID: 1, Exit: spec.ExitStatus{Code: 253}},
	} {
		if _, err := scheduler.Decide(tr, cmd); err != nil {
			t.Fatal(err)
		}
		sound(t, tr)
	}
	j := tr.Job(1)
	st, want := j.StepByID(res.Step), spec.ExitStatus{Signal: 125}
	if st.State != spec.OutOfMemory || st.Result.Exit != want || j.State != spec.OutOfMemory || j.Exit != want {
		t.Errorf("the step is %s %+v, the job %s %+v", st.State, st.Result.Exit, j.State, j.Exit)
	}
	if st.Spec != nil || st.Layout != nil {
		t.Errorf("the step that is over keeps %+v, %+v", st.Spec, st.Layout)
	}
}

// TestScriptOutlivesStepOutOfMemory: what a node says that a job used tells of its steps
// too. A script that goes on after a step ran out of memory, and succeeds, makes the job one
// that succeeded; one that the kernel killed a process of does not.
func TestScriptOutlivesStepOutOfMemory(t *testing.T) {
	for _, tc := range []struct {
		own  bool // a process of the script was killed too
		want spec.JobState
	}{{false, spec.Completed}, {true, spec.OutOfMemory}} {
		tr := stepCluster(t)
		res, err := scheduler.Decide(tr, scheduler.StartStep{UID: 1, Spec: &spec.StepSpec{Nodes: "n1"}, Ticket: "x"})
		if err != nil {
			t.Fatal(err)
		}
		run := scheduler.Run{UID: 1, Attempt: 1}
		killed := spec.Usage{OOMKilled: true}
		commands := []scheduler.Command{scheduler.Report{Node: "n1", Run: run, StepOver: &scheduler.StepOver{
			Step: res.Step, Result: event.StepResult{Exit: spec.ExitStatus{Signal: 9}}, Usage: killed,
		}}}
		for i, node := range tr.Job(1).Alloc.Nodes {
			done := &scheduler.NodeDone{}
			if i == 0 {
				done.Usage = killed
				done.OOM = tc.own
				done.Batch = &event.StepResult{}
			}
			commands = append(commands, scheduler.Report{Node: node.Name, Run: run, Done: done})
		}
		for _, cmd := range commands {
			if _, err := scheduler.Decide(tr, cmd); err != nil {
				t.Fatal(err)
			}
			sound(t, tr)
		}
		if j := tr.Job(1); j.State != tc.want {
			t.Errorf("killed in the script itself: %v: the job is %s %+v, want %s", tc.own, j.State, j.Exit, tc.want)
		}
	}
}

// TestStepsNeverShare: whatever is asked for, in whatever order steps come and
// go and nodes are lost, the invariants hold, and what fits an empty job starts
// when all others have ended.
func TestStepsNeverShare(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		tr := stepCluster(rt)
		n := func(label string, high int) int { return rapid.IntRange(0, high).Draw(rt, label) }
		for range 12 {
			j := tr.Job(1)
			var live []spec.StepID
			for i := range j.Steps {
				if j.Steps[i].Live() {
					live = append(live, j.Steps[i].ID)
				}
			}
			if len(live) > 0 && n("ends", 2) == 0 {
				id := live[n("which", len(live)-1)]
				for _, node := range j.StepByID(id).Nodes {
					if _, err := scheduler.Decide(tr, scheduler.Report{Node: node, Run: scheduler.Run{UID: 1, Attempt: 1}, StepOver: &scheduler.StepOver{Step: id}}); err != nil {
						rt.Fatal(err)
					}
				}
				sound(rt, tr)
				continue
			}
			s := &spec.StepSpec{Tasks: uint32(n("tasks", 9)), Exact: n("exact", 1) == 1, Overlap: n("overlap", 4) == 0, NoGRES: n("nogres", 2) == 0,
				CPUsPerTask: uint32(n("cpus", 2)), MemPerNode: int64(n("mem", 2) * 300), MinNodes: uint32(n("nodes", 2)), Overcommit: n("over", 5) == 0}
			if g := n("gpus", 3); g > 0 && !s.NoGRES {
				s.PerNode = []spec.Count{{Name: "gpu", N: int64(g)}}
			}
			_, err := scheduler.Decide(tr, scheduler.StartStep{UID: 1, Spec: s, Ticket: fmt.Sprint(tr.Seq)})
			if code := spec.CodeOf(err); err != nil && code == 0 {
				rt.Fatal(err)
			} else if code == spec.CodeNodesBusy && len(live) == 0 {
				rt.Fatalf("%+v waits for nobody", *s)
			}
			sound(rt, tr)
		}
		if _, err := scheduler.Decide(tr, scheduler.NodeSilent{Node: "n1", LastSeen: tr.Now}); err != nil {
			rt.Fatal(err)
		}
		sound(rt, tr)
	})
}

// TestStepsWithoutBound: steps that hold nothing are bounded all the same, by
// their number and by what they say, and one may begin when one has ended.
func TestStepsWithoutBound(t *testing.T) {
	for name, c := range map[string]struct {
		argv []string
		most int
	}{
		"many":  {[]string{"true"}, 1024},
		"large": {[]string{strings.Repeat("x", 1<<18)}, 64},
	} {
		tr := stepCluster(t)
		start := func() error {
			_, err := scheduler.Decide(tr, scheduler.StartStep{UID: 1, Spec: &spec.StepSpec{Argv: c.argv, External: true}})
			return err
		}
		n := 0
		var err error
		for ; n <= c.most; n++ {
			if err = start(); err != nil {
				break
			}
		}
		if n != c.most || spec.CodeOf(err) != spec.CodeNodesBusy {
			t.Errorf("%s: %d steps at once, then %v", name, n, err)
		}
		for _, part := range tr.Job(1).StepByID(0).Layout {
			if _, err := scheduler.Decide(tr, scheduler.Report{Node: part.Name, Run: scheduler.Run{UID: 1, Attempt: 1}, StepOver: &scheduler.StepOver{}}); err != nil {
				t.Fatal(err)
			}
		}
		if err := start(); err != nil {
			t.Errorf("%s: one has ended, and the next: %v", name, err)
		}
		sound(t, tr)
	}
}
