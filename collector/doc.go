// Package collector is the exporter: it turns the controller's published view
// into metrics. A scrape takes no lock, queries nothing and forks nothing; it
// walks an immutable snapshot. Every metric is an entry of one list per
// source, which is also what docs/metrics.md is generated from.
package collector
