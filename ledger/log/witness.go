package log

import (
	"context"
	"errors"
	"io"
	"time"
)

// A witness is a member that votes and keeps the log, and has no state: it breaks the tie between two controllers.
//
// It may be elected, because after the loss of a leader it can be the only one left that has what was acknowledged last. Then it
// gives the other controller what that lacks and hands the lead over; it never appends anything of its own (see PassLead).
//
// A snapshot of a witness says how far the log goes and holds no state. It has a mark of its own, and no controller takes it.

// errStateless is what a controller answers to a snapshot that a witness sends.
var errStateless = errors.New(
	"the snapshot is a witness's and holds no state: this controller lacks more than the witness's log has, and needs another controller",
)

// noMachine is the state of a witness.
type noMachine struct{}

// Apply implements Machine.
func (noMachine) Apply(Position, []byte) error { return nil }

// Snapshot implements Machine.
func (noMachine) Snapshot() (func(io.Writer) error, error) {
	return func(io.Writer) error { return nil }, nil
}

// Restore implements Machine.
func (noMachine) Restore(r io.Reader) error {
	_, err := io.Copy(io.Discard, r)
	return err
}

const (
	passPatience = 2 * time.Second
	passPause    = 20 * time.Millisecond
)

// PassLead hands the lead to a controller whenever this member gets it, until the context ends. told, if set, hears what
// came of each lead.
func (d *Durable) PassLead(ctx context.Context, told func(error)) {
	for ctx.Err() == nil {
		changed := d.Changed()
		if !d.Leader().Self {
			select {
			case <-changed:
			case <-d.done:
				return
			case <-ctx.Done():
			}
			continue
		}
		try, cancel := context.WithTimeout(ctx, passPatience)
		err := d.HandOver(try, "")
		cancel()
		if told != nil && ctx.Err() == nil {
			told(err)
		}
		// The lead ends a moment after it was handed over; and who cannot take it now may be back soon.
		select {
		case <-changed:
		case <-time.After(passPause):
		case <-ctx.Done():
		}
	}
}

// keepHead makes of what is written the head of a witness's snapshot: from a controller's it takes position and fence. It
// returns how much of p belongs to it.
func keepHead(have int, p []byte) []byte {
	return p[:min(len(p), max(fsmHeader-have, 0))]
}

// markStateless puts a witness's mark in place of a controller's.
func markStateless(head []byte) { copy(head, witnessMagic) }

// isStateless tells whether a snapshot's content begins as a witness's.
func isStateless(head []byte) bool {
	return len(head) >= len(witnessMagic) && string(head[:len(witnessMagic)]) == witnessMagic
}
