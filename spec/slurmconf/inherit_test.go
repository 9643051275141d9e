package slurmconf

import (
	"slices"
	"strings"
	"testing"

	"github.com/musterhpc/muster/spec"
)

// TestLimitsKept are the sites' lists, and the message for what is no list.
func TestLimitsKept(t *testing.T) {
	all := spec.LimitNames()
	for text, want := range map[string]struct {
		kept    []string
		problem string // part of the only one; "" = none
		line    int
	}{
		"":                             {nil, "", 0},
		"PropagateResourceLimits=ALL":  {nil, "", 0},
		"PropagateResourceLimits=NONE": {all, "", 0},
		"PropagateResourceLimits=CORE,RLIMIT_NOFILE":                        {without(spec.LimitNames(), []string{"CORE", "NOFILE"}), "", 0},
		"PropagateResourceLimitsExcept=NONE":                                {nil, "", 0},
		"PropagateResourceLimitsExcept=ALL":                                 {all, "", 0},
		"PropagateResourceLimitsExcept=MEMLOCK":                             {[]string{"MEMLOCK"}, "", 0},
		"PropagateResourceLimits=FOO":                                       {nil, `"FOO" names no resource limit`, 5},
		"PropagateResourceLimitsExcept=CORE,ALL":                            {nil, `"ALL" names no resource limit`, 5},
		"PropagateResourceLimits=STACK\nPropagateResourceLimitsExcept=CORE": {[]string{"CORE"}, "takes precedence", 5},
		"PropagateResourceLimitsExcept=CORE\nPropagateResourceLimits=STACK": {[]string{"CORE"}, "takes precedence", 6},
	} {
		file, problems := Read(conf(minimal+text+"\n"), "slurm.conf")
		if !slices.Equal(file.Agent.LimitsKept, want.kept) {
			t.Errorf("%q: %v, want %v", text, file.Agent.LimitsKept, want.kept)
		}
		switch {
		case want.problem == "" && len(problems) != 0:
			t.Errorf("%q: %v", text, problems)
		case want.problem != "" && (len(problems) != 1 || !strings.Contains(problems[0].Text, want.problem) || problems[0].Line != want.line):
			t.Errorf("%q: %v, want %q in line %d", text, problems, want.problem, want.line)
		}
	}
}

// TestInheritedKeys are the other keys about what jobs inherit.
func TestInheritedKeys(t *testing.T) {
	file, problems := Read(conf(minimal+"PropagatePrioProcess=2\nGetEnvTimeout=0\n"), "slurm.conf")
	if len(problems) != 0 || file.Agent.PrioProcess != 2 || file.Agent.LoginTimeout != 0 {
		t.Errorf("%+v, %v", file.Agent, problems)
	}
	if file, _ := Read(conf(minimal), "slurm.conf"); file.Agent.LoginTimeout != loginTimeout {
		t.Errorf("without GetEnvTimeout: %v", file.Agent.LoginTimeout)
	}
	for _, bad := range []string{"PropagatePrioProcess=3", "PropagatePrioProcess=x", "GetEnvTimeout=soon"} {
		if _, problems := Read(conf(minimal+bad+"\n"), "slurm.conf"); problems.Err() == nil || problems[0].Line != 5 {
			t.Errorf("%s: %v", bad, problems)
		}
	}
}
