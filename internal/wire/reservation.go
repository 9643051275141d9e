package wire

import (
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// Reservation writes a reservation as scontrol shows it. One with TIME_FLOAT
// is shown where it is now.
func Reservation(st *state.State, r *spec.Reservation, now spec.Instant) *apiv1.ReservationInfo {
	out := &apiv1.ReservationInfo{Name: r.Name, Start: int64(r.Start), End: int64(r.End), Nodes: r.Nodes, Partition: r.Part, Features: r.Features,
		Users: r.Users, Accounts: r.Accounts, Groups: r.Groups, Qos: r.QOS, Partitions: r.Parts, Flags: r.Flags.String(), Purge: int64(r.Purge),
		Comment: r.Comment, Licenses: Counts(r.Licenses), Tres: TRES(r.TRES), Active: r.Start <= now && now < r.End}
	if r.Flags.Has(spec.ResvTimeFloat) {
		out.Start, out.End, out.Active = int64(now.Add(r.Ahead)), int64(now.Add(r.Ahead+r.End.Sub(r.Start))), false
	}
	for _, name := range r.Nodes {
		n := st.Node(name)
		switch {
		case r.Cores != nil:
			out.Cores += r.CoresOf(name)
		case n != nil:
			out.Cores += n.Spec.CPUs / max(n.Spec.ThreadsPerCore, 1)
		}
	}
	st.Active.Range(func(uid uint64, _ struct{}) bool {
		if j := st.Job(spec.JobUID(uid)); j.Alloc != nil && j.Alloc.Reservation == r.Name {
			out.Jobs++
		}
		return true
	})
	return out
}
