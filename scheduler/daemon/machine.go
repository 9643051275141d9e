package daemon

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"runtime"
	"sync"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
)

// Machine is the fold behind the log: every batch that is durable passes
// through Apply, in order, on every controller. On the writer's own machine
// the state that the writer has already folded is taken over instead of
// folding again.
type Machine struct {
	codec   *event.Codec
	archive Archive
	blobs   Blobs

	mu    sync.Mutex
	pos   uint64       // of the last batch in state; 0 = restored, and none since
	state *state.State // applied, frozen between batches when taken over
	ahead []folded     // what the writer has folded and not yet seen applied
}

// folded is a batch the writer has folded itself.
type folded struct {
	nonce uint64
	state *state.State // frozen, after the batch
	first uint64
	last  uint64
}

// NewMachine returns the fold of an empty ledger.
func NewMachine(codec *event.Codec, archive Archive, blobs Blobs) *Machine {
	return &Machine{codec: codec, archive: archive, blobs: blobs, state: state.New()}
}

// A batch is: nonce (8 bytes), number of blobs, each with its length, and the
// events in the codec's own form.
func frameBatch(nonce uint64, blobs [][]byte, events []byte) []byte {
	n := 8 + binary.MaxVarintLen64*(1+len(blobs)) + len(events)
	for _, b := range blobs {
		n += len(b)
	}
	out := make([]byte, 8, n)
	binary.LittleEndian.PutUint64(out, nonce)
	out = binary.AppendUvarint(out, uint64(len(blobs)))
	for _, b := range blobs {
		out = binary.AppendUvarint(out, uint64(len(b)))
		out = append(out, b...)
	}
	return append(out, events...)
}

// Batch is what a ledger holds for some events that are encoded, without contents.
func Batch(events []byte) []byte { return frameBatch(0, nil, events) }

// BatchEvents tells which events a batch of the ledger holds.
func BatchEvents(codec *event.Codec, batch []byte) (first, last uint64, err error) {
	_, _, events, err := unframeBatch(batch)
	if err != nil {
		return 0, 0, err
	}
	envs, err := codec.Decode(events)
	if err != nil {
		return 0, 0, err
	}
	if len(envs) == 0 {
		return 0, 0, fmt.Errorf("empty batch: %w", event.ErrMalformed)
	}
	return envs[0].Seq, envs[len(envs)-1].Seq, nil
}

// ContentsOf gives the contents that travel in a batch of the ledger: scripts and environments
// that its events name first.
func ContentsOf(batch []byte) ([][]byte, error) {
	_, blobs, _, err := unframeBatch(batch)
	return blobs, err
}

// EventsOf gives the encoded events of a batch of the ledger, as the archive has them.
func EventsOf(batch []byte) ([]byte, error) {
	_, _, events, err := unframeBatch(batch)
	return events, err
}

func unframeBatch(batch []byte) (nonce uint64, blobs [][]byte, events []byte, err error) {
	if len(batch) < 9 {
		return 0, nil, nil, fmt.Errorf("batch of %d bytes: %w", len(batch), event.ErrMalformed)
	}
	nonce = binary.LittleEndian.Uint64(batch)
	rest := batch[8:]
	count, n := binary.Uvarint(rest)
	if n <= 0 || count > uint64(len(rest)) {
		return 0, nil, nil, fmt.Errorf("batch header: %w", event.ErrMalformed)
	}
	rest = rest[n:]
	for range count {
		size, n := binary.Uvarint(rest)
		if n <= 0 || size > uint64(len(rest)-n) {
			return 0, nil, nil, fmt.Errorf("blob in batch: %w", event.ErrMalformed)
		}
		blobs = append(blobs, rest[n:n+int(size)])
		rest = rest[n+int(size):]
	}
	return nonce, blobs, rest, nil
}

// expectBatch tells the machine of a batch that the writer has folded and is about
// to append.
func (m *Machine) expectBatch(f folded) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ahead = append(m.ahead, f)
}

// resetExpected forgets what was expected and returns the applied state, writable.
// The writer calls it after a failed append.
func (m *Machine) resetExpected() *state.State {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ahead = nil
	if m.state.Frozen() {
		return m.state.Fork()
	}
	return m.state.Freeze().Fork()
}

// Apply folds one durable batch and hands it to the archive.
func (m *Machine) Apply(position uint64, batch []byte) error {
	nonce, blobs, events, err := unframeBatch(batch)
	if err != nil {
		return err
	}
	for _, b := range blobs {
		if _, err := m.blobs.Put(b); err != nil {
			return fmt.Errorf("store blob: %w", err)
		}
	}
	first, last, err := m.foldBatch(position, nonce, events)
	if err != nil {
		return err
	}
	return m.archive.Append(position, first, last, events)
}

func (m *Machine) foldBatch(position, nonce uint64, events []byte) (first, last uint64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.ahead) > 0 && m.ahead[0].nonce == nonce {
		f := m.ahead[0]
		m.ahead = m.ahead[1:]
		m.state, m.pos = f.state, position
		return f.first, f.last, nil
	}
	envs, err := m.codec.Decode(events)
	if err != nil {
		return 0, 0, err
	}
	if len(envs) == 0 {
		return 0, 0, fmt.Errorf("empty batch: %w", event.ErrMalformed)
	}
	if m.state.Frozen() {
		m.state = m.state.Fork()
	}
	for i := range envs {
		if err := m.state.Apply(&envs[i]); err != nil {
			return 0, 0, err
		}
	}
	m.pos = position
	return envs[0].Seq, envs[len(envs)-1].Seq, nil
}

// Snapshot captures the applied state; writing it runs beside later batches.
func (m *Machine) Snapshot() (func(w io.Writer) error, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.state
	if !s.Frozen() {
		s = s.Freeze()
	}
	return func(w io.Writer) error { return s.Encode(breathing{w}) }, nil
}

// breathing lets whatever is ready go first at each block that is written: a
// snapshot of a deep queue is the work of a core for some hundred milliseconds,
// and submissions come meanwhile.
type breathing struct{ w io.Writer }

func (b breathing) Write(p []byte) (int, error) {
	runtime.Gosched()
	return b.w.Write(p)
}

// Restore replaces the state by an encoded one.
func (m *Machine) Restore(r io.Reader) error {
	s, err := state.Decode(r)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state = s
	m.ahead = nil
	m.pos = 0
	return nil
}

// Applied is the state after the last durable batch, frozen.
func (m *Machine) Applied() *state.State {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.state.Frozen() {
		return m.state
	}
	return m.state.Freeze()
}

// AppliedAt is Applied with the position of its last batch; 0 = not known yet.
func (m *Machine) AppliedAt() (position uint64, s *state.State) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.state.Frozen() {
		return m.pos, m.state.Freeze()
	}
	return m.pos, m.state
}

// contentHash is the hash under which content is kept.
func contentHash(data []byte) [32]byte { return sha256.Sum256(data) }
