package mailing

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// mailed is a state with jobs that ask for mail, and the mails that were sent.
type mailed struct {
	t    *testing.T
	st   *state.State
	now  spec.Instant
	m    *JobMails
	sent []string // program, recipient, subject, and the text if there is one
	fail error
	// describe is what is said of each job; nil: mails have no text
	describe func(job string) (string, error)
}

func newMailed(t *testing.T, cfg spec.Config) *mailed {
	w := &mailed{t: t, st: state.New(), now: spec.AtUnix(1_000_000)}
	run := func(_ context.Context, program string, args, environ []string, text string) error {
		if len(args) != 3 || args[0] != "-s" || !slices.Contains(environ, "SLURM_CLUSTER_NAME=c") {
			t.Errorf("%s %q in %q", program, args, environ)
		}
		line := program + " to " + args[2] + ": " + args[1]
		if text != "" {
			line += " | " + text
		}
		w.sent = append(w.sent, line)
		return w.fail
	}
	w.m = NewJobMails(JobMailsConfig{
		View:  func() *state.State { return w.st },
		Now:   func() spec.Instant { return w.now },
		Start: run,
		Describe: func(_ context.Context, job string) (string, error) {
			if w.describe == nil {
				return "", nil
			}
			return w.describe(job)
		},
		Log: slog.New(slog.DiscardHandler),
	})
	cfg.ClusterName = "c"
	cfg.Nodes = []spec.NodeSpec{{Name: "n1", CPUs: 8, Mem: 1000}}
	cfg.Partitions = []spec.PartitionSpec{{Name: "p", NodeNames: []string{"n1"}, Default: true}}
	w.put(&event.ClusterCreated{UUID: [16]byte{1}, Name: "c", Version: event.Version}, &event.ConfigAdopted{Config: &cfg},
		&event.NodeRegistered{Node: "n1", Inventory: spec.Inventory{BootID: "b", CPUs: 8, Mem: 1000}})
	return w
}

// put applies events as one batch, as a controller commits them.
func (w *mailed) put(list ...event.Event) {
	w.t.Helper()
	var batch []event.Envelope
	for _, e := range list {
		env := event.Envelope{Seq: w.st.Seq + 1, At: w.now, Event: e}
		if err := w.st.Apply(&env); err != nil {
			w.t.Fatalf("%T: %v", e, err)
		}
		batch = append(batch, env)
	}
	w.m.Committed(w.st, batch)
}

// mails gives what was sent since the last call.
func (w *mailed) mails() string {
	for len(w.m.queue) > 0 {
		w.m.send(context.Background(), <-w.m.queue)
	}
	out := strings.Join(w.sent, "\n")
	w.sent = nil
	return out
}

func (w *mailed) submit(uid spec.JobUID, array spec.TaskSet, types ...string) {
	js := &spec.JobSpec{Name: "train", User: "ann", UID: 7, Partitions: []string{"p"}, Queue: spec.QueueAsk{MailTypes: types}}
	if array != nil {
		js.Queue.Array = &spec.ArrayAsk{Tasks: array}
	}
	w.put(&event.JobSubmitted{UID: uid, ID: spec.JobID(uid), Spec: js, Eligible: w.now})
}

func (w *mailed) start(uid spec.JobUID) {
	w.put(&event.JobStarted{UID: uid, Attempt: w.st.Job(uid).Attempt + 1, Limit: 100 * spec.Second, Alloc: &spec.Allocation{Partition: "p",
		Nodes: []spec.NodeAlloc{{ID: w.st.Node("n1").ID, Name: "n1", CPUs: spec.Bitset{}.Set(int(uid) % 8)}}, TRES: spec.TRES{CPU: 1, Node: 1}}})
}

func (w *mailed) end(uid spec.JobUID, s spec.JobState, code int32) {
	attempt := w.st.Job(uid).Attempt
	if attempt == 0 {
		w.put(&event.JobEnded{UID: uid, State: s, Exit: spec.ExitStatus{Code: code}})
		return
	}
	w.put(&event.JobEnded{UID: uid, Attempt: attempt, State: s, Exit: spec.ExitStatus{Code: code}}, &event.JobNodeDone{UID: uid, Attempt: attempt, Node: "n1"})
}

