package timeline

import (
	"slices"
	"strings"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/place"
	"github.com/musterhpc/muster/spec"
)

// This file says what reservations mean for a job: whether it may use one, and at
// what times it is kept off which nodes. A job without a reservation is kept off the
// nodes of those that it may not use while they last. A job with one is kept off
// everything else.

// occurrences is how far ahead a repeated reservation is looked at.
const occurrences = 60

// Windows lists when a reservation holds its nodes, from now on.
func Windows(reservation *spec.Reservation, now spec.Instant) []Window {
	if reservation.Flags.Has(spec.ResvTimeFloat) {
		return []Window{
			{From: now.Add(reservation.Ahead), To: spec.FarFuture},
		} // it moves ahead of every job
	}
	var windows []Window
	length := reservation.End.Sub(reservation.Start)
	for at := reservation.Start; at != spec.FarFuture &&
		len(windows) < occurrences; at = reservation.Next(at) {
		if end := at.Add(length); end > now {
			windows = append(windows, Window{From: at, To: end})
		}
	}
	return windows
}

// ReservationActive tells whether a reservation holds its nodes at an instant.
func ReservationActive(reservation *spec.Reservation, now spec.Instant) bool {
	return !reservation.Flags.Has(spec.ResvTimeFloat) && reservation.Start <= now &&
		now < reservation.End
}

// ReservedNodes is the set of a reservation's nodes.
func ReservedNodes(cluster *state.State, reservation *spec.Reservation) spec.Bitset {
	var set spec.Bitset
	for _, name := range reservation.Nodes {
		if id, ok := cluster.NodeIDs[name]; ok {
			set = set.Set(int(id))
		}
	}
	return set
}

// Admits tells whether a job may use a reservation: its user and its account
// must both be admitted where both are restricted.
func Admits(cluster *state.State, reservation *spec.Reservation, jobSpec *spec.JobSpec) bool {
	accounts := []string{jobSpec.Account}
	for account := cluster.Policy.FindAccount(jobSpec.Account); account != nil &&
		account.Parent != "" &&
		len(accounts) < 64; account = cluster.Policy.FindAccount(account.Parent) {
		accounts = append(accounts, account.Parent)
	}
	return spec.Admits(reservation.Users, jobSpec.User) &&
		spec.Admits(reservation.Accounts, accounts...) &&
		spec.Admits(reservation.Groups, jobSpec.Group) &&
		spec.Admits(reservation.QOS, jobSpec.QOS) &&
		spec.Admits(reservation.Parts, jobSpec.Partitions...)
}

// ReservationView is what the reservations mean for one job.
type ReservationView struct {
	Bars     Bars
	Own      *spec.Reservation // that it asked for and may use
	Only     spec.Bitset       // nodes it may use; nil: any
	Maint    bool              // one of the bars is for maintenance
	Cored    bool              // others keep cores
	others   bool              // one of the bars is another's reservation
	admitted []*spec.Reservation
	magnetic *spec.Reservation // of those the one of cores that the job may use without asking
}

// ViewReservations works out the view of a job. Of several reservations that it names the
// one counts that begins first. A reason means that it cannot use any.
func ViewReservations(
	cluster *state.State,
	jobSpec *spec.JobSpec,
	now spec.Instant,
) (ReservationView, *spec.Reason) {
	var view ReservationView
	if len(cluster.Reservations) == 0 && jobSpec.Place.Reservation == "" {
		return view, nil
	}
	if reason := view.findOwn(cluster, jobSpec, now); reason != nil {
		return view, reason
	}
	var key strings.Builder
	for i := range cluster.Reservations {
		reservation := &cluster.Reservations[i]
		if reservation == view.Own {
			continue
		}
		if view.Own == nil && reservation.Flags.Has(spec.ResvMagnetic) &&
			Admits(cluster, reservation, jobSpec) {
			view.noteMagnetic(reservation, now)
			continue
		}
		if view.Own != nil && !view.Own.Heeds(reservation) {
			continue
		}
		if reservation.Cores != nil {
			view.Cored = true // it bars nobody from a node: see Keep
			continue
		}
		view.Bars.List = append(
			view.Bars.List,
			Bar{Nodes: ReservedNodes(cluster, reservation), Windows: Windows(reservation, now)},
		)
		view.others = true
		view.Maint = view.Maint || reservation.Flags.Has(spec.ResvMaint)
		key.WriteString(reservation.Name + ",")
	}
	if view.Own != nil && !view.Own.Flags.Has(spec.ResvFlex) {
		view.Bars.List = append(
			view.Bars.List,
			Bar{All: true, Windows: outsideWindows(Windows(view.Own, now), now)},
		)
		key.WriteString("=" + view.Own.Name)
	}
	if len(view.Bars.List) > 0 {
		view.Bars.Key = key.String()
	}
	return view, nil
}

