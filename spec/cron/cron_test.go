package cron

import (
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster/spec"
	"pgregory.net/rapid"
)

func at(t *testing.T, text string, zone *time.Location) spec.Instant {
	t.Helper()
	when, err := time.ParseInLocation("2006-01-02 15:04:05", text, zone)
	if err != nil {
		t.Fatal(err)
	}
	return spec.Instant(when.UnixNano())
}

func TestNext(t *testing.T) {
	for _, c := range []struct{ when, after, next string }{
		{"* * * * *", "2026-03-05 10:20:30", "2026-03-05 10:21:00"},
		{"* * * * *", "2026-03-05 10:20:00", "2026-03-05 10:21:00"},
		{"@hourly", "2026-03-05 10:20:00", "2026-03-05 11:00:00"},
		{"@daily", "2026-12-31 23:59:59", "2027-01-01 00:00:00"},
		{"@weekly", "2026-03-05 10:20:00", "2026-03-08 00:00:00"},
		{"@monthly", "2026-03-05 10:20:00", "2026-04-01 00:00:00"},
		{"@yearly", "2026-03-05 10:20:00", "2027-01-01 00:00:00"},
		{"@teatime", "2026-03-05 10:20:00", "2026-03-05 16:00:00"},
		{"*/15 * * * *", "2026-03-05 10:20:00", "2026-03-05 10:30:00"},
		{"5/20 * * * *", "2026-03-05 10:46:00", "2026-03-05 11:05:00"},
		{"0 9-17/4 * * Mon-Fri", "2026-03-06 17:00:00", "2026-03-09 09:00:00"},
		{"30 2 29 feb *", "2026-03-05 10:20:00", "2028-02-29 02:30:00"},
		{"0 0 13 * fri", "2026-03-05 10:20:00", "2026-03-06 00:00:00"}, // either day
		{"0 0 */2 * 1", "2026-03-05 10:20:00", "2026-03-09 00:00:00"},  // both days
		{"0 12 * * 7", "2026-03-05 10:20:00", "2026-03-08 12:00:00"},
		{"1,3,5 8 * * *", "2026-03-05 08:03:00", "2026-03-05 08:05:00"},
	} {
		s, problems := Parse(c.when)
		if problems != nil {
			t.Errorf("%s: %v", c.when, problems)
			continue
		}
		if have, want := s.Next(at(t, c.after, time.UTC), nil), at(t, c.next, time.UTC); have != want {
			t.Errorf("%s after %s: %v, expected %s", c.when, c.after, time.Unix(0, int64(have)).UTC(), c.next)
		}
	}
}

// TestZone looks at both changes of clocks: what is skipped does not come, what is
// repeated comes twice.
func TestZone(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	east := func(when spec.Instant) spec.Span {
		_, seconds := time.Unix(0, int64(when)).In(berlin).Zone()
		return spec.Span(seconds) * spec.Second
	}
	s, _ := Parse("30 2 * * *")
	var have []string
	now := at(t, "2026-03-27 12:00:00", berlin)
	for range 3 {
		now = s.Next(now, east)
		have = append(have, time.Unix(0, int64(now)).In(berlin).Format("01-02 15:04 MST"))
	}
	now = at(t, "2026-10-24 12:00:00", berlin)
	for range 3 {
		now = s.Next(now, east)
		have = append(have, time.Unix(0, int64(now)).In(berlin).Format("01-02 15:04 MST"))
	}
	want := "03-28 02:30 CET|03-30 02:30 CEST|03-31 02:30 CEST|10-25 02:30 CEST|10-25 02:30 CET|10-26 02:30 CET"
	if got := strings.Join(have, "|"); got != want {
		t.Errorf("%s\nexpected %s", got, want)
	}
}

// TestNextIsFirst compares with a search of minute by minute with the calendar of the
// standard library.
func TestNextIsFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &Schedule{
			minutes:   rapid.Uint64Range(1, 1<<60-1).Draw(t, "minutes"),
			hours:     rapid.Uint64Range(1, 1<<24-1).Draw(t, "hours"),
			days:      rapid.Uint64Range(1, 1<<31-1).Draw(t, "days") << 1,
			months:    1<<13 - 2,
			weekdays:  rapid.Uint64Range(1, 1<<7-1).Draw(t, "weekdays"),
			eitherDay: true,
		}
		after := spec.Instant(rapid.Int64Range(0, 4e9).Draw(t, "after") * 1e9)
		next := s.Next(after, nil)
		when := time.Unix(0, int64(after)).UTC().Truncate(time.Minute).Add(time.Minute)
		for ; ; when = when.Add(time.Minute) {
			onDay := s.days&(1<<when.Day()) != 0 || s.weekdays&(1<<int(when.Weekday())) != 0
			if onDay && s.hours&(1<<when.Hour()) != 0 && s.minutes&(1<<when.Minute()) != 0 {
				break
			}
		}
		if int64(next) != when.UnixNano() {
			t.Fatalf("%v, expected %v", time.Unix(0, int64(next)).UTC(), when)
		}
	})
}

// TestProblems wants every field that is wrong named at once.
func TestProblems(t *testing.T) {
	for _, c := range []struct{ when, want string }{
		{"61 25 * * *", `minute "61": "61" is not in 0 to 59|hour "25": "25" is not in 0 to 23`},
		{"* * * *", `"* * * *" has 4 of 5 fields`},
		{"@often", `"@often" is not a time`},
		{"@reboot", `"@reboot" is not a time`},
		{"*/0 * * * *", `the step "0" is not a number from 1 to 59`},
		{"0 0 31 2,4 *", `day of month "31": none of these months has such a day`},
		{"0 0 * foo 9", `"foo" is not in 1 to 12 or jan to dec|"9" is not in 0 to 7 or sun to sat`},
		{"5-1 * * * *", "the range 5-1 ends before it begins"},
		{"1,,2 * * * *", `"" is not in 0 to 59`},
	} {
		_, problems := Parse(c.when)
		for part := range strings.SplitSeq(c.want, "|") {
			if !strings.Contains(strings.Join(problems, "\n"), part) {
				t.Errorf("%s: %q, expected %q", c.when, problems, part)
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("*/5 1-3,7 * jan sun")
	f.Add("@daily")
	f.Fuzz(func(t *testing.T, text string) {
		s, problems := Parse(text)
		if (s == nil) != (len(problems) > 0) {
			t.Fatalf("%v and %q", s, problems)
		}
		if s != nil && s.Next(0, nil) <= 0 {
			t.Fatal("the next time is not after the present")
		}
	})
}
