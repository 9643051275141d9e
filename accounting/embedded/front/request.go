package front

import (
	"bufio"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/andybalholm/brotli"

	"github.com/musterhpc/muster/accounting/embedded/chdb"
)

// maxStatement bounds the text of one statement with the rows written into it. Larger inserts
// give the INSERT in the query parameter and stream the rows in the body.
const maxStatement = 64 << 20

// request is one HTTP request, understood.
type request struct {
	sql      string
	body     *bufio.Reader // rows that follow sql; nil when the text was in the body
	database string
	format   string // of the answer, unless the statement names one
	queryID  string
	protocol uint64 // the driver's revision; it matters for the first question only
	params   []chdb.Param
	settings []setting // for this request, sorted by name
	framed   bool      // answer in ClickHouse's compressed blocks
	framing  framing
	wait     bool // no byte before the statement has ended
	hold     int  // bytes of answer to hold back so that an early failure still gets a status of its own
	reading  bool // GET and HEAD may only read
	close    func()
}

// setting is one engine setting of a request.
type setting struct{ name, value string }

const (
	defaultHold = 1 << 20
	maxHold     = 64 << 20
)

// unavailable names what a parameter asks for when the embedded engine cannot give it; ""
// otherwise.
func unavailable(name, value string) string {
	switch name {
	case "session_id", "session_timeout", "session_check", "close_session":
		return "a session over HTTP"
	case "quota_key":
		return "a quota"
	case "role":
		return "a role"
	case "http_write_exception_in_output_format", "add_http_cors_header":
		if on, err := truth(name, value); err == nil && !on {
			return ""
		}
		return "this behaviour"
	}
	return ""
}

// parseRequest reads the parameters, and the body as far as it is statement text. The caller
// calls close when done.
func parseRequest(r *http.Request) (*request, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, refuseStatement(
			codeBadArguments,
			"the request's parameters cannot be read: %v",
			err,
		)
	}
	req := &request{format: "TabSeparated", hold: defaultHold, close: func() {}}
	switch r.Method {
	case http.MethodPost:
	case http.MethodGet, http.MethodHead:
		req.reading = true
	default:
		return nil, refuseStatement(
			codeUnsupportedHTTP,
			"method %s is not used here; POST is, and GET for reading",
			r.Method,
		)
	}
	if strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/") {
		return nil, refuseStatement(
			codeNotImplemented,
			"external tables are not offered by the embedded engine; insert into a table, or use a ClickHouse server",
		)
	}
	req.database = r.Header.Get("X-ClickHouse-Database")
	if f := r.Header.Get("X-ClickHouse-Format"); f != "" {
		req.format = f
	}
	flags := paramFlags{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		all := values[name]
		if err := req.parameter(name, all[len(all)-1], &flags); err != nil {
			return nil, err
		}
	}
	if req.framed {
		req.framing, err = parseFraming(flags.method, flags.level)
		if err != nil {
			return nil, refuseStatement(codeBadArguments, "%v", err)
		}
	}
	return req, req.readBody(r, flags)
}

// paramFlags are parameters that only parseRequest looks at.
type paramFlags struct {
	query, method, level string
	hasQuery, packed     bool
}

// parameter takes one parameter in.
func (req *request) parameter(name, value string, flags *paramFlags) (err error) {
	switch name {
	case "query":
		flags.query, flags.hasQuery = value, true
	case "database":
		req.database = value
	case "default_format":
		req.format = value
	case "query_id":
		req.queryID = value
	case "user", "password":
		// read by authenticate
	case "compress":
		req.framed, err = truth(name, value)
	case "decompress":
		flags.packed, err = truth(name, value)
	case "network_compression_method":
		flags.method = value
	case "network_zstd_compression_level":
		flags.level = value
	case "wait_end_of_query":
		req.wait, err = truth(name, value)
	case "buffer_size":
		var n uint64
		n, err = strconv.ParseUint(value, 10, 63)
		if err == nil {
			req.hold = int(min(n, maxHold))
		}
	case "client_protocol_version":
		req.protocol, err = strconv.ParseUint(value, 10, 32)
	case "enable_http_compression", "send_progress_in_http_headers", "stacktrace":
		// Wishes that an answer may leave unfulfilled and still be right.
	default:
		return req.otherParameter(name, value)
	}
	if err != nil {
		return refuseStatement(
			codeBadArguments,
			"parameter %s=%s is not a number that fits",
			name,
			value,
		)
	}
	return nil
}

