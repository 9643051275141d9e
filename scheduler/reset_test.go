package scheduler_test

import (
	"testing"
	"time"
	_ "time/tzdata" // zones, wherever the tests run

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/scheduler/trial"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/fixed"
)

// TestUsageIsResetAtTheZonesMidnight: with a tick every half hour for 14 months, use is
// forgotten at the first of each period in the cluster's zone and at no other,
// whenever its summer begins or ends.
func TestUsageIsResetAtTheZonesMidnight(t *testing.T) {
	first := map[string]func(at time.Time) time.Time{
		"DAILY":     func(at time.Time) time.Time { return day(at, at.Month(), at.Day()) },
		"WEEKLY":    func(at time.Time) time.Time { return day(at, at.Month(), at.Day()-int(at.Weekday())) },
		"MONTHLY":   func(at time.Time) time.Time { return day(at, at.Month(), 1) },
		"QUARTERLY": func(at time.Time) time.Time { return day(at, (at.Month()-1)/3*3+1, 1) },
		"YEARLY":    func(at time.Time) time.Time { return day(at, 1, 1) },
	}
	for _, name := range []string{"UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe"} {
		loc, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		tick := scheduler.Tick{East: func(at spec.Instant) spec.Span {
			_, secs := time.Unix(at.Unix(), 0).In(loc).Zone()
			return spec.Span(secs) * spec.Second
		}}
		for period, begin := range first {
			s, at := state.New(), time.Date(2025, 12, 17, 9, 40, 0, 0, loc)
			lab := trial.On(s, spec.Instant(at.UnixNano()), event.Actor{}, "")
			for _, ev := range []event.Event{&event.ClusterCreated{}, &event.ConfigAdopted{Config: &spec.Config{Priority: spec.PriorityConfig{UsageReset: period}}}} {
				if err := lab.Emit(ev); err != nil {
					t.Fatal(err)
				}
			}
			began := begin(at)
			for range 14 * 30 * 48 {
				at = at.Add(30 * time.Minute)
				s.SetSpent(1, fixed.Of(10))
				if _, err := scheduler.Decide(trial.On(s, spec.Instant(at.UnixNano()), event.Actor{}, ""), tick); err != nil {
					t.Fatal(err)
				}
				now := begin(at)
				if forgot := s.Spent.Len() == 0; forgot != !now.Equal(began) {
					t.Fatalf("%s, %s, %s: use forgotten %t, the period began at %s, the one before at %s", name, period, at, forgot, now, began)
				}
				began = now
			}
		}
	}
}

func day(at time.Time, m time.Month, d int) time.Time {
	return time.Date(at.Year(), m, d, 0, 0, 0, 0, at.Location())
}
