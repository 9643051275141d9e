package alerts

// amConfig is alertmanager.yml, as far as it is used here.
type amConfig struct {
	Route         amRoute      `yaml:"route"`
	Inhibit       []amInhibit  `yaml:"inhibit_rules"`
	TimeIntervals []amInterval `yaml:"time_intervals"`
	Receivers     []amReceiver `yaml:"receivers"`
	Templates     []string     `yaml:"templates"`
}

type amRoute struct {
	Receiver  string    `yaml:"receiver"`
	Matchers  []string  `yaml:"matchers,omitempty"`
	GroupBy   []string  `yaml:"group_by,omitempty,flow"`
	Wait      string    `yaml:"group_wait,omitempty"`
	Interval  string    `yaml:"group_interval,omitempty"`
	Repeat    string    `yaml:"repeat_interval,omitempty"`
	Active    []string  `yaml:"active_time_intervals,omitempty,flow"`
	Continue  bool      `yaml:"continue,omitempty"`
	SubRoutes []amRoute `yaml:"routes,omitempty"`
}

type amInhibit struct {
	Source []string `yaml:"source_matchers,flow"`
	Target []string `yaml:"target_matchers,flow"`
	Equal  []string `yaml:"equal,omitempty,flow"`
}

type amInterval struct {
	Name      string       `yaml:"name"`
	Intervals []amTimeSpan `yaml:"time_intervals"`
}

type amTimeSpan struct {
	Times    []amTimes `yaml:"times"`
	Weekdays []string  `yaml:"weekdays,flow"`
	Location string    `yaml:"location"`
}

type amTimes struct {
	Start string `yaml:"start_time"`
	End   string `yaml:"end_time"`
}

type amReceiver struct {
	Name      string        `yaml:"name"`
	Slack     []amSlack     `yaml:"slack_configs,omitempty"`
	PagerDuty []amPagerDuty `yaml:"pagerduty_configs,omitempty"`
	Email     []amEmail     `yaml:"email_configs,omitempty"`
	Webhook   []amWebhook   `yaml:"webhook_configs,omitempty"`
}

type amSlack struct {
	Resolved  bool       `yaml:"send_resolved"`
	URLFile   string     `yaml:"api_url_file"`
	Channel   string     `yaml:"channel"`
	Title     string     `yaml:"title"`
	TitleLink string     `yaml:"title_link"`
	Text      string     `yaml:"text"`
	Fallback  string     `yaml:"fallback"`
	Color     string     `yaml:"color"`
	Actions   []amAction `yaml:"actions"`
}

type amAction struct {
	Type string `yaml:"type"`
	Text string `yaml:"text"`
	URL  string `yaml:"url"`
}

type amPagerDuty struct {
	Resolved    bool              `yaml:"send_resolved"`
	KeyFile     string            `yaml:"routing_key_file"`
	URL         string            `yaml:"url,omitempty"`
	Description string            `yaml:"description"`
	Severity    string            `yaml:"severity"`
	Class       string            `yaml:"class"`
	Group       string            `yaml:"group"`
	Component   string            `yaml:"component"`
	Details     map[string]string `yaml:"details"`
	Links       []amLink          `yaml:"links"`
}

type amLink struct {
	Href string `yaml:"href"`
	Text string `yaml:"text"`
}

type amEmail struct {
	Resolved     bool              `yaml:"send_resolved"`
	To           string            `yaml:"to"`
	From         string            `yaml:"from"`
	SMTP         string            `yaml:"smarthost"`
	Username     string            `yaml:"auth_username,omitempty"`
	PasswordFile string            `yaml:"auth_password_file,omitempty"`
	Headers      map[string]string `yaml:"headers"`
	Text         string            `yaml:"text"`
	HTML         string            `yaml:"html"`
	RequireTLS   *bool             `yaml:"require_tls,omitempty"`
}

type amWebhook struct {
	Resolved bool    `yaml:"send_resolved"`
	URL      string  `yaml:"url"`
	HTTP     *amHTTP `yaml:"http_config,omitempty"`
}

