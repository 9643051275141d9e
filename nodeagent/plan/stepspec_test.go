package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/musterhpc/muster/spec"
	"pgregory.net/rapid"
)

// stepNode is a node that binds.
func stepNode() *Node {
	return &Node{Name: "n2", Host: "vm2", CPUs: spec.FullBitset(16), MemoryMiB: 8000, Affinity: true, TaskProlog: "/site/prolog", TaskEpilog: "/site/epilog",
		Confine: Confine{RAM: true, AllowedRAM: 10_000, MaxRAM: 10_000}, Enforces: Enforces{Memory: true}}
}

// stepPart is the second node's part of a step of 2+3 tasks, on CPUs 4 to 9.
func stepPart(more ...func(*StepPart)) *StepPart {
	env := "PATH=/bin\x00SLURM_PROCID=9\x00WHO=me\x00HOSTNAME=login\x00SLURM_JOB_ID=42\x00WHO=you\x00"
	job := &Job{Key: Key(7, 1, StepBatch), ID: 42, Task: spec.NoTask, Spec: &spec.JobSpec{Name: "train"}, User: "alice", UID: 1001, GID: 1001, Groups: []uint32{5},
		Home: "/home/alice", Nodes: "n[1-2]", Index: 1, CPUsPerNode: []uint32{8, 8}, TasksOnNode: []uint32{2, 3},
		Here: spec.NodeAlloc{Name: "n2", CPUs: spec.FullBitset(10), Mem: 2000}, Env: []byte(env)}
	var cpus spec.Bitset
	for c := 4; c < 10; c++ {
		cpus = cpus.Set(c)
	}
	s := &StepPart{Job: job, Key: Key(7, 1, 3), Spec: &spec.StepSpec{Argv: []string{"app", "-x"}, WorkDir: "/work", InputTask: spec.InputAll},
		Here: spec.NodeAlloc{Name: "n2", CPUs: cpus, Mem: 500}, Index: 1, Nodes: "n[1-2]", TasksOnNode: []uint32{2, 3}, Tasks: 5, Ranks: []uint32{2, 3, 4},
		LaunchHost: "login", Mapping: "(vector,(0,1,2),(1,1,3))"}
	for _, f := range more {
		f(s)
	}
	return s
}

func none([]int) []string { return nil }

