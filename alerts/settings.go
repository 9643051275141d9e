package alerts

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/mail"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Settings is alerts.yaml: where notifications go and what the thresholds are.
type Settings struct {
	DashboardsURL string               `yaml:"dashboards_url"`
	RunbooksURL   string               `yaml:"runbooks_url"`
	Alertmanager  string               `yaml:"alertmanager_url"`
	Evaluate      string               `yaml:"evaluate"`
	GroupWait     string               `yaml:"group_wait"`
	GroupInterval string               `yaml:"group_interval"`
	Repeat        string               `yaml:"repeat"`
	KeepFiring    string               `yaml:"keep_firing"`
	Hours         Hours                `yaml:"business_hours"`
	Slack         *Slack               `yaml:"slack"`
	PagerDuty     *PagerDuty           `yaml:"pagerduty"`
	Email         *Email               `yaml:"email"`
	Webhook       *Webhook             `yaml:"webhook"`
	UserNotices   string               `yaml:"user_notices"`
	Thresholds    map[string]yaml.Node `yaml:"thresholds"`

	values map[string]map[string]string // by rule and threshold, all of them
}

// Hours is when notices that can wait are sent.
type Hours struct {
	Days string `yaml:"days"` // monday:friday
	From string `yaml:"from"` // 08:00
	To   string `yaml:"to"`
	Zone string `yaml:"zone"` // IANA name
}

// Slack is an incoming webhook. Its URL is a secret, so it stands in a file.
type Slack struct {
	URLFile      string `yaml:"webhook_url_file"`
	Channel      string `yaml:"channel"`
	UsersChannel string `yaml:"users_channel"` // of notices to users; empty: channel
}

// PagerDuty is an integration of the Events API v2.
type PagerDuty struct {
	KeyFile string `yaml:"routing_key_file"`
	URL     string `yaml:"url"` // empty: PagerDuty's own
}

// Email is a mailbox.
type Email struct {
	To           string `yaml:"to"`
	From         string `yaml:"from"`
	SMTP         string `yaml:"smtp"` // host:port
	Username     string `yaml:"username"`
	PasswordFile string `yaml:"password_file"`
	// RequireTLS: a server that does not offer STARTTLS gets no mail. Unset is
	// yes, as Alertmanager has it.
	RequireTLS *bool `yaml:"require_tls"`
}

// requiresTLS tells whether mail must be encrypted.
func (e *Email) requiresTLS() bool { return e.RequireTLS == nil || *e.RequireTLS }

// Webhook is any HTTP address that takes Alertmanager's JSON.
type Webhook struct {
	URL       string `yaml:"url"`
	TokenFile string `yaml:"bearer_token_file"`
}

// Problem is one thing that is wrong with a settings file.
type Problem struct {
	File string
	Line int
	Text string
}

// Error gives FILE:LINE: text.
func (p Problem) Error() string {
	if p.Line == 0 {
		return p.File + ": " + p.Text
	}
	return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Text)
}

// Problems are all of them at once.
type Problems []Problem

// Error lists them, one a line.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, problem := range ps {
		lines[i] = problem.Error()
	}
	return strings.Join(lines, "\n")
}

// Defaults are the settings of an empty file.
func Defaults() *Settings {
	settings := &Settings{
		Evaluate:      "30s",
		GroupWait:     "30s",
		GroupInterval: "5m",
		Repeat:        "4h",
		KeepFiring:    "5m",
		DashboardsURL: "http://localhost:3000",
		RunbooksURL:   "https://github.com/musterhpc/muster/blob/main/alerts/runbooks",
		Alertmanager:  "http://localhost:9093",
		Hours: Hours{
			Days: "monday:friday",
			From: "08:00",
			To:   "18:00",
			Zone: "UTC",
		},
		values: map[string]map[string]string{},
	}
	for _, rule := range All() {
		settings.values[rule.Name] = map[string]string{}
		for _, param := range rule.allParams() {
			settings.values[rule.Name][param.Name] = param.Default
		}
	}
	return settings
}

