// Package push sends what a scrape would get to a receiver, where no scraper can reach
// the process: by remote write of Prometheus, or as metrics of OpenTelemetry.
//
// A push that fails is kept with the time of its values and sent with the next ones, as
// far as there is room, so that a receiver that is away for some minutes has no gap.
package push
