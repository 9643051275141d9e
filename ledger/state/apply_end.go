package state

import (
	"cmp"
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

func (s *State) applyEnded(envelope *event.Envelope, ended *event.JobEnded) error {
	job, err := s.editJob(ended.UID, envelope)
	if err != nil {
		return err
	}
	if job.State.Terminal() || !ended.State.Terminal() || ended.State > spec.OutOfMemory ||
		ended.Attempt != job.Attempt {
		return contradictionError(
			"job uid %d (%s, attempt %d) cannot end as %s of attempt %d",
			ended.UID,
			job.State,
			job.Attempt,
			ended.State,
			ended.Attempt,
		)
	}
	over, err := job.overAt(ended.At, envelope.At)
	if err != nil {
		return err
	}
	wasActive := job.State.Active()
	if wasActive {
		s.chargeUse(job, over)
		job.oweEpilog(ended.Epilog, ended.Exit, ended.Derived)
	}
	count := uint64(job.Count())
	job.State = ended.State
	job.Reason = ended.Reason
	job.Exit = ended.Exit
	job.Derived = ended.Derived
	job.EndedBy = ended.By
	job.noteEnd(over, envelope.At)
	job.EndSeq = envelope.Seq
	job.Prepares = false
	job.countSuspension(over)
	job.Claim, job.Auto = nil, false
	if !wasActive {
		job.Alloc = nil
		job.Done = nil
		job.Launched = nil
	} else {
		s.Licenses = addCounts(s.Licenses, job.Alloc.Licenses, -1)
		s.rememberRun(job, ended, over)
	}
	s.storeJob(job)
	s.tally(job, func(array *Array) {
		array.Ended += int64(count)
		if wasActive {
			array.Running--
		}
		if job.hasSucceeded() {
			array.OK += int64(count)
		}
	})
	s.countEnd(job, count, wasActive, over)
	return nil
}

// overAt is when an attempt was over: when its node says so, or with the event.
// It cannot have been over before it began or while it was suspended.
func (j *Job) overAt(said, heard spec.Instant) (spec.Instant, error) {
	if said == 0 {
		return heard, nil
	}
	if !j.State.Active() || said < j.EarliestEnd() || said > heard {
		return 0, contradictionError(
			"attempt %d of job uid %d (%s) cannot have been over at %d: it could from %d to %d",
			j.Attempt,
			j.UID,
			j.State,
			said,
			j.EarliestEnd(),
			heard,
		)
	}
	return said, nil
}

// EarliestEnd is before when an active attempt was certainly not over.
func (j *Job) EarliestEnd() spec.Instant { return max(j.Started, j.Ready, j.SuspendedAt, j.Turn) }

// HeardEnd is when the controller learnt that the job was over.
func (j *Job) HeardEnd() spec.Instant { return cmp.Or(j.Heard, j.Ended) }

func (j *Job) noteEnd(over, heard spec.Instant) {
	j.Ended = over
	j.Heard = 0
	if over != heard {
		j.Heard = heard
	}
}

// hasSucceeded tells what afterok waits for.
func (j *Job) hasSucceeded() bool { return j.State == spec.Completed && j.Exit.OK() }

func (s *State) applyNodeDone(envelope *event.Envelope, e *event.JobNodeDone) error {
	job, err := s.editJob(e.UID, envelope)
	if err != nil {
		return err
	}
	if job.Alloc == nil || job.Attempt != e.Attempt || !job.HoldsNodes() {
		return contradictionError("attempt %d of job uid %d holds no nodes", e.Attempt, e.UID)
	}
	i := slices.IndexFunc(job.Alloc.Nodes, func(a spec.NodeAlloc) bool { return a.Name == e.Node })
	if i < 0 || job.Done.Has(i) {
		return contradictionError(
			"node %s is not, or no longer, allocated to job uid %d",
			e.Node,
			e.UID,
		)
	}
	if e.Rest != nil && (!job.State.Active() || !slices.Contains(job.Leaving, e.Node)) {
		return contradictionError(
			"job uid %d is %s and does not give node %s back before its end",
			e.UID,
			job.State,
			e.Node,
		)
	}
	job.Usage = job.Usage.Add(e.Usage)
	if e.Batch != nil {
		job.Batch = e.Batch
	}
	allocation := &job.Alloc.Nodes[i]
	if e.Rest != nil {
		s.chargeUse(job, envelope.At) // what it used so far, it used with the node
		job.withoutNode(i, *e.Rest)
		job.Charged = envelope.At
	} else {
		job.Done = job.Done.Clone().Set(i)
	}
	if k := slices.Index(job.Leaving, e.Node); k >= 0 {
		job.Leaving = slices.Delete(slices.Clone(job.Leaving), k, k+1)
		if len(job.Leaving) == 0 {
			job.Leaving = nil
		}
	}
	node := *s.NodeByID(allocation.ID)
	node.give(allocation, job.Alloc.Share > 0, job.Yields)
	node.Shrunk = node.Shrunk && node.describeOveruse(s.Config) != ""
	node.BusyAt = envelope.At
	if k, ok := slices.BinarySearch(node.Jobs, job.UID); ok {
		node.Jobs = without(node.Jobs, k)
	}
	if e.Unfenced {
		debt := Unfenced{
			UID:       e.UID,
			Attempt:   e.Attempt,
			Since:     envelope.At,
			Until:     e.FencedBy,
			Partition: job.Alloc.Partition,
			Epoch:     job.Epoch,
			Lease:     job.Alloc.Lease,
		}
		node.GaveUp = envelope.Seq
		node.Unfenced = append(slices.Clip(node.Unfenced), debt)
		job.Unfenced++
	}
	s.storeJob(job)
	if node.isGone() {
		s.Nodes.Delete(s.own, uint64(node.ID))
	} else {
		s.putNode(&node)
	}
	return nil
}

// withoutNode takes a node out of the allocation of an attempt that goes on.
func (j *Job) withoutNode(i int, rest spec.TRES) {
	whole := j.Alloc
	if j.Launched == nil {
		j.Launched = whole
	}
	less := *whole
	less.TRES = rest
	less.Nodes = slices.Delete(slices.Clone(whole.Nodes), i, i+1)
	if less.Tasks > whole.Nodes[i].Tasks {
		less.Tasks -= whole.Nodes[i].Tasks
	}
	var done spec.Bitset
	for k := range whole.Nodes {
		switch {
		case k == i || !j.Done.Has(k):
		case k < i:
			done = done.Set(k)
		default:
			done = done.Set(k - 1)
		}
	}
	j.Alloc, j.Done = &less, done
}

// applyShrunk notes which nodes a running attempt gives back.
func (s *State) applyShrunk(envelope *event.Envelope, e *event.JobShrunk) error {
	job, err := s.editJob(e.UID, envelope)
	if err != nil {
		return err
	}
	if job.State != spec.Running || job.Attempt != e.Attempt || job.Ending != nil ||
		len(e.Nodes) == 0 {
		return contradictionError(
			"attempt %d of job uid %d (%s) gives no nodes back",
			e.Attempt,
			e.UID,
			job.State,
		)
	}
	leaving := slices.Clone(job.Leaving)
	for _, name := range e.Nodes {
		i := slices.IndexFunc(
			job.Alloc.Nodes,
			func(a spec.NodeAlloc) bool { return a.Name == name },
		)
		if i <= 0 || job.Done.Has(i) || slices.Contains(leaving, name) {
			return contradictionError(
				"job uid %d cannot give node %s back: it is its first, or not one that it keeps",
				e.UID,
				name,
			)
		}
		leaving = append(leaving, name)
	}
	job.Leaving = leaving
	s.storeJob(job)
	return nil
}

// applyRunFenced takes back that an attempt may still live on a node. The job
// itself may be forgotten by then.
func (s *State) applyRunFenced(envelope *event.Envelope, e *event.RunFenced) error {
	old := s.Node(e.Node)
	if old == nil || !old.HasUnfenced(e.UID, e.Attempt) {
		return contradictionError(
			"attempt %d of job uid %d is not unfenced on node %s",
			e.Attempt,
			e.UID,
			e.Node,
		)
	}
	node := *old
	node.Unfenced = slices.Delete(
		slices.Clone(node.Unfenced),
		node.findOwed(e.UID, e.Attempt),
		node.findOwed(e.UID, e.Attempt)+1,
	)
	if len(node.Unfenced) == 0 {
		node.Unfenced, node.FenceTry = nil, nil
	}
	if node.isGone() {
		s.Nodes.Delete(s.own, uint64(node.ID))
	} else {
		s.putNode(&node)
	}
	if s.Job(e.UID) == nil {
		return nil
	}
	job, err := s.editJob(e.UID, envelope)
	if err != nil {
		return err
	}
	if job.Unfenced == 0 {
		return contradictionError("job uid %d has no unfenced attempt", e.UID)
	}
	job.Unfenced--
	s.storeJob(job)
	return nil
}

// applyFenceTried notes why a node is not fenced yet.
func (s *State) applyFenceTried(envelope *event.Envelope, e *event.FenceTried) error {
	old := s.Node(e.Node)
	if old == nil || len(old.Unfenced) == 0 {
		return contradictionError(
			"node %s owes no run that a fence program could be asked for",
			e.Node,
		)
	}
	node := *old
	node.FenceTry = &FenceTry{At: envelope.At, Try: e.Try, Program: e.Program, Why: e.Why}
	s.putNode(&node)
	return nil
}

// UnfencedNodes lists the nodes on which an earlier attempt of a job may still
// live, by id.
func (s *State) UnfencedNodes(uid spec.JobUID) []*Node {
	if job := s.Job(uid); job == nil || job.Unfenced == 0 {
		return nil
	}
	var nodes []*Node
	s.Nodes.Range(func(_ uint64, node *Node) bool {
		if slices.ContainsFunc(node.Unfenced, func(u Unfenced) bool { return u.UID == uid }) {
			nodes = append(nodes, node)
		}
		return true
	})
	return nodes
}

// without returns a copy of a list less one element; nil when none is left.
func without(list []spec.JobUID, i int) []spec.JobUID {
	if len(list) == 1 {
		return nil
	}
	uids := make([]spec.JobUID, 0, len(list)-1)
	return append(append(uids, list[:i]...), list[i+1:]...)
}

func (s *State) applyRequeued(envelope *event.Envelope, e *event.JobRequeued) error {
	job, err := s.editJob(e.UID, envelope)
	if err != nil {
		return err
	}
	if job.State == spec.Pending || job.Attempt != e.Attempt || job.HoldsNodes() {
		return contradictionError(
			"attempt %d of job uid %d cannot be requeued (%s)",
			e.Attempt,
			e.UID,
			job.State,
		)
	}
	over, err := job.overAt(e.At, envelope.At)
	if err != nil {
		return err
	}
	wasActive := job.State.Active()
	succeeded := job.hasSucceeded()
	count := job.Count()
	partition := job.Partition() // where it ran; it may go elsewhere next
	if wasActive {
		s.chargeUse(job, over)
		job.oweEpilog(e.Epilog, e.Exit, e.Exit)
		s.Licenses = addCounts(s.Licenses, job.Alloc.Licenses, -1)
	}
	s.tally(job, func(array *Array) {
		if wasActive {
			array.Running--
			return
		}
		array.Ended -= count
		if succeeded {
			array.OK -= count
		}
	})
	job.countSuspension(over)
	job.State = spec.Pending
	job.Hold = e.Hold
	job.Reason = e.Reason
	job.Begin = e.Begin
	job.Submitted = envelope.At
	job.Eligible = 0
	job.Accrue = 0
	job.NoAccrue = false
	job.Restarts, job.Prepares = job.Restarts+1, false
	job.Promised = 0
	if e.Counts {
		job.Requeues++
	}
	job.Exit = e.Exit
	job.Ending = nil
	job.Ended = over
	job.Heard = 0
	job.EndSeq = 0
	job.Alloc = nil
	job.Done = nil
	job.Yields = false
	job.Auto = false
	job.Boots = false
	job.Ready = 0
	job.Leaving = nil
	job.Launched = nil
	job.Charged = 0
	s.storeJob(job)
	s.countRequeue(partition, e.State)
	return nil
}

// oweEpilog notes what EpilogSlurmctld is to learn about the attempt that ends.
func (j *Job) oweEpilog(due bool, exit, derived spec.ExitStatus) {
	if due {
		j.Epilogs = append(
			slices.Clip(j.Epilogs),
			Epilog{
				Attempt:  j.Attempt,
				Restarts: j.Restarts,
				Alloc:    j.Alloc,
				Started:  j.Started,
				Until:    j.Deadline(),
				Exit:     exit,
				Derived:  derived,
			},
		)
	}
}

func (s *State) applyEpilogOver(envelope *event.Envelope, epilog *event.JobEpilogOver) error {
	job, err := s.editJob(epilog.UID, envelope)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(job.Epilogs, func(d Epilog) bool { return d.Attempt == epilog.Attempt })
	if i < 0 {
		return contradictionError(
			"no EpilogSlurmctld is due for attempt %d of job uid %d",
			epilog.Attempt,
			epilog.UID,
		)
	}
	job.Epilogs = slices.Delete(slices.Clone(job.Epilogs), i, i+1)
	if len(job.Epilogs) == 0 {
		job.Epilogs = nil
	}
	s.storeJob(job)
	return nil
}

func (s *State) applyPurged(e *event.JobPurged) error {
	for _, uid := range e.UIDs {
		job := s.Job(uid)
		if job == nil || !job.isFinished() {
			return contradictionError(
				"job uid %d cannot be purged: it does not exist or is not finished",
				uid,
			)
		}
		s.Jobs.Delete(s.own, uint64(uid))
		s.countOwned(job.Spec.UID, -1)
		s.forgetPods(job)
		s.Finished.Delete(s.own, job.EndSeq)
		if array := s.ArrayOf(job); array != nil {
			s.purgeTask(array, job)
		} else {
			s.ByID.Delete(s.own, uint64(job.ID))
		}
	}
	return nil
}

// purgeTask takes a record out of its array. The number that people know the
// array by stays taken until its last record is gone.
func (s *State) purgeTask(array *Array, job *Job) {
	if job.UID != array.UID {
		s.ByID.Delete(s.own, uint64(job.ID))
	}
	c := *array
	c.Records--
	if c.Records == 0 {
		s.Arrays.Delete(s.own, uint64(c.UID))
		s.ByID.Delete(s.own, uint64(c.ID))
		return
	}
	if !job.IsArrayRecord() {
		c.Split.Delete(s.own, uint64(job.Task))
	}
	s.Arrays.Set(s.own, uint64(c.UID), &c)
}

// countSuspension counts the time since a job was suspended.
func (j *Job) countSuspension(now spec.Instant) {
	if j.SuspendedAt != 0 {
		j.Paused += now.Sub(j.SuspendedAt)
		j.SuspendedAt = 0
	}
}

func (s *State) applySuspended(envelope *event.Envelope, e *event.JobSuspended) error {
	job, err := s.editJob(e.UID, envelope)
	if err != nil {
		return err
	}
	if job.State == spec.Suspended && job.Attempt == e.Attempt {
		job.Auto = e.Auto
		s.storeJob(job)
		return nil
	}
	if job.State != spec.Running || job.Attempt != e.Attempt {
		return contradictionError(
			"attempt %d of job uid %d does not run (%s)",
			e.Attempt,
			e.UID,
			job.State,
		)
	}
	job.State = spec.Suspended
	job.SuspendedAt = envelope.At
	job.Yields = e.Yields && job.Alloc.Share == 0
	job.Auto = e.Auto
	job.LastSignal = &Signal{Number: sigStop, Scope: event.SignalFull, Seq: envelope.Seq}
	s.storeJob(job)
	if job.Yields {
		for node := range s.nodesOf(job) {
			node.UsedCPU = node.UsedCPU.AndNot(
				job.Alloc.Nodes[job.Alloc.Index(node.ID)].CPUs,
			).Trim()
			node.BusyAt = envelope.At
			node.Shrunk = node.Shrunk && node.describeOveruse(s.Config) != ""
		}
	}
	s.claimRoom(e.For, e.Room, envelope)
	return nil
}

// InItsPlace names a node on which others hold the CPUs that a suspended job
// left to them; empty if it can go on.
func (s *State) InItsPlace(job *Job) string {
	for i := 0; job.Yields && i < len(job.Alloc.Nodes); i++ {
		allocation := &job.Alloc.Nodes[i]
		if node := s.NodeByID(allocation.ID); !job.Done.Has(i) &&
			node.UsedCPU.Intersects(allocation.CPUs) {
			return allocation.Name
		}
	}
	return ""
}

// nodesOf gives copies of the nodes that a job holds, and puts each into the
// registry when it was changed.
func (s *State) nodesOf(job *Job) func(yield func(*Node) bool) {
	return func(yield func(*Node) bool) {
		for i := range job.Alloc.Nodes {
			if job.Done.Has(i) {
				continue
			}
			node := *s.NodeByID(job.Alloc.Nodes[i].ID)
			more := yield(&node)
			s.putNode(&node)
			if !more {
				return
			}
		}
	}
}

func (s *State) applyPrepared(envelope *event.Envelope, e *event.JobPrepared) error {
	job, err := s.editJob(e.UID, envelope)
	if err != nil {
		return err
	}
	if !job.Prepares || job.Attempt != e.Attempt {
		return contradictionError(
			"attempt %d of job uid %d is not being prepared (%s)",
			e.Attempt,
			e.UID,
			job.State,
		)
	}
	job.Prepares, job.Reason = false, spec.Reason{Code: spec.ReasonNone}
	s.storeJob(job)
	return nil
}

func (s *State) applyImagePinned(envelope *event.Envelope, e *event.ImagePinned) error {
	job, err := s.editJob(e.UID, envelope)
	if err != nil {
		return err
	}
	if !job.HoldsNodes() || job.Attempt != e.Attempt {
		return contradictionError(
			"attempt %d of job uid %d is not on a node (%s)",
			e.Attempt,
			e.UID,
			job.State,
		)
	}
	if spec.FindDigest(job.Images, e.Image) != "" {
		return contradictionError("job uid %d has image %s already", e.UID, e.Image)
	}
	pinned := spec.PinnedImage{Image: e.Image, Digest: e.Digest}
	job.Images = append(slices.Clip(job.Images), pinned)
	s.storeJob(job)
	return nil
}

// applyNoted changes what is said of a job. Of one that is forgotten there is nothing to
// change here: accounting has it.
func (s *State) applyNoted(envelope *event.Envelope, e *event.JobNoted) error {
	if e.UID == 0 || e.UID >= s.NextUID {
		return contradictionError("job uid %d has never been", e.UID)
	}
	if s.Job(e.UID) == nil {
		return nil
	}
	job, err := s.editJob(e.UID, envelope)
	if err != nil {
		return err
	}
	noted := *job.Spec
	e.Amend(&noted)
	job.Spec = &noted
	if e.Derived != nil && job.State.Terminal() {
		job.Derived = *e.Derived
	}
	s.storeJob(job)
	return nil
}

func (s *State) applyResumed(envelope *event.Envelope, e *event.JobResumed) error {
	job, err := s.editJob(e.UID, envelope)
	if err != nil {
		return err
	}
	if job.State != spec.Suspended || job.Attempt != e.Attempt {
		return contradictionError(
			"attempt %d of job uid %d is not suspended (%s)",
			e.Attempt,
			e.UID,
			job.State,
		)
	}
	if node := s.InItsPlace(job); node != "" {
		return contradictionError(
			"job uid %d cannot go on: others hold its CPUs on node %s",
			e.UID,
			node,
		)
	}
	if job.Yields {
		for node := range s.nodesOf(job) {
			node.UsedCPU = node.UsedCPU.Or(job.Alloc.Nodes[job.Alloc.Index(node.ID)].CPUs).Trim()
			node.BusyAt = envelope.At
			node.Shrunk = node.describeOveruse(s.Config) != ""
		}
	}
	job.State = spec.Running
	job.Yields = false
	job.Auto = false
	job.Turn = envelope.At
	job.countSuspension(envelope.At)
	job.LastSignal = &Signal{Number: sigCont, Scope: event.SignalFull, Seq: envelope.Seq}
	s.storeJob(job)
	return nil
}
