package plan

import (
	"slices"
	"testing"

	"github.com/musterhpc/muster/spec"
)

// TestInheritedLimits: the site keeps limits back, and a user who chose them has
// those and no others.
func TestInheritedLimits(t *testing.T) {
	sent := []spec.Count{{Name: "CORE"}, {Name: "NOFILE", N: 700}, {Name: "STACK", N: -1}}
	core := Rlimit{Resource: 4, Hard: RlimitKeep}
	nofile := Rlimit{Resource: 7, Soft: 700, Hard: RlimitKeep}
	stack := Rlimit{Resource: 3, Soft: RlimitInfinity, Hard: RlimitKeep}
	asked := func(list ...Rlimit) []Rlimit {
		for i := range list {
			list[i].Asked = true
		}
		return list
	}
	for name, c := range map[string]struct {
		kept  []string
		asked bool
		want  []Rlimit
	}{
		"the site propagates all":  {nil, false, []Rlimit{core, nofile, stack}},
		"the site keeps some back": {[]string{"CORE", "STACK"}, false, []Rlimit{nofile}},
		"the site keeps all back":  {spec.LimitNames(), false, nil},
		"the user chose them":      {spec.LimitNames(), true, asked(core, nofile, stack)},
	} {
		node := &Node{LimitsKept: c.kept}
		got, warnings := node.rlimits(sent, c.asked)
		if !slices.Equal(got, c.want) || len(warnings) != 0 {
			t.Errorf("%s: %v, %v, want %v", name, got, warnings, c.want)
		}
	}
	if got, warnings := new(Node).rlimits([]spec.Count{{Name: "PIE"}}, false); len(got) != 0 || len(warnings) != 1 {
		t.Errorf("an unknown limit: %v, %v", got, warnings)
	}
	for _, name := range spec.LimitNames() {
		got, _ := new(Node).rlimits([]spec.Count{{Name: name}}, false)
		if len(got) != 1 || got[0].Name() != name {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestInheritedNice: the submitter's nice value counts where the site says so.
func TestInheritedNice(t *testing.T) {
	for _, c := range []struct {
		policy NicePolicy
		env    []string
		value  int32
		above  bool
	}{
		{NiceOfNode, []string{"SLURM_PRIO_PROCESS=5"}, 0, false},
		{NiceOfSubmitter, []string{"SLURM_PRIO_PROCESS=5"}, 5, false},
		{NiceOfSubmitter, []string{"SLURM_PRIO_PROCESS=-20"}, 0, false},
		{NiceOfSubmitter, nil, 0, false},
		{NiceAboveNode, []string{"SLURM_PRIO_PROCESS=999"}, 19, true},
		{NiceAboveNode, []string{"SLURM_PRIO_PROCESS=x"}, 0, true},
	} {
		node := &Node{Nice: c.policy}
		if value, above := node.nice(c.env); value != c.value || above != c.above {
			t.Errorf("%v: %d, %v", c, value, above)
		}
	}
}

// TestLoginOfJob: who has the login environment of the node, and for how long it
// may take.
func TestLoginOfJob(t *testing.T) {
	node := &Node{LoginTimeout: 5 * spec.Second, LoginCache: "/state/env_cache"}
	job := &Job{User: "alice", Home: "/home/alice", Shell: "/bin/zsh", Spec: &spec.JobSpec{}}
	if got := node.login(job); got != nil {
		t.Errorf("a job that does not ask: %+v", got)
	}
	job.Spec.IO.Login = &spec.LoginShell{}
	want := Login{User: "alice", Home: "/home/alice", Shell: "/bin/zsh", Timeout: 5 * spec.Second, Cache: "/state/env_cache/alice"}
	if got := node.login(job); got == nil || *got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	job.Spec.IO.Login = &spec.LoginShell{Timeout: spec.Minute, Plain: true}
	want.Timeout, want.Plain = spec.Minute, true
	if got := node.login(job); got == nil || *got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	job.Spec.Container = &spec.Container{}
	if got := node.login(job); got != nil {
		t.Errorf("a job in a container: %+v", got)
	}
}
