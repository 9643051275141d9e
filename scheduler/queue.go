package scheduler

import (
	"slices"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/state/pmap"
	"github.com/musterhpc/muster/scheduler/order"
	"github.com/musterhpc/muster/scheduler/reserve"
	"github.com/musterhpc/muster/spec"
)

// Queue is what passes remember of the waiting jobs from one to the next: the
// lots they are in. It is brought up to date by what differs between two
// states, so that a pass over a deep queue in which little happened is cheap.
// It never changes what a pass proposes. The zero value is ready; it belongs
// to one caller at a time.
type Queue struct {
	st    *state.State // as of which the rest is
	now   spec.Instant
	rule  rule
	jobs  map[spec.JobUID]*waiter
	kins  map[uint64]*kin // by the hash of their requests
	last  *kin
	lots  []*lot
	own   *pmap.Owner
	watch state.Set // jobs that time or other jobs make ready, or end
	fresh state.Set // ready jobs that the ledger does not call eligible yet
	claim state.Set // ready jobs that others made room for

	left  bool // a lot has become empty since they were looked through
	picky int  // lots that mind who is on the nodes beside them
	hets  int  // lots of heterogeneous jobs

	spares []*lot // that nobody is in any more

	line *reserve.Timeline // of the last pass: its memory serves the next one
}

// waiter is a waiting job that is not held.
type waiter struct {
	job *state.Job
	kin *kin // nil: in no lot
}

// refresh brings the queue up to date.
func (q *Queue) refresh(st *state.State, now spec.Instant) {
	if q.st == nil || q.st.Config != st.Config || q.st.Policy != st.Policy || q.st.Parts != st.Parts || now < q.now {
		*q = Queue{line: q.line, st: &state.State{}, rule: ruleOf(&st.Config.Priority), jobs: make(map[spec.JobUID]*waiter, st.Waiting.Len()),
			kins: map[uint64]*kin{}, own: new(pmap.Owner)}
	}
	pmap.Diff(&q.st.Jobs, &st.Jobs, func(key uint64, was *state.Job, _ bool, is *state.Job, _ bool) {
		if was == is {
			return
		}
		if w := q.jobs[spec.JobUID(key)]; w != nil {
			q.leave(w)
			q.watch.Delete(q.own, key)
			delete(q.jobs, w.job.UID)
		}
		if is != nil && is.State == spec.Pending && is.Hold == spec.NotHeld {
			q.enter(st, is, now)
		}
	})
	q.st, q.now = st, now
	if !q.left {
		return
	}
	q.left = false
	q.lots = slices.DeleteFunc(q.lots, func(l *lot) bool {
		if !slices.ContainsFunc(l.kin.lots, func(o *lot) bool { return !o.empty() }) {
			if l == l.kin.lots[0] {
				q.forget(l.kin)
			}
			q.spare(l)
			return true
		}
		return false
	})
}

// forget drops a request that nobody makes any more.
func (q *Queue) forget(k *kin) {
	first := q.kins[k.hash]
	switch {
	case first == k && k.next == nil:
		delete(q.kins, k.hash)
	case first == k:
		q.kins[k.hash] = k.next
	default:
		for first.next != k {
			first = first.next
		}
		first.next = k.next
	}
	if q.last == k {
		q.last = nil
	}
}

// count adds a lot to those of its kind, or takes it away.
func (q *Queue) count(l *lot, sign int) {
	if l.picky {
		q.picky += sign
	}
	if l.kin.like.Het != nil {
		q.hets += sign
	}
}

// anyPicky tells whether some job that waits minds who is beside it. Lots that
// have become empty since they were looked through are counted still.
func (q *Queue) anyPicky() bool {
	return q.picky > 0 && (!q.left || slices.ContainsFunc(q.lots, func(l *lot) bool { return l.picky && !l.empty() }))
}

// spare keeps the memory of a lot that is gone for another one.
func (q *Queue) spare(l *lot) {
	q.count(l, -1)
	if len(q.spares) < 64 && cap(l.members) <= 64 {
		clear(l.members[:cap(l.members)])
		*l = lot{members: l.members[:0]}
		q.spares = append(q.spares, l)
	}
}

