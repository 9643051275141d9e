// Package chdb binds the C interface of libchdb, the ClickHouse engine as a library, without cgo.
//
// A process loads the library once ([Open]) and works on one data path. Connections to it
// ([Library.Connect]) are sessions: each runs one statement at a time, and a Conn must not be
// used by two goroutines at once (its owner is whoever took it from the pool). Everything the
// engine hands out is freed here: a [Result] and a [Stream] by Close, an [Insert] by Done or
// Cancel. Bytes they return are engine memory, valid only until the next call on the same
// value.
//
// Calls block an operating-system thread for as long as the engine works; the engine knows
// nothing of contexts. To stop a running statement, run KILL QUERY on another connection.
package chdb

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/ebitengine/purego"
)

// ErrConnect is what the engine answers, without a reason, when it cannot open a data path:
// most often another process has it open, or it is not writable.
var ErrConnect = errors.New("the ClickHouse engine could not open its data path")

// Library is libchdb, loaded into this process.
type Library struct {
	path string

	setSignalHandlers func(enabled int32)
	version           func() string
	connect           func(argc int32, argv unsafe.Pointer) unsafe.Pointer
	closeConn         func(conn unsafe.Pointer)
	classify          func(conn, sql unsafe.Pointer, sqlLen uintptr, db unsafe.Pointer, dbLen uintptr, out unsafe.Pointer) int32

	query       queryFunc
	streamQuery queryFunc
	streamFetch func(conn, result unsafe.Pointer) unsafe.Pointer
	streamStop  func(conn, result unsafe.Pointer)

	insert        queryFunc
	insertAppend  func(stream, data unsafe.Pointer, n uintptr) int32
	insertDone    func(stream unsafe.Pointer) unsafe.Pointer
	insertCancel  func(stream unsafe.Pointer)
	insertError   func(stream unsafe.Pointer) string
	insertDestroy func(stream unsafe.Pointer)

	resultBuffer       func(result unsafe.Pointer) unsafe.Pointer
	resultLength       func(result unsafe.Pointer) uintptr
	resultError        func(result unsafe.Pointer) string
	resultRowsRead     func(result unsafe.Pointer) uint64
	resultRowsWritten  func(result unsafe.Pointer) uint64
	resultBytesWritten func(result unsafe.Pointer) uint64
	storageRowsRead    func(result unsafe.Pointer) uint64
	storageBytesRead   func(result unsafe.Pointer) uint64
	destroyResult      func(result unsafe.Pointer)
}

// queryFunc is the shape shared by the three calls that take a statement, a format and named
// parameters.
type queryFunc func(conn unsafe.Pointer, sql unsafe.Pointer, sqlLen uintptr, format unsafe.Pointer, formatLen uintptr,
	names, nameLens, values, valueLens unsafe.Pointer, params uintptr) unsafe.Pointer

// Open loads the library at path and keeps the engine from installing signal handlers: with
// them, a Go panic that the runtime would have recovered hangs the process. Nothing is opened
// on disk yet.
func Open(path string) (*Library, error) {
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("load the ClickHouse engine library %s: %w", path, err)
	}
	library := &Library{path: path}
	for _, s := range library.symbols() {
		address, err := purego.Dlsym(handle, s.name)
		if err != nil {
			return nil, fmt.Errorf(
				"%s is not a libchdb of version 26.7 or newer: it lacks %s",
				path,
				s.name,
			)
		}
		purego.RegisterFunc(s.into, address)
	}
	library.setSignalHandlers(0)
	return library, nil
}

type symbol struct {
	name string
	into any
}

func (l *Library) symbols() []symbol {
	return []symbol{
		{"chdb_set_signal_handlers_enabled", &l.setSignalHandlers},
		{"chdb_version", &l.version},
		{"chdb_connect", &l.connect},
		{"chdb_close_conn", &l.closeConn},
		{"chdb_classify_query_n", &l.classify},
		{"chdb_query_with_params_n", &l.query},
		{"chdb_stream_query_with_params_n", &l.streamQuery},
		{"chdb_stream_fetch_result", &l.streamFetch},
		{"chdb_stream_cancel_query", &l.streamStop},
		{"chdb_stream_insert_with_params_n", &l.insert},
		{"chdb_stream_append", &l.insertAppend},
		{"chdb_stream_done", &l.insertDone},
		{"chdb_stream_cancel_insert", &l.insertCancel},
		{"chdb_stream_insert_error", &l.insertError},
		{"chdb_destroy_insert_stream", &l.insertDestroy},
		{"chdb_result_buffer", &l.resultBuffer},
		{"chdb_result_length", &l.resultLength},
		{"chdb_result_error", &l.resultError},
		{"chdb_result_rows_read", &l.resultRowsRead},
		{"chdb_result_rows_written", &l.resultRowsWritten},
		{"chdb_result_bytes_written", &l.resultBytesWritten},
		{"chdb_result_storage_rows_read", &l.storageRowsRead},
		{"chdb_result_storage_bytes_read", &l.storageBytesRead},
		{"chdb_destroy_query_result", &l.destroyResult},
	}
}

// Version is the library's own version, like "26.7.3".
func (l *Library) Version() string { return l.version() }

// Connect opens a session. args are command-line options without a program name, like
// "--path=/var/lib/muster/ch" or "--max_threads=2"; settings among them hold for this session
// only, server options only for the first session of the process. The error is ErrConnect when
// the engine gave no reason.
func (l *Library) Connect(args ...string) (*Conn, error) {
	argv := make([]*byte, 0, len(args)+2)
	for _, a := range append([]string{"chdb"}, args...) {
		c := append([]byte(a), 0)
		argv = append(argv, &c[0])
	}
	argv = append(argv, nil)
	handle := l.connect(int32(len(argv)-1), unsafe.Pointer(&argv[0]))
	runtime.KeepAlive(argv)
	if handle == nil || *(*unsafe.Pointer)(handle) == nil {
		return nil, ErrConnect
	}
	return &Conn{lib: l, handle: handle}, nil
}

// Class tells what a statement does, as the engine's own parser sees it.
type Class uint32

// The classes, in rising order of what a caller may want to forbid.
const (
	ReadOnly       Class = 0 // SELECT, SHOW, DESCRIBE, EXPLAIN, EXISTS, CHECK
	Mutating       Class = 1 // changes a database
	MutatingGlobal Class = 2 // functions, named collections, access entities, the system database
	Control        Class = 3 // SET, USE, SYSTEM, KILL, BACKUP, INTO OUTFILE, INSERT INTO FUNCTION
	Unknown        Class = 4 // did not parse
)

// Analysis is what the engine's parser says about a text.
type Analysis struct {
	Statements int // 0 when the text did not parse
	Class      Class
	Flags      uint32
}

// analysisV1 mirrors the library's report structure; Size tells it which version we know.
type analysisV1 struct{ Size, Statements, Flags, Class uint32 }
