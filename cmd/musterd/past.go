package main

import (
	"errors"

	"github.com/musterhpc/muster/ledger/archive"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/daemon"
)

// past is the archive as the controller reads it.
type past struct {
	archive *archive.Archive
	codec   *event.Codec
}

// Known implements daemon.Past.
func (p past) Known() (uint64, error) {
	held := p.archive.Stats()
	if held.LastPos == 0 {
		return 0, nil
	}
	if held.FirstSeq <= 1 {
		return 1, nil
	}
	all, err := p.archive.Snapshots()
	if err != nil {
		return 0, err
	}
	for _, s := range all {
		if s.Seq+1 >= held.FirstSeq {
			return s.Seq + 1, nil
		}
	}
	return 0, nil
}

// Snapshot implements daemon.Past.
func (p past) Snapshot(upTo uint64) (*state.State, error) {
	all, err := p.archive.Snapshots()
	if err != nil {
		return nil, err
	}
	var best *archive.SnapshotInfo
	for i := range all {
		if all[i].Seq <= upTo {
			best = &all[i]
		}
	}
	if best == nil {
		return state.New(), nil
	}
	r, err := p.archive.OpenSnapshot(*best)
	if err != nil {
		return nil, err
	}
	st, err := state.Decode(r)
	return st, errors.Join(err, r.Close())
}

// Read implements daemon.Past.
func (p past) Read(from uint64) (daemon.PastReader, error) {
	iterator, err := p.archive.Reader(from)
	if err != nil {
		return nil, err
	}
	return &pastReader{iterator, p.codec}, nil
}

type pastReader struct {
	it    *archive.Iterator
	codec *event.Codec
}

// Next implements daemon.PastReader.
func (p *pastReader) Next() ([]event.Envelope, error) {
	for {
		record, err := p.it.Next()
		if err != nil {
			return nil, err
		}
		if record.LastSeq >= record.FirstSeq { // a batch may be without events
			return p.codec.Decode(record.Batch)
		}
	}
}