type amHTTP struct {
	Authorization amAuth `yaml:"authorization"`
}

type amAuth struct {
	Type string `yaml:"type"`
	File string `yaml:"credentials_file"`
}

// nobody is the receiver of what nobody wants to hear.
const nobody = "nobody"

// testLabel marks the alert of `muster alerts test`; its value names the
// receiver that it goes to, whatever its severity.
const testLabel = "muster_test"

// alertmanagerConfig is the configuration: critical alerts page and are told in the
// channel too, warnings are told, notices are told in business hours, and what
// concerns one user goes to users by a route of its own.
func (s *Settings) alertmanagerConfig() amConfig {
	have := s.Receivers()
	quiet := first(have, "slack", "email", "webhook", "pagerduty")
	config := amConfig{Templates: []string{TemplatesFile}, Receivers: s.receivers(),
		TimeIntervals: []amInterval{
			{
				"business_hours",
				[]amTimeSpan{
					{[]amTimes{{s.Hours.From, s.Hours.To}}, []string{s.Hours.Days}, s.Hours.Zone},
				},
			},
		},
		Route: amRoute{
			Receiver: quiet,
			GroupBy:  []string{"cluster", "alertname"},
			Wait:     s.GroupWait,
			Interval: s.GroupInterval,
			Repeat:   s.Repeat,
		}}
	for _, name := range have {
		config.Route.SubRoutes = append(
			config.Route.SubRoutes,
			amRoute{Receiver: name, Matchers: []string{testLabel +
				`="` + name + `"`}, GroupBy: []string{testLabel, "alertname"}, Wait: "1s", Interval: "10s"},
		)
	}
	users := amRoute{
		Receiver: nobody,
		Matchers: []string{`audience="users"`},
		GroupBy:  []string{"cluster", "user", "alertname"},
		Repeat:   "24h",
	}
	if s.UserNotices != "" {
		users.Receiver = "users"
	}
	config.Route.SubRoutes = append(config.Route.SubRoutes, users)
	if s.PagerDuty != nil {
		config.Route.SubRoutes = append(
			config.Route.SubRoutes,
			amRoute{
				Receiver: "pagerduty",
				Matchers: []string{`severity="critical"`},
				Repeat:   "1h",
				Continue: quiet != "pagerduty",
			},
		)
	}
	for _, name := range have {
		if name == "webhook" && quiet != "webhook" {
			config.Route.SubRoutes = append(
				config.Route.SubRoutes,
				amRoute{
					Receiver: name,
					Matchers: []string{`severity=~"critical|warning|info"`},
					Continue: true,
				},
			)
		}
		if name == "email" && quiet != "email" {
			config.Route.SubRoutes = append(
				config.Route.SubRoutes,
				amRoute{
					Receiver: name,
					Matchers: []string{`severity=~"critical|warning"`},
					Continue: true,
				},
			)
		}
	}
	config.Route.SubRoutes = append(
		config.Route.SubRoutes,
		amRoute{
			Receiver: quiet,
			Matchers: []string{`severity="info"`},
			Active:   []string{"business_hours"},
			Repeat:   "24h",
		},
		amRoute{Receiver: quiet, Matchers: []string{`severity=~"critical|warning"`}},
	)
	config.Inhibit = makeInhibitions()
	return config
}

