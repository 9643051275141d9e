// Package paging proves that the alerts wake people up when something is wrong,
// and only then. A workload is replayed in virtual time by the production
// scheduler; every minute of it the exporter of the controller and those of the
// agents, over simulated GPUs, are scraped; Prometheus' query engine evaluates the
// shipped rules over the series, a day at a time, and the shipped inhibitions decide
// what is sent. promtool, which is too slow for a week, must say the same of some hours.
// Into the replay go what is normal in a week of operation, and planted faults,
// each with the alert that must tell of it and the time it may take.
package paging
