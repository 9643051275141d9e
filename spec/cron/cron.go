// Package cron reads the times of a crontab and tells when the next of them is.
//
// A time is five fields (minute, hour, day of the month, month, day of the week),
// each *, a number, a range, a list, or one of these with /STEP, or a name like
// @hourly. As in every cron, a day matches if either of the two day fields does,
// unless one of them begins with *.
package cron

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/spec"
)

// Schedule is the set of minutes that a crontab's time names. Each field is a set of
// numbers, one bit each.
type Schedule struct {
	minutes, hours, days, months, weekdays uint64
	// eitherDay: both day fields restrict, and one of them is enough.
	eitherDay bool
}

// field describes one of the five fields.
type field struct {
	name     string
	min, max int
	names    []string // of the numbers from min on
}

// fieldsOf are the fields in the order in which they are written. Day 7 of the week
// is Sunday too.
func fieldsOf() [5]field {
	return [5]field{
		{name: "minute", min: 0, max: 59},
		{name: "hour", min: 0, max: 23},
		{name: "day of month", min: 1, max: 31},
		{name: "month", min: 1, max: 12, names: []string{"jan", "feb", "mar", "apr", "may", "jun",
			"jul", "aug", "sep", "oct", "nov", "dec"}},
		{name: "day of week", min: 0, max: 7, names: []string{"sun", "mon", "tue", "wed", "thu",
			"fri", "sat"}},
	}
}

// shortcut gives the five fields of a name.
func shortcut(name string) (string, bool) {
	switch strings.ToLower(name) {
	case "@yearly", "@annually":
		return "0 0 1 1 *", true
	case "@monthly":
		return "0 0 1 * *", true
	case "@weekly":
		return "0 0 * * 0", true
	case "@daily", "@midnight":
		return "0 0 * * *", true
	case "@hourly":
		return "0 * * * *", true
	case "@elevenses":
		return "0 11 * * *", true
	case "@fika":
		return "0 15 * * *", true
	case "@teatime":
		return "0 16 * * *", true
	}
	return "", false
}

// Cut takes the time off the front of a crontab's line.
func Cut(line string) (when, command string) {
	words := 5
	rest := strings.TrimLeft(line, " \t")
	if strings.HasPrefix(rest, "@") {
		words = 1
	}
	var fields []string
	for range words {
		i := strings.IndexAny(rest, " \t")
		if i < 0 {
			i = len(rest)
		}
		if i == 0 {
			break
		}
		fields = append(fields, rest[:i])
		rest = strings.TrimLeft(rest[i:], " \t")
	}
	return strings.Join(fields, " "), rest
}

// Parse reads a time. The problems are all that is wrong with it, each with the name
// of its field; there are none if it is good.
func Parse(text string) (schedule *Schedule, problems []string) {
	if strings.HasPrefix(text, "@") {
		long, ok := shortcut(text)
		if !ok {
			return nil, []string{fmt.Sprintf(
				"%q is not a time: expected five fields, or @yearly, @annually, @monthly, "+
					"@weekly, @daily, @midnight or @hourly", text)}
		}
		text = long
	}
	words := strings.Fields(text)
	fields := fieldsOf()
	if len(words) != len(fields) {
		return nil, []string{fmt.Sprintf(
			"%q has %d of 5 fields: minute, hour, day of month, month, day of week",
			text, len(words))}
	}
	schedule = &Schedule{}
	sets := [5]*uint64{
		&schedule.minutes, &schedule.hours, &schedule.days, &schedule.months, &schedule.weekdays,
	}
	for i, word := range words {
		set, err := fields[i].parseList(word)
		if err != nil {
			problems = append(problems, err.Error())
		}
		*sets[i] = set
	}
	if len(problems) > 0 {
		return nil, problems
	}
	if schedule.weekdays&(1<<7) != 0 {
		schedule.weekdays |= 1
	}
	schedule.eitherDay = !strings.HasPrefix(words[2], "*") && !strings.HasPrefix(words[4], "*")
	if !schedule.eitherDay && !schedule.dayExists() {
		return nil, []string{fmt.Sprintf(
			"day of month %q: none of these months has such a day", words[2])}
	}
	return schedule, nil
}

// dayExists tells whether one of the months has one of the days.
func (s *Schedule) dayExists() bool {
	lengths := [13]int{0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}
	for month := 1; month <= 12; month++ {
		if s.months&(1<<month) == 0 {
			continue
		}
		for day := 1; day <= lengths[month]; day++ {
			if s.days&(1<<day) != 0 {
				return true
			}
		}
	}
	return false
}

