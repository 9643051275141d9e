package front

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/accounting/embedded/chdb"
)

// Login is a name that may use the interface.
type Login struct {
	Name     string
	Password string
	ReadOnly bool // may read, with the pool's reading settings, and nothing else
}

// Handler serves the interface on one listener.
type Handler struct {
	pool    *Pool
	logins  []Login
	trusted bool
	log     *slog.Logger
}

// NewHandler makes a handler. trusted is for a listener that only the engine's owner can reach
// (the 0600 socket): there a request without a name, or named default, has full access without
// a password.
func NewHandler(pool *Pool, logins []Login, trusted bool) *Handler {
	return &Handler{
		pool:    pool,
		logins:  slices.Clone(logins),
		trusted: trusted,
		log:     pool.options.Log,
	}
}

// PIDHeader tells in an answer to /ping which process it comes from.
const PIDHeader = "X-Muster-Engine-Pid"

// ServeHTTP answers /ping, /replicas_status and statements on /.
func (h *Handler) ServeHTTP(writer http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/ping" || r.URL.Path == "/replicas_status":
		writer.Header().Set(PIDHeader, strconv.Itoa(os.Getpid()))
		plain(writer, "Ok.\n")
		return
	case r.URL.Path != "/":
		http.Error(writer, "There is nothing at "+r.URL.Path+
			". Statements go to /, and /ping answers Ok.", http.StatusNotFound)
		return
	case r.Method == http.MethodGet && r.URL.RawQuery == "":
		plain(writer, "Ok.\n")
		return
	}
	login, err := h.authenticate(r)
	if err != nil {
		writeException(writer, err)
		return
	}
	req, err := parseRequest(r)
	if err != nil {
		writeException(writer, err)
		return
	}
	defer req.close()
	h.serve(writer, r, req, login)
}

func plain(writer http.ResponseWriter, text string) {
	writer.Header().Set("Content-Type", "text/html; charset=UTF-8")
	_, _ = io.WriteString(writer, text) // the client may be gone
}

// authenticate finds who asks: headers, basic authentication or parameters, in that order.
func (h *Handler) authenticate(r *http.Request) (Login, error) {
	name, password := r.Header.Get("X-ClickHouse-User"), r.Header.Get("X-ClickHouse-Key")
	if name == "" {
		if user, pass, ok := r.BasicAuth(); ok {
			name, password = user, pass
		} else {
			name, password = r.URL.Query().Get("user"), r.URL.Query().Get("password")
		}
	}
	if h.trusted && (name == "" || name == "default") {
		return Login{Name: "default"}, nil
	}
	if name == "" && password == "" {
		return Login{}, refuseStatement(codeRequired, "This listener wants a user and a password")
	}
	for _, login := range h.logins {
		if login.Name == name && samePassword(login.Password, password) {
			return login, nil
		}
	}
	return Login{}, refuseStatement(
		codeAuthFailed,
		"%s: Authentication failed: the password is wrong, or there is no such login",
		name,
	)
}