// spareLot is an empty lot.
func (q *Queue) spareLot() *lot {
	n := len(q.spares)
	if n == 0 {
		return &lot{}
	}
	l := q.spares[n-1]
	q.spares = q.spares[:n-1]
	return l
}

// enter takes a job in; one that waits for more than its turn is watched.
func (q *Queue) enter(st *state.State, j *state.Job, now spec.Instant) {
	w := &waiter{job: j}
	q.jobs[j.UID] = w
	if j.Het.Follows() {
		return // its leader stands for it
	}
	if j.Begin > now || j.Spec.Queue.Dependency != nil || j.Spec.Time.Deadline != 0 {
		q.watch.Set(q.own, uint64(j.UID), struct{}{})
		return
	}
	q.join(st, w)
}

// join puts a job into its lots.
func (q *Queue) join(st *state.State, w *waiter) {
	if w.kin != nil {
		return
	}
	w.kin = q.kinOf(st, w.job)
	for _, l := range w.kin.lots {
		l.add(memberOf(w.job, q.rule))
	}
	if w.job.Eligible == 0 {
		q.fresh.Set(q.own, uint64(w.job.UID), struct{}{})
	}
	if w.job.Claim != nil {
		q.claim.Set(q.own, uint64(w.job.UID), struct{}{})
	}
	if w.kin.gone > 0 {
		q.watch.Set(q.own, uint64(w.job.UID), struct{}{})
	}
}

// leave takes a job out of its lots.
func (q *Queue) leave(w *waiter) {
	if w.kin == nil {
		return
	}
	m := memberOf(w.job, q.rule)
	for _, l := range w.kin.lots {
		l.remove(&m)
		q.left = q.left || l.empty()
	}
	w.kin = nil
	q.fresh.Delete(q.own, uint64(w.job.UID))
	q.claim.Delete(q.own, uint64(w.job.UID))
}

// kinOf finds the lots of a job.
func (q *Queue) kinOf(st *state.State, j *state.Job) *kin {
	if q.last != nil && sameAsk(q.last.like, j) {
		return q.last
	}
	h := askHash(j)
	for k := q.kins[h]; k != nil; k = k.next {
		if sameAsk(k.like, j) {
			q.last = k
			return k
		}
	}
	k := &kin{like: j, hash: h}
	nth := 0
	for _, name := range j.Spec.Partitions {
		i := slices.IndexFunc(st.Parts.List, func(p state.Partition) bool { return p.Spec.Name == name })
		if i < 0 {
			k.gone++
			continue
		}
		for _, qos := range qosOf(j.Spec) {
			l := q.spareLot()
			l.part, l.pi, l.nth, l.qos, l.kin = &st.Parts.List[i], i, nth, qos, k
			if len(j.Spec.Partitions) == 1 && l.part.Spec.Sharers(j.Spec.Place.Sharing) == 1 && j.Spec.Place.Reservation == "" {
				l.cpus, l.gpus, l.size = j.Req.CPU, j.Req.Get("gres/gpu"), j.Req.Node
			}
			l.picky = picky(st.Config, l.part.Spec, j)
			q.count(l, 1)
			k.lots = append(k.lots, l)
			q.lots = append(q.lots, l)
			nth++
		}
	}
	k.next, q.kins[h] = q.kins[h], k
	q.last = k
	return k
}

// qosOf are the QOS that a job has a lot for in each of its partitions; an
// empty name stands for the only one.
func qosOf(js *spec.JobSpec) []string {
	if len(js.QOSes) == 0 {
		return []string{""}
	}
	return js.QOSes
}

// begin prepares all lots that have members for a pass.
func (q *Queue) begin(ctx *order.Context) lotHeap {
	h := make(lotHeap, 0, len(q.lots))
	for _, l := range q.lots {
		if !l.empty() {
			l.begin(ctx)
			h = append(h, l)
		}
	}
	return newLotHeap(h)
}
