// Package explain answers why a job waits, in data: for each node of its
// partitions what is missing, which jobs are in the way, how many are ahead,
// and which smaller request would start earlier.
package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/view"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/scheduler/guarantee"
	"github.com/musterhpc/muster/scheduler/place"
	"github.com/musterhpc/muster/scheduler/timeline"
	"github.com/musterhpc/muster/spec"
)

// Explanation is what is known about a pending job.
type Explanation struct {
	Nodes    []Verdict
	Blockers []spec.JobUID
	// Free is when enough of the blockers are over at the latest, of a job that waits
	// for no nodes: for a licence, or for what a limit counts; 0 = not known.
	Free  spec.Instant
	Ahead int // jobs that the scheduler looks at before it
	// Early is when the job would start if the running jobs ended as their users' similar
	// runs did; 0 = not known, or no earlier than planned.
	Early  spec.Instant
	Advice []Advice
	// Holds are what other schedulers have on nodes that lack something for the job.
	Holds []Hold
	// Guarantee says what is guaranteed to the job's account of what it asks for.
	Guarantee []string
}

// Hold is what another scheduler has on a node, largest first.
type Hold struct {
	Node string
	spec.ForeignHold
}

// Verdict groups nodes that cannot take the job for the same reason.
type Verdict struct {
	Names []string
	Why   string // cpu, mem, gres/gpu, state:drained, …; "fits" if its share of the job could start there
	Free  int64
	Need  int64
}

// Job explains a pending job of a view. The work is a few passes at most.
func Job(v *view.View, job *state.Job, now spec.Instant) (*Explanation, error) {
	x := &Explanation{
		Nodes:     judgeNodes(v.State, job, now),
		Guarantee: guarantee.Explain(v.State, now, job),
	}
	x.Holds = holdsOn(v.State, x.Nodes)
	if job.Reason.Blocker != 0 && v.State.Job(job.Reason.Blocker) != nil {
		x.Blockers = append(x.Blockers, job.Reason.Blocker)
	}
	together := []*state.Job{job}
	if job.Het != nil {
		together = v.State.Components(job) // it waits for what each of them waits for
	}
	for _, c := range together {
		planned := v.Plan.Of(c.UID)
		if planned == nil {
			continue
		}
		for _, uid := range planned.Blockers {
			if len(x.Blockers) < maxBlockers && !slices.Contains(x.Blockers, uid) &&
				v.State.Job(uid) != nil {
				x.Blockers = append(x.Blockers, uid)
			}
		}
	}
	more, free := findHolders(v.State, job)
	x.Free = free
	for _, uid := range more {
		if len(x.Blockers) < maxBlockers && !slices.Contains(x.Blockers, uid) {
			x.Blockers = append(x.Blockers, uid)
		}
	}
	first := job.UID
	if job.Het != nil {
		first = job.Het.Leader // for whose turn all components wait
	}
	x.Ahead = scheduler.Ahead(v.State, now, first)
	var err error
	x.Advice, err = adviseJob(v, job, now)
	if err != nil {
		return nil, err
	}
	x.Early, err = findEarly(v, job, now)
	return x, err
}

// findEarly is when a job with a planned start would start if the running jobs ended as their
// users' similar runs did. It is 0 where that is not earlier than planned.
func findEarly(v *view.View, job *state.Job, now spec.Instant) (spec.Instant, error) {
	planned := v.Plan.Of(job.UID)
	if planned == nil || job.Het != nil || planned.Start <= now {
		return 0, nil
	}
	options := scheduler.PassOptions{EndsPredicted: true}
	explorer, err := scheduler.Explore(v.State, max(now, v.State.At), job.UID, options)
	if err != nil || explorer == nil {
		return 0, err
	}
	early, _, reason := explorer.Start(job.Spec, planned.Start)
	if reason != nil || early >= planned.Start {
		return 0, nil
	}
	return early, nil
}

const maxBlockers = 8

