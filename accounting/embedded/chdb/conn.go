package chdb

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"runtime"
	"strconv"
	"unsafe"
)

// Conn is one session of the engine. It runs one statement at a time.
type Conn struct {
	lib    *Library
	handle unsafe.Pointer // address of the C handle; nil once closed
}

// Param is a named query parameter: its value in ClickHouse's escaped text form, as in an HTTP
// request's param_name.
type Param struct{ Name, Value string }

// Stats counts what a statement read and wrote.
type Stats struct {
	ResultRows, ReadRows, ReadBytes, WrittenRows, WrittenBytes uint64
}

// Error is an exception of the engine. Code is ClickHouse's error code, 0 when the text carried
// none.
type Error struct {
	Code    int
	Message string // with its "Code: 60. DB::Exception: " prefix
}

func (e *Error) Error() string { return e.Message }

var errClosed = errors.New("the ClickHouse engine connection is closed")

// codePattern finds the code that every engine message starts with.
var codePattern = regexp.MustCompile(`^\s*Code:\s*(\d+)\.`)

// newError wraps an engine message; "" gives nil.
func newError(message string) error {
	if message == "" {
		return nil
	}
	e := &Error{Message: message}
	if m := codePattern.FindStringSubmatch(message); m != nil {
		e.Code, _ = strconv.Atoi(m[1]) // digits only; an overflow leaves 0
	}
	return e
}

// conn is the C handle that calls take.
func (c *Conn) conn() unsafe.Pointer { return *(*unsafe.Pointer)(c.handle) }

// Close ends the session and frees it. Closing the last one of a process shuts the engine down.
func (c *Conn) Close() {
	if c.handle == nil {
		return
	}
	c.lib.closeConn(c.handle)
	c.handle = nil
}

// Query runs any one statement and holds its whole result in engine memory. The error is *Error
// when the engine refused the statement.
func (c *Conn) Query(sql, format string, params ...Param) (*Result, error) {
	if c.handle == nil {
		return nil, errClosed
	}
	return c.result(c.call(c.lib.query, sql, format, params))
}

// Exec runs a statement whose result nobody wants.
func (c *Conn) Exec(sql string) error {
	result, err := c.Query(sql, "Null")
	if err != nil {
		return err
	}
	result.Close()
	return nil
}

// Classify parses sql without running it.
func (c *Conn) Classify(sql string) (Analysis, error) {
	if c.handle == nil {
		return Analysis{}, errClosed
	}
	out := &analysisV1{Size: uint32(unsafe.Sizeof(analysisV1{}))}
	p, n := view(sql)
	if state := c.lib.classify(c.conn(), p, n, nil, 0, unsafe.Pointer(out)); state != 0 {
		return Analysis{}, fmt.Errorf(
			"the ClickHouse engine could not classify a statement (state %d)",
			state,
		)
	}
	return Analysis{Statements: int(out.Statements), Class: Class(out.Class), Flags: out.Flags}, nil
}

// Stream runs a SELECT or WITH and returns its result piece by piece. Other statements answer
// error 36.
func (c *Conn) Stream(sql, format string, params ...Param) (*Stream, error) {
	if c.handle == nil {
		return nil, errClosed
	}
	raw := c.call(c.lib.streamQuery, sql, format, params)
	if raw == nil {
		return nil, newError("the ClickHouse engine returned no result handle")
	}
	if err := newError(c.lib.resultError(raw)); err != nil {
		c.lib.destroyResult(raw)
		return nil, err
	}
	return &Stream{conn: c, raw: raw}, nil
}

// Insert begins an INSERT whose rows follow through Append, in the given format. sql ends
// before any FORMAT clause.
func (c *Conn) Insert(sql, format string, params ...Param) (*Insert, error) {
	if c.handle == nil {
		return nil, errClosed
	}
	raw := c.call(c.lib.insert, sql, format, params)
	if raw == nil {
		return nil, newError("the ClickHouse engine returned no insert handle")
	}
	if err := newError(c.lib.insertError(raw)); err != nil {
		c.lib.insertDestroy(raw)
		return nil, err
	}
	return &Insert{conn: c, raw: raw}, nil
}

// call passes a statement with its parameters. The arrays live on the Go heap, which does not
// move, until the call returns; the engine copies what it keeps.
func (c *Conn) call(f queryFunc, sql, format string, params []Param) unsafe.Pointer {
	s, sn := view(sql)
	fm, fn := view(format)
	if len(params) == 0 {
		return f(c.conn(), s, sn, fm, fn, nil, nil, nil, nil, 0)
	}
	names, nameLens := make([]unsafe.Pointer, len(params)), make([]uintptr, len(params))
	values, valueLens := make([]unsafe.Pointer, len(params)), make([]uintptr, len(params))
	for i, param := range params {
		names[i], nameLens[i] = view(param.Name)
		values[i], valueLens[i] = view(param.Value)
	}
	raw := f(c.conn(), s, sn, fm, fn, unsafe.Pointer(&names[0]), unsafe.Pointer(&nameLens[0]),
		unsafe.Pointer(&values[0]), unsafe.Pointer(&valueLens[0]), uintptr(len(params)))
	runtime.KeepAlive(params)
	runtime.KeepAlive(names)
	runtime.KeepAlive(nameLens)
	runtime.KeepAlive(values)
	runtime.KeepAlive(valueLens)
	return raw
}