// TestMailsOfAJob: each type brings its mail and no other, with Slurm's subjects.
func TestMailsOfAJob(t *testing.T) {
	w := newMailed(t, spec.Config{MailProg: "/bin/m", MailDomain: "site.org"})
	w.submit(1, nil, "ALL", "TIME_LIMIT_50")
	w.submit(2, nil, "FAIL")
	w.submit(3, nil, "END")
	w.submit(4, nil, "TIME_LIMIT")
	w.now = w.now.Add(5 * spec.Second)
	for uid := spec.JobUID(1); uid <= 4; uid++ {
		w.start(uid)
	}
	if got := w.mails(); got != "/bin/m to ann@site.org: Slurm Job_id=1 Name=train Began, Queued time 00:00:05" {
		t.Errorf("begin: %s", got)
	}
	w.now = w.now.Add(49 * spec.Second)
	w.m.limits(w.st, w.now)
	w.now = w.now.Add(2 * spec.Second)
	w.m.limits(w.st, w.now)
	w.m.limits(w.st, w.now)
	if got := w.mails(); got != "/bin/m to ann@site.org: Slurm Job_id=1 Name=train Reached 50% of time limit" {
		t.Errorf("half of the limit: %s", got)
	}
	w.end(1, spec.Failed, 3)
	w.end(2, spec.Completed, 0)
	w.end(3, spec.Completed, 0)
	w.end(4, spec.TimedOut, 0)
	want := "/bin/m to ann@site.org: Slurm Job_id=1 Name=train Failed, Run time 00:00:51, FAILED, ExitCode 3\n" +
		"/bin/m to ann@site.org: Slurm Job_id=3 Name=train Ended, Run time 00:00:51, COMPLETED, ExitCode 0\n" +
		"/bin/m to ann@site.org: Slurm Job_id=4 Name=train Reached time limit, Run time 00:00:51, TIMEOUT, ExitCode 0"
	if got := w.mails(); got != want {
		t.Errorf("ends:\n%s\nwant\n%s", got, want)
	}
	w.put(&event.JobRequeued{UID: 1, Attempt: 1, Exit: spec.ExitStatus{Code: 3}})
	w.put(&event.ReasonsChanged{Jobs: []event.JobReason{{UID: 1, Reason: spec.Reason{Code: spec.ReasonDependencyNever}}}})
	if got := w.mails(); got != "/bin/m to ann@site.org: Slurm Job_id=1 Name=train Requeued\n/bin/m to ann@site.org: Slurm Job_id=1 Name=train Invalid dependency" {
		t.Errorf("requeue: %s", got)
	}
}

// TestMailsOfALostNode: who asked for mail about failures hears that the node of a run was
// lost and the job is queued again, and when nothing of the run can live any more.
func TestMailsOfALostNode(t *testing.T) {
	w := newMailed(t, spec.Config{MailProg: "/bin/m", MailDomain: "site.org"})
	w.submit(1, nil, "FAIL")
	w.submit(2, nil, "END")
	for uid := spec.JobUID(1); uid <= 2; uid++ {
		w.start(uid)
		w.put(&event.JobNodeDone{UID: uid, Attempt: 1, Node: "n1", Lost: true, Unfenced: true},
			&event.JobRequeued{UID: uid, Attempt: 1, State: spec.NodeFailed})
	}
	want := "/bin/m to ann@site.org: Slurm Job_id=1 Name=train Requeued, NODE_FAIL, " +
		"waits until the run is known to have ended on its node"
	if got := w.mails(); got != want {
		t.Errorf("lost: %s, want %s", got, want)
	}
	for uid := spec.JobUID(1); uid <= 2; uid++ {
		w.put(&event.RunFenced{Node: "n1", UID: uid, Attempt: 1, By: event.FenceReboot})
	}
	want = "/bin/m to ann@site.org: Slurm Job_id=1 Name=train May start again, its run on node n1 has ended"
	if got := w.mails(); got != want {
		t.Errorf("fenced: %s, want %s", got, want)
	}
}

// over ends a job whose node has not reported yet.
func (w *mailed) over(uid spec.JobUID, s spec.JobState) {
	w.put(&event.JobEnded{UID: uid, Attempt: w.st.Job(uid).Attempt, State: s})
}

// done is the report of the node of a job.
func (w *mailed) done(uid spec.JobUID) {
	w.put(&event.JobNodeDone{UID: uid, Attempt: w.st.Job(uid).Attempt, Node: "n1"})
}

