package state

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/event/eventtest"
	"github.com/musterhpc/muster/spec"
)

// fold applies a log to an empty state.
func fold(t rapid.TB, log []event.Envelope) *State {
	t.Helper()
	s := New()
	resume(t, s, log)
	return s
}

func resume(t rapid.TB, s *State, log []event.Envelope) {
	t.Helper()
	for i := range log {
		if err := s.Apply(&log[i]); err != nil {
			t.Fatalf("replay: %v", err)
		}
	}
}

// reload writes a snapshot and reads it back.
func reload(t rapid.TB, s *State) *State {
	t.Helper()
	var b bytes.Buffer
	if err := s.Encode(&b); err != nil {
		t.Fatal(err)
	}
	written := bytes.Clone(b.Bytes())
	b.WriteString("behind")
	got, err := Decode(&b)
	if err != nil {
		t.Fatalf("decode: %v", err)
	}
	if b.String() != "behind" {
		t.Fatalf("%d bytes behind the snapshot are left of 6", b.Len())
	}
	if err := got.Check(); err != nil {
		t.Fatalf("after decode: %v", err)
	}
	// A controller of an older release may be brought up by this snapshot.
	if _, err := decodeAs(max(s.Version, 1), bytes.NewReader(written)); err != nil {
		t.Fatalf("a release that knows version %d of the ledger does not read a snapshot of that version: %v", s.Version, err)
	}
	if got.Hash() != s.Hash() {
		t.Fatal("a snapshot changes the hash")
	}
	if err := got.Encode(&b); err != nil || !bytes.Equal(b.Bytes()[6:], written) {
		t.Fatalf("written twice, the snapshot differs (%v)", err)
	}
	return got
}

// viaCodec is the log as a restart reads it: encoded and decoded.
func viaCodec(t rapid.TB, log []event.Envelope) []event.Envelope {
	t.Helper()
	c, err := event.NewCodec()
	if err != nil {
		t.Fatal(err)
	}
	data, err := c.Encode(log)
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestLegalHistories makes random legal histories. After every event all
// invariants hold (put checks them); every frozen copy stays what it was; a
// fork changes nothing; and a restart at any point, from the log or from a
// snapshot and the tail, gives the same state.
func TestLegalHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		type copied struct {
			s    *State
			hash [32]byte
		}
		var frozen []copied
		for range rapid.IntRange(1, 80).Draw(t, "events") {
			w.step()
			switch rapid.IntRange(0, 19).Draw(t, "between") {
			case 0:
				f := w.s.Freeze()
				frozen = append(frozen, copied{f, f.Hash()})
			case 1:
				w.fork()
			case 2:
				w.s = reload(t, w.s) // the controller restarts
			}
		}
		for _, f := range frozen {
			if err := f.s.Check(); err != nil {
				t.Fatalf("the frozen state of event %d: %v", f.s.Seq, err)
			}
			if f.s.Hash() != f.hash {
				t.Fatalf("the frozen state of event %d has changed", f.s.Seq)
			}
		}
		log := viaCodec(t, w.log)
		cut := rapid.IntRange(0, len(log)).Draw(t, "cut")
		half := fold(t, log[:cut])
		tail := reload(t, half.Freeze())
		resume(t, half, log[cut:])
		resume(t, tail, log[cut:])
		if h := w.s.Hash(); half.Hash() != h || tail.Hash() != h {
			t.Fatalf("live %x, replayed %x, snapshot at %d and tail %x", h[:4], half.Hash(), cut, tail.Hash())
		}
		if err := tail.Check(); err != nil {
			t.Fatalf("snapshot and tail: %v", err)
		}
	})
}

// fork runs a trial on a copy; the state it was made of must not notice.
func (w *world) fork() {
	w.t.Helper()
	f := w.s.Freeze()
	before := f.Hash()
	trial := &world{t: w.t, s: f.Fork(), conf: w.conf}
	for range w.int(1, 10) {
		trial.step()
	}
	if f.Hash() != before || w.s.Hash() != before {
		w.t.Fatal("a trial shows in the state it was made of")
	}
	if err := f.Check(); err != nil {
		w.t.Fatalf("a trial damaged an index of the state it was made of: %v", err)
	}
}

