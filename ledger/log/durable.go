package log

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// Durable is the replicated log on disk. It implements Log.
//
// A batch passes through: queue -> dispatcher -> raft's own queue -> raft's main goroutine,
// which stores what has gathered as one group with one sync -> raft's FSM goroutine, which
// applies and answers. The answer comes from the FSM, never from raft's futures, which may stay
// silent for ever at a shutdown.
type Durable struct {
	opts  Options
	alone bool
	raft  *raft.Raft
	trans raft.Transport // that raft has, which notes what others answer
	heard *heard
	store *logStore
	snaps *snapStore
	fsm   *fsm
	lock  io.Closer

	closing  chan struct{} // closed when Close begins to stop things
	done     chan struct{} // closed when the log has stopped for good
	finished chan struct{} // closed when Close is done
	wake     chan struct{} // the queue is not empty
	snapDue  chan struct{}
	snapReq  chan chan error
	notify   chan bool
	running  atomic.Bool
	hung     atomic.Bool // the disk does not answer; see checkDisk
	wg       sync.WaitGroup

	mu       sync.Mutex
	queue    []*pending      // not yet given to raft
	waiting  []*pending      // every pending without an answer, in order; the queue is its end
	bytes    int             // of waiting
	nextSeq  uint64          // of the next frame; one more each time, over all runs of this process
	stored   uint64          // seq of the last frame known durable here
	refused  uint64          // frames up to here that are not stored have been failed
	run      uint64          // the writer's current run
	runs     map[uint64]bool // every run of this process
	stopped  error           // why Append is refused until Resume; nil while it works
	dead     error           // why the log has stopped for good
	closed   bool            // Close has been called
	leading  bool
	over     chan struct{} // closed when the present lead ends; nil while another member leads
	changed  chan struct{} // closed and replaced at every change of leadership
	drained  chan struct{} // closed when waiting becomes empty, if somebody waits for that
	snapErr  error
	snapsNum uint64
}

// pending implements Pending. Its fields but done are written before done is closed.
type pending struct {
	kind  frameKind
	run   uint64
	seq   uint64
	frame []byte // header still blank
	done  chan struct{}
	pos   Position
	err   error
}

// Wait returns the answer.
func (p *pending) Wait(ctx context.Context) (Position, error) {
	select {
	case <-p.done:
		return p.pos, p.err
	default:
	}
	select {
	case <-p.done:
		return p.pos, p.err
	case <-ctx.Done():
		return 0, fmt.Errorf("waiting for the ledger's disk: %w", context.Cause(ctx))
	}
}

func failedBatch(err error) *pending {
	p := &pending{done: make(chan struct{}), err: err}
	close(p.done)
	return p
}

