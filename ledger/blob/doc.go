// Package blob stores job scripts and environments under the SHA-256 of their bytes, so that events hold only hashes and equal
// scripts are kept once.
//
// # Durability
//
// Blobs are replicated inside the batch whose events first mention them, and [Store.Put] keeps them when the batch is applied. So Put does not sync: what a crash takes from the end
// of the store comes again when the log's tail is replayed. [Store.Sync] must return before the log is compacted, like the
// archive's; it belongs into the log's BeforeCompact.
//
// # Files
//
//	<number>.blobs  records: length, salted CRC32C, hash, bytes; 64 MiB each
//	<number>.index  hashes and places, written once the file above is complete and synced; rebuilt when missing or damaged
//
// A damaged blob is noticed by [Store.Get], which compares the hash, and is then forgotten, so that putting it again heals
// it. [Store.Sweep] removes what nothing refers to any more.
package blob