// holdsOn lists what other schedulers have on nodes that lack something: those with
// most devices, then CPUs, then memory.
func holdsOn(st *state.State, verdicts []Verdict) []Hold {
	var out []Hold
	for i := range verdicts {
		if strings.Contains(verdicts[i].Why, ":") && !strings.HasPrefix(verdicts[i].Why, "gres/") &&
			!strings.HasPrefix(verdicts[i].Why, "apart:") ||
			verdicts[i].Why == "fits" {
			continue // more room on the node would not help
		}
		for _, name := range verdicts[i].Names {
			n := st.Node(name)
			for k := range n.Holds {
				out = append(out, Hold{name, n.Holds[k]})
			}
		}
	}
	slices.SortFunc(out, func(a, b Hold) int {
		return cmp.Or(
			-cmp.Compare(len(a.GPUs), len(b.GPUs)),
			-cmp.Compare(a.MilliCPU, b.MilliCPU),
			-cmp.Compare(a.Mem, b.Mem),
			strings.Compare(a.Node, b.Node),
			strings.Compare(a.ID, b.ID),
		)
	})
	return out[:min(len(out), maxBlockers)]
}

// judgeNodes judges every node of the job's partitions, grouped by verdict.
func judgeNodes(st *state.State, job *state.Job, now spec.Instant) []Verdict {
	near := place.Neighbours(st)
	held, _ := timeline.ViewReservations(st, job.Spec, now)
	groups := map[string]*Verdict{}
	seen := map[spec.NodeID]bool{}
	shapes := place.Shapes{Caps: place.Caps(st)}
	for _, name := range job.Spec.Partitions {
		partition := st.Parts.Find(name)
		if partition == nil {
			continue
		}
		demand := place.Resolve(st.Config, partition.Spec, job.Spec)
		may, must, err := scheduler.Nodes(st, partition, job.Spec)
		for id := partition.Nodes.Next(0); id >= 0; id = partition.Nodes.Next(id + 1) {
			node := st.NodeByID(spec.NodeID(id))
			if node == nil || seen[node.ID] {
				continue
			}
			seen[node.ID] = true
			var g Verdict
			switch {
			case err != nil || !may.Has(id):
				g.Why = "request:excluded by --exclude or --constraint"
			case !must.Empty() && int64(must.Count()) >= demand.MaxNodes && !must.Has(id):
				g.Why = "request:not in --nodelist"
			default:
				demand.Inside = held.Cores()
				g = nodeVerdict(st, &demand, &shapes, node)
				if g.Why == "fits" {
					g.Why = keptBy(st, &held, &demand, node, now, near)
				}
			}
			key := fmt.Sprintf("%s/%d/%d", g.Why, g.Free, g.Need)
			if groups[key] == nil {
				groups[key] = &g
			}
			groups[key].Names = append(groups[key].Names, node.Spec.Name)
		}
	}
	out := make([]Verdict, 0, len(groups))
	//muster:unordered the verdicts are sorted below
	for _, g := range groups {
		out = append(out, *g)
	}
	slices.SortFunc(out, func(a, b Verdict) int {
		return cmp.Or(
			strings.Compare(a.Why, b.Why),
			cmp.Compare(a.Free, b.Free),
			cmp.Compare(a.Need, b.Need),
		)
	})
	return out
}

// keptBy says who keeps a node from the job that has enough for it.
func keptBy(
	st *state.State,
	held *timeline.ReservationView,
	demand *place.Demand,
	node *state.Node,
	now spec.Instant,
	near [][]spec.NodeID,
) string {
	switch {
	case held.Only != nil && !held.Only.Has(int(node.ID)):
		return "reservation:not in reservation " + held.Own.Name
	case !held.Clear(node.ID, now, now.Add(demand.Limit)):
		if by := reservedBy(st, node, now, now.Add(demand.Limit)); by != "" &&
			(held.Own == nil || by != held.Own.Name) {
			return "reservation:in reservation " + by
		}
		return "reservation:reservation " + held.Own.Name + " " + closedFor(held.Own, now, demand.Limit)
	case len(st.Reservations) > 0 && coresKept(st, demand, node, now) != "":
		return "reservation:cores kept by reservation " + coresKept(st, demand, node, now)
	case !place.Welcome(st, node, &demand.Tenant, near):
		return "apart:taken by jobs that do not share it with this one"
	}
	return "fits"
}

// closedFor says why a job's own reservation does not let it start now: it does not last for
// as long as the job may run, or it is not on.
func closedFor(own *spec.Reservation, now spec.Instant, limit spec.Span) string {
	if max(now, own.Start).Add(limit) > own.End {
		return "ends before the job would reach its time limit"
	}
	return "has not begun"
}

