package state

import (
	"fmt"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/event/record"
	"github.com/musterhpc/muster/spec"
)

// decoder collects the records of a snapshot.
type decoder struct {
	s     *State
	rec   *record.Decoder
	last  uint64 // kind of the last record; kinds before spec come in order
	specs []*spec.JobSpec
}

func newDecoder() (*decoder, error) {
	set, err := snapshotTypes()
	if err != nil {
		return nil, err
	}
	d := &decoder{s: New(), rec: set.NewDecoder(nil)}
	d.rec.ShareStrings()
	return d, nil
}

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrSnapshot, fmt.Sprintf(format, args...))
}

func (d *decoder) decodeBlock(data []byte) error {
	for d.rec.Reset(data); d.rec.Len() > 0; {
		kind, err := d.rec.Uint()
		if err != nil {
			return err
		}
		if kind > snapRuns {
			return fmt.Errorf("snapshot record of kind %d: %w", kind, event.ErrNewer)
		}
		if !d.mayFollow(kind) {
			return damaged("a record of kind %d follows one of kind %d", kind, d.last)
		}
		if err := d.decodeRecord(kind); err != nil {
			return err
		}
		if kind != snapSpent && kind != snapRuns { // which stand between two kinds without a place of their own
			d.last = kind
		}
	}
	return nil
}

// mayFollow tells whether a record of a kind may come next: the first five come
// once each, then any number of nodes, then arrays, then specs and jobs.
func (d *decoder) mayFollow(kind uint64) bool {
	switch {
	case kind == snapSpent, kind == snapRuns:
		return d.last == snapTotals
	case d.last == snapEnd:
		return false
	case kind <= snapTotals || d.last < snapTotals:
		return kind == d.last+1
	case kind == snapSpec:
		return true
	default:
		return kind >= d.last
	}
}

func (d *decoder) decodeRecord(kind uint64) error {
	switch kind {
	case snapMeta:
		return d.decodeMeta()
	case snapConfig:
		return d.rec.Value(d.s.Config)
	case snapPolicy:
		return d.rec.Value(d.s.Policy)
	case snapAccess:
		return d.rec.Value(d.s.Access)
	case snapTotals:
		return d.rec.Value(&d.s.Totals)
	case snapNode:
		n := new(Node)
		if err := d.rec.Value(n); err != nil {
			return err
		}
		d.s.putNode(n)
	case snapSpent:
		return d.decodeSpent()
	case snapRuns:
		return d.decodeRuns()
	case snapArray:
		var a arrayRecord
		if err := d.rec.Value(&a); err != nil {
			return err
		}
		d.s.Arrays.Set(d.s.own, uint64(a.UID),
			&Array{UID: a.UID, ID: a.ID, Started: a.Started, Ended: a.Ended, OK: a.OK, Total: a.Total})
	case snapSpec:
		sp := new(spec.JobSpec)
		d.specs = append(d.specs, sp)
		return d.rec.Value(sp)
	case snapJob:
		return d.decodeJob()
	default:
		var e endRecord
		if err := d.rec.Value(&e); err != nil {
			return err
		}
		if e.Jobs != uint64(d.s.Jobs.Len()) || e.Specs != uint64(len(d.specs)) {
			return damaged("%d jobs of %d and %d specs of %d were read", d.s.Jobs.Len(), e.Jobs, len(d.specs), e.Specs)
		}
	}
	return nil
}

func (d *decoder) decodeSpent() error {
	var r spentRecord
	if err := d.rec.Value(&r); err != nil {
		return err
	}
	switch {
	case r.Aging != nil && r.Spent == nil:
		d.s.Aging = *r.Aging
	case r.Aging == nil && r.Spent != nil && !d.s.Spent.Has(r.Key):
		r.Spent.own = d.s.own
		d.s.Spent.Set(d.s.own, r.Key, r.Spent)
	default:
		return damaged("what %d used is neither once nor well said", r.Key)
	}
	return nil
}

func (d *decoder) decodeRuns() error {
	var r runsRecord
	if err := d.rec.Value(&r); err != nil {
		return err
	}
	if len(r.Runs) == 0 || len(r.Runs) > MaxPastRuns || d.s.Runs.Has(r.UID) {
		return damaged("user %d has %d past runs, or has them twice; 1 to %d are kept", r.UID, len(r.Runs), MaxPastRuns)
	}
	d.s.Runs.Set(d.s.own, r.UID, &UserRuns{Runs: r.Runs})
	return nil
}

