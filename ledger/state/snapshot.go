package state

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/event/record"
	"github.com/musterhpc/muster/spec"
)

// SnapshotVersion is the version of the snapshot format, and of what Hash
// covers.
const SnapshotVersion uint32 = 1

// ErrSnapshot tells bytes that are no whole, undamaged snapshot.
var ErrSnapshot = errors.New("the snapshot is damaged")

// A snapshot is a header (magic, version, checksum), then blocks (length,
// checksum, records), the last of which is empty. A record is a kind and a
// body. The checksums are CRC-32C over everything before them in their header
// or block, and over the block's records. All numbers are big-endian.
const (
	snapMagic   = "MUSTRSNP"
	snapHeader  = len(snapMagic) + 8
	blockHeader = 8
	blockSize   = 256 << 10 // a block is closed once it is this long
)

// The kinds of records, in the order in which they come. A spec stands before
// the first job that uses it.
const (
	snapMeta = iota + 1
	snapConfig
	snapPolicy
	snapAccess
	snapTotals
	snapNode
	snapArray
	snapSpec
	snapJob
	snapEnd
	snapSpent // between totals and nodes; absent where nothing was used
	snapRuns  // behind those of snapSpent; absent where nothing has run
)

// metaRecord holds the scalars of a State. NodeNames are by node id.
type metaRecord struct {
	UUID         [16]byte           `cbor:"1,keyasint"`
	ClusterName  string             `cbor:"2,keyasint,omitempty"`
	Version      uint32             `cbor:"3,keyasint,omitempty"`
	Created      spec.Instant       `cbor:"4,keyasint,omitempty"`
	Seq          uint64             `cbor:"5,keyasint,omitempty"`
	At           spec.Instant       `cbor:"6,keyasint,omitempty"`
	NextUID      spec.JobUID        `cbor:"7,keyasint"`
	NextID       spec.JobID         `cbor:"8,keyasint"`
	NodeNames    []string           `cbor:"9,keyasint,omitempty"`
	Reservations []spec.Reservation `cbor:"20,keyasint,omitempty"`
	Epochs       []Epoch            `cbor:"21,keyasint,omitempty"`
	Lost         *LostHistory       `cbor:"22,keyasint,omitempty"`
	Crontabs     []spec.Crontab     `cbor:"23,keyasint,omitempty"`
	Triggers     []spec.Trigger     `cbor:"24,keyasint,omitempty"`
	NextTrigger  uint32             `cbor:"25,keyasint,omitempty"`
	Leader       string             `cbor:"26,keyasint,omitempty"`
	FirstLeader  string             `cbor:"27,keyasint,omitempty"`
}

// arrayRecord holds what cannot be counted from the jobs that are left.
type arrayRecord struct {
	UID     spec.JobUID `cbor:"1,keyasint"`
	ID      spec.JobID  `cbor:"2,keyasint"`
	Started int64       `cbor:"3,keyasint,omitempty"`
	Ended   int64       `cbor:"4,keyasint,omitempty"`
	OK      int64       `cbor:"5,keyasint,omitempty"`
	Total   int64       `cbor:"6,keyasint"`
}

// spentRecord is what was used by one subject; the first also says how use
// fades.
type spentRecord struct {
	Key   uint64 `cbor:"1,keyasint,omitempty"` // 0 in the first: UsageKey starts at a QOS, and QOS 0 is none
	Spent *Spent `cbor:"2,keyasint,omitempty"`
	Aging *Aging `cbor:"3,keyasint,omitempty"`
}

// runsRecord holds the past runs of one user.
type runsRecord struct {
	UID  uint64    `cbor:"1,keyasint"`
	Runs []PastRun `cbor:"2,keyasint"`
}

// endRecord closes a snapshot.
type endRecord struct {
	Jobs  uint64 `cbor:"1,keyasint"`
	Specs uint64 `cbor:"2,keyasint"`
}

// snapshotTypes are the types of a snapshot, as a release has them that knows a version of the
// vocabulary.
func snapshotTypes(version uint32) (*record.Set, error) {
	set, err := record.Compile(
		version,
		new(metaRecord),
		new(spec.Config),
		new(Policy),
		new(Access),
		new(Totals),
		new(Node),
		new(
			arrayRecord,
		),
		new(spec.JobSpec),
		new(Job),
		new(endRecord),
		new(spentRecord),
		new(runsRecord),
	)
	if err != nil {
		return nil, fmt.Errorf("snapshot codec: %w", err)
	}
	return set, nil
}

