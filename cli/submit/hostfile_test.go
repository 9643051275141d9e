package submit

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
)

// TestHostFile: the host file of -m arbitrary says which nodes a job has and where each
// task of a step runs.
func TestHostFile(t *testing.T) {
	var out, errOut bytes.Buffer
	call := stepCall(t, &out, &errOut)
	call.Dir = t.TempDir()
	call.Environ = append(slices.Clone(call.Environ), hostFileVariable+"=hosts")
	for name, tc := range map[string]struct {
		file  string
		tasks uint32
		hosts string // of the step's tasks
		nodes string
		bad   string
	}{
		"a line a task":    {"n2\nn1\n\nn1\n", 0, "n2 n1 n1", "n2,n1", ""},
		"lists and counts": {"n[1-2] n3*2 # a comment\n", 0, "n1 n2 n3 n3", "n1,n2,n3", ""},
		"fewer tasks":      {"n2\nn1\nn3\n", 2, "n2 n1", "n2,n1", ""},
		"more tasks":       {"n2\nn1\n", 3, "", "", "3 tasks are asked for, and $SLURM_HOSTFILE or --nodelist places 2"},
		"no count":         {"n2*x\n", 0, "", "", "is not a list of nodes"},
		"no list":          {"n[1-\n", 0, "", "", "is not a list of nodes"},
		"too many":         {"n1*65535\nn2*2\n", 0, "", "", "names too many"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(filepath.Join(call.Dir, "hosts"), []byte(tc.file), 0o600); err != nil {
				t.Fatal(err)
			}
			step := &apiv1.StepSpec{Distribution: arbitrary, Tasks: tc.tasks}
			err := placeTasks(call, step)
			if tc.bad != "" {
				if err == nil || !strings.Contains(err.Error(), tc.bad) {
					t.Fatalf("%v, want an error with %q", err, tc.bad)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(step.GetTaskNodes(), " "); got != tc.hosts || step.GetNodes() != tc.nodes {
				t.Errorf("tasks on %s, nodes %s; want %s, %s", got, step.GetNodes(), tc.hosts, tc.nodes)
			}
			job := &apiv1.JobSpec{Distribution: "arbitrary", Tasks: tc.tasks}
			request := &jobRequest{name: "sbatch", env: call.Env, spec: job}
			if err := request.placeByHostFile(); err != nil {
				t.Fatal(err)
			}
			if job.GetNodes() != tc.nodes || int(job.GetTasks()) != len(step.GetTaskNodes()) ||
				int(job.GetMinNodes()) != strings.Count(tc.nodes, ",")+1 {
				t.Errorf("the job asks for %d tasks on %d nodes, %s", job.GetTasks(), job.GetMinNodes(), job.GetNodes())
			}
		})
	}
}
