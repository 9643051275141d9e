// Package tally counts: it folds the ledger's events into the rows that
// accounting stores.
//
// A job's life is a sequence of runs. A run begins when the job is submitted
// or queued again and ends when it is queued again or gets its verdict; it
// starts at most once, which makes it an attempt. Each run is one row, keyed
// by the job's uid and its restart count. While it is open its row is live and
// may be written again; when it is over, all of it (the row, its steps, what
// each node and each GPU gave) is appended once and never changed. A run is
// over when it has a verdict and every node of it has been given back. The
// tasks of an array that were never split off are one run that stands for
// several jobs (JobRow.Count).
//
// Node states, reasons and the tree of associations are points of change: a
// row says what holds from its instant on.
//
// All instants are whole microseconds, cut off before anything is computed, so
// that spans add up exactly; 0 means "not".
//
// The same events give the same rows in the same order, whatever batches they
// are cut into, and a Tally read back from its snapshot goes on as the one
// that wrote it would have.
package tally
