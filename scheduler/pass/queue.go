package pass

import (
	"slices"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/state/pmap"
	"github.com/musterhpc/muster/scheduler/eligible"
	"github.com/musterhpc/muster/scheduler/order"
	"github.com/musterhpc/muster/scheduler/timeline"
	"github.com/musterhpc/muster/spec"
)

// Queue is what passes remember of the pending jobs: the
// classes they are in. It is updated with the differences between two
// states, so that a pass over a deep queue with few changes is cheap.
// It never changes what a pass proposes. The zero value is ready to use, by
// one caller at a time.
type Queue struct {
	st       *state.State // as of which the rest is
	now      spec.Instant
	order    memberOrder
	jobs     map[spec.JobUID]*waiter
	requests map[uint64]*request // by the hash of their requests
	last     *request
	classes  []*jobClass
	owner    *pmap.Owner
	watch    state.Set // jobs that time or other jobs make ready, or end
	fresh    state.Set // ready jobs that the ledger does not call eligible yet
	claim    state.Set // ready jobs that others made room for

	left           bool // a class has become empty since they were looked through
	mindfulClasses int  // classes that mind who is on the nodes beside them
	hetClasses     int  // classes of heterogeneous jobs

	spares []*jobClass // that nobody is in any more

	line *timeline.Timeline // of the last pass: its memory serves the next one
}

// waiter is a waiting job that is not held.
type waiter struct {
	job     *state.Job
	request *request // nil: in no class
}

// canContinue tells whether the queue of an earlier pass can be brought up to date. Other
// settings change the classes and their order, so the queue is then built again.
func (q *Queue) canContinue(cluster *state.State, now spec.Instant) bool {
	if q.st == nil || now < q.now {
		return false
	}
	return q.st.Config == cluster.Config && q.st.Policy == cluster.Policy &&
		q.st.Parts == cluster.Parts
}

// refreshJobs brings the queue up to date.
func (q *Queue) refreshJobs(cluster *state.State, now spec.Instant) {
	if !q.canContinue(cluster, now) {
		*q = Queue{
			line:     q.line,
			st:       &state.State{},
			order:    memberOrderOf(&cluster.Config.Priority),
			jobs:     make(map[spec.JobUID]*waiter, cluster.Waiting.Len()),
			requests: map[uint64]*request{},
			owner:    new(pmap.Owner),
		}
	}
	pmap.Diff(
		&q.st.Jobs,
		&cluster.Jobs,
		func(key uint64, was *state.Job, _ bool, is *state.Job, _ bool) {
			if was == is {
				return
			}
			if w := q.jobs[spec.JobUID(key)]; w != nil {
				q.leaveClasses(w)
				q.watch.Delete(q.owner, key)
				delete(q.jobs, w.job.UID)
			}
			if is != nil && is.IsUnheld() {
				q.enterJob(cluster, is, now)
			}
		},
	)
	q.st, q.now = cluster, now
	if !q.left {
		return
	}
	q.left = false
	q.classes = slices.DeleteFunc(q.classes, func(class *jobClass) bool {
		if !slices.ContainsFunc(
			class.request.classes,
			func(other *jobClass) bool { return !other.isEmpty() },
		) {
			if class == class.request.classes[0] {
				q.forgetRequest(class.request)
			}
			q.keepSpare(class)
			return true
		}
		return false
	})
}

// forgetRequest drops a request that no pending job makes any more.
func (q *Queue) forgetRequest(request *request) {
	first := q.requests[request.hash]
	switch {
	case first == request && request.next == nil:
		delete(q.requests, request.hash)
	case first == request:
		q.requests[request.hash] = request.next
	default:
		for first.next != request {
			first = first.next
		}
		first.next = request.next
	}
	if q.last == request {
		q.last = nil
	}
}

// countClass adds a class to those of its kind, or takes it away.
func (q *Queue) countClass(class *jobClass, sign int) {
	if class.mindsNeighbours {
		q.mindfulClasses += sign
	}
	if class.request.representative.Het != nil {
		q.hetClasses += sign
	}
}

// anyMindsNeighbours tells whether some pending job restricts its neighbours. Classes that
// became empty since the last update are still counted.
func (q *Queue) anyMindsNeighbours() bool {
	return q.mindfulClasses > 0 &&
		(!q.left || slices.ContainsFunc(q.classes, func(class *jobClass) bool { return class.mindsNeighbours && !class.isEmpty() }))
}

