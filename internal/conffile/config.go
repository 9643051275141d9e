package conffile

import (
	"fmt"

	"github.com/musterhpc/muster/accounting/kpi"
	"github.com/musterhpc/muster/internal/slo"
	"github.com/musterhpc/muster/nodeagent/health"
	"github.com/musterhpc/muster/spec"
)

// Config is muster.yaml. Everything that describes the cluster itself (nodes,
// partitions, limits, priorities) stands in slurm.conf and its companions; here
// is only what they have no word for.
//
// The comments of the fields are the reference: docs/muster.yaml.md and the
// annotated default file are generated from them.
type Config struct {
	// Name of the cluster, as every metric and accounting row carries it. Empty
	// takes ClusterName of slurm.conf; if both are given they must agree.
	ClusterName string `yaml:"cluster_name" example:"aurora"`
	// Folder of everything that must survive a restart: ledger, archive,
	// certificates, the embedded engine's data.
	StateDir string `yaml:"state_dir" kind:"path"`
	// Folder of sockets and other things that may vanish at a reboot.
	RunDir string `yaml:"run_dir" kind:"path"`
	// Path of slurm.conf. gres.conf, cgroup.conf, job_container.conf and
	// topology.conf are read from the same folder.
	SlurmConf string `yaml:"slurm_conf" kind:"path"`
	// Path of the local socket that the tools on this host use. Empty means
	// muster.sock in run_dir.
	Socket string `yaml:"socket" kind:"path" example:"/run/muster/muster.sock"`
	// Path of the local socket of accounting, where it runs in a process of its
	// own (musterd --role accounting); the tools ask it about the past. Empty
	// means accounting.sock in run_dir.
	AccountingSocket string `yaml:"accounting_socket" kind:"path" example:"/run/muster/accounting.sock"`
	// Path of the socket on which this host's programs reach REST without a
	// token: the kernel says who they are. Empty means rest.sock in run_dir.
	RESTSocket string `yaml:"rest_socket" kind:"path" example:"/run/muster/rest.sock"`
	// Addresses to listen on: a port, host:port, or off.
	Listen Listen `yaml:"listen"`
	// The web console (listen.web).
	Web Web `yaml:"web"`
	// This controller, where slurm.conf names several.
	Controller OneController `yaml:"controller"`
	// Where accounting is stored.
	ClickHouse ClickHouse `yaml:"clickhouse"`
	// Identity between machines.
	TLS TLS `yaml:"tls"`
	// Tokens with which programs act as users over REST.
	Tokens Tokens `yaml:"tokens"`
	// The site's identity provider (OpenID Connect), whose users come in over REST and
	// in the web console.
	OIDC OIDC `yaml:"oidc"`
	// The durable record of everything that happened.
	Ledger Ledger `yaml:"ledger"`
	// What the agents measure and export.
	Telemetry Telemetry `yaml:"telemetry"`
	// The way from the ledger into ClickHouse.
	Accounting Accounting `yaml:"accounting"`
	// The audit trail: every change and every refusal as JSON lines.
	Audit Audit `yaml:"audit"`
	// An OpenTelemetry collector to which traces of jobs are sent (docs/opentelemetry.md).
	OTLP OTLP `yaml:"otlp"`
	// What use costs, in money and in carbon.
	Cost Cost `yaml:"cost"`
	// Service objectives: which part of what must be good. Metrics, the SLO board
	// and the alerts on error budgets count against them.
	SLO SLO `yaml:"slo"`
	// Reports that are mailed on a schedule.
	Reports Reports `yaml:"reports"`
	// What follows from what GPUs do.
	GPU GPU `yaml:"gpu"`
	// How agents judge the health of their nodes.
	Health Health `yaml:"health"`
	// How agents measure the energy of their nodes.
	Energy Energy `yaml:"energy"`
	// Images of containers on the nodes.
	Containers Containers `yaml:"containers"`
	// How musterd --role observer, or observer,accounting, reads the Slurm it runs beside.
	Observe Observe `yaml:"observe"`
	// What the daemons write to standard error.
	Log Log `yaml:"log"`
}

// Listen holds the addresses of every process.
type Listen struct {
	// Controller: the API for tools and agents on other machines (mutual TLS).
	GRPC Addr `yaml:"grpc"`
	// Controller: REST, JSON over HTTPS; off switches rest_socket off too.
	REST Addr `yaml:"rest"`
	// Controller: the web console. On a loopback address it is plain HTTP, for a
	// lab, an SSH tunnel or a reverse proxy with the site's certificate; elsewhere
	// it is HTTPS with this host's certificate.
	Web Addr `yaml:"web"`
	// Controller: /metrics and the other dialects' paths.
	Metrics Addr `yaml:"metrics"`
	// Agent: input and output of job steps, for the agents of other machines, on
	// which srun runs (mutual TLS).
	AgentGRPC Addr `yaml:"agent_grpc"`
	// Agent: /metrics of the node and its GPUs.
	AgentMetrics Addr `yaml:"agent_metrics"`
	// Accounting, where it runs apart from the controller.
	AccountingAPI Addr `yaml:"accounting_api"`
	// Accounting, where it runs apart: /metrics with the KPIs.
	AccountingMetrics Addr `yaml:"accounting_metrics"`
}