func (d *decoder) decodeMeta() error {
	var m metaRecord
	if err := d.rec.Value(&m); err != nil {
		return err
	}
	s := d.s
	s.UUID, s.ClusterName, s.Version, s.Created = m.UUID, m.ClusterName, m.Version, m.Created
	s.Reservations = m.Reservations
	s.Epochs, s.Lost = m.Epochs, m.Lost
	s.Seq, s.At, s.NextUID, s.NextID = m.Seq, m.At, m.NextUID, m.NextID
	if len(m.NodeNames) > 0 {
		s.NodeIDs = make(map[string]spec.NodeID, len(m.NodeNames))
	}
	for i, name := range m.NodeNames {
		s.NodeIDs[name] = spec.NodeID(i)
	}
	if len(s.NodeIDs) != len(m.NodeNames) {
		return damaged("two node ids have one name")
	}
	return nil
}

func (d *decoder) decodeJob() error {
	at, err := d.rec.Uint()
	if err != nil {
		return err
	}
	j := new(Job)
	if err := d.rec.Value(j); err != nil {
		return err
	}
	if at >= uint64(len(d.specs)) || j.State < spec.Pending || j.State > spec.OutOfMemory || !j.Tasks.Valid() {
		return damaged("job uid %d has spec %d of %d, state %d, tasks %v", j.UID, at, len(d.specs), j.State, j.Tasks)
	}
	j.Spec = d.specs[at]
	d.s.putJob(j)
	return nil
}

// finishSnapshot ends a snapshot whose last block was read.
func (d *decoder) finishSnapshot() (*State, error) {
	if d.last != snapEnd {
		return nil, damaged("it has no end")
	}
	if err := d.s.rebuildDerived(); err != nil {
		return nil, err
	}
	return d.s, nil
}

// rebuildDerived derives every index, counter and capacity from the content of a
// state that was just read and that nobody else knows yet.
func (s *State) rebuildDerived() error {
	s.Policy.rebuildIndex()
	s.policyOwn, s.partsOwn = s.own, s.own
	s.Parts = derivePartitions(s.Config, s.NodeIDs)
	if err := s.rebuildNodes(); err != nil {
		return err
	}
	s.Arrays.Range(func(_ uint64, a *Array) bool {
		s.ByID.Set(s.own, uint64(a.ID), a.UID)
		return true
	})
	var err error
	s.Jobs.Range(func(_ uint64, j *Job) bool {
		err = s.adoptJob(j)
		return err == nil
	})
	if err != nil {
		return err
	}
	s.Nodes.Range(func(_ uint64, n *Node) bool {
		n.Shrunk = n.describeOveruse(s.Config) != ""
		return true
	})
	return nil
}

// rebuildNodes gives each node its specification and capacity.
func (s *State) rebuildNodes() error {
	for i := range s.Config.Nodes {
		ns := &s.Config.Nodes[i]
		if n := s.Node(ns.Name); n != nil {
			n.Spec = ns
		}
	}
	var err error
	s.Nodes.Range(func(_ uint64, n *Node) bool {
		if n.Spec == nil || s.NodeByID(n.ID) != n || s.Node(n.Spec.Name) != n {
			err = damaged("node %d is not configured", n.ID)
			return false
		}
		n.deriveCapacity()
		n.takeHolds()
		return true
	})
	return err
}

// adoptJob enters a job into every index and counter.
func (s *State) adoptJob(j *Job) error {
	if j.UID >= s.NextUID || (j.State.Active() && j.Alloc == nil) {
		return damaged("job uid %d (%s) does not fit", j.UID, j.State)
	}
	if j.Array == 0 || j.Array != j.UID {
		s.ByID.Set(s.own, uint64(j.ID), j.UID)
	}
	s.updateIndexes(nil, j)
	s.moveCounters(nil, j)
	if a := s.ArrayOf(j); a != nil {
		a.Records++
		if j.State.Active() {
			a.Running++
		}
		if !j.IsArrayRecord() {
			a.Split.Set(s.own, uint64(j.Task), j.UID)
		}
	} else if j.Array != 0 {
		return damaged("job uid %d belongs to array %d, which is not there", j.UID, j.Array)
	}
	if j.State.Active() {
		s.Licenses = addCounts(s.Licenses, j.Alloc.Licenses, 1)
	}
	if !j.HoldsNodes() {
		return nil
	}
	for i := range j.Alloc.Nodes {
		if j.Done.Has(i) {
			continue
		}
		n := s.NodeByID(j.Alloc.Nodes[i].ID)
		if n == nil || n.Spec.Name != j.Alloc.Nodes[i].Name {
			return damaged("job uid %d holds node %s, which is not there", j.UID, j.Alloc.Nodes[i].Name)
		}
		n.take(&j.Alloc.Nodes[i], j.Alloc.Share > 0, j.Yields)
		n.Jobs = append(n.Jobs, j.UID)
	}
	return nil
}
