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
	var options alertsOptions
	flags := pflag.NewFlagSet("muster alerts", pflag.ContinueOnError)
	flags.SetOutput(errOut)
	flags.StringVar(&options.config, "config", "/etc/muster/alerts.yaml", "settings `file`")
	flags.StringVar(&options.out, "out", "", "`file` (init) or folder (generate) to write")
	flags.StringVar(
		&options.receiver,
		"receiver",
		"",
		"who gets the test: `slack`, pagerduty, email or webhook",
	)
	flags.BoolVar(
		&options.direct,
		"direct",
		false,
		"send the test to the receiver itself, past Alertmanager",
	)
	help := flags.BoolP("help", "h", false, "print this help and exit")
	flags.Usage = func() { fmt.Fprint(errOut, alertsUsage, flags.FlagUsages()) }
	if err := flags.Parse(args); err != nil {
		fmt.Fprintf(errOut, "muster alerts: %v\n", err)
		return 2
	}
	if *help {
		fmt.Fprint(out, alertsUsage, flags.FlagUsages())
		return 0
	}
	verbs := map[string]func(alertsOptions, io.Writer) error{
		"init":     alertsInit,
		"check":    alertsCheck,
		"generate": alertsGenerate,
		"test":     alertsTest,
	}
	run := verbs[flags.Arg(0)]
	if flags.NArg() != 1 || run == nil {
		fmt.Fprintf(errOut, "muster alerts: say one of init, check, generate, test (see --help)\n")
		return 2
	}
	if err := run(options, out); err != nil {
		fmt.Fprintf(errOut, "muster alerts %s: %v\n", flags.Arg(0), err)
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

func alertsInit(options alertsOptions, out io.Writer) error {
	path := options.out
	if path == "" {
		path = options.config
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
func alertsCheck(options alertsOptions, out io.Writer) error {
	settings, err := readAlerts(options.config)
	if err != nil {
		return err
	}
	errs := []error{settings.CheckSecrets()}
	dir, err := os.MkdirTemp("", "muster-alerts")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := writeAlerts(settings, dir); err != nil {
		return err
	}
	for _, t := range [...][]string{{"promtool", "check", "rules", filepath.Join(dir, alerts.RulesFile)}, {"amtool", "check-config", filepath.Join(dir, alerts.AlertmanagerFile)}} {
		path, err := exec.LookPath(t[0])
		if err != nil {
			fmt.Fprintf(
				out,
				"%s: not checked with %s, which is not installed\n",
				options.config,
				t[0],
			)
			continue
		}
		if text, err := exec.Command(path, t[1:]...).CombinedOutput(); err != nil {
			errs = append(
				errs,
				fmt.Errorf(
					"%s %s refuses what would be generated: %s",
					t[0],
					t[1],
					strings.TrimSpace(string(text)),
				),
			)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	receivers := strings.Join(settings.Receivers(), ", ")
	if receivers == "" {
		receivers = "none: no alert is sent"
	}
	fmt.Fprintf(out, "%s: %d alerts, receivers: %s\n", options.config, len(alerts.All()), receivers)
	return nil
}

func alertsGenerate(options alertsOptions, out io.Writer) error {
	if options.out == "" {
		return errors.New("say where to: --out DIR")
	}
	settings, err := readAlerts(options.config)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(options.out, 0o755); err != nil {
		return err
	}
	if err := writeAlerts(settings, options.out); err != nil {
		return err
	}
	fmt.Fprintf(
		out,
		"wrote %s, %s, %s, %s and grafana-alerting.json into %s\n",
		alerts.RulesFile,
		alerts.TestsFile,
		alerts.AlertmanagerFile,
		alerts.TemplatesFile,
		options.out,
	)
	return nil
}

// writeAlerts writes every generated file into a folder.
func writeAlerts(settings *alerts.Settings, dir string) error {
	files, err := settings.Files()
	if err != nil {
		return err
	}
	grafana, err := contact.JSON(grafanaAlerting(settings))
	if err != nil {
		return err
	}
	for _, file := range append(files, alerts.File{Name: "grafana-alerting.json", Data: grafana}) {
		if err := os.WriteFile(filepath.Join(dir, file.Name), file.Data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// grafanaAlerting says to Grafana what alertmanager.yml says to Alertmanager.
func grafanaAlerting(settings *alerts.Settings) ([]contact.Point, contact.Policy, contact.Hours) {
	file := func(path string) string { return "$__file{" + path + "}" }
	var points []contact.Point
	if settings.Slack != nil {
		points = append(
			points,
			contact.Point{
				Name: "slack",
				Type: "slack",
				Settings: map[string]any{
					"url":       file(settings.Slack.URLFile),
					"recipient": settings.Slack.Channel,
				},
			},
		)
	}
	if settings.PagerDuty != nil {
		points = append(
			points,
			contact.Point{
				Name: "pagerduty",
				Type: "pagerduty",
				Settings: map[string]any{
					"integrationKey": file(settings.PagerDuty.KeyFile),
					"severity":       "{{ .CommonLabels.severity }}",
				},
			},
		)
	}
	if settings.Email != nil {
		points = append(
			points,
			contact.Point{
				Name:     "email",
				Type:     "email",
				Settings: map[string]any{"addresses": settings.Email.To},
			},
		)
	}
	if settings.Webhook != nil {
		hook := map[string]any{"url": settings.Webhook.URL}
		if settings.Webhook.TokenFile != "" {
			hook["authorization_scheme"], hook["authorization_credentials"] = "Bearer", file(
				settings.Webhook.TokenFile,
			)
		}
		points = append(points, contact.Point{Name: "webhook", Type: "webhook", Settings: hook})
	}
	first, last, two := strings.Cut(settings.Hours.Days, ":")
	if !two {
		last = first
	}
	hours := contact.Hours{
		Name:     "muster-outside-business-hours",
		From:     settings.Hours.From,
		To:       settings.Hours.To,
		Zone:     settings.Hours.Zone,
		FirstDay: first,
		LastDay:  last,
	}
	policy := contact.Policy{
		GroupBy:  []string{"cluster", "alertname"},
		Wait:     settings.GroupWait,
		Interval: settings.GroupInterval,
		Repeat:   settings.Repeat,
	}
	if len(points) == 0 {
		points = []contact.Point{
			{
				Name:     "nobody",
				Type:     "email",
				Settings: map[string]any{"addresses": "nobody@localhost"},
			},
		}
	}
	policy.Default = points[0].Name
	if settings.UserNotices != "" {
		policy.Routes = append(
			policy.Routes,
			contact.Route{
				Point:    settings.UserNotices,
				Matchers: [][3]string{{"audience", "=", "users"}},
				GroupBy:  []string{"cluster", "user", "alertname"},
				Repeat:   "24h",
			},
		)
	}
	if settings.PagerDuty != nil {
		policy.Routes = append(
			policy.Routes,
			contact.Route{
				Point:    "pagerduty",
				Matchers: [][3]string{{"severity", "=", "critical"}},
				Repeat:   "1h",
				Continue: policy.Default != "pagerduty",
			},
		)
	}
	policy.Routes = append(
		policy.Routes,
		contact.Route{
			Point:    policy.Default,
			Matchers: [][3]string{{"severity", "=", "info"}},
			Repeat:   "24h",
			Hours:    hours.Name,
		},
		contact.Route{
			Point:    policy.Default,
			Matchers: [][3]string{{"severity", "=~", "critical|warning"}},
		},
	)
	return points, policy, hours
}

// alertsTest sends a test notification.
func alertsTest(options alertsOptions, out io.Writer) error {
	if options.receiver == "" {
		return errors.New("say who gets it: --receiver slack, pagerduty, email or webhook")
	}
	settings, err := readAlerts(options.config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	who := "somebody"
	if u, err := user.Current(); err == nil {
		who = u.Username
	}
	test := alerts.Test{
		Receiver: options.receiver,
		By:       who,
		Now:      time.Now(),
		HTTP:     &http.Client{Timeout: 10 * time.Second},
	}
	if options.direct {
		if err := settings.Direct(ctx, test); err != nil {
			return fmt.Errorf("%s: %w", options.receiver, err)
		}
		fmt.Fprintf(out, "%s took the test notification\n", options.receiver)
		return nil
	}
	if err := settings.ThroughAlertmanager(ctx, test); err != nil {
		return err
	}
	fmt.Fprintf(
		out,
		"Alertmanager at %s took the test for %s; the notification follows within seconds if its configuration is the generated one\n",
		settings.Alertmanager,
		options.receiver,
	)
	return nil
}