// Web is the web console.
type Web struct {
	// Alertmanager whose firing alerts the first page shows: all of this cluster to
	// operators, to others those about themselves. Empty shows what the controller
	// judges from its own state, and says so.
	AlertmanagerURL string `yaml:"alertmanager_url" example:"http://alertmanager:9093"`
}

// OneController is this controller among those that slurm.conf names.
type OneController struct {
	// Its name in slurm.conf (SlurmctldHost) and in its certificate. Empty: the one
	// that is this host's name.
	Name string `yaml:"name" example:"ctl2"`
	// The witness of two controllers, the same on both and on its own host: its
	// name, and its address as in SlurmctldHost. It votes, and keeps the ledger's
	// log and no state (musterd --role witness).
	Witness string `yaml:"witness" example:"wit(10.0.0.3)"`
	// Time without a word from the leader after which the others elect one. A
	// take-over takes about twice this. Shorter than the pauses of the network or
	// of a busy disk, it makes the lead change for no reason.
	ElectionTimeout spec.Span `yaml:"election_timeout"`
	// Time after which the ledger's version is raised by itself, counted from when all
	// controllers run a release that knows it. Until then an upgrade can be taken
	// back. forever leaves it to muster upgrade --raise.
	RaiseAfter spec.Span `yaml:"raise_after"`
}

// ClickHouse is the accounting store: a server by DSN, or the embedded engine.
type ClickHouse struct {
	// Data source name of a ClickHouse server or cluster. Empty, and no
	// dsn_file, means the embedded engine. A DSN with a password in it is
	// refused unless muster.yaml has mode 0600: better name a dsn_file.
	DSN Secret `yaml:"dsn" example:"http://muster@db1:8123/muster"`
	// File of mode 0600 whose only line is the DSN.
	DSNFile string `yaml:"dsn_file" kind:"path" example:"/etc/muster/clickhouse.dsn"`
	// The engine that runs as a child of the accounting service. It serves one
	// controller; several controllers need a server.
	Embedded Embedded `yaml:"embedded"`
	// Name of the ClickHouse cluster whose nodes hold the tables together, as
	// system.clusters of the server of the DSN has it: every table is then made
	// replicated, with a distributed one before it. Empty: one server.
	Cluster string `yaml:"cluster" example:"muster"`
}

// Embedded is the embedded ClickHouse engine.
type Embedded struct {
	// Path of libchdb.so. Empty searches the places where it is installed.
	Library string `yaml:"library" kind:"path" example:"/usr/lib/muster/libchdb.so"`
	// Folder of its data. Empty means clickhouse in state_dir.
	DataDir string `yaml:"data_dir" kind:"path" example:"/var/lib/muster/clickhouse"`
	// Path of its socket (mode 0600). Empty means clickhouse.sock in run_dir.
	Socket string `yaml:"socket" kind:"path" example:"/run/muster/clickhouse.sock"`
	// Memory that all its queries together may take.
	MaxMemory Size `yaml:"max_memory"`
	// Memory that one query may take.
	MaxQueryMemory Size `yaml:"max_query_memory"`
	// Address on which Grafana reads the store over HTTP, with a login that may
	// only read; it sees the rows of all users. A bare port listens on this host
	// only (127.0.0.1); any other address than a loopback one needs listen_cert.
	Listen Addr `yaml:"listen"`
	// Name of that login.
	ListenUser string `yaml:"listen_user"`
	// File whose first line is its password, which others must not be able to
	// read. Empty means clickhouse-reader.password in state_dir.
	ListenPasswordFile string `yaml:"listen_password_file" kind:"path" example:"/etc/muster/grafana.password"`
	// Certificate (PEM) that makes listen speak TLS.
	ListenCert string `yaml:"listen_cert" kind:"path" example:"/etc/muster/clickhouse.crt"`
	// Key of that certificate (PEM).
	ListenKey string `yaml:"listen_key" kind:"path" example:"/etc/muster/clickhouse.key"`
	// Queries of that login at once; others wait for their turn.
	ListenMaxQueries int64 `yaml:"listen_max_queries"`
	// Time that one of its queries may take; its memory is max_query_memory.
	ListenMaxTime spec.Span `yaml:"listen_max_time"`
}

