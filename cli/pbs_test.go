package cli

import (
	"slices"
	"strings"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
)

// TestQsub compares what qsub submits with what sbatch does, option by option, and
// what it prints.
func TestQsub(t *testing.T) {
	w := newWorld(t)
	path := w.script("job.pbs", "#!/bin/sh\n#PBS -N name -q gpu\n#PBS -l walltime=90,mem=4gb\n#PBS -l nodes=2:ppn=4\ncd $PBS_O_WORKDIR\n#PBS -N late\n")
	r := w.shell("qsub " + path)
	if r.code != 0 || strings.TrimSpace(r.out) == "" || strings.Contains(r.out, "Submitted") {
		t.Fatalf("%d %q %q", r.code, r.out, r.errOut)
	}
	req := w.last(tool.MethodSubmit).(*apiv1.SubmitRequest)
	s := req.GetSpec()
	if s.GetName() != "name" || !slices.Equal(s.GetPartitions(), []string{"gpu"}) || s.GetMinNodes() != 2 || s.GetTasksPerNode() != 4 || s.GetMemPerNode() != 4096 || s.GetTimeLimit() != int64(120*spec.Second) {
		t.Errorf("%v", s)
	}
	env := "\x00" + string(req.GetEnvironment().GetData())
	if !strings.Contains(env, "\x00PBS_O_WORKDIR=/lab/jobs\x00") || !strings.Contains(env, "\x00PBS_O_QUEUE=gpu\x00") {
		t.Errorf("%q", env)
	}
	for line, check := range map[string]func(s *apiv1.JobSpec) bool{
		"-N typed": func(s *apiv1.JobSpec) bool { return s.GetName() == "typed" },
		"-l select=3:ncpus=8:mpiprocs=2": func(s *apiv1.JobSpec) bool {
			return s.GetMinNodes() == 3 && s.GetTasksPerNode() == 2 && s.GetCpusPerTask() == 4
		},
		"-l walltime=1:00:00 -l ngpus=2": func(s *apiv1.JobSpec) bool {
			return s.GetTimeLimit() == int64(3600*spec.Second) && len(s.GetPerNode()) == 1
		},
		"-W depend=afterok:12.host:13 -hrn": func(s *apiv1.JobSpec) bool { return s.GetHold() && s.GetRequeue() == apiv1.Tri_TRI_NO },
		"-o host:/out -e /err -p -7": func(s *apiv1.JobSpec) bool {
			return s.GetStdout() == "/out" && s.GetStderr() == "/err" && s.GetNice() == 7
		},
	} {
		if req := w.submitted("qsub " + line + " " + path); !check(req.GetSpec()) {
			t.Errorf("%s: %v", line, req.GetSpec())
		}
	}
	for line, want := range map[string]string{
		"-l cput=1:00": "resource cput is not supported", "-l mem=4": "invalid size", "-l nodes=1+2:ppn=3": "several kinds", "-p 5": "cannot be raised", "-W stagein=x": "only depend=",
		"-l select=1:ncpus=3:mpiprocs=2": "not a multiple", "-a 99": "expected", "-m x": "letters", "-Y": "invalid option",
	} {
		w.forget()
		if r := w.shell("qsub " + line + " " + path); r.code == 0 || !strings.Contains(r.errOut, want) || len(w.seen) > 0 {
			t.Errorf("%s: %d %q", line, r.code, r.errOut)
		}
	}
}

// TestQstat reads the layout of PBS, and qdel reaches scancel with the numbers alone.
func TestQstat(t *testing.T) {
	w := newWorld(t)
	held := edit(func(j *apiv1.JobInfo) { j.Hold = 1 })
	w.jobs = []*apiv1.JobInfo{labJob(5, "go", "alice", spec.Running, ran("01:40:00", "", "node1")), labJob(6, "wait", "bob", spec.Pending), labJob(7, "held", "bob", spec.Pending, held)}
	lines := strings.Split(w.shell("qstat").out, "\n")
	if len(lines) != 6 || !strings.HasPrefix(lines[0], "Job id") || len(lines[2]) != len(lines[1]) {
		t.Fatalf("%q", lines)
	}
	for i, want := range []string{"5 go alice R", "6 wait bob Q", "7 held bob H"} {
		f := strings.Fields(lines[i+2])
		if got := strings.Join([]string{f[0], f[1], f[2], f[4]}, " "); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if out := w.shell("qstat -f 5").out; !strings.Contains(out, "Job Id:\t5\n\tJob_Name = go\n") || !strings.Contains(out, "\tjob_state = R\n") {
		t.Errorf("%q", out)
	}
	w.forget()
	if r := w.shell("qdel 5.login 36[4]"); r.code != 0 {
		t.Errorf("%d %q", r.code, r.errOut)
	}
	asked := strings.Join(w.last(tool.MethodCancel).(*apiv1.CancelRequest).GetFilter().GetJobs(), " ")
	if asked != "5 36_4" {
		t.Errorf("asked to cancel %q", asked)
	}
}
