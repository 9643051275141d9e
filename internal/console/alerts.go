package console

import (
	"time"

	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/internal/transport/authz"
)

// Alerts is what an Alertmanager last said about this cluster.
type Alerts struct {
	At      time.Time // when it was asked with success; zero = never yet
	Failure string    // why the last question failed; empty = it did not
	List    []Alert   // the most urgent first
}

// Alert is an alert that fires.
type Alert struct {
	Name, Severity  string
	User            string // whom it is about; empty = nobody in particular
	Summary, Detail string
	Runbook, Board  string // addresses on the web; empty = none
	Since           int64
}

// maxAlerts is how many alerts the first page lists.
const maxAlerts = 20

// alertsData is what the first page shows of alerts.
type alertsData struct {
	Known   bool // an Alertmanager is configured
	All     bool // the reader sees more than his own
	Lines   []alertLine
	More    int
	At      moment
	Failure string
}

// alertLine is an alert as a row.
type alertLine struct {
	Class, Severity, Name, Summary, Detail string
	Runbook, Board                         string
	Since                                  moment
	For                                    string
}

// ownAlerts are the alerts that a visitor may see: operators all of them, others
// those about themselves, since the rest names jobs and users that may be private.
func (v *visit) ownAlerts(all []Alert) []Alert {
	if v.seesAllAlerts() {
		return all
	}
	var alerts []Alert
	for _, alert := range all {
		if alert.User != "" && alert.User == userName(v.id) {
			alerts = append(alerts, alert)
		}
	}
	return alerts
}

func (v *visit) seesAllAlerts() bool {
	return v.console.cfg.Door.Role(v.id) >= authz.Operator
}

// alertsKey is what tells apart the first pages of visitors who see different
// alerts: nothing, but for those who have alerts of their own.
func (v *visit) alertsKey() string {
	alerts := v.console.cfg.Alerts
	if alerts == nil || v.URL.Path != "/" || v.seesAllAlerts() {
		return ""
	}
	if len(v.ownAlerts(alerts().List)) == 0 {
		return ""
	}
	return " of " + v.id.Key()
}

// describeAlerts prepares the alerts that a visitor may see.
func (v *visit) describeAlerts(now int64) *alertsData {
	data := &alertsData{All: v.seesAllAlerts()}
	if v.console.cfg.Alerts == nil {
		return data
	}
	data.Known = true
	said := v.console.cfg.Alerts()
	data.Failure = render.Clean(said.Failure)
	if !said.At.IsZero() {
		data.At = newMoment(said.At.UnixNano())
	}
	list := v.ownAlerts(said.List)
	data.More = max(len(list)-maxAlerts, 0)
	for _, alert := range list[:min(len(list), maxAlerts)] {
		class, ok := map[string]string{"critical": "bad", "warning": "warn"}[alert.Severity]
		if !ok {
			class = "busy"
		}
		data.Lines = append(data.Lines, alertLine{
			Class:    class,
			Severity: render.Clean(alert.Severity),
			Name:     render.Clean(alert.Name),
			Summary:  render.Clean(alert.Summary),
			Detail:   render.Clean(alert.Detail),
			Runbook:  alert.Runbook,
			Board:    alert.Board,
			Since:    newMoment(alert.Since),
			For:      render.Span(max(now-alert.Since, 0)),
		})
	}
	return data
}