// Tokens are the JSON Web Tokens of users.
type Tokens struct {
	// Longest life of a token of scontrol token, as Slurm's max_token_lifespan;
	// infinite leaves 31 days for users and a year for administrators.
	MaxLifespan spec.Span `yaml:"max_lifespan"`
	// Make no tokens, as Slurm's disable_token_creation: those of tokens.jwks are
	// still accepted.
	DisableCreation bool `yaml:"disable_creation"`
	// File with the public keys (JSON Web Key Set, RS256 to ES512) of an issuer
	// whose tokens are accepted too, such as the site's identity provider; as
	// Slurm's jwks. It is read again when it changes. Empty accepts no others.
	JWKS string `yaml:"jwks" kind:"path" example:"/etc/muster/jwks.json"`
	// Claim of the issuer's tokens that holds the user's name on this host, as
	// Slurm's userclaimfield. Empty means sun.
	UserClaim string `yaml:"user_claim" example:"preferred_username"`
	// What aud of the issuer's tokens must hold. Empty accepts every audience:
	// then a token that the issuer made for another program is accepted too.
	Audience string `yaml:"audience" example:"muster"`
}

// OIDC is the site's identity provider.
type OIDC struct {
	// Address of the provider, exactly as iss of its tokens has it; its endpoints and
	// keys are found by it. Empty: there is none.
	Issuer string `yaml:"issuer" example:"https://id.example.org/realms/site"`
	// Certificates (PEM) that may have signed the provider's. Empty: those that the
	// system trusts.
	CAFile string `yaml:"ca_file" kind:"path" example:"/etc/muster/idp-ca.pem"`
	// What aud of a token must hold that is accepted over REST. Empty: tokens of the
	// provider are not accepted over REST.
	Audience string `yaml:"audience" example:"muster"`
	// Name of the web console at the provider. Empty: nobody logs in to the console
	// by the provider.
	ClientID string `yaml:"client_id" example:"muster-console"`
	// File of mode 0600 with the secret of that client. Empty: a public client,
	// which proves itself by PKCE alone.
	ClientSecretFile string `yaml:"client_secret_file" kind:"path" example:"/etc/muster/oidc.secret"`
	// Address of the console to which the provider sends people back, as registered
	// there: the console's, with /sign-in/return.
	RedirectURL string `yaml:"redirect_url" example:"https://muster.example.org:8443/sign-in/return"`
	// What the console asks for besides openid.
	Scopes []string `yaml:"scopes" example:"[\"profile\", \"email\"]"`
	// Claim that names the user. Empty means preferred_username. An email counts only
	// if the provider has verified it.
	UserClaim string `yaml:"user_claim" example:"email"`
	// Regular expression that the whole claim must match; its one group is the user
	// on the controllers' hosts. Empty: the claim is the user.
	UserPattern string `yaml:"user_pattern" example:"(.+)@example\\.org"`
	// File with a line for each user: the claim's value and the user. It is read again
	// when it changes, and who is not in it is nobody.
	UserMap string `yaml:"user_map" kind:"path" example:"/etc/muster/oidc-users"`
	// How long somebody stays signed in to the console.
	Session spec.Span `yaml:"session"`
}

// TLS is what proves identity between machines.
type TLS struct {
	// Folder of the certificate authority (on a controller) and of this host's
	// certificate and key. Empty means tls in state_dir.
	Dir string `yaml:"dir" kind:"path" example:"/var/lib/muster/tls"`
	// How long the controller signs credentials (which tell agents that a user may
	// start a step) with one key. The next key is published an hour before it signs,
	// the old one is accepted for 30 days after it. At least 40d; forever keeps the
	// first key.
	RotateKeys spec.Span `yaml:"rotate_keys"`
	// Web configuration file of Prometheus' exporters (TLS, client certificates,
	// users with bcrypted passwords) for the metrics of musterd. Empty serves
	// them in the clear to everyone who reaches the port.
	WebConfig string `yaml:"web_config" kind:"path" example:"/etc/muster/web.yml"`
	// The same for the metrics of the agents: a file on each node. muster gpu top
	// reads metrics without TLS only, with a token or in the clear.
	AgentWebConfig string `yaml:"agent_web_config" kind:"path" example:"/etc/muster/agent-web.yml"`
	// File of mode 0600 whose first line is the bearer token that the metrics of
	// every process then ask for, besides what web_config asks for.
	WebTokenFile string `yaml:"web_token_file" kind:"path" example:"/etc/muster/metrics.token"`
}

// Ledger is the durable log and the history behind it.
type Ledger struct {
	// Free space on the ledger's disk below which submissions are refused, so
	// that ends and cancellations of jobs can still be recorded.
	ReserveBytes Size `yaml:"reserve_bytes"`
	// Events between two snapshots of the state. More makes restarts slower,
	// fewer writes more.
	SnapshotEvery int64 `yaml:"snapshot_every"`
	// Folder of the whole history. Empty means archive in state_dir.
	ArchiveDir string `yaml:"archive_dir" kind:"path" example:"/var/lib/muster/archive"`
	// How long history is kept, or forever: the events, older snapshots of the
	// state, and scripts and environments that nothing names any more. It goes in
	// files of 64 MiB, and never before accounting has stored it.
	Retention spec.Span `yaml:"retention"`
}

