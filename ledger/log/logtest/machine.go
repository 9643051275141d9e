package logtest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"sync"

	"github.com/musterhpc/muster/ledger/log"
)

// Machine remembers every batch it applied. Its snapshot is the list of them.
type Machine struct {
	mu       sync.Mutex
	batches  [][]byte
	restored int // batches that came from a snapshot
	// Refuse, when set, is asked before each batch is applied.
	Refuse func(position log.Position, batch []byte) error
}

// Apply appends the batch; a position out of turn is an error.
func (m *Machine) Apply(position log.Position, batch []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.Refuse != nil {
		if err := m.Refuse(position, batch); err != nil {
			return err
		}
	}
	if int(position) != len(m.batches)+1 {
		return fmt.Errorf("position %d after %d batches", position, len(m.batches))
	}
	m.batches = append(m.batches, append([]byte{}, batch...))
	return nil
}

// Snapshot captures the list.
func (m *Machine) Snapshot() (func(io.Writer) error, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	batches := m.batches[:len(m.batches):len(m.batches)]
	return func(w io.Writer) error {
		for _, data := range batches {
			if _, err := w.Write(
				binary.LittleEndian.AppendUint32(nil, uint32(len(data))),
			); err != nil {
				return err
			}
			if _, err := w.Write(data); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

// Restore replaces the list.
func (m *Machine) Restore(r io.Reader) error {
	all, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	var batches [][]byte
	for len(all) > 0 {
		if len(all) < 4 || int(binary.LittleEndian.Uint32(all)) > len(all)-4 {
			return io.ErrUnexpectedEOF
		}
		n := binary.LittleEndian.Uint32(all)
		batches = append(batches, all[4:4+n])
		all = all[4+n:]
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.batches, m.restored = batches, len(batches)
	return nil
}

// Batches returns what was applied, in order.
func (m *Machine) Batches() [][]byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([][]byte{}, m.batches...)
}

// Restored is how many of the batches came from a snapshot rather than from the log.
func (m *Machine) Restored() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.restored
}

// Hash sums up the state.
func (m *Machine) Hash() uint64 {
	h := fnv.New64a()
	for _, b := range m.Batches() {
		// Writing to a hash cannot fail.
		_, _ = h.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(b))))
		_, _ = h.Write(b)
	}
	return h.Sum64()
}

// Contains reports whether some batch equals data.
func (m *Machine) Contains(data []byte) bool {
	for _, have := range m.Batches() {
		if bytes.Equal(have, data) {
			return true
		}
	}
	return false
}
