package conffile

import (
	"strings"
	"testing"
	"time"
)

// TestReportMail: when mail is due, and what it is about, also over changes of
// the clock.
func TestReportMail(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip("no time zones here")
	}
	const form = "2006-01-02 15:04 -07"
	for _, c := range []struct{ line, now, due, from, to string }{
		{"weekly monday 07:00 site to ops@example.org", "2026-11-23 06:59 +01", "2026-11-16 07:00 +01", "2026-11-09 00:00 +01", "2026-11-16 00:00 +01"},
		{"weekly  Monday 07:00 site to ops@example.org", "2026-11-23 07:00 +01", "2026-11-23 07:00 +01", "2026-11-16 00:00 +01", "2026-11-23 00:00 +01"},
		{"daily 02:30 user alice to a@example.org", "2026-03-29 12:00 +02", "2026-03-29 03:30 +02", "2026-03-28 00:00 +01", "2026-03-29 00:00 +01"},
		{"daily 00:00 waste to a@example.org", "2026-03-30 12:00 +02", "2026-03-30 00:00 +02", "2026-03-29 00:00 +01", "2026-03-30 00:00 +02"},
		{"monthly 1 06:30 account ml to a@example.org,b@example.org", "2026-11-01 06:29 +01", "2026-10-01 06:30 +02", "2026-09-01 00:00 +02", "2026-10-01 00:00 +02"},
		{"monthly 28 06:30 chargeback to a@example.org", "2026-01-05 06:29 +01", "2025-12-28 06:30 +01", "2025-11-01 00:00 +01", "2025-12-01 00:00 +01"},
		{"daily 06:00 findings to a@example.org", "2026-03-30 12:00 +02", "2026-03-30 06:00 +02", "2026-03-29 00:00 +01", "2026-03-30 00:00 +02"},
		{"weekly monday 07:00 findings alice to alice@example.org", "2026-11-23 07:00 +01", "2026-11-23 07:00 +01", "2026-11-16 00:00 +01", "2026-11-23 00:00 +01"},
		{"weekly sunday 03:00 site to a@example.org", "2026-10-25 03:00 +01", "2026-10-25 03:00 +01", "2026-10-18 00:00 +02", "2026-10-25 00:00 +02"},
	} {
		list, err := (&Reports{Mail: []string{c.line}}).Schedule()
		if err != nil || len(list) != 1 {
			t.Errorf("%s: %v", c.line, err)
			continue
		}
		now, err := time.Parse(form, c.now)
		if err != nil {
			t.Fatal(err)
		}
		due := list[0].Due(now.In(berlin))
		from, to := list[0].Window(due)
		if due.Format(form) != c.due || from.Format(form) != c.from || to.Format(form) != c.to {
			t.Errorf("%s at %s: due %s, from %s to %s", c.line, c.now, due.Format(form), from.Format(form), to.Format(form))
		}
	}
	for _, bad := range []string{"", "hourly 07:00 site to a@example.org", "weekly 07:00 site to a@example.org", "monthly 31 07:00 site to a@example.org", "daily 25:00 site to a@example.org",
		"daily 07:00 nosuch to a@example.org", "daily 07:00 user to a@example.org", "daily 07:00 site a@example.org", "daily 07:00 site to", "daily 07:00 site to nobody",
		"daily 07:00 site to a@example.org, b@example.org", "daily 07:00 site to a@example.org;rm"} {
		if _, err := (&Reports{Mail: []string{bad}}).Schedule(); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// TestReportLogin: a login is whole, and at a server; without reports it is
// nobody's affair.
func TestReportLogin(t *testing.T) {
	const mail = "reports: {mail: [daily 07:00 site to a@example.org], "
	for text, want := range map[string]string{
		mail + "smtp: 'h:587', smtp_user: m, smtp_password_file: /p}":      "",
		mail + "smtp: 'h:587', smtp_user: m}":                              "name both or neither",
		mail + "smtp: 'h:587', smtp_password_file: /p}":                    "name both or neither",
		mail + "smtp_user: m, smtp_password_file: /p}":                     "name it with smtp",
		"reports: {smtp: 'h:587', smtp_user: m}":                           "",
		mail + "smtp: h, smtp_user: m, smtp_password_file: /p, from: '@'}": "is not host:port",
	} {
		if _, err := Parse(Source{Name: "/etc/muster/muster.yaml", Data: []byte(text)}); (want == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
