package format

import (
	"testing"
	"time"
)

func TestParseTime(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip("no time zone database: ", err)
	}
	now := time.Date(2026, 11, 20, 15, 30, 0, 0, berlin) // a Friday
	for _, c := range []struct {
		in, want string // in Berlin's time
		past     string // with Past, if different
		bad      string
	}{
		{in: "now", want: "2026-11-20T15:30:00"},
		{in: "now+60", want: "2026-11-20T15:31:00"},
		{in: "now+1hour", want: "2026-11-20T16:30:00"},
		{in: "NOW + 2 hours", want: "2026-11-20T17:30:00"},
		{in: "now+3days", want: "2026-11-23T15:30:00"},
		{in: "now-1week", want: "2026-11-13T15:30:00"},
		{in: "16:00", want: "2026-11-20T16:00:00"},
		{in: "15:30", want: "2026-11-21T15:30:00", past: "2026-11-20T15:30:00"},
		{in: "9:05:07", want: "2026-11-21T09:05:07", past: "2026-11-20T09:05:07"},
		{in: "4:00PM", want: "2026-11-20T16:00:00"},
		{in: "4:00 am", want: "2026-11-21T04:00:00", past: "2026-11-20T04:00:00"},
		{in: "12:00AM", want: "2026-11-21T00:00:00", past: "2026-11-20T00:00:00"},
		{in: "12:30pm", want: "2026-11-21T12:30:00", past: "2026-11-20T12:30:00"},
		{in: "midnight", want: "2026-11-21T00:00:00", past: "2026-11-20T00:00:00"},
		{in: "noon-tomorrow", want: "2026-11-21T12:00:00", past: "2026-11-21T12:00:00"},
		{in: "noon", want: "2026-11-21T12:00:00", past: "2026-11-20T12:00:00"},
		{in: "fika", want: "2026-11-21T15:00:00", past: "2026-11-20T15:00:00"},
		{in: "teatime", want: "2026-11-20T16:00:00"},
		{in: "today", want: "2026-11-20T00:00:00"},
		{in: "tomorrow", want: "2026-11-21T00:00:00"},
		{in: "tomorrow 16:00", want: "2026-11-21T16:00:00"},
		{in: "tomorrow teatime", want: "2026-11-21T16:00:00"},
		{in: "2026-11-21T10:00:00", want: "2026-11-21T10:00:00"},
		{in: "2026-11-21t10:00", want: "2026-11-21T10:00:00"},
		{in: "2026-11-21-10:00", want: "2026-11-21T10:00:00"},
		{in: "2010-01-20T12:34:00", want: "2010-01-20T12:34:00"},
		{in: "2026-07-01", want: "2026-07-01T00:00:00"},
		{in: "12/24/26", want: "2026-12-24T00:00:00"},
		{in: "12/24/2026-18:00", want: "2026-12-24T18:00:00"},
		{in: "12/24", want: "2026-12-24T00:00:00"},
		{in: "01/15", want: "2027-01-15T00:00:00", past: "2026-01-15T00:00:00"},
		{in: "122426", want: "2026-12-24T00:00:00"},
		{in: "1224", want: "2026-12-24T00:00:00"},
		{in: "24.12.26", bad: "is not a date"},
		{in: "12.24.26", want: "2026-12-24T00:00:00"},
		{in: "02/29", want: "2028-02-29T00:00:00", past: "2024-02-29T00:00:00"},
		{in: "2026-03-29T02:30", want: "2026-03-29T03:30:00"}, // does not exist: the clock jumps from 2 to 3
		{in: "2026-10-25T02:30", want: "2026-10-25T02:30:00"}, // exists twice
		{in: "", bad: "it is empty"},
		{in: "now+", bad: "whole number"},
		{in: "now+1fortnight", bad: "unknown unit"},
		{in: "nowish", bad: "expected now"},
		{in: "25:00", bad: "not a"},
		{in: "13:00PM", bad: "is not a date"},
		{in: "10:60", bad: "not a"},
		{in: "02/30/26", bad: "fewer days"},
		{in: "13/01/26", bad: "is not a date"},
		{in: "2026-11-21T25:00", bad: "not a time of day"},
		{in: "soon", bad: "is not a date"},
		{in: "2026-11", bad: "is not a date"},
	} {
		for _, past := range []bool{false, true} {
			want := c.want
			if past && c.past != "" {
				want = c.past
			}
			sec, err := ParseTime(c.in, Moment{Now: now.Unix(), Loc: berlin, Past: past})
			check(t, c.in, Time(sec, berlin), err, want, c.bad)
		}
	}
	if sec, _ := ParseTime("2026-10-25T02:30", Moment{Loc: berlin}); sec != 1792888200 {
		t.Errorf("the hour that exists twice: %d, want the first, 1792888200", sec)
	}
}

func TestTimeAs(t *testing.T) {
	now := int64(1795188236) // 2026-11-20T15:23:56 UTC, a Friday
	m := Moment{Now: now, Loc: time.UTC}
	for _, c := range []struct {
		layout string
		sec    int64
		want   string
		ok     bool
	}{
		{"", now, "2026-11-20T15:23:56", true}, {"standard", now, "2026-11-20T15:23:56", true}, {"standard", 0, "Unknown", true},
		{"relative", now - 3600, "14:23:56", true}, {"relative", now + 86400, "Tomorr 15:23", true}, {"relative", now - 86400, "Ystday 15:23", true},
		{"relative", now + 3*86400, "Mon 15:23", true}, {"relative", now - 30*86400, "21 Oct 15:23", true}, {"relative", now - 400*86400, "16 Oct 2025", true},
		{"%a %T", now, "Fri 15:23:56", true}, {"%Y%m%d%%%s", now, "20261120%1795188236", true}, {"%F %u %w %j", now, "2026-11-20 5 5 324", true},
		{"%E", now, "", false}, {"%", now, "", false}, {"nothing", now, "nothing", false},
	} {
		if got, ok := TimeAs(c.layout, c.sec, m); got != c.want || ok != c.ok {
			t.Errorf("%q of %d: %q, %v; want %q, %v", c.layout, c.sec, got, ok, c.want, c.ok)
		}
	}
}

func FuzzParseTime(f *testing.F) {
	for _, s := range []string{"now+1hour", "16:00", "2026-11-21T10:00:00", "12/24/26-18:00", "tomorrow teatime", "4:00 am", "02/29"} {
		f.Add(s, int64(1795188236))
	}
	f.Fuzz(func(t *testing.T, s string, now int64) {
		now = now % (1 << 36)
		for _, past := range []bool{false, true} {
			m := Moment{Now: now, Loc: time.UTC, Past: past}
			sec, err := ParseTime(s, m)
			if err != nil || sec == 0 {
				continue
			}
			if y := time.Unix(sec, 0).UTC().Year(); y < 1 || y > 9999 {
				continue
			}
			if back, err := ParseTime(Time(sec, time.UTC), m); err != nil || back != sec {
				t.Fatalf("%q -> %s -> %d, %v", s, Time(sec, time.UTC), back, err)
			}
		}
	})
}
