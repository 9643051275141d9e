package conffile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/mail"
	"net/url"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/spec"
)

// maxFile is the size up to which a configuration is read, in bytes.
const maxFile = 1 << 20

var errTooLarge = errors.New("is larger than 1 MiB, which no configuration is")

func readLimited(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = errTooLarge
	}
	return data, err
}

// Validate checks what must hold between the values of a configuration that
// was filled. The error is Problems.
func (c *Config) Validate() error {
	v := validator{file: "configuration"}
	c.check(&v)
	return v.problems.asError()
}

type validator struct {
	file     string
	lines    map[string]int // where each given key stands
	problems Problems
}

func (v *validator) add(path, format string, args ...any) {
	v.problems = append(
		v.problems,
		Problem{v.file, v.lines[path], path, fmt.Sprintf(format, args...)},
	)
}

// between reports a value outside its bounds; the bounds print themselves.
func between[T ~int64](v *validator, path string, value, least, most T, show func(T) string) {
	if value < least || value > most {
		v.add(
			path,
			"%s is out of range: it must be between %s and %s",
			show(value),
			show(least),
			show(most),
		)
	}
}

var (
	clusterName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)
	labelName   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// checkREST looks at the address of the slurmrestd that an observer asks.
func (c *Config) checkREST(v *validator) {
	path, socket := strings.CutPrefix(c.Observe.REST, "unix:")
	u, err := url.Parse(c.Observe.REST)
	switch {
	case c.Observe.REST == "" || socket && filepath.IsAbs(path):
	case socket || err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "":
		v.add(
			"observe.rest",
			"%q is not the address of a slurmrestd: such as http://slurm:6820 or unix:/run/slurmrestd.sock",
			c.Observe.REST,
		)
	}
}

