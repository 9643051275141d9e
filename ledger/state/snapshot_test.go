package state

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"hash/crc32"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/event/eventtest"
	"github.com/musterhpc/muster/ledger/event/record"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/fixed"
)

var update = flag.Bool("update", false, "write the golden snapshot if there is none")

// rich is a history with something of everything a snapshot holds.
const rich = `cluster demo
config nodes=n1,n2,n3 cpus=4 mem=8000 gpus=2 shards=4 licence=3 memory partqos=part
qos normal id=1
qos part id=2
account ml
user alice
assoc 1 account=ml
assoc 2 account=ml user=alice parent=1
register n1 gpus=2
register n2 gpus=2
token 1
cert a token=1
token 2
submit 1 id=100 name=a user=5 account=ml qos=normal assoc=2 array=0-2,10-20:5
split 1 task=0 uid=2 id=101
split 1 task=15 uid=3 id=102
submit 4 name=b user=5 account=ml qos=normal assoc=2 after=1 hold
submit 5 name=c user=6
start 2 0:n1:01:1000:0:1 1:n2:23 licence=2 gres=shard
signal 2 10
step 2 0
endreq 2 cause=1
start 3 1:n2:0 backfill
end 3 FAILED exit=2
start 5 0:n1:2
done 5 n1
end 5 COMPLETED
lost n2
set n1 drain reason=disk
config nodes=n1,n2 cpus=4 mem=8000 gpus=2 shards=4 licence=3 memory partqos=part
`

