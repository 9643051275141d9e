package query

// Reasons asks why some records waited, oldest first. The row is: uid,
// restarts, at_us, code, tres, limit, in_use, asked, subject, blocker, detail.
func Reasons(scope Scope, uids []uint64) Query {
	b := newBuilder(scope)
	return b.buildQuery("SELECT uid, restarts, " + asMicros("at") +
		" AS at_us, code, tres, `limit`, in_use, asked, subject, blocker, detail" +
		"\nFROM " + b.qualifyTable("pending_reasons") + "\nWHERE " + stored + " AND uid IN " +
		b.bindValue("uids", "Array(UInt64)", uids) +
		"\nORDER BY at_us, seq")
}
