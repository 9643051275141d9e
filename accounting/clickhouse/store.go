package clickhouse

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/uuid"

	"github.com/musterhpc/muster/accounting/kpi"
	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/spec"
)

// Options say where the store is.
type Options struct {
	// DSN of a server or cluster: clickhouse://… (native) or http://….
	DSN string
	// Socket is the path of the embedded engine's unix socket; instead of DSN.
	Socket string
	// Database overrides that of the DSN; empty = muster.
	Database string
	Layout   Layout
	// Connections at most; 0 = 30.
	Connections int
	// Lease is how long a writer must be silent before another takes over;
	// 0 = 15 s.
	Lease time.Duration
	// Rates are the prices that the stored views count with; nil = none.
	Rates *kpi.Rates
	Log   *slog.Logger
}

// Store is an accounting store. It is safe for concurrent use; writing is for
// one Writer.
type Store struct {
	conn   driver.Conn
	pulse  driver.Conn // for pings, so that they do not wait for a connection
	opts   Options
	db     string
	http   bool
	direct bool // rows go as blocks over HTTP; otherwise, also where the DSN asks for compression, the driver sends them
	target string
	log    *slog.Logger

	auth    ch.Auth // of the DSN
	tls     *tls.Config
	rawHTTP *http.Client
}

// Open prepares a store. The server need not be there: the first use tells.
func Open(options Options) (*Store, error) {
	var co *ch.Options
	switch {
	case options.Socket != "" && options.DSN != "":
		return nil, errors.New("open the accounting store: give a DSN or a socket, not both")
	case options.Socket != "":
		co = &ch.Options{
			Protocol:    ch.HTTP,
			Addr:        []string{"localhost"},
			Compression: &ch.Compression{Method: ch.CompressionNone},
			DialContext: func(ctx context.Context, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "unix", options.Socket)
			},
		}
	default:
		var err error
		co, err = ch.ParseDSN(options.DSN)
		if err != nil {
			return nil, fmt.Errorf("the ClickHouse DSN cannot be read: %w", err)
		}
	}
	store := &Store{
		opts: options,
		db:   options.Database,
		http: co.Protocol == ch.HTTP,
		log:  options.Log,
	}
	if store.db == "" {
		store.db = co.Auth.Database
	}
	if store.db == "" || store.db == "default" {
		store.db = "muster"
	}
	if store.log == nil {
		store.log = slog.New(slog.DiscardHandler)
	}
	if store.opts.Lease == 0 {
		store.opts.Lease = 15 * time.Second
	}
	store.target = "embedded"
	if options.Socket == "" && len(co.Addr) > 0 {
		store.target = co.Addr[0]
	}
	// Statements name the database: it need not exist when they connect.
	co.Auth.Database = ""
	if store.http {
		co.Auth.Database = "default"
	}
	store.direct = store.http &&
		(co.Compression == nil || co.Compression.Method == ch.CompressionNone)
	store.auth, store.tls = co.Auth, co.TLS
	store.rawHTTP = rawTransport(options.Socket, co.TLS)
	co.MaxOpenConns = options.Connections
	if co.MaxOpenConns == 0 {
		co.MaxOpenConns = 30
	}
	co.MaxIdleConns = co.MaxOpenConns
	conn, err := ch.Open(co)
	if err != nil {
		return nil, fmt.Errorf("open the accounting store: %w", err)
	}
	store.conn = conn
	pings := *co
	pings.MaxOpenConns = 2
	pings.MaxIdleConns = 1
	store.pulse, err = ch.Open(&pings)
	if err != nil {
		return nil, fmt.Errorf("open the accounting store: %w", err)
	}
	return store, nil
}

// Close ends the connections.
func (s *Store) Close() error {
	s.rawHTTP.CloseIdleConnections()
	return errors.Join(s.conn.Close(), s.pulse.Close())
}

// Database is the name of the database with the tables.
func (s *Store) Database() string { return s.db }

// Target says where the store is, without secrets: "embedded" or host:port.
func (s *Store) Target() string { return s.target }

