// Package state folds the ledger's events into the state of the cluster.
//
// There is one fold, Apply, for live traffic, restart, replay and simulation.
// It is total: an event that contradicts the state is an error that stops the
// controller, never something to skip. It reads no clock and draws no chance,
// so the same events give the same state, byte for byte (Hash).
//
// A State is owned by one writer. Freeze gives everyone else an immutable
// copy in constant time: all tables are persistent maps, and every record a
// table points to is replaced, never changed, when it changes. Fork gives a
// trial that can be written to and dropped.
//
// The invariants that must hold between any two events are named functions,
// listed by Checks; Check runs them all.
package state
