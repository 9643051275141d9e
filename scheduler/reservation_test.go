package scheduler_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// reserve makes, changes or ends a reservation. Any refusal is fine.
func (w *world) reserve() {
	name := fmt.Sprintf("r%d", w.n("reservation", 1, 3))
	w.user = "root"
	switch w.n("reserve", 0, 4) {
	case 0:
		w.decide(scheduler.DeleteReservation{Name: name, Admin: true})
	case 1:
		w.decide(scheduler.UpdateReservation{Name: name, Set: []spec.KeyValue{{Key: "duration+", Value: fmt.Sprint(w.n("more", 1, 30))}, {Key: "users", Value: pick(w, "users", "alice", "bob")}}})
	default:
		nodes := spec.KeyValue{Key: "nodecnt", Value: fmt.Sprint(w.n("nodecnt", 1, 2))}
		if w.chance("named", 2) {
			nodes = spec.KeyValue{Key: "nodes", Value: pick(w, "nodes", append(w.names(), "ALL")...)}
		}
		w.decide(scheduler.CreateReservation{Name: name, Set: []spec.KeyValue{nodes, {Key: "users", Value: pick(w, "users", "alice", "bob", "-carol")},
			{Key: "starttime", Value: fmt.Sprintf("now+0:%d:00", w.n("in", 0, 50))}, {Key: "duration", Value: fmt.Sprint(w.n("length", 1, 90))},
			{Key: "flags", Value: pick(w, "flags", "", "MAINT", "FLEX", "MAGNETIC", "OVERLAP,IGNORE_JOBS", "DAILY,IGNORE_JOBS", "HOURLY", "PURGE_COMP", "REPLACE", "REPLACE_DOWN,NO_HOLD_JOBS_AFTER_END", "TIME_FLOAT")}}})
	}
}

// judgeReservations: a job starts on reserved nodes only if it may use the
// reservation, or is gone before it begins; one that asked for a reservation
// stays in it.
func (w *world) judgeReservations(before *state.State, j *state.Job, s *scheduler.Start) {
	w.rt.Helper()
	from, to := w.now, w.now.Add(s.Limit)
	own := before.Reservation(s.Alloc.Reservation)
	if j.Spec.Place.Reservation != "" && (own == nil || own.Name != j.Spec.Place.Reservation) {
		w.rt.Fatalf("job %d asked for reservation %s and starts in %q", j.ID, j.Spec.Place.Reservation, s.Alloc.Reservation)
	}
	if own != nil && slices.Contains(own.Users, "-"+j.Spec.User) {
		w.rt.Fatalf("job %d of %s starts in reservation %s of %v", j.ID, j.Spec.User, own.Name, own.Users)
	}
	for i := range s.Alloc.Nodes {
		node := s.Alloc.Nodes[i].Name
		if own != nil && own.Flags&(spec.ResvFlex|spec.ResvMagnetic|spec.ResvTimeFloat) == 0 && (!slices.Contains(own.Nodes, node) || from < own.Start || to > own.End) {
			w.rt.Fatalf("job %d runs on %s from %d to %d; its reservation %s is %v from %d to %d", j.ID, node, from, to, own.Name, own.Nodes, own.Start, own.End)
		}
		for k := range before.Reservations {
			r := &before.Reservations[k]
			mine := r == own || (own != nil && own.Flags.Has(spec.ResvMaint)) || (own == nil || own.Flags.Has(spec.ResvMagnetic)) && r.Flags.Has(spec.ResvMagnetic) && !strings.Contains(strings.Join(r.Users, ","), "-"+j.Spec.User)
			start, end := r.Start, r.End
			if r.Flags.Has(spec.ResvTimeFloat) {
				start, end = w.now.Add(r.Ahead), spec.FarFuture
			}
			for n := 0; n < 3 && !mine; n++ {
				if slices.Contains(r.Nodes, node) && from < end && start < to {
					w.rt.Fatalf("job %d starts on %s until %d, which reservation %s has from %d to %d", j.ID, node, to, r.Name, start, end)
				}
				if start = r.Next(start); start == spec.FarFuture {
					break
				}
				end = start.Add(r.End.Sub(r.Start))
			}
		}
	}
}
