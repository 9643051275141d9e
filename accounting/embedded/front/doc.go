// Package front serves the ClickHouse HTTP interface in front of the embedded engine, so that clickhouse-go/v2 (and
// anything else that speaks it) works unmodified.
//
// A request is one statement. Its text is the query parameter, the body, or both; after an INSERT in the query
// parameter the body is the rows, which are streamed into the engine and dropped, not committed, when the body is cut
// short. Other parameters are the database, param_NAME values, a few names of the protocol itself and otherwise
// engine settings for this one request. What the interface knows and this one does not (sessions, quota keys, roles,
// external tables) is refused by name, never ignored.
//
// Revision: over HTTP the driver first asks `SELECT displayName(), version(), revision(), timezone()`, decodes that one
// answer at its own protocol revision and everything later at the revision it was told. The engine writes Native at
// revision 0, so the front builds that first answer itself and tells the driver revision 0.
//
// Sessions: the engine runs one statement at a time on a session, so requests borrow one from a [Pool]. Settings and
// database are applied before the statement and taken back lazily; a session that failed, or that a statement may have
// left changed (SET, USE, temporary tables), is thrown away. Reading logins get a new session for every request,
// locked with readonly=1.
//
// Cancellation: the engine cannot see a client leave, so a KILL QUERY is sent while the request's context is over and
// the statement still runs. INSERTs whose rows have all arrived and schema changes are left to finish.
package front
