package store

import (
	"context"
	"errors"
	"io"

	"github.com/musterhpc/muster/ledger/archive"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/scheduler/daemon"
)

// ReadHistory reads the archive from its first event to its present end.
func ReadHistory(a *archive.Archive, codec *event.Codec) daemon.History {
	return func(ctx context.Context, visit func(*event.Envelope) bool) error {
		iterator, err := a.Reader(1)
		if err != nil {
			return err
		}
		for ctx.Err() == nil {
			record, err := iterator.Next()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if record.LastSeq < record.FirstSeq {
				continue // a batch without events
			}
			events, err := codec.Decode(record.Batch)
			if err != nil {
				return err
			}
			for i := range events {
				if !visit(&events[i]) {
					return nil
				}
			}
		}
		return ctx.Err()
	}
}