// keepSpare keeps the memory of a class that is gone for another one.
func (q *Queue) keepSpare(class *jobClass) {
	q.countClass(class, -1)
	if len(q.spares) < 64 && cap(class.members) <= 64 {
		clear(class.members[:cap(class.members)])
		*class = jobClass{members: class.members[:0]}
		q.spares = append(q.spares, class)
	}
}

// takeSpare is an empty class.
func (q *Queue) takeSpare() *jobClass {
	n := len(q.spares)
	if n == 0 {
		return &jobClass{}
	}
	class := q.spares[n-1]
	q.spares = q.spares[:n-1]
	return class
}

// enterJob adds a job; one that waits for something besides its turn is watched.
func (q *Queue) enterJob(cluster *state.State, job *state.Job, now spec.Instant) {
	w := &waiter{job: job}
	q.jobs[job.UID] = w
	if job.Het.Follows() {
		return // its leader stands for it
	}
	if job.Begin > now || job.Spec.Queue.Dependency != nil || job.Spec.Time.Deadline != 0 ||
		job.Unfenced > 0 {
		q.watch.Set(q.owner, uint64(job.UID), struct{}{})
		return
	}
	q.joinClasses(cluster, w)
}

// joinClasses puts a job into its classes.
func (q *Queue) joinClasses(cluster *state.State, w *waiter) {
	if w.request != nil {
		return
	}
	w.request = q.findRequest(cluster, w.job)
	for _, class := range w.request.classes {
		class.addMember(memberOf(w.job, q.order))
	}
	if w.job.Eligible == 0 {
		q.fresh.Set(q.owner, uint64(w.job.UID), struct{}{})
	}
	if w.job.Claim != nil {
		q.claim.Set(q.owner, uint64(w.job.UID), struct{}{})
	}
	if w.request.missingParts > 0 {
		q.watch.Set(q.owner, uint64(w.job.UID), struct{}{})
	}
}

// leaveClasses takes a job out of its classes.
func (q *Queue) leaveClasses(w *waiter) {
	if w.request == nil {
		return
	}
	m := memberOf(w.job, q.order)
	for _, class := range w.request.classes {
		class.removeMember(&m)
		q.left = q.left || class.isEmpty()
	}
	w.request = nil
	q.fresh.Delete(q.owner, uint64(w.job.UID))
	q.claim.Delete(q.owner, uint64(w.job.UID))
}

// findRequest finds the classes of a job.
func (q *Queue) findRequest(cluster *state.State, job *state.Job) *request {
	if q.last != nil && sameRequest(q.last.representative, job) {
		return q.last
	}
	h := hashRequest(job)
	for request := q.requests[h]; request != nil; request = request.next {
		if sameRequest(request.representative, job) {
			q.last = request
			return request
		}
	}
	request := &request{representative: job, hash: h}
	nth := 0
	for _, name := range job.Spec.Partitions {
		i := slices.IndexFunc(
			cluster.Parts.List,
			func(p state.Partition) bool { return p.Spec.Name == name },
		)
		if i < 0 {
			request.missingParts++
			continue
		}
		for _, qos := range eligible.QOSChoices(job.Spec) {
			class := q.takeSpare()
			class.part = &cluster.Parts.List[i]
			class.partIndex = i
			class.choice = nth
			class.qos = qos
			class.request = request
			if len(job.Spec.Partitions) == 1 &&
				class.part.Spec.Sharers(job.Spec.Place.Sharing) == 1 &&
				job.Spec.Place.Reservation == "" {
				class.cpus = job.Req.CPU
				class.gpus = job.Req.Get("gres/gpu")
				class.nodeCount = job.Req.Node
			}
			class.mindsNeighbours = mindsNeighbours(cluster.Config, class.part.Spec, job)
			q.countClass(class, 1)
			request.classes = append(request.classes, class)
			q.classes = append(q.classes, class)
			nth++
		}
	}
	request.next, q.requests[h] = q.requests[h], request
	q.last = request
	return request
}

// beginPass prepares all classes that have members for a pass.
func (q *Queue) beginPass(ctx *order.Context) classHeap {
	heap := make(classHeap, 0, len(q.classes))
	for _, class := range q.classes {
		if !class.isEmpty() {
			class.beginPass(ctx)
			heap = append(heap, class)
		}
	}
	return newClassHeap(heap)
}