// TestMailsSayHowTheJobDid: the mail about an end waits for what the node reports, and says how
// well the run used what it held. What cannot be found out is left out, and no mail is lost for it.
func TestMailsSayHowTheJobDid(t *testing.T) {
	w := newMailed(t, spec.Config{MailProg: "/bin/m"})
	asked := 0
	w.describe = func(job string) (string, error) {
		asked++
		return "job " + job + " used 40 %", nil
	}
	for uid := spec.JobUID(1); uid <= 7; uid++ {
		w.submit(uid, nil, "BEGIN", "END")
		if uid != 7 {
			w.start(uid)
		}
	}
	if got := w.mails(); strings.Contains(got, "|") || strings.Count(got, "Began") != 6 {
		t.Errorf("begin: %s", got)
	}
	w.over(1, spec.Completed)
	w.over(2, spec.Failed)
	if got := w.mails(); got != "" {
		t.Errorf("before the nodes reported: %s", got)
	}
	w.done(2)
	w.done(1)
	want := "/bin/m to ann: Slurm Job_id=2 Name=train Failed, Run time 00:00:00, FAILED, ExitCode 0 | job 2 used 40 %\n" +
		"/bin/m to ann: Slurm Job_id=1 Name=train Ended, Run time 00:00:00, COMPLETED, ExitCode 0 | job 1 used 40 %"
	if got := w.mails(); got != want {
		t.Errorf("ends:\n%s\nwant\n%s", got, want)
	}

	w.over(3, spec.Completed)
	w.now = w.now.Add(maxHeld - 1)
	w.m.release(w.now)
	if got := w.mails(); got != "" {
		t.Errorf("the node may still report: %s", got)
	}
	w.now++
	w.m.release(w.now)
	if got := w.mails(); !strings.HasSuffix(got, "job 3 used 40 %") {
		t.Errorf("of a node that does not report: %s", got)
	}
	w.done(3)
	w.end(7, spec.Cancelled, 0)
	if got := w.mails(); !strings.HasPrefix(got, "/bin/m to ann: Slurm Job_id=7") || strings.ContainsAny(got, "|\n") {
		t.Errorf("of a job that never ran: %s", got)
	}

	asked = 0
	w.describe = func(string) (string, error) {
		asked++
		return "half a sent", errors.New("accounting is away")
	}
	w.end(4, spec.Completed, 0)
	w.end(5, spec.Completed, 0)
	if got := w.mails(); strings.Contains(got, "|") || strings.Count(got, "\n") != 1 || asked != 1 {
		t.Errorf("while accounting is away, asked %d times: %s", asked, got)
	}
	w.now = w.now.Add(silentAfter)
	w.describe = func(string) (string, error) { return "back", nil }
	w.end(6, spec.Completed, 0)
	if got := w.mails(); !strings.HasSuffix(got, "| back") {
		t.Errorf("when accounting is back: %s", got)
	}
}

// TestMailsOfAnArray: an array has one mail for its begin and one for its end, or
// with ARRAY_TASKS one for each task.
func TestMailsOfAnArray(t *testing.T) {
	for _, tc := range []struct {
		types []string
		want  []string
	}{
		{[]string{"BEGIN", "END"}, []string{"Slurm Array Summary Job_id=1_* (2) Name=train Began", "Slurm Array Summary Job_id=1_* (1) Name=train Ended, Run time 00:00:00, Mixed, ExitCode 1"}},
		{[]string{"END", "ARRAY_TASKS"}, []string{"Slurm Array Task Job_id=1_0 (2) Name=train Ended, ", "Slurm Array Task Job_id=1_1 (1) Name=train Failed, "}},
	} {
		w := newMailed(t, spec.Config{MailProg: "/bin/m"})
		w.submit(1, spec.TaskSet{{First: 0, Last: 1, Step: 1}}, tc.types...)
		w.put(&event.ArrayTaskSplit{Array: 1, Task: 0, UID: 2, ID: 2})
		w.start(2)
		w.put(&event.ArrayTaskSplit{Array: 1, Task: 1, UID: 1, ID: 1})
		w.start(1)
		w.end(2, spec.Completed, 0)
		w.end(1, spec.Failed, 1)
		got := strings.Split(w.mails(), "\n")
		if len(got) != len(tc.want) {
			t.Fatalf("%v: %q", tc.types, got)
		}
		for i := range got {
			if !strings.HasPrefix(got[i], "/bin/m to ann: "+tc.want[i]) {
				t.Errorf("%v: %q, want %q", tc.types, got[i], tc.want[i])
			}
		}
	}
}

