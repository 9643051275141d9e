package state

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// TestScripts runs the transcripts of testdata: logs of events written by
// hand, with the state expected after them. Verbs:
//
//	apply           one event a line (see parseEvent); an event that is refused
//	                prints its error, which must be a contradiction, and leaves
//	                no trace; all others must keep every invariant
//	show WHAT…      jobs, nodes, arrays, usage, indexes, licences, totals,
//	                policy, access
//	restart         continue from a snapshot of the state
//
// Run with -rewrite to take over the new output; the diff is the review.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		s := New()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "apply":
				var out strings.Builder
				for line := range strings.Lines(d.Input) {
					s = applyLine(t, s, strings.TrimSpace(line), &out)
				}
				return out.String()
			case "show":
				var out strings.Builder
				for _, a := range d.CmdArgs {
					show(t, s, a.Key, &out)
				}
				return out.String()
			case "restart":
				s = reload(t, s)
				return fmt.Sprintf("at event %d\n", s.Seq)
			}
			t.Fatalf("%s: unknown verb %q", d.Pos, d.Cmd)
			return ""
		})
	})
}

func applyLine(t *testing.T, s *State, line string, out *strings.Builder) *State {
	t.Helper()
	e, err := parseEvent(line)
	if err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	trial := s.Freeze().Fork()
	env := event.Envelope{Seq: s.Seq + 1, At: s.At + spec.Instant(spec.Second), Event: e}
	if err := trial.Apply(&env); err != nil {
		if !errors.Is(err, ErrContradiction) {
			t.Errorf("%q: %v is not a contradiction", line, err)
		}
		fmt.Fprintf(out, "%s\n    %v\n", line, err)
		return s
	}
	if err := trial.Check(); err != nil {
		t.Errorf("after %q: %v", line, err)
	}
	return trial
}

// words splits a line into a verb, plain words and key=value pairs.
type words struct {
	verb  string
	plain []string
	kv    map[string]string
	err   error
}

func split(line string) *words {
	w := &words{kv: make(map[string]string)}
	for i, f := range strings.Fields(line) {
		k, v, ok := strings.Cut(f, "=")
		switch {
		case i == 0:
			w.verb = f
		case ok:
			w.kv[k] = v
		default:
			w.plain = append(w.plain, f)
		}
	}
	return w
}

func (w *words) arg(i int) string {
	if i >= len(w.plain) {
		w.err = fmt.Errorf("word %d is missing", i+1)
		return ""
	}
	return w.plain[i]
}

func (w *words) number(s string) int64 {
	if s == "" {
		return 0
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		w.err = err
	}
	return n
}

func (w *words) uid() spec.JobUID     { return spec.JobUID(w.number(w.arg(0))) }
func (w *words) n(key string) int64   { return w.number(w.kv[key]) }
func (w *words) has(word string) bool { _, ok := w.kv[word]; return ok || contains(w.plain, word) }

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

func (w *words) list(key string) []string {
	if w.kv[key] == "" {
		return nil
	}
	return strings.Split(w.kv[key], ",")
}

func (w *words) state(s string) spec.JobState {
	if s == "PENDING" {
		return spec.Pending
	}
	st, ok := spec.ParseJobState(s)
	if !ok {
		return spec.JobState(w.number(s))
	}
	return st
}

func (w *words) attempt() uint32 {
	if v, ok := w.kv["attempt"]; ok {
		return uint32(w.number(v))
	}
	return 1
}

func parseEvent(line string) (event.Event, error) {
	w := split(line)
	e := w.cluster()
	if e == nil {
		e = w.job()
	}
	if e == nil {
		e = w.run()
	}
	if e == nil {
		return nil, fmt.Errorf("unknown verb %q", w.verb)
	}
	return e, w.err
}

