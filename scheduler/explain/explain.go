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
	Free   spec.Instant
	Ahead  int // jobs that the scheduler looks at before it
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
func Job(v *view.View, j *state.Job, now spec.Instant) (*Explanation, error) {
	x := &Explanation{Nodes: judgeNodes(v.State, j, now), Guarantee: guarantee.Explain(v.State, now, j)}
	x.Holds = holdsOn(v.State, x.Nodes)
	if j.Reason.Blocker != 0 && v.State.Job(j.Reason.Blocker) != nil {
		x.Blockers = append(x.Blockers, j.Reason.Blocker)
	}
	together := []*state.Job{j}
	if j.Het != nil {
		together = v.State.Components(j) // it waits for what each of them waits for
	}
	for _, c := range together {
		pl := v.Plan.Of(c.UID)
		if pl == nil {
			continue
		}
		for _, uid := range pl.Blockers {
			if len(x.Blockers) < maxBlockers && !slices.Contains(x.Blockers, uid) && v.State.Job(uid) != nil {
				x.Blockers = append(x.Blockers, uid)
			}
		}
	}
	more, free := findHolders(v.State, j)
	x.Free = free
	for _, uid := range more {
		if len(x.Blockers) < maxBlockers && !slices.Contains(x.Blockers, uid) {
			x.Blockers = append(x.Blockers, uid)
		}
	}
	first := j.UID
	if j.Het != nil {
		first = j.Het.Leader // for whose turn all components wait
	}
	x.Ahead = scheduler.Ahead(v.State, now, first)
	var err error
	x.Advice, err = adviseJob(v, j, now)
	return x, err
}

const maxBlockers = 8

// holdsOn lists what other schedulers have on nodes that lack something: those with
// most devices, then CPUs, then memory.
func holdsOn(st *state.State, verdicts []Verdict) []Hold {
	var out []Hold
	for i := range verdicts {
		if strings.Contains(verdicts[i].Why, ":") && !strings.HasPrefix(verdicts[i].Why, "gres/") && !strings.HasPrefix(verdicts[i].Why, "apart:") || verdicts[i].Why == "fits" {
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
		return cmp.Or(-cmp.Compare(len(a.GPUs), len(b.GPUs)), -cmp.Compare(a.MilliCPU, b.MilliCPU), -cmp.Compare(a.Mem, b.Mem), strings.Compare(a.Node, b.Node), strings.Compare(a.ID, b.ID))
	})
	return out[:min(len(out), maxBlockers)]
}

// judgeNodes judges every node of the job's partitions, grouped by verdict.
func judgeNodes(st *state.State, j *state.Job, now spec.Instant) []Verdict {
	near := place.Neighbours(st)
	held, _ := timeline.ViewReservations(st, j.Spec, now)
	groups := map[string]*Verdict{}
	seen := map[spec.NodeID]bool{}
	shapes := place.Shapes{Caps: place.Caps(st)}
	for _, name := range j.Spec.Partitions {
		p := st.Parts.Find(name)
		if p == nil {
			continue
		}
		d := place.Resolve(st.Config, p.Spec, j.Spec)
		may, must, err := scheduler.Nodes(st, p, j.Spec)
		for id := p.Nodes.Next(0); id >= 0; id = p.Nodes.Next(id + 1) {
			n := st.NodeByID(spec.NodeID(id))
			if n == nil || seen[n.ID] {
				continue
			}
			seen[n.ID] = true
			var g Verdict
			switch {
			case err != nil || !may.Has(id):
				g.Why = "request:excluded by --exclude or --constraint"
			case !must.Empty() && int64(must.Count()) >= d.MaxNodes && !must.Has(id):
				g.Why = "request:not in --nodelist"
			default:
				d.Inside = held.Cores()
				g = nodeVerdict(st, &d, &shapes, n)
				if g.Why == "fits" {
					g.Why = keptBy(st, &held, &d, n, now, near)
				}
			}
			key := fmt.Sprintf("%s/%d/%d", g.Why, g.Free, g.Need)
			if groups[key] == nil {
				groups[key] = &g
			}
			groups[key].Names = append(groups[key].Names, n.Spec.Name)
		}
	}
	out := make([]Verdict, 0, len(groups))
	//muster:unordered the verdicts are sorted below
	for _, g := range groups {
		out = append(out, *g)
	}
	slices.SortFunc(out, func(a, b Verdict) int {
		return cmp.Or(strings.Compare(a.Why, b.Why), cmp.Compare(a.Free, b.Free), cmp.Compare(a.Need, b.Need))
	})
	return out
}

