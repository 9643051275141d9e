// Package dashboards is Muster's Grafana dashboards as Go code. Each dashboard
// is a table of rows and panels (board_….go); Files renders them as the JSON
// that Grafana loads, which is committed under generated/ and compared by
// `make check`. The preview (package preview) draws the same panels without
// Grafana.
//
// The world is closed: a test parses every PromQL, looks every series and label
// up in the metric catalogue, and runs every SQL on the real engine; another
// runs all of them against a running cluster, where a panel without data fails
// unless it says in MayBeEmpty why a healthy cluster has none.
package dashboards