func TestStepRun(t *testing.T) {
	s := stepPart(func(s *StepPart) {
		s.Spec.Stdout, s.Spec.Stderr, s.Spec.Stdin = "out-%j.%s-%t-%n-%N", "", "none"
		s.Spec.TaskProlog, s.Spec.TaskEpilog = "/my/prolog", "/my/epilog"
		s.Spec.Rlimits = []spec.Count{{Name: "NOFILE", N: 77}}
	})
	r, warnings, err := StepRun(s, stepNode(), none)
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	if r.Key != s.Key || r.UID != 1001 || r.Limits.MemoryBytes != 500<<20 || r.JobLimits.MemoryBytes != 2000<<20 || len(r.CPUs) != 6 {
		t.Errorf("%+v", r)
	}
	tasks := r.Tasks
	if !slices.Equal(tasks.Prologs, []string{"/site/prolog", "/my/prolog"}) || !slices.Equal(tasks.Epilogs, []string{"/my/epilog", "/site/epilog"}) {
		t.Errorf("%q %q", tasks.Prologs, tasks.Epilogs)
	}
	if len(tasks.Rlimits) != 1 || tasks.WorkDir != "/work" || len(tasks.List) != 3 {
		t.Fatalf("%+v", tasks)
	}
	x := tasks.List[1]
	if x.Stdout != "out-42.3-3-1-vm2" || x.Stderr != "" || x.Stdin != "/dev/null" {
		t.Errorf("%+v", x)
	}
	env := slices.Concat(tasks.Env, x.Env)
	for name, want := range map[string]string{
		"PATH": "/bin", "WHO": "you", "HOSTNAME": "vm2", "SLURM_JOB_ID": "42", "SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_GTIDS": "2,3,4",
		"SLURM_NODEID": "1", "SLURM_STEP_ID": "3", "SLURM_STEPID": "3", "SLURM_STEP_NODELIST": "n[1-2]", "SLURM_STEP_NUM_NODES": "2",
		"SLURM_STEP_NUM_TASKS": "5", "SLURM_STEP_TASKS_PER_NODE": "2,3", "SLURM_NTASKS": "5", "SLURM_NPROCS": "5", "SLURM_NNODES": "2",
		"SLURM_TASKS_PER_NODE": "2,3", "SLURMD_NODENAME": "n2", "SLURM_CPUS_ON_NODE": "6", "SLURM_SRUN_COMM_HOST": "login",
		"SLURM_LAUNCH_NODE_IPADDR": "login", "SLURM_MPI_TYPE": "pmi2", "PMI_RANK": "3", "PMI_SIZE": "5", "PMI_JOBID": "42.3", "TMPDIR": "/tmp",
		"USER": "alice", "HOME": "/home/alice", "SLURM_GPUS_ON_NODE": "", "SLURM_STEP_GPUS": "",
	} {
		if got := lookUpVariable(env, name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
		if n := len(slices.DeleteFunc(slices.Clone(env), func(e string) bool { return !strings.HasPrefix(e, name+"=") })); n > 1 {
			t.Errorf("%s is there %d times", name, n)
		}
	}
	if p := tasks.PMI; p == nil || p.Node != 1 || p.Nodes != 2 || p.Size != 5 || p.Mapping != s.Mapping || !slices.Equal(p.Ranks, s.Ranks) {
		t.Errorf("%+v", p)
	}
}

// TestKeptSizes is srun -E: the tasks see the sizes that srun has, where it has them.
func TestKeptSizes(t *testing.T) {
	user := []string{"PATH=/bin", "SLURM_NNODES=8", "SLURM_NTASKS=16"}
	for _, keep := range []bool{false, true} {
		s := stepPart(func(s *StepPart) { s.Spec.KeepSizes = keep })
		env := s.commonEnv(user, stepNode(), &binding{}, "pmi2")
		want := map[string]string{"SLURM_NNODES": "2", "SLURM_NTASKS": "5", "SLURM_NPROCS": "5", "SLURM_STEP_NUM_NODES": "2"}
		if keep {
			want["SLURM_NNODES"], want["SLURM_NTASKS"] = "8", "16"
		}
		for name, value := range want {
			if got := lookUpVariable(env, name); got != value {
				t.Errorf("kept %v: %s is %q, want %q", keep, name, got, value)
			}
		}
	}
}

func TestTerminalsAndPMI(t *testing.T) {
	for _, c := range []struct {
		pty      bool
		ranks    []uint32
		mpi      string
		terminal bool
		input    int32
		pmi      bool
	}{
		{false, []uint32{0, 1, 2}, "", false, spec.InputAll, true}, {true, []uint32{0, 1, 2}, "", true, spec.InputAll, false},
		{true, []uint32{3, 4, 5}, "", false, spec.InputNone, false}, {true, []uint32{0, 1, 2}, "pmi2", true, spec.InputAll, true},
		{false, []uint32{0, 1, 2}, "none", false, spec.InputAll, false},
	} {
		s := stepPart(func(s *StepPart) {
			s.Spec.Pty, s.Spec.MPI, s.Ranks, s.Spec.Rows, s.Tasks = c.pty, c.mpi, c.ranks, 24, 6
		})
		r, _, err := StepRun(s, stepNode(), none)
		if err != nil || (r.Tasks.Terminal != nil) != c.terminal || r.Tasks.Input != c.input || (r.Tasks.PMI != nil) != c.pmi {
			t.Errorf("%+v: %+v, %v", c, r.Tasks, err)
		}
	}
}

func TestPrograms(t *testing.T) {
	s := stepPart(func(s *StepPart) {
		s.Spec.Argv = nil
		s.Spec.Programs = []spec.TaskProgram{{Ranks: spec.TaskSet{{First: 0, Last: 2, Step: 2}, {First: 3, Last: 3, Step: 1}}, Argv: []string{"a", "%t", "x%o"}},
			{Ranks: spec.TaskSet{{First: 1, Last: 1, Step: 1}, {First: 4, Last: 4, Step: 1}}, Argv: []string{"b", "%o"}}}
	})
	r, _, err := StepRun(s, stepNode(), none)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(r.Tasks.List[0].Argv, r.Tasks.List[1].Argv, r.Tasks.List[2].Argv)
	if got != "[a 2 x1] [a 3 x2] [b 1]" {
		t.Error(got)
	}
	s.Ranks = []uint32{2, 3, 5}
	if _, _, err := StepRun(s, stepNode(), none); err == nil || !strings.Contains(err.Error(), "task 5") {
		t.Error(err)
	}
	// A line for all others, wherever it stands.
	s.Spec.Programs = append([]spec.TaskProgram{{Argv: []string{"rest", "%t", "%o"}}}, s.Spec.Programs...)
	r, _, err = StepRun(s, stepNode(), none)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(r.Tasks.List[1].Argv, r.Tasks.List[2].Argv); got != "[a 3 x2] [rest 5 5]" {
		t.Error(got)
	}
}

func TestCPUBind(t *testing.T) {
	for _, c := range []struct {
		text  string
		each  uint32
		tasks int
		want  string // "" = all of the step's
		list  string
		err   string
	}{
		{"", 2, 3, "[[4 5] [6 7] [8 9]]", "0x30,0xC0,0x300", ""}, // fills the step
		{"", 1, 3, "", "", ""}, // does not
		{"none", 2, 3, "", "", ""},
		{"cores", 1, 3, "[[4] [5] [6]]", "0x10,0x20,0x40", ""},
		{"quiet,rank", 4, 3, "[[4 5 6 7] [4 5 8 9] [6 7 8 9]]", "0xF0,0x330,0x3C0", ""},
		{"map_cpu:4,0x6", 1, 3, "[[4] [6] [4]]", "4,0x6", ""},
		{"map_cpu:5*2,7", 1, 3, "[[5] [5] [7]]", "5*2,7", ""},
		{"map_cpu:3", 1, 1, "", "", "CPU 3 is not one of the step's"},
		{"mask_cpu:0x31,300", 1, 2, "[[4 5] [8 9]]", "0x31,300", ""},
		{"mask_cpu:0xF", 1, 1, "", "", "none of the CPUs"},
		{"mask_cpu:zz", 1, 1, "", "", "no mask"},
		{"sockets", 1, 1, "", "", "not supported"},
	} {
		s := stepPart(func(s *StepPart) {
			s.Spec.CPUBind, s.Spec.CPUsPerTask = c.text, c.each
			s.Ranks = s.Ranks[:0]
			for i := range c.tasks {
				s.Ranks = append(s.Ranks, uint32(i))
			}
		})
		b, told, err := bindTasks(s, stepNode(), bindCPUs(&Job{Here: s.Here}, stepNode()))
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v", c.text, err)
			}
			continue
		}
		if err != nil || len(told) > 0 {
			t.Errorf("%s: %v, %q", c.text, err, told)
			continue
		}
		got := ""
		if b.tasks != nil {
			got = fmt.Sprint(b.tasks)
		}
		if got != c.want || b.list != c.list {
			t.Errorf("%s: %s, list %q; want %s, %q", c.text, got, b.list, c.want, c.list)
		}
	}
	_, told, err := bindTasks(stepPart(func(s *StepPart) { s.Spec.CPUBind = "verbose,map_cpu:4" }), stepNode(), []int32{4, 5})
	if err != nil || len(told) != 3 || told[1] != "cpu-bind=MAP_CPU - vm2, task  3  1: mask 0x10 set" {
		t.Errorf("%q, %v", told, err)
	}
}

