package tally

import (
	"errors"
	"fmt"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

// ErrContradiction tells an event that does not fit what was counted so far:
// the ledger was cut, or was not read from where the tally stands.
var ErrContradiction = errors.New("the events do not fit what was counted so far")

// Tally is the counting state: the jobs that the controller still knows, the
// nodes, the associations, and the batch that is being made. One owner.
type Tally struct {
	uuid     [16]byte
	cluster  string
	seq      uint64
	at       spec.Instant
	midnight Micros // of the last event's day

	jobs   map[spec.JobUID]*job
	nodes  map[string]*node
	names  []string // of nodes, sorted
	parts  map[string][]string
	assocs map[uint32]spec.Association

	// used is which of its runs a job had last in histories that were lost. Runs of
	// these jobs are numbered above.
	used map[spec.JobUID]uint32

	touched []*job // changed since the last cut, each once
	out     *Batch
	bodies  *bodies
	quiet   bool // rows are not made: the store has them
	open    int  // runs that are not over
	spare   *Batch
}

// New returns a tally of an empty ledger.
func New() *Tally {
	return &Tally{
		jobs:   map[spec.JobUID]*job{},
		nodes:  map[string]*node{},
		parts:  map[string][]string{},
		assocs: map[uint32]spec.Association{},
		bodies: newBodies(),
		out:    &Batch{First: 1},
	}
}

// Past returns the tally of a ledger of which the events up to one are known to
// have left nothing open, without having read them.
func Past(uuid [16]byte, cluster string, seq uint64, at spec.Instant) *Tally {
	tally := New()
	tally.uuid = uuid
	tally.cluster = cluster
	tally.seq = seq
	tally.at = at
	tally.out.First = seq + 1
	return tally
}

// Seq is the last event that was folded.
func (t *Tally) Seq() uint64 { return t.seq }

// UUID is the identity of the ledger; zero before its first event.
func (t *Tally) UUID() [16]byte { return t.uuid }

// Open is the number of runs that are not over.
func (t *Tally) Open() int { return t.open }

// Quiet stops, or starts again, the making of rows: events that the store has
// are folded only.
func (t *Tally) Quiet(on bool) { t.quiet = on }

// Rows is the number of rows in the batch being made.
func (t *Tally) Rows() int { return t.out.Rows() + len(t.touched) }

// Largest is the number of rows that the batch being made will at least insert
// into one table.
func (t *Tally) Largest() int { return max(t.out.Largest(), len(t.touched)) }

// Apply folds one event. On an error the tally must not be used any more.
func (t *Tally) Apply(envelope *event.Envelope) error {
	if envelope.Seq != t.seq+1 || envelope.Event == nil {
		return fmt.Errorf("event %d follows event %d: %w", envelope.Seq, t.seq, ErrContradiction)
	}
	t.beginDay(envelope)
	if !t.quiet {
		t.record(envelope)
	}
	if err := t.fold(envelope); err != nil {
		return fmt.Errorf("event %d (%s): %w", envelope.Seq, envelope.Event.Kind(), err)
	}
	t.seq, t.at = envelope.Seq, envelope.At
	return nil
}

// fold changes the state and makes the rows that follow from an event.
//
//muster:table one case for each kind of event
func (t *Tally) fold(envelope *event.Envelope) error {
	switch e := envelope.Event.(type) {
	case *event.ClusterCreated:
		t.uuid, t.cluster = e.UUID, e.Name
	case *event.ConfigAdopted:
		return t.applyConfig(envelope, e)
	case *event.NodeAdded:
		t.applyNodeSpec(envelope, &e.Node, e.Partitions)
	case *event.NodeDeleted:
		if n := t.nodes[e.Node]; n != nil && !n.Gone {
			t.applyNodeRemoved(e.Node, envelope)
		}
	case *event.PartitionAdded:
		t.movePartition(envelope, e.Partition.NodeNames, e.Partition.Name, "")
	case *event.PartitionPut:
		if e.Nodes {
			t.movePartition(envelope, t.names, "", e.Partition.Name)
			t.movePartition(envelope, e.Partition.NodeNames, e.Partition.Name, "")
		}
	case *event.PartitionGone:
		t.movePartition(envelope, t.names, "", e.Name)
	case *event.AccountRemoved:
		t.dropAssociations(
			envelope,
			func(association *spec.Association) bool { return association.Account == e.Name },
		)
	case *event.UserRemoved:
		t.dropAssociations(
			envelope,
			func(association *spec.Association) bool { return association.User == e.Name },
		)
	case *event.AssociationPut:
		t.putAssociation(envelope, &e.Association)
	case *event.AssociationRemoved:
		t.dropAssociations(
			envelope,
			func(association *spec.Association) bool { return association.ID == e.ID },
		)
	case *event.JobSubmitted:
		return t.applySubmitted(envelope, e)
	case *event.JobEligible:
		return t.applyEligible(envelope, e)
	case *event.ReasonsChanged:
		return t.applyReasons(envelope, e)
	case *event.JobHeld:
		return t.applyHeld(envelope, e)
	case *event.JobReleased:
		return t.applyReleased(envelope, e)
	case *event.JobUpdated:
		return t.applyUpdated(envelope, e)
	case *event.ArrayTaskSplit:
		return t.applySplit(envelope, e)
	case *event.JobStarted:
		return t.applyStarted(envelope, e)
	case *event.JobEnded:
		return t.applyEnded(envelope, e)
	case *event.JobNodeDone:
		return t.nodeDone(envelope, e)
	case *event.JobSuspended:
		return t.applySuspended(envelope, e)
	case *event.JobResumed:
		return t.applyResumed(envelope, e)
	case *event.JobRequeued:
		return t.applyRequeued(envelope, e)
	case *event.JobPurged:
		return t.applyPurged(e)
	case *event.ImagePinned:
		return t.imagePinned(envelope, e)
	case *event.JobNoted:
		t.applyNoted(envelope, e)
	case *event.StepStarted:
		return t.stepStarted(envelope, e)
	case *event.StepEnded:
		return t.stepEnded(envelope, e)
	case *event.NodeRegistered:
		return t.applyRegistered(envelope, e)
	case *event.NodeStateSet:
		return t.nodeSet(envelope, e)
	case *event.NodeLost:
		return t.nodeLost(envelope, e)
	case *event.NodeReturned:
		return t.nodeReturned(envelope, e)
	case *event.NodeChanged:
		t.nodeChanged(envelope, e)
	case *event.NodePowered:
		t.applyPowered(envelope, e)
	case *event.NodeReboot:
		t.applyReboot(envelope, e)
	case *event.EpochBegan:
		t.out.Epochs = append(t.out.Epochs, Segment{Epoch: e.Value, Seq: envelope.Seq})
	case *event.ClusterVersionRaised,
		*event.TokenIssued,
		*event.TokenSpent,
		*event.CertificateIssued,
		*event.CertificateRevoked,
		*event.CertificatesDropped,
		*event.HistoryLost,
		*event.QOSPut,
		*event.QOSRemoved,
		*event.AccountPut,
		*event.UserPut,
		*event.WCKeyPut,
		*event.WCKeyRemoved,
		*event.ResourcePut,
		*event.ResourceRemoved,
		*event.ClusterPut,
		*event.ClusterRemoved,
		*event.ReservationPut,
		*event.ReservationRemoved,
		*event.CrontabPut,
		*event.TriggerPut,
		*event.TriggerRemoved,
		*event.UserTokenIssued,
		*event.UserTokensEnded,
		*event.UsageAged,
		*event.UsageCleared,
		*event.SharesNoted,
		*event.JobsAccruing,
		*event.JobEndRequested,
		*event.JobSignalled,
		*event.JobPrepared,
		*event.JobEpilogOver,
		*event.JobPodsOver,
		*event.JobReady,
		*event.GPUFaulted,
		*event.StepNodeDone,
		*event.StepEndRequested,
		*event.StepSignalled,
		*event.StepUpdated,
		*event.JobShrunk,
		*event.RunFenced,
		*event.FenceTried,
		*event.ForeignHoldTaken,
		*event.ForeignHoldReleased:
		// The audit trail has them; nothing is counted.
	default:
		return event.ErrNewer
	}
	return nil
}

// Renumber numbers runs above those that a store has from a history which was
// lost: of each job, the last one there. A job that goes on has a further run
// then, as if it had been requeued, and no row of one history replaces one of the
// other. Snapshots do not hold the numbers: who goes on from one says them again,
// which changes nothing where they are known.
func (t *Tally) Renumber(used map[spec.JobUID]uint32) {
	if t.used == nil {
		t.used = map[spec.JobUID]uint32{}
	}
	//muster:unordered each entry stands for itself
	for uid, last := range used {
		t.used[uid] = max(t.used[uid], last)
	}
	for _, uid := range t.sortedUIDs() {
		job := t.jobs[uid]
		last, known := used[uid]
		switch {
		case !known || job.Counted:
		case job.Over:
			job.Restarts = max(job.Restarts, last) // the next one is numbered by it
		default:
			job.Restarts = max(job.Restarts, last+1)
		}
	}
}

// EndedRun is an attempt of which a store has the end. Job, attempt and start name
// the run in every history that it is part of.
type EndedRun struct {
	Attempt
	Start Micros
}

// CountOnce notes, where two histories part, which of the attempts that run there
// have their end in the one that was lost. Such an attempt is one run in both, and is
// counted by the end that the store has. It is called at that place only, before
// Renumber.
func (t *Tally) CountOnce(ended []EndedRun) {
	for _, run := range ended {
		job := t.jobs[run.UID]
		if job == nil || job.Over || job.Start == 0 {
			continue
		}
		if job.Attempt == run.Attempt.Attempt && Cut(job.Start) == run.Start {
			job.Counted = true
		}
	}
}

// firstRun is the number of the first run of a job.
func (t *Tally) firstRun(uid spec.JobUID) uint32 {
	if last, known := t.used[uid]; known {
		return last + 1
	}
	return 0
}

// Goes gives the runs that are not over: those that wait, and the attempts that
// run.
func (t *Tally) Goes() (waiting []spec.JobUID, running []Attempt) {
	for _, uid := range t.sortedUIDs() {
		job := t.jobs[uid]
		if job.Over {
			continue
		}
		if job.Start == 0 {
			waiting = append(waiting, uid)
		} else {
			running = append(running, Attempt{uid, job.Attempt})
		}
	}
	return waiting, running
}

// Take ends the batch being made: it returns everything since the last Take,
// with the newest form of every open run that changed, and starts another.
func (t *Tally) Take() *Batch {
	batch := t.out
	batch.Last, batch.At = t.seq, t.at
	for _, job := range t.touched {
		job.touched = false
		if !job.Over && !job.Counted && !t.quiet {
			batch.Live = append(batch.Live, job.liveRow())
			job.written = true
		}
	}
	t.touched = t.touched[:0]
	t.out = batch.nextBatch(t.spare)
	t.spare = nil
	return batch
}

// Recycle gives back a batch that nobody reads any more: one that follows is
// made in its place.
func (t *Tally) Recycle(batch *Batch) {
	batch.dropRows()
	t.spare = batch
}

// AllLive gives every open run as it is after the last Take, and takes the
// store to have just these: a new generation of the live table.
func (t *Tally) AllLive() []LiveRow {
	uids := t.sortedUIDs()
	rows := make([]LiveRow, 0, len(uids))
	for _, uid := range uids {
		if job := t.jobs[uid]; !job.Over && !job.Counted {
			rows = append(rows, job.liveRow())
			job.written = true
		}
	}
	return rows
}

// touchJob puts a job among those that Take writes.
func (t *Tally) touchJob(j *job, envelope *event.Envelope) {
	j.Changed = envelope.Seq
	if !j.touched {
		j.touched = true
		t.touched = append(t.touched, j)
	}
}

// record makes the event's own row.
func (t *Tally) record(envelope *event.Envelope) {
	uid, attempt, node := about(envelope.Event)
	t.out.Events = append(
		growTwice(t.out.Events),
		EventRow{Seq: envelope.Seq, At: Cut(envelope.At), Kind: envelope.Event.Kind().String(),
			ActorKind: actorKind(
				envelope.Actor.Kind,
			), ActorUID: envelope.Actor.UID, Actor: envelope.Actor.Name, Host: envelope.Actor.Host,
			Command: envelope.Cause.Command, CauseSeq: envelope.Cause.Seq, UID: uint64(uid),
			Attempt: attempt, Node: node,
			Body: t.bodies.text(envelope.Event)},
	)
}

func actorKind(kind event.ActorKind) string {
	switch kind {
	case event.ActorUser:
		return "user"
	case event.ActorNode:
		return "node"
	}
	return "system"
}

// about says which job, attempt and node an event is about.
//
//muster:table one line for each kind
func about(e event.Event) (spec.JobUID, uint32, string) {
	switch e := e.(type) {
	case *event.JobSubmitted:
		return e.UID, 0, ""
	case *event.JobEligible:
		return e.UID, 0, ""
	case *event.JobHeld:
		return e.UID, 0, ""
	case *event.JobReleased:
		return e.UID, 0, ""
	case *event.JobUpdated:
		return e.UID, 0, ""
	case *event.ArrayTaskSplit:
		return e.UID, 0, ""
	case *event.JobStarted:
		return e.UID, e.Attempt, ""
	case *event.JobEndRequested:
		return e.UID, e.Attempt, ""
	case *event.JobSignalled:
		return e.UID, e.Attempt, ""
	case *event.JobPrepared:
		return e.UID, e.Attempt, ""
	case *event.ImagePinned:
		return e.UID, e.Attempt, e.Node
	case *event.JobNoted:
		return e.UID, 0, ""
	case *event.JobEpilogOver:
		return e.UID, e.Attempt, ""
	case *event.JobPodsOver:
		return e.UID, e.Attempt, ""
	case *event.JobSuspended:
		return e.UID, e.Attempt, ""
	case *event.JobResumed:
		return e.UID, e.Attempt, ""
	case *event.JobReady:
		return e.UID, e.Attempt, ""
	case *event.JobEnded:
		return e.UID, e.Attempt, ""
	case *event.JobNodeDone:
		return e.UID, e.Attempt, e.Node
	case *event.JobRequeued:
		return e.UID, e.Attempt, ""
	case *event.StepStarted:
		return e.UID, e.Attempt, ""
	case *event.StepEnded:
		return e.UID, e.Attempt, ""
	case *event.StepNodeDone:
		return e.UID, e.Attempt, e.Node
	case *event.StepEndRequested:
		return e.UID, e.Attempt, ""
	case *event.StepSignalled:
		return e.UID, e.Attempt, ""
	case *event.StepUpdated:
		return e.UID, e.Attempt, ""
	case *event.JobShrunk:
		return e.UID, e.Attempt, ""
	case *event.NodeRegistered:
		return 0, 0, e.Node
	case *event.NodeStateSet:
		return 0, 0, e.Node
	case *event.NodeLost:
		return 0, 0, e.Node
	case *event.NodeReturned:
		return 0, 0, e.Node
	case *event.RunFenced:
		return e.UID, e.Attempt, e.Node
	case *event.FenceTried:
		return 0, 0, e.Node
	case *event.NodePowered:
		return 0, 0, hostlist.Fold(e.Nodes)
	case *event.NodeReboot:
		return 0, 0, e.Node
	case *event.NodeAdded:
		return 0, 0, e.Node.Name
	case *event.NodeDeleted:
		return 0, 0, e.Node
	case *event.NodeChanged:
		return 0, 0, e.Node
	case *event.ForeignHoldTaken:
		return 0, 0, e.Node
	case *event.ForeignHoldReleased:
		return 0, 0, e.Node
	case *event.GPUFaulted:
		return e.Fault.Job, e.Fault.Attempt, e.Node
	}
	return 0, 0, ""
}

func contradictionError(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), ErrContradiction)
}