// samePassword compares in constant time. An empty password never opens anything.
func samePassword(want, have string) bool {
	a, b := sha256.Sum256([]byte(want)), sha256.Sum256([]byte(have))
	return want != "" && subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// serve runs one statement.
func (h *Handler) serve(writer http.ResponseWriter, r *http.Request, req *request, login Login) {
	reading := login.ReadOnly || req.reading
	st := examineSQL(req.sql)
	a := newAnswer(writer, req)
	if req.queryID == "" {
		req.queryID = randomName(16)
	}
	header := writer.Header()
	header.Set("X-ClickHouse-Query-Id", req.queryID)
	header.Set("X-ClickHouse-Server-Display-Name", h.pool.identity.displayName)
	header.Set("X-ClickHouse-Timezone", h.pool.identity.timezone)
	if st.several {
		a.failAnswer(
			refuseStatement(
				codeSyntaxError,
				"Syntax error (Multi-statements are not allowed): a request holds one statement",
			),
		)
		return
	}
	if reading {
		if err := h.pool.mayRead(req.sql); err != nil {
			a.failAnswer(err)
			return
		}
	}
	s, err := h.pool.borrowSession(
		r.Context(),
		wish{database: req.database, settings: req.settings, reading: reading},
	)
	if err != nil {
		a.failAnswer(err)
		return
	}
	run := &run{session: s, pool: h.pool, req: req, st: st, answer: a}
	stats, err := run.do(r.Context())
	h.pool.giveBack(s, err == nil && !st.changesSession())
	if err != nil {
		h.note(req, err)
		a.failAnswer(err)
		return
	}
	if err := a.finishAnswer(stats); err != nil {
		a.failAnswer(err)
	}
}

// note logs a failure that an operator should hear of. What the client did wrong, only the
// client hears.
func (h *Handler) note(req *request, err error) {
	level := slog.LevelDebug
	if e := asException(err); !errors.Is(err, errGone) && isEngineTrouble(e.Code) {
		level = slog.LevelWarn
	}
	h.log.Log(
		context.Background(),
		level,
		"a statement failed in the ClickHouse engine",
		"query_id",
		req.queryID,
		"error",
		err,
	)
}

// run is one statement on one session.
type run struct {
	session *session
	pool    *Pool
	req     *request
	st      statement
	answer  *answer
}

func (r *run) do(ctx context.Context) (chdb.Stats, error) {
	format := r.req.format
	if r.st.format != "" && !r.st.rows {
		format = r.st.format
	}
	h := r.answer.w.Header()
	h.Set("Content-Type", contentType(format))
	h.Set("X-ClickHouse-Format", format)
	switch {
	case strings.TrimSpace(r.req.sql) == helloQuery && r.req.format == "Native":
		_, err := r.answer.Write(r.pool.identity.helloBlock(r.req.protocol))
		return chdb.Stats{ResultRows: 1}, err
	case r.st.rows && (r.req.body != nil || r.st.format != "Values"):
		return r.insert()
	}
	if r.st.endsWithClient() {
		defer r.pool.killWhenOver(ctx, r.session)()
	}
	if r.st.canStream() && inPieces(format) {
		stats, err := r.stream()
		if !notStreamed(err) {
			return stats, err
		}
	}
	return r.whole()
}

// inPieces tells the formats whose pieces make the whole when they stand one behind the other.
// The engine writes each piece as if it were all: a format with a head or a foot would have one
// for each.
func inPieces(format string) bool {
	return slices.Contains(
		[]string{
			"Native",
			"TabSeparated",
			"TSV",
			"TabSeparatedRaw",
			"TSVRaw",
			"CSV",
			"JSONEachRow",
			"JSONCompactEachRow",
			"JSONStringsEachRow",
			"RowBinary",
			"LineAsString",
			"RawBLOB",
			"Vertical",
			"TSKV",
			"MsgPack",
		},
		format,
	)
}

// notStreamed recognises the engine's refusal to stream a statement that begins like a SELECT
// and is none, such as WITH ... INSERT. Nothing has run then.
func notStreamed(err error) bool {
	var e *chdb.Error
	return errors.As(err, &e) && e.Code == codeBadArguments &&
		strings.Contains(e.Message, "Streaming query is not supported")
}

// stream sends a result piece by piece.
func (r *run) stream() (chdb.Stats, error) {
	rows, err := r.session.conn.Stream(r.req.sql, r.req.format, r.req.params...)
	if err != nil {
		return chdb.Stats{}, err
	}
	defer rows.Close()
	for {
		piece, err := rows.Next()
		if errors.Is(err, io.EOF) {
			return rows.Stats(), nil
		}
		if err != nil {
			return rows.Stats(), err
		}
		if _, err := r.answer.Write(piece); err != nil {
			return rows.Stats(), err
		}
	}
}

// whole runs a statement whose result, if any, comes in one piece.
func (r *run) whole() (chdb.Stats, error) {
	result, err := r.session.conn.Query(r.req.sql, r.req.format, r.req.params...)
	if err != nil {
		return chdb.Stats{}, err
	}
	defer result.Close()
	if b := result.Bytes(); len(b) > 0 {
		if _, err := r.answer.Write(b); err != nil {
			return chdb.Stats{}, err
		}
	}
	return result.Stats(), nil
}

// insertPiece is how much of a body is handed to the engine at once.
const insertPiece = 1 << 20

// insert streams rows into the engine: those in the statement's text first, then the body.
// Nothing is committed unless both were read to their proper end.
func (r *run) insert() (chdb.Stats, error) {
	body := r.req.body
	if body == nil {
		body = bufio.NewReader(strings.NewReader(""))
	}
	insert, err := r.session.conn.Insert(r.st.head, r.st.format, r.req.params...)
	if err != nil {
		return chdb.Stats{}, err
	}
	defer insert.Cancel() // does nothing after Done
	if err := insert.Append([]byte(r.st.inline)); err != nil {
		return chdb.Stats{}, err
	}
	piece := make([]byte, insertPiece)
	for {
		n, readErr := body.Read(piece)
		if err := insert.Append(piece[:n]); err != nil {
			return chdb.Stats{}, err
		}
		if errors.Is(readErr, io.EOF) {
			break
		}
		if readErr != nil {
			return chdb.Stats{}, bodyError(readErr)
		}
	}
	// A whole body is committed even if its client has closed its side by now: it sent all it
	// meant to.
	return insert.Done()
}