// Telemetry is what agents measure.
type Telemetry struct {
	// Which GPU gauges carry the labels of the job: all, core (utilisation,
	// memory, power, SM, tensor and engine activity) or none.
	JobLabels string `yaml:"job_labels" enum:"all,core,none"`
	// Name of a label that holds the job's number beside slurm_job_id, for
	// dashboards that know it by another, such as hpc_job of dcgm-exporter.
	// slurm_job_id is always there: the dashboards and alerts shipped here read it.
	JobLabelName string `yaml:"job_label_name"`
	// Name of a label that holds the cluster's name on the GPU series (DCGM_FI_*,
	// muster_gpu_*), such as cluster, for one Prometheus that scrapes several
	// clusters. Empty: none, as dcgm-exporter has none.
	ClusterLabel string `yaml:"cluster_label" example:"cluster"`
	// Time between two collections.
	Interval spec.Span `yaml:"interval"`
	// Time between two samples of each GPU that go into the accounting store, for
	// muster gpu job and the view gpu_samples: a whole number of seconds. There is
	// none between two collections; infinite stores none at all.
	SamplesInterval spec.Span `yaml:"samples_interval"`
	// Where agents hand them in: host:port of accounting's API, or the path of its
	// socket, where it runs in a process of its own on another host. Empty: the
	// controller, or accounting_socket where it is on this host.
	SamplesTo string `yaml:"samples_to" example:"acct1:6819"`
	// Where GPU figures come from: dcgm, nvml, simulated, or auto for the first
	// of these that works.
	Provider string `yaml:"provider" enum:"auto,dcgm,nvml,simulated"`
	// File that chooses the GPU fields to export, in dcgm-exporter's CSV format.
	// Empty: the default set.
	CountersFile string `yaml:"counters_file" kind:"path" example:"/etc/muster/counters.csv"`
	// Folder for the files from which a stock dcgm-exporter learns the job of a
	// GPU (its --hpc-job-mapping-dir). Empty: none are written.
	JobMappingDir string `yaml:"job_mapping_dir" kind:"path" example:"/run/dcgm-jobs"`
	// Where metrics are sent when nobody can scrape them, in the way that push_format
	// says. Empty: nowhere.
	PushURL string `yaml:"push_url" example:"http://vmagent:8429/api/v1/import/prometheus"`
	// How: import is the text format by POST, which VictoriaMetrics and vmagent take at
	// /api/v1/import/prometheus; remote_write is Prometheus' remote write, version 2.0
	// and, where the receiver does not know it, 1.0; otlp are metrics of OpenTelemetry
	// (grpc://, grpcs://, http:// or https://, with v1/metrics below its path).
	PushFormat string `yaml:"push_format" enum:"import,remote_write,otlp"`
	// Who pushes: agents, the controller that leads, or all of them.
	PushFrom string `yaml:"push_from" enum:"agents,controller,all"`
	// Certificates (PEM) that may have signed the receiver's, with remote_write and
	// otlp. Empty: those that the host trusts.
	PushCA string `yaml:"push_ca" kind:"path" example:"/etc/muster/push-ca.pem"`
	// Time between two pushes.
	PushInterval spec.Span `yaml:"push_interval"`
	// File with headers of each push, one "Name: value" a line, such as
	// Authorization. Readable by its owner only.
	PushHeadersFile string `yaml:"push_headers_file" kind:"path" example:"/etc/muster/push.headers"`
}

// PushesFromAgents tells whether agents push.
func (t *Telemetry) PushesFromAgents() bool { return t.PushURL != "" && t.PushFrom != "controller" }

// PushesFromController tells whether the controller that leads pushes.
func (t *Telemetry) PushesFromController() bool { return t.PushURL != "" && t.PushFrom != "agents" }

// Accounting is the ingest from the ledger into ClickHouse.
type Accounting struct {
	// Where accounting finds the controller, when it runs in a process of its
	// own: host:port of its API (mutual TLS, with a controller's certificate in
	// tls.dir). Empty means the controller's socket on this host.
	Controller string `yaml:"controller" example:"ctl1:6817"`
	// Most rows that go into one insert. While the store is far behind it up to eight times as
	// many, though at most 400,000.
	BatchRows int64 `yaml:"batch_rows"`
	// Longest time a finished job waits to be inserted. While the ledger grows by more
	// than 2,500 events a second it may be 30 s, unless somebody asks for it.
	BatchInterval spec.Span `yaml:"batch_interval"`
	// Shortest time between two computations of the KPIs that /metrics shows. Findings are
	// computed a quarter as often.
	KPIInterval spec.Span `yaml:"kpi_interval"`
	// Percentage of the time that computing the KPIs may take: on a large or slow store the
	// interval grows. Findings take at most half as much.
	KPIShare int64 `yaml:"kpi_share"`
	// How long samples of GPUs, and of what jobs use of CPU and memory, are kept, or forever.
	// They go a day at a time.
	SamplesKeep spec.Span `yaml:"samples_keep"`
	// How long rows of accounting are kept, table by table, or infinite. A month
	// goes as a whole once all of it is older, with a record of its sums; what
	// reports need by day and quarter of an hour stays. First the runs of jobs.
	JobsKeep spec.Span `yaml:"jobs_keep"`
	// The steps of runs.
	StepsKeep spec.Span `yaml:"steps_keep"`
	// What runs used on each of their nodes.
	NodesKeep spec.Span `yaml:"job_nodes_keep"`
	// What runs used of each of their devices.
	GPUsKeep spec.Span `yaml:"job_gpus_keep"`
	// Why jobs waited.
	ReasonsKeep spec.Span `yaml:"pending_reasons_keep"`
	// The audit trail of jobs; what is about no job stays.
	EventsKeep spec.Span `yaml:"events_keep"`
	// A folder for archives. What is kept long enough is written there as
	// Parquet files before it goes; muster accounting unarchive brings it back.
	Archive string `yaml:"archive" example:"/srv/muster/archive"`
	// Whether job scripts are stored: auto as AccountingStoreFlags of slurm.conf
	// says, never whatever it says.
	StoreScripts string `yaml:"store_scripts" enum:"auto,never"`
}

