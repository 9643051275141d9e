package front

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/musterhpc/muster/accounting/embedded/chdb"
)

// PoolOptions shape a Pool. Zero fields take the defaults named.
type PoolOptions struct {
	Writers  int               // sessions for full logins at once; 32
	Readers  int               // sessions for reading logins at once; 8
	Settings map[string]string // of every session
	// Reading settings are those of every reading session, beside Settings. A request may lower
	// max_execution_time and max_memory_usage but not raise them.
	Reading map[string]string
	Log     *slog.Logger
}

// Pool owns the engine's sessions in this process. It keeps one of its own open from beginning
// to end, since closing the last one would shut the engine down.
type Pool struct {
	lib     *chdb.Library
	path    string
	options PoolOptions
	writers chan struct{} // a token a borrowed session
	readers chan struct{}

	rootMu sync.Mutex
	root   *chdb.Conn // for KILL QUERY and for questions about statements

	mu      sync.Mutex
	idle    []*session // most recently used last
	lastTag uint64
	closed  bool

	identity identity
	denied   map[string]bool // functions that reading logins may not name
}

// identity is what the engine calls itself.
type identity struct{ displayName, version, timezone string }

// session is one engine session with what has been applied to it.
type session struct {
	conn     *chdb.Conn
	tag      string // prefix of its log_comment, by which KILL QUERY finds what it runs
	database string
	settings map[string]string // beyond the pool's own
	reading  bool
}

// ErrClosed is returned once the pool has been closed.
var ErrClosed = errors.New("the ClickHouse engine is shutting down")

// NewPool opens the engine on path. args are server options of the engine, like
// "--backups.allowed_path=/x".
func NewPool(lib *chdb.Library, path string, args []string, options PoolOptions) (*Pool, error) {
	if options.Writers <= 0 {
		options.Writers = 32
	}
	if options.Readers <= 0 {
		options.Readers = 8
	}
	if options.Log == nil {
		options.Log = slog.Default()
	}
	pool := &Pool{lib: lib, path: path, options: options,
		writers: make(
			chan struct{},
			options.Writers,
		), readers: make(chan struct{}, options.Readers)}
	var err error
	pool.root, err = lib.Connect(append([]string{"--path=" + path}, args...)...)
	if err != nil {
		return nil, err
	}
	if err := pool.learn(); err != nil {
		pool.root.Close()
		return nil, fmt.Errorf("ask the ClickHouse engine who it is: %w", err)
	}
	return pool, nil
}

// learn asks what stays true while the engine runs.
func (p *Pool) learn() error {
	rows, err := p.ask("SELECT displayName(), version(), timezone()")
	if err != nil {
		return err
	}
	p.identity = identity{rows[0][0], rows[0][1], rows[0][2]}
	// A table function that a read-only user may not call reaches files or other machines. The
	// engine holds to that in SELECT but not in DESCRIBE. Names that are also ordinary
	// functions are harmless, but for the ones below.
	rows, err = p.ask(
		"SELECT name FROM system.table_functions WHERE NOT allow_readonly AND name NOT IN (SELECT name FROM system.functions)",
	)
	if err != nil {
		return err
	}
	// These read files as ordinary functions, from anywhere: the engine trusts its user.
	p.denied = map[string]bool{"file": true, "catboostevaluate": true}
	for _, r := range rows {
		p.denied[strings.ToLower(r[0])] = true
	}
	return nil
}

// ask runs a question on the pool's own session and returns its rows as text.
func (p *Pool) ask(sql string) ([][]string, error) {
	p.rootMu.Lock()
	defer p.rootMu.Unlock()
	if p.root == nil {
		return nil, ErrClosed
	}
	result, err := p.root.Query(sql, "TSVRaw")
	if err != nil {
		return nil, err
	}
	defer result.Close()
	var rows [][]string
	for line := range strings.Lines(string(result.Bytes())) {
		rows = append(rows, strings.Split(strings.TrimSuffix(line, "\n"), "\t"))
	}
	return rows, nil
}

// classifySQL asks the engine's parser what sql does.
func (p *Pool) classifySQL(sql string) (chdb.Analysis, error) {
	p.rootMu.Lock()
	defer p.rootMu.Unlock()
	if p.root == nil {
		return chdb.Analysis{}, ErrClosed
	}
	return p.root.Classify(sql)
}

// Close ends every session and with the last one the engine. Borrowed sessions are waited for
// until ctx is over; then the engine is left running for the process's end to stop, and the
// error says so.
func (p *Pool) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	for _, s := range idle {
		s.conn.Close()
	}
	for _, slots := range []chan struct{}{p.writers, p.readers} {
		for range cap(slots) {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return fmt.Errorf("statements still run in the ClickHouse engine: %w", ctx.Err())
			}
		}
	}
	p.rootMu.Lock()
	defer p.rootMu.Unlock()
	if p.root == nil {
		return nil
	}
	p.root.Close() // the last one: the engine stops its merges and closes its files
	p.root = nil
	return nil
}

// wish is what a request wants of its session.
type wish struct {
	database string // "" means default
	settings []setting
	reading  bool
}

// borrowSession waits for a free place and returns a session prepared for w. Whoever borrows
// gives back.
func (p *Pool) borrowSession(ctx context.Context, w wish) (*session, error) {
	slots := p.writers
	if w.reading {
		slots = p.readers
	}
	select {
	case slots <- struct{}{}:
	case <-ctx.Done():
		return nil, refuseStatement(
			codeTooManyQueries,
			"all %d sessions of the embedded engine were busy until the request was given up",
			cap(slots),
		)
	}
	s, err := p.pick(w)
	if err == nil {
		err = p.prepare(s, w)
	}
	if err != nil {
		if s != nil {
			s.conn.Close()
		}
		<-slots
		return nil, err
	}
	return s, nil
}

