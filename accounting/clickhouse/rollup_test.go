package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster/accounting/query"
	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/spec"
)

// rolledFrom is the first midnight of the runs that are rolled up: five days
// before the 25-hour day of autumn 2026 in Europe.
const rolledFrom = 1_792_454_400_000_000

// someRuns makes runs in the order of their events: short ones and some of
// days, that begin at midnight, take no time, never start, or are told late.
func someRuns(rng *rand.Rand, n int) []tally.JobRow {
	var out []tally.JobRow
	at := tally.Micros(rolledFrom)
	for i := range n {
		r := tally.JobRow{
			Seq:       uint64(i + 1),
			UID:       uint64(i + 1),
			JobID:     uint32(i + 1),
			ArrayTask: -1,
			Count:     1,
			State:     "COMPLETED",
			User:      fmt.Sprint("u", rng.IntN(3)),
			Account:   fmt.Sprint("a", rng.IntN(2)),
			Partition: "p",
			QOS:       "normal",
			Attempt:   1,
			Alloc: tally.Amounts{
				CPUs:    1 << rng.IntN(4),
				Mem:     int64(rng.IntN(9000)),
				Nodes:   1,
				GPUs:    int64(rng.IntN(3)),
				Billing: 7,
			},
		}
		r.Req = r.Alloc
		at += rng.Int64N(4_000_000_000)
		switch rng.IntN(8) {
		case 0:
			at = (at/dayMicros + 1) * dayMicros // to the microsecond
		case 1:
			at += rng.Int64N(int64(dayMicros))
		}
		r.End = at
		if rng.IntN(30) == 0 {
			r.End = max(rolledFrom, at-5*dayMicros) // it comes late
		}
		run := rng.Int64N(9_000_000_000)
		switch rng.IntN(10) {
		case 0:
			run = 0
		case 1:
			run = rng.Int64N(4 * int64(dayMicros))
		}
		r.Start = r.End - run
		r.Submit = r.Start - rng.Int64N(20_000_000_000)
		r.Eligible = r.Submit + rng.Int64N(max(1, r.Start-r.Submit))
		if rng.IntN(9) == 0 {
			r.Start, r.Attempt, r.Count = 0, 0, uint64(1+rng.IntN(5))
			r.Alloc = tally.Amounts{}
		}
		if rng.IntN(3) == 0 && r.Start != 0 {
			e := rng.Int64N(1_000_000)
			r.Used.Energy = &e
		}
		out = append(out, r)
	}
	return out
}

