package store

import (
	"errors"

	"github.com/musterhpc/muster/ledger/archive"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/daemon"
)

// Past is the archive as the controller reads it.
type Past struct {
	Archive *archive.Archive
	Codec   *event.Codec
}

// Known implements daemon.Past.
func (p Past) Known() (uint64, error) {
	held := p.Archive.Stats()
	if held.LastPos == 0 {
		return 0, nil
	}
	if held.FirstSeq <= 1 {
		return 1, nil
	}
	all, err := p.Archive.Snapshots()
	if err != nil {
		return 0, err
	}
	for _, snapshot := range all {
		if snapshot.Seq+1 >= held.FirstSeq {
			return snapshot.Seq + 1, nil
		}
	}
	return 0, nil
}

// Snapshot implements daemon.Past.
func (p Past) Snapshot(upTo uint64) (*state.State, error) {
	all, err := p.Archive.Snapshots()
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
	r, err := p.Archive.OpenSnapshot(*best)
	if err != nil {
		return nil, err
	}
	cluster, err := state.Decode(r)
	return cluster, errors.Join(err, r.Close())
}

// Read implements daemon.Past.
func (p Past) Read(from uint64) (daemon.PastReader, error) {
	iterator, err := p.Archive.Reader(from)
	if err != nil {
		return nil, err
	}
	return &pastReader{iterator, p.Codec}, nil
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