// Parse reads a settings file strictly: an unknown key, rule or threshold, a
// value of the wrong kind or a contradiction is an error, and all are
// reported at once with their lines. Paths of secrets are made absolute from
// dir.
func Parse(name string, data []byte, dir string) (*Settings, error) {
	settings := Defaults()
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	var problems Problems
	if err := d.Decode(settings); err != nil && !errors.Is(err, io.EOF) {
		problems = append(problems, yamlProblems(name, err)...)
	}
	if len(problems) > 0 {
		return nil, problems
	}
	problems = append(problems, settings.thresholds(name)...)
	lines := keyLines(data)
	problems = append(problems, settings.validate(name, lines)...)
	if len(problems) > 0 {
		return nil, problems
	}
	for _, f := range settings.secretFiles() {
		if !path.IsAbs(*f.path) {
			*f.path = path.Join(dir, *f.path)
		}
	}
	return settings, nil
}

var yamlLine = regexp.MustCompile(`^(?:yaml: )?line ([0-9]+): (.*)$`)

// yamlProblems words what the decoder complains about.
func yamlProblems(name string, err error) Problems {
	texts := []string{err.Error()}
	var typed *yaml.TypeError
	if errors.As(err, &typed) {
		texts = typed.Errors
	}
	var problems Problems
	for _, text := range texts {
		problem := Problem{File: name, Text: text}
		if match := yamlLine.FindStringSubmatch(text); match != nil {
			_, _ = fmt.Sscan(match[1], &problem.Line)
			problem.Text = match[2]
		}
		if m := regexp.MustCompile(`^field (\S+) not found in type`).FindStringSubmatch(problem.Text); m != nil {
			problem.Text = "unknown key " + m[1]
		}
		problems = append(problems, problem)
	}
	return problems
}

// thresholds takes the section of that name over.
func (s *Settings) thresholds(name string) Problems {
	var problems Problems
	for _, rule := range sortedKeys(s.Thresholds) {
		node := s.Thresholds[rule]
		add := func(line int, format string, args ...any) {
			problems = append(
				problems, Problem{name, line, rule + ": " + fmt.Sprintf(format, args...)},
			)
		}
		r, ok := Find(rule)
		if !ok {
			add(node.Line, "there is no such alert%s", near(rule))
			continue
		}
		if node.Kind != yaml.MappingNode {
			add(node.Line, "want its thresholds, as in {for: 5m}")
			continue
		}
		seen := map[string]bool{}
		for i := 0; i+1 < len(node.Content); i += 2 {
			key, value := node.Content[i], node.Content[i+1]
			at := slices.IndexFunc(r.allParams(), func(p Param) bool { return p.Name == key.Value })
			switch {
			case at < 0:
				names := []string{}
				for _, param := range r.allParams() {
					names = append(names, param.Name)
				}
				add(
					key.Line,
					"has no threshold %s; it has %s",
					key.Value,
					strings.Join(names, ", "),
				)
				continue
			case seen[key.Value]:
				add(key.Line, "%s stands twice", key.Value)
				continue
			case value.Kind != yaml.ScalarNode:
				add(value.Line, "%s: want a single value", key.Value)
				continue
			}
			seen[key.Value] = true
			text := value.Value
			if key.Value == "severity" && value.Tag == "!!bool" && text == "off" ||
				text == "false" {
				text = "off"
			}
			if err := r.allParams()[at].check(text); err != nil {
				add(value.Line, "%s: %v", key.Value, err)
				continue
			}
			s.values[rule][key.Value] = text
		}
	}
	return problems
}

// near suggests an alert.
func near(name string) string {
	for _, rule := range All() {
		if strings.EqualFold(rule.Name, name) || strings.EqualFold(rule.Name, "Muster"+name) {
			return "; did you mean " + rule.Name + "?"
		}
	}
	return ""
}

// keyLines finds the line of each top-level key and, as key.sub, of theirs.
func keyLines(data []byte) map[string]int {
	out := map[string]int{}
	var doc yaml.Node
	if yaml.Unmarshal(data, &doc) != nil || len(doc.Content) == 0 {
		return out
	}
	top := doc.Content[0]
	for i := 0; i+1 < len(top.Content); i += 2 {
		key, value := top.Content[i], top.Content[i+1]
		out[key.Value] = key.Line
		for j := 0; value.Kind == yaml.MappingNode && j+1 < len(value.Content); j += 2 {
			out[key.Value+"."+value.Content[j].Value] = value.Content[j].Line
		}
	}
	return out
}