// Ping asks whether the store answers. It waits for no other question: over HTTP any answer
// is one, since a proxy may not know ClickHouse's /ping.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.pingOnce(ctx); err != nil {
		return fmt.Errorf("the accounting store (%s) does not answer: %w", s.target, err)
	}
	return nil
}

func (s *Store) pingOnce(ctx context.Context) error {
	client, base, err := s.rawClient()
	if err != nil {
		return s.pulse.Ping(ctx)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/ping", nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(request)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// Migrate brings the schema to this release's version. It may run any number
// of times, also after a crash in its middle.
func (s *Store) Migrate(ctx context.Context) error {
	ddl := DDL(s.db, s.opts.Layout)
	table := versionsTable()
	head := 1 + len(table.createStatements(s.db, s.opts.Layout))
	for _, sql := range ddl[:head] {
		if err := s.conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("prepare the accounting store: %w", err)
		}
	}
	var have uint32
	row := s.conn.QueryRow(ctx, "SELECT max(version) FROM "+s.qualifyTable("schema_versions"))
	if err := row.Scan(&have); err != nil {
		return fmt.Errorf("read the version of the accounting schema: %w", err)
	}
	if have > SchemaVersion {
		return fmt.Errorf(
			"its schema is version %d, this release knows %d: %w",
			have,
			SchemaVersion,
			tally.ErrNewer,
		)
	}
	for v := int(have) + 1; v <= SchemaVersion; v++ {
		for _, step := range migrationSteps(v, s.db, s.opts.Layout) {
			if err := s.migrateStep(ctx, step); err != nil {
				return fmt.Errorf("migrate the accounting store to version %d: %w", v, err)
			}
		}
		if err := s.conn.Exec(ctx, fmt.Sprintf("INSERT INTO %s (version) VALUES (%d)", s.qualifyTable("schema_versions"), v)); err != nil {
			return fmt.Errorf("note version %d of the accounting schema: %w", v, err)
		}
		s.log.Info("the accounting schema was migrated", "version", v)
	}
	if err := s.makeViews(ctx); err != nil {
		// The accounting itself does not need them.
		cure := "GRANT CREATE VIEW, DROP VIEW ON " + quoteName(s.db) +
			".* to the login of the accounting service, and restart it"
		s.log.Warn(
			"the stored views that Grafana's boards read are missing",
			"error",
			s.Explain(err),
			"cure",
			cure,
		)
	}
	return ctx.Err()
}

// migrateStep runs a step of a migration, unless it was done before.
func (s *Store) migrateStep(ctx context.Context, step migrationStep) error {
	if step.done != "" {
		var times uint64
		if err := s.conn.QueryRow(ctx, step.done).Scan(&times); err != nil {
			return err
		}
		if times > 0 {
			return nil
		}
	}
	if step.byHour == "" {
		return s.conn.Exec(ctx, step.sql)
	}
	const hour = 3600
	every := fmt.Sprintf(
		"SELECT arraySort(groupUniqArray(intDiv(toUInt64(toUnixTimestamp(at)), %d))) FROM %s",
		hour,
		s.qualifyTable(step.byHour),
	)
	var hours []uint64
	if err := s.conn.QueryRow(ctx, every).Scan(&hours); err != nil {
		return err
	}
	for i, n := range hours {
		sql := step.sql + fmt.Sprintf(" WHERE at >= toDateTime(%d, 'UTC') AND at < toDateTime(%d, 'UTC')", n*hour, (n+1)*hour)
		if err := s.conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("copy hour %d of %d of %s: %w", i+1, len(hours), step.byHour, err)
		}
		if i%24 == 23 {
			s.log.Info("samples are copied for the new schema", "table", step.byHour, "hours", i+1, "of", len(hours))
		}
	}
	return nil
}

