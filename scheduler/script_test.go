package scheduler_test

import (
	"fmt"
	"sort"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/cockroachdb/datadriven"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/view"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/scheduler/trial"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/slurmconf"
)

// TestScripts runs the transcripts of testdata. Each reads like an operator's
// session: "config" adopts a slurm.conf; every other block is named after the
// user who types, one command a line, and shows what each command answers.
// The commands are those of verbs; each has its own file.
//
// After every command the invariants of the state are checked, and the events
// of a command that was refused must be none. Run with -rewrite to take over
// the new output; the diff is the review.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		s := newSession(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.t, s.out = t, &strings.Builder{}
			if d.Cmd == "config" {
				s.configure(d.Input)
				return s.out.String()
			}
			s.user = d.Cmd
			for line := range strings.Lines(d.Input) {
				if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
					s.run(line)
				}
			}
			return s.out.String()
		})
	})
}

// verb carries a command out; what it prints is the transcript.
type verb func(s *session, args []string) error

// verbs are the commands of a transcript.
func verbs() map[string]verb {
	return map[string]verb{
		"sbatch": sbatch, "scrontab": scrontab, "strigger": strigger, "suppose": supposeVerb, "squeue": squeue, "scancel": scancel, "sacctmgr": sacctmgr, "budget": budget, "sinfo": sinfo,
		"hold": hold, "release": release, "requeue": requeue, "requeuehold": requeue, "update": update, "top": top,
		"register": register, "drain": setNode, "resume": setNode, "down": setNode, "power": power, "reboot": reboot, "node": changeNodes, "partition": changePartition, "lost": lost, "unready": unready, "fenced": fenced, "return": returned,
		"pass": pass, "advance": advance, "tick": tick, "zone": zone, "exit": exit, "done": nodeDone, "launchfail": launchFailed, "prologctl": prologOver, "epilogctl": epilogOver, "batchover": batchOver,
		"foreign": foreign, "pods": pods, "start": planned, "suspend": suspend, "goon": suspend, "reserve": reservation, "unreserve": reservation, "reservations": reservations, "why": why, "show": show, "events": events,
	}
}

// session is a cluster under a script's hands.
type session struct {
	t    tester
	out  *strings.Builder
	head *state.State
	now  spec.Instant
	east spec.Span // how far the clocks of the zone are ahead of UTC
	user string
	plan *view.Plan
	last []event.Envelope // of the last command
}

// epoch is when every script begins.
const epoch = spec.Instant(1_800_000_000) * spec.Instant(spec.Second)

func newSession(t tester) *session {
	s := &session{t: t, out: &strings.Builder{}, head: state.New(), now: epoch, user: "root"}
	root := spec.Association{ID: 1, Account: "root"}
	s.must(scheduler.Policy{Events: []event.Event{
		&event.ClusterCreated{Name: "test", Version: event.Version},
		&event.AccountPut{Account: spec.Account{Name: "root"}}, &event.AssociationPut{Association: root},
		&event.UserPut{User: spec.User{Name: "root", DefaultAccount: "root", AdminLevel: "Administrator"}},
		&event.AssociationPut{Association: spec.Association{ID: 2, Account: "root", User: "root", Parent: 1}},
		&event.QOSPut{QOS: spec.QOS{ID: 1, Name: "normal"}},
	}})
	return s
}

func (s *session) printf(format string, args ...any) { fmt.Fprintf(s.out, format, args...) }

func (s *session) configure(text string) {
	var conf, tree, yaml strings.Builder
	for line := range strings.Lines(text) {
		if l, ok := strings.CutPrefix(line, "| "); ok {
			yaml.WriteString(l)
		} else if strings.HasPrefix(line, "SwitchName=") || strings.HasPrefix(line, "Block") {
			tree.WriteString(line)
		} else {
			conf.WriteString(line)
		}
	}
	files := fstest.MapFS{"slurm.conf": {Data: []byte("ClusterName=test\n" + conf.String())}, "topology.conf": {Data: []byte(tree.String())}}
	if yaml.Len() > 0 {
		files["topology.yaml"] = &fstest.MapFile{Data: []byte(yaml.String())}
	}
	f, problems := slurmconf.ReadCluster(files, "slurm.conf")
	for _, p := range problems {
		s.printf("%s\n", p)
	}
	if !strings.Contains(text, "MinJobAge") {
		f.Config.Timing.MinJobAge = 0 // scripts forget nothing unless they are about that
	}
	if _, err := s.decide(scheduler.Configure{Config: &f.Config}); err != nil {
		s.printf("%s\n", refusal(err))
	}
	s.check()
}

// run executes one line and shows it with its answer.
func (s *session) run(line string) {
	s.printf("$ %s\n", line)
	args := words(line)
	do, ok := verbs()[args[0]]
	if !ok {
		s.t.Fatalf("unknown command %q", args[0])
	}
	if err := do(s, args); err != nil {
		s.printf("%s\n", refusal(err))
	}
	s.check()
}

// refusal prints an error as the tools do: the line before the main one, then
// Slurm's text with the detail.
func refusal(err error) string {
	var e *spec.Error
	if !asError(err, &e) {
		return "error: " + err.Error()
	}
	out := "error: " + e.Error()
	if e.Prefix != "" {
		out = "error: " + e.Prefix + "\n" + out
	}
	return out
}

