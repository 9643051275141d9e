package log

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"sync"
)

var _ Log = (*Memory)(nil)

// MemoryStore is the disk of a Memory log: it outlives the log, so that a restart can be simulated.
type MemoryStore struct {
	mu      sync.Mutex
	snap    []byte // newest snapshot, nil when none was taken
	snapPos Position
	tail    [][]byte // batches after it
}

// MemoryOptions configure OpenMemory. Only Machine is required.
type MemoryOptions struct {
	Machine Machine
	Store   *MemoryStore
	// Inline applies batches inside Append, on the caller's goroutine, so that a simulation
	// stays in one.
	Inline bool
	// Fault, when set, is asked before a batch is stored; its error ends the run of the writer
	// as a full disk would.
	Fault func(batch []byte) error
	// Headroom, when set, is what Headroom answers.
	Headroom func() Headroom
	// AtLeast is as in Options.
	AtLeast Position
}

// Memory is the twin of Durable without a disk. It implements Log.
type Memory struct {
	opts  MemoryOptions
	store *MemoryStore
	done  chan struct{}
	wake  chan struct{}
	wg    sync.WaitGroup

	apply sync.Mutex // held while the machine is called

	mu      sync.Mutex
	queue   []*memPending
	stopped error // why Append is refused until Resume
	fault   error // why what is queued fails, too
	dead    error
	closed  bool
	pos     Position
	stats   Stats
}

type memPending struct {
	pending
	barrier bool
	batch   []byte
}

// NewMemory returns an empty log without a disk.
func NewMemory(machine Machine) *Memory {
	// An empty store has nothing to restore, so nothing can fail.
	memory, _ := OpenMemory(MemoryOptions{Machine: machine})
	return memory
}

// OpenMemory restores the machine from the store and returns a log that continues there.
func OpenMemory(opts MemoryOptions) (*Memory, error) {
	if opts.Store == nil {
		opts.Store = &MemoryStore{}
	}
	memory := &Memory{
		opts:  opts,
		store: opts.Store,
		done:  make(chan struct{}),
		wake:  make(chan struct{}, 1),
	}
	if err := memory.replay(); err != nil {
		return nil, err
	}
	if memory.pos < opts.AtLeast {
		return nil, corruptError(
			"memory",
			0,
			cureSegment,
			"the log ends at batch %d, but batch %d was acknowledged",
			memory.pos,
			opts.AtLeast,
		)
	}
	if !opts.Inline {
		memory.wg.Add(1)
		go memory.run()
	}
	return memory, nil
}

func (m *Memory) replay() error {
	m.store.mu.Lock()
	defer m.store.mu.Unlock()
	if m.store.snap != nil {
		if err := m.opts.Machine.Restore(bytes.NewReader(m.store.snap)); err != nil {
			return fmt.Errorf("restore the snapshot of batch %d: %w", m.store.snapPos, err)
		}
		m.pos = m.store.snapPos
	}
	for _, b := range m.store.tail {
		if err := m.opts.Machine.Apply(m.pos+1, b); err != nil {
			return fmt.Errorf("apply batch %d: %w", m.pos+1, err)
		}
		m.pos++
	}
	m.stats.LastPosition = m.pos
	return nil
}

func (m *Memory) run() {
	defer m.wg.Done()
	for {
		select {
		case <-m.wake:
			m.drainQueue()
		case <-m.done:
			return
		}
	}
}

// Append enqueues a batch.
func (m *Memory) Append(batch []byte) Pending {
	p := &memPending{batch: append([]byte{}, batch...)}
	p.done = make(chan struct{})
	m.mu.Lock()
	err := m.closedErr()
	if err == nil && m.stopped == nil && len(batch) > MaxBatchBytes {
		m.stopped = fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(batch), MaxBatchBytes)
	}
	if err == nil {
		err = m.stopped
	}
	if err == nil {
		m.queue = append(m.queue, p)
	}
	m.mu.Unlock()
	if err != nil {
		return failedBatch(err)
	}
	m.kick()
	return p
}

