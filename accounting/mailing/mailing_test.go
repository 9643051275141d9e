package mailing

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	acctd "github.com/musterhpc/muster/accounting/daemon"
	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/internal/conffile"
)

// TestMailing: what is due is mailed once, also over a restart; what fails is
// told, and tried again with growing pauses until it succeeds or the next is
// due; what was due before its line was written is not mailed.
func TestMailing(t *testing.T) {
	dir := t.TempDir()
	// It stands for muster: it writes down what it is asked, and fails on demand.
	program := filepath.Join(dir, "muster")
	script := "#!/bin/sh\nif [ -e '" + dir + "/fail' ]; then echo 'the relay is away' >&2; exit 1; fi\necho \"$MUSTER_SOCKET $*\" >> '" + dir + "/asked'\n"
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	cfg := &conffile.Config{StateDir: dir, Socket: "/run/m.sock", AccountingSocket: "/run/accounting.sock", Reports: conffile.Reports{From: "m@example.org", SMTP: "relay:25", SMTPUser: "m", SMTPPasswordFile: "/p",
		Mail: []string{"weekly monday 07:00 user alice to a@example.org,b@example.org", "daily 06:00 site to ops@example.org"}}}
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC) // a Sunday
	role := mailSends
	var log bytes.Buffer
	begin := func() *Mailer {
		t.Helper()
		m, err := New(cfg, "/etc/m.yaml", func() Role { return role }, func() time.Time { return now }, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		m.program = program
		return m
	}
	asked := func() string {
		data, err := os.ReadFile(filepath.Join(dir, "asked"))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(dir, "asked")); err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	const options = "/run/m.sock report --from m@example.org --smtp relay:25 --smtp-user m --smtp-password-file /p "
	const weekly = options + "-S 2026-11-16T00:00:00 -E 2026-11-23T00:00:00 --mail a@example.org,b@example.org -- user alice\n"
	if err := os.WriteFile(filepath.Join(dir, "reports.json"), []byte(`{"weekly monday 07:00 user alice to a@example.org,b@example.org": "2026-11-16T07:00:00Z", "daily 06:00 site to ops@example.org": "2026-11-22T06:00:00Z", "gone": "2026-01-01T00:00:00Z"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	m := begin()
	m.look(t.Context())
	if got := asked(); got != "" {
		t.Errorf("mailed though nothing is due: %s", got)
	}
	now = time.Date(2026, 11, 23, 6, 0, 0, 0, time.UTC)
	role = mailWaits
	m.look(t.Context())
	if got := asked(); got != "" {
		t.Errorf("mailed while nothing is known: %s", got)
	}
	role = mailSends
	m.look(t.Context())
	m.look(t.Context())
	if got, want := asked(), options+"-S 2026-11-22T00:00:00 -E 2026-11-23T00:00:00 --mail ops@example.org -- site\n"; got != want {
		t.Errorf("mailed %q, want %q", got, want)
	}
	if err := os.WriteFile(filepath.Join(dir, "fail"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	now = time.Date(2026, 11, 23, 7, 0, 1, 0, time.UTC)
	for _, after := range []time.Duration{0, 30 * time.Second, time.Minute, 2 * time.Minute, 3 * time.Minute} { // tried at 0, 1 and 3 minutes
		at := now
		now = now.Add(after)
		m.look(t.Context())
		now = at
	}
	if n := strings.Count(log.String(), "the relay is away"); n != 3 || m.Failed.Load() != 3 || m.Sent.Load() != 1 {
		t.Errorf("it failed %d times, %d counted, %d sent:\n%s", n, m.Failed.Load(), m.Sent.Load(), log.String())
	}
	m = begin() // a restart in between
	if err := os.Remove(filepath.Join(dir, "fail")); err != nil {
		t.Fatal(err)
	}
	m.look(t.Context())
	if got := asked(); got != weekly {
		t.Errorf("mailed %q, want %q", got, weekly)
	}
	m = begin()
	m.look(t.Context())
	if got := asked(); got != "" {
		t.Errorf("mailed again after a restart: %s", got)
	}
	if data, err := os.ReadFile(m.file); err != nil || strings.Contains(string(data), "gone") || strings.Count(string(data), "2026-11-23") != 2 {
		t.Errorf("remembered: %s, %v", data, err)
	}
	now = time.Date(2026, 12, 20, 7, 0, 0, 0, time.UTC) // it was down for weeks: the newest of each
	m = begin()
	m.look(t.Context())
	if got := asked(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "-S 2026-12-07T00:00:00 -E 2026-12-14T00:00:00") || !strings.Contains(got, "-S 2026-12-19T00:00:00") {
		t.Errorf("mailed %q", got)
	}
	cfg.Reports.Mail = append(cfg.Reports.Mail, "daily 05:00 waste to ops@example.org") // a new line
	m = begin()
	m.look(t.Context())
	if got := asked(); got != "" {
		t.Errorf("what was due before it was asked for is mailed: %s", got)
	}
	now, role = now.AddDate(0, 0, 1), mailOthers
	m.look(t.Context())
	now = now.Add(30 * time.Second)
	m.look(t.Context())
	if !m.done["daily 05:00 waste to ops@example.org"].Before(now.AddDate(0, 0, -1)) {
		t.Error("what this process had to send itself, before it was started again, counts as sent")
	}
	now = now.Add(time.Minute)
	m.look(t.Context())
	role = mailSends
	m.look(t.Context())
	if got := asked(); got != "" {
		t.Errorf("what another has sent is mailed: %s", got)
	}
	for want, st := range map[Role]acctd.Status{mailSends: {Up: true}, mailWaits: {Error: io.EOF}, mailOthers: {Error: fmt.Errorf("x: %w", tally.ErrLease)}} {
		if got := RoleOf(st); got != want {
			t.Errorf("%+v: %d, want %d", st, got, want)
		}
	}
	cfg.AccountingSocket = "/run/apart/a.sock"
	if m = begin(); !slices.Contains(m.environ, "MUSTER_SOCKET=") || !slices.Contains(m.environ, "MUSTER_CONFIG=/etc/m.yaml") {
		t.Error("muster looks for accounting beside the controller's socket, where it is not")
	}
	if err := os.WriteFile(m.file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(cfg, "", nil, time.Now, slog.Default()); err == nil || !strings.Contains(err.Error(), "reports.json") {
		t.Errorf("a torn file: %v", err)
	}
}
