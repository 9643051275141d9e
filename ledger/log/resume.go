package log

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
)

// Barrier waits until everything appended before it is applied.
func (d *Durable) Barrier(ctx context.Context) error {
	p := &pending{kind: kindBarrier, done: make(chan struct{})}
	d.mu.Lock()
	err := d.closedErr()
	if err == nil {
		err = d.stopped
	}
	if err == nil {
		d.enqueueBatch(p)
	}
	d.mu.Unlock()
	if err != nil {
		return err
	}
	_, err = p.Wait(ctx)
	return err
}

// Resume begins a new run of the writer.
func (d *Durable) Resume(ctx context.Context) error {
	for {
		p, changed, err := d.tryResume()
		if err != nil || p == nil && changed == nil {
			return err
		}
		if p != nil {
			_, err := p.Wait(ctx)
			if d.alone && (errors.Is(err, ErrNotLeader) || errors.Is(err, errStale)) {
				continue // raft had not yet let go of the failed run
			}
			return err
		}
		select {
		case <-changed:
		case <-d.done:
		case <-ctx.Done():
			return fmt.Errorf("waiting for a leader of the ledger: %w", context.Cause(ctx))
		}
	}
}

// tryResume returns the frame to wait for, or the channel that tells of a change of leadership,
// or neither when the log works already.
func (d *Durable) tryResume() (*pending, <-chan struct{}, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.closedErr(); err != nil {
		return nil, nil, err
	}
	if !d.leading {
		if lead := d.Leader(); !d.alone && lead.Known && !lead.Self {
			return nil, nil, &NotLeaderError{Leader: lead}
		}
		return nil, d.changed, nil
	}
	if d.stopped == nil {
		return nil, nil, nil
	}
	d.stopped = nil
	d.run = rand.Uint64()
	d.runs[d.run] = true
	p := &pending{kind: kindOpen, done: make(chan struct{})}
	d.enqueueBatch(p)
	return p, nil, nil
}
