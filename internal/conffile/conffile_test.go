package conffile_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/conffile/confdoc"
	"github.com/musterhpc/muster/spec"
)

func parse(text string) (*conffile.Config, error) {
	return conffile.Parse(conffile.Source{Name: "/etc/muster/muster.yaml", Data: []byte(text), Mode: 0o644})
}

// TestBadFiles shows what is said about each mistake. A case is a file and,
// below the line, every problem or "fine".
func TestBadFiles(t *testing.T) {
	datadriven.RunTest(t, "testdata/bad.txt", func(t *testing.T, d *datadriven.TestData) string {
		mode := "0644"
		d.MaybeScanArgs(t, "mode", &mode)
		perm, err := strconv.ParseUint(mode, 8, 32)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		_, err = conffile.Parse(conffile.Source{Name: "muster.yaml", Data: []byte(d.Input), Mode: fs.FileMode(perm)})
		if err == nil {
			return "fine\n"
		}
		var ps conffile.Problems
		if !errors.As(err, &ps) {
			t.Errorf("%s: %T is not Problems", d.Pos, err)
		}
		if strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: a secret is printed", d.Pos)
		}
		return err.Error() + "\n"
	})
}

func TestDefaults(t *testing.T) {
	c, err := parse("")
	if err != nil {
		t.Fatal(err)
	}
	want := conffile.Defaults()
	want.Fill()
	if !reflect.DeepEqual(c, want) {
		t.Errorf("an empty file gives %+v", c)
	}
	if c.Socket != "/run/muster/muster.sock" || c.ClickHouse.Embedded.DataDir != "/var/lib/muster/clickhouse" || c.TLS.Dir != "/var/lib/muster/tls" {
		t.Errorf("derived paths: %+v", c)
	}
	if c.Listen.GRPC != ":6817" || !c.UsesEmbedded() || c.Ledger.Retention != spec.Infinite {
		t.Errorf("defaults: %+v", c)
	}
}

func TestPathsStartFromTheFolderOfTheFile(t *testing.T) {
	c, err := parse("slurm_conf: ../slurm/slurm.conf\nstate_dir: state\nclickhouse: {embedded: {library: /opt/libchdb.so}}\n")
	if err != nil {
		t.Fatal(err)
	}
	if c.SlurmConf != "/etc/slurm/slurm.conf" || c.StateDir != "/etc/muster/state" || c.Ledger.ArchiveDir != "/etc/muster/state/archive" ||
		c.ClickHouse.Embedded.Library != "/opt/libchdb.so" {
		t.Errorf("paths: %+v", c)
	}
}

// TestAnnotated: the file that init writes means the defaults, and each of its
// lines can be uncommented on its own.
func TestAnnotated(t *testing.T) {
	text := conffile.Annotated()
	want, err := parse("")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := parse(text); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("the annotated file does not mean the defaults: %v", err)
	}
	key := regexp.MustCompile(`(?m)^( *)#([a-z_]+:)`)
	lines := strings.Split(text, "\n")
	found := 0
	for i, line := range lines {
		if !key.MatchString(line) {
			continue
		}
		found++
		one := append([]string(nil), lines...)
		one[i] = key.ReplaceAllString(line, "$1$2")
		if _, err := parse(strings.Join(one, "\n")); err != nil {
			t.Errorf("line %d (%s) uncommented: %v", i+1, strings.TrimSpace(line), err)
		}
	}
	scalars := 0
	for _, k := range conffile.Keys() {
		if !k.Section() {
			scalars++
		}
	}
	if found != scalars {
		t.Errorf("the annotated file shows %d keys of %d", found, scalars)
	}
}

// TestGeneratedFilesAreFresh holds the committed files to the comments.
func TestGeneratedFilesAreFresh(t *testing.T) {
	source, err := os.ReadFile("config.go")
	if err != nil {
		t.Fatal(err)
	}
	comments, err := confdoc.Read(source)
	if err != nil {
		t.Fatal(err)
	}
	for path, render := range map[string]func(confdoc.Comments) (string, error){
		"default.yaml": confdoc.Annotated, "../../docs/muster.yaml.md": confdoc.Markdown,
	} {
		want, err := render(comments)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s is stale: run `make generate`", path)
		}
	}
}

