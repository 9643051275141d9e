package scheduler_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/scheduler/timeline"
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
		if w.chance("cores", 3) {
			w.reserveCores(name)
			return
		}
		w.decide(scheduler.CreateReservation{Name: name, Set: []spec.KeyValue{nodes, {Key: "users", Value: pick(w, "users", "alice", "bob", "-carol")},
			{Key: "starttime", Value: fmt.Sprintf("now+0:%d:00", w.n("in", 0, 50))}, {Key: "duration", Value: fmt.Sprint(w.n("length", 1, 90))},
			{Key: "flags", Value: pick(w, "flags", "", "MAINT", "FLEX", "MAGNETIC", "OVERLAP,IGNORE_JOBS", "DAILY,IGNORE_JOBS", "HOURLY", "PURGE_COMP", "REPLACE", "REPLACE_DOWN,NO_HOLD_JOBS_AFTER_END", "TIME_FLOAT")}}})
	}
}

// reserveCores reserves cores, and not whole nodes.
func (w *world) reserveCores(name string) {
	set := []spec.KeyValue{{Key: "corecnt", Value: fmt.Sprint(w.n("corecnt", 1, 4))}, {Key: "users", Value: pick(w, "users", "alice", "bob", "-carol")},
		{Key: "starttime", Value: fmt.Sprintf("now+0:%d:00", w.n("in", 0, 50))}, {Key: "duration", Value: fmt.Sprint(w.n("length", 1, 90))},
		{Key: "flags", Value: pick(w, "flags", "", "", "DAILY", "HOURLY", "PURGE_COMP", "TIME_FLOAT", "STATIC_ALLOC", "MAINT", "OVERLAP", "IGNORE_JOBS", "OVERLAP,IGNORE_JOBS", "FLEX", "FLEX,OVERLAP", "MAGNETIC", "MAGNETIC,FLEX", "ANY_NODES", "REPLACE", "REPLACE_DOWN")}}
	switch w.n("where", 0, 5) {
	case 4:
		set[0] = spec.KeyValue{Key: "tres", Value: fmt.Sprintf("gres/gpu=%d", w.n("gpus", 1, 4))}
	case 5:
		set[0] = spec.KeyValue{Key: "trespernode", Value: fmt.Sprintf("gres/gpu=%d,cpu=%d", w.n("gpus", 1, 2), w.n("cpus", 1, 3))}
		set = append(set, spec.KeyValue{Key: "nodecnt", Value: fmt.Sprint(w.n("nodecnt", 1, 2))})
	case 0:
		set = append(set, spec.KeyValue{Key: "nodes", Value: pick(w, "nodes", w.names()...)})
	case 1:
		set = append(set, spec.KeyValue{Key: "nodecnt", Value: fmt.Sprint(w.n("nodecnt", 1, 2))})
	case 2:
		set[0] = spec.KeyValue{Key: "tres", Value: fmt.Sprintf("cpu=%d", w.n("cpus", 1, 6))}
	}
	w.decide(scheduler.CreateReservation{Name: name, Set: set})
}

// judgeCores: jobs in a reservation of cores have no more CPUs of a node than it
// keeps there; the others leave it these whenever it is on. The same of the GPUs
// of those that keep some; the GPUs of a job in one that keeps none are as the
// others'.
func (w *world) judgeCores(before *state.State, out *scheduler.Outcome, i int) {
	w.rt.Helper()
	w.judgeKept(before, out, i, "CPUs", keptUnits{
		of: func(a *spec.NodeAlloc) int64 { return int64(a.CPUs.Count()) },
		keeps: func(r *spec.Reservation, n *state.Node) int64 {
			return r.CoresOf(n.Spec.Name) * max(n.Spec.ThreadsPerCore, 1)
		},
		all:   func(n *state.Node) int64 { return n.CPUs },
		has:   func(r *spec.Reservation) bool { return r.Cores != nil },
		yield: true,
	})
	w.judgeKept(before, out, i, "GPUs", keptUnits{
		of:    func(a *spec.NodeAlloc) int64 { return int64(len(a.GPUs)) },
		keeps: func(r *spec.Reservation, n *state.Node) int64 { return r.GPUsOf(n.Spec.Name) },
		all:   func(n *state.Node) int64 { return int64(len(n.GPUs)) },
		has:   func(r *spec.Reservation) bool { return r.GPUs != nil },
	})
}

// keptUnits is what a reservation can keep of nodes.
type keptUnits struct {
	of    func(a *spec.NodeAlloc) int64
	keeps func(r *spec.Reservation, n *state.Node) int64
	all   func(n *state.Node) int64
	has   func(r *spec.Reservation) bool
	yield bool // suspended jobs leave it to others
}

