package format

import (
	"strconv"
	"strings"
	"time"
)

// Moment is what a time text is relative to.
type Moment struct {
	Now int64 // seconds since 1970
	Loc *time.Location
	// Past reads a time for a look back (sacct -S): a time of day is today's
	// and a date without a year this year's, even if they are over. Otherwise
	// (sbatch --begin) the next such moment is meant.
	Past bool
}

const timeForms = "expected now[+N[unit]], HH:MM[:SS] [AM|PM], midnight, noon, fika, teatime, today, tomorrow, " +
	"YYYY-MM-DD[THH:MM[:SS]], MMDD[YY] or MM/DD[/YY][-HH:MM[:SS]]"

// ParseTime reads a point in time into seconds since 1970. A date alone means
// its midnight. A local time that does not exist (summer time begins) is moved
// forward, one that exists twice is the first.
func ParseTime(s string, moment Moment) (int64, error) {
	text := lowerASCII(strings.TrimSpace(s))
	if rest, ok := strings.CutPrefix(text, "now"); ok {
		return parseNow(s, strings.ReplaceAll(rest, " ", ""), moment.Now)
	}
	parser := timeParser{
		now:   time.Unix(moment.Now, 0).In(moment.Loc),
		hour:  -1,
		year:  -1,
		month: -1,
	}
	date, clock := cutTime(text)
	if word, day, ok := strings.Cut(text, "-"); ok && (day == "today" || day == "tomorrow") {
		date, clock = day, word // noon-tomorrow
	}
	reason := ""
	switch {
	case text == "":
		reason = "it is empty"
	case clock == "" && parser.readClock(date) == "": // a time of day alone
	default:
		reason = parser.readDate(date)
		if reason == "" && clock != "" {
			reason = parser.readClock(clock)
		}
	}
	if reason != "" {
		return 0, badInput("time", s, "%s; %s", reason, timeForms)
	}
	return parser.resolveMissing(moment.Past), nil
}

// cutTime separates date and time of day: 2026-11-21t10:00, 11/21/26-10:00,
// "tomorrow 10:00". What has no date comes back as the first part.
func cutTime(text string) (date, clock string) {
	colon := strings.IndexByte(text, ':')
	if at := strings.IndexByte(text, ' '); at >= 0 {
		// "4:00 pm" is a time alone.
		if colon < 0 || at < colon {
			return text[:at], strings.TrimSpace(text[at:])
		}
		if strings.TrimSpace(text[at:]) == "am" || strings.TrimSpace(text[at:]) == "pm" {
			return text, ""
		}
	}
	if colon < 0 {
		return text, ""
	}
	// The separator is the last t or - before the colon: "2026-11-21t10:00".
	if at := strings.LastIndexAny(text[:colon], "t-"); at > 0 {
		return text[:at], text[at+1:]
	}
	return text, ""
}

// parseNow reads what follows "now": nothing or ±N[unit].
func parseNow(text, rest string, now int64) (int64, error) {
	if rest == "" {
		return now, nil
	}
	sign := int64(1)
	switch rest[0] {
	case '-':
		sign = -1
	case '+':
	default:
		return 0, badInput("time", text, timeForms)
	}
	number := strings.TrimRight(rest[1:], "abcdefghijklmnopqrstuvwxyz")
	n, ok := parseDigits(number, maxField/604800)
	if !ok {
		return 0, badInput("time", text, "expected a whole number after now%c", rest[0])
	}
	switch unit := rest[1+len(number):]; unit {
	case "", "s", "sec", "secs", "second", "seconds":
	case "min", "mins", "minute", "minutes":
		n *= 60
	case "h", "hr", "hrs", "hour", "hours":
		n *= 3600
	case "d", "day", "days":
		n *= 86400
	case "w", "week", "weeks":
		n *= 604800
	default:
		return 0, badInput(
			"time",
			text,
			"unknown unit %q; use seconds, minutes, hours, days or weeks",
			unit,
		)
	}
	return now + sign*n, nil
}

// timeParser collects the fields; -1 = not given.
type timeParser struct {
	now               time.Time
	hour, min, sec    int
	year, month, mday int
}

func (p *timeParser) setClock(hour, minute, second int) {
	p.hour = hour
	p.min = minute
	p.sec = second
}

// readClock reads a time of day; the result is a reason, empty on success.
func (p *timeParser) readClock(text string) string {
	switch text {
	case "midnight":
		p.setClock(0, 0, 0)
		return ""
	case "noon":
		p.setClock(12, 0, 0)
		return ""
	case "fika":
		p.setClock(15, 0, 0)
		return ""
	case "teatime":
		p.setClock(16, 0, 0)
		return ""
	}
	body := text
	half := ""
	if strings.HasSuffix(text, "am") || strings.HasSuffix(text, "pm") {
		body = strings.TrimSpace(text[:len(text)-2])
		half = text[len(text)-2:]
	}
	parts := strings.Split(body, ":")
	var fields [3]int64 // hour, minute, second
	if len(parts) < 2 || len(parts) > 3 {
		return strconv.Quote(text) + " is not a time of day"
	}
	for i, part := range parts {
		limit := int64(60)
		if i == 0 {
			limit = 24
		}
		field, ok := parseDigits(part, limit)
		if !ok || len(part) > 2 {
			return strconv.Quote(text) + " is not a time of day"
		}
		fields[i] = field
	}
	if half != "" {
		if fields[0] < 1 || fields[0] > 12 {
			return strconv.Quote(text) + ": hours with AM or PM are 1 to 12"
		}
		fields[0] %= 12
		if half == "pm" {
			fields[0] += 12
		}
	}
	p.setClock(int(fields[0]), int(fields[1]), int(fields[2]))
	return ""
}

