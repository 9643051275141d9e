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
func Job(snapshot *view.View, job *state.Job, now spec.Instant) (*Explanation, error) {
	explanation := &Explanation{
		Nodes:     judgeNodes(snapshot.State, job, now),
		Guarantee: guarantee.Explain(snapshot.State, now, job),
	}
	explanation.Holds = holdsOn(snapshot.State, explanation.Nodes)
	if job.Reason.Blocker != 0 && snapshot.State.Job(job.Reason.Blocker) != nil {
		explanation.Blockers = append(explanation.Blockers, job.Reason.Blocker)
	}
	together := []*state.Job{job}
	if job.Het != nil {
		together = snapshot.State.Components(job) // it waits for what each of them waits for
	}
	for _, component := range together {
		planned := snapshot.Plan.Of(component.UID)
		if planned == nil {
			continue
		}
		for _, uid := range planned.Blockers {
			if len(explanation.Blockers) < maxBlockers &&
				!slices.Contains(explanation.Blockers, uid) &&
				snapshot.State.Job(uid) != nil {
				explanation.Blockers = append(explanation.Blockers, uid)
			}
		}
	}
	more, free := findHolders(snapshot.State, job)
	explanation.Free = free
	for _, uid := range more {
		if len(explanation.Blockers) < maxBlockers && !slices.Contains(explanation.Blockers, uid) {
			explanation.Blockers = append(explanation.Blockers, uid)
		}
	}
	first := job.UID
	if job.Het != nil {
		first = job.Het.Leader // for whose turn all components wait
	}
	explanation.Ahead = scheduler.Ahead(snapshot.State, now, first)
	var err error
	explanation.Advice, err = adviseJob(snapshot, job, now)
	if err != nil {
		return nil, err
	}
	explanation.Early, err = findEarly(snapshot, job, now)
	return explanation, err
}

// findEarly is when a job with a planned start would start if the running jobs ended as their
// users' similar runs did. It is 0 where that is not earlier than planned.
func findEarly(snapshot *view.View, job *state.Job, now spec.Instant) (spec.Instant, error) {
	planned := snapshot.Plan.Of(job.UID)
	if planned == nil || job.Het != nil || planned.Start <= now {
		return 0, nil
	}
	options := scheduler.PassOptions{EndsPredicted: true}
	explorer, err := scheduler.Explore(
		snapshot.State, max(now, snapshot.State.At), job.UID, options,
	)
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
func holdsOn(cluster *state.State, verdicts []Verdict) []Hold {
	var holds []Hold
	for i := range verdicts {
		if strings.Contains(verdicts[i].Why, ":") && !strings.HasPrefix(verdicts[i].Why, "gres/") &&
			!strings.HasPrefix(verdicts[i].Why, "apart:") ||
			verdicts[i].Why == "fits" {
			continue // more room on the node would not help
		}
		for _, name := range verdicts[i].Names {
			node := cluster.Node(name)
			for k := range node.Holds {
				holds = append(holds, Hold{name, node.Holds[k]})
			}
		}
	}
	slices.SortFunc(holds, func(a, b Hold) int {
		return cmp.Or(
			-cmp.Compare(len(a.GPUs), len(b.GPUs)),
			-cmp.Compare(a.MilliCPU, b.MilliCPU),
			-cmp.Compare(a.Mem, b.Mem),
			strings.Compare(a.Node, b.Node),
			strings.Compare(a.ID, b.ID),
		)
	})
	return holds[:min(len(holds), maxBlockers)]
}

// judgeNodes judges every node of the job's partitions, grouped by verdict.
func judgeNodes(cluster *state.State, job *state.Job, now spec.Instant) []Verdict {
	near := place.Neighbours(cluster)
	held, _ := timeline.ViewReservations(cluster, job.Spec, now)
	groups := map[string]*Verdict{}
	seen := map[spec.NodeID]bool{}
	shapes := place.Shapes{Caps: place.Caps(cluster)}
	for _, name := range job.Spec.Partitions {
		partition := cluster.Parts.Find(name)
		if partition == nil {
			continue
		}
		demand := place.Resolve(cluster.Config, partition.Spec, job.Spec)
		may, must, err := scheduler.Nodes(cluster, partition, job.Spec)
		for id := partition.Nodes.Next(0); id >= 0; id = partition.Nodes.Next(id + 1) {
			node := cluster.NodeByID(spec.NodeID(id))
			if node == nil || seen[node.ID] {
				continue
			}
			seen[node.ID] = true
			var verdict Verdict
			switch {
			case err != nil || !may.Has(id):
				verdict.Why = "request:excluded by --exclude or --constraint"
			case !must.Empty() && int64(must.Count()) >= demand.MaxNodes && !must.Has(id):
				verdict.Why = "request:not in --nodelist"
			default:
				demand.Inside = held.Cores()
				demand.Limit = held.CapLimit(demand.Limit, now)
				verdict = nodeVerdict(cluster, &demand, &shapes, node)
				if verdict.Why == "fits" {
					verdict.Why = keptBy(cluster, &held, &demand, node, now, near)
				}
			}
			key := fmt.Sprintf("%s/%d/%d", verdict.Why, verdict.Free, verdict.Need)
			if groups[key] == nil {
				groups[key] = &verdict
			}
			groups[key].Names = append(groups[key].Names, node.Spec.Name)
		}
	}
	verdicts := make([]Verdict, 0, len(groups))
	//muster:unordered the verdicts are sorted below
	for _, verdict := range groups {
		verdicts = append(verdicts, *verdict)
	}
	slices.SortFunc(verdicts, func(a, b Verdict) int {
		return cmp.Or(
			strings.Compare(a.Why, b.Why),
			cmp.Compare(a.Free, b.Free),
			cmp.Compare(a.Need, b.Need),
		)
	})
	return verdicts
}

// keptBy says who keeps a node from the job that has enough for it.
func keptBy(
	cluster *state.State,
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
		if by := reservedBy(cluster, node, now, now.Add(demand.Limit)); by != "" &&
			(held.Own == nil || by != held.Own.Name) {
			return "reservation:in reservation " + by
		}
		return "reservation:reservation " + held.Own.Name + " has not begun"
	case len(cluster.Reservations) > 0 && coresKept(cluster, demand, node, now) != "":
		return "reservation:cores kept by reservation " + coresKept(cluster, demand, node, now)
	case !place.Welcome(cluster, node, &demand.Tenant, near):
		return "apart:taken by jobs that do not share it with this one"
	}
	return "fits"
}