// validate finds what fits no key alone.
func (s *Settings) validate(name string, lines map[string]int) Problems {
	var problems Problems
	add := func(key, format string, args ...any) {
		line := lines[key]
		if top, _, sub := strings.Cut(key, "."); sub && line == 0 {
			line = lines[top]
		}
		problems = append(problems, Problem{name, line, key + ": " + fmt.Sprintf(format, args...)})
	}
	web := func(key, text string) {
		if address, err := url.Parse(text); err != nil || address.Host == "" ||
			address.Scheme != "http" && address.Scheme != "https" {
			add(key, "%q is not an http or https address", text)
		}
	}
	web("dashboards_url", s.DashboardsURL)
	web("runbooks_url", s.RunbooksURL)
	web("alertmanager_url", s.Alertmanager)
	for key, text := range map[string]string{"evaluate": s.Evaluate, "group_wait": s.GroupWait, "group_interval": s.GroupInterval, "repeat": s.Repeat} {
		if _, err := parseDuration(text); err != nil {
			add(key, "%v", err)
		}
	}
	if s.KeepFiring != "off" {
		if _, err := parseDuration(s.KeepFiring); err != nil {
			add("keep_firing", "%v, or off", err)
		}
	}
	for key, text := range map[string]string{"business_hours.from": s.Hours.From, "business_hours.to": s.Hours.To} {
		if !regexp.MustCompile(`^([01][0-9]|2[0-3]):[0-5][0-9]$|^24:00$`).MatchString(text) {
			add(key, "%q is not a time of day such as 08:00", text)
		}
	}
	if s.Hours.From >= s.Hours.To {
		add("business_hours", "from %s is not before to %s", s.Hours.From, s.Hours.To)
	}
	if problem := daysProblem(s.Hours.Days); problem != "" {
		add("business_hours.days", "%s", problem)
	}
	if !zoneKnown(s.Hours.Zone) {
		add("business_hours.zone", "%q is no time zone such as Europe/Berlin", s.Hours.Zone)
	}
	for _, f := range s.secretFiles() {
		if *f.path == "" {
			add(f.key, "is missing: a secret stands in a file of its own")
		}
	}
	if s.Slack != nil && s.Slack.Channel == "" {
		add("slack.channel", "is missing")
	}
	if s.PagerDuty != nil && s.PagerDuty.URL != "" {
		web("pagerduty.url", s.PagerDuty.URL)
	}
	if s.Webhook != nil {
		web("webhook.url", s.Webhook.URL)
	}
	if email := s.Email; email != nil &&
		(email.To == "" || email.From == "" || !strings.Contains(email.SMTP, ":")) {
		add("email", "needs to, from and smtp (host:port)")
	} else if email != nil {
		for _, a := range [...][2]string{{"email.to", email.To}, {"email.from", email.From}} {
			if _, err := mail.ParseAddressList(a[1]); err != nil {
				add(a[0], "%q is no address such as ops@example.org", a[1])
			}
		}
	}
	if s.UserNotices != "" && !slices.Contains(s.Receivers(), s.UserNotices) {
		add(
			"user_notices",
			"%q is not a receiver that is set up (%s)",
			s.UserNotices,
			orNone(s.Receivers()),
		)
	}
	slices.SortFunc(problems, func(a, b Problem) int { return a.Line - b.Line })
	return problems
}

// daysProblem says what is wrong with a day or a range of days. Alertmanager's
// week begins on Sunday and a range must not pass its end: it refuses
// monday:sunday.
func daysProblem(text string) string {
	week := []string{"sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"}
	first, last, isRange := strings.Cut(text, ":")
	if !isRange {
		last = first
	}
	from, to := slices.Index(week, first), slices.Index(week, last)
	switch {
	case from < 0 || to < 0:
		return fmt.Sprintf("%q: want days as in monday:friday", text)
	case from > to:
		return fmt.Sprintf(
			"%q: %s comes before %s in Alertmanager's week, which begins on Sunday; want a range such as sunday:saturday",
			text,
			last,
			first,
		)
	}
	return ""
}

// zoneKnown tells whether there is such a time zone; a machine without the
// list of them knows nothing and says yes.
func zoneKnown(name string) bool {
	if _, err := time.LoadLocation("Europe/Berlin"); err != nil {
		return true
	}
	_, err := time.LoadLocation(name)
	return err == nil
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "none is"
	}
	return strings.Join(list, ", ")
}