// readDate reads a day; the result is a reason, empty on success.
func (p *timeParser) readDate(text string) string {
	fail := strconv.Quote(text) + " is not a date"
	switch text {
	case "today":
		p.setDay(p.now)
		return ""
	case "tomorrow":
		p.setDay(p.now.AddDate(0, 0, 1))
		return ""
	}
	if parts := strings.Split(text, "-"); len(parts) == 3 {
		year, ok := parseDigits(parts[0], 10000)
		if !ok || len(parts[0]) != 4 {
			return fail
		}
		return p.dayOfMonth(year, parts[1], parts[2], fail)
	}
	sep := "/"
	if strings.Contains(text, ".") {
		sep = "."
	}
	parts := strings.Split(text, sep)
	if len(parts) == 1 && (len(text) == 4 || len(text) == 6) {
		parts = []string{text[:2], text[2:4], text[4:]}
		if len(text) == 4 {
			parts = parts[:2]
		}
	}
	switch len(parts) {
	case 2:
		return p.dayOfMonth(-1, parts[0], parts[1], fail)
	case 3:
		year, ok := parseDigits(parts[2], 10000)
		if !ok || (len(parts[2]) != 2 && len(parts[2]) != 4) {
			return fail
		}
		if len(parts[2]) == 2 {
			year += 2000
		}
		return p.dayOfMonth(year, parts[0], parts[1], fail)
	}
	return fail
}

func (p *timeParser) setDay(t time.Time) { p.setDate(t.Year(), int(t.Month()), t.Day()) }

func (p *timeParser) setDate(year, month, mday int) {
	p.year = year
	p.month = month
	p.mday = mday
}

// dayOfMonth reads a month and a day of a year; -1 = of none in particular.
func (p *timeParser) dayOfMonth(year int64, monthText, dayText, fail string) string {
	month, monthOK := ordinal(monthText, 12)
	mday, dayOK := ordinal(dayText, 31)
	if !monthOK || !dayOK {
		return fail
	}
	yearWithIt := int(year)
	if year < 0 {
		yearWithIt = 2024 // 29 February may be meant for the next leap year
	}
	noon := time.Date(yearWithIt, time.Month(month), mday, 12, 0, 0, 0, time.UTC)
	if noon.Day() != mday {
		return fail + ": the month has fewer days"
	}
	p.setDate(int(year), month, mday)
	return ""
}

// ordinal reads one or two digits from 1 to last.
func ordinal(text string, last int64) (n int, ok bool) {
	number, ok := parseDigits(text, last+1)
	return int(number), ok && number > 0 && len(text) <= 2
}

// first gives the earlier of two moments that show the same local time, where
// clocks are put back; package time does not say which one it chooses.
func first(t time.Time) time.Time {
	_, now := t.Zone()
	_, before := t.Add(-4 * time.Hour).Zone()
	if earlier := t.Add(time.Duration(now-before) * time.Second); now < before &&
		earlier.Format(time.TimeOnly) == t.Format(time.TimeOnly) {
		return earlier
	}
	return t
}

// resolveMissing fills what was not given.
func (p *timeParser) resolveMissing(past bool) int64 {
	at := func(y, mo, d int) int64 {
		return first(
			time.Date(y, time.Month(mo), d, max(p.hour, 0), p.min, p.sec, 0, p.now.Location()),
		).Unix()
	}
	now := p.now.Unix()
	if p.month < 0 { // a time of day: today or, if that is over, tomorrow
		day := p.now
		if !past && at(day.Year(), int(day.Month()), day.Day()) <= now {
			day = day.AddDate(0, 0, 1)
		}
		return at(day.Year(), int(day.Month()), day.Day())
	}
	if p.year >= 0 {
		return at(p.year, p.month, p.mday)
	}
	year := p.now.Year()
	if !past && at(year, p.month, p.mday) < now {
		year++
	}
	for leap := 0; p.month == 2 && p.mday == 29 && leap < 8 && time.Date(year, 2, 29, 12, 0, 0, 0, time.UTC).Day() != 29; leap++ {
		if past {
			year--
		} else {
			year++
		}
	}
	return at(year, p.month, p.mday)
}

// Time prints seconds since 1970 as Slurm's standard format,
// 2026-11-21T10:00:00; 0 is "Unknown".
func Time(seconds int64, zone *time.Location) string {
	if seconds == 0 {
		return "Unknown"
	}
	return time.Unix(seconds, 0).In(zone).Format("2006-01-02T15:04:05")
}
