// Package embedded runs the ClickHouse engine (libchdb) as a process of its own behind the ClickHouse HTTP interface,
// so that a site without a ClickHouse server has the same store, schema and SQL through the same client.
//
// [Main] is that process: it locks the data path, loads the engine, and serves on a unix socket of mode 0600 and, if
// asked, on TCP with logins. [Supervisor] is the parent's side: it starts the process, waits until it answers, starts
// it again when it dies, and stops it. The child dies with its parent, whatever kills that.
//
// A client needs nothing of this package. clickhouse-go/v2 over the socket:
//
//	clickhouse.Open(&clickhouse.Options{
//		Protocol: clickhouse.HTTP,
//		Addr:     []string{"localhost"}, // a name for the Host header; it is never resolved
//		Auth:     clickhouse.Auth{Database: "muster"},
//		DialContext: func(ctx context.Context, _ string) (net.Conn, error) {
//			return new(net.Dialer).DialContext(ctx, "unix", socket)
//		},
//		Compression: &clickhouse.Compression{Method: clickhouse.CompressionNone}, // same machine
//	})
//
// What is acknowledged is in the engine's files, and survives the death of the process. To survive the death of the
// machine a table needs SETTINGS fsync_after_insert = 1, fsync_part_directory = 1 in its CREATE TABLE (they are table
// settings, not request settings).
package embedded