// TestMailsByServer: the mail server of reports.smtp takes mail where slurm.conf names no
// program, ahead of the host's own one, and MailProg takes it where it is set.
func TestMailsByServer(t *testing.T) {
	for program, want := range map[string]string{
		"":       "posted to ann: Slurm Job_id=1 Name= Began, Queued time 00:00:00",
		"/bin/m": "/bin/m to ann: Slurm Job_id=1 Name= Began, Queued time 00:00:00",
		"none":   "",
	} {
		w := newMailed(t, spec.Config{MailProg: program})
		w.m.cfg.Fallback = "/usr/bin/mail"
		w.m.cfg.Post = func(_ context.Context, to, subject, _ string) error {
			w.sent = append(w.sent, "posted to "+to+": "+subject)
			return nil
		}
		w.put(&event.JobSubmitted{UID: 1, ID: 1, Eligible: w.now, Spec: &spec.JobSpec{User: "ann", Partitions: []string{"p"}, Queue: spec.QueueAsk{MailTypes: []string{"BEGIN"}}}})
		w.start(1)
		if got := w.mails(); got != want {
			t.Errorf("MailProg=%s: %q, want %q", program, got, want)
		}
	}
}

// TestLinesAboutMailsNameTheJob: what the log says of a mail has the fields of every line about a job.
func TestLinesAboutMailsNameTheJob(t *testing.T) {
	w := newMailed(t, spec.Config{MailProg: "/bin/m"})
	var lines bytes.Buffer
	w.m.cfg.Log = slog.New(slog.NewJSONHandler(&lines, nil))
	w.fail = errors.New("no such file")
	w.describe = func(string) (string, error) { return "", errors.New("accounting is away") }
	w.submit(1, nil, "END")
	w.start(1)
	w.put(&event.JobEnded{UID: 1, Attempt: 1, State: spec.Completed})
	w.now = w.now.Add(maxHeld)
	w.m.release(w.now)
	w.mails()
	said := 0
	for line := range bytes.Lines(lines.Bytes()) {
		said++
		var fields struct {
			Job     uint64
			Name    string
			Attempt uint32
			User    string
			Event   uint64
		}
		if err := json.Unmarshal(line, &fields); err != nil {
			t.Fatal(err)
		}
		if fields.Job != 1 || fields.Name != "1" || fields.Attempt != 1 || fields.User == "" || fields.Event == 0 {
			t.Errorf("%s", line)
		}
	}
	if said != 2 {
		t.Errorf("%d lines, not one about the text and one about the mail:\n%s", said, lines.Bytes())
	}
}

// TestMailsThatAreNotSent: MailProg=none sends nothing and says nothing, a host
// without mail and a program that fails are counted, and no name adds an option or
// a line.
func TestMailsThatAreNotSent(t *testing.T) {
	w := newMailed(t, spec.Config{MailProg: "none"})
	w.submit(1, nil, "BEGIN")
	w.start(1)
	if got := w.mails(); got != "" || w.m.Failed.Load() != 0 {
		t.Errorf("%s, %d failed", got, w.m.Failed.Load())
	}
	w = newMailed(t, spec.Config{})
	w.submit(1, nil, "BEGIN")
	w.start(1)
	if got := w.mails(); got != "" || w.m.Failed.Load() != 1 {
		t.Errorf("%s, %d failed", got, w.m.Failed.Load())
	}
	w = newMailed(t, spec.Config{MailProg: "/bin/m"})
	w.fail = errors.New("no such file")
	w.put(&event.JobSubmitted{UID: 1, ID: 1, Eligible: w.now, Spec: &spec.JobSpec{Name: "a\nTo: x", User: "ann", Partitions: []string{"p"}, Queue: spec.QueueAsk{MailTypes: []string{"BEGIN"}}}})
	w.put(&event.JobSubmitted{UID: 2, ID: 2, Eligible: w.now, Spec: &spec.JobSpec{User: "ann", Partitions: []string{"p"}, Queue: spec.QueueAsk{MailTypes: []string{"BEGIN"}, MailUser: "-oX"}}})
	w.start(1)
	w.start(2)
	if got := w.mails(); got != "/bin/m to ann: Slurm Job_id=1 Name=a?To: x Began, Queued time 00:00:00" || w.m.Failed.Load() != 1 || w.m.Sent.Load() != 0 {
		t.Errorf("%q, %d failed", got, w.m.Failed.Load())
	}
}
