package mailing

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	acctd "github.com/musterhpc/muster/accounting/daemon"
	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/durable"
)

// Mailer sends the reports of reports.mail when they are due: each once, also
// over restarts. It runs muster report, as a person would.
type Mailer struct {
	list    []conffile.ReportMail
	options []string // of muster report
	program string   // muster
	environ []string
	file    string // remembers what was sent
	role    func() Role
	now     func() time.Time
	log     *slog.Logger

	Sent, Failed atomic.Uint64 // for metrics

	done   map[string]time.Time // by line: the instant of the last mail that was sent
	again  map[string]time.Time // by line: when one that failed is tried again
	pauses map[string]time.Duration
	others time.Time // since when another process stores; zero = none does
}

// Role is what a process has to do with mail now.
type Role uint8

const (
	mailWaits  Role = iota // nobody knows what there is to report
	mailSends              // this process stores what is reported
	mailOthers             // another one does, and sends
)

// RoleOf tells it from how the accounting is.
func RoleOf(status acctd.Status) Role {
	switch {
	case status.Up:
		return mailSends
	case errors.Is(status.Error, tally.ErrLease):
		return mailOthers
	}
	return mailWaits
}

// Times of mailing.
const (
	mailLook       = 5 * time.Second // between two looks at the clock
	mailPatience   = 5 * time.Minute // for one report
	mailPauseFirst = time.Minute     // after a first failure; twice as long after each more
	mailPauseMost  = time.Hour
	mailOtherLives = time.Minute // longer than one that is dead is taken for alive
)

// New makes what sends the reports of muster.yaml; nil = there are none.
func New(
	cfg *conffile.Config,
	config string,
	role func() Role,
	now func() time.Time,
	logger *slog.Logger,
) (*Mailer, error) {
	list, err := cfg.Reports.Schedule()
	if err != nil || len(list) == 0 {
		return nil, err
	}
	program, environ, err := reporter(cfg, config)
	if err != nil {
		return nil, err
	}
	mailer := &Mailer{
		list:    list,
		program: program,
		file:    filepath.Join(cfg.StateDir, "reports.json"),
		role:    role,
		now:     now,
		log:     logger,
		environ: environ,
	}
	if cfg.Reports.From != "" {
		mailer.options = append(mailer.options, "--from", cfg.Reports.From)
	}
	if cfg.Reports.SMTP != "" {
		mailer.options = append(mailer.options, "--smtp", cfg.Reports.SMTP)
	}
	if cfg.Reports.SMTPUser != "" {
		mailer.options = append(
			mailer.options,
			"--smtp-user",
			cfg.Reports.SMTPUser,
			"--smtp-password-file",
			cfg.Reports.SMTPPasswordFile,
		)
	}
	return mailer, mailer.load()
}

// reporter is muster beside this program, and the environment in which it finds this cluster.
func reporter(cfg *conffile.Config, config string) (program string, environ []string, err error) {
	self, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	socket := cfg.Socket
	if cfg.AccountingSocket != filepath.Join(filepath.Dir(socket), "accounting.sock") {
		socket = "" // muster looks for accounting only there; without this it reads muster.yaml
	}
	environ = append(os.Environ(), "MUSTER_CONFIG="+config, "MUSTER_SOCKET="+socket)
	return filepath.Join(filepath.Dir(self), "muster"), environ, nil
}

// Describer makes what says how well a run used what it held, by muster report; nil where
// reports.job_efficiency is off.
func Describer(cfg *conffile.Config, config string) (func(ctx context.Context, job string) (string, error), error) {
	if !cfg.Reports.JobEfficiency {
		return nil, nil //nolint:nilnil // mails have no text then
	}
	program, environ, err := reporter(cfg, config)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, job string) (string, error) {
		cmd := exec.CommandContext(ctx, program, "report", "--brief", "--", job)
		cmd.Env = environ
		cmd.WaitDelay = time.Second
		var errOut bytes.Buffer
		cmd.Stderr = &errOut
		out, err := cmd.Output()
		if text := string(bytes.TrimSpace(errOut.Bytes())); err != nil && text != "" {
			return "", errors.New(text)
		}
		return string(out), err
	}, nil
}

