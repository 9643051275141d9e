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
const patience = 90 * time.Second

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
		return "", s.await(ctx, one.user, s.jobs.fillIn(want), command)
	}
	output := s.types(ctx, one.user, one.text)
	s.jobs.submitted(one.name, output)
	return output, nil
}

// settled counts the jobs that are not over, in the queue and in accounting, and the jobs that ran
// to their end and are not in accounting yet. To the real Slurm's accounting a job is called
// allocation while only its end has arrived there, and the tasks of an array are one record
// until their starts have.
const settled = `echo $(squeue -h -t PD,R,S,CG | wc -l) $(
all=$(sacct -aXnP -S now-1day -o jobid,state,jobname)
{ grep -E '\|(PENDING|RUNNING|SUSPENDED)\||\|allocation$' <<<"$all"
comm -23 <(squeue -h -r -t CD,F,TO -o %i | sort) <(cut -d'|' -f1 <<<"$all" | sort); } | wc -l)`

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
			before, commands := wrong, 0
			t.Cleanup(func() { tidyUp(t, real, ours) })
			for _, one := range sc.lines {
				if !strings.HasPrefix(one.text, "@") {
					commands++
				}
				a, b := both(t, real, ours, one)
				switch {
				case strings.HasPrefix(one.text, "@"):
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
			t.Logf("%d of %d commands as expected", commands-(wrong-before), commands)
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
	ctx := context.WithoutCancel(t.Context()) // the test's own ends before its cleanup
	for _, s := range sides {
		s.types(ctx, "root", "scancel -u alice; scancel -u bob; scancel -u carol; scancel -u root; rm -f /home/*/*")
		if err := s.await(ctx, "root", "0 0", settled); err != nil {
			t.Error(err)
		}
	}
}
