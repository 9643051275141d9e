// Package sending sends the traces of ended jobs to an OpenTelemetry collector while this
// controller leads.
//
// It has a position in the ledger, as the targets of the audit trail have: every trace
// whose last event lies before it has been taken by the collector. So a collector that is
// away for a day gets everything later, and each trace is delivered at least once; one
// that comes again has the same ids. The events of a trace may lie before the position,
// so a start reads the ledger from the first submission of the jobs that were known there.
package sending