// otherParameter takes a query parameter or a setting in.
func (req *request) otherParameter(name, value string) error {
	if what := unavailable(name, value); what != "" {
		return refuseStatement(
			codeNotImplemented,
			"the embedded engine does not offer %s (parameter %s=%s)",
			what,
			name,
			value,
		)
	}
	if name == "http_write_exception_in_output_format" || name == "add_http_cors_header" {
		return nil // off, which is how it is
	}
	if param, ok := strings.CutPrefix(name, "param_"); ok {
		req.params = append(req.params, chdb.Param{Name: param, Value: value})
		return nil
	}
	if !isSettingName(name) {
		return refuseStatement(
			codeUnknownSetting,
			"parameter %q is neither one of the HTTP interface nor a setting",
			name,
		)
	}
	req.settings = append(req.settings, setting{name, value})
	return nil
}

func isSettingName(name string) bool {
	for i := range len(name) {
		c := name[i]
		isInner := c == '.' || (c >= '0' && c <= '9') // not the first one
		if !isLetter(c) && (i == 0 || !isInner) {
			return false
		}
	}
	return name != ""
}

func truth(name, value string) (bool, error) {
	switch value {
	case "1", "true":
		return true, nil
	case "", "0", "false":
		return false, nil
	}
	return false, fmt.Errorf("%s=%s", name, value)
}

// readBody unpacks the body and, unless it is rows, reads the statement out of it.
func (req *request) readBody(r *http.Request, flags paramFlags) error {
	body, err := unpackContent(r.Body, r.Header.Get("Content-Encoding"))
	if err != nil {
		return err
	}
	if flags.packed {
		frames := newFrameReader(body)
		body, req.close = frames, frames.close
	}
	in := bufio.NewReaderSize(body, 128<<10)
	if flags.hasQuery && examineSQL(flags.query).rows {
		req.sql, req.body = flags.query, in
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(in, maxStatement+1))
	if err != nil {
		return bodyError(err)
	}
	if len(text) > maxStatement {
		return refuseStatement(
			codeBadArguments,
			"a statement is longer than %d bytes; give an INSERT in the query parameter and its rows in the body",
			maxStatement,
		)
	}
	req.sql = flags.query
	if len(text) > 0 {
		if flags.hasQuery && flags.query != "" {
			req.sql += "\n"
		}
		req.sql += string(text)
	}
	if strings.TrimSpace(req.sql) == "" {
		return refuseStatement(
			codeSyntaxError,
			"Empty query: the request has neither a query parameter nor a body",
		)
	}
	return nil
}

// bodyError phrases a body that could not be read to its end.
func bodyError(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return refuseStatement(
			codeAttemptToRead,
			"the request's body ended before it was complete; nothing of it was used",
		)
	}
	return refuseStatement(codeCannotParse, "the request's body cannot be read: %v", err)
}

// unpackContent undoes an HTTP content encoding.
func unpackContent(body io.Reader, encoding string) (io.Reader, error) {
	switch encoding {
	case "", "identity":
		return body, nil
	case "gzip":
		return &lazyReader{open: func() (io.Reader, error) { return gzip.NewReader(body) }}, nil
	case "deflate":
		return &lazyReader{open: func() (io.Reader, error) { return zlib.NewReader(body) }}, nil
	case "br":
		return brotli.NewReader(body), nil
	}
	return nil, refuseStatement(
		codeNotImplemented,
		"Content-Encoding %q is not one of gzip, deflate, br",
		encoding,
	)
}

// lazyReader opens a decoder when the first byte is asked for, since decoders read ahead when
// they are made.
type lazyReader struct {
	open func() (io.Reader, error)
	from io.Reader
}

func (l *lazyReader) Read(p []byte) (int, error) {
	if l.from == nil {
		from, err := l.open()
		if err != nil {
			return 0, err
		}
		l.from = from
	}
	return l.from.Read(p)
}