func (w *world) judgeKept(before *state.State, out *scheduler.Outcome, i int, what string, u keptUnits) {
	w.rt.Helper()
	s := &out.Starts[i]
	of := func(a *spec.Allocation, node string) int64 {
		if k := slices.IndexFunc(a.Nodes, func(n spec.NodeAlloc) bool { return n.Name == node }); k >= 0 {
			return u.of(&a.Nodes[k])
		}
		return 0
	}
	inside := func(a *spec.Allocation) string {
		if r := before.Reservation(a.Reservation); r != nil && u.has(r) {
			return r.Name
		}
		return ""
	}
	// sum is what jobs hold of a node at an instant, inside a reservation or in none.
	sum := func(node, who string, at spec.Instant) int64 {
		var n int64
		for _, j := range w.jobsOf(before, func(j *state.Job) bool { return j.HoldsNodes() }) {
			if k := j.Alloc.Index(before.NodeIDs[node]); k >= 0 && !j.Done.Has(k) && !(u.yield && j.Yields) && inside(j.Alloc) == who && (max(j.Deadline(), w.now+1) > at && !j.Completing() && j.Ending == nil || at <= w.now) {
				n += of(j.Alloc, node)
			}
		}
		for k := range out.Starts[:i+1] {
			if o := &out.Starts[k]; inside(o.Alloc) == who && w.now.Add(o.Limit) > at {
				n += of(o.Alloc, node)
			}
		}
		return n
	}
	for k := range s.Alloc.Nodes {
		node := s.Alloc.Nodes[k].Name
		cfg := before.Node(node)
		if u.of(&s.Alloc.Nodes[k]) == 0 {
			continue
		}
		own := inside(s.Alloc)
		r := before.Reservation(own)
		if own != "" && !slices.Contains(r.Nodes, node) {
			own, r = "", nil // the job is in it, this node is not
		}
		if r != nil && r.Flags&spec.ResvOpen == 0 {
			if n := sum(node, own, w.now); n > u.keeps(r, cfg) {
				w.rt.Fatalf("jobs in reservation %s have %d %s of %s; it keeps %d", own, n, what, node, u.keeps(r, cfg))
			}
			continue
		}
		mine := before.Reservation(s.Alloc.Reservation)
		for q := range before.Reservations {
			o, r := r, &before.Reservations[q]
			if r == o || o != nil && !o.Heeds(r) || mine == nil && r.Flags.Has(spec.ResvMagnetic) && timeline.Admits(before, r, before.Job(s.UID).Spec) {
				continue
			}
			start, length := r.Start, r.End.Sub(r.Start)
			if r.Flags.Has(spec.ResvTimeFloat) {
				start, length = w.now.Add(r.Ahead), 365*spec.Day
			}
			for n := 0; n < 3 && start != spec.FarFuture; n, start = n+1, r.Next(start) {
				at := max(start, w.now)
				if at >= start.Add(length) || at >= w.now.Add(s.Limit) || u.keeps(r, cfg) == 0 {
					continue
				}
				held, kept := sum(node, "", at), u.keeps(r, cfg)
				if own != "" {
					held += sum(node, own, at)
				}
				if held+kept > u.all(cfg) {
					w.rt.Fatalf("job %d starts on %s: others hold %d of its %d %s when reservation %s keeps %d", s.UID, node, held, u.all(cfg), what, r.Name, kept)
				}
			}
		}
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
		if own != nil && own.Flags&(spec.ResvOpen|spec.ResvTimeFloat) == 0 && (!slices.Contains(own.Nodes, node) || from < own.Start || to > own.End && own.Next(own.Start) != own.End) { // one that comes again at once goes on
			w.rt.Fatalf("job %d runs on %s from %d to %d; its reservation %s is %v from %d to %d", j.ID, node, from, to, own.Name, own.Nodes, own.Start, own.End)
		}
		for k := range before.Reservations {
			r := &before.Reservations[k]
			if r.Cores != nil {
				continue // see judgeCores
			}
			mine := r == own || (own != nil && !own.Heeds(r)) || (own == nil || own.Flags.Has(spec.ResvMagnetic)) && r.Flags.Has(spec.ResvMagnetic) && !strings.Contains(strings.Join(r.Users, ","), "-"+j.Spec.User)
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

// TestTheQueueForgetsWhatAReservationLeft: the limit that what was left of one day's
// reservation had shortened is whole again on the next day.
func TestTheQueueForgetsWhatAReservationLeft(t *testing.T) {
	s := newSession(t)
	s.configure("DefMemPerCPU=100\nNodeName=n1 CPUs=8 RealMemory=16000\nPartitionName=p Nodes=ALL Default=YES DefaultTime=60")
	s.run("register n1")
	s.run("reserve r users=root nodes=n1 flags=DAILY duration=60")
	s.run("sbatch --reservation=r -t 1:00:00 -J before -n8")
	s.run("pass")
	s.run("advance 0:20:00")
	s.run("sbatch --reservation=r -t 0:50:00 -J after -n8")
	var queue scheduler.Queue
	next := func() *scheduler.Outcome {
		out, err := scheduler.Pass(s.head.Freeze(), s.now, scheduler.PassOptions{Queue: &queue})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if out := next(); len(out.Starts) != 0 {
		t.Fatalf("%s\nit starts beside the job that has the node: %+v", s.out, out.Starts)
	}
	s.run("exit 1")
	s.run("advance 23:40:00")
	s.run("register n1")
	out := next()
	if len(out.Starts) != 1 || out.Starts[0].Limit != 50*spec.Minute {
		t.Errorf("%s\non the next day it does not start with its whole limit: %+v", s.out, out.Starts)
	}
}