// TestRoundTrip: what YAML writes, Parse reads back.
func TestRoundTrip(t *testing.T) {
	name := rapid.StringMatching(`[a-z][a-z0-9_]{0,20}`)
	path := rapid.StringMatching(`/[a-z0-9 :#'"{}.-]{1,20}[a-z]`)
	rapid.Check(t, func(t *rapid.T) {
		c := conffile.Defaults()
		c.ClusterName = name.Draw(t, "cluster")
		c.StateDir = filepath.Clean(path.Draw(t, "state"))
		c.SlurmConf = filepath.Clean(path.Draw(t, "conf"))
		c.Listen.REST = conffile.Addr(rapid.SampledFrom([]string{"", ":1", "[::1]:6820", "h:2"}).Draw(t, "rest"))
		c.Ledger.ReserveBytes = conffile.Size(rapid.Int64Range(int64(16*conffile.MiB), int64(conffile.TiB)).Draw(t, "reserve"))
		c.Ledger.Retention = spec.Span(rapid.OneOf(rapid.Int64Range(int64(spec.Day), int64(spec.Infinite)),
			rapid.Just(int64(spec.Infinite)), rapid.Just(int64(30*spec.Day))).Draw(t, "retention"))
		c.Telemetry.Interval = spec.Span(rapid.Int64Range(int64(spec.Second), int64(spec.Hour)).Draw(t, "interval"))
		c.Telemetry.Provider = rapid.SampledFrom([]string{"auto", "dcgm", "nvml", "simulated"}).Draw(t, "provider")
		if rapid.Bool().Draw(t, "server") {
			c.ClickHouse.DSN = "clickhouse://u:p%20%23@db:9000/x"
			c.ClickHouse.Embedded = conffile.Embedded{}
		}
		c.Fill()
		if err := c.Validate(); err != nil {
			t.Fatalf("the configuration drawn is not valid: %v", err)
		}
		text := c.YAML()
		if !c.UsesEmbedded() { // embedded settings beside a DSN are refused, so their defaults come back
			text = regexp.MustCompile(`(?m)^  embedded:\n(    .*\n)*`).ReplaceAll(text, nil)
		}
		got, err := conffile.Parse(conffile.Source{Name: "/x/muster.yaml", Data: text, Mode: 0o600})
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if !c.UsesEmbedded() {
			got.ClickHouse.Embedded = conffile.Embedded{}
		}
		if !reflect.DeepEqual(got, c) {
			t.Fatalf("got  %+v\nwant %+v\n%s", got, c, text)
		}
	})
}

func TestScalarsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := conffile.Size(rapid.Int64Min(0).Draw(t, "size"))
		if got, err := conffile.ParseSize(s.String()); err != nil || got != s {
			t.Fatalf("%d prints as %s and reads as %d (%v)", s, s, got, err)
		}
	})
	for text, want := range map[string]conffile.Size{
		"0": 0, "1048576": conffile.MiB, "256MiB": 256 * conffile.MiB, "256M": 256 * conffile.MiB, "4 GiB": 4 * conffile.GiB, "1tib": conffile.TiB, "7B": 7,
	} {
		if got, err := conffile.ParseSize(text); err != nil || got != want {
			t.Errorf("%q reads as %d (%v)", text, got, err)
		}
	}
	for text, want := range map[string]spec.Span{
		"0": 0, "200ms": 200 * spec.Millisecond, "1h30m": 90 * spec.Minute, "7d": 7 * spec.Day, "2w": 14 * spec.Day, "forever": spec.Infinite,
	} {
		if got, err := conffile.ParseSpan(text); err != nil || got != want {
			t.Errorf("%q reads as %d (%v)", text, got, err)
		}
	}
	for _, text := range []string{"", "d", "-1d", "10", "5 minutes", "999999999999d", "1h forever"} {
		if got, err := conffile.ParseSpan(text); err == nil {
			t.Errorf("%q reads as %d", text, got)
		}
	}
}