// coresKept names the reservation whose cores a node lacks for the job, with how
// many CPUs are kept; empty if there are enough.
func coresKept(st *state.State, demand *place.Demand, node *state.Node, now spec.Instant) string {
	own := st.Reservation(demand.Inside)
	switch {
	case own == nil || own.CoresOf(node.Spec.Name) == 0:
		own = nil
	case own.Flags&spec.ResvOpen == 0:
		return "" // it has what it has
	}
	others, who := timeline.KeptByOthers(st, node, own, now, now, now.Add(demand.Limit))
	if others.CPU == 0 {
		return ""
	}
	shapes := place.Shapes{Caps: place.Caps(st)}
	shape := shapes.Of(node)
	free := shape.NowIn(st, node)
	var inside place.Free
	for _, uid := range node.Jobs {
		if j := st.Job(uid); shape.Inside(j.Alloc) {
			a := &j.Alloc.Nodes[j.Alloc.Index(node.ID)]
			inside.CPU, inside.GPU = inside.CPU+int64(
				a.CPUs.Count(),
			), inside.GPU+shape.GPUsInside(
				j.Alloc,
				a,
			)
		}
	}
	free.CPU -= max(others.CPU-inside.CPU, 0)
	free.GPU -= max(others.GPU-inside.GPU, 0)
	for i, kept := range shape.Leave(&others, func(resv string) bool { return resv == demand.Inside }).More {
		free.More[i] -= kept
	}
	switch demand.Lacks(shape, &free).What {
	case "cpu":
		return fmt.Sprintf("%s (%d CPUs of %d)", who, others.CPU, node.CPUs)
	case "gres/gpu":
		return fmt.Sprintf("%s (%d GPUs of %d)", who, others.GPU, len(node.GPUs))
	}
	return ""
}

// reservedBy names the reservation that holds a node first in a span of time.
func reservedBy(st *state.State, node *state.Node, from, to spec.Instant) string {
	name, first := "", spec.FarFuture
	for i := range st.Reservations {
		reservation := &st.Reservations[i]
		if reservation.Cores != nil || !timeline.ReservedNodes(st, reservation).Has(int(node.ID)) {
			continue
		}
		for _, w := range timeline.Windows(reservation, from) {
			if w.From < to && from < w.To && w.From < first {
				name, first = reservation.Name, w.From
			}
		}
	}
	return name
}

// nodeVerdict says why a node cannot take its share of the job now.
func nodeVerdict(
	st *state.State,
	demand *place.Demand,
	shapes *place.Shapes,
	node *state.Node,
) Verdict {
	switch {
	case node.Inv == nil && !node.Asleep():
		return Verdict{Why: "state:not registered"}
	case node.Power == event.PoweringDown:
		return Verdict{Why: "state:being powered down"}
	case node.Power == event.PowerDownASAP:
		return Verdict{Why: "state:to be powered down"}
	case node.RebootsNext():
		return Verdict{Why: "state:to be rebooted, or rebooting"}
	case node.Admin == event.NodeDown:
		return Verdict{Why: "state:down" + givenReason(node)}
	case node.Admin == event.NodeFail:
		return Verdict{Why: "state:failing" + givenReason(node)}
	case node.Admin == event.NodeDrain:
		return Verdict{Why: "state:drained" + givenReason(node)}
	case node.Lost:
		return Verdict{Why: "state:not responding"}
	case node.Invalid != "":
		return Verdict{Why: "state:invalid (" + node.Invalid + ")"}
	}
	shape := shapes.Of(node)
	free := shape.NowIn(st, node)
	lack := demand.Lacks(shape, &free)
	if lack.What == "" {
		return Verdict{Why: "fits"}
	}
	whole := shape.Whole()
	if short := node.Shortfall(); short != "" && demand.Lacks(shape, &whole).What == "gres/gpu" {
		return Verdict{Why: spec.ShortOfGPUs + " (" + short + ")"}
	}
	return Verdict{Why: lack.What, Free: lack.Free, Need: lack.Need}
}

// givenReason is the reason that an operator, or a check, gave for the state of a node.
func givenReason(node *state.Node) string {
	if node.Reason == "" {
		return ""
	}
	return " (" + node.Reason + ")"
}