// Audit is where the controller that leads writes the audit trail
// (docs/operations/audit.md). Each of the three places has a position of its own,
// so that one that is away gets later what it missed.
type Audit struct {
	// File of JSON lines in the names of the Elastic Common Schema, mode 0640. Empty:
	// none.
	File string `yaml:"file" kind:"path" example:"/var/log/muster/audit.json"`
	// Size at which the file is renamed to NAME.1, and begun anew.
	FileMaxSize Size `yaml:"file_max_size"`
	// How many files of the past are kept: NAME.1 is the newest of them.
	FileKeep int64 `yaml:"file_keep"`
	// Syslog receiver (RFC 5424): unix:/dev/log, udp://host:514, tcp://host:601 or
	// tls://host:6514. What is sent by udp may be lost. Empty: none.
	Syslog string `yaml:"syslog" example:"tls://siem.example.org:6514"`
	// Facility of the messages.
	SyslogFacility string `yaml:"syslog_facility" enum:"authpriv,auth,audit,user,daemon,local0,local1,local2,local3,local4,local5,local6,local7"`
	// Certificates (PEM) that may have signed the receiver's. Empty: those that
	// this host trusts.
	SyslogCA string `yaml:"syslog_ca" kind:"path" example:"/etc/muster/siem-ca.pem"`
	// Certificate (PEM) that is shown to the receiver. Empty: none.
	SyslogCert string `yaml:"syslog_cert" kind:"path" example:"/etc/muster/siem-client.pem"`
	// Key of that certificate (PEM).
	SyslogKey string `yaml:"syslog_key" kind:"path" example:"/etc/muster/siem-client.key"`
	// Hand the trail to systemd-journald on this host.
	Journald bool `yaml:"journald"`
	// What is written: changes are what people asked for, what changes machines,
	// rights or the configuration, and starts and ends of jobs; all is every event
	// of the ledger. Refusals are written in any case.
	Events string `yaml:"events" enum:"changes,all"`
}

// OTLP is an OpenTelemetry collector (docs/opentelemetry.md).
type OTLP struct {
	// Address of the collector: grpc://host:4317, grpcs://host:4317, http://host:4318 or
	// https://host:4318; the last two have v1/traces and v1/metrics below their path.
	// Empty: nothing is sent.
	Endpoint string `yaml:"endpoint" example:"grpcs://collector.example.org:4317"`
	// Send a trace of each job when it has ended and its nodes are released. The
	// controller that leads does it.
	Traces bool `yaml:"traces"`
	// Certificates (PEM) that may have signed the collector's. Empty: those that this
	// host trusts.
	CA string `yaml:"ca" kind:"path" example:"/etc/muster/collector-ca.pem"`
	// Certificate (PEM) that is shown to the collector. Empty: none.
	Cert string `yaml:"cert" kind:"path" example:"/etc/muster/collector-client.pem"`
	// Key of that certificate (PEM).
	Key string `yaml:"key" kind:"path" example:"/etc/muster/collector-client.key"`
	// File with a bearer token for the collector, read anew for each message. Empty:
	// none.
	TokenFile string `yaml:"token_file" kind:"path" example:"/etc/muster/collector.token"`
	// How long one try to send may take.
	Timeout spec.Span `yaml:"timeout"`
}

// SendsTraces tells whether traces of jobs are sent.
func (o *OTLP) SendsTraces() bool { return o.Endpoint != "" && o.Traces }

// On tells whether the trail is written anywhere.
func (a *Audit) On() bool { return a.File != "" || a.Syslog != "" || a.Journald }