// TestSecretsStaySecret tries the ways a value gets printed.
func TestSecretsStaySecret(t *testing.T) {
	c := conffile.Defaults()
	c.ClickHouse.DSN = "clickhouse://muster:geheim@db:9000/muster"
	var out bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&out, nil))
	log.Info("x", "dsn", c.ClickHouse.DSN, "config", c)
	fmt.Fprintf(&out, "%v %+v %#v %s %q %v", c, c, c, c.ClickHouse.DSN, c.ClickHouse.DSN, c.ClickHouse)
	if err := json.NewEncoder(&out).Encode(c); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "geheim") {
		t.Errorf("printed: %s", out.String())
	}
	if !strings.Contains(out.String(), "[hidden]") {
		t.Error("a secret that is set does not show as hidden")
	}
}

func TestDataSource(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "dsn")
	conf := filepath.Join(dir, "muster.yaml")
	write := func(path, text string, mode fs.FileMode) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	write(conf, "clickhouse: {dsn_file: dsn}\n", 0o644)
	c, err := conffile.Load(conf)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.DataSource(); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "clickhouse.dsn_file") {
		t.Errorf("missing dsn_file: %v", err)
	}
	write(file, "clickhouse://u:geheim@db:9000\n", 0o640)
	if _, err := c.DataSource(); !errors.Is(err, conffile.ErrExposed) || strings.Contains(err.Error(), "geheim") {
		t.Errorf("readable dsn_file: %v", err)
	}
	write(file, "clickhouse://u:geheim@db:9000\n", 0o600)
	if dsn, err := c.DataSource(); err != nil || dsn.Reveal() != "clickhouse://u:geheim@db:9000" {
		t.Errorf("dsn %q, %v", dsn.Reveal(), err)
	}
	write(file, "geheim\n", 0o600)
	if _, err := c.DataSource(); err == nil || strings.Contains(err.Error(), "geheim") {
		t.Errorf("a DSN that is none: %v", err)
	}
	write(file, strings.Repeat("x", 2<<20), 0o600)
	if _, err := c.DataSource(); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("a huge file: %v", err)
	}
}

func TestLoadSaysWhatIsMissing(t *testing.T) {
	_, err := conffile.Load(filepath.Join(t.TempDir(), "muster.yaml"))
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "muster.yaml") {
		t.Errorf("missing file: %v", err)
	}
}

// TestValidateForPrograms: a configuration made in code is held to the same
// rules as a file.
func TestValidateForPrograms(t *testing.T) {
	c := conffile.Defaults()
	c.Fill()
	c.Log.Level = "loud"
	c.Listen.REST = c.Listen.GRPC
	err := c.Validate()
	want := "configuration: listen.rest: 6817 is the address of listen.grpc already\n" +
		`configuration: log.level: "loud" is not one of debug, info, warn, error`
	if err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
}

// TestDecodeOtherStructs: lists of sections, as topology.yaml has them.
func TestDecodeOtherStructs(t *testing.T) {
	type sw struct {
		Name  string   `yaml:"switch"`
		Nodes []string `yaml:"nodes"`
	}
	var topo struct {
		Default  bool `yaml:"default"`
		Switches []sw `yaml:"switches"`
	}
	err := conffile.Decode("topology.yaml", []byte("default: true\nswitches:\n  - switch: s1\n    nodes: [a, b]\n  - switch: s2\n"), &topo)
	if err != nil || !topo.Default || len(topo.Switches) != 2 || topo.Switches[0].Nodes[1] != "b" || topo.Switches[1].Name != "s2" {
		t.Errorf("%+v, %v", topo, err)
	}
	err = conffile.Decode("topology.yaml", []byte("default: maybe\nswitches:\n  - swich: s1\n  - switch: s2\n    nodes: {a: b}\n"), &topo)
	want := `topology.yaml:1: default: "maybe" must be true or false
topology.yaml:3: switches[0].swich: unknown key: did you mean switch?
topology.yaml:5: switches[1].nodes: must be a list`
	if err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
}