// zero is what an empty string points at: some calls treat a null pointer as a missing argument.
//
//muster:global never written: only its address is used
var zero = new(byte)

// view gives the address and length of s without copying it.
func view(text string) (unsafe.Pointer, uintptr) {
	if text == "" {
		return unsafe.Pointer(zero), 0
	}
	return unsafe.Pointer(unsafe.StringData(text)), uintptr(len(text))
}

// result takes ownership of raw: a Result, or its error with raw freed.
func (c *Conn) result(raw unsafe.Pointer) (*Result, error) {
	if raw == nil {
		return nil, newError("the ClickHouse engine returned no result handle")
	}
	if err := newError(c.lib.resultError(raw)); err != nil {
		c.lib.destroyResult(raw)
		return nil, err
	}
	return &Result{lib: c.lib, raw: raw}, nil
}

// Result is a finished statement's output.
type Result struct {
	lib *Library
	raw unsafe.Pointer
}

// Bytes is the output in the format asked for; engine memory, valid until Close.
func (r *Result) Bytes() []byte {
	p, n := r.lib.resultBuffer(r.raw), r.lib.resultLength(r.raw)
	if p == nil || n == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(p), n)
}

// Stats tells what the statement read and wrote.
func (r *Result) Stats() Stats {
	return Stats{
		ResultRows:   r.lib.resultRowsRead(r.raw),
		ReadRows:     r.lib.storageRowsRead(r.raw),
		ReadBytes:    r.lib.storageBytesRead(r.raw),
		WrittenRows:  r.lib.resultRowsWritten(r.raw),
		WrittenBytes: r.lib.resultBytesWritten(r.raw),
	}
}

// Close frees the output. It may be called more than once.
func (r *Result) Close() {
	if r.raw != nil {
		r.lib.destroyResult(r.raw)
		r.raw = nil
	}
}

// Stream is a SELECT that is being read.
type Stream struct {
	conn  *Conn
	raw   unsafe.Pointer
	chunk *Result
	stats Stats
	ended bool // the engine has nothing more to say: no cancel needed
}

// Next returns the next piece of output, valid until the following Next or Close; io.EOF after
// the last.
func (s *Stream) Next() ([]byte, error) {
	s.freeChunk()
	if s.ended {
		return nil, io.EOF
	}
	result, err := s.conn.result(s.conn.lib.streamFetch(s.conn.conn(), s.raw))
	if err != nil {
		s.ended = true
		return nil, err
	}
	stats := result.Stats()
	s.stats.ResultRows += stats.ResultRows
	s.stats.ReadRows += stats.ReadRows
	s.stats.ReadBytes += stats.ReadBytes
	data := result.Bytes()
	if len(data) == 0 {
		result.Close()
		s.ended = true
		return nil, io.EOF
	}
	s.chunk = result
	return data, nil
}

// Stats tells what has been read so far.
func (s *Stream) Stats() Stats { return s.stats }

// Close frees the stream, stopping the statement first if it has not ended.
func (s *Stream) Close() {
	if s.raw == nil {
		return
	}
	s.freeChunk()
	if !s.ended {
		s.conn.lib.streamStop(s.conn.conn(), s.raw)
	}
	s.conn.lib.destroyResult(s.raw)
	s.raw = nil
}

func (s *Stream) freeChunk() {
	if s.chunk != nil {
		s.chunk.Close()
		s.chunk = nil
	}
}

// Insert is an INSERT that is being fed.
type Insert struct {
	conn *Conn
	raw  unsafe.Pointer
}

// Append feeds data, blocking while the engine is busy. After an error only Cancel may follow;
// the error says why the engine stopped reading.
func (i *Insert) Append(data []byte) error {
	if len(data) == 0 {
		return nil
	}
	if i.conn.lib.insertAppend(i.raw, unsafe.Pointer(&data[0]), uintptr(len(data))) == 0 {
		return nil
	}
	if err := newError(i.conn.lib.insertError(i.raw)); err != nil {
		return err
	}
	// The stream's own message is set only when it is finished.
	_, err := i.Done()
	if err == nil {
		err = newError("the ClickHouse engine stopped reading the rows of an INSERT")
	}
	return err
}

// Done commits the rows and frees the insert.
func (i *Insert) Done() (Stats, error) {
	if i.raw == nil {
		return Stats{}, errClosed
	}
	result, err := i.conn.result(i.conn.lib.insertDone(i.raw))
	i.destroy()
	if err != nil {
		return Stats{}, err
	}
	defer result.Close()
	return result.Stats(), nil
}

// Cancel drops the rows and frees the insert. After Done it does nothing. Rows beyond the
// engine's insert block size (about a million, or 256 MiB) may already have been written.
func (i *Insert) Cancel() {
	if i.raw == nil {
		return
	}
	i.conn.lib.insertCancel(i.raw)
	i.destroy()
}

func (i *Insert) destroy() {
	i.conn.lib.insertDestroy(i.raw)
	i.raw = nil
}
