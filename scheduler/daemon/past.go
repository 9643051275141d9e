package daemon

import (
	"errors"
	"fmt"
	"io"
	"sort"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// Past is the history of the ledger, as the archive beside the log has it. Its
// methods may be called from any goroutine and never wait for the writer.
type Past interface {
	// Known is the first event before which the state is known, because the history
	// begins with it or because a snapshot of the state stands before it. Every
	// later event is known as well. 0 = no event is.
	Known() (first uint64, err error)
	// Snapshot is the newest archived state that is not newer than an event, or the
	// empty state where the history begins with event 1.
	Snapshot(upTo uint64) (*state.State, error)
	// Read begins with the batch that holds an event.
	Read(from uint64) (PastReader, error)
}

// PastReader reads batches in order.
type PastReader interface {
	// Next is the next batch, or io.EOF at the present end.
	Next() ([]event.Envelope, error)
}

// pastRange is what is known of the history: from the first event to the last
// that has been published.
type pastRange struct {
	first, last uint64
}

// knownRange tells what the history holds. There is always an event: the controller
// writes one before it takes calls.
func (c *Controller) knownRange() (pastRange, error) {
	if c.deps.Past == nil {
		return pastRange{}, spec.Refuse(
			spec.CodeDisabled,
			"this controller keeps no history that can be read",
		)
	}
	last := c.View().State.Seq
	first, err := c.deps.Past.Known()
	if err != nil {
		return pastRange{}, err
	}
	if first == 0 {
		first = last + 1
	}
	return pastRange{first, last}, nil
}

// eventAt reads one event.
func (c *Controller) eventAt(seq uint64) (event.Envelope, error) {
	reader, err := c.deps.Past.Read(seq)
	if err != nil {
		return event.Envelope{}, err
	}
	for {
		batch, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return event.Envelope{}, fmt.Errorf("event %d is not in the archive", seq)
		}
		if err != nil {
			return event.Envelope{}, err
		}
		for i := range batch {
			if batch[i].Seq == seq {
				return batch[i], nil
			}
		}
	}
}

// firstSince finds the first event of a range that happened at or after an
// instant; it is the one behind the range if none did. Time never goes backwards in
// the ledger, so some reads are enough.
func (c *Controller) firstSince(in pastRange, at spec.Instant) (uint64, error) {
	if in.last < in.first {
		return in.first, nil
	}
	var failed error
	n := sort.Search(int(in.last-in.first+1), func(i int) bool {
		if failed != nil {
			return true
		}
		envelope, err := c.eventAt(in.first + uint64(i))
		failed = err
		return err != nil || envelope.At >= at
	})
	return in.first + uint64(n), failed
}
