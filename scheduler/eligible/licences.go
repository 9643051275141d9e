package eligible

import (
	"slices"
	"strings"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/timeline"
	"github.com/musterhpc/muster/spec"
)

// CheckLicenses says which licence is short for a job that may last so long, or nil.
func CheckLicenses(st *state.State, js *spec.JobSpec, now spec.Instant, limit spec.Span) *spec.Reason {
	_, r := ChooseLicenses(st, js, now, limit)
	return r
}

// ChooseLicenses are the licences that a job gets if it starts now: all that it
// asks for, or the first of those of which one is enough.
func ChooseLicenses(st *state.State, js *spec.JobSpec, now spec.Instant, limit spec.Span) ([]spec.Count, *spec.Reason) {
	if !js.AnyLicense {
		return js.Licenses, CheckLicenseList(st, js, js.Licenses, now, limit)
	}
	var first *spec.Reason
	for i := range js.Licenses {
		one := js.Licenses[i : i+1]
		r := CheckLicenseList(st, js, one, now, limit)
		if r == nil {
			return one, nil
		}
		if first == nil {
			first = r
		}
	}
	return nil, first
}

// CheckLicenseList says which of some licences there are not enough of for a job. What
// a reservation keeps that the job is not in is used while it lasts.
func CheckLicenseList(st *state.State, js *spec.JobSpec, list []spec.Count, now spec.Instant, limit spec.Span) *spec.Reason {
	for _, l := range list {
		total, used := st.LicenseTotal(l.Name), Amount(st.Licenses, l.Name)+keptLicences(st, js, l.Name, now, now.Add(limit))
		if used+l.N > total {
			return &spec.Reason{Code: spec.ReasonLicenses, TRES: "license/" + l.Name, Limit: total, Used: used, Asked: l.N}
		}
	}
	return nil
}

// keptLicences is how many of a licence reservations keep from a job at some
// time between two instants, beside those that the jobs in them hold.
func keptLicences(st *state.State, js *spec.JobSpec, name string, from, to spec.Instant) int64 {
	var kept int64
	for i := range st.Reservations {
		r := &st.Reservations[i]
		n := Amount(r.Licenses, name)
		if n == 0 || slices.Contains(strings.Split(js.Place.Reservation, ","), r.Name) ||
			!slices.ContainsFunc(timeline.Windows(r, from), func(w timeline.Window) bool { return w.From < to && from < w.To }) {
			continue
		}
		st.Active.Range(func(uid uint64, _ struct{}) bool {
			if j := st.Job(spec.JobUID(uid)); j.State.Active() && j.Alloc.Reservation == r.Name {
				n -= Amount(j.Alloc.Licenses, name)
			}
			return true
		})
		kept += max(n, 0)
	}
	return kept
}

func Amount(list []spec.Count, name string) int64 {
	var n int64
	for _, c := range list {
		if c.Name == name {
			n += c.N
		}
	}
	return n
}