// BarredByOthers tells whether reservations that the job may not use keep it off whole nodes.
// The bar around its own reservation does not count.
func (v *ReservationView) BarredByOthers() bool {
	return v.others
}

// noteMagnetic notes a magnetic reservation that a job may use. Of several of cores
// the one counts that begins first.
func (v *ReservationView) noteMagnetic(reservation *spec.Reservation, now spec.Instant) {
	v.admitted = append(v.admitted, reservation)
	if reservation.Cores == nil {
		return
	}
	if w := Windows(reservation, now); len(w) > 0 &&
		(v.magnetic == nil || w[0].From < Windows(v.magnetic, now)[0].From) {
		v.magnetic = reservation
	}
}

// findOwn finds the reservation that a job asked for.
func (v *ReservationView) findOwn(
	cluster *state.State,
	jobSpec *spec.JobSpec,
	now spec.Instant,
) *spec.Reason {
	if jobSpec.Place.Reservation == "" {
		return nil
	}
	first := spec.FarFuture
	for _, name := range strings.Split(jobSpec.Place.Reservation, ",") {
		reservation := cluster.Reservation(name)
		if reservation == nil || !Admits(cluster, reservation, jobSpec) {
			continue
		}
		if windows := Windows(reservation, now); len(windows) > 0 &&
			(v.Own == nil || windows[0].From < first) {
			v.Own, first = reservation, windows[0].From
		}
	}
	if v.Own == nil {
		return &spec.Reason{Code: "ReservationDeleted", Subject: "reservation/" +
			jobSpec.Place.Reservation}
	}
	if v.Own.Flags&(spec.ResvFlex|spec.ResvAnyNodes|spec.ResvLicenseOnly) == 0 {
		v.Only = ReservedNodes(cluster, v.Own)
	}
	return nil
}

// Cores names the reservation whose cores the job runs on, if it keeps cores and
// not whole nodes: its own, or a magnetic one.
func (v *ReservationView) Cores() string {
	switch {
	case v.Own != nil && v.Own.Cores != nil:
		return v.Own.Name
	case v.Own == nil && v.magnetic != nil:
		return v.magnetic.Name
	}
	return ""
}

// KeptOn is what a reservation of cores keeps of a node: CPUs, perhaps GPUs.
func KeptOn(reservation *spec.Reservation, node *state.Node) place.Free {
	return place.Free{
		CPU: reservation.CoresOf(node.Spec.Name) * max(node.Spec.ThreadsPerCore, 1),
		GPU: reservation.GPUsOf(node.Spec.Name),
	}
}

// KeptByOthers is what reservations of cores keep of a node, as it looks now, at some
// time in [from, to), and which of them keeps the most CPUs. Those do not count that
// a job's own one, if there is one, does not heed.
func KeptByOthers(
	cluster *state.State,
	node *state.Node,
	own *spec.Reservation,
	now, from, to spec.Instant,
) (sum place.Free, who string) {
	most := int64(0)
	for i := range cluster.Reservations {
		reservation := &cluster.Reservations[i]
		kept := KeptOn(reservation, node)
		if own != nil && (reservation.Name == own.Name || !own.Heeds(reservation)) {
			continue
		}
		overlaps := func(w Window) bool { return w.From < to && from < w.To }
		if kept.CPU == 0 || !slices.ContainsFunc(Windows(reservation, now), overlaps) {
			continue
		}
		sum.Add(&kept, 1)
		if kept.CPU > most {
			most, who = kept.CPU, reservation.Name
		}
	}
	return sum, who
}

