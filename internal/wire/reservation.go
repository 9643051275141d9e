package wire

import (
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// Reservation writes a reservation as scontrol shows it. One with TIME_FLOAT
// is shown where it is now.
func Reservation(
	cluster *state.State,
	reservation *spec.Reservation,
	now spec.Instant,
) *apiv1.ReservationInfo {
	out := &apiv1.ReservationInfo{
		Name:       reservation.Name,
		Start:      int64(reservation.Start),
		End:        int64(reservation.End),
		Nodes:      reservation.Nodes,
		Partition:  reservation.Part,
		Features:   reservation.Features,
		Users:      reservation.Users,
		Accounts:   reservation.Accounts,
		Groups:     reservation.Groups,
		Qos:        reservation.QOS,
		Partitions: reservation.Parts,
		Flags:      reservation.Flags.String(),
		Purge:      int64(reservation.Purge),
		Comment:    reservation.Comment,
		Licenses:   Counts(reservation.Licenses),
		Tres:       TRES(reservation.TRES),
		Active:     reservation.Start <= now && now < reservation.End,
	}
	if reservation.Flags.Has(spec.ResvTimeFloat) {
		out.Start = int64(now.Add(reservation.Ahead))
		out.End = int64(now.Add(reservation.Ahead + reservation.End.Sub(reservation.Start)))
		out.Active = false
	}
	for _, name := range reservation.Nodes {
		node := cluster.Node(name)
		switch {
		case reservation.Cores != nil:
			out.Cores += reservation.CoresOf(name)
		case node != nil:
			out.Cores += node.Spec.CPUs / max(node.Spec.ThreadsPerCore, 1)
		}
	}
	cluster.Active.Range(func(uid uint64, _ struct{}) bool {
		if job := cluster.Job(spec.JobUID(uid)); job.Alloc != nil &&
			job.Alloc.Reservation == reservation.Name {
			out.Jobs++
		}
		return true
	})
	return out
}
