package sim

import (
	"slices"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// truth is what really happened, written down by the world itself.
type truth struct {
	acked    map[spec.JobUID]string // submissions that were acknowledged
	attempts map[run]bool           // starts that became durable
	alive    map[spec.JobUID]map[run]int
	started  map[run]map[string]int // how often each node started the attempt
	order    []run                  // every run ever started or ended, in order
	seen     map[run]bool
	ever     map[spec.JobUID]bool // job uids that had a process
	starts   Starts
}

func newTruth() *truth {
	return &truth{
		acked:    map[spec.JobUID]string{},
		attempts: map[run]bool{},
		alive:    map[spec.JobUID]map[run]int{},
		started:  map[run]map[string]int{},
		seen:     map[run]bool{},
		ever:     map[spec.JobUID]bool{},
	}
}

// noteBegins notes that processes of an attempt live on a node: never while
// another attempt of the job lives anywhere, and once a node.
func (t *truth) noteBegins(world *World, node string, r run) {
	if !t.attempts[r] {
		world.failSeed(
			"%s runs attempt %d of job uid %d, which never became durable",
			node,
			r.attempt,
			r.uid,
		)
	}
	if t.started[r] == nil {
		t.started[r] = map[string]int{}
	}
	t.started[r][node]++
	if t.started[r][node] > 1 {
		world.failSeed("%s starts attempt %d of job uid %d twice", node, r.attempt, r.uid)
	}
	if t.alive[r.uid] == nil {
		t.alive[r.uid] = map[run]int{}
	}
	for other, n := range t.alive[r.uid] {
		if other != r && n > 0 {
			world.failSeed(
				"job uid %d runs twice at once: attempt %d starts on %s while attempt %d lives",
				r.uid,
				r.attempt,
				node,
				other.attempt,
			)
		}
	}
	t.alive[r.uid][r]++
	t.ever[r.uid] = true
	if !t.seen[r] {
		t.seen[r] = true
		t.order = append(t.order, r)
	}
}

func (t *truth) noteEnds(_ *World, _ string, r run) { t.alive[r.uid][r]-- }

// isSettled tells that nothing that can still end is left.
func (w *World) isSettled() bool {
	if !w.ctl.up || len(w.ctl.flying) > 0 {
		return false
	}
	left, st := w.pods.podsLeft(), w.ctl.st
	st.Jobs.Range(func(_ uint64, job *state.Job) bool {
		if !job.State.Terminal() && !isHopeless(st, job, 0) {
			left = true
		}
		left = left || job.HoldsNodes()
		return !left
	})
	st.Nodes.Range(func(_ uint64, n *state.Node) bool {
		left = left || len(n.Unfenced) > 0 || len(n.Holds) > 0
		return !left
	})
	return !left
}

// isHopeless tells a pending job that rightly waits for ever: its dependency can
// never hold, it alone is over a limit, or it waits for such a job.
func isHopeless(st *state.State, job *state.Job, depth int) bool {
	reason := &job.Reason
	if reason.Code == spec.ReasonDependencyNever || reason.Hopeless() ||
		(job.Spec.Place.Reservation != "" && st.Reservation(job.Spec.Place.Reservation) == nil) {
		return true
	}
	if job.Het != nil && depth < 100 &&
		slices.ContainsFunc(
			st.Components(job),
			func(c *state.Job) bool { return c != job && c.State == spec.Pending && isHopeless(st, c, 100) },
		) {
		return true
	}
	if job.State != spec.Pending || job.Spec.Queue.Dependency == nil || depth > 100 {
		return false
	}
	for _, term := range job.Spec.Queue.Dependency.Terms {
		if on := st.Job(term.UID); on != nil && on.State == spec.Pending &&
			isHopeless(st, on, depth+1) {
			return true
		}
		if term.Kind != spec.Singleton {
			continue
		}
		for uid := spec.JobUID(1); uid < job.UID; uid++ {
			o := st.Job(uid)
			if o == nil || o.State != spec.Pending || !isNamesake(o, job) {
				continue
			}
			if isHopeless(st, o, depth+1) {
				return true
			}
		}
	}
	return false
}

// finalChecks hold after the faults have ceased.
func (w *World) finalChecks() {
	st := w.ctl.st
	if !w.isSettled() {
		st.Jobs.Range(func(_ uint64, job *state.Job) bool {
			if (!job.State.Terminal() && !isHopeless(st, job, 0)) || job.HoldsNodes() {
				st.Nodes.Range(func(_ uint64, n *state.Node) bool {
					w.noteLine(
						"%s: admin %d, power %d, reboot %v, lost %v, jobs %v",
						n.Spec.Name,
						n.Admin,
						n.Power,
						n.Reboot,
						n.Lost,
						n.Jobs,
					)
					return true
				})
				for i := range st.Reservations {
					w.noteLine("reservation %+v", st.Reservations[i])
				}
				w.noteLine(
					"%+v waits for %+v in %v",
					job.Spec.Size,
					job.Reason,
					job.Spec.Partitions,
				)
				w.failSeed(
					"job uid %d never ends: %s, reason %s, attempt %d, holds nodes %v",
					job.UID,
					job.State,
					job.Reason.Code,
					job.Attempt,
					job.HoldsNodes(),
				)
			}
			return w.err == nil
		})
	}
	w.pods.checkFinal()
	for uid := range w.truth.acked {
		if uid >= st.NextUID {
			w.failSeed("acknowledged job uid %d is lost", uid)
		}
	}
	for uid, runs := range w.truth.alive {
		for r, n := range runs {
			if n > 0 {
				w.failSeed("processes of attempt %d of job uid %d outlive it", r.attempt, uid)
			}
		}
	}
	st.Nodes.Range(func(_ uint64, n *state.Node) bool {
		if len(n.Unfenced) > 0 {
			w.failSeed("node %s still owes the end of %v", n.Spec.Name, n.Unfenced)
		}
		if !n.Unused() || !n.UsedCPU.Empty() || !n.UsedGPU.Empty() || n.UsedMem != 0 {
			w.failSeed("node %s still holds something: %v", n.Spec.Name, n.Jobs)
		}
		return true
	})
	full := state.New()
	w.ctl.foldLog(full, w.ctl.log)
	if w.err == nil && full.Hash() != st.Hash() {
		w.failSeed("the live state is not the fold of the log")
	}
}

// isNamesake tells whether two jobs exclude each other by --dependency=singleton.
func isNamesake(a, b *state.Job) bool {
	return a.Spec.UID == b.Spec.UID && a.Spec.Name == b.Spec.Name
}
