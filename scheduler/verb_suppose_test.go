package scheduler_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/scheduler/suppose"
	"github.com/musterhpc/muster/scheduler/trial"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

// supposeVerb runs commands on a copy of the cluster and prints what they would
// change in the plan of the next pass. ";" stands between two commands.
//
//	$ suppose drain node1 ; sbatch -N2
//	2 planned 0:10:00 on n1 -> planned 1:00:00 on n2
func supposeVerb(s *session, args []string) error {
	head := s.head
	defer func() { s.head = head }()
	before := head.Freeze()
	s.head = before.Fork()
	for _, line := range strings.Split(strings.Join(args[1:], " "), ";") {
		words := strings.Fields(line)
		if words[0] == "add" {
			if err := s.addSupposed(words); err != nil {
				return err
			}
			continue
		}
		do, known := verbs()[words[0]]
		if !known {
			s.t.Fatalf("unknown command %q", words[0])
		}
		if err := do(s, words); err != nil {
			return err
		}
	}
	comparison, err := s.compareSupposed(before)
	if err != nil {
		return err
	}
	for _, change := range comparison.Changes {
		s.printf(
			"%s %s -> %s\n",
			s.title(comparison.After.Job(change.UID)),
			s.outlook(change.Before),
			s.outlook(change.After),
		)
	}
	s.printf(
		"unchanged %d, starting %d -> %d, with a start on both sides %d, delay %s\n",
		comparison.Same,
		comparison.StartedBefore,
		comparison.StartedAfter,
		comparison.Both,
		signed(comparison.Delay),
	)
	return nil
}

// addSupposed adds nodes to the head, which is a copy.
//
//	add 2 n1
func (s *session) addSupposed(words []string) error {
	count, err := strconv.Atoi(words[1])
	if err != nil {
		return err
	}
	names, err := suppose.AddNodes(trial.On(s.head, s.now, s.actor(), "suppose"), words[2], count)
	if err == nil {
		s.printf("added %s\n", hostlist.Fold(names))
	}
	return err
}

// compareSupposed settles the head, which is a copy, and compares it.
func (s *session) compareSupposed(before *state.State) (*suppose.Comparison, error) {
	t := trial.On(s.head, s.now, s.actor(), "suppose")
	if err := suppose.Settle(t, before); err != nil {
		return nil, err
	}
	if err := s.head.Check(); err != nil {
		s.t.Fatalf("the supposed state: %v", err)
	}
	return suppose.Compare(before, s.head.Freeze(), s.now, s.plan, everyJob)
}

func (s *session) outlook(o suppose.Outlook) string {
	switch o.Standing {
	case suppose.Absent:
		return "absent"
	case suppose.Running:
		return "running"
	case suppose.Evicted:
		return "evicted"
	case suppose.Starting:
		return "starting on " + s.nodeNames(o.Nodes)
	case suppose.Planned:
		return fmt.Sprintf("planned %s on %s", when(o.Start), s.nodeNames(o.Nodes))
	}
	return "waiting (" + string(o.Reason.Code) + ")"
}

// Nothing changed means no difference. Whatever is changed on a copy leaves the
// state as it was, and what has been told to end holds nothing once the copy has
// settled.
func TestSupposeOnRandomWorlds(t *testing.T) {
	changed := 0
	rapid.Check(t, func(rt *rapid.T) {
		kind := worldKind{odd: true, partitions: true, limits: true, preempt: true, reserve: true}
		w := newWorld(rt, kind)
		for range rapid.IntRange(1, 50).Draw(rt, "steps") {
			w.step()
		}
		before := w.head.Freeze()
		seq := before.Seq
		same, err := suppose.Compare(before, before, w.now, w.plan, everyJob)
		if err != nil {
			rt.Fatal(err)
		}
		if len(same.Changes) != 0 || same.Delay != 0 {
			rt.Fatalf("nothing was changed, but %+v", same.Changes)
		}

		head := w.head
		w.head = before.Fork()
		for range 3 {
			w.control()
			if job := w.some("ends", func(j *state.Job) bool { return j.GoesOn() }); job != nil {
				_, _ = w.decide(scheduler.Cancel{Target: w.targetOf(job)})
			}
		}
		comparison, err := w.compareSupposed(before)
		if err != nil {
			rt.Fatal(err)
		}
		w.head.Active.Range(func(uid uint64, _ struct{}) bool {
			job := w.head.Job(spec.JobUID(uid))
			told := job.Ending != nil || job.Completing()
			was := before.Job(job.UID)
			if told && was != nil && was.Ending == nil && !was.Completing() {
				rt.Fatalf("%s was told to end, and holds nodes after the copy has settled", w.title(job))
			}
			return true
		})
		changed += len(comparison.Changes)
		w.head = head
		if before.Seq != seq || w.head.Check() != nil {
			rt.Fatal("the state itself has changed")
		}
	})
	if changed == 0 {
		t.Error("no supposition changed anything: the test does not reach that")
	}
}

// signed writes a span that may be negative.
func signed(d spec.Span) string {
	if d < 0 {
		return "-" + clock(-d)
	}
	return clock(d)
}

func everyJob(*state.Job) bool { return true }
