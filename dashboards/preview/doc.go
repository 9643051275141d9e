// Package preview draws every dashboard on one static HTML page, from live
// data and without Grafana: it asks Prometheus (or VictoriaMetrics) and the
// accounting store what Grafana's panels would ask, and draws lines with uPlot
// 1.6.32 (MIT, uplot/LICENSE), which is embedded, so the page needs no network.
package preview
