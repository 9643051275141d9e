package alerts

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/mail"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/musterhpc/muster/internal/mailer"
)

// pagerDutyURL is where PagerDuty takes events (Events API v2).
const pagerDutyURL = "https://events.pagerduty.com/v2/enqueue"

// ReadSecret reads the only line of a secret's file. A file that others may
// read is refused, and no error shows what is in it.
func ReadSecret(key, file string) (string, error) {
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("%s: %s is not there: write the secret into it, mode 0600", key, file)
	case err != nil:
		return "", fmt.Errorf("%s: %w", key, err)
	case info.Mode().Perm()&0o007 != 0:
		return "", fmt.Errorf(
			"%s: %s can be read by everybody (mode %04o): chmod 0600 it",
			key,
			file,
			info.Mode().Perm(),
		)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("%s: %w", key, err)
	}
	text := strings.TrimSpace(string(data))
	if text == "" || strings.ContainsAny(text, "\r\n") {
		return "", fmt.Errorf("%s: %s must hold one line, the secret", key, file)
	}
	return text, nil
}

// CheckSecrets reads every secret that the settings name.
func (s *Settings) CheckSecrets() error {
	var errs []error
	files := s.Secrets()
	for _, key := range sortedKeys(files) {
		if _, err := ReadSecret(key, files[key]); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Test is a test notification.
type Test struct {
	Receiver string
	By       string // who sends it
	Now      time.Time
	HTTP     *http.Client
}

func (t Test) text() string {
	return "This is a test notification, sent by " + t.By +
		" with `muster alerts test`. Nothing is wrong."
}

// known refuses a receiver that is not set up.
func (s *Settings) known(test Test) error {
	if !slices.Contains(s.Receivers(), test.Receiver) {
		return fmt.Errorf(
			"the receiver %q is not set up in the settings (%s)",
			test.Receiver,
			orNone(s.Receivers()),
		)
	}
	return nil
}

// ThroughAlertmanager gives Alertmanager an alert that its routes lead to the
// receiver, and that ends by itself after two minutes.
func (s *Settings) ThroughAlertmanager(ctx context.Context, test Test) error {
	if err := s.known(test); err != nil {
		return err
	}
	alert := []map[string]any{{
		"labels":   map[string]string{"alertname": "MusterTest", "severity": string(Info), "audience": string(Operators), testLabel: test.Receiver},
		"startsAt": test.Now.Format(time.RFC3339), "endsAt": test.Now.Add(2 * time.Minute).Format(time.RFC3339),
		"annotations": map[string]string{"summary": "Test notification to " + test.Receiver, "description": test.text(),
			"dashboard": strings.TrimRight(s.DashboardsURL, "/") + "/d/muster-alerts", "runbook_url": strings.TrimRight(s.RunbooksURL, "/") +
				"/README.md"},
	}}
	if err := test.post(ctx, strings.TrimRight(s.Alertmanager, "/")+"/api/v2/alerts", "", alert); err != nil {
		return fmt.Errorf("Alertmanager at %s: %w (--direct sends to the receiver without it)", s.Alertmanager, err) //nolint:staticcheck // a name
	}
	return nil
}

// Direct sends to the receiver itself, past Alertmanager: it tries the secret
// and the way there.
func (s *Settings) Direct(ctx context.Context, test Test) error {
	if err := s.known(test); err != nil {
		return err
	}
	switch test.Receiver {
	case "slack":
		hook, err := ReadSecret("slack.webhook_url_file", s.Slack.URLFile)
		if err != nil {
			return err
		}
		return hide(
			hook,
			test.post(
				ctx,
				hook,
				"",
				map[string]any{"channel": s.Slack.Channel, "text": test.text()},
			),
		)
	case "pagerduty":
		return s.pagerDutyDirect(ctx, test)
	case "webhook":
		token := ""
		if s.Webhook.TokenFile != "" {
			var err error
			token, err = ReadSecret("webhook.bearer_token_file", s.Webhook.TokenFile)
			if err != nil {
				return err
			}
		}
		return test.post(
			ctx,
			s.Webhook.URL,
			token,
			map[string]any{
				"version":  "4",
				"status":   "firing",
				"receiver": "webhook",
				"alerts": []map[string]any{{
					"status": "firing", "labels": map[string]string{"alertname": "MusterTest"}, "annotations": map[string]string{"summary": "Test notification", "description": test.text()},
					"startsAt": test.Now.Format(time.RFC3339)}},
			},
		)
	}
	return s.mail(ctx, test)
}

// pagerDutyDirect triggers an event and resolves it again.
func (s *Settings) pagerDutyDirect(ctx context.Context, test Test) error {
	key, err := ReadSecret("pagerduty.routing_key_file", s.PagerDuty.KeyFile)
	if err != nil {
		return err
	}
	to := s.PagerDuty.URL
	if to == "" {
		to = pagerDutyURL
	}
	event := map[string]any{
		"routing_key":  key,
		"event_action": "trigger",
		"dedup_key":    fmt.Sprintf("muster-test-%d", test.Now.Unix()),
		"payload": map[string]string{
			"summary":  test.text(),
			"source":   "muster",
			"severity": "info",
		},
	}
	if err := test.post(ctx, to, "", event); err != nil {
		return err
	}
	event["event_action"] = "resolve"
	return test.post(ctx, to, "", event)
}

// mailPatience is how long a mail server may take in all.
const mailPatience = 20 * time.Second

// mail sends the notification to the mailbox, as Alertmanager would.
func (s *Settings) mail(ctx context.Context, test Test) error {
	email := s.Email
	to, err := mail.ParseAddressList(email.To)
	if err != nil {
		return err
	}
	from, err := mail.ParseAddress(email.From)
	if err != nil {
		return err
	}
	server := mailer.Server{Addr: email.SMTP, User: email.Username, RequireTLS: email.requiresTLS()}
	if email.Username != "" {
		server.Password, err = ReadSecret("email.password_file", email.PasswordFile)
		if err != nil {
			return err
		}
	}
	addresses := make([]string, len(to))
	for i, a := range to {
		addresses[i] = a.Address
	}
	ctx, cancel := context.WithTimeout(ctx, mailPatience)
	defer cancel()
	err = server.Send(ctx, from.Address, addresses, []byte("From: "+email.From+"\r\nTo: "+
		email.To+
		"\r\nSubject: Test notification of Muster\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n"+
		test.text()+"\r\n"))
	switch {
	case errors.Is(err, mailer.ErrNoTLS) && email.requiresTLS():
		return fmt.Errorf(
			"mail server %s: %w (email.require_tls: false for a relay of your own)",
			email.SMTP,
			err,
		)
	case err != nil:
		return fmt.Errorf("mail server %s: %w", email.SMTP, err)
	}
	return nil
}

// post sends JSON and wants a 2xx.
func (t Test) post(ctx context.Context, to, bearer string, body any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(data))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	if bearer != "" {
		request.Header.Set("Authorization", "Bearer "+bearer)
	}
	resp, err := t.HTTP.Do(request)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 400))
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("it answered %s: %s", resp.Status, strings.TrimSpace(string(answer)))
	}
	return nil
}

// hide keeps a secret address out of an error.
func hide(secret string, err error) error {
	if err == nil {
		return nil
	}
	return errors.New(strings.ReplaceAll(err.Error(), secret, "the webhook"))
}
