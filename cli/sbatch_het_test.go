package cli

import (
	"strings"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
)

// TestHetJobs: the components of a heterogeneous job, from the command line
// and from the script, each with options of its own.
func TestHetJobs(t *testing.T) {
	w := newWorld(t)
	script := w.script("het.sh", "#!/bin/sh\n#SBATCH -p cpu -N 2\n#SBATCH hetjob\n#SBATCH -p gpu\n#SBATCH -n 3\nhostname\n")
	for line, want := range map[string]string{
		"-N 1 : -N 2 --gres=gpu:1 : -n 7 " + w.script("plain.sh", "#!/bin/sh\nhostname\n") + " a : b": "1//0 2//0gpu1 0//7 args=a,:,b",
		script:                                "2/cpu/0 0/gpu/3 args=",
		"-t 5 : -N 4 " + script + " x":        "2/cpu/0 3/gpu/3 args=x",
		"-N 9 : -p x : -n 1 " + script + " :": "9/cpu/0 0/x/3 0//1 args=:",
		"-N 1 : -N 3 --wrap=hostname":         "1//0 3//0 args=",
		"--wrap=hostname -N 1 : -N 3":         "1//0 3//0 args=",
	} {
		w.forget()
		r := w.shell("sbatch " + line)
		if r.code != 0 {
			t.Errorf("%s: %d %s", line, r.code, r.errOut)
			continue
		}
		var req *apiv1.SubmitRequest
		for _, q := range w.seen {
			if m, ok := q.req.(*apiv1.SubmitRequest); ok {
				req = m
			}
		}
		var got []string
		for _, s := range append([]*apiv1.JobSpec{req.GetSpec()}, req.GetRest()...) {
			text := tool.Itoa(s.GetMinNodes()) + "/" + strings.Join(s.GetPartitions(), ",") + "/" + tool.Itoa(s.GetTasks())
			for _, c := range s.GetPerNode() {
				text += c.GetName() + tool.Itoa(c.GetN())
			}
			got = append(got, text)
		}
		got = append(got, "args="+strings.Join(req.GetSpec().GetArgs(), ","))
		if text := strings.Join(got, " "); text != want {
			t.Errorf("sbatch %s\n got %s\nwant %s", line, text, want)
		}
	}
	for line, want := range map[string]string{"-N 1 : --bogus x.sh": "unrecognized option", "-N 1 :": "", "-N 1 : -N x " + script: "invalid node count"} {
		if r := w.shell("sbatch " + line); r.code == 0 || !strings.Contains(r.errOut, want) {
			t.Errorf("sbatch %s: %d %s", line, r.code, r.errOut)
		}
	}
}

// The components of a heterogeneous job stand in their order, waiting as well
// as running, while jobs of one priority are listed from the last to the first.
func TestHetJobsInOrder(t *testing.T) {
	w := newWorld(t)
	for _, state := range []spec.JobState{spec.Pending, spec.Running} {
		w.jobs = nil
		for id := uint32(4); id <= 7; id++ {
			j := &apiv1.JobInfo{JobId: id, State: uint32(state), Priority: 10, Partition: "gpu", Spec: &apiv1.JobSpec{}}
			if id == 5 || id == 6 {
				j.HetJobId, j.HetOffset, j.HetSize = 5, id-5, 2
			}
			w.jobs = append(w.jobs, j)
		}
		want := "7\n5+0\n5+1\n4\n"
		if state == spec.Running {
			want = "4\n5+0\n5+1\n7\n"
		}
		if got := w.shell("squeue -h -o %i"); got.out != want {
			t.Errorf("%v: %q%s, want %q", state, got.out, got.errOut, want)
		}
	}
}