// cluster parses what is not about jobs:
//
//	cluster NAME
//	version N
//	config nodes=n1,n2 cpus=4 mem=8000 gpus=2 shards=4 nics=4 licence=3 partqos=q first=100 memory
//	qos NAME id=1 · noqos NAME · account NAME · noaccount NAME · user NAME · nouser NAME
//	assoc ID account=a user=u parent=P partition=p · noassoc ID
//	register NODE gpus=2 boot=b
//	set NODE resume|drain|down|fail|N reason=… · lost NODE · returned NODE
//	token N · cert SERIAL token=N · revoke SERIAL
func (w *words) cluster() event.Event {
	switch w.verb {
	case "cluster":
		return &event.ClusterCreated{Name: w.arg(0), Version: 1}
	case "version":
		return &event.ClusterVersionRaised{Version: uint32(w.number(w.arg(0)))}
	case "config":
		return &event.ConfigAdopted{Config: w.config()}
	case "noconfig":
		return &event.ConfigAdopted{}
	case "qos":
		return &event.QOSPut{QOS: spec.QOS{ID: uint32(w.n("id")), Name: w.arg(0)}}
	case "noqos":
		return &event.QOSRemoved{Name: w.arg(0)}
	case "account":
		return &event.AccountPut{Account: spec.Account{Name: w.arg(0)}}
	case "noaccount":
		return &event.AccountRemoved{Name: w.arg(0)}
	case "user":
		return &event.UserPut{User: spec.User{Name: w.arg(0)}}
	case "nouser":
		return &event.UserRemoved{Name: w.arg(0)}
	case "assoc":
		return &event.AssociationPut{Association: spec.Association{ID: uint32(w.number(w.arg(0))), Account: w.kv["account"],
			User: w.kv["user"], Parent: uint32(w.n("parent")), Partition: w.kv["partition"]}}
	case "noassoc":
		return &event.AssociationRemoved{ID: uint32(w.number(w.arg(0)))}
	case "token":
		return &event.TokenIssued{Hash: spec.Hash{byte(w.number(w.arg(0)))}, Node: "n1", Expires: 1 << 62}
	case "spend":
		return &event.TokenSpent{Hash: spec.Hash{byte(w.number(w.arg(0)))}, Node: w.arg(1), Key: spec.Hash{byte(w.n("key"))}}
	case "cert":
		return &event.CertificateIssued{Serial: w.arg(0), Role: "node", Name: "n1", Token: spec.Hash{byte(w.n("token"))}}
	case "revoke":
		return &event.CertificateRevoked{Serial: w.arg(0)}
	case "epoch":
		return &event.EpochBegan{Value: uint64(w.number(w.arg(0)))}
	case "forgot":
		return &event.HistoryLost{Witness: "node n1", Seen: event.Position{Epoch: uint64(w.number(w.arg(0))), Seq: uint64(w.n("seq")),
			NextUID: spec.JobUID(w.n("uid")), NextID: spec.JobID(w.n("id"))}}
	case "dropped":
		return &event.CertificatesDropped{Serials: []string{w.arg(0)}}
	}
	return w.node()
}

func (w *words) node() event.Event {
	switch w.verb {
	case "register":
		inv := spec.Inventory{BootID: w.kv["boot"]}
		for i := range w.n("gpus") {
			inv.GPUs = append(inv.GPUs, spec.GPU{Index: uint32(i), UUID: fmt.Sprintf("%s-gpu%d", w.arg(0), i), Type: "h100"})
		}
		return &event.NodeRegistered{Node: w.arg(0), Inventory: inv}
	case "set":
		states := map[string]event.NodeAdminState{"resume": event.NodeResume, "drain": event.NodeDrain, "down": event.NodeDown, "fail": event.NodeFail}
		st, ok := states[w.arg(1)]
		if !ok {
			st = event.NodeAdminState(w.number(w.arg(1)))
		}
		return &event.NodeStateSet{Node: w.arg(0), State: st, Reason: w.kv["reason"]}
	case "power":
		names := []string{"", "on", "wish-down", "asap", "going-down", "down", "wish-up", "coming-up"}
		return &event.NodePowered{Nodes: strings.Split(w.arg(0), ","), To: event.PowerState(slices.Index(names, w.arg(1))), Failed: w.has("failed")}
	case "ready":
		return &event.JobReady{UID: w.uid(), Attempt: w.attempt()}
	case "add":
		n := spec.NodeSpec{Name: w.arg(0), CPUs: w.n("cpus"), Mem: w.n("mem")}
		return &event.NodeAdded{Node: n, Partitions: w.list("part")}
	case "delete":
		return &event.NodeDeleted{Node: w.arg(0)}
	case "partition":
		return &event.PartitionPut{Partition: spec.PartitionSpec{Name: w.arg(0), State: spec.PartitionState(w.n("state")), QOS: w.kv["qos"], NodeNames: w.list("nodes")}, Nodes: w.has("nodes")}
	case "change":
		return &event.NodeChanged{Node: w.arg(0), Weight: uint32(w.n("weight")), Features: w.list("features"), Available: w.list("available"), Comment: w.kv["comment"], Reason: w.kv["reason"]}
	case "newpart":
		return &event.PartitionAdded{Partition: spec.PartitionSpec{Name: w.arg(0), NodeNames: w.list("nodes"), QOS: w.kv["qos"]}}
	case "nopart":
		return &event.PartitionGone{Name: w.arg(0)}
	case "reboot":
		phases := []string{"", "wanted", "issued", "over"}
		return &event.NodeReboot{Node: w.arg(0), Phase: event.RebootPhase(slices.Index(phases, w.arg(1))), ASAP: w.has("asap"), Reason: w.kv["reason"]}
	case "lost":
		return &event.NodeLost{Node: w.arg(0), LastSeen: 5}
	case "returned":
		return &event.NodeReturned{Node: w.arg(0)}
	}
	return nil
}