// Cost turns use into money and carbon.
type Cost struct {
	// The currency of prices and budgets, as it is printed beside amounts.
	Currency string `yaml:"currency" example:"EUR"`
	// Price lists: the day from which one holds (UTC), then the price of one
	// unit of each TRES for an hour; memory is counted in GiB. A run that spans
	// two lists is charged by both. Without a list nothing costs anything and
	// the figure is missing.
	Prices []string `yaml:"prices" example:"[\"2026-01-01 cpu=0.012 mem=0.002 gres/gpu=1.50\"]"`
	// Carbon intensity of the site's power: the day from which it holds (UTC)
	// and the grams of CO2e for a kWh.
	Carbon []string `yaml:"carbon" example:"[\"2026-01-01 380\"]"`
	// Power usage effectiveness: what the site draws by what its computers draw.
	PUE string `yaml:"pue" example:"\"1.4\""`
	// Budgets: the account (with all below it), its first day, the day after its
	// last, the amount, and the percentages at which a warning is due. With
	// enforce jobs wait that what is left would not pay for: the account gets a
	// limit as by GrpTRESMins, which what is left and the prices make anew as
	// money is spent. slurm.conf has to enforce limits (AccountingStorageEnforce;
	// with safe a job starts only if the money lasts until its time limit). Jobs
	// that run are not ended.
	Budgets []string `yaml:"budgets" example:"[\"ml 2026-01-01 2027-01-01 120000 warn=80,95 enforce\"]"`
}

// Rates are the prices, intensities and budgets that Cost says.
func (c *Config) Rates() (kpi.Rates, error) {
	return kpi.ParseRates(c.Cost.Currency, c.Cost.PUE, c.Cost.Prices, c.Cost.Carbon, c.Cost.Budgets)
}

// SLO holds the site's objectives. Each is a percentage of what must be good, over
// 30 days, and what good is; off drops it.
type SLO struct {
	// Submissions that are acknowledged, so durable, within a time. The time is
	// rounded down to a bound of muster_api_request_seconds.
	Submit string `yaml:"submit" example:"99% within 100ms"`
	// Writes of the ledger that reach the disk.
	Durability string `yaml:"durability" example:"99.99%"`
	// Passes over the queue that end within a time.
	Scheduling string `yaml:"scheduling" example:"99% within 5s"`
	// Jobs that start within a time after their submission, by QOS; * is for the
	// QOS that are not named. The time is rounded down to a bucket of the waits, by
	// 16 % at most.
	Wait []string `yaml:"wait" example:"[\"interactive 95% within 5m\", \"* 90% within 24h\"]"`
	// Time in which the accounting store is behind the ledger by no more.
	Accounting string `yaml:"accounting" example:"99% within 1m"`
	// Time of nodes that are expected in which their agents are connected.
	Agents string `yaml:"agents" example:"99%"`
	// Time in which more than a percentage of the last day's GPU time was held with work, by runs that
	// ended well or are not over.
	Goodput string `yaml:"goodput" example:"90% above 60%"`
}

// Objectives are those that SLO says.
func (c *Config) Objectives() ([]slo.Objective, error) {
	var objectives []slo.Objective
	for _, x := range [...]struct {
		kind slo.Kind
		text string
	}{{slo.Submit, c.SLO.Submit}, {slo.Durability, c.SLO.Durability}, {slo.Scheduling, c.SLO.Scheduling},
		{slo.Accounting, c.SLO.Accounting}, {slo.Agents, c.SLO.Agents}, {slo.Goodput, c.SLO.Goodput}} {
		objective, ok, err := slo.Parse(x.kind, x.text)
		if err != nil {
			return nil, fmt.Errorf("slo.%s: %w", x.kind, err)
		}
		if ok {
			objectives = append(objectives, objective)
		}
	}
	waits, err := slo.ParseWaits(c.SLO.Wait)
	if err != nil {
		return nil, fmt.Errorf("slo.wait: %w", err)
	}
	return append(objectives, waits...), nil
}

// Reports are those that are sent by mail on a schedule.
type Reports struct {
	// Reports to send: daily, weekly with a day, or monthly with a day of the
	// month (1 to 28), the time, the report as muster report names it (site, waste,
	// idle, budget, chargeback, fairshare, findings, findings USER, account NAME or
	// user NAME), to, and the addresses. Each is about the day, the seven days or the
	// month before it, in the time zone of the host.
	Mail []string `yaml:"mail" example:"[\"weekly monday 07:00 site to ops@example.org\", \"monthly 1 06:30 account ml to pi@example.org,admin@example.org\"]"`
	// Mail about the end of a job (sbatch --mail-type=END, FAIL, TIME_LIMIT) has a text: state,
	// run time, how well it used its CPUs, memory and GPUs, and a line of advice where there is
	// one. false sends a subject only, as Slurm does.
	JobEfficiency bool `yaml:"job_efficiency"`
	// The sender. Empty means muster@ and the name of the host.
	From string `yaml:"from" example:"muster@example.org"`
	// The mail server, host:port, asked with STARTTLS where it has it, and at port
	// 465 with TLS from the first byte. It also takes mail about jobs (sbatch
	// --mail-type) where slurm.conf has no MailProg. Empty hands reports to sendmail.
	SMTP string `yaml:"smtp" example:"mail.example.org:25"`
	// Who logs in there (AUTH PLAIN or LOGIN). A password goes out with TLS only.
	SMTPUser string `yaml:"smtp_user" example:"muster"`
	// The file with that user's password in one line, mode 0600.
	SMTPPasswordFile string `yaml:"smtp_password_file" kind:"path" example:"/etc/muster/secrets/smtp-password"`
}

