package sidebyside

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// side is one of the two clusters.
type side struct {
	name string
	dir  string
	jobs jobs
}

// patience bounds one command line, and how long something is waited for.
const patience = 30 * time.Second

// types runs a command line as a user, and gives what it printed and its exit code.
func (s *side) types(ctx context.Context, user, text string) string {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "./cluster.sh", "run", s.dir, user, s.jobs.fillIn(text))
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		return err.Error()
	}
	return fmt.Sprintf("%s[exit %d]\n", out, cmd.ProcessState.ExitCode())
}

// does carries out a line: a command, or one of the words with @.
func (s *side) does(ctx context.Context, one line) (string, error) {
	word, rest, _ := strings.Cut(one.text, " ")
	switch word {
	case "@settle":
		if err := s.await(ctx, "root", "0 0", settled); err != nil {
			return "", err
		}
		return "", s.await(ctx, "root", "0 0", "sleep 2; "+settled) // the last ends are on their way
	case "@until":
		want, command, _ := strings.Cut(rest, " ")
		return "", s.await(ctx, one.user, want, command)
	}
	output := s.types(ctx, one.user, one.text)
	s.jobs.submitted(output)
	return output, nil
}

// settled counts the jobs that are not over, in the queue and in accounting.
const settled = `echo $(squeue -h -t PD,R,S,CG | wc -l) $(sacct -aXnP -S now-1day -o state | grep -cE 'PENDING|RUNNING|SUSPENDED')`

// await runs a command until it prints a text.
func (s *side) await(ctx context.Context, user, want, command string) error {
	got := ""
	for began := time.Now(); time.Since(began) < patience; time.Sleep(100 * time.Millisecond) {
		got = s.types(ctx, user, command)
		if strings.Contains(got, want) {
			return nil
		}
	}
	return fmt.Errorf("%s: %q does not come, last: %s", s.name, want, got)
}

// TestSideBySide compares all scenarios.
func TestSideBySide(t *testing.T) {
	slurm, muster := os.Getenv("MUSTER_SIDE_SLURM"), os.Getenv("MUSTER_SIDE_MUSTER")
	if slurm == "" || muster == "" {
		t.Skip("NOT COMPARED: make side-by-side starts both clusters")
	}
	scenarios, err := readScenarios("scenarios")
	if err != nil {
		t.Fatal(err)
	}
	same, said, wrong := 0, 0, 0
	for _, sc := range scenarios {
		t.Run(sc.name, func(t *testing.T) {
			real, ours := &side{name: "slurm", dir: slurm}, &side{name: "muster", dir: muster}
			for _, one := range sc.lines {
				a, b := both(t, real, ours, one)
				switch {
				case a == b && one.expected == "":
					same++
				case a != b && one.expected != "":
					said++
				case a == b:
					wrong++
					t.Errorf("%d: %s\nis the same now, so that this is not true: %s",
						one.number, one.text, one.expected)
				default:
					wrong++
					t.Errorf("%d: %s: %s\n--- slurm\n%s--- muster\n%s", one.number, one.user, one.text, a, b)
				}
			}
			tidyUp(t, real, ours)
		})
	}
	t.Logf("%d scenarios: %d commands print the same, %d differ as said, %d differ",
		len(scenarios), same, said, wrong)
}

// both carries out a line on both clusters at once.
func both(t *testing.T, real, ours *side, one line) (a, b string) {
	t.Helper()
	type outcome struct {
		text string
		err  error
	}
	other := make(chan outcome, 1)
	go func() { // ends with the command, which has a deadline
		text, err := real.does(t.Context(), one)
		other <- outcome{text, err}
	}()
	text, err := ours.does(t.Context(), one)
	theirs := <-other
	for _, failure := range []error{err, theirs.err} {
		if failure != nil {
			t.Fatalf("%d: %s: %v", one.number, one.text, failure)
		}
	}
	return real.jobs.normalise(theirs.text), ours.jobs.normalise(text)
}

// tidyUp leaves nothing of a scenario for the next one.
func tidyUp(t *testing.T, sides ...*side) {
	t.Helper()
	for _, s := range sides {
		s.types(t.Context(), "root", "scancel -u alice; scancel -u bob; scancel -u carol; scancel -u root; rm -f /home/*/*")
		if err := s.await(t.Context(), "root", "0 0", settled); err != nil {
			t.Error(err)
		}
	}
}