// load reads what was sent. A line that was never there before begins now: what
// was due before it was written is not sent.
func (m *Mailer) load() error {
	m.done = map[string]time.Time{}
	m.again = map[string]time.Time{}
	m.pauses = map[string]time.Duration{}
	data, err := os.ReadFile(m.file)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return fmt.Errorf("what reports were mailed: %w", err)
	default:
		if err := json.Unmarshal(data, &m.done); err != nil {
			return fmt.Errorf(
				"what reports were mailed (%s): %w; take the file away to begin anew",
				m.file,
				err,
			)
		}
	}
	known := map[string]time.Time{}
	for i := range m.list {
		line := m.list[i].Line
		known[line] = m.done[line]
		if known[line].IsZero() {
			known[line] = m.list[i].Due(m.now())
		}
	}
	m.done = known // lines that are gone are forgotten
	return m.save()
}

// save writes what was sent, whole or not at all.
func (m *Mailer) save() error {
	data, err := json.MarshalIndent(m.done, "", "  ")
	if err != nil {
		return err
	}
	return durable.WriteFile(m.file, append(data, '\n'), 0o600)
}

// Run sends until the context ends.
func (m *Mailer) Run(ctx context.Context) {
	tick := time.NewTicker(mailLook)
	defer tick.Stop()
	for {
		m.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// look sends what is due. While accounting does not take rows nothing is: it is
// sent later. What another process had to send is not sent by this one when it
// takes over.
func (m *Mailer) look(ctx context.Context) {
	role := m.role()
	if role != mailOthers {
		m.others = time.Time{}
	}
	switch {
	case role == mailWaits:
		return
	case role == mailOthers && m.others.IsZero():
		m.others = m.now()
		return
	case role == mailOthers:
		// For a moment after a restart the other is this process as it was.
		if m.now().Sub(m.others) > mailOtherLives {
			m.pass()
		}
		return
	}
	for i := range m.list {
		report := &m.list[i]
		now := m.now()
		due := report.Due(now)
		if !due.After(m.done[report.Line]) || now.Before(m.again[report.Line]) || ctx.Err() != nil {
			continue
		}
		if err := m.send(ctx, report, due); err != nil {
			if ctx.Err() != nil {
				return
			}
			m.Failed.Add(1)
			pause := min(max(2*m.pauses[report.Line], mailPauseFirst), mailPauseMost)
			m.pauses[report.Line], m.again[report.Line] = pause, now.Add(pause)
			m.log.Warn(
				"a report could not be mailed",
				"report",
				report.Line,
				"due",
				due,
				"again_in",
				pause,
				"error",
				err,
			)
			continue
		}
		m.Sent.Add(1)
		delete(m.pauses, report.Line)
		m.done[report.Line] = due
		if err := m.save(); err != nil {
			m.log.Error(
				"it cannot be remembered that a report was mailed: after a restart it is mailed again",
				"report",
				report.Line,
				"error",
				err,
			)
		}
		m.log.Info("a report was mailed", "report", report.Line, "due", due)
	}
}

// pass notes what is due as sent.
func (m *Mailer) pass() {
	changed := false
	for i := range m.list {
		mail := &m.list[i]
		if due := mail.Due(m.now()); due.After(m.done[mail.Line]) {
			m.done[mail.Line], changed = due, true
		}
	}
	if !changed {
		return
	}
	if err := m.save(); err != nil {
		m.log.Error("it cannot be remembered which reports another process mails", "error", err)
	}
}

func (m *Mailer) send(ctx context.Context, report *conffile.ReportMail, due time.Time) error {
	const stamp = "2006-01-02T15:04:05"
	from, to := report.Window(due)
	args := append([]string{"report"}, m.options...)
	args = append(
		args,
		"-S",
		from.Format(stamp),
		"-E",
		to.Format(stamp),
		"--mail",
		strings.Join(report.To, ","),
		"--",
	)
	ctx, cancel := context.WithTimeout(ctx, mailPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, m.program, append(args, report.Report...)...)
	cmd.Env = m.environ
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if text := string(bytes.TrimSpace(out)); err != nil && text != "" {
		return errors.New(text)
	}
	return err
}
