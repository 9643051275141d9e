package shepherd

import (
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/runtime/journal"
	"github.com/musterhpc/muster/spec"
	"golang.org/x/sys/unix"
)

// TestSmallProgram: one shepherd runs on every node, for as long as jobs do,
// and is started in the way of none. It must not carry an RPC stack.
func TestSmallProgram(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "github.com/musterhpc/muster/cmd/muster-shepherd").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, dep := range strings.Fields(string(out)) {
		for _, heavy := range []string{"google.golang.org/grpc", "google.golang.org/protobuf", "net/http", "prometheus", "clickhouse", "containerd", "musterhpc/muster/api", "musterhpc/muster/ledger"} {
			if strings.Contains(dep, heavy) {
				t.Errorf("the shepherd links %s", dep)
			}
		}
	}
}

func TestTombstonesForgetTheOldestFirst(t *testing.T) {
	s := newTombstones(3)
	for i := range uint64(5) {
		s.addTombstone(tombstone{key: plan.Key(i, 0, 0)})
		s.addTombstone(tombstone{key: plan.Key(i, 0, 0)})
	}
	for i := range uint64(5) {
		if _, found := s.findLaunch(plan.Key(i, 0, 0)); found != (i >= 2) {
			t.Errorf("key %d: %v", i, i < 2)
		}
	}
	keys := s.oldestFirst()
	if len(keys) != 3 || keys[0].key.Job != 2 || keys[2].key.Job != 4 || len(s.set) != 3 {
		t.Errorf("%v", keys)
	}
}

// TestRewriteKeepsTheTruth writes every kind of record, rewrites the journal
// and reads both: what they tell must be the same.
func TestRewriteKeepsTheTruth(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	jr, _, err := journal.Open(path, func([]byte) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	s := &Shepherd{jr: jr, hello: plan.Hello{BootID: "boot"}, runs: map[plan.RunKey]*run{}, ended: newTombstones(100)}
	keys := []plan.RunKey{plan.Key(1, 0, 0), plan.Key(2, 0, 0), plan.Key(3, 0, 0), plan.Key(4, 0, 0), plan.Key(5, 0, 0)}
	for i, k := range keys {
		r := &run{launchRecord: launchRecord{Key: k, JobID: uint64(i), UID: 7, Groups: []uint32{1, 2}, Stderr: "/e", Spool: "/s"}}
		if i > 0 {
			r.begun = true
		}
		if i > 1 {
			r.startedRecord = startedRecord{RunKey: k, PID: 100 + i, Ticks: 5, Start: 6, StartBoot: 7}
		}
		if i > 2 {
			r.state, r.exit = plan.Exited, &plan.Exit{Key: k, Code: 9, Usage: plan.Usage{Key: k, UserCPU: spec.Second}}
		}
		s.runs[k] = r
	}
	s.ended.addTombstone(tombstone{key: plan.Key(99, 1, 2), launch: spec.Hash{7}})
	if err := s.rewrite(); err != nil {
		t.Fatal(err)
	}
	_ = jr.Close()
	h := newHistory()
	jr, torn, err := journal.Open(path, h.applyRecord)
	if err != nil || torn != 0 {
		t.Fatalf("torn %d, %v", torn, err)
	}
	defer func() { _ = jr.Close() }()
	if h.boot != "boot" || len(h.runs) != len(keys) || len(h.acked) != 1 || h.acked[0] != (tombstone{key: plan.Key(99, 1, 2), launch: spec.Hash{7}}) {
		t.Fatalf("%+v", h)
	}
	for i, k := range keys {
		p, r := h.runs[k], s.runs[k]
		if p.boot != "boot" || p.launch.Stderr != "/e" || len(p.launch.Groups) != 2 || p.begun != r.begun || (p.started != nil) != (i > 1) || (p.exit != nil) != (i > 2) {
			t.Errorf("run %d: %+v", i, p)
		}
		if p.started != nil && *p.started != r.startedRecord {
			t.Errorf("run %d: %+v", i, p.started)
		}
		if p.exit != nil && !reflect.DeepEqual(p.exit, r.exit) {
			t.Errorf("run %d: %+v", i, p.exit)
		}
	}
}

func TestRecordsOfANewerShepherdAreNotSkipped(t *testing.T) {
	if err := newHistory().applyRecord([]byte{0xa1, 0x18, 0x63, 0x01}); err == nil { // {99: 1}
		t.Error("an unknown record was skipped")
	}
}

func TestLimitsAreCutToWhatTheNodeAllows(t *testing.T) {
	var l limits
	l.own[unix.RLIMIT_CORE] = unix.Rlimit{Cur: 10, Max: 100}
	l.own[unix.RLIMIT_NOFILE] = unix.Rlimit{Cur: 1024, Max: 4096}
	for _, c := range []struct {
		want  plan.Rlimit
		raise bool
		soft  uint64
		hard  uint64
		warns int
	}{
		{plan.Rlimit{Resource: unix.RLIMIT_CORE, Soft: 50, Hard: plan.RlimitKeep}, false, 50, 100, 0},
		{plan.Rlimit{Resource: unix.RLIMIT_CORE, Soft: 500, Hard: plan.RlimitKeep}, false, 100, 100, 0},
		{plan.Rlimit{Resource: unix.RLIMIT_CORE, Soft: 500, Hard: plan.RlimitKeep, Asked: true}, false, 10, 100, 1},
		{plan.Rlimit{Resource: unix.RLIMIT_CORE, Soft: plan.RlimitInfinity, Hard: plan.RlimitInfinity}, false, 100, 100, 0},
		{plan.Rlimit{Resource: unix.RLIMIT_CORE, Soft: plan.RlimitInfinity, Hard: plan.RlimitInfinity}, true, plan.RlimitInfinity, plan.RlimitInfinity, 0},
		{plan.Rlimit{Resource: unix.RLIMIT_CORE, Soft: plan.RlimitKeep, Hard: 5}, false, 5, 5, 0},
	} {
		l.mayRaise = c.raise
		out, warnings := l.applyLimits([]plan.Rlimit{c.want})
		if len(out) != 2 || out[0].Soft != c.soft || out[0].Hard != c.hard || len(warnings) != c.warns {
			t.Errorf("%+v: %+v %q", c.want, out, warnings)
		}
		if out[1].Resource != unix.RLIMIT_NOFILE || out[1].Soft != 1024 {
			t.Errorf("open files became %+v", out[1])
		}
	}
	if out, warnings := l.applyLimits([]plan.Rlimit{{Resource: 99}}); len(out) != 1 || len(warnings) != 1 {
		t.Errorf("an unknown limit: %+v %q", out, warnings)
	}
}