func (w *words) config() *spec.Config {
	c := &spec.Config{Sched: spec.SchedConfig{Memory: w.has("memory")}, Limits: spec.JobLimits{FirstJobID: uint32(w.n("first"))}}
	if n := w.n("licence"); n > 0 {
		c.Licenses = []spec.Count{{Name: "matlab", N: n}}
	}
	for _, name := range w.list("nodes") {
		n := spec.NodeSpec{Name: name, CPUs: w.n("cpus"), Mem: w.n("mem"), State: w.kv["state"]}
		if g := w.n("gpus"); g > 0 {
			n.GRES = append(n.GRES, spec.GRESSpec{Name: "gpu", Type: "h100", N: g})
		}
		for _, kind := range [...]string{"shard", "nic"} {
			if g := w.n(kind + "s"); g > 0 {
				n.GRES = append(n.GRES, spec.GRESSpec{Name: kind, N: g})
			}
		}
		c.Nodes = append(c.Nodes, n)
	}
	c.Partitions = []spec.PartitionSpec{{Name: "batch", NodeNames: w.list("nodes")}, {Name: "gpu", NodeNames: w.list("nodes"), QOS: w.kv["partqos"]}}
	return c
}

// job parses what happens to waiting jobs:
//
//	submit UID id=1 name=x user=5 account=a qos=q part=batch assoc=2 array=0-3 after=1,2 hold
//	eligible UID · reason UID CODE · hold UID [nobody] · release UID
//	update UID limit=60 changed=TimeLimit …
//	split ARRAY task=0 uid=2 id=2
//	purge UID …
func (w *words) job() event.Event {
	switch w.verb {
	case "submit":
		id := w.uid()
		if w.has("id") {
			id = spec.JobUID(w.n("id"))
		}
		s := w.jobSpec()
		if w.has("nospec") {
			s = nil
		}
		return &event.JobSubmitted{UID: w.uid(), ID: spec.JobID(id), Spec: s, Assoc: uint32(w.n("assoc")), Reason: spec.Reason{Code: spec.ReasonNone}}
	case "eligible":
		return &event.JobEligible{UID: w.uid()}
	case "reason":
		return &event.ReasonsChanged{Jobs: []event.JobReason{{UID: w.uid(), Reason: spec.Reason{Code: spec.ReasonCode(w.arg(1))}}}}
	case "hold":
		by := spec.HeldByUser
		if w.has("nobody") {
			by = spec.NotHeld
		}
		return &event.JobHeld{UID: w.uid(), By: by}
	case "release":
		return &event.JobReleased{UID: w.uid()}
	case "update":
		s := w.jobSpec()
		if w.has("nospec") {
			s = nil
		}
		return &event.JobUpdated{UID: w.uid(), Spec: s, Assoc: uint32(w.n("assoc")), Changed: w.list("changed")}
	case "split":
		return &event.ArrayTaskSplit{Array: w.uid(), Task: w.n("task"), UID: spec.JobUID(w.n("uid")), ID: spec.JobID(w.n("id"))}
	case "purge":
		e := &event.JobPurged{}
		for _, u := range w.plain {
			e.UIDs = append(e.UIDs, spec.JobUID(w.number(u)))
		}
		return e
	}
	return nil
}

