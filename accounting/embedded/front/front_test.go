package front

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/ClickHouse/ch-go/compress"
	"pgregory.net/rapid"

	"github.com/musterhpc/muster/accounting/embedded/chdb"
)

func TestExamine(t *testing.T) {
	for sql, want := range map[string]statement{
		"":                          {},
		"  -- only a comment":       {},
		"select 1":                  {verb: "SELECT"},
		"/* c */ SELECT 1 FORMAT x": {verb: "SELECT", format: "x"},
		"((SELECT 1) UNION ALL (SELECT 2)) FORMAT CSV;":  {verb: "SELECT", format: "CSV"},
		"SELECT ';', \";\", `;` /*;*/ -- ;\n, $a$;$a$ ;": {verb: "SELECT"},
		"SELECT 1;;":                                   {verb: "SELECT"},
		"SELECT 1; SELECT 2":                           {verb: "SELECT", several: true},
		"SELECT 'it''s; \\' fine;' ; DROP":             {verb: "SELECT", several: true},
		"SELECT x'\\' ; DROP TABLE t --'":              {verb: "SELECT", several: true},
		"WITH 1 AS x SELECT x":                         {verb: "WITH"},
		"CREATE TEMPORARY TABLE t (a Int8)":            {verb: "CREATE", temporary: true},
		"SET a = 1":                                    {verb: "SET"},
		"INSERT INTO t FORMAT Native":                  {verb: "INSERT", rows: true, format: "Native", head: "INSERT INTO t "},
		"INSERT INTO t (a, `format`, values) VALUES":   {verb: "INSERT", rows: true, format: "Values", head: "INSERT INTO t (a, `format`, values) "},
		"insert into t values (1, ';'), (2, 'x');":     {verb: "INSERT", rows: true, format: "Values", head: "insert into t ", inline: " (1, ';'), (2, 'x');"},
		"INSERT INTO t VALUES (1); DROP TABLE t":       {verb: "INSERT", rows: true, format: "Values", head: "INSERT INTO t ", inline: " (1); DROP TABLE t", several: true},
		"INSERT INTO t FORMAT TSV \r\n\tx\n":           {verb: "INSERT", rows: true, format: "TSV", head: "INSERT INTO t ", inline: "\tx\n"},
		"INSERT INTO t FORMAT TSV\n\n":                 {verb: "INSERT", rows: true, format: "TSV", head: "INSERT INTO t ", inline: "\n"},
		"INSERT INTO d.format SETTINGS a=1 FORMAT CSV": {verb: "INSERT", rows: true, format: "CSV", head: "INSERT INTO d.format SETTINGS a=1 "},
		"INSERT INTO values (a)":                       {verb: "INSERT", rows: true, format: "Values", head: "INSERT INTO values (a)"},
		"INSERT INTO t;":                               {verb: "INSERT", rows: true, format: "Values", head: "INSERT INTO t"},
		"INSERT INTO t; DROP TABLE t":                  {verb: "INSERT", several: true, format: "Values", head: "INSERT INTO t"},
		"INSERT INTO t SELECT 1 FORMAT Null":           {verb: "INSERT", format: "Null"},
		"INSERT INTO t WITH 1 AS x SELECT x; SELECT 2": {verb: "INSERT", several: true},
	} {
		if got := examineSQL(sql); got != want {
			t.Errorf("%q:\nhave %+v\nwant %+v", sql, got, want)
		}
	}
}

// TestSoils: a session goes on only after statements that leave nothing behind,
// neither in it nor among what runs under its name.
func TestSoils(t *testing.T) {
	for sql, want := range map[string]bool{
		"SELECT 1": false, "INSERT INTO t VALUES (1)": false, "ALTER TABLE t DELETE WHERE a": false, "DROP DATABASE d SYNC": false,
		"SET a = 1": true, "use d": true, "CREATE TEMPORARY TABLE t (a Int8)": true,
		"BACKUP DATABASE d TO File('x')": true, "/* all */ restore DATABASE d FROM File('x')": true,
	} {
		if got := examineSQL(sql).changesSession(); got != want {
			t.Errorf("%s: %v, want %v", sql, got, want)
		}
	}
}

