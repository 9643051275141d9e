package scheduler_test

import (
	"strconv"
	"strings"

	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/scheduler/policy"
	"github.com/musterhpc/muster/spec"
)

// budget is what accounting says of all budgets that are enforced: budget
// ACCOUNT cpu=MINUTES,... ; without words there are none. It prints the limits
// that the accounts have then, if any changed.
func budget(s *session, args []string) error {
	var all []policy.Budget
	for i := 1; i+1 < len(args); i += 2 {
		b := policy.Budget{Account: args[i]}
		for _, part := range strings.Split(args[i+1], ",") {
			name, n, _ := strings.Cut(part, "=")
			minutes, err := strconv.ParseInt(n, 10, 64)
			if err != nil {
				return err
			}
			b.Left = append(b.Left, spec.TRESCount{Name: name, N: minutes})
		}
		all = append(all, b)
	}
	events := policy.Budgets(s.head.Freeze(), all)
	if len(events) == 0 {
		s.printf("nothing to change\n")
		return nil
	}
	if _, err := s.decide(scheduler.Policy{Events: events}); err != nil {
		return err
	}
	for i := range s.head.Policy.Assocs {
		if a := &s.head.Policy.Assocs[i]; a.Budget != nil {
			s.printf("%s GrpTRESMins=%s\n", a.Account, a.GroupMinutes())
		}
	}
	return nil
}
