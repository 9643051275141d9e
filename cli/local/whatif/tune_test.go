package whatif

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster/ledger/archive"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/sim/tune"
	"github.com/musterhpc/muster/spec"
)

// writeLog writes a log of 60 days on 32 processors: users who run the same again
// and again and ask for ten times what it takes.
func writeLog(t *testing.T, seed uint64) string {
	random := rand.New(rand.NewPCG(seed, 3))
	var b strings.Builder
	for at, id := 0.0, 1; at < 60*86400; id++ {
		user := random.IntN(8)
		typical := 600 << (user % 4)
		run := float64(typical) * (0.9 + 0.2*random.Float64())
		fmt.Fprintf(&b, "%d %d -1 %d %d -1 -1 -1 %d -1 1 %d %d\n", id, int(at), int(run), 1<<random.IntN(4), 10*typical, user, user%3)
		at += random.ExpFloat64() * 290
	}
	path := filepath.Join(t.TempDir(), "log.swf")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func runTune(args ...string) (code int, out, errOut string) {
	var o, e bytes.Buffer
	code = Tune(args, &o, &e)
	return code, o.String(), e.String()
}

// TestTune: a better setting is found in a log and printed with the line to
// change; the state file is gone afterwards. A state file
// that was left behind by a kill answers without a replay, and the same.
func TestTune(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	ask := []string{"--swf", writeLog(t, 0), "--procs", "32", "--in-force", "bf_firm=0,bf_promise=limit",
		"--try", "bf_firm=1,bf_promise=prediction", "--longest-wait", "3", "--state", state}
	code, text, errText := runTune(ask...)
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errText)
	}
	for _, want := range []string{"second half", "with 99 % confidence", "No user, account or size of jobs would have waited noticeably longer.", "advice: change slurm.conf",
		"- SchedulerParameters=bf_firm=0,bf_promise=limit\n+ SchedulerParameters=bf_firm=1,bf_promise=prediction\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if _, err := os.Stat(state); !os.IsNotExist(err) {
		t.Errorf("the state file is still there: %v", err)
	}
	var whole tune.Report
	_, document, _ := runTune(append(ask, "--json")...)
	if err := json.Unmarshal([]byte(document), &whole); err != nil || whole.Verdict != tune.Change || whole.OutOfSample.Losers == nil {
		t.Fatalf("%v: %s", err, document)
	}
	leaveBehind(t, ask, state)
	code, again, errText := runTune(append(ask, "--json")...)
	if code != 0 || again != document || !strings.Contains(errText, "has 4 replays of this question, which are not made again") {
		t.Errorf("continued: exit %d, %s\n%s\nwant\n%s", code, errText, again, document)
	}
	leaveBehind(t, ask, state)
	other := append([]string{"--in-force", "bf_firm=0"}, ask[6:]...)
	other = append([]string{"--swf", ask[1], "--procs", "64"}, other...)
	if code, _, errText := runTune(other...); code != 1 || !strings.Contains(errText, "of another question") {
		t.Errorf("another question with the same state file: exit %d, %s", code, errText)
	}
	if err := os.WriteFile(ask[1], []byte("1 0 -1 9 4 -1 -1 4 100 -1 1 1 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errText := runTune(ask...); code != 1 || !strings.Contains(errText, "the history has changed") {
		t.Errorf("another log with the same name: exit %d, %s", code, errText)
	}
}

