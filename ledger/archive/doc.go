// Package archive keeps the whole history of the ledger: every batch that the log has applied, and snapshots of the state from
// time to time. The log is compacted; the archive is what verification, time travel and what-if read.
//
// # The rule of order
//
// A batch is appended here when it has been applied, so the archive is never ahead of the log. The log may forget a batch only
// after [Archive.Sync] has returned a position at or beyond it; that belongs into the log's BeforeCompact. Then a torn tail is
// always refilled by replaying the log: [Archive.Append] ignores a batch it has, refuses one that differs from what it has
// ([ErrDiffers]) and refuses to leave a gap ([ErrGap]).
//
// # Files
//
//	segments/<position>.live   records as they come, the newest segment and those not yet sealed
//	segments/<position>.seg    sealed: blocks of about 1 MiB of records, each one zstd frame, an index and a footer
//	snapshots/<position>-<sequence>.snap   state at that position, zstd, chunked and checksummed
//	chain/links, chain/head                hashes of the history, by which a changed past is found
//
// The number in a segment's name is its first position. A segment is sealed in the background when it has 64 MiB. Each record
// carries a CRC32C that starts from a random number in its file's header, so that what a user wrote cannot pass for a record.
//
// A crash leaves a torn tail only in the newest live segment; it is cut off at [Open]. Any other damage is refused with a
// [durable.CorruptError] that names file, offset and cure.
package archive
