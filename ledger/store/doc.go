// Package store is where the ledger on disk meets the controller: its log, its archive
// and its contents (scripts and environments) behind the interfaces that
// scheduler/daemon declares.
//
// Archive and Blobs hold back what a full disk does not take, because the log keeps it.
// Machine lets the log drive the fold, and Log lets the writer append to the log. Keeper
// makes snapshots in the archive and drops what is older than the retention. Past and
// ReadHistory answer questions about what was.
package store
