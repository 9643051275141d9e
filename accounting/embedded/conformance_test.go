package embedded

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/google/uuid"
	"github.com/shopspring/decimal"
)

// compressions are the driver's ways to send blocks.
func compressions() map[string]*clickhouse.Compression {
	return map[string]*clickhouse.Compression{
		"none": {Method: clickhouse.CompressionNone},
		"lz4":  {Method: clickhouse.CompressionLZ4},
		"zstd": {Method: clickhouse.CompressionZSTD, Level: 3},
		"gzip": {Method: clickhouse.CompressionGZIP, Level: 3},
		"br":   {Method: clickhouse.CompressionBrotli, Level: 3},
	}
}

// TestDriver runs clickhouse-go/v2, unmodified, through everything that accounting does with it.
func TestDriver(t *testing.T) {
	engine := startEngine(t, Options{})
	root := open(t, clientOptions(engine.Socket()))
	streamed := uint64(3_000_000)
	if os.Getenv("MUSTER_LONG") == "" {
		streamed = 300_000
	}
	for name, compression := range compressions() {
		t.Run(name, func(t *testing.T) {
			mustExec(t, root, "CREATE DATABASE d_"+name)
			o := clientOptions(engine.Socket())
			o.Compression = compression
			o.Auth.Database = "d_" + name
			c := open(t, o)
			t.Run("types", func(t *testing.T) { testTypes(t, c) })
			t.Run("streaming", func(t *testing.T) { testStreaming(t, c, streamed) })
			t.Run("errors", func(t *testing.T) { testErrors(t, c, o) })
			t.Run("parameters", func(t *testing.T) { testParameters(t, c) })
			t.Run("settings", func(t *testing.T) { testSettings(t, c) })
			t.Run("cancel", func(t *testing.T) { testCancel(t, c, root) })
			t.Run("formats", func(t *testing.T) { testFormats(t, c) })
		})
	}
	t.Run("concurrent", func(t *testing.T) { testConcurrent(t, clientOptions(engine.Socket())) })
	if n := engine.Restarts(); n != 0 {
		t.Errorf("the engine died %d times", n)
	}
}

// typesTable has a column for every type of our schema.
const typesTable = `CREATE TABLE types (
	u8 UInt8, u16 UInt16, u32 UInt32, u64 UInt64, i8 Int8, i16 Int16, i32 Int32, i64 Int64, u128 UInt128,
	f64 Float64, b Bool, s String, fs FixedString(4), lc LowCardinality(String), lcn LowCardinality(Nullable(String)),
	dt DateTime('UTC'), dt64 DateTime64(6, 'UTC'), d Date,
	au Array(UInt64), as Array(String), aa Array(Array(Int32)), alc Array(LowCardinality(String)),
	m Map(String, UInt64), mlc Map(LowCardinality(String), String), nu Nullable(UInt64), ns Nullable(String), ndt Nullable(DateTime64(6, 'UTC')),
	dec Decimal(38, 9), id UUID, nid Nullable(UUID), e Enum8('PENDING' = 0, 'RUNNING' = 1, 'DONE' = -3), e16 Enum16('x' = 1000),
	t Tuple(a UInt8, b String)
) ENGINE = MergeTree ORDER BY u64`

func typesRow(i int) []any {
	str := fmt.Sprintf("text %d \x00\xff' \\ \" ` ü", i)
	at := time.Date(2026, 11, 21, 3, 44, 5, 123456000, time.UTC).Add(time.Duration(i) * time.Microsecond)
	var nu *uint64
	var ns *string
	var ndt *time.Time
	var nid *uuid.UUID
	id := uuid.MustParse(fmt.Sprintf("00112233-4455-6677-8899-%012x", i))
	if i%2 == 1 {
		v := uint64(1) << 63
		nu, ns, ndt, nid = &v, &str, &at, &id
	}
	return []any{
		uint8(255), uint16(65535), uint32(1 << 31), uint64(i), int8(-128), int16(-32768), int32(-1 << 31), int64(-1 << 63),
		new(big.Int).Lsh(big.NewInt(1), 127),
		1.5, i%2 == 0, str, "abcd", fmt.Sprintf("class%d", i%3), ns,
		at.Truncate(time.Second), at, at.Truncate(24 * time.Hour),
		[]uint64{1, uint64(i)}, []string{}, [][]int32{{1, -1}, {}}, []string{"x", "y", "x"},
		map[string]uint64{"cpu": uint64(i), "gres/gpu": 8}, map[string]string{"k": "v"}, nu, ns, ndt,
		decimal.RequireFromString("-12345678901234567890.123456789"), id, nid, []string{"PENDING", "RUNNING", "DONE"}[i%3], "x",
		[]any{uint8(7), "seven"},
	}
}

