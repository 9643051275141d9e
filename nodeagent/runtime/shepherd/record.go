//go:build linux

package shepherd

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fxamacker/cbor/v2"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/runtime/protocol"
	"github.com/musterhpc/muster/spec"
)

// record is one entry of the journal; exactly one field besides Boot is set.
type record struct {
	Boot    string         `cbor:"1,keyasint,omitempty"` // a shepherd began, on this boot
	Launch  *launchRecord  `cbor:"2,keyasint,omitempty"`
	Started *startedRecord `cbor:"3,keyasint,omitempty"`
	Exit    *plan.Exit     `cbor:"4,keyasint,omitempty"`
	Acked   []plan.RunKey  `cbor:"5,keyasint,omitempty"` // forget the runs, remember the keys
	Void    []plan.RunKey  `cbor:"6,keyasint,omitempty"` // refused after all: never happened
	Begun   *plan.RunKey   `cbor:"7,keyasint,omitempty"` // about to be forked: from here on it may have run
	Ended   *plan.Exit     `cbor:"8,keyasint,omitempty"` // how the script ended; its TaskEpilog follows, then Exit
	// Launches are those of Acked, in their order; absent in journals of older
	// releases.
	Launches []spec.Hash `cbor:"9,keyasint,omitempty"`
}

// launchRecord is what must be known of a run to find and end it again.
type launchRecord struct {
	Key    plan.RunKey `cbor:"1,keyasint"`
	JobID  uint64      `cbor:"2,keyasint,omitempty"`
	UID    uint32      `cbor:"3,keyasint,omitempty"`
	GID    uint32      `cbor:"4,keyasint,omitempty"`
	Groups []uint32    `cbor:"5,keyasint,omitempty"`
	Stderr string      `cbor:"6,keyasint,omitempty"` // absolute
	Spool  string      `cbor:"7,keyasint,omitempty"` // folder of the script
	// TaskEpilog runs behind the script, in this folder.
	TaskEpilog string `cbor:"8,keyasint,omitempty"`
	WorkDir    string `cbor:"9,keyasint,omitempty"`
	// Minded tells that the leader minds the tasks of a step; its files are in
	// Spool.
	Minded bool `cbor:"10,keyasint,omitempty"`
	// Launch, Seq and Order are those of the RunSpec.
	Launch spec.Hash `cbor:"11,keyasint"`
	Seq    uint64    `cbor:"12,keyasint,omitempty"`
	Order  []byte    `cbor:"13,keyasint,omitempty"`
	// Spaced tells that the run is in the private folders of its attempt.
	Spaced bool `cbor:"14,keyasint,omitempty"`
	// PMIxFolder is where muster-pmix keeps files of the run; empty where it has
	// none, or where they go with the private folders.
	PMIxFolder string `cbor:"15,keyasint,omitempty"`
	// Placeholder is that of the RunSpec.
	Placeholder bool `cbor:"16,keyasint,omitempty"`
	// Lease is that of the RunSpec.
	Lease plan.Lease `cbor:"110,keyasint"`
}

// startedRecord names the process.
type startedRecord struct {
	RunKey    plan.RunKey  `cbor:"1,keyasint"`
	PID       int          `cbor:"2,keyasint"`
	Ticks     uint64       `cbor:"3,keyasint,omitempty"` // start in clock ticks after boot; 0: it ended before it could be read
	Start     spec.Instant `cbor:"4,keyasint,omitempty"`
	StartBoot int64        `cbor:"5,keyasint,omitempty"` // nanoseconds after boot
}

func (r *record) encodeRecord() ([]byte, error) {
	data, err := cbor.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode journal record: %w", err)
	}
	return data, nil
}

var errRecord = errors.New("journal record of an unknown kind: written by a newer shepherd?")

// history is what the journal tells.
type history struct {
	boot  string
	runs  map[plan.RunKey]*past
	order []plan.RunKey
	acked []tombstone
}

// past is one run in the journal.
type past struct {
	boot    string
	launch  launchRecord
	begun   bool
	started *startedRecord
	ended   *plan.Exit
	exit    *plan.Exit
}