// keptBy says who keeps a node from the job that has enough for it.
func keptBy(st *state.State, held *timeline.ReservationView, d *place.Demand, n *state.Node, now spec.Instant, near [][]spec.NodeID) string {
	switch {
	case held.Only != nil && !held.Only.Has(int(n.ID)):
		return "reservation:not in reservation " + held.Own.Name
	case !held.Clear(n.ID, now, now.Add(d.Limit)):
		if by := reservedBy(st, n, now, now.Add(d.Limit)); by != "" && (held.Own == nil || by != held.Own.Name) {
			return "reservation:in reservation " + by
		}
		return "reservation:reservation " + held.Own.Name + " is not on"
	case len(st.Reservations) > 0 && coresKept(st, d, n, now) != "":
		return "reservation:cores kept by reservation " + coresKept(st, d, n, now)
	case !place.Welcome(st, n, &d.Tenant, near):
		return "apart:taken by jobs that do not share it with this one"
	}
	return "fits"
}

// coresKept names the reservation whose cores a node lacks for the job, with how
// many CPUs are kept; empty if there are enough.
func coresKept(st *state.State, d *place.Demand, n *state.Node, now spec.Instant) string {
	own := st.Reservation(d.Inside)
	switch {
	case own == nil || own.CoresOf(n.Spec.Name) == 0:
		own = nil
	case own.Flags&spec.ResvOpen == 0:
		return "" // it has what it has
	}
	others, who := timeline.KeptByOthers(st, n, own, now, now, now.Add(d.Limit))
	if others.CPU == 0 {
		return ""
	}
	shapes := place.Shapes{Caps: place.Caps(st)}
	s := shapes.Of(n)
	f := s.NowIn(st, n)
	var inside place.Free
	for _, uid := range n.Jobs {
		if j := st.Job(uid); s.Inside(j.Alloc) {
			a := &j.Alloc.Nodes[j.Alloc.Index(n.ID)]
			inside.CPU, inside.GPU = inside.CPU+int64(a.CPUs.Count()), inside.GPU+s.GPUsInside(j.Alloc, a)
		}
	}
	f.CPU -= max(others.CPU-inside.CPU, 0)
	f.GPU -= max(others.GPU-inside.GPU, 0)
	for i, kept := range s.Leave(&others, func(resv string) bool { return resv == d.Inside }).More {
		f.More[i] -= kept
	}
	switch d.Lacks(s, &f).What {
	case "cpu":
		return fmt.Sprintf("%s (%d CPUs of %d)", who, others.CPU, n.CPUs)
	case "gres/gpu":
		return fmt.Sprintf("%s (%d GPUs of %d)", who, others.GPU, len(n.GPUs))
	}
	return ""
}

// reservedBy names the reservation that holds a node first in a span of time.
func reservedBy(st *state.State, n *state.Node, from, to spec.Instant) string {
	name, first := "", spec.FarFuture
	for i := range st.Reservations {
		r := &st.Reservations[i]
		if r.Cores != nil || !timeline.ReservedNodes(st, r).Has(int(n.ID)) {
			continue
		}
		for _, w := range timeline.Windows(r, from) {
			if w.From < to && from < w.To && w.From < first {
				name, first = r.Name, w.From
			}
		}
	}
	return name
}

// nodeVerdict says why a node cannot take its share of the job now.
func nodeVerdict(st *state.State, d *place.Demand, shapes *place.Shapes, n *state.Node) Verdict {
	switch {
	case n.Inv == nil && !n.Asleep():
		return Verdict{Why: "state:not registered"}
	case n.Power == event.PoweringDown:
		return Verdict{Why: "state:being powered down"}
	case n.Power == event.PowerDownASAP:
		return Verdict{Why: "state:to be powered down"}
	case n.Reboot != nil && (n.Reboot.Issued || n.Reboot.ASAP):
		return Verdict{Why: "state:to be rebooted, or rebooting"}
	case n.Admin == event.NodeDown:
		return Verdict{Why: "state:down" + givenReason(n)}
	case n.Admin == event.NodeFail:
		return Verdict{Why: "state:failing" + givenReason(n)}
	case n.Admin == event.NodeDrain:
		return Verdict{Why: "state:drained" + givenReason(n)}
	case n.Lost:
		return Verdict{Why: "state:not responding"}
	case n.Invalid != "":
		return Verdict{Why: "state:invalid (" + n.Invalid + ")"}
	}
	s := shapes.Of(n)
	f := s.NowIn(st, n)
	lack := d.Lacks(s, &f)
	if lack.What == "" {
		return Verdict{Why: "fits"}
	}
	return Verdict{Why: lack.What, Free: lack.Free, Need: lack.Need}
}

// givenReason is the reason that an operator, or a check, gave for the state of a node.
func givenReason(n *state.Node) string {
	if n.Reason == "" {
		return ""
	}
	return " (" + n.Reason + ")"
}
