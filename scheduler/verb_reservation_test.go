package scheduler_test

import (
	"fmt"
	"strings"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

// reservation creates or, with "set" behind the name, changes a reservation;
// unreserve deletes one.
//
//	$ reserve maint starttime=now+1:00:00 duration=60 users=root nodes=ALL flags=maint
func reservation(s *session, args []string) error {
	if args[0] == "unreserve" {
		_, err := s.decide(scheduler.DeleteReservation{Name: args[1], Admin: s.user == "root"})
		return err
	}
	name, rest := args[1], args[2:]
	change := len(rest) > 0 && rest[0] == "set"
	if change {
		rest = rest[1:]
	}
	var set []spec.KeyValue
	for _, a := range rest {
		k, v, _ := strings.Cut(a, "=")
		set = append(set, spec.KeyValue{Key: k, Value: v})
	}
	if change {
		_, err := s.decide(scheduler.UpdateReservation{Name: name, Set: set})
		return err
	}
	res, err := s.decide(scheduler.CreateReservation{Name: name, Set: set})
	if err == nil {
		s.printf("Reservation created: %s\n", res.Message)
	}
	return err
}

// reservations lists them.
func reservations(s *session, _ []string) error {
	rows := [][]string{{"NAME", "START", "END", "NODES", "FLAGS", "TRES", "JOBS"}}
	for i := range s.head.Reservations {
		r := &s.head.Reservations[i]
		jobs := s.jobs(func(j *state.Job) bool {
			return j.State.Active() && j.Alloc.Reservation == r.Name
		})
		rows = append(rows, []string{r.Name, when(r.Start), when(r.End), hostlist.Fold(r.Nodes), r.Flags.String(), r.TRES.String(), fmt.Sprint(len(jobs))})
	}
	s.table(rows)
	return nil
}