// coresKept names the reservation whose cores a node lacks for the job, with how
// many CPUs are kept; empty if there are enough.
func coresKept(
	cluster *state.State, demand *place.Demand, node *state.Node, now spec.Instant,
) string {
	own := cluster.Reservation(demand.Inside)
	switch {
	case own == nil || own.CoresOf(node.Spec.Name) == 0:
		own = nil
	case own.Flags&spec.ResvOpen == 0:
		return "" // it has what it has
	}
	others, who := timeline.KeptByOthers(cluster, node, own, now, now, now.Add(demand.Limit))
	if others.CPU == 0 {
		return ""
	}
	shapes := place.Shapes{Caps: place.Caps(cluster)}
	shape := shapes.Of(node)
	free := shape.NowIn(cluster, node)
	var inside place.Free
	for _, uid := range node.Jobs {
		if job := cluster.Job(uid); shape.Inside(job.Alloc) {
			allocation := &job.Alloc.Nodes[job.Alloc.Index(node.ID)]
			inside.CPU, inside.GPU = inside.CPU+int64(
				allocation.CPUs.Count(),
			), inside.GPU+shape.GPUsInside(
				job.Alloc,
				allocation,
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
func reservedBy(cluster *state.State, node *state.Node, from, to spec.Instant) string {
	name, first := "", spec.FarFuture
	for i := range cluster.Reservations {
		reservation := &cluster.Reservations[i]
		if reservation.Cores != nil ||
			!timeline.ReservedNodes(cluster, reservation).Has(int(node.ID)) {
			continue
		}
		for _, window := range timeline.Windows(reservation, from) {
			if window.From < to && from < window.To && window.From < first {
				name, first = reservation.Name, window.From
			}
		}
	}
	return name
}

// nodeVerdict says why a node cannot take its share of the job now.
func nodeVerdict(
	cluster *state.State,
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
	free := shape.NowIn(cluster, node)
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