// decide runs a command on the head. A refusal must leave nothing behind.
func (s *session) decide(cmd scheduler.Command) (scheduler.Result, error) {
	t := trial.On(s.head, s.now, s.actor(), "")
	t.East = func(spec.Instant) spec.Span { return s.east }
	res, err := scheduler.Decide(t, cmd)
	if err != nil && spec.CodeOf(err) == 0 {
		s.t.Fatalf("%T broke a rule: %v", cmd, err)
	}
	if err != nil && len(t.Events) > 0 {
		s.t.Fatalf("%T was refused (%v), but %d events happened", cmd, err, len(t.Events))
	}
	s.last = t.Events
	return res, err
}

func (s *session) must(cmd scheduler.Command) scheduler.Result {
	res, err := s.decide(cmd)
	if err != nil {
		s.t.Fatalf("%T: %v", cmd, err)
	}
	return res
}

func (s *session) actor() event.Actor {
	if s.user == "root" {
		return event.Actor{Kind: event.ActorUser, Name: "root"}
	}
	return event.Actor{Kind: event.ActorUser, UID: uidOf(s.user), Name: s.user}
}

func uidOf(user string) uint32 {
	if user == "root" {
		return 0
	}
	n := uint32(1000)
	for _, c := range user {
		n = n*31%50000 + uint32(c)
	}
	return n
}

func (s *session) check() {
	s.t.Helper()
	if err := s.head.Check(); err != nil {
		s.t.Fatalf("after the last command of this transcript:\n%s%v", s.out.String(), err)
	}
}

// words splits a line as a shell would, with single quotes only.
func words(line string) []string {
	var out []string
	var b strings.Builder
	quoted, any := false, false
	for _, c := range line {
		switch {
		case c == '\'':
			quoted, any = !quoted, true
		case c == ' ' && !quoted:
			if any {
				out = append(out, b.String())
			}
			b.Reset()
			any = false
		default:
			b.WriteRune(c)
			any = true
		}
	}
	if any {
		out = append(out, b.String())
	}
	return out
}

// jobs lists the records in the order of a table: pending first, then by uid.
func (s *session) jobs(keep func(j *state.Job) bool) []*state.Job { return s.jobsOf(s.head, keep) }

func (s *session) jobsOf(st *state.State, keep func(j *state.Job) bool) []*state.Job {
	var out []*state.Job
	st.Jobs.Range(func(_ uint64, j *state.Job) bool {
		if keep(j) {
			out = append(out, j)
		}
		return true
	})
	sort.SliceStable(out, func(a, b int) bool { return rank(out[a]) < rank(out[b]) })
	return out
}

func rank(j *state.Job) int {
	switch {
	case j.State == spec.Pending:
		return 0
	case j.State.Active():
		return 1
	}
	return 2
}

// title is a job's number as people see it.
func (s *session) title(j *state.Job) string {
	a := s.head.ArrayOf(j)
	switch {
	case j.Het != nil:
		return fmt.Sprintf("%d+%d", j.ID-spec.JobID(j.Het.Offset), j.Het.Offset)
	case a == nil:
		return fmt.Sprint(j.ID)
	case j.IsArrayRecord():
		return fmt.Sprintf("%d_[%s]", a.ID, j.Tasks)
	}
	return fmt.Sprintf("%d_%d", a.ID, j.Task)
}

// target finds a job, or one task of an array, by its number.
func (s *session) target(text string) (scheduler.Target, *state.Job, error) {
	var id spec.JobID
	task := spec.NoTask
	if n, _ := fmt.Sscanf(text, "%d_%d", &id, &task); n == 0 {
		s.t.Fatalf("%q is no job", text)
	}
	if a := s.head.ArrayByID(id); a != nil && task != spec.NoTask {
		if uid, ok := a.Split.Get(uint64(task)); ok {
			return scheduler.Target{UID: uid, Task: spec.NoTask}, s.head.Job(uid), nil
		}
		return scheduler.Target{UID: a.UID, Task: task}, s.head.Job(a.UID), nil
	}
	j := s.head.JobByID(id)
	if j == nil {
		return scheduler.Target{}, nil, spec.Refuse(spec.CodeInvalidJobID, "")
	}
	return scheduler.Target{UID: j.UID, Task: spec.NoTask}, j, nil
}

// when prints an instant relative to the script's beginning.
func when(t spec.Instant) string {
	if t == 0 {
		return "-"
	}
	if t == spec.FarFuture {
		return "never"
	}
	return clock(t.Sub(epoch))
}

func clock(d spec.Span) string {
	if d == spec.Infinite {
		return "UNLIMITED"
	}
	sign := ""
	if d < 0 {
		sign, d = "-", -d
	}
	sec := d.Seconds()
	if sec >= 86400 {
		return fmt.Sprintf("%s%d-%02d:%02d:%02d", sign, sec/86400, sec/3600%24, sec/60%60, sec%60)
	}
	return fmt.Sprintf("%s%d:%02d:%02d", sign, sec/3600, sec/60%60, sec%60)
}

// tester is what a script and a property have in common.
type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}
