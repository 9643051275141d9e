package monitoring

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/musterhpc/muster/alerts"
	"github.com/musterhpc/muster/cli/local/cluster"
	"github.com/musterhpc/muster/dashboards/contact"
)

const alertsUsage = `muster alerts makes the alerting of a cluster from one file, alerts.yaml.

Usage:
  muster alerts init     [--out alerts.yaml]             write a file to start from, with every threshold
  muster alerts check    [--config alerts.yaml]          say what is wrong with it, and with the secrets
  muster alerts generate [--config alerts.yaml] --out DIR
                                                         rules, their unit tests, alertmanager.yml, templates, Grafana's
                                                         contact points and policies
  muster alerts test     [--config alerts.yaml] --receiver slack|pagerduty|email|webhook [--direct]
                                                         send a test notification through Alertmanager, or past it

Options:
`

// alertsOptions are the command line.
type alertsOptions struct {
	config, out, receiver string
	direct                bool
}

// Alerts runs `musterd alerts`.
func Alerts(args []string, out, errOut io.Writer) int {
	var o alertsOptions
	fs := pflag.NewFlagSet("muster alerts", pflag.ContinueOnError)
	fs.SetOutput(errOut)
	fs.StringVar(&o.config, "config", "/etc/muster/alerts.yaml", "settings `file`")
	fs.StringVar(&o.out, "out", "", "`file` (init) or folder (generate) to write")
	fs.StringVar(&o.receiver, "receiver", "", "who gets the test: `slack`, pagerduty, email or webhook")
	fs.BoolVar(&o.direct, "direct", false, "send the test to the receiver itself, past Alertmanager")
	help := fs.BoolP("help", "h", false, "print this help and exit")
	fs.Usage = func() { fmt.Fprint(errOut, alertsUsage, fs.FlagUsages()) }
	if err := fs.Parse(args); err != nil {
		fmt.Fprintf(errOut, "muster alerts: %v\n", err)
		return 2
	}
	if *help {
		fmt.Fprint(out, alertsUsage, fs.FlagUsages())
		return 0
	}
	verbs := map[string]func(alertsOptions, io.Writer) error{"init": alertsInit, "check": alertsCheck, "generate": alertsGenerate, "test": alertsTest}
	run := verbs[fs.Arg(0)]
	if fs.NArg() != 1 || run == nil {
		fmt.Fprintf(errOut, "muster alerts: say one of init, check, generate, test (see --help)\n")
		return 2
	}
	if err := run(o, out); err != nil {
		fmt.Fprintf(errOut, "muster alerts %s: %v\n", fs.Arg(0), err)
		return 1
	}
	return 0
}

func readAlerts(path string) (*alerts.Settings, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w (muster alerts init writes one)", err)
	}
	dir, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	return alerts.Parse(path, data, dir)
}

func alertsInit(o alertsOptions, out io.Writer) error {
	path := o.out
	if path == "" {
		path = o.config
	}
	made, err := cluster.WriteNew(path, alerts.Annotated())
	if err == nil && !made {
		err = fmt.Errorf("%s is there already and is left alone", path)
	}
	if err == nil {
		fmt.Fprintf(out, "wrote %s\n", path)
	}
	return err
}

