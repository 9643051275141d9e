package conffile

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
)

// DefaultPath is where muster.yaml is looked for without --config and PathVariable.
const DefaultPath = "/etc/muster/muster.yaml"

// PathVariable is the environment variable that names muster.yaml. It holds for the
// daemons and for every command, so that one setting chooses the cluster for all of them.
const PathVariable = "MUSTER_CONFIG"

// AddFlag adds --config to the flags of a command (a pflag.FlagSet). It sets path to what
// PathVariable says, or to DefaultPath, until the command line is read.
func AddFlag(flags interface {
	StringVar(p *string, name, value, usage string)
}, path *string, usage string) {
	value := cmp.Or(os.Getenv(PathVariable), DefaultPath)
	flags.StringVar(path, "config", value, usage+" (environment: "+PathVariable+")")
}

// Load reads, completes and checks the file at path. Relative paths in it are
// taken from its folder. The error is Problems, or says why the file could not
// be read (errors.Is fs.ErrNotExist when it is missing).
func Load(path string) (*Config, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	data, err := readLimited(file)
	if err != nil {
		return nil, fmt.Errorf("configuration: %s: %w", path, err)
	}
	// What is read later, by programs that may have changed their folder or that
	// look from the root, needs the whole path.
	folder, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("configuration: %s: %w", path, err)
	}
	return Parse(Source{Name: path, Folder: folder, Data: data, Mode: info.Mode().Perm()})
}

// Source is a file that was read.
type Source struct {
	Name   string // for messages
	Folder string // where relative paths start; "" means the folder of Name
	Data   []byte
	Mode   fs.FileMode // permissions: a file that others can read holds no secret
}

// Parse reads, completes and checks a file's content; it touches no other file.
func Parse(src Source) (*Config, error) {
	config := Defaults()
	d := decodeFile(src.Name, src.Data, config)
	if len(d.problems) == 0 {
		// Values that were not understood would only make false alarms below.
		d.problems = append(d.problems, config.inContext(src, d.lines)...)
	}
	if err := d.problems.asError(); err != nil {
		return nil, err
	}
	return config, nil
}

func (c *Config) inContext(src Source, lines map[string]int) Problems {
	c.absolute(cmp.Or(src.Folder, filepath.Dir(src.Name)))
	given := c.ClickHouse
	c.Fill()
	v := validator{file: src.Name, lines: lines}
	v.refuseExposedSecrets(given, src.Mode)
	c.check(&v)
	return v.problems
}

// Fill gives the values that follow from others where they are empty.
func (c *Config) Fill() {
	derive := func(at *string, dir, name string) {
		if *at == "" {
			*at = filepath.Join(dir, name)
		}
	}
	derive(&c.Socket, c.RunDir, "muster.sock")
	derive(&c.AccountingSocket, c.RunDir, "accounting.sock")
	derive(&c.RESTSocket, c.RunDir, "rest.sock")
	derive(&c.TLS.Dir, c.StateDir, "tls")
	derive(&c.Ledger.ArchiveDir, c.StateDir, "archive")
	if c.UsesEmbedded() {
		derive(&c.ClickHouse.Embedded.DataDir, c.StateDir, "clickhouse")
		derive(&c.ClickHouse.Embedded.Socket, c.RunDir, "clickhouse.sock")
		derive(&c.ClickHouse.Embedded.ListenPasswordFile, c.StateDir, "clickhouse-reader.password")
	}
}

// UsesEmbedded tells whether accounting is stored by the embedded engine.
func (c *Config) UsesEmbedded() bool { return c.ClickHouse.DSN == "" && c.ClickHouse.DSNFile == "" }

// absolute resolves every path that was written relative, from dir.
func (c *Config) absolute(dir string) {
	eachPath(reflect.ValueOf(c).Elem(), func(_ string, v reflect.Value) {
		if p := v.String(); p != "" && !filepath.IsAbs(p) {
			v.SetString(filepath.Join(dir, p))
		}
	}, "")
}

// EachPath visits the keys that name a file, folder or socket, with the path that they
// name; the keys that are empty are left out.
func (c *Config) EachPath(visit func(key, path string)) {
	eachPath(reflect.ValueOf(c).Elem(), func(key string, v reflect.Value) {
		if v.String() != "" {
			visit(key, v.String())
		}
	}, "")
}

// eachPath visits the fields that are paths.
func eachPath(value reflect.Value, visit func(path string, v reflect.Value), prefix string) {
	for i := range value.NumField() {
		f := value.Type().Field(i)
		name := prefix + f.Tag.Get("yaml")
		switch {
		case f.Type.Kind() == reflect.Struct:
			eachPath(value.Field(i), visit, name+".")
		case f.Tag.Get("kind") == "path":
			visit(name, value.Field(i))
		}
	}
}

// ErrExposed tells that a file with a secret can be read by others.
var ErrExposed = errors.New("can be read by others")

// DataSource gives the DSN of the ClickHouse server, from the file itself or
// from dsn_file, or "" for the embedded engine. It reads the file each time, so
// that a changed password is taken up at the next connection.
func (c *Config) DataSource() (Secret, error) {
	if c.ClickHouse.DSNFile == "" {
		return c.ClickHouse.DSN, nil
	}
	file, err := os.Open(c.ClickHouse.DSNFile)
	if err != nil {
		return "", fmt.Errorf("clickhouse.dsn_file: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "", fmt.Errorf("clickhouse.dsn_file: %w", err)
	}
	if m := info.Mode().Perm(); m&0o077 != 0 {
		return "", fmt.Errorf(
			"clickhouse.dsn_file: %s %w (mode %04o): chmod 600 it",
			c.ClickHouse.DSNFile,
			ErrExposed,
			m,
		)
	}
	data, err := readLimited(file)
	if err != nil {
		return "", fmt.Errorf("clickhouse.dsn_file: %s: %w", c.ClickHouse.DSNFile, err)
	}
	dsn := strings.TrimSpace(string(data))
	if text := badDSN(dsn); text != "" {
		return "", fmt.Errorf("clickhouse.dsn_file: %s: %s", c.ClickHouse.DSNFile, text)
	}
	return Secret(dsn), nil
}