func (c *Config) check(v *validator) {
	if c.ClusterName != "" && !clusterName.MatchString(c.ClusterName) {
		v.add("cluster_name", "%q is not a cluster's name: use letters, digits, hyphens and underscores, 63 at most", c.ClusterName)
	}
	for _, f := range []struct{ path, value string }{{"state_dir", c.StateDir}, {"run_dir", c.RunDir}, {"slurm_conf", c.SlurmConf}} {
		if f.value == "" {
			v.add(f.path, "must not be empty")
		}
	}
	c.checkSockets(v)
	c.checkListen(v)
	c.checkClickHouse(v)
	number := func(n int64) string { return fmt.Sprint(n) }
	between(v, "ledger.reserve_bytes", c.Ledger.ReserveBytes, 16*MiB, 1*TiB, Size.String)
	between(v, "ledger.snapshot_every", c.Ledger.SnapshotEvery, 1_000, 100_000_000, number)
	between(v, "controller.election_timeout", c.Controller.ElectionTimeout, 100*spec.Millisecond, spec.Minute, formatSpan)
	between(v, "ledger.retention", c.Ledger.Retention, spec.Day, spec.Infinite, formatSpan)
	between(v, "gpu.idle_after", c.GPU.IdleAfter, 10*spec.Second, spec.Infinite, formatSpan)
	between(v, "gpu.idle_grace", c.GPU.IdleGrace, 0, spec.Infinite, formatSpan)
	between(v, "observe.interval", c.Observe.Interval, 5*spec.Second, spec.Hour, formatSpan)
	between(v, "observe.accounting_every", c.Observe.AccountingEvery, 5*spec.Second, spec.Day, formatSpan)
	between(v, "observe.history", c.Observe.History, spec.Day, 10*366*spec.Day, formatSpan)
	between(v, "observe.timeout", c.Observe.Timeout, 1*spec.Second, 10*spec.Minute, formatSpan)
	c.checkREST(v)
	between(v, "tls.rotate_keys", c.TLS.RotateKeys, 40*spec.Day, spec.Infinite, formatSpan)
	between(v, "tokens.max_lifespan", c.Tokens.MaxLifespan, spec.Second, spec.Infinite, formatSpan)
	between(v, "telemetry.interval", c.Telemetry.Interval, 1*spec.Second, spec.Hour, formatSpan)
	between(v, "telemetry.samples_interval", c.Telemetry.SamplesInterval, spec.Second, spec.Infinite, formatSpan)
	if every := c.Telemetry.SamplesInterval; every != spec.Infinite && (every%spec.Second != 0 || every > 12*spec.Hour) {
		v.add("telemetry.samples_interval", "%s is not a whole number of seconds up to 12 hours, or infinite", formatSpan(every))
	}
	between(v, "accounting.samples_keep", c.Accounting.SamplesKeep, spec.Day, spec.Infinite, formatSpan)
	for table, keep := range c.Accounting.Retention() {
		between(v, "accounting."+table+"_keep", keep, spec.Day, spec.Infinite, formatSpan)
	}
	if dir := c.Accounting.Archive; dir != "" && !filepath.IsAbs(dir) {
		v.add("accounting.archive", "%q is not the path of a folder from the root on", dir)
	}
	between(v, "telemetry.push_interval", c.Telemetry.PushInterval, 1*spec.Second, spec.Hour, formatSpan)
	if text := c.Telemetry.PushURL; text != "" {
		if u, err := url.Parse(text); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			v.add("telemetry.push_url", "%q is not the URL of a web server: such as http://vmagent:8429/api/v1/import/prometheus", text)
		}
	}
	if text := c.Web.AlertmanagerURL; text != "" {
		if u, err := url.Parse(text); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			v.add("web.alertmanager_url", "%q is not the URL of a web server: such as http://alertmanager:9093", text)
		}
	}
	between(v, "accounting.batch_rows", c.Accounting.BatchRows, 1, 1_000_000, number)
	between(v, "accounting.batch_interval", c.Accounting.BatchInterval, 10*spec.Millisecond, spec.Minute, formatSpan)
	reserved := []string{"gpu", "UUID", "device", "modelName", "hostname", "user", "account", "partition", "job", "instance", "le", "quantile"}
	switch name := c.Telemetry.JobLabelName; {
	case !labelName.MatchString(name) || strings.HasPrefix(name, "__"):
		v.add("telemetry.job_label_name", "%q is not a label's name: use letters, digits and underscores", name)
	case slices.Contains(reserved, name):
		v.add("telemetry.job_label_name", "%q is the name of another label", name)
	}
	switch name := c.Telemetry.ClusterLabel; {
	case name == "":
	case !labelName.MatchString(name) || strings.HasPrefix(name, "__"):
		v.add("telemetry.cluster_label", "%q is not a label's name: use letters, digits and underscores", name)
	case slices.Contains(reserved, name) || name == c.Telemetry.JobLabelName || slices.Contains([]string{"slurm_job_id", "pci_bus_id", "GPU_I_PROFILE", "GPU_I_ID", "DCGM_FI_DRIVER_VERSION"}, name):
		v.add("telemetry.cluster_label", "%q is the name of another label", name)
	}
	if _, err := c.Rates(); err != nil {
		v.add("cost", "%s", err.Error())
	}
	if _, err := c.Objectives(); err != nil {
		key, text, _ := strings.Cut(err.Error(), ": ")
		v.add(key, "%s", text)
	}
	between(v, "health.interval", c.Health.Interval, spec.Second, spec.Infinite, formatSpan)
	if _, err := c.Health.HealthRules(); err != nil {
		v.add("health.rules", "%s", err.Error())
	}
	for _, path := range c.Health.Paths {
		if !filepath.IsAbs(path) {
			v.add("health.paths", "%q is not the path of a folder from the root on", path)
		}
	}
	if size := c.Containers.CacheSize; size != 0 && size < GiB {
		v.add("containers.cache_size", "%s is too small for an image: give at least 1GiB, or 0", size)
	}
	if file := c.Containers.RegistryAuth; file != "" && !filepath.IsAbs(file) {
		v.add("containers.registry_auth", "%q is not a path from the root on", file)
	}
	c.checkReports(v)
	c.Audit.check(v)
	v.enums(reflect.ValueOf(c).Elem(), "")
}

// check looks at the places of the audit trail.
func (a *Audit) check(v *validator) {
	between(v, "audit.file_max_size", a.FileMaxSize, 1*MiB, 1*TiB, Size.String)
	between(
		v,
		"audit.file_keep",
		a.FileKeep,
		0,
		10_000,
		func(n int64) string { return strconv.FormatInt(n, 10) },
	)
	if a.Syslog == "" {
		return // what is said of certificates has no effect
	}
	if _, _, err := a.SyslogAddress(); err != nil {
		v.add("audit.syslog", "%s", err.Error())
	}
	if (a.SyslogCert == "") != (a.SyslogKey == "") {
		v.add("audit.syslog_cert", "it goes with syslog_key: name both or neither")
	}
	if encrypted := strings.HasPrefix(a.Syslog, "tls:"); !encrypted &&
		(a.SyslogCA != "" || a.SyslogCert != "") {
		v.add(
			"audit.syslog",
			"%q is not encrypted, and syslog_ca and syslog_cert have no effect: write tls://host:6514, or take them out",
			a.Syslog,
		)
	}
}

