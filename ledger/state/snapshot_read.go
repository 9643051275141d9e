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

func newDecoder(version uint32) (*decoder, error) {
	set, err := snapshotTypes(version)
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
		if kind != snapSpent &&
			kind != snapRuns { // which stand between two kinds without a place of their own
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
		node := new(Node)
		if err := d.rec.Value(node); err != nil {
			return err
		}
		d.s.putNode(node)
	case snapSpent:
		return d.decodeSpent()
	case snapRuns:
		return d.decodeRuns()
	case snapArray:
		var array arrayRecord
		if err := d.rec.Value(&array); err != nil {
			return err
		}
		d.s.Arrays.Set(
			d.s.own,
			uint64(array.UID),
			&Array{
				UID:     array.UID,
				ID:      array.ID,
				Started: array.Started,
				Ended:   array.Ended,
				OK:      array.OK,
				Total:   array.Total,
			},
		)
	case snapSpec:
		job := new(spec.JobSpec)
		d.specs = append(d.specs, job)
		return d.rec.Value(job)
	case snapJob:
		return d.decodeJob()
	default:
		var end endRecord
		if err := d.rec.Value(&end); err != nil {
			return err
		}
		if end.Jobs != uint64(d.s.Jobs.Len()) || end.Specs != uint64(len(d.specs)) {
			return damaged(
				"%d jobs of %d and %d specs of %d were read",
				d.s.Jobs.Len(),
				end.Jobs,
				len(d.specs),
				end.Specs,
			)
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
		return damaged(
			"user %d has %d past runs, or has them twice; 1 to %d are kept",
			r.UID,
			len(r.Runs),
			MaxPastRuns,
		)
	}
	d.s.Runs.Set(d.s.own, r.UID, &UserRuns{Runs: r.Runs})
	return nil
}

func (d *decoder) decodeMeta() error {
	var meta metaRecord
	if err := d.rec.Value(&meta); err != nil {
		return err
	}
	state := d.s
	state.UUID = meta.UUID
	state.ClusterName = meta.ClusterName
	state.Version = meta.Version
	state.Created = meta.Created
	state.Reservations = meta.Reservations
	state.Crontabs = meta.Crontabs
	state.Triggers = meta.Triggers
	state.NextTrigger = meta.NextTrigger
	state.Leader = meta.Leader
	state.FirstLeader = meta.FirstLeader
	state.Epochs, state.Lost = meta.Epochs, meta.Lost
	state.Seq = meta.Seq
	state.At = meta.At
	state.NextUID = meta.NextUID
	state.NextID = meta.NextID
	if len(meta.NodeNames) > 0 {
		state.NodeIDs = make(map[string]spec.NodeID, len(meta.NodeNames))
	}
	for i, name := range meta.NodeNames {
		state.NodeIDs[name] = spec.NodeID(i)
	}
	if len(state.NodeIDs) != len(meta.NodeNames) {
		return damaged("two node ids have one name")
	}
	return nil
}

func (d *decoder) decodeJob() error {
	at, err := d.rec.Uint()
	if err != nil {
		return err
	}
	job := new(Job)
	if err := d.rec.Value(job); err != nil {
		return err
	}
	if at >= uint64(len(d.specs)) || job.State < spec.Pending || job.State > spec.OutOfMemory ||
		!job.Tasks.Valid() {
		return damaged(
			"job uid %d has spec %d of %d, state %d, tasks %v",
			job.UID,
			at,
			len(d.specs),
			job.State,
			job.Tasks,
		)
	}
	job.Spec = d.specs[at]
	d.s.putJob(job)
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
	s.Arrays.Range(func(_ uint64, array *Array) bool {
		s.ByID.Set(s.own, uint64(array.ID), array.UID)
		return true
	})
	var err error
	s.Jobs.Range(func(_ uint64, job *Job) bool {
		err = s.adoptJob(job)
		return err == nil
	})
	if err != nil {
		return err
	}
	s.Nodes.Range(func(_ uint64, node *Node) bool {
		node.Shrunk = node.describeOveruse(s.Config) != ""
		return true
	})
	return nil
}

// rebuildNodes gives each node its specification and capacity.
func (s *State) rebuildNodes() error {
	for i := range s.Config.Nodes {
		nodeSpec := &s.Config.Nodes[i]
		if node := s.Node(nodeSpec.Name); node != nil {
			node.Spec = nodeSpec
		}
	}
	var err error
	s.Nodes.Range(func(_ uint64, node *Node) bool {
		if node.Spec == nil || s.NodeByID(node.ID) != node || s.Node(node.Spec.Name) != node {
			err = damaged("node %d is not configured", node.ID)
			return false
		}
		node.deriveCapacity()
		node.takeHolds()
		return true
	})
	return err
}

// adoptJob enters a job into every index and counter.
func (s *State) adoptJob(job *Job) error {
	if job.UID >= s.NextUID || (job.State.Active() && job.Alloc == nil) {
		return damaged("job uid %d (%s) does not fit", job.UID, job.State)
	}
	if job.Array == 0 || job.Array != job.UID {
		s.ByID.Set(s.own, uint64(job.ID), job.UID)
	}
	s.indexPods(job)
	s.updateIndexes(nil, job)
	s.moveCounters(nil, job)
	if array := s.ArrayOf(job); array != nil {
		array.Records++
		if job.State.Active() {
			array.Running++
		}
		if !job.IsArrayRecord() {
			array.Split.Set(s.own, uint64(job.Task), job.UID)
		}
	} else if job.Array != 0 {
		return damaged("job uid %d belongs to array %d, which is not there", job.UID, job.Array)
	}
	if job.State.Active() {
		s.Licenses = addCounts(s.Licenses, job.Alloc.Licenses, 1)
	}
	if !job.HoldsNodes() {
		return nil
	}
	for i := range job.Alloc.Nodes {
		if job.Done.Has(i) {
			continue
		}
		node := s.NodeByID(job.Alloc.Nodes[i].ID)
		if node == nil || node.Spec.Name != job.Alloc.Nodes[i].Name {
			return damaged(
				"job uid %d holds node %s, which is not there",
				job.UID,
				job.Alloc.Nodes[i].Name,
			)
		}
		node.take(&job.Alloc.Nodes[i], job.Alloc.Share > 0, job.Yields)
		node.Jobs = append(node.Jobs, job.UID)
	}
	return nil
}