// answer runs a query whose columns are of some kinds: s texts, i Int64, u
// UInt32.
func answer(t *testing.T, s *Store, q query.Query, err error, kinds string) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	err = s.Query(context.Background(), q, func(scan func(...any) error) error {
		dest := make([]any, len(kinds))
		for i, k := range kinds {
			dest[i] = map[rune]any{'s': new(string), 'i': new(int64), 'u': new(uint32)}[k]
		}
		err := scan(dest...)
		line := ""
		for _, d := range dest {
			switch d := d.(type) {
			case *string:
				line += " " + *d
			case *int64:
				line += fmt.Sprint(" ", *d)
			case *uint32:
				line += fmt.Sprint(" ", *d)
			}
		}
		out = append(out, line[1:])
		return err
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, q.SQL)
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// TestRollUp: reports that use what is added up say to the microsecond what
// they say without it, and what a plain loop says, for any window, after any
// number of builds, with rows that come late and builds that die.
func TestRollUp(t *testing.T) {
	ctx := context.Background()
	s := openStore(t, startEngine(t).Socket(), "roll")
	ta := tally.New()
	w, _ := newWriter(t, s, ta)
	rng := rand.New(rand.NewPCG(1, 2))
	runs := someRuns(rng, 900)
	died := errors.New("died")
	builds := 0
	for first := 0; first < len(runs); first += 150 {
		part := runs[first:min(first+150, len(runs))]
		last := tally.Micros(0)
		for _, r := range runs[:first+len(part)] {
			last = max(last, r.End)
		}
		b := &tally.Batch{
			First: part[0].Seq,
			Last:  part[len(part)-1].Seq,
			At:    spec.Instant(last * 1000),
			Jobs:  part,
		}
		if err := w.Write(ctx, b); err != nil {
			t.Fatal(err)
		}
		n := 0
		if rng.IntN(2) == 0 {
			w.hook = func(step string) error { // between its two tables, or before it is visible
				if n++; step == "position" || step == "rollup" && n == 2 && builds%2 == 0 {
					return died
				}
				return nil
			}
			if _, err := w.RollUp(ctx); !errors.Is(err, died) {
				t.Fatalf("it does not die: %v", err)
			}
			w.hook = nil
		}
		if first == 300 {
			continue // its rows are all late then
		}
		for more := true; more; builds++ {
			var err error
			if more, err = w.RollUp(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	pos, err := s.Position(ctx, w.from.ledger)
	if err != nil || pos.Rolled != w.pos.Rolled || int(pos.Rolled.Build) < 4 {
		t.Fatalf("position %+v, the writer's %+v: %v", pos, w.pos, err)
	}
	end := tally.Cut(pos.At)
	sc := scopeOf(s, w, pos.At.Add(spec.Hour))
	rolled := sc
	rolled.Rolled = query.Rolled(pos.Rolled)
	windows := [][2]int64{
		{rolledFrom, end},
		{rolledFrom, pos.Rolled.Until},
		{rolledFrom + 5*int64(dayMicros), rolledFrom + 6*int64(dayMicros)},
	}
	for range 3 {
		a := rolledFrom - int64(dayMicros) + rng.Int64N(end-rolledFrom)
		windows = append(windows, [2]int64{a, a + rng.Int64N(end-a+2*int64(dayMicros))})
	}
	for _, win := range windows {
		for _, tres := range []string{"cpu", "mem", "gres/gpu"} {
			r := query.Report{
				Start: spec.Instant(win[0] * 1000),
				End:   spec.Instant(win[1] * 1000),
				TRES:  tres,
			}
			if tres == "mem" {
				r.Users = []string{"u1"}
			}
			for what, ask := range map[string]func(query.Scope) (query.Query, error, string){
				"used": func(sc query.Scope) (query.Query, error, string) { q, err := r.Used(sc); return q, err, "sssi" },
				"sizes": func(sc query.Scope) (query.Query, error, string) {
					q, err := r.Sizes(sc, []int64{2, 4}, query.KeyAccount)
					return q, err, "susi"
				},
				"utilization": func(sc query.Scope) (query.Query, error, string) {
					q, err := r.Utilization(sc)
					return q, err, "sssssss"
				},
			} {
				q, err, n := ask(sc)
				plain := answer(t, s, q, err, n)
				if q, err, n = ask(rolled); !strings.Contains(q.SQL, "rollup_") && win[1]-win[0] > 3*int64(dayMicros) {
					t.Fatalf("%s of %v does not use what is added up", what, win)
				}
				if got := answer(t, s, q, err, n); got != plain {
					t.Errorf("%s of %s in %v:\n%s\nwithout rollups:\n%s", what, tres, win, got, plain)
				}
				if what == "used" && tres == "cpu" {
					if want := plainUse(runs, win[0], min(win[1], tally.Cut(sc.Now))); want != plain {
						t.Errorf("used in %v:\n%s\nthe loop says:\n%s", win, plain, want)
					}
				}
			}
		}
	}
	t.Run("check", func(t *testing.T) {
		var days, quarters, from []string
		err := s.Query(ctx, query.RolledCheck(rolled), func(scan func(...any) error) error { return scan(&days, &quarters, &from) })
		if err != nil || !slices.Equal(quarters, from) || !slices.Equal(days, from[:5]) || from[0] == "0" || from[5] == "0" {
			t.Errorf("days %v\nquarters %v\nruns %v: %v", days, quarters, from, err)
		}
	})
	t.Run("zones", func(t *testing.T) { zonesAddUp(t, s, rolled, runs) })
}

// plainUse is what users held in a window, and the energy of it.
func plainUse(runs []tally.JobRow, from, to int64) string {
	used, energy := map[string]int64{}, map[string]int64{}
	for _, r := range runs {
		if r.Start == 0 || r.Start >= to || r.End <= from && r.Start < from {
			continue
		}
		k := r.Account + " " + r.User
		used[k] += r.Alloc.CPUs * max(0, min(r.End, to)-max(r.Start, from))
		energy[k] += 0
		if e := r.Used.Energy; e != nil {
			until := func(at int64) int64 { return min(*e, *e*max(0, at-r.Start)/max(1, r.End-r.Start)) }
			energy[k] += until(min(r.End, to)) - until(max(r.Start, from))
		}
	}
	var out []string
	for _, k := range slices.Sorted(maps.Keys(used)) {
		out = append(out, fmt.Sprint(k, " ", used[k], " ", energy[k]))
	}
	return strings.Join(out, "\n")
}

// zonesAddUp: the quarters of an hour of a zone's days of 23, 24 and 25 hours
// give what a plain loop gives over these days, and the UTC days the same over
// theirs.
func zonesAddUp(t *testing.T, s *Store, sc query.Scope, runs []tally.JobRow) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	ask := func(text string) map[string]string {
		q, err := query.SQL(sc, query.Viewer{Admin: true}, text)
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]string{}
		err = s.Query(context.Background(), q, func(scan func(...any) error) error {
			var day, sum string
			err := scan(&day, &sum)
			out[day] = sum
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	quarters := ask("SELECT toString(toDate(toTimeZone(at, 'Europe/Berlin'))) AS d, toString(sum(if(waiting, 0, cpu_us)))" +
		" FROM rollup_quarters" +
		" GROUP BY d")
	days := ask("SELECT toString(day) AS d, toString(sum(cpu_us)) FROM rollup_days GROUP BY d")
	lengths := map[time.Duration]int{}
	for d := time.UnixMicro(rolledFrom).In(berlin).AddDate(0, 0, 1); d.UnixMicro() < tally.Cut(sc.Now); d = d.AddDate(0, 0, 1) {
		for _, c := range [...]struct {
			zone *time.Location
			got  map[string]string
		}{{berlin, quarters}, {time.UTC, days}} {
			a := time.Date(d.Year(), d.Month(), d.Day(), 0, 0, 0, 0, c.zone)
			b := a.AddDate(0, 0, 1)
			lengths[b.Sub(a)]++
			want := int64(0)
			for _, r := range runs {
				if r.Start != 0 {
					want += r.Alloc.CPUs * max(0, min(r.End, b.UnixMicro())-max(r.Start, a.UnixMicro()))
				}
			}
			if got := c.got[a.Format(time.DateOnly)]; got != fmt.Sprint(want) && (want != 0 || got != "") {
				t.Errorf("%s of %s: %s, the loop says %d", c.zone, a.Format(time.DateOnly), got, want)
			}
		}
	}
	if lengths[25*time.Hour] != 1 {
		t.Errorf("there is no day of 25 hours among %v", lengths)
	}
}
