package embedded

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2"
)

// startWithLogins runs an engine with a TCP listener and returns its address.
func startWithLogins(t *testing.T, o Options) (*Supervisor, string) {
	t.Helper()
	needLibrary(t)
	dir := t.TempDir()
	for name, password := range map[string]string{"reader": "r3ad", "writer": "wr1te"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(password+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	log, logger := newTestLog(t)
	o.Log, o.TCP = logger, "127.0.0.1:0"
	o.Logins = []Login{{"grafana", filepath.Join(dir, "reader"), true}, {"muster", filepath.Join(dir, "writer"), false}}
	s := startEngine(t, o)
	var m []string
	waitFor(t, "the address in the log", func() bool {
		m = regexp.MustCompile(`listening for logins.*address=(\S+)`).FindStringSubmatch(log.String())
		return m != nil
	})
	return s, m[1]
}

func overTCP(address, user, password string) *clickhouse.Options {
	return &clickhouse.Options{Protocol: clickhouse.HTTP, Addr: []string{address},
		Auth: clickhouse.Auth{Username: user, Password: password}, Compression: &clickhouse.Compression{Method: clickhouse.CompressionLZ4}}
}

func TestLogins(t *testing.T) {
	s, address := startWithLogins(t, Options{})
	root := open(t, clientOptions(s.Socket()))
	mustExec(t, root, "CREATE DATABASE muster")
	mustExec(t, root, "CREATE TABLE muster.jobs (id UInt64, file String) ENGINE = MergeTree ORDER BY id")
	mustExec(t, root, "INSERT INTO muster.jobs VALUES (1, 'a'), (2, 'b')")
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("planted\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Run("whole numbers", func(t *testing.T) {
		// What the engine compiles out of this after a few times is wrong.
		for name, conn := range map[string]clickhouse.Conn{"a reader": open(t, overTCP(address, "grafana", "r3ad")), "the owner": root} {
			for i := range 12 {
				var least, sum string
				if err := conn.QueryRow(t.Context(), "SELECT toString(min(greatest(toInt128(number) - 100, toInt128(0)))), toString(sum(greatest(toInt128(number) - 100, toInt128(0)))) FROM numbers(50)").Scan(&least, &sum); err != nil {
					t.Fatal(err)
				}
				if least != "0" || sum != "0" {
					t.Fatalf("%s got %s and %s the %d. time, want 0", name, least, sum, i+1)
				}
			}
		}
	})
	t.Run("strangers", func(t *testing.T) {
		for _, who := range [][2]string{{"", ""}, {"default", ""}, {"default", "x"}, {"grafana", ""}, {"grafana", "wr1te"}, {"muster", "r3ad"}, {"nobody", "r3ad"}} {
			err := open(t, overTCP(address, who[0], who[1])).Ping(t.Context())
			if err == nil {
				t.Errorf("%q was let in", who)
				continue
			}
			if !strings.Contains(err.Error(), "Code: ") && !strings.Contains(err.Error(), "code: ") {
				t.Errorf("%q: error %v carries no code", who, err)
			}
		}
	})
	t.Run("writer", func(t *testing.T) {
		c := open(t, overTCP(address, "muster", "wr1te"))
		mustExec(t, c, "INSERT INTO muster.jobs VALUES (3, 'c')")
		if got := one[uint64](t, c, "SELECT count() FROM muster.jobs"); got != 3 {
			t.Errorf("%d rows", got)
		}
	})
	t.Run("reader", func(t *testing.T) { testReader(t, address, secret) })
	t.Run("native protocol", func(t *testing.T) {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write([]byte("\x00\x11ClickHouse client\x1a\x07\xc6\xa8\x03\x00\x00\x00")); err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(conn)
		if len(answer) < 5 || answer[0] != 2 || binary.LittleEndian.Uint32(answer[1:]) == 0 || !strings.Contains(string(answer), "HTTP interface only") {
			t.Errorf("answer %q, error %v", answer, err)
		}
		// Over HTTP all is as before.
		if err := open(t, overTCP(address, "grafana", "r3ad")).Ping(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func testReader(t *testing.T, address, secret string) {
	o := overTCP(address, "grafana", "r3ad")
	o.Auth.Database = "muster"
	c := open(t, o)
	ctx := context.Background()
	if got := one[uint64](t, c, "SELECT count() FROM jobs WHERE jobs.file != 'x'"); got < 2 {
		t.Errorf("%d rows", got)
	}
	for _, sql := range []string{
		"SHOW TABLES", "DESCRIBE TABLE jobs", "EXPLAIN SELECT * FROM jobs", "SELECT format('{}', 'x')",
		"WITH 1 AS x SELECT x -- file('/etc/passwd')", "SELECT 'file(\\'x\\')', 'ünïcode'", "SELECT * FROM numbers(3)",
		"SELECT sum(id) OVER (ORDER BY id) FROM muster.jobs", "SELECT quantile(0.95)(id) FROM jobs",
	} {
		if err := c.Exec(ctx, sql); err != nil {
			t.Errorf("%s: %v", sql, err)
		}
	}
	s := secret
	for _, sql := range []string{
		"INSERT INTO jobs VALUES (9, 'x')", "INSERT INTO jobs SELECT 9, 'x'", "CREATE TABLE t (a UInt8) ENGINE = Memory",
		"DROP TABLE jobs", "TRUNCATE TABLE jobs", "ALTER TABLE jobs DELETE WHERE 1", "CREATE TEMPORARY TABLE t (a UInt8)",
		"SET readonly = 0", "SET max_threads = 1", "USE system", "SYSTEM FLUSH LOGS", "KILL QUERY WHERE 1",
		"SELECT 1 SETTINGS readonly = 0", "SELECT 1 INTO OUTFILE '" + s + ".out'", "BACKUP DATABASE muster TO File('x')",
		"SELECT file('" + s + "')", "SELECT `file`('" + s + "')", "SELECT \"file\"('" + s + "')", "SELECT FILE('" + s + "')",
		"SELECT `fil\\x65`('" + s + "')", "SELECT * APPLY(file) FROM (SELECT '" + s + "')", "SELECT * APPLY file FROM (SELECT '" + s + "')",
		"SELECT arrayMap(x -> file(x), ['" + s + "'])", "SELECT arrayMap(file, ['" + s + "'])",
		"SELECT * FROM file('" + s + "', 'LineAsString')", "DESCRIBE TABLE file('" + s + "', 'CSVWithNames')", "DESCRIBE TABLE file('" + s + "')",
		"SELECT * FROM `" + s + "`", "EXPLAIN SELECT * FROM file('" + s + "', 'LineAsString')", "SELECT x'\\' , file('" + s + "') --'",
		"SELECT ‘'’, file('" + s + "'), ‘'’", "SELECT $a$ ' $a$, file('" + s + "')", "SELECT /* ' */ file('" + s + "')", "SELECT 1 # '\n, file('" + s + "')",
		"SELECT * FROM url('http://127.0.0.1:1/', 'LineAsString')", "DESCRIBE TABLE url('http://127.0.0.1:1/', 'LineAsString')",
		"SELECT * FROM remote('127.0.0.1', 'system', 'one')", "DESCRIBE TABLE s3('http://127.0.0.1:1/bucket/key', 'LineAsString')",
		"SELECT * FROM executable('x', 'TSV', 'a String')", "EXPLAIN SELECT * FROM url('http://127.0.0.1:1/', 'LineAsString')",
		"SELECT 1; SELECT 2", "SELECT demangle('x')", "CREATE FUNCTION f AS x -> x", "EXECUTE AS default SELECT 1", "DETACH TABLE jobs",
		"SELECT count() FROM numbers(10) WHERE file('" + s + "') != ''", "WITH file AS f SELECT f('" + s + "')",
		"OPTIMIZE TABLE jobs", "RENAME TABLE jobs TO j", "EXCHANGE TABLES jobs AND jobs", "GRANT ALL ON *.* TO default", "MOVE USER x TO y",
	} {
		rows, err := c.Query(ctx, sql)
		if err == nil {
			var got []string
			for rows.Next() {
				var v any
				_ = rows.Scan(&v)
				got = append(got, strings.TrimSpace(strings.Join(rows.Columns(), ",")))
			}
			t.Errorf("%s: was allowed (%v, error %v)", sql, got, rows.Err())
			continue
		}
		if strings.Contains(err.Error(), "planted") {
			t.Errorf("%s: the file's text is in the error %v", sql, err)
		}
	}
	// Parameters may not carry a function's name either.
	pctx := clickhouse.Context(ctx, clickhouse.WithParameters(clickhouse.Parameters{"f": "file"}))
	if err := c.Exec(pctx, "SELECT {f:Identifier}('"+s+"')"); err == nil {
		t.Error("a function's name came in by a parameter")
	}
	// Limits can be lowered and not raised.
	for give, want := range map[string]string{"5": "5", "0": "120", "99999": "120"} {
		lctx := clickhouse.Context(ctx, clickhouse.WithSettings(clickhouse.Settings{"max_execution_time": give, "readonly": "0", "max_block_size": "77"}))
		var got string
		if err := c.QueryRow(lctx, "SELECT concat(toString(getSetting('max_execution_time')), ' ', toString(getSetting('readonly')), ' ', toString(getSetting('max_block_size')))").Scan(&got); err != nil || got != want+" 1 77" {
			t.Errorf("max_execution_time %s: %q, error %v; want %s", give, got, err, want)
		}
	}
	if _, err := os.Stat(s + ".out"); err == nil {
		t.Error("a file was written")
	}
}

// TestRequests speaks plain HTTP, as curl does.
func TestRequests(t *testing.T) {
	s, address := startWithLogins(t, Options{})
	_ = s
	ask := func(method, query, body string, header ...string) (int, http.Header, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+"/?"+query, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.SetBasicAuth("muster", "wr1te")
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, resp.Header, string(text)
	}
	q := url.QueryEscape
	for _, c := range []struct {
		name, method, query, body string
		status                    int
		text                      string
	}{
		{"body", "POST", "", "SELECT 1", 200, "1\n"},
		{"parameter", "POST", "query=SELECT+1", "", 200, "1\n"},
		{"both", "POST", "query=SELECT+1", ", 2", 200, "1\t2\n"},
		{"get", "GET", "query=SELECT+1", "", 200, "1\n"},
		{"get may not write", "GET", "query=" + q("CREATE TABLE g (a UInt8) ENGINE = Memory"), "", 403, "READONLY"},
		{"format parameter", "POST", "default_format=JSONEachRow", "SELECT 1 AS a", 200, "{\"a\":1}\n"},
		{"format clause", "POST", "default_format=Native", "SELECT 1 AS a FORMAT CSV", 200, "1\n"},
		{"create", "POST", "", "CREATE TABLE h (a UInt32, s String) ENGINE = MergeTree ORDER BY a", 200, ""},
		{"rows behind", "POST", "query=" + q("INSERT INTO h FORMAT TSV"), "1\tx\n2\ty\n", 200, ""},
		{"rows within", "POST", "", "INSERT INTO h FORMAT CSV\n3,z\n", 200, ""},
		{"values behind", "POST", "query=" + q("INSERT INTO h VALUES"), "(4,'v'),(5,'w')", 200, ""},
		{"values in both", "POST", "query=" + q("INSERT INTO h (s, a) VALUES ('u', 6),"), "('t',7)", 200, ""},
		{"no rows", "POST", "query=" + q("INSERT INTO h FORMAT Native"), "", 200, ""},
		{"all there", "POST", "", "SELECT groupConcat('')(s) FROM (SELECT s FROM h ORDER BY a)", 200, "xyzvwut\n"},
		{"bad rows", "POST", "query=" + q("INSERT INTO h FORMAT TSV"), "8\tx\nbad\ty\n", 400, "CANNOT_PARSE"},
		{"none of them", "POST", "", "SELECT count() FROM h", 200, "7\n"},
		{"two statements", "POST", "", "INSERT INTO h VALUES (9, 'x'); DROP TABLE h", 400, "Multi-statements"},
		{"semicolon", "POST", "", "SELECT 1 ; -- end", 200, "1\n"},
		{"empty", "POST", "", "  ", 400, "Empty query"},
		{"setting", "POST", "max_block_size=4321", "SELECT getSetting('max_block_size')", 200, "4321\n"},
		{"unknown setting", "POST", "nonsense=1", "SELECT 1", 400, "nonsense"},
		{"not even a setting", "POST", "non%20sense=1", "SELECT 1", 400, "non sense"},
		{"setting's value", "POST", "max_threads=many", "SELECT 1", 400, "many"},
		{"bad flag", "POST", "compress=perhaps", "SELECT 1", 400, "compress=perhaps"},
		{"session", "POST", "session_id=x", "SELECT 1", 501, "session"},
		{"quota", "POST", "quota_key=x", "SELECT 1", 501, "quota"},
		{"database", "POST", "database=system", "SELECT currentDatabase()", 200, "system\n"},
		{"no database", "POST", "database=nodb", "SELECT 1", 404, "nodb"},
		{"odd database", "POST", "database=" + q("a`b'c\\d"), "SELECT 1", 404, "UNKNOWN_DATABASE"},
		{"no table", "POST", "", "SELECT * FROM nowhere", 404, "UNKNOWN_TABLE"},
		{"method", "PUT", "", "SELECT 1", 405, "PUT"},
		{"param", "POST", "param_x=3&param_x=4", "SELECT {x:UInt8} + 1", 200, "5\n"},
		{"wait for the end", "POST", "wait_end_of_query=1&buffer_size=10", "SELECT number, throwIf(number = 900000) FROM numbers(1000000)", 500, "FUNCTION_THROW_IF"},
		{"wait and see", "POST", "wait_end_of_query=1&buffer_size=10", "SELECT sum(number) FROM numbers(1000000)", 200, "499999500000\n"},
		{"time zone", "POST", "", "SELECT timezone()", 200, "UTC\n"},
	} {
		status, header, text := ask(c.method, c.query, c.body)
		if status != c.status || c.status == 200 && text != c.text || c.status != 200 && !strings.Contains(text, c.text) {
			t.Errorf("%s: %d %q, want %d %q", c.name, status, text, c.status, c.text)
		}
		if has := header.Get("X-ClickHouse-Exception-Code") != ""; has != (c.status != 200) {
			t.Errorf("%s: exception code header %q", c.name, header.Get("X-ClickHouse-Exception-Code"))
		}
	}
	_, header, _ := ask("POST", "query_id=mine&default_format=JSON", "SELECT 1")
	if header.Get("X-ClickHouse-Query-Id") != "mine" || header.Get("X-ClickHouse-Format") != "JSON" || !strings.Contains(header.Get("X-ClickHouse-Summary"), `"result_rows":"1"`) || !strings.HasPrefix(header.Get("Content-Type"), "application/json") {
		t.Errorf("headers %v", header)
	}
	if status, _, text := ask("POST", "", "x", "Content-Type", "multipart/form-data; boundary=x"); status != 501 || !strings.Contains(text, "external tables") {
		t.Errorf("external tables: %d %q", status, text)
	}
	resp, err := http.Get("http://" + address + "/ping")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); string(text) != "Ok.\n" {
		t.Errorf("ping: %q", text)
	}
}