// leaveBehind writes the state file as a command leaves it that is killed behind
// its last replay.
func leaveBehind(t *testing.T, ask []string, path string) {
	t.Helper()
	w := &tuning{source: source{now: time.Now(), to: "now"}, swf: ask[1], procs: 32, inForce: ask[5], aim: "slowdown", state: path}
	w.config = "/etc/muster/muster.yaml"
	if named := os.Getenv("MUSTER_CONFIG"); named != "" {
		w.config = named
	}
	m, err := openMemory(path, w.question(), w.now)
	if err != nil {
		t.Fatal(err)
	}
	load, err := w.trace()
	if err != nil {
		t.Fatal(err)
	}
	if err := m.about(load); err != nil {
		t.Fatal(err)
	}
	s, err := tune.ParseSetting(ask[7])
	if err != nil {
		t.Fatal(err)
	}
	study := &tune.Study{Load: load, Settings: []tune.Setting{s}, Aim: tune.Slowdown, Bounds: tune.Bounds{MeanWait: 1.03, LongestWait: 3}, Seed: 1}
	w.errOut = &bytes.Buffer{}
	if _, err := tune.Run(t.Context(), study, m, w.progress); err != nil {
		t.Fatal(err)
	}
}

// weeks lives through days on one node of 8 CPUs, with more jobs each day than
// start at once, and keeps the ledger in an archive.
func weeks(t *testing.T, dir string, days int) spec.Instant {
	a, err := archive.Open(dir, archive.Options{})
	if err != nil {
		t.Fatal(err)
	}
	codec, err := event.NewCodec()
	if err != nil {
		t.Fatal(err)
	}
	begin := spec.AtUnix(1_700_000_000)
	s := &site{t: t, st: state.New(), now: begin.Add(-spec.Minute), codec: codec, a: a}
	c := &spec.Config{ClusterName: "c", Nodes: []spec.NodeSpec{{Name: "n1", CPUs: 8, ThreadsPerCore: 1}}}
	c.Partitions = []spec.PartitionSpec{{Name: "p", NodeNames: []string{"n1"}, Default: true, State: spec.PartitionUp, MaxTime: spec.Day, DefaultTime: spec.Hour}}
	c.Sched.Backfill, c.Priority.Basic = true, true
	s.do(scheduler.Policy{Events: []event.Event{&event.ClusterCreated{Name: "c", Version: event.Version}, &event.QOSPut{QOS: spec.QOS{ID: 1, Name: "normal"}}}})
	s.do(scheduler.Configure{Config: c})
	s.do(scheduler.RegisterNode{Node: "n1", Inventory: spec.Inventory{BootID: "b", CPUs: 8}})
	for day := range days {
		s.now = begin.Add(spec.Span(day) * spec.Day)
		var uids []spec.JobUID
		for range 6 {
			js := &spec.JobSpec{Name: "j", UID: 1000, User: "u", Account: "a", QOS: "normal"}
			js.Size.Tasks, js.Time.Limit = 4, 20*spec.Minute
			uids = append(uids, s.do(scheduler.Submit{Spec: js}).UID)
		}
		for range 3 {
			s.pass()
			s.now = s.now.Add(10 * spec.Minute)
			for _, uid := range uids {
				if j := s.st.Job(uid); j.State == spec.Running {
					s.do(scheduler.Report{Node: "n1", Run: scheduler.Run{UID: uid, Attempt: j.Attempt}, Done: &scheduler.NodeDone{Batch: &event.StepResult{}}})
				}
			}
		}
	}
	if _, err := a.Sync(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() }) // it stays open meanwhile, as a controller's does
	return begin
}