// makeInhibitions keep the consequences of a fault quiet while its cause is told.
// Each is bounded to one cluster: a controller that is down in one says nothing
// about the agents of another.
func makeInhibitions() []amInhibit {
	inCluster := []string{"cluster"}
	onDevice := []string{"cluster", "node", "UUID"}
	return []amInhibit{
		{
			[]string{`alertname=~"MusterControllerDown|MusterLeaderless"`},
			[]string{
				`alertname=~"MusterAgentDisconnected|MusterAgentsLost|MusterAccountingDown|MusterAccountingBehind|MusterQueueStuck|MusterReportsStuck"`,
			},
			inCluster,
		},
		{
			[]string{`alertname="MusterAccountingDown"`},
			[]string{`alertname="MusterAccountingBehind"`},
			inCluster,
		},
		{
			[]string{`alertname="MusterAgentsLost"`},
			[]string{
				`alertname=~"MusterAgentDisconnected|MusterAgentDown|MusterNodesDown|MusterManyNodesOut|MusterJobsLostToNodes"`,
			},
			inCluster,
		},
		{
			[]string{`alertname="MusterHistoryLost"`},
			[]string{`alertname="MusterOrphanRuns"`},
			inCluster,
		},
		{
			[]string{`alertname="MusterLedgerDiskLow"`},
			[]string{`alertname="MusterLedgerSyncFailed"`},
			inCluster,
		},
		{
			[]string{
				`alertname=~"MusterControllerDown|MusterLeaderless|MusterLedgerDiskLow|MusterLedgerSyncFailed"`,
			},
			[]string{`alertname=~"MusterErrorBudgetBurnsFast|MusterErrorBudgetBurns"`},
			inCluster,
		},
		{
			[]string{`alertname="MusterErrorBudgetBurnsFast"`},
			[]string{`alertname="MusterErrorBudgetBurns"`},
			[]string{"cluster", "slo", "class"},
		},
		{
			[]string{`alertname="MusterAccountingDown"`},
			[]string{`alertname="MusterErrorBudgetBurns"`, `slo="accounting"`},
			inCluster,
		},
		{
			[]string{`alertname="MusterManyNodesOut"`},
			[]string{`alertname="MusterNodesDown"`},
			inCluster,
		},
		{
			[]string{`alertname="MusterNodesDown"`},
			[]string{`alertname=~"MusterAgentDown|MusterAgentDisconnected"`},
			[]string{"cluster", "node"},
		},
		{
			[]string{`alertname="MusterGPUOffTheBus"`},
			[]string{
				`alertname=~"MusterGPUXID|MusterGPUXIDOfDevice|MusterGPUXIDOfProgram|MusterGPULinkErrors"`,
			},
			onDevice,
		},
		{
			[]string{`alertname="MusterGPUXID"`},
			[]string{`alertname=~"MusterGPUMemoryErrors|MusterGPUXIDOfDevice"`},
			onDevice,
		},
		{
			[]string{`alertname="MusterGPUHot"`},
			[]string{`alertname="MusterGPUThrottled"`},
			onDevice,
		},
	}
}

// first gives the first of the wanted receivers that is set up.
func first(have []string, want ...string) string {
	for _, w := range want {
		for _, h := range have {
			if h == w {
				return w
			}
		}
	}
	return nobody
}

