// Package grafana asks Grafana's own library how it interpolates the queries
// of the generated dashboards, and holds the answers that the tests of
// dashboards are compared with to it.
package grafana