func (m *Memory) kick() {
	if m.opts.Inline {
		m.drainQueue()
		return
	}
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

func (m *Memory) closedErr() error {
	switch {
	case m.closed:
		return ErrClosed
	case m.dead != nil:
		return fmt.Errorf("%w: %w", ErrStopped, m.dead)
	}
	return nil
}

// drainQueue applies what is queued, in order.
func (m *Memory) drainQueue() {
	m.apply.Lock()
	defer m.apply.Unlock()
	for {
		m.mu.Lock()
		if len(m.queue) == 0 {
			m.mu.Unlock()
			return
		}
		p := m.queue[0]
		m.queue = m.queue[1:]
		cause := m.fault
		m.mu.Unlock()
		m.answer(p, cause)
	}
}

func (m *Memory) answer(p *memPending, cause error) {
	defer close(p.done)
	p.err = cause
	if cause != nil {
		return
	}
	if p.barrier {
		p.pos = m.LastPosition()
		return
	}
	if m.opts.Fault != nil {
		if err := m.opts.Fault(p.batch); err != nil {
			p.err = err
			m.mu.Lock()
			defer m.mu.Unlock()
			m.stopped, m.fault = err, err
			m.stats.Failures++
			return
		}
	}
	position := m.LastPosition() + 1
	// Stored before applied, as on disk: a batch that the machine refuses is refused again
	// after a restart.
	m.store.mu.Lock()
	m.store.tail = append(m.store.tail, p.batch)
	m.store.mu.Unlock()
	err := m.opts.Machine.Apply(position, p.batch)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		m.dead = fmt.Errorf("apply batch %d: %w", position, err)
		m.stopped = fmt.Errorf("%w: %w", ErrStopped, m.dead)
		p.err = m.stopped
		close(m.done)
		for _, q := range m.queue {
			q.err = m.stopped
			close(q.done)
		}
		m.queue = nil
		return
	}
	p.pos, m.pos = position, position
	m.stats.Batches++
	m.stats.Groups++
	m.stats.GroupMax = 1
	m.stats.Bytes += uint64(len(p.batch))
	m.stats.LastPosition = position
}

// Barrier waits until everything appended before it is applied.
func (m *Memory) Barrier(ctx context.Context) error {
	p := &memPending{barrier: true}
	p.done = make(chan struct{})
	m.mu.Lock()
	err := m.closedErr()
	if err == nil {
		err = m.stopped
	}
	if err == nil {
		m.queue = append(m.queue, p)
	}
	m.mu.Unlock()
	if err != nil {
		return err
	}
	m.kick()
	_, err = p.Wait(ctx)
	return err
}

// Resume accepts batches again after a fault.
func (m *Memory) Resume(context.Context) error {
	m.drainQueue() // fail what was queued behind the fault
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.closedErr(); err != nil {
		return err
	}
	m.stopped, m.fault = nil, nil
	return nil
}

// LastPosition is the last batch applied.
func (m *Memory) LastPosition() Position {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pos
}

// Leader is always this log.
func (m *Memory) Leader() Leadership {
	return Leadership{Known: true, Self: true, ID: "memory", Address: "memory"}
}

// Snapshot encodes the machine into the store and forgets the batches before.
func (m *Memory) Snapshot(context.Context) error {
	m.apply.Lock()
	defer m.apply.Unlock()
	m.mu.Lock()
	err, position := m.closedErr(), m.pos
	m.mu.Unlock()
	if err != nil {
		return err
	}
	write, err := m.opts.Machine.Snapshot()
	if err != nil {
		return err
	}
	var buf bytes.Buffer
	if err := write(&buf); err != nil {
		return err
	}
	m.store.mu.Lock()
	m.store.tail = append([][]byte{}, m.store.tail[position-m.store.snapPos:]...)
	m.store.snap, m.store.snapPos = append([]byte{}, buf.Bytes()...), position
	m.store.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stats.Snapshots++
	return nil
}

// Headroom is unlimited unless the options say otherwise.
func (m *Memory) Headroom() (Headroom, error) {
	if m.opts.Headroom != nil {
		return m.opts.Headroom(), nil
	}
	return Headroom{Free: math.MaxUint64}, nil
}

// Stats returns the counters.
func (m *Memory) Stats() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	stats := m.stats
	stats.Pending = len(m.queue)
	return stats
}

// Done is closed when the log has stopped.
func (m *Memory) Done() <-chan struct{} { return m.done }

// Err is why.
func (m *Memory) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dead
}

// Close applies what is queued and stops.
func (m *Memory) Close(context.Context) error {
	m.mu.Lock()
	already := m.closed
	m.closed = true
	m.mu.Unlock()
	if already {
		m.wg.Wait()
		return nil
	}
	m.drainQueue()
	m.mu.Lock()
	if m.dead == nil {
		m.dead = ErrClosed
		close(m.done)
	}
	m.mu.Unlock()
	m.wg.Wait()
	return nil
}