// receivers renders what is set up.
func (s *Settings) receivers() []amReceiver {
	receivers := []amReceiver{{Name: nobody}}
	one := func(name, kind string) {
		receiver := amReceiver{Name: name}
		switch kind {
		case "slack":
			channel := s.Slack.Channel
			if name == "users" && s.Slack.UsersChannel != "" {
				channel = s.Slack.UsersChannel
			}
			receiver.Slack = []amSlack{
				{
					Resolved:  true,
					URLFile:   s.Slack.URLFile,
					Channel:   channel,
					Title:     `{{ template "muster.title" . }}`,
					TitleLink: `{{ template "muster.link" . }}`,
					Text:      `{{ template "muster.text" . }}`,
					Fallback:  `{{ template "muster.title" . }}`,
					Color:     `{{ template "muster.color" . }}`,
					Actions: []amAction{
						{"button", "Dashboard", `{{ (index .Alerts 0).Annotations.dashboard }}`},
						{"button", "Runbook", `{{ (index .Alerts 0).Annotations.runbook_url }}`},
					},
				},
			}
		case "pagerduty":
			receiver.PagerDuty = []amPagerDuty{
				{
					Resolved:    true,
					KeyFile:     s.PagerDuty.KeyFile,
					URL:         s.PagerDuty.URL,
					Description: `{{ template "muster.title" . }}`,
					Severity:    `{{ template "muster.pagerduty.severity" . }}`,
					Class:       `{{ .CommonLabels.alertname }}`,
					Group:       `{{ .CommonLabels.cluster }}`,
					Component:   `{{ .CommonLabels.node }}`,
					Details: map[string]string{
						"text":     `{{ template "muster.text" . }}`,
						"firing":   `{{ .Alerts.Firing | len }}`,
						"resolved": `{{ .Alerts.Resolved | len }}`,
					},
					Links: []amLink{
						{`{{ (index .Alerts 0).Annotations.dashboard }}`, "Dashboard"},
						{`{{ (index .Alerts 0).Annotations.runbook_url }}`, "Runbook"},
					},
				},
			}
		case "email":
			email := s.Email
			receiver.Email = []amEmail{
				{
					Resolved:     true,
					To:           email.To,
					From:         email.From,
					SMTP:         email.SMTP,
					Username:     email.Username,
					PasswordFile: email.PasswordFile,
					RequireTLS:   email.RequireTLS,
					Headers: map[string]string{
						"Subject": `{{ template "muster.title" . }}`,
					},
					Text: `{{ template "muster.text" . }}`,
				},
			}
		case "webhook":
			webhook := amWebhook{Resolved: true, URL: s.Webhook.URL}
			if s.Webhook.TokenFile != "" {
				webhook.HTTP = &amHTTP{amAuth{"Bearer", s.Webhook.TokenFile}}
			}
			receiver.Webhook = []amWebhook{webhook}
		}
		receivers = append(receivers, receiver)
	}
	for _, name := range s.Receivers() {
		one(name, name)
	}
	if s.UserNotices != "" {
		one("users", s.UserNotices)
	}
	return receivers
}

// templates are the texts of the notifications.
const templates = `{{/* The texts of Muster's notifications. Generated by muster alerts generate. */}}

{{/* The nodes of the alerts that fire, or of those that are over; at most ten. */}}
{{ define "muster.nodes" -}}
{{ $alerts := .Alerts.Firing }}{{ if not $alerts }}{{ $alerts = .Alerts.Resolved }}{{ end -}}
{{ range $i, $a := $alerts }}{{ if and (lt $i 10) $a.Labels.node }}{{ if $i }}, {{ else }}: {{ end }}{{ $a.Labels.node }}{{ end }}{{ if and (eq $i 10) $a.Labels.node }}, ...{{ end }}{{ end -}}
{{ end }}

{{ define "muster.title" -}}
{{ $alerts := .Alerts.Firing }}{{ if not $alerts }}{{ $alerts = .Alerts.Resolved }}{{ end -}}
{{ if eq .Status "firing" }}{{ (index $alerts 0).Labels.severity | toUpper }}{{ else }}RESOLVED{{ end }}{{ with .CommonLabels.cluster }} [{{ . }}]{{ end }} {{ if eq (len $alerts) 1 }}{{ (index $alerts 0).Annotations.summary }}{{ else }}{{ (index $alerts 0).Labels.alertname }} ({{ len $alerts }}){{ template "muster.nodes" . }}{{ end }}
{{- end }}

{{ define "muster.link" }}{{ (index .Alerts 0).Annotations.dashboard }}{{ end }}

{{ define "muster.text" -}}
{{ range .Alerts }}{{ if eq .Status "resolved" }}(resolved) {{ end }}{{ .Annotations.description }}
{{ end -}}
{{ with (index .Alerts 0).Annotations.respond }}Who: {{ . }}
{{ end -}}
What to type: {{ (index .Alerts 0).Annotations.runbook_url }}
{{- end }}

{{ define "muster.color" }}{{ if eq .Status "resolved" }}good{{ else if eq .CommonLabels.severity "critical" }}danger{{ else if eq .CommonLabels.severity "warning" }}warning{{ else }}#439FE0{{ end }}{{ end }}

{{ define "muster.pagerduty.severity" }}{{ if eq .CommonLabels.severity "critical" }}critical{{ else if eq .CommonLabels.severity "warning" }}warning{{ else }}info{{ end }}{{ end }}
`