// makeViews makes the views for who asks the store itself. They hold no rows, so
// that each release makes its own at every start and no version is about them.
func (s *Store) makeViews(ctx context.Context) error {
	for _, sql := range viewsDDL(s.db, s.opts.Layout, s.opts.Rates) {
		if err := s.conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("make the views of the accounting store: %w", err)
		}
	}
	return nil
}

func (s *Store) qualifyTable(name string) string { return quoteName(s.db) + "." + name }

// Position reads how far the store has a ledger; zero if it has nothing.
func (s *Store) Position(ctx context.Context, ledger [16]byte) (tally.Position, error) {
	done, _, err := s.readPhases(ctx, ledger)
	if err != nil || done == nil {
		return tally.Position{}, err
	}
	return done.readPosition(), nil
}

// phaseRow is a row of ingest.
type phaseRow struct {
	n           uint64
	writer      uuid.UUID
	first, last uint64
	at          time.Time
	gen         uint32
	written     time.Time
	rolled      tally.Rolled
	shift       uint64
	now         time.Time // the server's clock when it was read
}

func (r *phaseRow) readPosition() tally.Position {
	return tally.Position{
		Seq:    r.last,
		Shift:  r.shift,
		At:     spec.Instant(r.at.UnixNano()),
		Gen:    r.gen,
		Rolled: r.rolled,
	}
}

const (
	phaseIntent = "intent"
	phaseDone   = "done"
)

