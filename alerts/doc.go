// Package alerts is Muster's recording and alerting rules as Go tables, with
// the Alertmanager configuration that brings an alert to Slack, PagerDuty, a
// mailbox or a webhook.
//
// A rule says what it watches, from which value on and for how long, how bad
// that is, what the notification says, which dashboard to open, and with which
// series it fires and with which it does not. Files renders all of it from one
// strict settings file (settings.go): rules for Prometheus and vmalert, the
// cases as promtool's unit tests, alertmanager.yml with its templates. Each
// alert has a runbook under runbooks/ that says what to type.
package alerts