// parseList reads the parts of a field, which commas separate.
func (f field) parseList(text string) (set uint64, err error) {
	for part := range strings.SplitSeq(text, ",") {
		some, err := f.parsePart(part)
		if err != nil {
			return 0, fmt.Errorf("%s %q: %w", f.name, text, err)
		}
		set |= some
	}
	return set, nil
}

// parsePart reads *, N, or N-M, with or without /STEP.
func (f field) parsePart(text string) (uint64, error) {
	span, stepText, stepped := strings.Cut(text, "/")
	step := 1
	if stepped {
		n, err := strconv.Atoi(stepText)
		if err != nil || n < 1 || n > f.max {
			return 0, fmt.Errorf("the step %q is not a number from 1 to %d", stepText, f.max)
		}
		step = n
	}
	first, last := f.min, f.max
	switch from, to, ranged := strings.Cut(span, "-"); {
	case span == "*":
	case ranged:
		var err error
		if first, err = f.parseNumber(from); err != nil {
			return 0, err
		}
		if last, err = f.parseNumber(to); err != nil {
			return 0, err
		}
		if first > last {
			return 0, fmt.Errorf("the range %s ends before it begins", span)
		}
	default:
		n, err := f.parseNumber(span)
		if err != nil {
			return 0, err
		}
		first = n
		if !stepped {
			last = n
		}
	}
	var set uint64
	for n := first; n <= last; n += step {
		set |= 1 << n
	}
	return set, nil
}

func (f field) parseNumber(text string) (int, error) {
	if i := slices.Index(f.names, strings.ToLower(text)); i >= 0 {
		return f.min + i, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < f.min || n > f.max {
		expected := fmt.Sprintf("%d to %d", f.min, f.max)
		if len(f.names) > 0 {
			expected += fmt.Sprintf(" or %s to %s", f.names[0], f.names[len(f.names)-1])
		}
		return 0, fmt.Errorf("%q is not in %s", text, expected)
	}
	return n, nil
}

// maxSearch bounds Next: February 29 comes again after eight years at the latest.
const maxSearch = 9 * 366 * spec.Day

// Next is the first time of the schedule after an instant. east is how far the
// clocks of the cluster's zone are ahead of UTC at an instant; nil = they keep UTC. A
// time that the change to summer time skips is not made up for, and one that the
// change back repeats comes twice.
func (s *Schedule) Next(after spec.Instant, east func(spec.Instant) spec.Span) spec.Instant {
	minute := spec.Instant(spec.Minute)
	at := after - after%minute + minute
	for end := after.Add(maxSearch); at < end; {
		local := at
		if east != nil {
			local = at.Add(east(at))
		}
		clock := civilOf(local)
		switch {
		case !s.onDay(clock) || s.hours&(1<<clock.hour) == 0:
			// To the next full hour of the clock: no change of clocks is missed.
			at = at.Add(spec.Span(60-clock.minute) * spec.Minute)
		case s.minutes&(1<<clock.minute) == 0:
			at += minute
		default:
			return at
		}
	}
	return spec.FarFuture
}

func (s *Schedule) onDay(clock civil) bool {
	if s.months&(1<<clock.month) == 0 {
		return false
	}
	day := s.days&(1<<clock.day) != 0
	weekday := s.weekdays&(1<<clock.weekday) != 0
	if s.eitherDay {
		return day || weekday
	}
	return day && weekday
}

// civil is what a calendar and a clock show.
type civil struct{ month, day, weekday, hour, minute int }

// civilOf reads an instant as UTC. The calendar is computed from days since March 1
// of year 0, so that leap days stand at the end of a year.
func civilOf(at spec.Instant) civil {
	seconds := int64(at) / int64(spec.Second)
	days := seconds / 86400
	ofDay := seconds % 86400
	if ofDay < 0 {
		ofDay += 86400
		days--
	}
	shifted := days + 719468
	era := shifted / 146097
	dayOfEra := shifted - era*146097
	year := (dayOfEra - dayOfEra/1460 + dayOfEra/36524 - dayOfEra/146096) / 365
	dayOfYear := dayOfEra - (365*year + year/4 - year/100)
	fromMarch := (5*dayOfYear + 2) / 153
	month := fromMarch + 3
	if month > 12 {
		month -= 12
	}
	return civil{
		month:   int(month),
		day:     int(dayOfYear - (153*fromMarch+2)/5 + 1),
		weekday: int((days + 4) % 7), // January 1, 1970 was a Thursday
		hour:    int(ofDay / 3600),
		minute:  int(ofDay / 60 % 60),
	}
}