// TestTuneLedger: a ledger is replayed with the configuration that was in force.
// All its jobs are equal, so nothing is advised. What happened after the question
// was asked for the first time has no part in it.
func TestTuneLedger(t *testing.T) {
	dir := t.TempDir()
	begin := weeks(t, dir, 45)
	at := func(d spec.Span) string { return time.Unix(begin.Add(d).Unix(), 0).Format("2006-01-02T15:04:05") }
	state := filepath.Join(t.TempDir(), "state")
	ask := []string{"--archive", dir, "--from", at(-spec.Minute), "--to", at(50 * spec.Day), "--state", state}
	code, text, errText := runTune(append(ask, "--json")...)
	var rep tune.Report
	if err := json.Unmarshal([]byte(text), &rep); err != nil || code != 0 {
		t.Fatalf("exit %d: %s %v", code, errText, err)
	}
	if rep.Jobs != 270 || rep.LearnJobs+rep.JudgeJobs != 270 || rep.Verdict == tune.Change {
		t.Errorf("%+v", rep)
	}
	early := &source{command: "muster tune", archive: dir, errOut: os.Stderr}
	load, left, err := early.readPast(t.Context(), begin.Add(-spec.Minute), begin.Add(50*spec.Day), begin.Add(10*spec.Day-spec.Hour))
	if err != nil || len(load.Jobs) != 60 || left != 0 {
		t.Errorf("by the tenth day there were 60 jobs: %d, %d left out, %v", len(load.Jobs), left, err)
	}
	if code, _, errText := runTune("--archive", dir, "--from", at(-spec.Minute), "--to", at(30*spec.Day), "--state", state); code != 1 || !strings.Contains(errText, "too little history") {
		t.Errorf("30 days: exit %d, %s", code, errText)
	}
}

// TestLosers: those who lose are printed by kind, a few of each, and how many more
// there are.
func TestLosers(t *testing.T) {
	losers := []tune.Group{{Kind: "size", Name: "half of the cluster or more", Jobs: 3, OldWait: 60, NewWait: 600}}
	for i := range maxLosers + 2 {
		losers = append(losers, tune.Group{Kind: "user", Name: fmt.Sprintf("u%d", i), Jobs: 2, OldWait: 100, NewWait: 900})
	}
	text := losersText(losers)
	for _, want := range []string{"user     u0                                  2              100            900\n", "user     u7 ", "user     and 2 more, see --json\n", "size     half of the cluster or more         3               60            600\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if strings.Contains(text, "u8 ") {
		t.Errorf("more than %d users are printed:\n%s", maxLosers, text)
	}
}

// TestTuneRefusals: everything that is wrong is said at once, and nothing is
// replayed.
func TestTuneRefusals(t *testing.T) {
	code, _, errText := runTune("--swf", "x", "--procs", "0", "--aim", "speed", "--from", "now", "--try", "bf_frim=1", "--try", "bf_window=9", "--longest-wait", "0.5", "more")
	for _, want := range []string{"bf_frim", "did you mean bf_firm", "bf_window", "--procs", "--aim=speed", "--from does not belong", "--longest-wait=0.5", `unknown argument "more"`} {
		if code != 2 || !strings.Contains(errText, want) {
			t.Errorf("exit %d: %q is missing in\n%s", code, want, errText)
		}
	}
	code, _, errText = runTune("--from", "xx", "--to", "yy", "--aim", "nix")
	for _, want := range []string{"--from: ", `"xx"`, "--to: ", `"yy"`, "--aim=nix"} {
		if code != 2 || !strings.Contains(errText, want) {
			t.Errorf("exit %d: %q is missing in\n%s", code, want, errText)
		}
	}
	junk := filepath.Join(t.TempDir(), "junk")
	if err := os.WriteFile(junk, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		args []string
		want string
	}{
		{nil, "--from is missing"}, {[]string{"--from", "now", "--procs", "3"}, "--procs belongs to --swf"},
		{[]string{"--from", "now", "--cluster", "old"}, "name with --old"},
		{[]string{"--swf", "/nowhere", "--procs", "3"}, "/nowhere"},
		{[]string{"--swf", junk, "--procs", "3", "--state", junk}, "is not a state file"},
		{[]string{"--swf", junk, "--procs", "3", "--in-force", "bf_frim=1"}, "line 1"},
		{[]string{"--archive", "/nowhere", "--from", "now-50days"}, "/nowhere"},
	} {
		x.args = append([]string{"--state", filepath.Join(t.TempDir(), "s")}, x.args...)
		if code, _, errText := runTune(x.args...); code == 0 || !strings.Contains(errText, x.want) {
			t.Errorf("%v: exit %d, %q, want %q", x.args, code, errText, x.want)
		}
	}
}