// KeepReserved takes the CPUs and GPUs that reservations of cores keep out of a timeline,
// while they last. Jobs in such a reservation are counted against its own
// counters, so that what they hold is in it already; those that outlast it are
// added.
func KeepReserved(cluster *state.State, timeline *Timeline, now spec.Instant) {
	for i := range cluster.Reservations {
		reservation := &cluster.Reservations[i]
		for _, name := range reservation.Nodes {
			node := cluster.Node(name)
			if node == nil || !timeline.Usable(node.ID) {
				continue
			}
			if kept := KeptOn(reservation, node); kept.CPU > 0 {
				timeline.Keep(node, reservation, kept, Windows(reservation, now))
			}
		}
	}
}

// outsideWindows is the time between windows, before and after them.
func outsideWindows(list []Window, now spec.Instant) []Window {
	var windows []Window
	from := now
	for _, w := range Merge(list) {
		if w.From > from {
			windows = append(windows, Window{From: from, To: w.From})
		}
		from = max(from, w.To)
	}
	if from < spec.FarFuture {
		windows = append(windows, Window{From: from, To: spec.FarFuture})
	}
	return windows
}

// Clear tells whether a job may hold a node throughout [from, to).
func (v *ReservationView) Clear(id spec.NodeID, from, to spec.Instant) bool {
	if v.Only != nil && !v.Only.Has(int(id)) {
		return false
	}
	return !slices.ContainsFunc(v.Bars.List, func(bar Bar) bool {
		return (bar.All || bar.Nodes.Has(int(id))) &&
			slices.ContainsFunc(
				bar.Windows,
				func(w Window) bool { return w.From < to && from < w.To },
			)
	})
}

// Inside names the reservation that a job runs in which starts now on some
// nodes: its own, or a magnetic one that has them all.
func (v *ReservationView) Inside(cluster *state.State, ids []spec.NodeID, now spec.Instant) string {
	if v.Own != nil {
		return v.Own.Name
	}
	for _, reservation := range v.admitted {
		if set := ReservedNodes(cluster, reservation); (reservation.Cores == nil ||
			reservation == v.magnetic) &&
			ReservationActive(reservation, now) &&
			!slices.ContainsFunc(ids, func(id spec.NodeID) bool { return !set.Has(int(id)) }) {
			return reservation.Name
		}
	}
	return ""
}

// CapLimit shortens a time limit that reaches past the end of the job's own reservation. The
// job may start there at any time and ends with the reservation, as under Slurm: it is
// stopped at its time limit, which everybody sees, and not at a moment that only the
// reservation knows.
func (v *ReservationView) CapLimit(limit spec.Span, now spec.Instant) spec.Span {
	if left, bounded := v.Left(now); bounded {
		return min(limit, left)
	}
	return limit
}

// Left is how long a job can have of its own reservation, if that bounds it: what is left of
// it now, or all of it where it is still to come.
func (v *ReservationView) Left(now spec.Instant) (spec.Span, bool) {
	if v.Own == nil || v.Own.Flags&(spec.ResvFlex|spec.ResvTimeFloat) != 0 {
		return 0, false
	}
	list := Windows(v.Own, now)
	if len(list) == 0 {
		return 0, false
	}
	left := list[0].To.Sub(max(now, list[0].From)) / spec.Second * spec.Second
	return left, left > 0
}

// Opens is when a job's own reservation begins, if that is still to come.
func (v *ReservationView) Opens(now spec.Instant) (spec.Instant, bool) {
	if v.Own == nil || v.Own.Flags.Has(spec.ResvFlex) {
		return 0, false
	}
	w := Windows(v.Own, now)
	return w[0].From, w[0].From > now
}