// giveBack ends a loan. Unless clean, the session is thrown away.
func (p *Pool) giveBack(s *session, clean bool) {
	p.mu.Lock()
	keep := clean && !s.reading && !p.closed
	if keep {
		p.idle = append(p.idle, s)
	}
	p.mu.Unlock()
	if !keep {
		s.conn.Close()
	}
	if s.reading {
		<-p.readers
	} else {
		<-p.writers
	}
}

// pick takes an idle session, best one that needs no preparation, or opens one.
func (p *Pool) pick(w wish) (*session, error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, ErrClosed
	}
	if !w.reading && len(p.idle) > 0 {
		i := len(p.idle) - 1
		for j, s := range slices.Backward(p.idle) {
			if s.database == w.databaseName() && len(s.settings) == len(w.settings) &&
				len(s.changes(w.settings, nil)) == 0 {
				i = j
				break
			}
		}
		s := p.idle[i]
		p.idle = slices.Delete(p.idle, i, i+1)
		p.mu.Unlock()
		return s, nil
	}
	p.lastTag++
	s := &session{
		tag:      "muster/" + strconv.FormatUint(p.lastTag, 10) + ";",
		database: "default",
		reading:  w.reading,
	}
	p.mu.Unlock()
	args := []string{"--path=" + p.path, "--log_comment=" + s.tag}
	for _, name := range slices.Sorted(maps.Keys(p.options.Settings)) {
		args = append(args, "--"+name+"="+p.options.Settings[name])
	}
	var err error
	s.conn, err = p.lib.Connect(args...)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (w wish) databaseName() string {
	if w.database == "" {
		return "default"
	}
	return w.database
}

// prepare brings database and settings of s to what w wants.
func (p *Pool) prepare(s *session, w wish) error {
	if want := w.databaseName(); s.database != want {
		if err := s.conn.Exec("USE " + quoteName(want)); err != nil {
			return err
		}
		s.database = want
	}
	wanted := w.settings
	if s.reading {
		wanted = p.limited(wanted)
	}
	changes := s.changes(wanted, p.options.Settings)
	if s.reading {
		changes = append(changes, "readonly = 1")
	}
	if len(changes) == 0 {
		return nil
	}
	if err := s.conn.Exec("SET " + strings.Join(changes, ", ")); err != nil {
		return err
	}
	s.settings = make(map[string]string, len(wanted))
	for _, set := range wanted {
		s.settings[set.name] = set.value
	}
	return nil
}

// changes lists the assignments that turn the settings of s into wanted; base is what a setting
// goes back to.
func (s *session) changes(wanted []setting, base map[string]string) []string {
	var out []string
	named := make(map[string]bool, len(wanted))
	for _, set := range wanted {
		named[set.name] = true
		if have, ok := s.settings[set.name]; ok && have == set.value {
			continue
		}
		value := set.value
		if set.name == "log_comment" {
			value = s.tag + " " + value
		}
		out = append(out, set.name+" = "+quoteText(value))
	}
	for _, name := range slices.Sorted(maps.Keys(s.settings)) {
		if named[name] {
			continue
		}
		back, ok := base[name]
		switch {
		case name == "log_comment":
			out = append(out, name+" = "+quoteText(s.tag))
		case ok:
			out = append(out, name+" = "+quoteText(back))
		default:
			out = append(out, name+" = DEFAULT")
		}
	}
	return out
}

// limited adds the reading settings to those a request wants; where both give a limit, the
// smaller one holds.
func (p *Pool) limited(wanted []setting) []setting {
	settings := make([]setting, 0, len(wanted)+len(p.options.Reading))
	given := map[string]string{}
	for _, set := range wanted {
		given[set.name] = set.value
		if _, ours := p.options.Reading[set.name]; !ours && set.name != "readonly" {
			settings = append(settings, set)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.options.Reading)) {
		value := p.options.Reading[name]
		theirs, err1 := strconv.ParseUint(given[name], 10, 64)
		ours, err2 := strconv.ParseUint(value, 10, 64)
		if err1 == nil && err2 == nil && theirs > 0 && theirs < ours {
			value = given[name]
		}
		settings = append(settings, setting{name, value})
	}
	return settings
}

// killEvery is how long KILL QUERY is given before it is sent again: a statement may have been
// between two states.
const killEvery = 100 * time.Millisecond

// killWhenOver stops what s runs once ctx is over. The caller calls the returned function when
// the statement has returned; after that nothing is killed any more.
func (p *Pool) killWhenOver(ctx context.Context, s *session) func() {
	returned, ended := make(chan struct{}), make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		again := time.NewTicker(killEvery)
		defer again.Stop()
		for {
			// ASYNC: a failed statement stays listed until its session's next one, and SYNC
			// would wait for it.
			if _, err := p.ask("KILL QUERY WHERE startsWith(Settings['log_comment'], " +
				quoteText(s.tag) + ") ASYNC"); err != nil {
				p.options.Log.Warn(
					"a statement whose client has gone could not be stopped",
					"session",
					s.tag,
					"error",
					err,
				)
			}
			select {
			case <-returned:
				return
			case <-again.C:
			}
		}
	})
	return func() {
		close(returned)
		if !stop() {
			<-ended
		}
	}
}

// quoteText is s as a string literal.
func quoteText(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(text) + "'"
}

// quoteName is s as a quoted identifier.
func quoteName(text string) string {
	return "`" + strings.NewReplacer(`\`, `\\`, "`", "\\`").Replace(text) + "`"
}
