package eligible

import (
	"slices"
	"strings"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/timeline"
	"github.com/musterhpc/muster/spec"
)

// CheckLicenses says which licence is short for a job that may last so long, or nil.
func CheckLicenses(
	cluster *state.State,
	jobSpec *spec.JobSpec,
	now spec.Instant,
	limit spec.Span,
) *spec.Reason {
	_, reason := ChooseLicenses(cluster, jobSpec, now, limit)
	return reason
}

// ChooseLicenses are the licences that a job gets if it starts now: all that it
// asks for, or the first of those of which one is enough.
func ChooseLicenses(
	cluster *state.State,
	jobSpec *spec.JobSpec,
	now spec.Instant,
	limit spec.Span,
) ([]spec.Count, *spec.Reason) {
	if !jobSpec.AnyLicense {
		return jobSpec.Licenses, CheckLicenseList(cluster, jobSpec, jobSpec.Licenses, now, limit)
	}
	var first *spec.Reason
	for i := range jobSpec.Licenses {
		one := jobSpec.Licenses[i : i+1]
		reason := CheckLicenseList(cluster, jobSpec, one, now, limit)
		if reason == nil {
			return one, nil
		}
		if first == nil {
			first = reason
		}
	}
	return nil, first
}

// CheckLicenseList says which of some licences there are not enough of for a job. What
// a reservation keeps that the job is not in is used while it lasts.
func CheckLicenseList(
	cluster *state.State,
	jobSpec *spec.JobSpec,
	list []spec.Count,
	now spec.Instant,
	limit spec.Span,
) *spec.Reason {
	for _, l := range list {
		total, used := cluster.LicenseTotal(
			l.Name,
		), Amount(
			cluster.Licenses,
			l.Name,
		)+keptLicences(
			cluster,
			jobSpec,
			l.Name,
			now,
			now.Add(limit),
		)
		if used+l.N > total {
			return &spec.Reason{
				Code:  spec.ReasonLicenses,
				TRES:  "license/" + l.Name,
				Limit: total,
				Used:  used,
				Asked: l.N,
			}
		}
	}
	return nil
}

// keptLicences is how many of a licence reservations keep from a job at some
// time between two instants, beside those that the jobs in them hold.
func keptLicences(
	cluster *state.State,
	jobSpec *spec.JobSpec,
	name string,
	from, to spec.Instant,
) int64 {
	var kept int64
	for i := range cluster.Reservations {
		reservation := &cluster.Reservations[i]
		n := Amount(reservation.Licenses, name)
		if n == 0 ||
			slices.Contains(strings.Split(jobSpec.Place.Reservation, ","), reservation.Name) ||
			!slices.ContainsFunc(timeline.Windows(reservation, from), func(w timeline.Window) bool { return w.From < to && from < w.To }) {
			continue
		}
		cluster.Active.Range(func(uid uint64, _ struct{}) bool {
			if job := cluster.Job(spec.JobUID(uid)); job.State.Active() &&
				job.Alloc.Reservation == reservation.Name {
				n -= Amount(job.Alloc.Licenses, name)
			}
			return true
		})
		kept += max(n, 0)
	}
	return kept
}

func Amount(list []spec.Count, name string) int64 {
	var n int64
	for _, count := range list {
		if count.Name == name {
			n += count.N
		}
	}
	return n
}