// Append enqueues a batch.
func (d *Durable) Append(batch []byte) Pending {
	p := &pending{kind: kindBatch, done: make(chan struct{})}
	if len(batch) <= MaxBatchBytes {
		p.frame = make([]byte, frameHeader+len(batch))
		copy(p.frame[frameHeader:], batch)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.closedErr(); err != nil {
		return failedBatch(err)
	}
	if d.stopped == nil {
		switch {
		case p.frame == nil:
			d.stopped = fmt.Errorf(
				"%w: %d bytes, at most %d",
				ErrTooLarge,
				len(batch),
				MaxBatchBytes,
			)
		case len(d.waiting) >= d.opts.MaxPending || d.bytes+len(batch) > d.opts.MaxPendingBytes:
			d.stopped = fmt.Errorf(
				"%w: %d batches of %d bytes wait",
				ErrBusy,
				len(d.waiting),
				d.bytes,
			)
		}
	}
	if d.stopped != nil {
		return failedBatch(d.stopped)
	}
	d.enqueueBatch(p)
	return p
}

// closedErr is why nothing is accepted any more. The caller holds mu.
func (d *Durable) closedErr() error {
	switch {
	case d.closed:
		return ErrClosed
	case d.dead != nil:
		return fmt.Errorf("%w: %w", ErrStopped, d.dead)
	}
	return nil
}

// enqueueBatch gives p its place. The caller holds mu.
func (d *Durable) enqueueBatch(p *pending) {
	if p.frame == nil {
		p.frame = make([]byte, frameHeader)
	}
	p.run, p.seq = d.run, d.nextSeq
	d.nextSeq++
	d.queue = append(d.queue, p)
	d.waiting = append(d.waiting, p)
	d.bytes += len(p.frame)
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// dispatchFrames feeds raft in order. It may block there while the disk is busy.
func (d *Durable) dispatchFrames() {
	defer d.wg.Done()
	for {
		select {
		case <-d.wake:
		case <-d.closing:
			return
		}
		d.mu.Lock()
		queue := d.queue
		d.queue = nil
		d.mu.Unlock()
		for _, p := range queue {
			sealFrame(p.frame, frame{kind: p.kind, run: p.run, seq: p.seq})
			d.raft.ApplyLog(raft.Log{Data: p.frame}, 0)
		}
	}
}

// finishBatch answers p. The caller holds mu and has taken p out of waiting.
func (d *Durable) finishBatch(p *pending, position Position, err error) {
	d.bytes -= len(p.frame)
	p.pos, p.err = position, err
	if err != nil {
		p.pos = 0
	}
	close(p.done)
}

// settleWaiting is called when waiting may have become empty. The caller holds mu.
func (d *Durable) settleWaiting() {
	if len(d.waiting) == 0 {
		d.waiting = nil
		if d.drained != nil {
			close(d.drained)
			d.drained = nil
		}
	}
}

// completeFrames answers the frames that the FSM has seen, in order.
func (d *Durable) completeFrames(results []applied) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range results {
		if !d.runs[r.run] {
			continue
		}
		for len(d.waiting) > 0 && d.waiting[0].seq <= r.seq {
			p := d.waiting[0]
			d.waiting = d.waiting[1:]
			if p.seq == r.seq {
				d.finishBatch(p, r.pos, r.err)
			} else {
				d.finishBatch(p, 0, d.failureCause()) // a later frame came through, so this one never will
			}
		}
	}
	d.settleWaiting()
}

func (d *Durable) failureCause() error {
	if d.stopped != nil {
		return d.stopped
	}
	return errStale
}

// failBatches refuses further batches until Resume, and fails the waiting ones that are not stored;
// all of them if even a stored one may be overruled by another leader.
func (d *Durable) failBatches(err error, all bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failLocked(err, all)
}

func (d *Durable) failLocked(err error, all bool) {
	if d.stopped == nil {
		d.stopped = err
	}
	keep := 0
	if !all {
		for keep < len(d.waiting) && d.waiting[keep].seq <= d.stored {
			keep++
		}
	}
	for _, p := range d.waiting[keep:] {
		d.finishBatch(p, 0, err)
	}
	d.waiting = d.waiting[:keep:keep]
	d.queue = nil
	d.refused = d.nextSeq - 1
	d.settleWaiting()
}

// stopForGood stops the log for good.
func (d *Durable) stopForGood(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead != nil {
		return
	}
	d.dead = err
	d.failLocked(fmt.Errorf("%w: %w", ErrStopped, err), true)
	if !d.closed {
		d.opts.Logger.Error("the ledger's log has stopped", "error", err)
	}
	close(d.done)
}

// The store's hooks.

func (d *Durable) onStored(logs []*raft.Log) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := len(logs) - 1; i >= 0; i-- {
		if logs[i].Type != raft.LogCommand {
			continue
		}
		if run, seq, ok := peekSeq(logs[i].Data); ok && d.runs[run] && seq > d.stored {
			d.stored = seq
			return
		}
	}
}

func (d *Durable) onStoreFailed(err error) { d.failBatches(err, false) }