// TestHello compares the front's own block with bytes worked out by hand from the format's
// description.
func TestHello(t *testing.T) {
	id := identity{"box", "26.7.2.1", "UTC"}
	body := "0401" + // columns, rows
		text("displayName()") + text("String") + "%" + text("box") +
		text("version()") + text("String") + "%" + text("26.7.2.1") +
		text("revision()") + text("UInt32") + "%" + "00000000" +
		text("timezone()") + text("String") + "%" + text("UTC")
	for revision, want := range map[uint64]string{
		0:     strings.ReplaceAll(body, "%", ""),
		54000: "010002ffffffff00" + strings.ReplaceAll(body, "%", ""),
		54460: "010002ffffffff00" + strings.ReplaceAll(body, "%", "00"),
	} {
		if got := hex.EncodeToString(id.helloBlock(revision)); got != want {
			t.Errorf("revision %d:\nhave %s\nwant %s", revision, got, want)
		}
	}
}

func text(s string) string { return hex.EncodeToString(append([]byte{byte(len(s))}, s...)) }

func TestFramesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := framing{method: rapid.SampledFrom([]compress.Method{compress.None, compress.LZ4, compress.LZ4HC, compress.ZSTD}).Draw(t, "method")}
		pieces := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 5000), 0, 5).Draw(t, "pieces")
		var packed, want bytes.Buffer
		w := newFrameWriter(&packed, f)
		for _, p := range pieces {
			want.Write(p)
			if n, err := w.Write(p); err != nil || n != len(p) {
				t.Fatalf("wrote %d of %d, %v", n, len(p), err)
			}
		}
		whole := packed.Bytes()
		got, err := io.ReadAll(newFrameReader(iotest.OneByteReader(bytes.NewReader(whole))))
		if err != nil || !bytes.Equal(got, want.Bytes()) {
			t.Fatalf("read %d bytes, want %d, error %v", len(got), want.Len(), err)
		}
		if len(whole) == 0 {
			return
		}
		// A cut is never taken for the end, but between two frames; a changed byte is never
		// taken at all.
		cut := rapid.IntRange(0, len(whole)-1).Draw(t, "cut")
		part, err := io.ReadAll(newFrameReader(bytes.NewReader(whole[:cut])))
		if err == nil && !frameEnds(whole)[cut] || !bytes.HasPrefix(want.Bytes(), part) {
			t.Fatalf("cut at %d of %d: %d bytes, error %v", cut, len(whole), len(part), err)
		}
		whole[cut] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		part, err = io.ReadAll(newFrameReader(bytes.NewReader(whole)))
		if err == nil || !bytes.HasPrefix(want.Bytes(), part) {
			t.Fatalf("byte %d changed: %d bytes, error %v", cut, len(part), err)
		}
	})
}

// frameEnds lists where frames end, from their headers alone.
func frameEnds(b []byte) map[int]bool {
	ends := map[int]bool{0: true}
	for at := 0; at < len(b); {
		h := b[at+checksumSize+1:]
		at += checksumSize + int(uint32(h[0])|uint32(h[1])<<8|uint32(h[2])<<16|uint32(h[3])<<24)
		ends[at] = true
	}
	return ends
}

func TestExceptionTexts(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int
		text string
	}{
		{errors.New("x"), 1002, "Code: 1002. DB::Exception: x. (UNKNOWN_EXCEPTION)"},
		{&chdb.Error{Message: "no code."}, 1002, "Code: 1002. DB::Exception: no code. (UNKNOWN_EXCEPTION)"},
		{&chdb.Error{Code: 60, Message: "Code: 60. DB::Exception: no t. (UNKNOWN_TABLE)"}, 60, "Code: 60. DB::Exception: no t. (UNKNOWN_TABLE)"},
		{&chdb.Error{Code: 164, Message: "Code: 164. DB::Exception: Code: 164. DB::Exception: Cannot. (READONLY) (version 26.7.2.1). (READONLY)"},
			164, "Code: 164. DB::Exception: Cannot. (READONLY) (version 26.7.2.1)"},
	} {
		if e := asException(c.err); e.Code != c.code || e.Message != c.text {
			t.Errorf("%v: %d %q, want %d %q", c.err, e.Code, e.Message, c.code, c.text)
		}
	}
	block := exceptionBlock(refuseStatement(codeReadonly, "no"), "0123456789abcdef")
	want := "\r\n__exception__\r\n0123456789abcdef\r\nCode: 164. DB::Exception: no. (READONLY)\n41 0123456789abcdef\r\n__exception__\r\n"
	if string(block) != want {
		t.Errorf("block %q, want %q", block, want)
	}
	long := exceptionBlock(errors.New(strings.Repeat("x", 1<<20)), "0123456789abcdef")
	if len(long) > 16<<10 {
		t.Errorf("a block of %d bytes is more than clients look at", len(long))
	}
}