func testTypes(t *testing.T, c clickhouse.Conn) {
	ctx := context.Background()
	mustExec(t, c, typesTable)
	batch, err := c.PrepareBatch(ctx, "INSERT INTO types")
	if err != nil {
		t.Fatal(err)
	}
	const rows = 1000
	for i := range rows {
		if err := batch.Append(typesRow(i)...); err != nil {
			t.Fatal(err)
		}
	}
	if err := batch.Send(); err != nil {
		t.Fatal(err)
	}
	res, err := c.Query(ctx, "SELECT * FROM types ORDER BY u64")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Close()
	n := 0
	for ; res.Next(); n++ {
		want := typesRow(n)
		into := make([]any, len(want))
		for i, ct := range res.ColumnTypes() {
			into[i] = reflect.New(ct.ScanType()).Interface()
		}
		if err := res.Scan(into...); err != nil {
			t.Fatal(err)
		}
		for i, name := range res.Columns() {
			if err := sameValue(want[i], reflect.ValueOf(into[i]).Elem().Interface()); err != nil {
				t.Fatalf("row %d, column %s: %v", n, name, err)
			}
		}
	}
	if err := res.Err(); err != nil {
		t.Fatal(err)
	}
	if n != rows {
		t.Fatalf("%d rows came back, want %d", n, rows)
	}
}

// sameValue compares what was sent with what came back, through pointers and big numbers.
func sameValue(want, have any) error {
	w, h := flat(want), flat(have)
	switch w := w.(type) {
	case time.Time:
		if ht, ok := h.(time.Time); ok && w.Equal(ht) {
			return nil
		}
	case decimal.Decimal:
		if hd, ok := h.(decimal.Decimal); ok && w.Equal(hd) {
			return nil
		}
	case []any: // a tuple
		if fmt.Sprint(h) == fmt.Sprint(map[string]any{"a": w[0], "b": w[1]}) {
			return nil
		}
	}
	if !reflect.DeepEqual(w, h) && !(fmt.Sprint(w) == fmt.Sprint(h) && fmt.Sprintf("%T", w) == fmt.Sprintf("%T", h)) {
		return fmt.Errorf("have %#v (%T), want %#v (%T)", h, have, w, want)
	}
	return nil
}

func flat(v any) any {
	if b, ok := v.(*big.Int); ok {
		return b.String()
	}
	if b, ok := v.(big.Int); ok {
		return b.String()
	}
	r := reflect.ValueOf(v)
	for r.IsValid() && r.Kind() == reflect.Pointer {
		if r.IsNil() {
			return nil
		}
		r = r.Elem()
	}
	if !r.IsValid() {
		return nil
	}
	return r.Interface()
}

