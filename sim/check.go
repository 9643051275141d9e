package sim

import (
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// truth records what really happened in the world, independently of the scheduler's state.
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

// noteBegins records that an attempt's processes began on a node. It fails the seed if
// another attempt of the job is alive anywhere, or this one began on the node before.
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

// isSettled tells that no job is left that can still end.
func (w *World) isSettled() bool {
	if !w.ctl.up || len(w.ctl.flying)+len(w.ctl.waiting) > 0 {
		return false
	}
	left, cluster := w.pods.podsLeft(), w.ctl.st
	cluster.Jobs.Range(func(_ uint64, job *state.Job) bool {
		if !job.State.Terminal() && !isHopeless(cluster, job, 0) {
			left = true
		}
		left = left || job.HoldsNodes()
		return !left
	})
	cluster.Nodes.Range(func(_ uint64, node *state.Node) bool {
		left = left || len(node.Unfenced) > 0 || len(node.Holds) > 0
		return !left
	})
	return !left
}

// isHopeless tells a pending job that rightly waits for ever: its dependency can
// never hold, it alone is over a limit, or it waits for such a job, itself or with
// another component.
func isHopeless(cluster *state.State, job *state.Job, depth int) bool {
	if isHopelessAlone(cluster, job, depth) {
		return true
	}
	return job.Het != nil && slices.ContainsFunc(cluster.Components(job),
		func(component *state.Job) bool {
			return component != job && component.State == spec.Pending &&
				isHopelessAlone(cluster, component, depth)
		})
}

// isHopelessAlone is isHopeless without regard to the other components of a heterogeneous job.
func isHopelessAlone(cluster *state.State, job *state.Job, depth int) bool {
	reason := &job.Reason
	if reason.Code == spec.ReasonDependencyNever || reason.Hopeless() ||
		(job.Spec.Place.Reservation != "" &&
			cluster.Reservation(job.Spec.Place.Reservation) == nil) {
		return true
	}
	if job.State != spec.Pending || job.Spec.Queue.Dependency == nil || depth > 100 {
		return false
	}
	for _, term := range job.Spec.Queue.Dependency.Terms {
		if on := cluster.Job(term.UID); on != nil && on.State == spec.Pending &&
			isHopeless(cluster, on, depth+1) {
			return true
		}
		if term.Kind != spec.Singleton {
			continue
		}
		for uid := spec.JobUID(1); uid < job.UID; uid++ {
			other := cluster.Job(uid)
			if other == nil || other.State != spec.Pending || !isNamesake(other, job) {
				continue
			}
			if isHopeless(cluster, other, depth+1) {
				return true
			}
		}
	}
	return false
}

// finalChecks checks what must hold after the faults have ceased.
func (w *World) finalChecks() {
	cluster := w.ctl.st
	if !w.isSettled() {
		cluster.Jobs.Range(func(_ uint64, job *state.Job) bool {
			if (!job.State.Terminal() && !isHopeless(cluster, job, 0)) || job.HoldsNodes() {
				cluster.Nodes.Range(func(_ uint64, node *state.Node) bool {
					w.noteLine(
						"%s: admin %d, power %d, reboot %v, lost %v, jobs %v",
						node.Spec.Name,
						node.Admin,
						node.Power,
						node.Reboot,
						node.Lost,
						node.Jobs,
					)
					return true
				})
				for i := range cluster.Reservations {
					w.noteLine("reservation %+v", cluster.Reservations[i])
				}
				w.noteLine(
					"size %+v: reason %+v, partitions %v",
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
	submitted := w.group.submissions()
	for uid, name := range w.truth.acked {
		if uid >= cluster.NextUID || submitted[uid] != name {
			w.failSeed("acknowledged job uid %d is lost", uid)
		}
	}
	for uid, runs := range w.truth.alive {
		for r, n := range runs {
			if n > 0 {
				w.failSeed("processes of attempt %d of job uid %d are still alive at the end", r.attempt, uid)
			}
		}
	}
	cluster.Nodes.Range(func(_ uint64, node *state.Node) bool {
		if len(node.Unfenced) > 0 {
			w.failSeed("node %s still has unfenced runs: %v", node.Spec.Name, node.Unfenced)
		}
		if !node.Unused() || !node.UsedCPU.Empty() || !node.UsedGPU.Empty() || node.UsedMem != 0 {
			w.failSeed("node %s still has something allocated; jobs %v", node.Spec.Name, node.Jobs)
		}
		return true
	})
	full := state.New()
	w.ctl.foldEntries(full, w.group.chosen)
	if w.err == nil && full.Hash() != cluster.Hash() {
		w.failSeed("the live state is not the fold of the log")
	}
}

// submissions are the names of all jobs that the log has, by uid.
func (g *group) submissions() map[spec.JobUID]string {
	names := map[spec.JobUID]string{}
	for _, e := range g.chosen {
		for i := range e.batch.events {
			if submitted, ok := e.batch.events[i].Event.(*event.JobSubmitted); ok {
				names[submitted.UID] = submitted.Spec.Name
			}
		}
	}
	return names
}

// isNamesake tells whether two jobs exclude each other by --dependency=singleton.
func isNamesake(a, b *state.Job) bool {
	return a.Spec.UID == b.Spec.UID && a.Spec.Name == b.Spec.Name
}