// refuseFailed keeps out a frame that its writer was told has failed. Only in a cluster of one can
// that be promised: elsewhere such a frame may come back from another member.
func (d *Durable) refuseFailed(logs []*raft.Log) bool {
	if !d.alone {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, entry := range logs {
		if entry.Type != raft.LogCommand {
			continue
		}
		if run, seq, ok := peekSeq(entry.Data); ok && d.runs[run] && seq <= d.refused &&
			seq > d.stored {
			return true
		}
	}
	return false
}

// mayCompact limits compaction to the older of the two snapshots and asks the archive.
func (d *Durable) mayCompact(hi uint64) (uint64, error) {
	if d.opts.StartAt > 0 {
		return hi, nil // what is before the snapshot holds no state
	}
	indexes, err := d.snaps.listIndexes()
	if err != nil {
		return 0, err
	}
	if len(indexes) < snapsKept {
		return 0, nil
	}
	if err := d.mayForget(); err != nil {
		return 0, d.snaps.rememberError(err) // raft would pass on only its text
	}
	return min(hi, indexes[1]), nil
}

// DropStart drops what the log holds up to its newest snapshot. Only for a log that began with
// StartAt: its first entries do not lead to its state, and a member that joins would be sent
// them instead of the snapshot.
func (d *Durable) DropStart() error {
	if d.opts.StartAt == 0 {
		return errors.New("only a log that began with a state has a start to drop")
	}
	indexes, err := d.snaps.listIndexes()
	if err != nil {
		return err
	}
	first, err := d.store.FirstIndex()
	if err != nil || len(indexes) == 0 || first == 0 || first > indexes[0] {
		return err
	}
	return d.store.DeleteRange(first, indexes[0])
}

// mayClear asks the archive before the whole log is dropped for a snapshot of the leader.
func (d *Durable) mayClear() error {
	if d.opts.Witness {
		return nil // it has no archive, and the leader has what the snapshot stands for
	}
	return d.mayForget()
}

func (d *Durable) mayForget() error {
	position := Position(d.fsm.snapPos.Load())
	if err := d.opts.BeforeCompact(position); err != nil {
		return fmt.Errorf("the log keeps its batches up to %d: %w", position, err)
	}
	return nil
}

// LastPosition is the last batch applied here.
func (d *Durable) LastPosition() Position { return Position(d.fsm.pos.Load()) }

// Leader is what raft says about who leads.
func (d *Durable) Leader() Leadership {
	if d.hung.Load() && d.raft.State() == raft.Leader {
		return Leadership{} // raft has not heard yet that this member gave up the lead
	}
	addr, id := d.raft.LeaderWithID()
	return Leadership{
		Known:   id != "",
		Self:    string(id) == d.opts.NodeID,
		ID:      string(id),
		Address: string(addr),
	}
}

// Done is closed when the log has stopped for good.
func (d *Durable) Done() <-chan struct{} { return d.done }

// Err is why.
func (d *Durable) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dead
}

// Headroom asks the filesystem.
func (d *Durable) Headroom() (Headroom, error) {
	free, err := d.opts.FS.Free(d.opts.Dir)
	return Headroom{Free: free, Reserve: d.opts.ReserveBytes}, err
}

// Stats gathers the counters.
func (d *Durable) Stats() Stats {
	stats := Stats{
		Batches:      d.fsm.batches.Load(),
		Bytes:        d.fsm.batchBytes.Load(),
		Fenced:       d.fsm.fenced.Load(),
		Groups:       d.store.groups.Load(),
		GroupMax:     d.store.groupMax.Load(),
		SyncNanos:    d.store.syncNanos.Load(),
		Failures:     d.store.failures.Load(),
		DroppedTail:  d.store.dropped.Load(),
		LastPosition: d.LastPosition(),
	}
	// The log may be closed, then its extent is unknown and stays zero.
	stats.FirstIndex, _ = d.store.FirstIndex()
	stats.LastIndex, _ = d.store.LastIndex()
	if indexes, err := d.snaps.listIndexes(); err == nil && len(indexes) > 0 {
		stats.SnapshotIndex = indexes[0]
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	stats.Pending = len(d.waiting)
	stats.PendingBytes = d.bytes
	stats.Snapshots = d.snapsNum
	if d.snapErr != nil {
		stats.SnapshotError = d.snapErr.Error()
	}
	return stats
}