// TestListsAreCopied: a list that has room behind its end is not grown in
// place, where a frozen copy would see it.
func TestListsAreCopied(t *testing.T) {
	s := New()
	put := func(line string) {
		t.Helper()
		e, err := parseEvent(line)
		if err == nil {
			err = s.Apply(&event.Envelope{Seq: s.Seq + 1, At: s.At, Event: e})
		}
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	put("config nodes=n1 cpus=8 mem=8000")
	for uid := 1; uid < 5; uid++ {
		put(fmt.Sprintf("submit %d", uid))
	}
	for uid := 2; uid < 5; uid++ {
		put(fmt.Sprintf("start %d 0:n1:%d", uid, uid))
	}
	s = reload(t, s)
	f := s.Freeze()
	before := all(t, f)
	put("start 1 0:n1:1")
	put("done 3 n1")
	if all(t, f) != before {
		t.Errorf("the frozen state changed from\n%s\nto\n%s", before, all(t, f))
	}
}

// near draws ids and names that exist, or nearly do.
type near struct{ w *world }

func (n near) Int(t *rapid.T, typ reflect.Type, _ int) int64 {
	return rapid.Int64Range(-1, 12).Draw(t, typ.Name())
}

func (n near) Uint(t *rapid.T, typ reflect.Type, bits int) uint64 {
	switch typ {
	case reflect.TypeFor[spec.JobUID]():
		return rapid.Uint64Range(0, uint64(n.w.s.NextUID)+1).Draw(t, "uid")
	case reflect.TypeFor[spec.JobID]():
		return rapid.Uint64Range(0, uint64(n.w.s.NextID)+1).Draw(t, "id")
	case reflect.TypeFor[spec.NodeID]():
		return rapid.Uint64Range(0, 4).Draw(t, "node")
	case reflect.TypeFor[spec.JobState](): // mostly real ones
		return rapid.Uint64Range(0, uint64(spec.OutOfMemory)+1).Draw(t, "state")
	}
	if bits == 64 {
		return rapid.Uint64Range(0, 31).Draw(t, "word")
	}
	return rapid.Uint64Range(0, 4).Draw(t, typ.Name())
}

func (n near) String(t *rapid.T, _ reflect.Type, _ string) string {
	return rapid.SampledFrom([]string{"", "n1", "n2", "n3", "n4", "n5", "alice", "bob", "ml", "bio", "normal", "part", "batch", "gpu",
		"shard", "matlab", "fast", "h100", "GPU-n1-0", "GPU-n2-1", "gres/gpu", "cpu"}).Draw(t, "name")
}

// TestAnyEvent throws random events, legal or not, at states that legal
// histories gave: each is either refused as a contradiction or leaves every
// invariant whole, and none makes the fold panic.
func TestAnyEvent(t *testing.T) {
	codec, err := event.NewCodec()
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		for range rapid.IntRange(1, 25).Draw(t, "events") {
			w.step()
		}
		f := w.s.Freeze()
		for range 20 {
			trial := f.Fork()
			env := event.Envelope{Seq: f.Seq + 1, At: f.At, Event: w.anything(trial)}
			if needs, _, err := codec.Needs(env.Event); err != nil || needs > max(trial.Version, 1) {
				continue // the writer refuses it
			}
			err := trial.Apply(&env)
			switch {
			case err == nil:
				if err := trial.Check(); err != nil {
					t.Fatalf("%s %+v is accepted and breaks the state: %v", env.Event.Kind(), env.Event, err)
				}
				reload(t, trial)
			case !errors.Is(err, ErrContradiction) && !errors.Is(err, event.ErrNewer):
				t.Fatalf("%s %+v: untyped error %v", env.Event.Kind(), env.Event, err)
			}
		}
		if f.Hash() != w.s.Hash() || f.Check() != nil {
			t.Fatal("a refused event shows in the state it was tried on")
		}
	})
}

// anything draws an event around what the state holds: attempts are mostly
// current, vectors mostly what the nodes say, so that not all are refused at
// the first look.
func (w *world) anything(s *State) event.Event {
	e := eventtest.Random(w.t, rapid.SampledFrom(event.Kinds()).Draw(w.t, "kind"), near{w})
	if w.coin() {
		return e
	}
	switch e := e.(type) {
	case *event.JobSubmitted:
		e.UID, e.ID = s.NextUID, s.NextID
	case *event.JobStarted:
		if j := s.Job(e.UID); j != nil {
			e.Attempt = j.Attempt + 1
		}
		if e.Alloc == nil {
			break
		}
		e.Alloc.Licenses, e.Alloc.TRES = nil, spec.TRES{Node: int64(len(e.Alloc.Nodes))}
		for i := range e.Alloc.Nodes {
			p := &e.Alloc.Nodes[i]
			if n := s.NodeByID(p.ID); n != nil {
				p.Name = n.Spec.Name
			}
			p.CPUs, p.GPUs = p.CPUs[:min(len(p.CPUs), 1)], nil
			e.Alloc.TRES.CPU += int64(p.CPUs.Count())
		}
	case *event.JobEnded:
		if j := s.Job(e.UID); j != nil {
			e.Attempt = j.Attempt
		}
	case *event.JobRequeued:
		if j := s.Job(e.UID); j != nil {
			e.Attempt = j.Attempt
		}
	case *event.ArrayTaskSplit:
		e.UID, e.ID = s.NextUID, s.NextID
	}
	return e
}
