package embedded

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/musterhpc/muster/accounting/embedded/front"
)

// Options say how the engine process runs. Args and ParseArgs carry them over a command line,
// but for Log.
type Options struct {
	Data    string // folder of the engine's files, made when missing (0700); required
	Library string // libchdb.so; "" means FindLibrary
	Socket  string // unix socket; "" means Data/engine.sock
	TCP     string // host:port to listen on beside the socket, "" for none; needs Logins
	TLSCert string // PEM files that make TCP speak TLS; both or none
	TLSKey  string
	Logins  []Login

	Writers int // statements of full logins at once; 0 means 32
	Readers int // statements of reading logins at once; 0 means 8
	Memory  int // MiB that the engine may use; 0 means 90 % of the machine's

	Config string // file of ClickHouse's own configuration, as of users and their rights; "" for none

	Settings map[string]string // ClickHouse settings of every session
	Reading  map[string]string // and of reading logins; nil means DefaultReading

	Grace time.Duration // for running statements when told to stop, before they are killed; 0 means 10 s

	// TCPOptional keeps the engine running where the TCP listener cannot be had, for want of a
	// password, a certificate or a free address: an error in the log says so. The parent's own
	// socket must not depend on what others read.
	TCPOptional bool

	UntilEOF bool // stop when standard input ends: it is a pipe that the parent holds

	Log *slog.Logger // nil means JSON lines on standard error
}

// Login is a name for the TCP listener. Its password is the first line of a file that others
// cannot read.
type Login struct {
	Name         string
	PasswordFile string
	ReadOnly     bool
}

// safeSettings adds to the settings of every session what keeps answers right,
// whoever asks: what the engine compiles out of expressions that it has met a
// few times is wrong for 128-bit numbers (26.7: greatest(x, 0) of a negative
// Int128 gives x), and amounts of use are such numbers.
//
// Skip indexes are looked at before anything is read: left to the reading, all
// parts of a table are opened with all columns that are asked for, and a store
// of three years has a part or more for each month.
//
// Two rewrites of the query tree are off: they find nothing in our queries, and took 45 % of
// the time to plan the longest of them (the goodput ladder: 0.60 -> 0.33 s of CPU).
func safeSettings(settings map[string]string) map[string]string {
	out := map[string]string{
		"compile_expressions":            "0",
		"compile_aggregate_expressions":  "0",
		"use_skip_indexes_on_data_read":  "0",
		"optimize_syntax_fuse_functions": "0",
		"optimize_and_compare_chain":     "0",
	}
	maps.Copy(out, settings)
	return out
}

// DefaultReading bounds what one statement of a reading login may cost: seconds, bytes.
// Functions that look into the engine's own process are off.
func DefaultReading() map[string]string {
	return map[string]string{
		"max_execution_time":            "120",
		"max_memory_usage":              "2147483648",
		"allow_introspection_functions": "0",
	}
}

// maxSocketPath is what the kernel's socket address holds, less its final zero.
const maxSocketPath = 107

// withDefaults checks o, fills in defaults and makes paths absolute. All errors at once.
func (o Options) withDefaults() (Options, error) {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	absolute := func(path *string) {
		if *path == "" {
			return
		}
		full, err := filepath.Abs(*path)
		if err != nil {
			fail("path %s: %w", *path, err)
			return
		}
		*path = full
	}
	if o.Data == "" {
		fail("--data is required: the folder for the engine's files")
	} else if o.Socket == "" {
		o.Socket = filepath.Join(o.Data, "engine.sock")
	}
	if o.Library == "" {
		var err error
		o.Library, err = FindLibrary()
		if err != nil {
			errs = append(errs, err)
		}
	}
	o.Logins = slices.Clone(o.Logins)
	for _, p := range []*string{&o.Data, &o.Library, &o.Socket, &o.TLSCert, &o.TLSKey, &o.Config} {
		absolute(p)
	}
	for i := range o.Logins {
		absolute(&o.Logins[i].PasswordFile)
		if o.Logins[i].Name == "" || o.Logins[i].PasswordFile == "" {
			fail("a login needs a name and a password file")
		}
	}
	if len(o.Socket) > maxSocketPath {
		fail(
			"the socket path %s is longer than the %d bytes that the kernel allows: give a shorter one with --socket",
			o.Socket,
			maxSocketPath,
		)
	}
	if o.TCP != "" && len(o.Logins) == 0 {
		fail(
			"--tcp needs a login with a password (--reader or --writer NAME=PASSWORD_FILE): only the socket is open without one",
		)
	}
	if (o.TLSCert == "") != (o.TLSKey == "") {
		fail("--tls-cert and --tls-key go together")
	}
	if o.Grace <= 0 {
		o.Grace = 10 * time.Second
	}
	if o.Reading == nil {
		o.Reading = DefaultReading()
	}
	return o, errors.Join(errs...)
}

// readPasswords reads the logins' password files.
func (o Options) readPasswords() ([]front.Login, error) {
	var logins []front.Login
	for _, login := range o.Logins {
		info, err := os.Stat(login.PasswordFile)
		if err != nil {
			return nil, fmt.Errorf("password of login %s: %w", login.Name, err)
		}
		if info.Mode().Perm()&0o007 != 0 {
			return nil, fmt.Errorf(
				"password of login %s: %s can be read by everyone; chmod o-rwx it",
				login.Name,
				login.PasswordFile,
			)
		}
		text, err := os.ReadFile(login.PasswordFile)
		if err != nil {
			return nil, fmt.Errorf("password of login %s: %w", login.Name, err)
		}
		line, _, _ := strings.Cut(string(text), "\n")
		line = strings.TrimSuffix(line, "\r")
		if line == "" {
			return nil, fmt.Errorf(
				"password of login %s: the first line of %s is empty",
				login.Name,
				login.PasswordFile,
			)
		}
		logins = append(
			logins, front.Login{Name: login.Name, Password: line, ReadOnly: login.ReadOnly},
		)
	}
	return logins, nil
}

