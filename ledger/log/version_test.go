package log

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"github.com/hashicorp/raft"
	"pgregory.net/rapid"
)

type nullMachine struct{}

func (nullMachine) Apply(Position, []byte) error { return nil }
func (nullMachine) Snapshot() (func(io.Writer) error, error) {
	return func(io.Writer) error { return nil }, nil
}
func (nullMachine) Restore(io.Reader) error { return nil }

// TestNewerFrame puts a frame of a newer release into the log: this one stops, and says so again at the next start.
func TestNewerFrame(t *testing.T) {
	for name, change := range map[string]func(b []byte){
		"version": func(b []byte) { b[2] = frameVersion + 1 },
		"kind":    func(b []byte) { b[3] = 200; binary.LittleEndian.PutUint32(b[4:], frameSum(b)) },
	} {
		t.Run(name, func(t *testing.T) {
			opts := Options{Dir: t.TempDir(), Machine: nullMachine{}}
			d, err := Open(context.Background(), opts)
			if err != nil {
				t.Fatal(err)
			}
			b := make([]byte, frameHeader+5)
			sealFrame(b, frame{kind: kindBatch, run: 1, seq: 1})
			change(b)
			d.raft.ApplyLog(raft.Log{Data: b}, 0)
			<-d.Done()
			if !errors.Is(d.Err(), ErrNewerVersion) {
				t.Fatalf("stopped with %v", d.Err())
			}
			if err := d.Close(context.Background()); err != nil {
				t.Fatal(err)
			}
			if _, err := Open(context.Background(), opts); !errors.Is(err, ErrNewerVersion) || errors.Is(err, ErrCorrupt) {
				t.Fatalf("reopened: %v", err)
			}
		})
	}
}

// TestFence feeds the FSM frames in any order: what it accepts of a run is always the next one, and every member decides alike.
func TestFence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		accepted := map[uint64][]uint64{}
		f := &fsm{machine: nullMachine{}, every: 1 << 62, bytes: 1 << 62, due: func() {}, fatal: func(err error) { t.Fatal(err) }}
		f.complete = func(rs []applied) {
			for _, r := range rs {
				if r.err == nil {
					accepted[r.run] = append(accepted[r.run], r.seq)
				}
			}
		}
		opened := map[uint64]uint64{}
		var batches uint64
		for i := range rapid.IntRange(1, 200).Draw(t, "frames") {
			b := make([]byte, frameHeader)
			fr := frame{kind: frameKind(rapid.SampledFrom([]int{1, 1, 1, 1, 1, 2, 3}).Draw(t, "kind")),
				run: rapid.Uint64Range(1, 3).Draw(t, "run"), seq: rapid.Uint64Range(1, 6).Draw(t, "seq")}
			if fr.kind == kindOpen {
				fr.run = uint64(1000 + i) // runs are never reused
				opened[fr.run] = fr.seq
			} else if n := uint64(len(opened)); n > 0 {
				fr.run, fr.seq = f.run, f.seq+rapid.Uint64Range(0, 2).Draw(t, "ahead")
			}
			sealFrame(b, fr)
			before := f.pos.Load()
			f.Apply(&raft.Log{Index: uint64(i + 1), Type: raft.LogCommand, Data: b})
			if f.pos.Load() > before {
				batches++
				if fr.kind != kindBatch {
					t.Fatalf("a frame of kind %d took a position", fr.kind)
				}
			}
		}
		if f.pos.Load() != batches {
			t.Fatalf("position %d after %d batches", f.pos.Load(), batches)
		}
		for run, seqs := range accepted {
			start, ok := opened[run]
			if !ok {
				t.Fatalf("run %d was never opened", run)
			}
			for i, s := range seqs {
				if s != start+uint64(i) {
					t.Fatalf("run %d opened at %d accepted %v", run, start, seqs)
				}
			}
		}
	})
}

// FuzzDecode: no bytes make the decoders panic or accept a wrong length.
func FuzzDecode(f *testing.F) {
	b := make([]byte, frameHeader+3)
	sealFrame(b, frame{kind: kindBatch, run: 3, seq: 4})
	f.Add(b)
	f.Add([]byte("MB\x01\x01"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if fr, err := decodeFrame(b); err == nil && len(fr.payload) != len(b)-frameHeader {
			t.Fatalf("payload of %d bytes in %d", len(fr.payload), len(b))
		}
		var l raft.Log
		// Random bytes never carry the right salted sum.
		if err := decodeEntry(b, &l, 12345); err == nil && len(b) < 20 {
			t.Fatalf("accepted %x", b)
		}
	})
}