func (w *words) jobSpec() *spec.JobSpec {
	s := &spec.JobSpec{Name: w.kv["name"], UID: uint32(w.n("user")), Account: w.kv["account"], QOS: w.kv["qos"],
		Partitions: []string{"batch"}, Time: spec.TimeAsk{Limit: spec.Seconds(w.n("limit"))}}
	if p := w.kv["part"]; p != "" {
		s.Partitions = []string{p}
	}
	if w.has("hold") {
		s.Queue.Hold = spec.HeldByUser
	}
	if a := w.kv["array"]; a != "" {
		var tasks spec.TaskSet
		for _, r := range strings.Split(a, ",") {
			r, step, _ := strings.Cut(r, ":")
			first, last, _ := strings.Cut(r, "-")
			if last == "" {
				last = first
			}
			tasks = append(tasks, spec.TaskRange{First: w.number(first), Last: w.number(last), Step: max(1, w.number(step))})
		}
		s.Queue.Array = &spec.ArrayAsk{Tasks: tasks}
	}
	if w.has("after") {
		s.Queue.Dependency = &spec.Dependency{}
		for _, u := range w.list("after") {
			s.Queue.Dependency.Terms = append(s.Queue.Dependency.Terms, spec.DependencyTerm{Kind: spec.AfterOK, UID: spec.JobUID(w.number(u)), Task: spec.NoTask})
		}
	}
	return s
}

// run parses the life of an attempt; attempt=1 unless given:
//
//	start UID ID:NODE:cpus[:mem[:gpus[:nics]]] … licence=1 part=gpu tres=bad backfill gres=nic
//	endreq UID cause=1 requeue · signal UID 10
//	end UID COMPLETED exit=1 · done UID NODE · requeue UID hold
//	step UID 0 · stepend UID 0 COMPLETED
//
// cpus and gpus are digits, "02" being the CPUs 0 and 2.
func (w *words) run() event.Event {
	switch w.verb {
	case "start":
		return &event.JobStarted{UID: w.uid(), Attempt: w.attempt(), Alloc: w.alloc(), Limit: spec.Seconds(60), Backfill: w.has("backfill")}
	case "endreq":
		return &event.JobEndRequested{UID: w.uid(), Attempt: w.attempt(), Cause: event.EndCause(w.n("cause")), Requeue: w.has("requeue")}
	case "signal":
		return &event.JobSignalled{UID: w.uid(), Attempt: w.attempt(), Signal: int32(w.number(w.arg(1)))}
	case "end":
		return &event.JobEnded{UID: w.uid(), Attempt: w.attempt(), State: w.state(w.arg(1)), Exit: spec.ExitStatus{Code: int32(w.n("exit"))}}
	case "done":
		return &event.JobNodeDone{UID: w.uid(), Attempt: w.attempt(), Node: w.arg(1), Usage: spec.Usage{UserCPU: spec.Second}}
	case "requeue":
		e := &event.JobRequeued{UID: w.uid(), Attempt: w.attempt(), State: spec.Pending, Counts: true}
		if w.has("hold") {
			e.Hold = spec.HeldByAdmin
		}
		return e
	case "step":
		return &event.StepStarted{UID: w.uid(), Attempt: w.attempt(), Step: spec.StepID(w.number(w.arg(1)))}
	case "stepend":
		return &event.StepEnded{UID: w.uid(), Attempt: w.attempt(), Step: spec.StepID(w.number(w.arg(1))), State: w.state(w.arg(2))}
	}
	return nil
}

func (w *words) alloc() *spec.Allocation {
	if w.has("noalloc") {
		return nil
	}
	a := &spec.Allocation{Partition: "batch"}
	if p := w.kv["part"]; p != "" {
		a.Partition = p
	}
	if w.has("licence") {
		a.Licenses = []spec.Count{{Name: "matlab", N: w.n("licence")}}
	}
	for _, text := range w.plain[1:] {
		f := strings.Split(text, ":")
		if len(f) < 3 {
			continue
		}
		f = append(f, "", "", "")
		n := spec.NodeAlloc{ID: spec.NodeID(w.number(f[0])), Name: f[1], Mem: w.number(f[3])}
		for _, c := range f[2] {
			n.CPUs = n.CPUs.Set(int(c - '0'))
		}
		for _, c := range f[4] {
			n.GPUs = append(n.GPUs, spec.GPURef{UUID: fmt.Sprintf("%s-gpu%c", f[1], c), Index: uint32(c - '0'), Type: "h100"})
			a.TRES = countGPU(a.TRES, "h100")
		}
		if k := w.number(f[5]); k != 0 {
			n.GRES = []spec.Count{{Name: cmp.Or(w.kv["gres"], "nic"), N: k}}
		}
		a.TRES.CPU += int64(n.CPUs.Count())
		a.TRES.Mem += n.Mem
		a.TRES.Node++
		a.Nodes = append(a.Nodes, n)
	}
	if w.kv["tres"] == "bad" {
		a.TRES.Other = append(a.TRES.Other, spec.TRESCount{Name: "a"}, spec.TRESCount{Name: "a"})
	}
	return a
}
