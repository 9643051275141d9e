// Package log is the ledger's durable, replicated log: an ordered sequence of batches of bytes.
//
// It knows nothing of what a batch holds. A batch is atomic: after any crash it is there whole or not at all. What
// [Pending.Wait] has acknowledged is on disk on a majority of the members (of a cluster of one: on this disk) and has been
// applied to the [Machine]. The order of [Log.Append] is the order of [Machine.Apply].
//
// # Two implementations
//
// [Open] gives the real one: hashicorp/raft over raft-wal, also for a cluster of one, so that a laptop and a site with five
// controllers run the same code. [NewMemory] gives a twin without a disk. Package logtest holds one conformance suite for both,
// and a simulated disk that loses what was not synced.
//
// # No gaps behind a failure
//
// A writer that decides batch N+1 on the strength of batch N must never see N+1 applied without N. So when a batch fails,
// every batch after it fails too, until the writer has looked at its state again and called [Log.Resume]. The rule is in the
// log itself: each frame carries the number of its writer's run and its place in it, and every member drops a frame whose
// predecessor is missing. On a cluster of one an error from Wait means the batch was not and will not be applied, except
// for [ErrClosed] and an expired context, where the answer is found by reading the state after the next Open.
//
// # Files
//
//	LOCK                      held by the one process that has the log open
//	raft/meta.0, raft/meta.1  two copies of term, vote, list of segments (each checksummed; one bad copy is repaired)
//	raft/*.wal                segments in raft-wal's format; every entry carries a salted CRC32C besides raft-wal's own
//	snapshots/*.snap          snapshots of the machine, chunked and checksummed; the last two are kept
//
// The log is compacted only behind the older of two snapshots, so that one damaged snapshot loses nothing, and only after
// [Options.BeforeCompact] agreed: the archive must be synced up to a position before the log forgets it.
//
// # What happens when the disk misbehaves
//
// Torn tail: everything after the last whole group is dropped; none of it was acknowledged. Damage anywhere else: Open refuses
// with a [durable.CorruptError] that names file, offset and cure. Disk full: the batches in flight fail with [ErrDiskFull], nothing
// acknowledged is lost, and Resume succeeds once there is room. Any other write or sync error stops the log for good
// (a failed fsync must never be retried and believed); the next Open verifies the tail and writes it out again.
package log
