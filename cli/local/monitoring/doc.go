// Package monitoring generates what Prometheus, Alertmanager and Grafana read,
// and sends test notifications: muster alerts, muster dashboards and the mail
// helper of muster report. It is linked into musterd, which muster runs for
// them.
package monitoring
