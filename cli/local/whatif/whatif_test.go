package whatif

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/archive"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/scheduler/trial"
	"github.com/musterhpc/muster/spec"
)

// site drives a small cluster and keeps its ledger in an archive.
type site struct {
	t     *testing.T
	st    *state.State
	now   spec.Instant
	codec *event.Codec
	a     *archive.Archive
	pos   uint64
}

func (s *site) do(cmd scheduler.Command) scheduler.Result {
	s.t.Helper()
	tr := trial.On(s.st, s.now, event.Actor{Kind: event.ActorSystem}, "")
	res, err := scheduler.Decide(tr, cmd)
	if err != nil {
		s.t.Fatal(err)
	}
	if len(tr.Events) > 0 {
		b, err := s.codec.Encode(tr.Events)
		if err != nil {
			s.t.Fatal(err)
		}
		s.pos++
		if err := s.a.Append(s.pos, tr.Events[0].Seq, tr.Events[len(tr.Events)-1].Seq, b); err != nil {
			s.t.Fatal(err)
		}
	}
	return res
}

func (s *site) pass() {
	s.t.Helper()
	out, err := scheduler.Pass(s.st.Freeze(), s.now, scheduler.PassOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.do(scheduler.Starts{Proposal: &out.Proposal})
}

// A day in the life of one node of 8 CPUs: eight jobs of 2 CPUs and ten
// minutes arrive together, and one is held for an hour that does not count.
func lived(t *testing.T, dir string) spec.Instant {
	a, err := archive.Open(dir, archive.Options{})
	if err != nil {
		t.Fatal(err)
	}
	codec, err := event.NewCodec()
	if err != nil {
		t.Fatal(err)
	}
	begin := spec.AtUnix(1_800_000_000)
	s := &site{t: t, st: state.New(), now: begin.Add(-spec.Minute), codec: codec, a: a}
	c := &spec.Config{ClusterName: "c", Nodes: []spec.NodeSpec{{Name: "n1", CPUs: 8, ThreadsPerCore: 1}}}
	c.Partitions = []spec.PartitionSpec{{Name: "p", NodeNames: []string{"n1"}, Default: true, State: spec.PartitionUp, MaxTime: spec.Day, DefaultTime: spec.Hour}}
	c.Sched.Backfill, c.Priority.Basic, c.Enforce.Limits = true, true, true
	s.do(scheduler.Policy{Events: []event.Event{&event.ClusterCreated{Name: "c", Version: event.Version}, &event.QOSPut{QOS: spec.QOS{ID: 1, Name: "normal"}}}})
	s.do(scheduler.Configure{Config: c})
	s.do(scheduler.RegisterNode{Node: "n1", Inventory: spec.Inventory{BootID: "b", CPUs: 8}})
	s.now = begin
	var uids []spec.JobUID
	for i := range 8 {
		js := &spec.JobSpec{Name: "j", UID: 1000, User: "u", Account: "a", QOS: "normal"}
		js.Size.Tasks, js.Time.Limit = 2, 20*spec.Minute
		if i == 7 {
			js.Queue.Hold = spec.HeldByUser
		}
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
		if s.now == begin.Add(20*spec.Minute) {
			s.now = begin.Add(spec.Hour)
			s.do(scheduler.Release{Target: scheduler.Target{UID: uids[7], Task: spec.NoTask}})
		}
	}
	if _, err := a.Sync(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() }) // it stays open meanwhile, as a controller's does
	return begin
}