// SyslogAddress is the network (unixgram, udp, tcp or tls) and the address of the
// receiver.
func (a *Audit) SyslogAddress() (network, address string, err error) {
	bad := func(why string) (string, string, error) {
		return "", "", fmt.Errorf(
			"%q is not the address of a syslog receiver: %s; expected unix:/dev/log, udp://host:514, tcp://host:601 or tls://host:6514",
			a.Syslog,
			why,
		)
	}
	if path, ok := strings.CutPrefix(a.Syslog, "unix:"); ok {
		path = strings.TrimPrefix(path, "//")
		if !filepath.IsAbs(path) {
			return bad("the path of the socket does not begin with /")
		}
		return "unixgram", path, nil
	}
	u, err := url.Parse(a.Syslog)
	if err != nil {
		return bad(err.Error())
	}
	port := map[string]string{"udp": "514", "tcp": "601", "tls": "6514"}[u.Scheme]
	switch {
	case port == "":
		return bad("it does not begin with unix:, udp://, tcp:// or tls://")
	case u.Hostname() == "" || u.Path != "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return bad("it is not a host and a port")
	}
	if u.Port() != "" {
		port = u.Port()
	}
	return u.Scheme, net.JoinHostPort(u.Hostname(), port), nil
}

// checkReports looks at the schedule of mail.
func (c *Config) checkReports(v *validator) {
	if _, err := c.Reports.Schedule(); err != nil {
		v.add("reports.mail", "%s", err.Error())
	}
	if at := c.Reports.SMTP; at != "" {
		if host, port, err := net.SplitHostPort(at); err != nil || host == "" || port == "" {
			v.add("reports.smtp", "%q is not host:port, such as mail.example.org:25", at)
		}
	}
	switch reports := &c.Reports; {
	case len(reports.Mail) == 0: // nothing is sent
	case (reports.SMTPUser == "") != (reports.SMTPPasswordFile == ""):
		v.add("reports.smtp_user", "it goes with smtp_password_file: name both or neither")
	case reports.SMTPUser != "" && reports.SMTP == "":
		v.add("reports.smtp_user", "it logs in at a mail server: name it with smtp")
	}
	if from := c.Reports.From; from != "" {
		if _, err := mail.ParseAddress(from); err != nil {
			v.add("reports.from", "%q is no address", from)
		}
	}
}

// enums repeats Parse's check of the listed values, for configurations that
// were made by a program.
func (v *validator) enums(s reflect.Value, prefix string) {
	for i := range s.NumField() {
		f := s.Type().Field(i)
		if f.Type.Kind() == reflect.Struct {
			v.enums(s.Field(i), prefix+f.Tag.Get("yaml")+".")
		} else if enum := f.Tag.Get("enum"); enum != "" && !slices.Contains(strings.Split(enum, ","), s.Field(i).String()) {
			v.add(prefix+f.Tag.Get("yaml"), "%q is not one of %s", s.Field(i).String(), strings.ReplaceAll(enum, ",", ", "))
		}
	}
}

// maxSocketPath is what fits into the kernel's sockaddr_un, in bytes.
const maxSocketPath = 107

func (c *Config) checkSockets(v *validator) {
	sockets := []struct{ path, socket, from string }{
		{"socket", c.Socket, "run_dir"},
		{"accounting_socket", c.AccountingSocket, "run_dir"},
		{"rest_socket", c.RESTSocket, "run_dir"},
		{"clickhouse.embedded.socket", c.ClickHouse.Embedded.Socket, "run_dir"},
	}
	for _, s := range sockets {
		if len(s.socket) <= maxSocketPath {
			continue
		}
		at := s.path
		if v.lines[at] == 0 {
			at = s.from // the socket follows from it
		}
		v.add(
			at,
			"the socket %s has a path of %d bytes, and the kernel takes %d: choose a shorter one",
			s.socket,
			len(s.socket),
			maxSocketPath,
		)
	}
	if c.Socket != "" && c.Socket == c.ClickHouse.Embedded.Socket {
		v.add("clickhouse.embedded.socket", "%s is the path of socket already", c.Socket)
	}
}

// checkListen finds two listeners on one address. All of them may run on one
// machine.
func (c *Config) checkListen(v *validator) {
	l := reflect.ValueOf(c.Listen)
	first := map[Addr]string{}
	for i := range l.NumField() {
		path := "listen." + l.Type().Field(i).Tag.Get("yaml")
		addr := Addr(l.Field(i).String())
		if addr.Off() {
			continue
		}
		if other, taken := first[addr]; taken {
			if v.lines[path] == 0 &&
				v.lines[other] > 0 { // the other one was written, this one is a default
				path, other = other, path
			}
			v.add(path, "%s is the address of %s already", addr, other)
		}
		first[addr] = path
	}
}