// testStreaming reads more than any buffer holds, an empty result, and stops in the middle of one.
func testStreaming(t *testing.T, c clickhouse.Conn, rows uint64) {
	res, err := c.Query(context.Background(), "SELECT number, toString(number) AS s FROM numbers(?)", rows)
	if err != nil {
		t.Fatal(err)
	}
	var next uint64
	for res.Next() {
		var n uint64
		var s string
		if err := res.Scan(&n, &s); err != nil {
			t.Fatal(err)
		}
		if n != next || s != fmt.Sprint(n) {
			t.Fatalf("row %d is %d %q", next, n, s)
		}
		next++
	}
	if err := res.Err(); err != nil || next != rows {
		t.Fatalf("%d rows, error %v", next, err)
	}
	empty, err := c.Query(context.Background(), "SELECT number FROM numbers(10) WHERE number > 10")
	if err != nil {
		t.Fatal(err)
	}
	if empty.Next() || empty.Err() != nil {
		t.Errorf("an empty result has a row, or error %v", empty.Err())
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	part, err := c.Query(ctx, "SELECT number FROM numbers(100000000)")
	if err != nil {
		t.Fatal(err)
	}
	if !part.Next() {
		t.Fatal(part.Err())
	}
	if got := one[uint64](t, c, "SELECT count() FROM numbers(5)"); got != 5 {
		t.Errorf("beside a half-read result: %d", got)
	}
}

func testErrors(t *testing.T, c clickhouse.Conn, o *clickhouse.Options) {
	ctx := context.Background()
	for sql, want := range map[string]struct {
		code int32
		text string
	}{
		"SELECT * FROM nowhere":                 {60, "nowhere"},
		"SELECT nothing":                        {47, "nothing"},
		"SELEKT 1":                              {62, "Syntax error"},
		"SELECT 1; SELECT 2":                    {62, "Multi-statements"},
		"INSERT INTO nowhere VALUES (1)":        {60, "nowhere"},
		"DROP TABLE nowhere":                    {60, "nowhere"},
		"SELECT throwIf(1, 'why not')":          {395, "why not"},
		"SELECT * FROM nodb.t":                  {81, "nodb"},
		"SELECT 1 SETTINGS no_such_setting = 1": {115, "no_such_setting"},
		"SELECT sleep(3) SETTINGS max_rows_to_read = 1, max_execution_time = 1": {159, ""},
	} {
		wantCode(t, c.Exec(ctx, sql), want.code, want.text)
	}
	// Behind data already sent: the status was 200, and only the marked block tells.
	res, err := c.Query(ctx, "SELECT number, throwIf(number = 2900000, 'late') FROM numbers(3000000) SETTINGS max_threads = 1")
	if err == nil {
		for res.Next() {
		}
		err = res.Err()
	}
	wantCode(t, err, 395, "late")
	other := *o
	other.Auth.Database = "nodb"
	wantCode(t, open(t, &other).Ping(ctx), 81, "nodb")
	// The message has one prefix, not two.
	err = c.Exec(ctx, "SELECT 1 SETTINGS max_threads = 'x'")
	var e *clickhouse.Exception
	if !errors.As(err, &e) || strings.Contains(e.Message, "DB::Exception") {
		t.Errorf("error %v", err)
	}
}

func testParameters(t *testing.T, c clickhouse.Conn) {
	ctx := context.Background()
	text := "it's \\ a\ttab\nand 'quotes'"
	if got := one[string](t, c, "SELECT {v:String}", clickhouse.Named("v", text)); got != text {
		t.Errorf("parameter came back as %q", got)
	}
	if got := one[string](t, c, "SELECT ?", text); got != text {
		t.Errorf("bound value came back as %q", got)
	}
	ctx = clickhouse.Context(ctx, clickhouse.WithParameters(clickhouse.Parameters{"n": "40", "a": "[1,2]", "t": "types"}))
	var n, u uint64
	if err := c.QueryRow(ctx, "SELECT {n:UInt8} + arraySum({a:Array(UInt8)}), (SELECT count() FROM {t:Identifier})").Scan(&n, &u); err != nil {
		t.Fatal(err)
	}
	if n != 43 || u != 1000 {
		t.Errorf("parameters gave %d, %d", n, u)
	}
	mustExec(t, c, "CREATE TABLE params (a UInt8, s String) ENGINE = MergeTree ORDER BY a")
	mustExec(t, c, "INSERT INTO params VALUES ({a:UInt8}, {s:String})", clickhouse.Named("a", 7), clickhouse.Named("s", text))
	if got := one[string](t, c, "SELECT s FROM params WHERE a = 7"); got != text {
		t.Errorf("inserted parameter came back as %q", got)
	}
}

// testSettings checks that a request's settings hold for it and for nothing else.
func testSettings(t *testing.T, c clickhouse.Conn) {
	ask := func(s clickhouse.Settings) string {
		t.Helper()
		var v string
		ctx := clickhouse.Context(context.Background(), clickhouse.WithSettings(s))
		if err := c.QueryRow(ctx, "SELECT concat(toString(getSetting('max_block_size')), ' ', getSetting('log_comment'), ' ', currentDatabase() = 'default')").Scan(&v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	plain := ask(nil)
	for range 20 {
		if got := ask(clickhouse.Settings{"max_block_size": 4711, "log_comment": "it's mine"}); !strings.HasPrefix(got, "4711 ") || !strings.Contains(got, "it's mine") {
			t.Fatalf("settings of a request: %q", got)
		}
		if got := ask(nil); strings.Split(got, " ")[0] != strings.Split(plain, " ")[0] || strings.Contains(got, "mine") {
			t.Fatalf("a request's settings were left behind: %q, was %q", got, plain)
		}
	}
	mustExec(t, c, "SET max_block_size = 1234")
	mustExec(t, c, "USE system")
	if got := ask(nil); strings.Split(got, " ")[0] != strings.Split(plain, " ")[0] || strings.HasSuffix(got, " 1") {
		t.Errorf("SET or USE outlived its request: %q, was %q", got, plain)
	}
	mustExec(t, c, "CREATE TEMPORARY TABLE passing (a UInt8)")
	wantCode(t, c.Exec(context.Background(), "SELECT * FROM passing"), 60, "passing")
	ctx := clickhouse.Context(context.Background(), clickhouse.WithSettings(clickhouse.Settings{"no_such_setting": 1}))
	wantCode(t, c.Exec(ctx, "SELECT 1"), 115, "no_such_setting")
	ctx = clickhouse.Context(context.Background(), clickhouse.WithSettings(clickhouse.Settings{"session_id": "s"}))
	wantCode(t, c.Exec(ctx, "SELECT 1"), 48, "session_id")
}

// testCancel leaves a running query and waits until the engine no longer runs it.
func testCancel(t *testing.T, c, root clickhouse.Conn) {
	for _, sql := range []string{
		"SELECT sum(sipHash64(number)) FROM numbers(100000000000000) /* cancelled */",
		"SELECT number FROM numbers(100000000000000) WHERE sipHash64(number) = 1 /* cancelled */",
		"EXPLAIN PIPELINE SELECT (SELECT sum(sipHash64(number)) FROM numbers(100000000000000)) /* cancelled */",
	} {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() {
			rows, err := c.Query(ctx, sql)
			if err == nil {
				for rows.Next() {
				}
				err = rows.Err()
			}
			done <- err
		}()
		running := func() uint64 {
			return one[uint64](t, root, "SELECT count() FROM system.processes WHERE query LIKE '%/* cancelled */%' AND query NOT LIKE '%processes%' AND NOT is_cancelled")
		}
		for running() == 0 {
			select {
			case err := <-done:
				t.Fatalf("%s: ended by itself: %v", sql, err)
			default:
			}
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: error %v", sql, err)
		}
		for running() != 0 {
		}
	}
}

// testFormats reads and writes whole formats through the driver.
func testFormats(t *testing.T, c clickhouse.Conn) {
	ctx := context.Background()
	mustExec(t, c, "CREATE TABLE lines (a UInt32, s String) ENGINE = MergeTree ORDER BY a")
	mustExec(t, c, "INSERT INTO lines FORMAT JSONEachRow {\"a\": 1, \"s\": \"; not a statement\"}")
	mustExec(t, c, "INSERT INTO lines (s, a) VALUES ('; nor; this', 2), ('x', 3);")
	mustExec(t, c, "INSERT INTO lines SELECT 4, 'y'")
	mustExec(t, c, "WITH 5 AS five INSERT INTO lines SELECT five, 'z'")
	if got := one[string](t, c, "SELECT arrayStringConcat(groupArray(concat(toString(a), s)), '|') FROM (SELECT * FROM lines ORDER BY a)"); got != "1; not a statement|2; nor; this|3x|4y|5z" {
		t.Errorf("lines are %q", got)
	}
	for _, sql := range []string{"SHOW TABLES", "DESCRIBE TABLE lines", "EXPLAIN SELECT 1", "EXISTS TABLE lines", "SHOW CREATE TABLE lines"} {
		rows, err := c.Query(ctx, sql)
		if err != nil {
			t.Errorf("%s: %v", sql, err)
			continue
		}
		if !rows.Next() {
			t.Errorf("%s: no row, error %v", sql, rows.Err())
		}
		rows.Close()
	}
}

// testConcurrent has more clients than sessions, each reading and writing its own rows.
func testConcurrent(t *testing.T, o *clickhouse.Options) {
	const clients, rounds = 40, 10
	o.MaxOpenConns, o.MaxIdleConns = clients, clients
	c := open(t, o)
	mustExec(t, c, "CREATE TABLE many (client UInt32, round UInt32) ENGINE = MergeTree ORDER BY client")
	var wg sync.WaitGroup
	errs := make(chan error, clients)
	for client := range clients {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for round := range rounds {
				ctx := clickhouse.Context(context.Background(), clickhouse.WithSettings(clickhouse.Settings{"max_block_size": 1000 + client}))
				b, err := c.PrepareBatch(ctx, "INSERT INTO many")
				if err == nil {
					if err = b.Append(uint32(client), uint32(round)); err == nil {
						err = b.Send()
					}
				}
				var n, size uint64
				if err == nil {
					err = c.QueryRow(ctx, "SELECT count(), toUInt64(getSetting('max_block_size')) FROM many WHERE client = ?", client).Scan(&n, &size)
				}
				if err == nil && (n != uint64(round+1) || size != uint64(1000+client)) {
					err = fmt.Errorf("client %d sees %d rows after round %d, block size %d", client, n, round, size)
				}
				if err != nil {
					errs <- err
					return
				}
			}
		}()
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
}

// TestBackup saves a database into the data path's backups folder and reads it back, by SQL.
func TestBackup(t *testing.T) {
	s := startEngine(t, Options{Memory: 2048, Settings: map[string]string{"max_block_size": "5555"}})
	c := open(t, clientOptions(s.Socket()))
	if got := one[string](t, c, "SELECT value FROM system.server_settings WHERE name = 'max_server_memory_usage'"); got != fmt.Sprint(2048<<20) {
		t.Errorf("the engine may use %s bytes", got)
	}
	if got := one[string](t, c, "SELECT value FROM system.settings WHERE name = 'max_block_size'"); got != "5555" {
		t.Errorf("a setting of every session is %s", got)
	}
	mustExec(t, c, "CREATE DATABASE shop")
	mustExec(t, c, "CREATE TABLE shop.t (a UInt64) ENGINE = MergeTree ORDER BY a")
	mustExec(t, c, "INSERT INTO shop.t SELECT number FROM numbers(1000)")
	backups := filepath.Join(filepath.Dir(s.Socket()), "backups")
	for _, name := range []string{"folder", "one.tar", "one.tzst"} {
		place := filepath.Join(backups, name)
		mustExec(t, c, "BACKUP DATABASE shop TO File('"+place+"')")
		mustExec(t, c, "DROP DATABASE shop SYNC")
		mustExec(t, c, "RESTORE DATABASE shop FROM File('"+place+"')")
		if got := one[uint64](t, c, "SELECT sum(a) FROM shop.t"); got != 499500 {
			t.Errorf("%s: the sum is %d", name, got)
		}
	}
	wantCode(t, c.Exec(t.Context(), "BACKUP DATABASE shop TO File('/tmp/elsewhere')"), 36, "elsewhere")
}