func TestSettingChanges(t *testing.T) {
	s := &session{tag: "muster/7;", settings: map[string]string{"a": "1", "b": "2", "log_comment": "old"}}
	got := s.changes([]setting{{"a", "1"}, {"c", `it's \`}}, map[string]string{"b": "9"})
	want := []string{`c = 'it\'s \\'`, `b = '9'`, `log_comment = 'muster/7;'`}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("have %q, want %q", got, want)
	}
	got = s.changes([]setting{{"a", "1"}, {"b", "2"}, {"log_comment", "new"}}, nil)
	if strings.Join(got, "|") != "log_comment = 'muster/7; new'" {
		t.Errorf("have %q", got)
	}
}

// FuzzFrames feeds anything to the reader of blocks: no panic, and no rows out of nothing.
func FuzzFrames(f *testing.F) {
	for _, m := range []compress.Method{compress.None, compress.LZ4, compress.ZSTD} {
		var b bytes.Buffer
		if _, err := newFrameWriter(&b, framing{method: m}).Write([]byte(strings.Repeat("rows ", 100))); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		r := newFrameReader(bytes.NewReader(data))
		defer r.close()
		if n, err := io.Copy(io.Discard, r); err == nil && n > 0 && len(data) <= checksumSize+frameHeader {
			t.Errorf("%d bytes unpacked to %d", len(data), n)
		}
	})
}

// FuzzRequest feeds anything to the reader of requests and what looks at statements.
func FuzzRequest(f *testing.F) {
	f.Add("query=SELECT+1&database=d&max_threads=2&param_x=1", "", "", false)
	f.Add("compress=1&decompress=1&network_compression_method=ZSTD&network_zstd_compression_level=3", "x", "gzip", true)
	f.Add("query=INSERT+INTO+t+FORMAT+TSV", "1\n", "", true)
	f.Add("", "SELECT 'a;b'; -- x", "", true)
	f.Add("", "INSERT INTO t VALUES ($a$;$a$, x'00', `b`)", "br", true)
	pool := &Pool{denied: map[string]bool{"file": true, "url": true}}
	f.Fuzz(func(t *testing.T, query, body, encoding string, post bool) {
		method := http.MethodGet
		if post {
			method = http.MethodPost
		}
		r := httptest.NewRequest(method, "/", strings.NewReader(body))
		r.URL.RawQuery = query
		r.Header.Set("Content-Encoding", encoding)
		req, err := parseRequest(r)
		if err != nil {
			var e *chdb.Error
			if !errors.As(err, &e) || e.Code == 0 || status(e.Code) < 400 {
				t.Errorf("error %v has no code or status", err)
			}
			return
		}
		defer req.close()
		for _, s := range req.settings {
			if strings.ContainsAny(s.name, " ='\"`;(") {
				t.Errorf("%q was taken for a setting", s.name)
			}
		}
		st := examineSQL(req.sql)
		if st.rows && st.head+st.inline != "" && !strings.HasPrefix(req.sql, st.head) {
			t.Errorf("head %q is not how %q begins", st.head, req.sql)
		}
		// Whatever hides it, the word file as a bare name is found.
		if pool.harmless(req.sql) == nil && pool.harmless(req.sql+"\n, file('x')") == nil && !opens(req.sql) {
			t.Errorf("file() behind %q is not seen", req.sql)
		}
	})
}

// opens reports whether text put behind sql would be inside a comment or a quote of it, or be a
// part of its last word.
func opens(sql string) bool {
	lex := lexer{sql: sql + "\n, 7381"}
	last, before := token{}, token{}
	for t := lex.nextToken(); t.kind != endToken; t = lex.nextToken() {
		last, before = t, last
	}
	return last.text != "7381" || before.text != ","
}