// Receivers names what notifications can be sent to.
func (s *Settings) Receivers() []string {
	var out []string
	for _, r := range [...]struct {
		name string
		set  bool
	}{{"slack", s.Slack != nil}, {"pagerduty", s.PagerDuty != nil}, {"email", s.Email != nil}, {"webhook", s.Webhook != nil}} {
		if r.set {
			out = append(out, r.name)
		}
	}
	return out
}

// secret is a file that holds one.
type secret struct {
	key  string
	path *string
}

// secretFiles lists the files of secrets that the settings name.
func (s *Settings) secretFiles() []secret {
	var secrets []secret
	if s.Slack != nil {
		secrets = append(secrets, secret{"slack.webhook_url_file", &s.Slack.URLFile})
	}
	if s.PagerDuty != nil {
		secrets = append(secrets, secret{"pagerduty.routing_key_file", &s.PagerDuty.KeyFile})
	}
	if s.Email != nil && s.Email.Username != "" {
		secrets = append(secrets, secret{"email.password_file", &s.Email.PasswordFile})
	}
	if s.Webhook != nil && s.Webhook.TokenFile != "" {
		secrets = append(secrets, secret{"webhook.bearer_token_file", &s.Webhook.TokenFile})
	}
	return secrets
}

// Secrets gives the paths of the secrets' files by key.
func (s *Settings) Secrets() map[string]string {
	out := map[string]string{}
	for _, f := range s.secretFiles() {
		out[f.key] = *f.path
	}
	return out
}

// Value gives a threshold that is in force.
func (s *Settings) Value(rule, name string) string { return s.values[rule][name] }

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// Annotated is a settings file with every threshold at its default, commented
// out, and what it means.
func Annotated() []byte {
	var buffer bytes.Buffer
	buffer.WriteString(annotatedHead)
	group := ""
	for _, rule := range All() {
		if rule.Group != group {
			group = rule.Group
			fmt.Fprintf(&buffer, "#\n#   # %s\n", strings.TrimPrefix(group, "muster-"))
		}
		fmt.Fprintf(&buffer, "#   %s:\n", rule.Name)
		for _, param := range rule.allParams() {
			fmt.Fprintf(
				&buffer, "#     %-9s %-9s # %s\n", param.Name+":", param.Default, param.Help,
			)
		}
	}
	return buffer.Bytes()
}

const annotatedHead = `# alerts.yaml: where Muster's alerts go and when they fire. Generated by ` +
	"`muster alerts init`" + `; yours to change.
#
#   muster alerts check    --config alerts.yaml             what is wrong with it, and with the secrets
#   muster alerts generate --config alerts.yaml --out DIR   rules, unit tests, alertmanager.yml, templates, Grafana
#   muster alerts test     --config alerts.yaml --receiver slack
#
# It is read strictly: an unknown key, alert or threshold is an error with its line.
# Secrets stand in files of their own, mode 0600 and readable by Alertmanager.

dashboards_url: http://localhost:3000     # Grafana, for the links
runbooks_url: https://github.com/musterhpc/muster/blob/main/alerts/runbooks
alertmanager_url: http://localhost:9093

evaluate: 30s        # how often the rules are evaluated
group_wait: 30s      # how long the first alert of a group waits for others
group_interval: 5m   # how long until news of a group are sent
repeat: 4h           # how long until an alert that still fires is sent again
keep_firing: 5m      # how long an alert outlives its condition, across gaps between scrapes; off: not at all (Prometheus before
                     # 2.42 and vmalert before 1.91 do not know keep_firing_for)

business_hours: {days: "monday:friday", from: "08:00", to: "18:00", zone: UTC} # when notices (info) are sent

# slack:
#   webhook_url_file: /etc/muster/secrets/slack-webhook
#   channel: "#cluster"
#   users_channel: "#cluster-users"   # notices to users, such as idle GPUs
# pagerduty:                          # critical alerts
#   routing_key_file: /etc/muster/secrets/pagerduty-key
# email:
#   to: ops@example.org
#   from: muster@example.org
#   smtp: smtp.example.org:587
#   username: muster
#   password_file: /etc/muster/secrets/smtp-password
#   require_tls: true               # false for a relay of your own without STARTTLS
# webhook:                            # anything that takes Alertmanager's JSON
#   url: https://example.org/hook
#   bearer_token_file: /etc/muster/secrets/hook-token
# user_notices: slack                 # which of these tells users; none without this key

# Every threshold with its default. Remove the # of an alert and of what you change; severity: off removes an alert.
thresholds: {}
# thresholds:
`