func newHistory() *history { return &history{runs: map[plan.RunKey]*past{}} }

// applyRecord folds one record.
func (h *history) applyRecord(data []byte) error {
	var r record
	decoder, err := protocol.Decoding()
	if err == nil {
		err = decoder.Unmarshal(data, &r)
	}
	if err != nil {
		return fmt.Errorf("journal record: %w", err)
	}
	switch {
	case r.Boot != "":
		h.boot = r.Boot
	case r.Launch != nil:
		if h.runs[r.Launch.Key] == nil {
			h.order = append(h.order, r.Launch.Key)
		}
		h.runs[r.Launch.Key] = &past{boot: h.boot, launch: *r.Launch}
	case r.Begun != nil:
		if p := h.runs[*r.Begun]; p != nil {
			p.begun = true
		}
	case r.Started != nil:
		if p := h.runs[r.Started.RunKey]; p != nil {
			p.begun, p.started = true, r.Started
		}
	case r.Ended != nil:
		if p := h.runs[r.Ended.Key]; p != nil {
			p.ended = r.Ended
		}
	case r.Exit != nil:
		if p := h.runs[r.Exit.Key]; p != nil {
			p.exit = r.Exit
		}
	case r.Acked != nil:
		for i, key := range r.Acked {
			grave := tombstone{key: key}
			if i < len(r.Launches) {
				grave.launch = r.Launches[i]
			} else if p := h.runs[key]; p != nil {
				grave.launch = p.launch.Launch
			}
			delete(h.runs, key)
			h.acked = append(h.acked, grave)
		}
	case r.Void != nil:
		for _, key := range r.Void {
			delete(h.runs, key)
		}
	default:
		return errRecord
	}
	return nil
}

// ackedRecord writes down runs that are over and acknowledged.
func ackedRecord(graves []tombstone) record {
	var r record
	for _, g := range graves {
		r.Acked = append(r.Acked, g.key)
		r.Launches = append(r.Launches, g.launch)
	}
	return r
}

// saveRecord appends a record that ends what was begun; what cannot be written is logged.
func (s *Shepherd) saveRecord(r record) error {
	b, err := r.encodeRecord()
	if err == nil {
		_, err = s.jr.AppendReserved(b)
	}
	if err != nil {
		s.log.Error("journal", "err", err)
		return err
	}
	putToken(s.dirty)
	return nil
}

// compactAt is the size in bytes from which the journal is rewritten.
const compactAt = 16 << 20

// compactJournal rewrites the journal with what is still true.
func (s *Shepherd) compactJournal() {
	if s.jr.Size() < compactAt {
		return
	}
	if err := s.rewrite(); err != nil {
		s.log.Error("journal could not be shortened", "err", err)
	}
}

func (s *Shepherd) rewrite() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.jr.Rewrite(func(add func([]byte) error) error {
		records := []record{{Boot: s.hello.BootID}}
		for graves := range slices.Chunk(s.ended.oldestFirst(), 8192) {
			records = append(records, ackedRecord(graves))
		}
		for _, r := range s.runs {
			records = append(records, record{Launch: &r.launchRecord})
			if r.begun {
				records = append(records, record{Begun: &r.Key})
			}
			if r.PID != 0 {
				records = append(records, record{Started: &r.startedRecord})
			}
			if r.ended != nil {
				records = append(records, record{Ended: r.ended})
			}
			if r.exit != nil {
				records = append(records, record{Exit: r.exit})
			}
		}
		for i := range records {
			data, err := records[i].encodeRecord()
			if err != nil {
				return err
			}
			if err := add(data); err != nil {
				return err
			}
		}
		return nil
	})
}

// retryUnsaved writes the exits that found no room.
func (s *Shepherd) retryUnsaved() {
	s.mu.Lock()
	list := s.unsaved
	s.unsaved = nil
	s.mu.Unlock()
	for i, r := range list {
		if s.saveRecord(record{Exit: r.exit}) != nil {
			s.mu.Lock()
			s.unsaved = append(s.unsaved, list[i:]...)
			s.mu.Unlock()
			return
		}
	}
}
