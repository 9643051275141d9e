package tally

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/event/record"
	"github.com/musterhpc/muster/spec"
)

// SnapshotVersion is the version of the snapshot format.
const SnapshotVersion uint32 = 1

// ErrSnapshot tells bytes that are no whole, undamaged snapshot.
var ErrSnapshot = errors.New("the snapshot of the tally is damaged")

// A snapshot is a magic word, a version, a checksum (CRC-32C) of version and
// rest, and the rest: a head, then each spec once, the jobs with the number of their
// spec, the nodes, the associations.
const (
	snapMagic  = "MUSTALLY"
	snapHeader = len(snapMagic) + 8
)

type snapHead struct {
	UUID     [16]byte     `cbor:"1,keyasint"`
	Cluster  string       `cbor:"2,keyasint,omitempty"`
	Seq      uint64       `cbor:"3,keyasint,omitempty"`
	At       spec.Instant `cbor:"4,keyasint,omitempty"`
	Midnight int64        `cbor:"5,keyasint,omitempty"`
	Specs    uint64       `cbor:"6,keyasint,omitempty"`
	Jobs     uint64       `cbor:"7,keyasint,omitempty"`
	Nodes    uint64       `cbor:"8,keyasint,omitempty"`
	Assocs   uint64       `cbor:"9,keyasint,omitempty"`
}

func snapTypes() (*record.Set, error) {
	set, err := record.Compile(
		event.Version,
		new(snapHead),
		new(spec.JobSpec),
		new(job),
		new(node),
		new(spec.Association),
	)
	if err != nil {
		return nil, fmt.Errorf("snapshot codec: %w", err)
	}
	return set, nil
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	out := make([]K, 0, len(m))
	//muster:unordered sorted below
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func (t *Tally) sortedUIDs() []spec.JobUID { return sortedKeys(t.jobs) }

// Snapshot writes the tally as it is after Take. Equal content gives equal
// bytes.
func (t *Tally) Snapshot() ([]byte, error) {
	if len(t.touched) > 0 || t.out.Rows() > 0 {
		return nil, errors.New("a snapshot of the tally was asked for in the middle of a batch")
	}
	set, err := snapTypes()
	if err != nil {
		return nil, err
	}
	uids, ids := t.sortedUIDs(), sortedKeys(t.assocs)
	specs := map[*spec.JobSpec]uint64{}
	var order []*spec.JobSpec
	for _, uid := range uids {
		if jobSpec := t.jobs[uid].spec; specs[jobSpec] == 0 {
			order = append(order, jobSpec)
			specs[jobSpec] = uint64(len(order)) // from 1
		}
	}
	buf := make([]byte, snapHeader, snapHeader+256*len(uids)+512*len(order)+4096)
	put := func(v any) {
		if err == nil {
			buf, err = set.Append(buf, v)
		}
	}
	put(
		&snapHead{
			UUID:     t.uuid,
			Cluster:  t.cluster,
			Seq:      t.seq,
			At:       t.at,
			Midnight: t.midnight,
			Specs:    uint64(len(order)),
			Jobs:     uint64(len(uids)),
			Nodes:    uint64(len(t.nodes)),
			Assocs:   uint64(len(ids)),
		},
	)
	for _, jobSpec := range order {
		put(jobSpec)
	}
	for _, uid := range uids {
		buf = record.AppendHead(buf, record.MajorUint, specs[t.jobs[uid].spec]-1)
		put(t.jobs[uid])
	}
	for _, name := range sortedKeys(t.nodes) {
		put(t.nodes[name])
	}
	for _, id := range ids {
		association := t.assocs[id]
		put(&association)
	}
	if err != nil {
		return nil, fmt.Errorf("write the snapshot of the tally: %w", err)
	}
	copy(buf, snapMagic)
	binary.BigEndian.PutUint32(buf[len(snapMagic):], SnapshotVersion)
	binary.BigEndian.PutUint32(buf[len(snapMagic)+4:], snapSum(buf))
	return buf, nil
}

// snapSum is the checksum of the version and the rest.
func snapSum(data []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	return crc32.Update(
		crc32.Checksum(data[len(snapMagic):len(snapMagic)+4], table),
		table,
		data[snapHeader:],
	)
}

// Restore reads a snapshot. It returns event.ErrNewer for one of a newer
// release and ErrSnapshot for damage.
func Restore(data []byte) (*Tally, error) {
	if len(data) < snapHeader || string(data[:len(snapMagic)]) != snapMagic {
		return nil, fmt.Errorf("its header is not one: %w", ErrSnapshot)
	}
	if v := binary.BigEndian.Uint32(data[len(snapMagic):]); v > SnapshotVersion {
		return nil, fmt.Errorf(
			"snapshot of the tally of version %d, this release knows %d: %w",
			v,
			SnapshotVersion,
			event.ErrNewer,
		)
	}
	body := data[snapHeader:]
	if binary.BigEndian.Uint32(data[len(snapMagic)+4:]) != snapSum(data) {
		return nil, fmt.Errorf("its checksum is wrong: %w", ErrSnapshot)
	}
	set, err := snapTypes()
	if err != nil {
		return nil, err
	}
	decoder := set.NewDecoder(body)
	decoder.ShareStrings()
	tally := New()
	if err := tally.read(decoder); err != nil {
		if errors.Is(err, record.ErrUnknownField) {
			return nil, fmt.Errorf("snapshot of the tally: %w: %w", event.ErrNewer, err)
		}
		return nil, fmt.Errorf("%w: %w", ErrSnapshot, err)
	}
	return tally, nil
}

func (t *Tally) read(decoder *record.Decoder) error {
	var head snapHead
	if err := decoder.Value(&head); err != nil {
		return err
	}
	t.uuid = head.UUID
	t.cluster = head.Cluster
	t.seq = head.Seq
	t.at = head.At
	t.midnight = head.Midnight
	t.out.First = t.seq + 1
	var specs []*spec.JobSpec
	for range head.Specs {
		jobSpec := new(spec.JobSpec)
		if err := decoder.Value(jobSpec); err != nil {
			return err
		}
		specs = append(specs, jobSpec)
	}
	for range head.Jobs {
		at, err := decoder.Uint()
		if err != nil {
			return err
		}
		j := new(job)
		if err := decoder.Value(j); err != nil {
			return err
		}
		if at >= uint64(len(specs)) || !j.TaskSet.Valid() || !j.fitsAlloc() {
			return fmt.Errorf("job uid %d does not fit: %w", j.UID, record.ErrMalformed)
		}
		j.spec = specs[at]
		t.jobs[j.UID] = j
		if !j.Over {
			t.open++
		}
	}
	for range head.Nodes {
		n := new(node)
		if err := decoder.Value(n); err != nil {
			return err
		}
		t.nodes[n.Name] = n
		if !n.Gone {
			t.names = append(t.names, n.Name)
		}
	}
	for range head.Assocs {
		var assoc spec.Association
		if err := decoder.Value(&assoc); err != nil {
			return err
		}
		t.assocs[assoc.ID] = assoc
	}
	if decoder.Len() != 0 || !slices.IsSorted(t.names) {
		return fmt.Errorf("%d bytes are left over: %w", decoder.Len(), record.ErrMalformed)
	}
	return nil
}

// fitsAlloc tells whether a job that runs has an allocation with as many nodes as it counts.
func (j *job) fitsAlloc() bool {
	runs := j.Start != 0 && !j.Over
	return !runs || (j.Alloc != nil && len(j.Done) == len(j.Alloc.Nodes))
}
