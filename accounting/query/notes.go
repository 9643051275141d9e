package query

// Notes asks for what was said of runs after their rows were written, the oldest first.
func Notes(scope Scope, runs []RunKey) Query {
	b := newBuilder(scope)
	return b.buildQuery("SELECT uid, toUnixTimestamp64Micro(at) AS at_us, body\nFROM " +
		b.qualifyTable("events") + "\nWHERE " + stored + " AND kind = 'JobNoted' AND " +
		uidCondition(b, runs) + "\nORDER BY seq")
}

// AnyNote asks for one note.
func AnyNote(scope Scope) Query {
	b := newBuilder(scope)
	return b.buildQuery("SELECT toUInt64(seq)\nFROM " + b.qualifyTable("events") + "\nWHERE " + stored +
		" AND kind = 'JobNoted'\nLIMIT 1")
}