func TestWhatIf(t *testing.T) {
	dir := t.TempDir()
	begin := lived(t, dir)
	at := func(d spec.Span) string { return time.Unix(begin.Add(d).Unix(), 0).Format("2006-01-02T15:04:05") }
	run := func(args ...string) (*whatifResult, string, int) {
		var out, errOut bytes.Buffer
		code := Run(append([]string{"--archive", dir, "--from", at(-spec.Minute), "--to", at(2 * spec.Hour)}, args...), &out, &errOut)
		r := &whatifResult{}
		if code == 0 {
			if err := json.Unmarshal(out.Bytes(), r); err != nil {
				t.Fatalf("%v\n%s", err, &out)
			}
		}
		return r, errOut.String(), code
	}
	// As it was: four jobs at once, three after them, and the held one when it was released: a mean wait of 3*600/8 s.
	r, errText, code := run("--qos", "normal MaxTRESPerUser=cpu=2", "--json")
	if code != 0 || r.Jobs != 8 || r.Old.MeanWait != 225 || r.Old.MaxWait != 600 || r.Old.Jobs != 8 {
		t.Fatalf("exit %d: %s %+v", code, errText, r)
	}
	// One at a time the seventh starts after an hour, when the eighth comes, which waits for its end.
	if r.New.Jobs != 8 || r.New.MaxWait != 3600 || r.New.MeanWait != (600+1200+1800+2400+3000+3600+600)/8. {
		t.Errorf("with a limit: %+v", r.New)
	}
	conf := filepath.Join(t.TempDir(), "slurm.conf")
	text := "ClusterName=c\nSlurmctldHost=h\nSelectType=select/cons_tres\nSelectTypeParameters=CR_Core\nNodeName=n[1-2] CPUs=8 State=UNKNOWN\nPartitionName=p Nodes=ALL Default=YES MaxTime=1-0 State=UP\n"
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if r, errText, code = run("--conf", conf, "--json"); code != 0 || r.New.MeanWait != 0 || r.Old.MeanWait != 225 {
		t.Errorf("with two nodes: exit %d, %s %+v", code, errText, r)
	}
	if r, errText, code = run("--add", "1 node like n1", "--json"); code != 0 || r.New.MeanWait != 0 || r.New.P95Wait != 0 || r.Old.P95Wait == 0 {
		t.Errorf("with a node more: exit %d, %s %+v", code, errText, r)
	}
	if r, errText, code = run("--old", conf, "--qos", "normal Priority=1", "--json"); code != 0 || r.New.MeanWait != 0 || r.Old.MeanWait != 0 {
		t.Errorf("as if there had been two nodes: exit %d, %s %+v", code, errText, r)
	}
	if _, errText, _ = run("--conf", conf, "--qos", "normal MaxJobsPerUser=1", "--json"); !strings.Contains(errText, "AccountingStorageEnforce does not name limits") {
		t.Errorf("limits that are not enforced: %q", errText)
	}
	var out, errOut bytes.Buffer
	if code := Run([]string{"--archive", dir, "--from", at(-spec.Minute), "--to", at(2 * spec.Hour), "--conf", conf}, &out, &errOut); code != 0 ||
		!strings.Contains(out.String(), "mean wait                         225.0            0.0         -225.0 s") {
		t.Errorf("exit %d: %s\n%s", code, &errOut, &out)
	}
	for _, x := range []struct {
		args []string
		want string
	}{
		{[]string{"--json"}, "name another --conf, a --qos or nodes to --add"}, {[]string{"--add", "8 n1"}, "8 nodes like n1"}, {[]string{"--add", "2 nodes like n7"}, "there is no node n7"}, {[]string{"--qos", "normal", "--json"}, "expected a name and what to set"},
		{[]string{"--qos", "normal Frob=1"}, "Frob"}, {[]string{"--conf", "/nowhere/slurm.conf"}, "/nowhere/slurm.conf"},
		{[]string{"--qos", "normal Priority=1", "--from", "yesterdayish"}, "--from"}, {[]string{"--qos", "normal Priority=1", "--to", at(-spec.Hour)}, "does not come after"},
		{[]string{"--qos", "normal Priority=1", "--archive", "/nowhere"}, "/nowhere"}, {[]string{"--qos", "normal Priority=1", "--from", at(spec.Hour + spec.Minute)}, "no job became eligible"}, {[]string{"x"}, "unknown argument"},
		{[]string{"--qos", "normal Priority=1", "--cluster", "peer"}, "name with --old"}, {[]string{"--qos", "normal Priority=1", "--cluster", "peer", "--old", conf}, "one history at a time"},
		{[]string{"--qos", "normal Priority=1", "--old", "/nowhere/old.conf"}, "/nowhere/old.conf"},
	} {
		if _, errText, code := run(x.args...); code == 0 || !strings.Contains(strings.ToLower(errText), strings.ToLower(x.want)) {
			t.Errorf("%v: exit %d, %q, want %q", x.args, code, errText, x.want)
		}
	}
}

// TestRecordOf: what an old Slurm did not keep of the request is taken from what
// was given; what it kept counts.
func TestRecordOf(t *testing.T) {
	row := &apiv1.AcctRow{User: "ann", Partition: "a,b", Submit: 5, Start: 9, End: 20, Elapsed: 11, TimeLimit: -1, ReqCpus: 3, ExitSignal: 9,
		ReqTres:   &apiv1.Tres{Node: 2},
		AllocTres: &apiv1.Tres{Cpu: 8, Mem: 700, Node: 2, Other: []*apiv1.NamedCount{{Name: "gres/gpu", N: 2}, {Name: "gres/gpu:a100", N: 2}, {Name: "license/x", N: 1}}}}
	r := recordOf(row)
	if r.Asked.CPU != 3 || r.Asked.Mem != 700 || r.Asked.Get("gres/gpu:a100") != 2 || r.Asked.Get("gres/gpu") != 2 || r.Asked.Get("license/x") != 0 || r.Nodes != 2 {
		t.Errorf("%+v", r)
	}
	if r.Eligible != 5 || !r.Ended || !r.Failed || r.Limit != spec.Infinite || len(r.Partitions) != 2 || r.Run != 11 {
		t.Errorf("%+v", r)
	}
	row.ReqTres = &apiv1.Tres{Cpu: 4, Mem: 100, Other: []*apiv1.NamedCount{{Name: "gres/gpu", N: 1}}}
	row.End = 0
	if r = recordOf(row); r.Asked.CPU != 4 || r.Asked.Mem != 100 || r.Asked.Get("gres/gpu") != 1 || r.Asked.Get("gres/gpu:a100") != 0 || r.Ended {
		t.Errorf("%+v", r)
	}
}