// FuzzParse: no input panics, every problem has a text, and what is accepted
// is valid and survives being written and read again.
func FuzzParse(f *testing.F) {
	f.Add("")
	f.Add(conffile.Annotated())
	f.Add("clickhouse: {dsn: 'clickhouse://u:p@h:9000'}\nlisten: {rest: off}\n")
	f.Add("a: &a [*a]\nlog: *a\n")
	f.Add("ledger: {retention: 14d, reserve_bytes: 1TiB}\n---\n")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := conffile.Parse(conffile.Source{Name: "/m/muster.yaml", Data: []byte(text), Mode: 0o600})
		if err != nil {
			var ps conffile.Problems
			if !errors.As(err, &ps) || len(ps) == 0 {
				t.Fatalf("%T: %v", err, err)
			}
			for _, p := range ps {
				if p.Text == "" || p.File == "" || strings.ContainsRune(p.Error(), '\n') {
					t.Fatalf("a problem nobody can read: %+v", p)
				}
			}
			return
		}
		if err := c.Validate(); err != nil {
			t.Fatalf("accepted, but not valid: %v", err)
		}
		if !c.UsesEmbedded() {
			return // its embedded section is refused when it is written out
		}
		again, err := conffile.Parse(conffile.Source{Name: "/m/muster.yaml", Data: c.YAML(), Mode: 0o600})
		if err != nil || !reflect.DeepEqual(again, c) {
			t.Fatalf("written and read again it differs: %v\n%s", err, c.YAML())
		}
	})
}

func BenchmarkParse(b *testing.B) {
	data := []byte(conffile.Annotated())
	for b.Loop() {
		if _, err := conffile.Parse(conffile.Source{Name: "m", Data: data, Mode: 0o644}); err != nil {
			b.Fatal(err)
		}
	}
}

// TestRelativePathsStartFromTheFile: wherever the program runs, paths start from
// the folder of muster.yaml, and they are whole.
func TestRelativePathsStartFromTheFile(t *testing.T) {
	dir := t.TempDir()
	elsewhere := filepath.Join(dir, "elsewhere")
	if err := os.Mkdir(elsewhere, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "muster.yaml"), []byte("slurm_conf: slurm.conf\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for folder, name := range map[string]string{dir: "muster.yaml", elsewhere: "../muster.yaml", "/": filepath.Join(dir, "muster.yaml")} {
		t.Chdir(folder)
		cfg, err := conffile.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		if want := filepath.Join(dir, "slurm.conf"); cfg.SlurmConf != want {
			t.Errorf("in %s, --config %s: slurm_conf is %s, want %s", folder, name, cfg.SlurmConf, want)
		}
	}
}

// TestReaderListener: Grafana's way to the embedded store is off unless it is
// asked for, stays on this host unless it is encrypted, and a refusal says what
// to write instead.
func TestReaderListener(t *testing.T) {
	c := conffile.Defaults()
	if got := c.ClickHouse.Embedded.ReaderAddress(); got != "" {
		t.Errorf("without a word it listens on %s", got)
	}
	for _, tc := range []struct{ yaml, address, problem string }{
		{"listen: 8123", "127.0.0.1:8123", ""},
		{"listen: '[::1]:8123'", "[::1]:8123", ""},
		{"listen: 0.0.0.0:8123", "", "clickhouse.embedded.listen: 0.0.0.0:8123 would send the password and every row in the clear: name listen_cert and listen_key"},
		{"listen: db:8123, listen_cert: /c, listen_key: /k", "db:8123", ""},
		{"listen: 8123, listen_cert: /c", "", "clickhouse.embedded.listen_cert: it goes with listen_key"},
		{"listen: 8123, listen_user: 'a b'", "", "not a name for a login"},
		{"listen: 8123, listen_max_queries: 0", "", "clickhouse.embedded.listen_max_queries: 0 is out of range"},
		{"listen: 8123, listen_max_time: 2h", "", "clickhouse.embedded.listen_max_time"},
	} {
		c, err := conffile.Parse(conffile.Source{Name: "/x/muster.yaml", Data: []byte("clickhouse: {embedded: {" + tc.yaml + "}}\n"), Mode: 0o600})
		switch {
		case tc.problem != "":
			if err == nil || !strings.Contains(err.Error(), tc.problem) {
				t.Errorf("%s: %v, want %q", tc.yaml, err, tc.problem)
			}
		case err != nil:
			t.Errorf("%s: %v", tc.yaml, err)
		case c.ClickHouse.Embedded.ReaderAddress() != tc.address || !strings.HasSuffix(c.ClickHouse.Embedded.ListenPasswordFile, "/clickhouse-reader.password"):
			t.Errorf("%s listens on %s with %s", tc.yaml, c.ClickHouse.Embedded.ReaderAddress(), c.ClickHouse.Embedded.ListenPasswordFile)
		}
	}
}
