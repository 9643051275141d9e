package query

// Reasons asks why some records waited, oldest first. The row is: uid,
// restarts, at_us, code, tres, limit, in_use, asked, subject, blocker, detail.
func Reasons(s Scope, uids []uint64) Query {
	b := begin(s)
	return b.query("SELECT uid, restarts, " + us("at") + " AS at_us, code, tres, `limit`, in_use, asked, subject, blocker, detail" +
		"\nFROM " + b.table("pending_reasons") + "\nWHERE " + stored + " AND uid IN " + b.bind("uids", "Array(UInt64)", uids) +
		"\nORDER BY at_us, seq")
}
