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
	return &truth{acked: map[spec.JobUID]string{}, attempts: map[run]bool{}, alive: map[spec.JobUID]map[run]int{},
		started: map[run]map[string]int{}, seen: map[run]bool{}, ever: map[spec.JobUID]bool{}}
}

// noteBegins notes that processes of an attempt live on a node: never while
// another attempt of the job lives anywhere, and once a node.
func (t *truth) noteBegins(w *World, node string, r run) {
	if !t.attempts[r] {
		w.failSeed("%s runs attempt %d of job uid %d, which never became durable", node, r.attempt, r.uid)
	}
	if t.started[r] == nil {
		t.started[r] = map[string]int{}
	}
	t.started[r][node]++
	if t.started[r][node] > 1 {
		w.failSeed("%s starts attempt %d of job uid %d twice", node, r.attempt, r.uid)
	}
	if t.alive[r.uid] == nil {
		t.alive[r.uid] = map[run]int{}
	}
	for other, n := range t.alive[r.uid] {
		if other != r && n > 0 {
			w.failSeed("job uid %d runs twice at once: attempt %d starts on %s while attempt %d lives", r.uid, r.attempt, node, other.attempt)
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
	st.Jobs.Range(func(_ uint64, j *state.Job) bool {
		if !j.State.Terminal() && !hopeless(st, j, 0) {
			left = true
		}
		left = left || j.HoldsNodes()
		return !left
	})
	st.Nodes.Range(func(_ uint64, n *state.Node) bool {
		left = left || len(n.Unfenced) > 0 || len(n.Holds) > 0
		return !left
	})
	return !left
}

// hopeless tells a pending job that rightly waits for ever: its dependency can
// never hold, it alone is over a limit, or it waits for such a job.
func hopeless(st *state.State, j *state.Job, depth int) bool {
	r := &j.Reason
	if r.Code == spec.ReasonDependencyNever || r.Hopeless() || (j.Spec.Place.Reservation != "" && st.Reservation(j.Spec.Place.Reservation) == nil) {
		return true
	}
	if j.Het != nil && depth < 100 && slices.ContainsFunc(st.Components(j), func(c *state.Job) bool { return c != j && c.State == spec.Pending && hopeless(st, c, 100) }) {
		return true
	}
	if j.State != spec.Pending || j.Spec.Queue.Dependency == nil || depth > 100 {
		return false
	}
	for _, t := range j.Spec.Queue.Dependency.Terms {
		if on := st.Job(t.UID); on != nil && on.State == spec.Pending && hopeless(st, on, depth+1) {
			return true
		}
		if t.Kind != spec.Singleton {
			continue
		}
		for uid := spec.JobUID(1); uid < j.UID; uid++ {
			if o := st.Job(uid); o != nil && o.Spec.UID == j.Spec.UID && o.Spec.Name == j.Spec.Name && o.State == spec.Pending && hopeless(st, o, depth+1) {
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
		st.Jobs.Range(func(_ uint64, j *state.Job) bool {
			if (!j.State.Terminal() && !hopeless(st, j, 0)) || j.HoldsNodes() {
				st.Nodes.Range(func(_ uint64, n *state.Node) bool {
					w.noteLine("%s: admin %d, power %d, reboot %v, lost %v, jobs %v", n.Spec.Name, n.Admin, n.Power, n.Reboot, n.Lost, n.Jobs)
					return true
				})
				for i := range st.Reservations {
					w.noteLine("reservation %+v", st.Reservations[i])
				}
				w.noteLine("%+v waits for %+v in %v", j.Spec.Size, j.Reason, j.Spec.Partitions)
				w.failSeed("job uid %d never ends: %s, reason %s, attempt %d, holds nodes %v", j.UID, j.State, j.Reason.Code, j.Attempt, j.HoldsNodes())
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
