package state

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// place is an event of a history as somebody remembers it.
type place struct{ epoch, seq uint64 }

// grow adds epochs and ordinary events to a state and gives the places of all.
func grow(t *rapid.T, s *State, nextEpoch *uint64, name string) []place {
	var out []place
	for range rapid.IntRange(1, 12).Draw(t, name) {
		var e event.Event = &event.UserPut{User: spec.User{Name: "eve"}}
		if rapid.IntRange(0, 3).Draw(t, "kind") == 0 {
			*nextEpoch++
			e = &event.EpochBegan{Value: *nextEpoch}
		}
		if err := s.Apply(&event.Envelope{Seq: s.Seq + 1, At: s.At, Event: e}); err != nil {
			t.Fatal(err)
		}
		out = append(out, place{s.CurrentEpoch(), s.Seq})
	}
	return out
}

// TestPositionsTellHistoriesApart: of two histories that part from one backup
// each knows every position of its own and of what is common, and none of what
// the other wrote after its first own epoch.
func TestPositionsTellHistoriesApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var epoch uint64
		common := New()
		before := grow(t, common, &epoch, "common")
		backup := common.Freeze()
		lost := backup.Fork()
		beyond := grow(t, lost, &epoch, "lost")
		restored := backup.Fork()
		epoch++
		if err := restored.Apply(&event.Envelope{Seq: restored.Seq + 1, At: restored.At, Event: &event.EpochBegan{Value: epoch}}); err != nil {
			t.Fatal(err)
		}
		after := append([]place{{epoch, restored.Seq}}, grow(t, restored, &epoch, "restored")...)
		for _, p := range before {
			if !lost.HasSeen(p.epoch, p.seq) || !restored.HasSeen(p.epoch, p.seq) {
				t.Fatalf("%+v is common, but not known: %+v and %+v", p, lost.Epochs, restored.Epochs)
			}
		}
		for _, p := range beyond {
			if !lost.HasSeen(p.epoch, p.seq) || restored.HasSeen(p.epoch, p.seq) {
				t.Fatalf("%+v is of the lost history only: %+v and %+v", p, lost.Epochs, restored.Epochs)
			}
		}
		for _, p := range after {
			if lost.HasSeen(p.epoch, p.seq) || !restored.HasSeen(p.epoch, p.seq) {
				t.Fatalf("%+v is of the restored history only: %+v and %+v", p, lost.Epochs, restored.Epochs)
			}
		}
	})
}

// TestLostHistoryRaisesTheNumbers: what somebody has seen given away is not
// given away again, and what is here cannot be recorded as lost.
func TestLostHistoryRaisesTheNumbers(t *testing.T) {
	s := New()
	apply := func(e event.Event) error {
		return s.Apply(&event.Envelope{Seq: s.Seq + 1, At: s.At, Event: e})
	}
	if err := apply(&event.EpochBegan{Value: 7}); err != nil {
		t.Fatal(err)
	}
	if err := apply(&event.HistoryLost{Witness: "node n1", Seen: event.Position{Epoch: 9, Seq: 40, NextUID: 31, NextID: 305}}); err != nil {
		t.Fatal(err)
	}
	if s.NextUID != 31 || s.NextID != 305 {
		t.Errorf("the next job is uid %d, number %d", s.NextUID, s.NextID)
	}
	if err := apply(&event.HistoryLost{Witness: "archive", Seen: event.Position{Epoch: 9, Seq: 41, NextUID: 3, NextID: 2}}); err != nil {
		t.Fatal(err)
	}
	if s.NextUID != 31 || s.NextID != 305 || s.Lost.Times != 2 || s.Lost.Witness != "archive" {
		t.Errorf("numbers %d and %d, %+v", s.NextUID, s.NextID, s.Lost)
	}
	var b bytes.Buffer
	if err := s.Encode(&b); err != nil {
		t.Fatal(err)
	}
	back, err := Decode(&b)
	if err != nil || back.Hash() != s.Hash() || back.Lost == nil || !back.HasSeen(7, 3) {
		t.Errorf("after a snapshot: %+v, %v", back, err)
	}
	for _, e := range []event.Event{&event.HistoryLost{Seen: event.Position{Epoch: 7, Seq: 2}}, &event.EpochBegan{Value: 7}, &event.EpochBegan{}} {
		if err := s.Freeze().Fork().Apply(&event.Envelope{Seq: s.Seq + 1, At: s.At, Event: e}); !errors.Is(err, ErrContradiction) {
			t.Errorf("%s: %v", e.Kind(), err)
		}
	}
}
