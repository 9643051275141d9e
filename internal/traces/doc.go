// Package traces makes OpenTelemetry traces of what the ledger says about jobs.
//
// A trace is the life of one job: its waits with the reasons as span events, its runs with
// boot, prolog and steps, and the release of its nodes. Everything about it follows from
// the events, ids too, so a trace can be sent again at any time: a receiver that gets it
// twice stores each span once. muster traces writes traces as JSON, and the controller that leads
// sends them to a collector (internal/traces/sending).
package traces