// Whatever is asked for, a task runs on CPUs of the step, and on some.
func TestBoundTasksStayInTheStep(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cpus := rapid.SliceOfNDistinct(rapid.Int32Range(0, 63), 1, 16, func(c int32) int32 { return c }).Draw(t, "cpus")
		slices.Sort(cpus)
		tasks := rapid.IntRange(1, 20).Draw(t, "tasks")
		s := stepPart(func(s *StepPart) {
			s.Ranks = make([]uint32, tasks)
			s.Spec.CPUsPerTask = rapid.Uint32Range(0, 5).Draw(t, "each")
			s.Spec.CPUBind = rapid.SampledFrom([]string{"", "none", "cores", "threads", "rank", "mask_cpu:0xFFFFFFFFFFFFFFFF",
				fmt.Sprintf("map_cpu:%d", cpus[0])}).Draw(t, "bind")
		})
		b, _, err := bindTasks(s, stepNode(), cpus)
		if err != nil {
			t.Fatal(err)
		}
		for i := range tasks {
			of := b.taskCPUs(i)
			if b.tasks != nil && len(of) == 0 {
				t.Fatalf("task %d has no CPU", i)
			}
			for _, c := range of {
				if !slices.Contains(cpus, c) {
					t.Fatalf("task %d is bound to CPU %d, which is not of %v", i, c, cpus)
				}
			}
		}
	})
}