func (c *Config) checkClickHouse(v *validator) {
	ch := c.ClickHouse
	if ch.DSN != "" {
		if text := badDSN(ch.DSN.Reveal()); text != "" {
			v.add("clickhouse.dsn", "%s", text)
		}
		if ch.DSNFile != "" {
			v.add("clickhouse.dsn_file", "stands beside clickhouse.dsn: only one of them can hold")
		}
	}
	if c.UsesEmbedded() {
		between(
			v,
			"clickhouse.embedded.max_memory",
			ch.Embedded.MaxMemory,
			512*MiB,
			16*TiB,
			Size.String,
		)
		between(
			v,
			"clickhouse.embedded.max_query_memory",
			ch.Embedded.MaxQueryMemory,
			64*MiB,
			16*TiB,
			Size.String,
		)
		if ch.Embedded.MaxQueryMemory > ch.Embedded.MaxMemory {
			v.add(
				"clickhouse.embedded.max_query_memory",
				"%s is more than max_memory (%s)",
				ch.Embedded.MaxQueryMemory,
				ch.Embedded.MaxMemory,
			)
		}
		ch.Embedded.checkListen(v)
		return
	}
	for _, key := range keysOf(reflect.TypeFor[Embedded]()) {
		if path := "clickhouse.embedded." + key; v.lines[path] > 0 {
			v.add(path, "has no effect beside a DSN: take it out, or take the DSN out")
		}
	}
}

// readerName is what the login of listen may be called.
var readerName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,62}$`)

// checkListen looks at the listener for Grafana.
func (e *Embedded) checkListen(v *validator) {
	const at = "clickhouse.embedded."
	between(
		v,
		at+"listen_max_queries",
		e.ListenMaxQueries,
		1,
		64,
		func(n int64) string { return strconv.FormatInt(n, 10) },
	)
	between(v, at+"listen_max_time", e.ListenMaxTime, spec.Second, spec.Hour, formatSpan)
	if !readerName.MatchString(e.ListenUser) {
		v.add(
			at+"listen_user",
			"%q is not a name for a login: letters, digits, - and _, as in grafana",
			e.ListenUser,
		)
	}
	if e.Listen.Off() {
		return
	}
	if (e.ListenCert == "") != (e.ListenKey == "") {
		v.add(at+"listen_cert", "it goes with listen_key: name both or neither")
	}
	if host, _, err := net.SplitHostPort(e.ReaderAddress()); err == nil && e.ListenCert == "" &&
		host != "localhost" &&
		!net.ParseIP(host).IsLoopback() {
		v.add(
			at+"listen",
			"%s would send the password and every row in the clear: name listen_cert and listen_key, or listen on 127.0.0.1 and run Grafana, or a tunnel, on this host",
			e.Listen,
		)
	}
}

// ReaderAddress is where listen listens: without a host on this one only. Empty
// means nowhere.
func (e *Embedded) ReaderAddress() string {
	host, port, err := net.SplitHostPort(string(e.Listen))
	switch {
	case err != nil:
		return ""
	case host == "":
		return net.JoinHostPort("127.0.0.1", port)
	}
	return string(e.Listen)
}

// badDSN says what is wrong with a DSN, without repeating what may be secret.
func badDSN(dsn string) string {
	u, err := url.Parse(dsn)
	schemes := []string{"clickhouse", "tcp", "http", "https"}
	switch {
	case err != nil || u.Opaque != "" || !slices.Contains(schemes, u.Scheme):
		return "is not a DSN: write http://user@host:8123/database (or https, clickhouse, tcp)"
	case u.Host == "":
		return "names no host"
	}
	return ""
}

// refuseExposedSecrets refuses a password in a file that others can read.
func (v *validator) refuseExposedSecrets(ch ClickHouse, mode fs.FileMode) {
	u, err := url.Parse(ch.DSN.Reveal())
	if err != nil || ch.DSN == "" {
		return // reported by badDSN
	}
	_, inUser := u.User.Password()
	if (inUser || u.Query().Has("password")) && mode&0o077 != 0 {
		v.add(
			"clickhouse.dsn",
			"holds a password, and the file can be read by others (mode %04o): chmod 600 %s, or move the DSN into a file of mode 0600 and name it in clickhouse.dsn_file",
			mode,
			v.file,
		)
	}
}
