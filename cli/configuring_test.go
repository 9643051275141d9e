package cli

import (
	"strings"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

// TestConfiguring: jobs whose nodes boot and those whose PrologSlurmctld runs
// are shown as configuring, in every form, and are found as such.
func TestConfiguring(t *testing.T) {
	w := newWorld(t)
	ran := func(id uint32, boots bool, why spec.ReasonCode) *apiv1.JobInfo {
		return &apiv1.JobInfo{JobId: id, State: uint32(spec.Running), Configuring: boots, Reason: &apiv1.Reason{Code: string(why)}, Spec: &apiv1.JobSpec{}}
	}
	w.jobs = []*apiv1.JobInfo{ran(1, true, ""), ran(2, false, spec.ReasonProlog), ran(3, false, "")}
	for line, want := range map[string]string{"squeue -h -t CF": "1 CF\n2 CF\n", "squeue -h -t R,CF": "1 CF\n2 CF\n3 R\n"} {
		if r := w.shell(line + " -S i -o '%i %t'"); r.code != 0 || r.out != want {
			t.Errorf("%s: %d %s%s, want\n%s", line, r.code, r.out, r.errOut, want)
		}
	}
	if r := w.shell("squeue --json"); strings.Count(r.out, `"CONFIGURING"`) != 2 {
		t.Errorf("squeue --json: %d %s%s", r.code, r.out, r.errOut)
	}
}
