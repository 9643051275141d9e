// Package clickhouse stores accounting in ClickHouse and asks it. It knows the
// database and nothing of who counts or who asks: rows come from package
// tally, queries from package query.
//
// # Each event once
//
// ClickHouse has no transactions across tables, so a batch of the ledger
// becomes visible by one row that is written last. The order is:
//
//  1. the intent: "the batch from first to last is being written";
//  2. the rows of the batch, all tables, each insert with the deduplication
//     token table:ledger:first-last;
//  3. the newest form of open runs, in the live table;
//  4. the position: "everything up to last is here".
//
// Readers take the position first and ask for rows with seq at or below it,
// so half a batch is never seen. Whoever writes next after a crash finds an
// intent beyond the position and writes just that batch again, cut at the
// same events, with the same tokens. It also counts: if a table has rows of
// the batch but not all of them, or the server claims to have had an insert
// whose rows are not there (its deduplication log is not one transaction with
// its parts), the rows of the batch are deleted and written anew.
//
// # The live table
//
// Runs that are open are rows that change. They are kept apart from those that
// are over, in a ReplacingMergeTree by generation. A generation begins with
// every open run (at each start of the writer, and when too many replaced rows
// have piled up) and becomes the one that readers use through the position
// row. A run that is over has its last form there as final, which a reader
// ignores once the position covers it: it is then in jobs. So each run is seen
// exactly once at any moment.
//
// # One writer
//
// The intent and position rows carry the writer's name. A writer that finds
// another's newer row stops (tally.ErrLease). A new one waits until the other has
// been silent for the lease. This keeps two ingesters from working at once by
// accident; which controller should ingest is decided elsewhere.
package clickhouse
