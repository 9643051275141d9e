package conffile

import (
	"cmp"
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

// isWebAddress tells whether a text is http:// or https:// with a host.
func isWebAddress(text string) bool {
	address, err := url.Parse(text)
	return err == nil && (address.Scheme == "http" || address.Scheme == "https") &&
		address.Host != ""
}

// checkREST looks at the address of the slurmrestd that an observer asks.
func (c *Config) checkREST(v *validator) {
	path, socket := strings.CutPrefix(c.Observe.REST, "unix:")
	switch {
	case c.Observe.REST == "" || socket && filepath.IsAbs(path):
	case socket || !isWebAddress(c.Observe.REST):
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
	between(v, "controller.raise_after", c.Controller.RaiseAfter, spec.Second, spec.Infinite, formatSpan)
	between(v, "ledger.retention", c.Ledger.Retention, spec.Day, spec.Infinite, formatSpan)
	between(v, "gpu.idle_after", c.GPU.IdleAfter, 10*spec.Second, spec.Infinite, formatSpan)
	between(v, "gpu.idle_grace", c.GPU.IdleGrace, 0, spec.Infinite, formatSpan)
	between(v, "observe.interval", c.Observe.Interval, 5*spec.Second, spec.Hour, formatSpan)
	between(v, "observe.accounting_every", c.Observe.AccountingEvery, 5*spec.Second, spec.Day, formatSpan)
	between(v, "observe.history", c.Observe.History, spec.Day, 10*366*spec.Day, formatSpan)
	between(v, "observe.timeout", c.Observe.Timeout, 1*spec.Second, 10*spec.Minute, formatSpan)
	c.checkREST(v)
	between(v, "tls.rotate_keys", c.TLS.RotateKeys, 40*spec.Day, spec.Infinite, formatSpan)
	between(v, "oidc.session", c.OIDC.Session, 5*spec.Minute, 31*spec.Day, formatSpan)
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
	c.Telemetry.checkPush(v)
	if text := c.Web.AlertmanagerURL; text != "" {
		if address, err := url.Parse(text); err != nil ||
			(address.Scheme != "http" && address.Scheme != "https") || address.Host == "" {
			v.add("web.alertmanager_url", "%q is not the URL of a web server: such as http://alertmanager:9093", text)
		}
	}
	between(v, "accounting.batch_rows", c.Accounting.BatchRows, 1, 1_000_000, number)
	between(v, "accounting.kpi_interval", c.Accounting.KPIInterval, spec.Second, spec.Day, formatSpan)
	between(v, "accounting.kpi_share", c.Accounting.KPIShare, 1, 100, number)
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
	c.Energy.check(v)
	if size := c.Containers.CacheSize; size != 0 && size < GiB {
		v.add("containers.cache_size", "%s is too small for an image: give at least 1GiB, or 0", size)
	}
	if file := c.Containers.RegistryAuth; file != "" && !filepath.IsAbs(file) {
		v.add("containers.registry_auth", "%q is not a path from the root on", file)
	}
	c.checkReports(v)
	c.Audit.check(v)
	c.OTLP.check(v)
	v.enums(reflect.ValueOf(c).Elem(), "")
}

// isHTTPSHost tells whether a text is https:// with a host and no path.
func isHTTPSHost(text string) bool {
	address, err := url.Parse(text)
	return err == nil && address.Scheme == "https" && address.Host != "" &&
		strings.Trim(address.Path, "/") == ""
}

// check looks at how energy is measured.
func (e *Energy) check(v *validator) {
	between(v, "energy.interval", e.Interval, spec.Second, spec.Hour, formatSpan)
	watts := func(n int64) string { return fmt.Sprint(n) }
	between(v, "energy.idle_watts", e.IdleWatts, 0, 100_000, watts)
	address := strings.NewReplacer("%n", "n", "%h", "h").Replace(e.RedfishURL)
	switch {
	case e.RedfishURL == "" && e.Source == "redfish":
		v.add("energy.redfish_url", "is needed where energy.source is redfish: such as https://%%n-bmc")
	case e.RedfishURL != "" && !isHTTPSHost(address):
		v.add("energy.redfish_url", "%q is not https://HOST", e.RedfishURL)
	}
	if e.Source == "redfish" && (e.RedfishUser == "") != (e.RedfishPasswordFile == "") {
		v.add("energy.redfish_user", "and redfish_password_file: name both or neither")
	}
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

// checkPush looks at where metrics are pushed.
func (t *Telemetry) checkPush(v *validator) {
	if t.PushURL == "" {
		return
	}
	if t.PushFormat == "otlp" {
		if _, err := t.PushAddress(); err != nil {
			v.add("telemetry.push_url", "%s", err.Error())
		}
		return
	}
	address, err := url.Parse(t.PushURL)
	isWeb := err == nil && (address.Scheme == "http" || address.Scheme == "https") &&
		address.Host != ""
	example := map[string]string{"remote_write": "http://prometheus:9090/api/v1/write"}[t.PushFormat]
	if !isWeb {
		v.add("telemetry.push_url", "%q is not the URL of a web server: such as %s", t.PushURL, cmp.Or(example, "http://vmagent:8429/api/v1/import/prometheus"))
	}
	if t.PushFormat == "import" && t.PushesFromController() {
		v.add("telemetry.push_from", "the controller does not push in the format import: write push_format: remote_write or otlp")
	}
}

// PushAddress is where metrics are pushed.
func (t *Telemetry) PushAddress() (*url.URL, error) {
	if t.PushFormat == "otlp" {
		collector := OTLP{Endpoint: t.PushURL}
		return collector.Address()
	}
	return url.Parse(t.PushURL)
}

// check looks at the collector.
func (o *OTLP) check(v *validator) {
	between(v, "otlp.timeout", o.Timeout, spec.Second, 5*spec.Minute, formatSpan)
	if o.Endpoint == "" {
		return // the rest has no effect
	}
	at, err := o.Address()
	if err != nil {
		v.add("otlp.endpoint", "%s", err.Error())
		return
	}
	if (o.Cert == "") != (o.Key == "") {
		v.add("otlp.cert", "it goes with key: name both or neither")
	}
	if encrypted := at.Scheme == "grpcs" || at.Scheme == "https"; !encrypted && (o.CA != "" || o.Cert != "") {
		v.add(
			"otlp.endpoint",
			"%q is not encrypted, and ca and cert have no effect: write grpcs:// or https://, or take them out",
			o.Endpoint,
		)
	}
}

// Address is the collector's with the protocol as scheme, and a port.
func (o *OTLP) Address() (*url.URL, error) {
	bad := func(reason string) (*url.URL, error) {
		return nil, fmt.Errorf(
			"%q is not the address of a collector: %s; expected grpc://host:4317, grpcs://host:4317, http://host:4318 or https://host:4318",
			o.Endpoint,
			reason,
		)
	}
	address, err := url.Parse(o.Endpoint)
	if err != nil {
		return bad(err.Error())
	}
	const rpc, web = "4317", "4318"
	port := map[string]string{"grpc": rpc, "grpcs": rpc, "http": web, "https": web}[address.Scheme]
	switch {
	case port == "":
		return bad("it does not begin with grpc://, grpcs://, http:// or https://")
	case address.Hostname() == "":
		return bad("it names no host")
	case address.User != nil || address.RawQuery != "" || address.Fragment != "":
		return bad("it is more than a host, a port and a path")
	case port == rpc && strings.Trim(address.Path, "/") != "":
		return bad("gRPC has no path")
	}
	if address.Port() == "" {
		address.Host = net.JoinHostPort(address.Hostname(), port)
	}
	return address, nil
}

// SyslogAddress is the network (unixgram, udp, tcp or tls) and the address of the
// receiver.
func (a *Audit) SyslogAddress() (network, address string, err error) {
	bad := func(reason string) (string, string, error) {
		return "", "", fmt.Errorf(
			"%q is not the address of a syslog receiver: %s; expected unix:/dev/log, udp://host:514, tcp://host:601 or tls://host:6514",
			a.Syslog,
			reason,
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
	hasMore := u.Path != "" || u.User != nil || u.RawQuery != "" || u.Fragment != ""
	switch {
	case port == "":
		return bad("it does not begin with unix:, udp://, tcp:// or tls://")
	case u.Hostname() == "" || hasMore:
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
	clickhouse := c.ClickHouse
	if clickhouse.DSN != "" {
		if text := badDSN(clickhouse.DSN.Reveal()); text != "" {
			v.add("clickhouse.dsn", "%s", text)
		}
		if clickhouse.DSNFile != "" {
			v.add("clickhouse.dsn_file", "stands beside clickhouse.dsn: only one of them can hold")
		}
	}
	if c.UsesEmbedded() {
		between(
			v,
			"clickhouse.embedded.max_memory",
			clickhouse.Embedded.MaxMemory,
			512*MiB,
			16*TiB,
			Size.String,
		)
		between(
			v,
			"clickhouse.embedded.max_query_memory",
			clickhouse.Embedded.MaxQueryMemory,
			64*MiB,
			16*TiB,
			Size.String,
		)
		if clickhouse.Embedded.MaxQueryMemory > clickhouse.Embedded.MaxMemory {
			v.add(
				"clickhouse.embedded.max_query_memory",
				"%s is more than max_memory (%s)",
				clickhouse.Embedded.MaxQueryMemory,
				clickhouse.Embedded.MaxMemory,
			)
		}
		clickhouse.Embedded.checkListen(v)
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
	address, err := url.Parse(dsn)
	schemes := []string{"clickhouse", "tcp", "http", "https"}
	switch {
	case err != nil || address.Opaque != "" || !slices.Contains(schemes, address.Scheme):
		return "is not a DSN: write http://user@host:8123/database (or https, clickhouse, tcp)"
	case address.Host == "":
		return "names no host"
	}
	return ""
}

// refuseExposedSecrets refuses a password in a file that others can read.
func (v *validator) refuseExposedSecrets(clickhouse ClickHouse, mode fs.FileMode) {
	address, err := url.Parse(clickhouse.DSN.Reveal())
	if err != nil || clickhouse.DSN == "" {
		return // reported by badDSN
	}
	_, inUser := address.User.Password()
	if (inUser || address.Query().Has("password")) && mode&0o077 != 0 {
		v.add(
			"clickhouse.dsn",
			"holds a password, and the file can be read by others (mode %04o): chmod 600 %s, or move the DSN into a file of mode 0600 and name it in clickhouse.dsn_file",
			mode,
			v.file,
		)
	}
}