// GPU says when a GPU's state is somebody's affair, and what is done then.
// Everything is recorded and shown in any case.
type GPU struct {
	// Time after which a GPU that a job holds without a process on it is
	// reported; infinite never reports it.
	IdleAfter spec.Span `yaml:"idle_after"`
	// What happens to such a job: report only shows it; warn tells its user, in
	// muster why and through Alertmanager's route for users; cancel warns, and
	// ends the job once idle_grace more has passed.
	OnIdle string `yaml:"on_idle" enum:"report,warn,cancel"`
	// Time between the report and the cancellation.
	IdleGrace spec.Span `yaml:"idle_grace"`
	// What happens to a node with a GPU that must not be used (off the bus,
	// uncorrectable memory errors, fatal XIDs): report only shows it, drain takes
	// the node out of service with the reason.
	OnFault string `yaml:"on_fault" enum:"report,drain"`
}

// Health is how agents judge their nodes, beside HealthCheckProgram of slurm.conf.
type Health struct {
	// Time between two looks at a node; infinite looks never.
	Interval spec.Span `yaml:"interval"`
	// Changes of rules, each the name, the action (off, warn or drain) and, if it is
	// to be another, the limit in the rule's unit. docs/node-health.md lists the
	// rules.
	Rules []string `yaml:"rules" example:"[\"disk_space warn 5%\", \"stuck_tasks off\"]"`
	// Folders whose file systems jobs need, besides the agent's own and /tmp.
	Paths []string `yaml:"paths" example:"[\"/scratch\"]"`
}

// Energy is how agents measure what their nodes use, which they share out to the
// jobs. GPUs are measured device by device, whatever is chosen here.
type Energy struct {
	// Where a node's energy is read: rapl (the processors and their memory), hwmon
	// (sensors of the kernel), pm_counters (Cray), ipmi (ipmitool), redfish, none, or
	// auto: what AcctGatherEnergyType of slurm.conf says, else the first of
	// pm_counters, rapl and hwmon that the node has.
	Source string `yaml:"source" enum:"auto,rapl,hwmon,pm_counters,ipmi,redfish,none"`
	// Power of an idle node in watts, without its GPUs: it is shared by allocated
	// CPUs, and what is above it by CPU time. 0 takes the lowest that was seen.
	IdleWatts int64 `yaml:"idle_watts"`
	// Time between two questions to a management controller (ipmi, redfish).
	Interval spec.Span `yaml:"interval"`
	// The program of ipmi.
	Ipmitool string `yaml:"ipmitool" kind:"path"`
	// Address of the management controller of redfish; %n stands for the node's name
	// and %h for its host's.
	RedfishURL string `yaml:"redfish_url" example:"https://%n-bmc"`
	// Login there; the user needs to read sensors only.
	RedfishUser string `yaml:"redfish_user" example:"monitor"`
	// File on the nodes with its password.
	RedfishPasswordFile string `yaml:"redfish_password_file" kind:"path" example:"/etc/muster/secrets/bmc-password"`
	// File with the certificates that the controllers' are signed by. Empty: those
	// that the node trusts.
	RedfishCAFile string `yaml:"redfish_ca_file" kind:"path" example:"/etc/muster/bmc-ca.pem"`
}

// Containers is how agents keep images of containers and log in at registries.
type Containers struct {
	// Room on each node for images. Those that were used least lately are removed
	// when it is exceeded, but never one that a job uses; 0 is half of the file
	// system of the agent's state folder.
	CacheSize Size `yaml:"cache_size"`
	// File on the nodes with logins at registries, as docker login writes it, for
	// users who have none there. Root must own it, and nobody else may read it.
	// Every user can have what it gives access to.
	RegistryAuth string `yaml:"registry_auth" example:"/etc/muster/registries.json"`
}

// HealthRules are the rules with the site's changes.
func (h *Health) HealthRules() ([]health.Rule, error) { return health.Configure(h.Rules) }