// Devices of tasks: all of the step's, or those that the binding says.
func TestGPUsOfTasks(t *testing.T) {
	for _, c := range []struct {
		bind string
		per  int64
		want string
	}{{"", 0, "[0 1 2 3] [0 1 2 3] [0 1 2 3]"}, {"single:1", 0, "[0] [1] [2]"}, {"per_task:1", 0, "[0] [1] [2]"}, {"", 1, "[0] [1] [2]"},
		{"none", 2, "[0 1 2 3] [0 1 2 3] [0 1 2 3]"}} {
		s := stepPart(func(s *StepPart) {
			s.Spec.GPUBind = c.bind
			if c.per > 0 {
				s.Spec.PerTask = []spec.Count{{Name: "gpu", N: c.per}}
			}
			for i := range 4 {
				s.GPUs = append(s.GPUs, StepGPU{Index: uint32(i + 2)})
			}
		})
		var got []string
		_, _, err := StepRun(s, stepNode(), func(places []int) []string {
			got = append(got, fmt.Sprint(places))
			return nil
		})
		if text := strings.Join(got, " "); err != nil || text != c.want {
			t.Errorf("%s %d: %s (%v), want %s", c.bind, c.per, text, err, c.want)
		}
	}
}

// TestSiteProgramsOfContainers: the site's programs are part of a step in an
// image, and of a script in one, and are seen there; the user's own are not shown.
func TestSiteProgramsOfContainers(t *testing.T) {
	box := &spec.Container{Image: "/images/one"}
	node := stepNode()
	part := stepPart(func(s *StepPart) {
		s.Spec.Container = box
		s.Spec.TaskProlog = "/my/prolog"
	})
	step, _, err := StepRun(part, node, none)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"/site/prolog", "/my/prolog"}; !slices.Equal(step.Tasks.Prologs, want) {
		t.Errorf("a step goes through %q, not %q", step.Tasks.Prologs, want)
	}
	if want := []string{"/site/prolog", "/site/epilog"}; !step.Tasks.Contained ||
		!slices.Equal(step.Tasks.Epilogs, want[1:]) ||
		!slices.Equal(step.Container.Programs, want) {
		t.Errorf("%+v, shown %q", step.Tasks, step.Container.Programs)
	}
	job := *part.Job
	withImage := *job.Spec
	withImage.Container = box
	job.Spec = &withImage
	script, _ := Batch(&job, node)
	if script.TaskProlog != "/site/prolog" || len(script.Notices) != 0 ||
		!slices.Equal(script.Container.Programs, []string{"/site/prolog"}) {
		t.Errorf("a script: %q, shown %q", script.TaskProlog, script.Container.Programs)
	}
}