// readPhases reads the newest position and intent; nil where there is none.
func (s *Store) readPhases(
	ctx context.Context,
	ledger [16]byte,
) (done, intent *phaseRow, err error) {
	rows, err := s.conn.Query(
		ctx,
		"SELECT phase, n, writer, first, last, at, gen, written, rolled_build, toUnixTimestamp64Micro(rolled_until), rolled_seq, shift, now64(6)"+
			" FROM "+s.qualifyTable(
			"ingest",
		)+
			" FINAL WHERE ledger = {ledger:UUID}",
		ch.Named("ledger", uuid.UUID(ledger).String()),
	)
	if err != nil {
		return nil, nil, fmt.Errorf("read the position of accounting: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var phase string
		row := new(phaseRow)
		if err := rows.Scan(&phase, &row.n, &row.writer, &row.first, &row.last, &row.at, &row.gen, &row.written, &row.rolled.Build, &row.rolled.Until, &row.rolled.Seq, &row.shift, &row.now); err != nil {
			return nil, nil, fmt.Errorf("read the position of accounting: %w", err)
		}
		switch phase {
		case phaseIntent:
			intent = row
		case phaseDone:
			done = row
		}
	}
	if err := rows.Err(); err != nil {
		return nil, nil, fmt.Errorf("read the position of accounting: %w", err)
	}
	return done, intent, nil
}

// setPhase writes a row of ingest.
func (s *Store) setPhase(ctx context.Context, ledger [16]byte, phase string, row phaseRow) error {
	err := s.conn.Exec(
		ctx,
		"INSERT INTO "+s.qualifyTable("ingest")+
			" (ledger, phase, n, writer, first, last, at, gen, rolled_build, rolled_until, rolled_seq, shift) "+
			"SELECT {ledger:UUID}, {phase:String}, {n:UInt64}, {writer:UUID}, {first:UInt64}, {last:UInt64}, fromUnixTimestamp64Micro({at:Int64}, 'UTC'), {gen:UInt32}, {build:UInt32}, fromUnixTimestamp64Micro({until:Int64}, 'UTC'), {rolled:UInt64}, {shift:UInt64}",
		ch.Named("ledger", uuid.UUID(ledger).String()),
		ch.Named("phase", phase),
		ch.Named("n", row.n),
		ch.Named("writer", row.writer.String()),
		ch.Named("first", row.first),
		ch.Named("last", row.last),
		ch.Named("at", row.at.UnixMicro()),
		ch.Named("gen", row.gen),
		ch.Named("build", row.rolled.Build),
		ch.Named("until", row.rolled.Until),
		ch.Named("rolled", row.rolled.Seq),
		ch.Named("shift", row.shift),
	)
	if err != nil {
		return fmt.Errorf("write the %s of accounting: %w", phase, err)
	}
	return nil
}

// snapshotPart is the size of one row of a snapshot.
const snapshotPart = 4 << 20

// PutSnapshot keeps a counting state and drops older ones but the last.
func (s *Store) PutSnapshot(ctx context.Context, ledger [16]byte, snap tally.Snapshot) error {
	parts := max(1, (len(snap.Data)+snapshotPart-1)/snapshotPart)
	block := newInsert(s, "tally_snapshots")
	type row struct {
		part uint32
		data string
	}
	rows := make([]row, parts)
	for i := range rows {
		rows[i] = row{
			uint32(i),
			string(snap.Data[i*snapshotPart : min((i+1)*snapshotPart, len(snap.Data))]),
		}
	}
	cols := []column[row]{
		defineColumn("ledger", func(*row) uuid.UUID { return ledger }),
		defineColumn("seq", func(*row) uint64 { return snap.Seq }),
		defineColumn("part", func(r *row) uint32 { return r.part }),
		defineColumn("parts", func(*row) uint32 { return uint32(parts) }),
		defineColumn("data", func(r *row) string { return r.data }),
	}
	if err := sendRows(ctx, block, "", cols, rows); err != nil {
		return err
	}
	// Two stay: the newest may be beyond the position that a torn disk has.
	err := s.conn.Exec(ctx, "ALTER TABLE "+s.qualifyTable("tally_snapshots")+" DELETE"+
		" WHERE ledger = {ledger:UUID} AND seq NOT IN (SELECT DISTINCT seq FROM "+
		s.qualifyTable("tally_snapshots")+" WHERE ledger = {ledger:UUID}"+
		" ORDER BY seq DESC LIMIT 2)", ch.Named("ledger", uuid.UUID(ledger).String()))
	if err != nil {
		return fmt.Errorf("drop old snapshots of the tally: %w", err)
	}
	return nil
}

// LastSnapshot gives the newest counting state at or below a position; ok is
// false if there is none.
func (s *Store) LastSnapshot(
	ctx context.Context,
	ledger [16]byte,
	at uint64,
) (snap tally.Snapshot, ok bool, err error) {
	id := ch.Named("ledger", uuid.UUID(ledger).String())
	rows, err := s.conn.Query(ctx, "SELECT seq FROM "+s.qualifyTable("tally_snapshots")+
		" WHERE ledger = {ledger:UUID} AND seq <= {at:UInt64}"+
		" GROUP BY seq"+
		" HAVING uniqExact(part) = any(parts)"+
		" ORDER BY seq DESC LIMIT 1", id, ch.Named("at", at))
	if err != nil {
		return snap, false, fmt.Errorf("look for a snapshot of the tally: %w", err)
	}
	for rows.Next() {
		ok = true
		err = rows.Scan(&snap.Seq)
		if err != nil {
			break
		}
	}
	err = errors.Join(err, rows.Err(), rows.Close())
	if err != nil || !ok {
		return snap, false, wrapError("look for a snapshot of the tally", err)
	}
	rows, err = s.conn.Query(ctx, "SELECT data FROM "+s.qualifyTable("tally_snapshots")+
		" WHERE ledger = {ledger:UUID} AND seq = {seq:UInt64}"+
		" ORDER BY part LIMIT 1 BY part", id, ch.Named("seq", snap.Seq))
	if err != nil {
		return snap, false, fmt.Errorf("read the snapshot of the tally: %w", err)
	}
	for rows.Next() {
		var data string
		err = rows.Scan(&data)
		if err != nil {
			break
		}
		snap.Data = append(snap.Data, data...)
	}
	err = errors.Join(err, rows.Err(), rows.Close())
	if err != nil {
		return snap, false, wrapError("read the snapshot of the tally", err)
	}
	return snap, true, nil
}

func wrapError(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// cutTime is an instant as the store keeps it.
func cutTime(at spec.Instant) time.Time { return time.UnixMicro(tally.Cut(at)) }