// alertsCheck reads the settings and the secrets, and has promtool and amtool
// read what would be generated where they are installed.
func alertsCheck(o alertsOptions, out io.Writer) error {
	s, err := readAlerts(o.config)
	if err != nil {
		return err
	}
	errs := []error{s.CheckSecrets()}
	dir, err := os.MkdirTemp("", "muster-alerts")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := writeAlerts(s, dir); err != nil {
		return err
	}
	for _, t := range [...][]string{{"promtool", "check", "rules", filepath.Join(dir, alerts.RulesFile)}, {"amtool", "check-config", filepath.Join(dir, alerts.AlertmanagerFile)}} {
		path, err := exec.LookPath(t[0])
		if err != nil {
			fmt.Fprintf(out, "%s: not checked with %s, which is not installed\n", o.config, t[0])
			continue
		}
		if text, err := exec.Command(path, t[1:]...).CombinedOutput(); err != nil {
			errs = append(errs, fmt.Errorf("%s %s refuses what would be generated: %s", t[0], t[1], strings.TrimSpace(string(text))))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	receivers := strings.Join(s.Receivers(), ", ")
	if receivers == "" {
		receivers = "none, so nobody is told"
	}
	fmt.Fprintf(out, "%s: %d alerts, receivers: %s\n", o.config, len(alerts.All()), receivers)
	return nil
}

func alertsGenerate(o alertsOptions, out io.Writer) error {
	if o.out == "" {
		return errors.New("say where to: --out DIR")
	}
	s, err := readAlerts(o.config)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	if err := writeAlerts(s, o.out); err != nil {
		return err
	}
	fmt.Fprintf(out, "wrote %s, %s, %s, %s and grafana-alerting.json into %s\n", alerts.RulesFile, alerts.TestsFile, alerts.AlertmanagerFile, alerts.TemplatesFile, o.out)
	return nil
}

// writeAlerts writes every generated file into a folder.
func writeAlerts(s *alerts.Settings, dir string) error {
	files, err := s.Files()
	if err != nil {
		return err
	}
	grafana, err := contact.JSON(grafanaAlerting(s))
	if err != nil {
		return err
	}
	for _, f := range append(files, alerts.File{Name: "grafana-alerting.json", Data: grafana}) {
		if err := os.WriteFile(filepath.Join(dir, f.Name), f.Data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// grafanaAlerting says to Grafana what alertmanager.yml says to Alertmanager.
func grafanaAlerting(s *alerts.Settings) ([]contact.Point, contact.Policy, contact.Hours) {
	file := func(path string) string { return "$__file{" + path + "}" }
	var points []contact.Point
	if s.Slack != nil {
		points = append(points, contact.Point{Name: "slack", Type: "slack", Settings: map[string]any{"url": file(s.Slack.URLFile), "recipient": s.Slack.Channel}})
	}
	if s.PagerDuty != nil {
		points = append(points, contact.Point{Name: "pagerduty", Type: "pagerduty", Settings: map[string]any{"integrationKey": file(s.PagerDuty.KeyFile), "severity": "{{ .CommonLabels.severity }}"}})
	}
	if s.Email != nil {
		points = append(points, contact.Point{Name: "email", Type: "email", Settings: map[string]any{"addresses": s.Email.To}})
	}
	if s.Webhook != nil {
		hook := map[string]any{"url": s.Webhook.URL}
		if s.Webhook.TokenFile != "" {
			hook["authorization_scheme"], hook["authorization_credentials"] = "Bearer", file(s.Webhook.TokenFile)
		}
		points = append(points, contact.Point{Name: "webhook", Type: "webhook", Settings: hook})
	}
	first, last, two := strings.Cut(s.Hours.Days, ":")
	if !two {
		last = first
	}
	hours := contact.Hours{Name: "muster-outside-business-hours", From: s.Hours.From, To: s.Hours.To, Zone: s.Hours.Zone, FirstDay: first, LastDay: last}
	policy := contact.Policy{GroupBy: []string{"cluster", "alertname"}, Wait: s.GroupWait, Interval: s.GroupInterval, Repeat: s.Repeat}
	if len(points) == 0 {
		points = []contact.Point{{Name: "nobody", Type: "email", Settings: map[string]any{"addresses": "nobody@localhost"}}}
	}
	policy.Default = points[0].Name
	if s.UserNotices != "" {
		policy.Routes = append(policy.Routes, contact.Route{Point: s.UserNotices, Matchers: [][3]string{{"audience", "=", "users"}}, GroupBy: []string{"cluster", "user", "alertname"}, Repeat: "24h"})
	}
	if s.PagerDuty != nil {
		policy.Routes = append(policy.Routes, contact.Route{Point: "pagerduty", Matchers: [][3]string{{"severity", "=", "critical"}}, Repeat: "1h", Continue: policy.Default != "pagerduty"})
	}
	policy.Routes = append(policy.Routes, contact.Route{Point: policy.Default, Matchers: [][3]string{{"severity", "=", "info"}}, Repeat: "24h", Hours: hours.Name},
		contact.Route{Point: policy.Default, Matchers: [][3]string{{"severity", "=~", "critical|warning"}}})
	return points, policy, hours
}

// alertsTest sends a test notification.
func alertsTest(o alertsOptions, out io.Writer) error {
	if o.receiver == "" {
		return errors.New("say who gets it: --receiver slack, pagerduty, email or webhook")
	}
	s, err := readAlerts(o.config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	who := "somebody"
	if u, err := user.Current(); err == nil {
		who = u.Username
	}
	t := alerts.Test{Receiver: o.receiver, By: who, Now: time.Now(), HTTP: &http.Client{Timeout: 10 * time.Second}}
	if o.direct {
		if err := s.Direct(ctx, t); err != nil {
			return fmt.Errorf("%s: %w", o.receiver, err)
		}
		fmt.Fprintf(out, "%s took the test notification\n", o.receiver)
		return nil
	}
	if err := s.ThroughAlertmanager(ctx, t); err != nil {
		return err
	}
	fmt.Fprintf(out, "Alertmanager at %s took the test for %s; the notification follows within seconds if its configuration is the generated one\n", s.Alertmanager, o.receiver)
	return nil
}
