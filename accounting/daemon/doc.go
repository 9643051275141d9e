// Package daemon is the accounting service: it moves the ledger into the
// store, answers sacct and sreport, and computes the KPIs all the time.
//
// The ingester is the ledger's only reader here. The ledger is its buffer:
// when the store is away it keeps trying and falls behind, which Status tells,
// and nothing is lost. What it has counted but not stored dies with it and is
// counted again from the ledger.
//
// Who owns what: the session's goroutine owns the tally; the writing goroutine
// owns the store's writer; the refresher owns the figures. Everyone else reads
// what they publish.
package daemon