// Args is o as the arguments that ParseArgs reads.
func (o Options) Args() []string {
	var args []string
	text := func(name, value string) {
		if value != "" {
			args = append(args, "--"+name+"="+value)
		}
	}
	number := func(name string, n int) {
		if n != 0 {
			text(name, strconv.Itoa(n))
		}
	}
	text("data", o.Data)
	text("library", o.Library)
	text("socket", o.Socket)
	text("tcp", o.TCP)
	text("tls-cert", o.TLSCert)
	text("tls-key", o.TLSKey)
	text("config", o.Config)
	for _, login := range o.Logins {
		kind := "writer"
		if login.ReadOnly {
			kind = "reader"
		}
		text(kind, login.Name+"="+login.PasswordFile)
	}
	number("writers", o.Writers)
	number("readers", o.Readers)
	number("memory", o.Memory)
	for _, name := range slices.Sorted(maps.Keys(o.Settings)) {
		text("setting", name+"="+o.Settings[name])
	}
	for _, name := range slices.Sorted(maps.Keys(o.Reading)) {
		text("reading-setting", name+"="+o.Reading[name])
	}
	if o.Grace != 0 {
		text("grace", o.Grace.String())
	}
	if o.TCPOptional {
		args = append(args, "--tcp-optional")
	}
	if o.UntilEOF {
		args = append(args, "--until-eof")
	}
	return args
}

// ParseArgs reads the command line of the engine process. flag.ErrHelp is returned, with the
// usage written to usage, when it was asked for.
func ParseArgs(args []string, usage io.Writer) (Options, error) {
	var options Options
	f := flag.NewFlagSet("embedded-clickhouse", flag.ContinueOnError)
	f.SetOutput(usage)
	f.StringVar(&options.Data, "data", "", "`folder` of the engine's files (required)")
	f.StringVar(
		&options.Library,
		"library",
		"",
		"`path` of libchdb.so (default: MUSTER_LIBCHDB, the cache of deploy/engine/fetch.sh, /usr/lib/muster)",
	)
	f.StringVar(
		&options.Socket,
		"socket",
		"",
		"unix socket `path`, mode 0600 (default: engine.sock in the data folder)",
	)
	f.StringVar(&options.TCP, "tcp", "", "also listen on `host:port`; needs a login")
	f.StringVar(&options.TLSCert, "tls-cert", "", "PEM `file` with the certificate for --tcp")
	f.StringVar(&options.TLSKey, "tls-key", "", "PEM `file` with its key")
	f.Func(
		"reader",
		"`name=password-file` of a login that may only read (repeatable)",
		options.addLogin(true),
	)
	f.Func(
		"writer",
		"`name=password-file` of a login that may do everything (repeatable)",
		options.addLogin(false),
	)
	f.StringVar(
		&options.Config,
		"config",
		"",
		"`file` of ClickHouse's own configuration; the statements of all logins are those of its user default",
	)
	f.IntVar(&options.Writers, "writers", 0, "statements of full logins at once (default 32)")
	f.IntVar(&options.Readers, "readers", 0, "statements of reading logins at once (default 8)")
	f.IntVar(
		&options.Memory,
		"memory",
		0,
		"`MiB` the engine may use (default: 90 % of the machine's)",
	)
	f.Func(
		"setting",
		"ClickHouse setting `name=value` of every session (repeatable)",
		addPair(&options.Settings),
	)
	f.Func(
		"reading-setting",
		"ClickHouse setting `name=value` of reading logins (repeatable; replaces the defaults)",
		addPair(&options.Reading),
	)
	f.DurationVar(
		&options.Grace,
		"grace",
		0,
		"`time` that running statements may take to end when told to stop (default 10s)",
	)
	f.BoolVar(
		&options.TCPOptional,
		"tcp-optional",
		false,
		"run without --tcp where it cannot be listened on, and log why",
	)
	f.BoolVar(&options.UntilEOF, "until-eof", false, "stop when standard input ends")
	if err := f.Parse(args); err != nil {
		return Options{}, err
	}
	if f.NArg() > 0 {
		return Options{}, fmt.Errorf("embedded-clickhouse takes options only, not %q", f.Arg(0))
	}
	return options, nil
}

func (o *Options) addLogin(readOnly bool) func(string) error {
	return func(value string) error {
		name, file, ok := strings.Cut(value, "=")
		if !ok || name == "" || file == "" {
			return errors.New("it has the form NAME=PASSWORD_FILE")
		}
		o.Logins = append(o.Logins, Login{Name: name, PasswordFile: file, ReadOnly: readOnly})
		return nil
	}
}

func addPair(into *map[string]string) func(string) error {
	return func(value string) error {
		name, v, ok := strings.Cut(value, "=")
		if !ok || name == "" {
			return errors.New("it has the form NAME=VALUE")
		}
		if *into == nil {
			*into = map[string]string{}
		}
		(*into)[name] = v
		return nil
	}
}