// Encode writes the state. Equal content gives equal bytes: nothing that can
// be derived is written, and equal specs are written once, shared or not.
func (s *State) Encode(w io.Writer) error {
	head := binary.BigEndian.AppendUint32([]byte(snapMagic), SnapshotVersion)
	head = binary.BigEndian.AppendUint32(head, crc32.Checksum(head, castagnoli()))
	if _, err := w.Write(head); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	return s.encodeSnapshot(func(block []byte) error {
		var h [blockHeader]byte
		binary.BigEndian.PutUint32(h[:], uint32(len(block)))
		sum := crc32.Update(crc32.Checksum(h[:4], castagnoli()), castagnoli(), block)
		binary.BigEndian.PutUint32(h[4:], sum)
		if _, err := w.Write(h[:]); err != nil {
			return fmt.Errorf("write snapshot: %w", err)
		}
		if _, err := w.Write(block); err != nil {
			return fmt.Errorf("write snapshot: %w", err)
		}
		return nil
	})
}

// Hash is the SHA-256 of the state's content. Two states that the same
// events gave have the same hash, however they came by them: by folding, from
// a snapshot, in one process or several. Compare hashes of one
// SnapshotVersion only.
func (s *State) Hash() [32]byte {
	h := sha256.New()
	err := s.encodeSnapshot(func(block []byte) error {
		_, err := h.Write(block)
		return err
	})
	if err != nil {
		// Only a type that records cannot hold ends here: a fault of this
		// package that every test of it meets.
		return [32]byte{}
	}
	return [32]byte(h.Sum(nil))
}

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// encoder cuts a stream of records into blocks.
type encoder struct {
	set  *record.Set
	buf  []byte
	emit func(block []byte) error
	err  error
}

// putRecord adds a record: its kind, numbers that precede its body, the body.
func (e *encoder) putRecord(kind uint64, body any, numbers ...uint64) {
	if e.err != nil {
		return
	}
	e.buf = record.AppendHead(e.buf, record.MajorUint, kind)
	for _, n := range numbers {
		e.buf = record.AppendHead(e.buf, record.MajorUint, n)
	}
	e.buf, e.err = e.set.Append(e.buf, body)
	if len(e.buf) >= blockSize {
		e.flushBlock()
	}
}

func (e *encoder) flushBlock() {
	if e.err == nil && len(e.buf) > 0 {
		e.err = e.emit(e.buf)
		e.buf = e.buf[:0]
	}
}

func (s *State) encodeSnapshot(emit func(block []byte) error) error {
	set, err := snapshotTypes(event.Version)
	if err != nil {
		return err
	}
	e := &encoder{set: set, buf: make([]byte, 0, blockSize+4096), emit: emit}
	e.putRecord(
		snapMeta,
		&metaRecord{
			UUID:         s.UUID,
			ClusterName:  s.ClusterName,
			Version:      s.Version,
			Created:      s.Created,
			Seq:          s.Seq,
			At:           s.At,
			NextUID:      s.NextUID,
			NextID:       s.NextID,
			NodeNames:    s.nodeNames(),
			Reservations: s.Reservations,
			Epochs:       s.Epochs,
			Lost:         s.Lost,
			Crontabs:     s.Crontabs,
			Triggers:     s.Triggers,
			NextTrigger:  s.NextTrigger,
			Leader:       s.Leader,
			FirstLeader:  s.FirstLeader,
		},
	)
	e.putRecord(snapConfig, s.Config)
	e.putRecord(snapPolicy, s.Policy)
	e.putRecord(snapAccess, s.Access)
	e.putRecord(snapTotals, &s.Totals)
	if s.Aging != (Aging{}) || s.Spent.Len() > 0 {
		e.putRecord(snapSpent, &spentRecord{Aging: &s.Aging})
	}
	s.Spent.Range(func(key uint64, usage *Spent) bool {
		e.putRecord(snapSpent, &spentRecord{Key: key, Spent: usage})
		return e.err == nil
	})
	s.Runs.Range(func(uid uint64, runs *UserRuns) bool {
		e.putRecord(snapRuns, &runsRecord{UID: uid, Runs: runs.Runs})
		return e.err == nil
	})
	s.Nodes.Range(func(_ uint64, node *Node) bool {
		c := *node
		if !c.Removed {
			c.Spec = nil // it is in the configuration
		}
		e.putRecord(snapNode, &c)
		return e.err == nil
	})
	s.Arrays.Range(func(_ uint64, array *Array) bool {
		e.putRecord(
			snapArray,
			&arrayRecord{
				UID:     array.UID,
				ID:      array.ID,
				Started: array.Started,
				Ended:   array.Ended,
				OK:      array.OK,
				Total:   array.Total,
			},
		)
		return e.err == nil
	})
	s.encodeJobs(e)
	e.flushBlock()
	if e.err != nil {
		return e.err
	}
	return emit(nil)
}

