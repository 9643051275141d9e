package conffile

import (
	"fmt"
	"net/mail"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ReportMail is one line of reports.mail.
type ReportMail struct {
	Line         string // as it was written
	Every        string // daily, weekly, monthly
	Weekday      time.Weekday
	Day          int // of the month
	Hour, Minute int
	Report       []string // as arguments of muster report
	To           []string
}

// Schedule reads reports.mail.
func (r *Reports) Schedule() ([]ReportMail, error) {
	var mails []ReportMail
	for _, line := range r.Mail {
		reportMail, err := parseReportMail(line)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		mails = append(mails, reportMail)
	}
	return mails, nil
}

func parseReportMail(line string) (reportMail ReportMail, err error) {
	reportMail.Line = strings.Join(strings.Fields(line), " ")
	words := strings.Fields(line)
	next := func() string {
		if len(words) == 0 {
			return ""
		}
		w := words[0]
		words = words[1:]
		return w
	}
	switch reportMail.Every = next(); reportMail.Every {
	case "daily":
	case "weekly":
		day := strings.ToLower(next())
		reportMail.Weekday = -1
		for d := time.Sunday; d <= time.Saturday; d++ {
			if strings.ToLower(d.String()) == day {
				reportMail.Weekday = d
			}
		}
		if reportMail.Weekday < 0 {
			return reportMail, fmt.Errorf("%q is no day of the week, such as monday", day)
		}
	case "monthly":
		day := next()
		reportMail.Day, err = strconv.Atoi(day)
		if err != nil || reportMail.Day < 1 || reportMail.Day > 28 {
			return reportMail, fmt.Errorf("%q is no day that every month has, 1 to 28", day)
		}
	default:
		return reportMail, fmt.Errorf(
			"it begins with %q, not with daily, weekly or monthly", reportMail.Every,
		)
	}
	text := next()
	at, err := time.Parse("15:04", text)
	if err != nil {
		return reportMail, fmt.Errorf("invalid time of day %q: expected for example 07:00", text)
	}
	reportMail.Hour, reportMail.Minute = at.Hour(), at.Minute()
	what := next()
	reportMail.Report = []string{what}
	switch {
	case what == "account" || what == "user":
		name := next()
		if name == "" || name == "to" {
			return reportMail, fmt.Errorf("name the %s", what)
		}
		reportMail.Report = append(reportMail.Report, name)
	case what == "findings":
		// The name of a user may follow: whose findings go to nobody else.
		if len(words) > 0 && words[0] != "to" {
			reportMail.Report = append(reportMail.Report, next())
		}
	case !slices.Contains([]string{"site", "waste", "idle", "budget", "chargeback", "fairshare"}, what):
		return reportMail, fmt.Errorf(
			"%q is no report that goes by mail: site, waste, idle, budget, chargeback, fairshare, findings, findings USER, account NAME or user NAME",
			what,
		)
	}
	if next() != "to" || len(words) != 1 {
		return reportMail, fmt.Errorf("it does not end with to and addresses that commas part")
	}
	for _, a := range strings.Split(words[0], ",") {
		addr, err := mail.ParseAddress(a)
		if err != nil || addr.Address != a {
			return reportMail, fmt.Errorf("%q is no address", a)
		}
		reportMail.To = append(reportMail.To, a)
	}
	return reportMail, nil
}

// on is when the mail of a day is due. An hour that a day lacks is the one after
// it; of one that a day has twice it is the first.
func (m *ReportMail) on(day time.Time) time.Time {
	y, mo, d := day.Date()
	return time.Date(y, mo, d, m.Hour, m.Minute, 0, 0, day.Location())
}

// sends tells whether a mail is due on a day.
func (m *ReportMail) sends(day time.Time) bool {
	switch m.Every {
	case "weekly":
		return day.Weekday() == m.Weekday
	case "monthly":
		return day.Day() == m.Day
	}
	return true
}

// Due is the newest instant up to now at which a mail was due.
func (m *ReportMail) Due(now time.Time) time.Time {
	y, mo, d := now.Date()
	for back := 0; ; back++ {
		day := time.Date(y, mo, d-back, 12, 0, 0, 0, now.Location())
		if at := m.on(day); m.sends(day) && !at.After(now) {
			return at
		}
	}
}

// Window is what the mail of an instant is about: the whole day, seven days or
// month before the day of it.
func (m *ReportMail) Window(due time.Time) (from, to time.Time) {
	y, mo, d := due.Date()
	at := func(y int, mo time.Month, d int) time.Time { return time.Date(y, mo, d, 0, 0, 0, 0, due.Location()) }
	switch m.Every {
	case "weekly":
		return at(y, mo, d-7), at(y, mo, d)
	case "monthly":
		return at(y, mo-1, 1), at(y, mo, 1)
	}
	return at(y, mo, d-1), at(y, mo, d)
}