// Observe is how an existing Slurm is read: by its own commands, once in an
// interval.
type Observe struct {
	// Time between two snapshots.
	Interval spec.Span `yaml:"interval"`
	// Time that one command may take. What it would have shown keeps its last
	// good value, with its age in muster_source_age_seconds.
	Timeout spec.Span `yaml:"timeout"`
	// Address of a slurmrestd that is asked instead of running commands:
	// http://host:6820, https://…, or unix:/path of its socket. Needs
	// observe.cluster; accounting still runs sacct.
	REST string `yaml:"rest" example:"http://slurm:6820"`
	// User for slurmrestd (X-SLURM-USER-NAME) who may see all jobs.
	RESTUser string `yaml:"rest_user" example:"monitor"`
	// File with that user's token (scontrol token username=… lifespan=…). It is
	// read again for each snapshot.
	RESTTokenFile string `yaml:"rest_token_file" kind:"path" example:"/etc/muster/slurm.jwt"`
	// The name under which Slurm's accounting knows the cluster, for observe.rest
	// and for --role observer,accounting. Empty keeps no history.
	Cluster string `yaml:"cluster" example:"peer"`
	// Time between two readings of Slurm's accounting.
	AccountingEvery spec.Span `yaml:"accounting_every"`
	// How much of the past the first reading brings.
	History spec.Span `yaml:"history"`
	// Folder of squeue, sinfo, scontrol, sdiag, sshare and sacct. Empty searches PATH.
	Bin string `yaml:"bin" kind:"path" example:"/opt/slurm/bin"`
}

// Log is the daemons' log.
type Log struct {
	// Least important level that is written: debug, info, warn or error.
	Level string `yaml:"level" enum:"debug,info,warn,error"`
	// Form of a line: text for people, json for collectors.
	Format string `yaml:"format" enum:"text,json"`
}

// Defaults is the configuration of an empty file, before Fill.
func Defaults() *Config {
	return &Config{
		StateDir:  "/var/lib/muster",
		RunDir:    "/run/muster",
		SlurmConf: "/etc/slurm/slurm.conf",
		Listen: Listen{
			GRPC: ":6817", REST: ":6820", Metrics: ":8080",
			AgentGRPC: ":6818", AgentMetrics: ":9400", AccountingAPI: ":6819", AccountingMetrics: ":8081",
		},
		OIDC: OIDC{Scopes: []string{"profile"}, Session: 12 * spec.Hour},
		Controller: OneController{
			ElectionTimeout: 500 * spec.Millisecond,
			RaiseAfter:      spec.Day,
		},
		ClickHouse: ClickHouse{
			Embedded: Embedded{
				MaxMemory:        4 * GiB,
				MaxQueryMemory:   2 * GiB,
				ListenUser:       "grafana",
				ListenMaxQueries: 8,
				ListenMaxTime:    spec.Minute,
			},
		},
		Ledger: Ledger{
			ReserveBytes:  256 * MiB,
			SnapshotEvery: 100_000,
			Retention:     spec.Infinite,
		},
		Telemetry: Telemetry{
			JobLabels:       "all",
			JobLabelName:    "slurm_job_id",
			Interval:        10 * spec.Second,
			SamplesInterval: 10 * spec.Second,
			Provider:        "auto",
			PushInterval:    10 * spec.Second,
			PushFormat:      "import",
			PushFrom:        "agents",
		},
		Accounting: Accounting{
			BatchRows:     50_000,
			KPIInterval:   15 * spec.Second,
			KPIShare:      10,
			BatchInterval: 200 * spec.Millisecond,
			SamplesKeep:   90 * spec.Day,
			JobsKeep:      spec.Infinite,
			StepsKeep:     spec.Infinite,
			NodesKeep:     spec.Infinite,
			GPUsKeep:      spec.Infinite,
			ReasonsKeep:   spec.Infinite,
			EventsKeep:    spec.Infinite,
			StoreScripts:  "auto",
		},
		Audit: Audit{
			FileMaxSize:    100 * MiB,
			FileKeep:       10,
			SyslogFacility: "authpriv",
			Events:         "changes",
		},
		OTLP: OTLP{
			Traces:  true,
			Timeout: 10 * spec.Second,
		},
		Reports: Reports{JobEfficiency: true},
		SLO: SLO{
			Submit:     "99% within 100ms",
			Durability: "99.99%",
			Scheduling: "99% within 5s",
			Wait:       []string{"* 90% within 24h"},
			Accounting: "99% within 1m",
			Agents:     "99%",
			Goodput:    "90% above 50%",
		},
		GPU: GPU{
			IdleAfter: 30 * spec.Minute,
			OnIdle:    "report",
			IdleGrace: 30 * spec.Minute,
			OnFault:   "report",
		},
		Health: Health{Interval: spec.Minute},
		Energy: Energy{Source: "auto", Interval: 30 * spec.Second, Ipmitool: "/usr/bin/ipmitool"},
		Observe: Observe{
			Interval:        30 * spec.Second,
			Timeout:         20 * spec.Second,
			AccountingEvery: spec.Minute,
			History:         365 * spec.Day,
		},
		Tokens: Tokens{MaxLifespan: spec.Infinite},
		TLS:    TLS{RotateKeys: 90 * spec.Day},
		Log:    Log{Level: "info", Format: "text"},
	}
}

// Retention is how long the rows of each table are kept.
func (a Accounting) Retention() map[string]spec.Span {
	return map[string]spec.Span{
		"jobs":            a.JobsKeep,
		"steps":           a.StepsKeep,
		"job_nodes":       a.NodesKeep,
		"job_gpus":        a.GPUsKeep,
		"pending_reasons": a.ReasonsKeep,
		"events":          a.EventsKeep,
	}
}