func richState(t testing.TB) *State {
	t.Helper()
	s := New()
	for line := range strings.Lines(rich) {
		e, err := parseEvent(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Apply(&event.Envelope{Seq: s.Seq + 1, At: s.At + spec.Instant(spec.Second), Event: e}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	return s
}

func encoded(t testing.TB, s *State) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := s.Encode(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func all(t *testing.T, s *State) string {
	t.Helper()
	var out strings.Builder
	for _, what := range []string{"jobs", "nodes", "arrays", "usage", "indexes", "licences", "totals", "policy", "access"} {
		show(t, s, what, &out)
	}
	return out.String()
}

// TestGoldenSnapshot reads the snapshot that the first release wrote and
// compares it with the fold of the same events. The file is never rewritten.
func TestGoldenSnapshot(t *testing.T) {
	const path = "testdata/v1/snapshot.bin"
	want := richState(t)
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) && *update {
		data = encoded(t, want)
		err = os.WriteFile(path, data, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if err := got.Check(); err != nil {
		t.Error(err)
	}
	if g, w := all(t, got), all(t, want); g != w {
		t.Errorf("the snapshot says\n%s\nthe events\n%s", g, w)
	}
}

func TestSnapshotOfEverything(t *testing.T) {
	s := richState(t)
	got := reload(t, s.Freeze())
	if g, w := all(t, got), all(t, s); g != w {
		t.Errorf("the snapshot says\n%s\nthe state\n%s", g, w)
	}
	if got.Job(1).Spec != got.Job(2).Spec || got.Job(1).Spec == got.Job(4).Spec {
		t.Error("tasks of an array share their spec, and nobody else's")
	}
	if _, err := Decode(iotest.OneByteReader(bytes.NewReader(encoded(t, s)))); err != nil {
		t.Errorf("byte by byte: %v", err)
	}
	reload(t, New())
}

// TestHashSeesEverything changes one fact at a time.
func TestHashSeesEverything(t *testing.T) {
	base := richState(t).Hash()
	for name, change := range map[string]func(s *State){
		"seq":    func(s *State) { s.Seq++ },
		"next":   func(s *State) { s.NextID++ },
		"config": func(s *State) { s.Config.Limits.MaxJobCount++ },
		"policy": func(s *State) { s.Policy.QOS[0].Priority++ },
		"token":  func(s *State) { s.Access.Tokens[0].Expires++ },
		"totals": func(s *State) { s.Totals.Parts[0].Run.Buckets[3]++ },
		"node":   func(s *State) { s.Node("n1").BusyAt++ },
		"gone":   func(s *State) { s.NodeIDs["n3"], s.NodeIDs["n2"] = s.NodeIDs["n2"], s.NodeIDs["n3"] },
		"array":  func(s *State) { s.ArrayByID(100).OK++ },
		"job":    func(s *State) { s.Job(3).Exit.Signal++ },
		"spec":   func(s *State) { s.Job(4).Spec.Comment = "x" },
		"spent":  func(s *State) { s.Spent.Set(s.own, UsageKey(UsageQOS, 1, 0), &Spent{Raw: fixed.Of(1)}) },
		"runs":   func(s *State) { s.Runs.Set(s.own, 1000, &UserRuns{Runs: []PastRun{{Length: 1}}}) },
		"aging":  func(s *State) { s.Aging.PerSecond++ },
		"alloc":  func(s *State) { s.Job(2).Alloc.Nodes[1].Mem++ },
	} {
		s := richState(t)
		change(s)
		if s.Hash() == base {
			t.Errorf("%s: the hash does not see it", name)
		}
	}
	s := richState(t)
	s.Jobs.Range(func(_ uint64, j *Job) bool { // sharing is not content
		c := *j.Spec
		j.Spec = &c
		return true
	})
	if s.Hash() != base || !bytes.Equal(encoded(t, s), encoded(t, richState(t))) {
		t.Error("the hash or the snapshot depends on which jobs share a spec in memory")
	}
}

// TestSnapshotDamage flips every byte and cuts at every byte: no damage goes
// unnoticed, and none makes the reader panic.
func TestSnapshotDamage(t *testing.T) {
	data := encoded(t, richState(t))
	for i := range data {
		bad := bytes.Clone(data)
		bad[i] ^= 0x10
		if _, err := Decode(bytes.NewReader(bad)); !errors.Is(err, ErrSnapshot) {
			t.Fatalf("byte %d of %d flipped: %v", i, len(data), err)
		}
		if _, err := Decode(bytes.NewReader(data[:i])); !errors.Is(err, ErrSnapshot) {
			t.Fatalf("cut to %d of %d bytes: %v", i, len(data), err)
		}
	}
	disk := errors.New("the disk is on fire")
	if _, err := Decode(io.MultiReader(bytes.NewReader(data[:50]), iotest.ErrReader(disk))); !errors.Is(err, disk) {
		t.Errorf("the reader's own error is lost: %v", err)
	}
	if err := richState(t).Encode(failing{disk}); !errors.Is(err, disk) {
		t.Errorf("the writer's own error is lost: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// sealed makes a snapshot of any version around any records.
func sealed(version uint32, records []byte) []byte {
	out := binary.BigEndian.AppendUint32([]byte(snapMagic), version)
	out = binary.BigEndian.AppendUint32(out, crc32.Checksum(out, castagnoli()))
	for _, block := range [][]byte{records, nil} {
		h := binary.BigEndian.AppendUint32(nil, uint32(len(block)))
		sum := crc32.Update(crc32.Checksum(h, castagnoli()), castagnoli(), block)
		out = append(binary.BigEndian.AppendUint32(append(out, h...), sum), block...)
	}
	return out
}

// records are the records of a snapshot that fits one block.
func records(snapshot []byte) []byte {
	return snapshot[snapHeader+blockHeader : len(snapshot)-blockHeader]
}

func TestSnapshotRefusals(t *testing.T) {
	recs := records(encoded(t, richState(t)))
	meta := func(b ...byte) []byte { return append([]byte{snapMeta}, b...) }
	for _, tt := range []struct {
		name string
		data []byte
		want error
	}{
		{"as written", sealed(SnapshotVersion, recs), nil},
		{"newer version", sealed(SnapshotVersion+1, recs), event.ErrNewer},
		{"unknown record", sealed(SnapshotVersion, append(bytes.Clone(recs[:len(recs)-6]), snapRuns+1)), event.ErrNewer},
		{"unknown field", sealed(SnapshotVersion, meta(0xa1, 0x18, 99, 1)), event.ErrNewer},
		{"no records", sealed(SnapshotVersion, nil), ErrSnapshot},
		{"no end", sealed(SnapshotVersion, recs[:len(recs)-6]), ErrSnapshot},
		{"records behind the end", sealed(SnapshotVersion, append(bytes.Clone(recs), recs...)), ErrSnapshot},
		{"twice the same", sealed(SnapshotVersion, meta(append([]byte{0xa0}, meta(0xa0)...)...)), ErrSnapshot},
		{"out of order", sealed(SnapshotVersion, []byte{snapConfig, 0xa0}), ErrSnapshot},
		{"not a record", sealed(SnapshotVersion, meta(0x01)), ErrSnapshot},
		{"another file", []byte("this is no snapshot at all"), ErrSnapshot},
		{"empty", nil, ErrSnapshot},
	} {
		if _, err := Decode(bytes.NewReader(tt.data)); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
}

// FuzzSnapshot: any records, behind right checksums, give a state or a typed
// error, never a panic; what was read is written and read again unchanged.
func FuzzSnapshot(f *testing.F) {
	f.Add(records(encoded(f, richState(f))))
	f.Add(records(encoded(f, New())))
	f.Fuzz(func(t *testing.T, recs []byte) {
		s, err := Decode(bytes.NewReader(sealed(SnapshotVersion, recs)))
		if err != nil {
			if !errors.Is(err, ErrSnapshot) && !errors.Is(err, event.ErrNewer) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		again, err := Decode(bytes.NewReader(encoded(t, s)))
		if err != nil || again.Hash() != s.Hash() {
			t.Fatalf("read again: %v", err)
		}
	})
}

// TestEveryKind applies an empty and a full event of each kind to an empty
// state and to one with jobs: the fold knows each kind and never panics.
func TestEveryKind(t *testing.T) {
	for _, k := range event.Kinds() {
		for _, e := range []event.Event{event.New(k), eventtest.Full(k)} {
			for _, s := range []*State{New(), richState(t)} {
				err := s.Apply(&event.Envelope{Seq: s.Seq + 1, At: s.At, Event: e})
				newer := errors.Is(err, event.ErrNewer)
				if v, ok := e.(*event.ClusterVersionRaised); ok && v.Version > event.Version {
					newer = !newer // it raises to a version of a later release
				}
				if v, ok := e.(*event.ClusterCreated); ok && v.Version > event.Version && s.Seq == 0 {
					newer = !newer
				}
				if newer || (err != nil && !errors.Is(err, ErrContradiction) && !errors.Is(err, event.ErrNewer)) {
					t.Errorf("%s: %v", k, err)
				}
			}
		}
	}
}

// TestEnvelopes: the order of history is part of every event.
func TestEnvelopes(t *testing.T) {
	ok := &event.UserPut{User: spec.User{Name: "eve"}}
	for name, tt := range map[string]struct {
		env    func(s *State) event.Envelope
		frozen bool
		text   string
	}{
		"gap":     {func(s *State) event.Envelope { return event.Envelope{Seq: s.Seq + 2, At: s.At, Event: ok} }, false, "event 32 follows event 30"},
		"twice":   {func(s *State) event.Envelope { return event.Envelope{Seq: s.Seq, At: s.At, Event: ok} }, false, "event 30 follows event 30"},
		"older":   {func(s *State) event.Envelope { return event.Envelope{Seq: s.Seq + 1, At: s.At - 1, Event: ok} }, false, "older than the one before"},
		"nothing": {func(s *State) event.Envelope { return event.Envelope{Seq: s.Seq + 1, At: s.At} }, false, "says nothing"},
		"frozen":  {func(s *State) event.Envelope { return event.Envelope{Seq: s.Seq + 1, At: s.At, Event: ok} }, true, "frozen state"},
	} {
		s := richState(t)
		if tt.frozen {
			s = s.Freeze()
		}
		env := tt.env(s)
		before := s.Hash()
		if err := s.Apply(&env); !errors.Is(err, ErrContradiction) || !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%s: %v, want %q", name, err, tt.text)
		}
		if s.Hash() != before {
			t.Errorf("%s: the refused event shows", name)
		}
	}
}

// TestRecordTypes keeps the types of a snapshot within what records hold.
func TestRecordTypes(t *testing.T) {
	set, err := snapshotTypes(event.Version)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := set.Append(nil, &struct{}{}); !errors.Is(err, record.ErrType) {
		t.Errorf("a type that was not compiled: %v", err)
	}
}
