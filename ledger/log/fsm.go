package log

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// fsm is what raft replicates: the machine, its position, and the fence that keeps a batch out
// whose predecessor failed. raft calls it from one goroutine.
type fsm struct {
	machine Machine
	// stateless is set on a witness.
	stateless bool
	every     uint64 // batches and bytes after which a snapshot is due
	bytes     uint64
	// complete tells what became of frames, due that a snapshot should be taken, fatal that the
	// machine refused a batch.
	complete func([]applied)
	due      func()
	fatal    func(error)
	closing  <-chan struct{}

	run, seq   uint64 // fence: the current run of the writer and the last place in it
	index      atomic.Uint64
	pos        atomic.Uint64
	snapPos    atomic.Uint64 // position of the last snapshot taken or restored
	batches    atomic.Uint64
	batchBytes atomic.Uint64
	fenced     atomic.Uint64
	since      uint64 // batches and bytes since the last snapshot
	sinceBytes uint64
	err        error // the machine's refusal; nothing is applied after it
	restoreErr error
}

// applied is what became of one frame.
type applied struct {
	run, seq uint64
	pos      Position
	err      error
}

// Apply applies one entry. raft uses ApplyBatch instead, except to recover a cluster by hand.
func (f *fsm) Apply(entry *raft.Log) any { return f.ApplyBatch([]*raft.Log{entry})[0] }

// ApplyBatch applies the entries of one group.
func (f *fsm) ApplyBatch(logs []*raft.Log) []any {
	results := make([]applied, 0, len(logs))
	for _, entry := range logs {
		if f.err != nil {
			break
		}
		if entry.Type == raft.LogCommand {
			results = append(results, f.applyEntry(entry))
		}
		if f.err == nil {
			f.index.Store(entry.Index)
		}
	}
	f.complete(results)
	if f.err != nil {
		f.fatal(f.err)
	} else if f.since >= f.every || f.sinceBytes >= f.bytes {
		f.due()
	}
	return make([]any, len(logs))
}

func (f *fsm) applyEntry(entry *raft.Log) applied {
	fr, err := decodeFrame(entry.Data)
	if err != nil {
		f.err = fmt.Errorf("entry %d of the ledger's log: %w", entry.Index, err)
		return applied{err: f.err}
	}
	out := applied{run: fr.run, seq: fr.seq, pos: Position(f.pos.Load())}
	switch {
	case fr.kind == kindOpen:
		f.run, f.seq = fr.run, fr.seq
		return out
	case fr.run != f.run || fr.seq != f.seq+1:
		f.fenced.Add(1)
		out.err = errStale
		return out
	}
	f.seq = fr.seq
	if fr.kind == kindBarrier {
		return out
	}
	out.pos++
	if err := f.machine.Apply(out.pos, fr.payload); err != nil {
		f.err = fmt.Errorf("apply batch %d: %w", out.pos, err)
		out.err = f.err
		return out
	}
	f.pos.Store(uint64(out.pos))
	f.batches.Add(1)
	f.batchBytes.Add(uint64(len(fr.payload)))
	f.since++
	f.sinceBytes += uint64(len(fr.payload))
	return out
}

// A snapshot's content begins with the fence and the position; the machine's own encoding follows.
const (
	fsmMagic = "MFSM"
	// witnessMagic begins a snapshot without state.
	witnessMagic = "MWIT"
	fsmVersion   = 1
	fsmHeader    = 32
)

// Snapshot captures the machine.
func (f *fsm) Snapshot() (raft.FSMSnapshot, error) {
	if f.err != nil {
		return nil, f.err
	}
	write, err := f.machine.Snapshot()
	if err != nil {
		return nil, err
	}
	head := binary.LittleEndian.AppendUint32([]byte(fsmMagic), fsmVersion)
	head = appendUint64(appendUint64(appendUint64(head, f.pos.Load()), f.run), f.seq)
	if f.stateless {
		markStateless(head)
	}
	f.since, f.sinceBytes = 0, 0
	f.snapPos.Store(f.pos.Load())
	return &fsmSnapshot{head: head, write: write, closing: f.closing}, nil
}

// Restore replaces the machine's state by a snapshot's.
func (f *fsm) Restore(rc io.ReadCloser) error {
	err := f.restoreState(rc)
	f.restoreErr = err
	return err
}

func (f *fsm) restoreState(r io.Reader) error {
	var head [fsmHeader]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return fmt.Errorf("read the head of a snapshot: %w", err)
	}
	if isStateless(head[:]) && !f.stateless {
		return errStateless
	}
	position, err := snapshotPosition(head[:])
	if err != nil {
		return err
	}
	if err := f.machine.Restore(r); err != nil {
		return fmt.Errorf("restore the snapshot of batch %d: %w", position, err)
	}
	// Reading to the end makes sure that the last chunk and the end mark are checked, too.
	n, err := io.Copy(io.Discard, r)
	if err == nil && n > 0 {
		err = fmt.Errorf("the machine left %d bytes of the snapshot unread", n)
	}
	if err != nil {
		return err
	}
	f.pos.Store(uint64(position))
	f.run, f.seq = binary.LittleEndian.Uint64(head[16:]), binary.LittleEndian.Uint64(head[24:])
	f.snapPos.Store(f.pos.Load())
	f.since, f.sinceBytes = 0, 0
	return nil
}

// snapshotPosition reads the position from the head of a snapshot's content.
func snapshotPosition(head []byte) (Position, error) {
	if string(head[:4]) != fsmMagic && !isStateless(head) {
		return 0, fmt.Errorf("%w: a snapshot's content does not begin as one", ErrCorrupt)
	}
	if v := binary.LittleEndian.Uint32(head[4:]); v > fsmVersion {
		return 0, newerError("a snapshot's content", int(v), fsmVersion)
	}
	return Position(binary.LittleEndian.Uint64(head[8:])), nil
}

type fsmSnapshot struct {
	head    []byte
	write   func(io.Writer) error
	closing <-chan struct{}
}

// Persist writes the snapshot; it gives up when the log closes.
func (s *fsmSnapshot) Persist(sink raft.SnapshotSink) error {
	writer := &closingWriter{w: sink, closing: s.closing}
	if _, err := writer.Write(s.head); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	if err := s.write(writer); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

// Release has nothing to free: the captured state is garbage once forgotten.
func (s *fsmSnapshot) Release() {}

type closingWriter struct {
	w       io.Writer
	closing <-chan struct{}
}

func (c *closingWriter) Write(p []byte) (int, error) {
	select {
	case <-c.closing:
		return 0, ErrClosed
	default:
		return c.w.Write(p)
	}
}
