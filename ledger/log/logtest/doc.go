// Package logtest holds what proves a ledger log: a machine that remembers what it applied, one conformance suite for every
// implementation of log.Log, and a simulated disk that loses, tears, fills and flips.
package logtest