// encodeJobs writes the jobs by uid, each behind the number of its spec.
func (s *State) encodeJobs(e *encoder) {
	byPointer := make(map[*spec.JobSpec]uint64, s.Jobs.Len())
	byContent := make(map[[32]byte]uint64)
	var scratch []byte
	s.Jobs.Range(func(_ uint64, job *Job) bool {
		at, ok := byPointer[job.Spec]
		if !ok {
			scratch, e.err = e.set.Append(scratch[:0], job.Spec)
			if e.err != nil {
				return false
			}
			sum := sha256.Sum256(scratch)
			at, ok = byContent[sum]
			if !ok {
				at = uint64(len(byContent))
				byContent[sum] = at
				e.putRecord(snapSpec, job.Spec)
			}
			byPointer[job.Spec] = at
		}
		e.putRecord(snapJob, job, at)
		return e.err == nil
	})
	e.putRecord(snapEnd, &endRecord{Jobs: uint64(s.Jobs.Len()), Specs: uint64(len(byContent))})
}

// nodeNames lists every name that has a node id, by id.
func (s *State) nodeNames() []string {
	names := make([]string, len(s.NodeIDs))
	//muster:unordered each name goes to the place of its id
	for name, id := range s.NodeIDs {
		names[id] = name
	}
	return names
}

// Decode reads a snapshot and no byte more. It returns event.ErrNewer for
// what a newer release wrote, ErrSnapshot for damage, and the reader's own
// errors as they are.
func Decode(r io.Reader) (*State, error) { return decodeAs(event.Version, r) }

// decodeAs is Decode of a release that knows a version of the vocabulary.
func decodeAs(version uint32, r io.Reader) (*State, error) {
	head := make([]byte, snapHeader)
	if err := readFull(r, head); err != nil {
		return nil, err
	}
	sum := binary.BigEndian.Uint32(head[snapHeader-4:])
	if string(head[:len(snapMagic)]) != snapMagic ||
		sum != crc32.Checksum(head[:snapHeader-4], castagnoli()) {
		return nil, fmt.Errorf("its header is not one: %w", ErrSnapshot)
	}
	if v := binary.BigEndian.Uint32(head[len(snapMagic):]); v > SnapshotVersion {
		return nil, fmt.Errorf(
			"snapshot of version %d, this release knows %d: %w",
			v,
			SnapshotVersion,
			event.ErrNewer,
		)
	}
	d, err := newDecoder(version)
	if err != nil {
		return nil, err
	}
	var block []byte
	for {
		block, err = readBlock(r, block)
		if err != nil {
			return nil, err
		}
		if len(block) == 0 {
			return d.finishSnapshot()
		}
		if err := d.decodeBlock(block); err != nil {
			if errors.Is(err, record.ErrUnknownField) {
				return nil, fmt.Errorf("snapshot: %w: %w", event.ErrNewer, err)
			}
			if errors.Is(err, record.ErrMalformed) {
				return nil, fmt.Errorf("%w: %w", ErrSnapshot, err)
			}
			return nil, err
		}
	}
}

func readFull(r io.Reader, data []byte) error {
	_, err := io.ReadFull(r, data)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("it ends too early: %w", ErrSnapshot)
	}
	if err != nil {
		return fmt.Errorf("read snapshot: %w", err)
	}
	return nil
}

// readBlock reads one block into buf, which it grows as bytes really arrive:
// a damaged length must not claim memory.
func readBlock(r io.Reader, buf []byte) ([]byte, error) {
	var h [blockHeader]byte
	if err := readFull(r, h[:]); err != nil {
		return nil, err
	}
	want := int(binary.BigEndian.Uint32(h[:]))
	buf = buf[:0]
	for len(buf) < want {
		n := min(want-len(buf), 4*blockSize)
		buf = slices.Grow(buf, n)[:len(buf)+n]
		if err := readFull(r, buf[len(buf)-n:]); err != nil {
			return nil, err
		}
	}
	if crc32.Update(crc32.Checksum(h[:4], castagnoli()), castagnoli(), buf) != binary.BigEndian.Uint32(h[4:]) {
		return nil, fmt.Errorf("the checksum of a block of %d bytes is wrong: %w", want, ErrSnapshot)
	}
	return buf, nil
}
