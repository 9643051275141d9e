package tidy

import (
	"slices"
	"strings"
)

// room is one row of the import order.
type room struct {
	path  string // folder from the root; the longest that fits a package is its room
	layer int
	upTo  int // it may import every room of this layer and below
	// also names further rooms it may import.
	also []string
	// outside names the modules (or packages) beyond the standard library that
	// it may import: the one outside thing it knows.
	outside []string
	pure    bool // no clock, lock, goroutine, channel, global, I/O or map order
	why     string
}

// anything in outside lifts the limit.
const anything = "*"

const (
	mCBOR     = "github.com/fxamacker/cbor/v2"
	mGRPC     = "google.golang.org/grpc"
	mProtobuf = "google.golang.org/protobuf"
	mSys      = "golang.org/x/sys"
	mZstd     = "github.com/klauspost/compress"
	mYAML     = "go.yaml.in/yaml/v3"
	mOTLP     = "go.opentelemetry.io/proto/otlp"
)

// order is the import order of the house: rooms by layer, each with what it
// may know. It is a statement of policy: do not change it to mend a build.
var order = []room{
	{path: "spec", layer: 0, upTo: -1, pure: true,
		why: "the nouns stand below everything and need the standard library only"},

	{path: "ledger/event", layer: 1, upTo: 0, outside: []string{mCBOR}, pure: true,
		why: "events are spec nouns in the past tense, with their codec"},

	{path: "ledger/state", layer: 2, upTo: 1, outside: []string{mCBOR}, pure: true,
		why: "the fold knows events and nothing of who writes or reads them"},
	{path: "ledger/view", layer: 2, upTo: 1, also: []string{"ledger/state"}, pure: true,
		why: "the published snapshot is made of the state"},

	{path: "scheduler", layer: 3, upTo: 2, pure: true,
		why: "decisions are a function of state, time, seed and command"},
	{path: "nodeagent/plan", layer: 3, upTo: 2, pure: true,
		why: "the agent's decisions are a function of what is desired and what is seen"},
	{path: "nodeagent/health", layer: 3, upTo: -1, pure: true,
		why: "judging a node is a function of what was measured, for the agent, muster.yaml and the pages"},
	{path: "nodeagent/gpu/device", layer: 3, upTo: 2, pure: true,
		why: "what a GPU is and says, shared by the providers, telemetry and the agent"},
	{
		path:  "nodeagent/gpu/attrib",
		layer: 3,
		upTo:  2,
		also:  []string{"nodeagent/gpu/device"},
		pure:  true,
		why:   "counting GPU time and energy is a function of the observations",
	},
	{path: "nodeagent/energy", layer: 3, upTo: 2, pure: true,
		why: "sharing out a node's energy is a function of the readings"},
	{path: "copilot", layer: 3, upTo: 2, pure: true,
		why: "what keeps Kubernetes and the ledger in step is a function of what was seen, for kube/ and the simulator"},
	{
		path:  "accounting/tally",
		layer: 3,
		upTo:  2,
		pure:  true,
		why:   "counting reads events and nothing else",
	},
	{
		path:  "accounting/kpi",
		layer: 3,
		upTo:  2,
		pure:  true,
		why:   "definitions of figures stand alone",
	},
	{path: "accounting/findings", layer: 3, upTo: 2, pure: true,
		why: "what should change is decided from numbers, wherever they come from"},
	{path: "accounting/query", layer: 3, upTo: 2,
		also: []string{"accounting/findings", "accounting/kpi"}, pure: true,
		why: "the text of every report is made from the definitions, not from a database"},
	{
		path:  "internal/slo",
		layer: 3,
		upTo:  2,
		pure:  true,
		why:   "objectives as data, read from their texts",
	},
	{path: "internal/catalogue", layer: 3, upTo: 2, pure: true, why: "metrics as data"},

	{
		path:    "api",
		layer:   4,
		upTo:    -1,
		outside: []string{mProtobuf, mGRPC},
		why:     "generated from the contract alone",
	},
	{path: "internal/wire", layer: 4, upTo: 3, also: []string{"api"}, outside: []string{mProtobuf},
		why: "turns messages into nouns and back"},

	{
		path:  "internal/durable",
		layer: 4,
		upTo:  -1,
		why:   "what every store on disk does alike; it knows no format",
	},
	{path: "ledger/log", layer: 4, upTo: 3, also: []string{"internal/durable"}, outside: []string{
		"github.com/hashicorp/raft", "github.com/hashicorp/raft-wal", "github.com/hashicorp/go-hclog", mCBOR,
		"github.com/hashicorp/go-metrics", "github.com/armon/go-metrics", mSys}, why: "an adapter knows raft and no other adapter"},
	{
		path:    "ledger/archive",
		layer:   4,
		upTo:    3,
		also:    []string{"internal/durable"},
		outside: []string{mZstd, mCBOR, mSys},
		why:     "an adapter knows its files and no other adapter",
	},
	{
		path:  "ledger/blob",
		layer: 4,
		upTo:  3,
		also:  []string{"internal/durable"},
		why:   "an adapter knows its files and no other adapter",
	},
	{path: "nodeagent/runtime", layer: 4, upTo: 3,
		also: []string{"internal/durable"}, outside: []string{
			"github.com/cilium/ebpf", mCBOR, mSys}, why: "an adapter knows the kernel and no other adapter"},
	{
		path:  "nodeagent/display",
		layer: 4,
		upTo:  3,
		why:   "an adapter knows the X displays of a node and no other adapter",
	},
	{
		path:    "nodeagent/netcount",
		layer:   4,
		upTo:    3,
		outside: []string{"github.com/cilium/ebpf", mSys},
		why:     "an adapter knows eBPF programs of the network and no other adapter",
	},
	{
		path:  "nodeagent/power",
		layer: 4,
		upTo:  3,
		why:   "an adapter knows the meters of a node and no other adapter",
	},
	{
		path:    "nodeagent/image",
		layer:   4,
		upTo:    3,
		outside: []string{"github.com/google/go-containerregistry"},
		why:     "an adapter knows registries and no other adapter",
	},
	{
		path:    "nodeagent/gpu",
		layer:   4,
		upTo:    3,
		outside: []string{"github.com/NVIDIA/go-dcgm", "github.com/NVIDIA/go-nvml", mSys},
		why:     "an adapter knows the GPU libraries and no other adapter",
	},
	{
		path:    "nodeagent/telemetry",
		layer:   4,
		upTo:    3,
		outside: []string{"github.com/VictoriaMetrics/metrics", mSys},
		why:     "an adapter knows the node's metrics and no other adapter",
	},
	{
		path:  "accounting/clickhouse",
		layer: 4,
		upTo:  3,
		also:  []string{"internal/durable"},
		outside: []string{"github.com/ClickHouse/clickhouse-go/v2", "github.com/ClickHouse/ch-go",
			"github.com/google/uuid"},
		why: "an adapter knows the database and no other adapter",
	},
	{
		path:  "accounting/embedded",
		layer: 4,
		upTo:  3,
		outside: []string{"github.com/ebitengine/purego", "github.com/ClickHouse/ch-go", mSys,
			"github.com/go-faster/city", "github.com/pierrec/lz4/v4", "github.com/andybalholm/brotli", mZstd},
		why: "an adapter knows the engine library and no other adapter",
	},
	{
		path:  "internal/slurmrest",
		layer: 4,
		upTo:  0,
		why:   "asks a slurmrestd, for the two adapters that read its answers",
	},
	{
		path:    "accounting/importer",
		layer:   4,
		upTo:    3,
		also:    []string{"internal/slurmrest"},
		outside: []string{mZstd},
		why:     "an adapter knows foreign records and no other adapter",
	},
	{
		path:  "collector",
		layer: 4,
		upTo:  3,
		also:  []string{"internal/slurmrest"},
		outside: []string{
			"github.com/prometheus/client_golang",
			"github.com/prometheus/client_model",
			"github.com/prometheus/common",
			"github.com/prometheus/exporter-toolkit",
			"github.com/klauspost/compress/gzip",
			mProtobuf,
		},
		why: "an adapter knows the exposition and no other adapter",
	},
	{
		path:    "internal/transport",
		layer:   4,
		upTo:    3,
		also:    []string{"internal/durable", "api", "internal/wire"},
		outside: []string{mGRPC, mProtobuf, mCBOR, mSys, "github.com/golang-jwt/jwt/v5"},
		why:     "carries the API; knows channels and identity, no other adapter",
	},
	{
		path:    "internal/transport/munge",
		layer:   4,
		upTo:    -1,
		also:    []string{"internal/transport"},
		outside: []string{"github.com/ebitengine/purego"},
		why:     "asks the library of MUNGE",
	},
	{
		path:    "internal/transport/oidc",
		layer:   4,
		upTo:    -1,
		also:    []string{"internal/transport"},
		outside: []string{"github.com/golang-jwt/jwt/v5", "golang.org/x/oauth2"},
		why:     "asks the site's identity provider",
	},
	{
		path:    "internal/transport/oidc/oidctest",
		layer:   4,
		upTo:    -1,
		outside: []string{"github.com/zitadel/oidc/v3", "golang.org/x/text"},
		why:     "a provider for tests",
	},
	{
		path:  "nodeagent/stepclient",
		layer: 4,
		upTo:  3,
		why:   "the client's side of the input and output of steps, for srun and sattach",
	},
	{
		path:    "internal/luascript",
		layer:   4,
		upTo:    3,
		also:    []string{"api"},
		outside: []string{mProtobuf, "github.com/yuin/gopher-lua"},
		why:     "an adapter knows Lua and no other adapter",
	},
	{
		path:    "internal/conffile",
		layer:   4,
		upTo:    3,
		outside: []string{mYAML},
		why:     "an adapter knows YAML and no other adapter",
	},
	{
		path:  "internal/audit/ecs",
		layer: 4,
		upTo:  3,
		also:  []string{"api", "internal/wire"},
		why:   "answers of the API as records of the audit trail, for its exporters and the command line",
	},
	{
		path:  "internal/traces",
		layer: 4,
		upTo:  3,
		also:  []string{"api"},
		why:   "answers of the API as traces of jobs, for the command line and for who sends them",
	},
	{
		path:    "internal/otlp",
		layer:   4,
		upTo:    0,
		outside: []string{mGRPC, mProtobuf, mOTLP, "google.golang.org/genproto/googleapis/rpc"},
		why:     "an adapter knows OpenTelemetry's protocol and no other adapter",
	},
	{
		path:  "internal/push",
		layer: 4,
		upTo:  0,
		also:  []string{"internal/durable", "internal/otlp"},
		outside: []string{
			mOTLP,
			"github.com/prometheus/client_golang",
			"github.com/prometheus/client_model",
			"github.com/prometheus/common",
			"github.com/prometheus/prometheus/prompb",
		},
		why: "sends what a scrape would get; an adapter knows the receivers of metrics and no other adapter",
	},
	{
		path:    "internal/audit",
		layer:   4,
		upTo:    3,
		also:    []string{"internal/durable", "api", "internal/audit/ecs", "internal/transport"},
		outside: []string{mSys},
		why:     "writes the audit trail, which is made of answers of the API; an adapter knows its receivers and no other adapter",
	},
	{
		path:  "internal/clock",
		layer: 4,
		upTo:  0,
		why:   "an adapter knows the machine's clock and no other adapter",
	},
	{
		path:  "internal/mailer",
		layer: 4,
		upTo:  0,
		also:  []string{"internal/durable"},
		why:   "hands mail to a server, for reports and for alerts",
	},
	{
		path:  "internal/nss",
		layer: 4,
		upTo:  0,
		why:   "an adapter knows the machine's user databases and no other adapter",
	},
	{
		path:  "internal/program",
		layer: 4,
		upTo:  0,
		why:   "an adapter knows processes and no other adapter",
	},
	{
		path:  "internal/parts",
		layer: 4,
		upTo:  -1,
		why:   "runs what a process is made of, whatever that is",
	},
	{
		path:    "dashboards",
		layer:   4,
		upTo:    3,
		outside: []string{"github.com/grafana/grafana-foundation-sdk/go"},
		why:     "panels are generated from the catalogue, the KPIs and the queries",
	},
	{
		path:  "alerts",
		layer: 4,
		upTo:  3,
		also:  []string{"internal/mailer"},
		outside: []string{mYAML, "github.com/prometheus/prometheus", "github.com/prometheus/common",
			"github.com/prometheus/alertmanager"},
		why: "rules are generated from the catalogue, the KPIs and the queries",
	},

	{
		path:    "scheduler/daemon",
		layer:   5,
		upTo:    3,
		also:    []string{"api", "internal/wire"},
		outside: []string{mProtobuf},
		why:     "a daemon meets its adapters through interfaces it declares",
	},
	{
		path:    "nodeagent/daemon",
		layer:   5,
		upTo:    3,
		also:    []string{"api", "internal/wire"},
		outside: []string{mProtobuf},
		why:     "a daemon meets its adapters through interfaces it declares",
	},
	{
		path:    "nodeagent/controllers",
		layer:   5,
		upTo:    3,
		also:    []string{"api", "internal/transport", "nodeagent/daemon"},
		outside: []string{mGRPC},
		why:     "the agent's way to the controllers, behind the interfaces of its daemon",
	},
	{
		path:  "nodeagent/enrolment",
		layer: 5,
		upTo:  3,
		also:  []string{"internal/durable", "api", "internal/transport", "nodeagent/controllers"},
		why:   "a host gets its certificate from the controllers",
	},
	{
		path:  "nodeagent/settings",
		layer: 5,
		upTo:  3,
		also: []string{"internal/durable",
			"api",
			"internal/conffile",
			"internal/transport",
			"nodeagent/runtime",
			"nodeagent/gpu",
			"nodeagent/telemetry",
			"nodeagent/daemon",
			"nodeagent/controllers",
			"nodeagent/enrolment",
		},
		why: "joins configuration and machine to what the agent's daemon is told",
	},
	{
		path:  "nodeagent/stepserver",
		layer: 5,
		upTo:  3,
		also: []string{
			"internal/conffile",
			"internal/transport",
			"nodeagent/runtime",
			"nodeagent/daemon",
			"nodeagent/controllers",
		},
		why: "carries the input and output of steps between clients and the shepherd",
	},
	{
		path:  "nodeagent/podserver",
		layer: 5,
		upTo:  3,
		also:  []string{"api", "internal/transport", "nodeagent/telemetry"},
		why:   "tells another scheduler's programs on the node what devices there are and who has them",
	},
	{
		path:  "nodeagent/machine",
		layer: 5,
		upTo:  3,
		also: []string{
			"internal/clock",
			"internal/conffile",
			"internal/nss",
			"internal/program",
			"internal/transport",
			"nodeagent/runtime",
			"nodeagent/image",
			"nodeagent/power",
			"nodeagent/netcount",
			"nodeagent/gpu",
			"nodeagent/telemetry",
			"nodeagent/daemon",
			"nodeagent/settings",
			"nodeagent/stepserver",
		},
		why: "the adapters of a node behind the interfaces of the agent's daemon",
	},
	{
		path:  "nodeagent/shipping",
		layer: 5,
		upTo:  3,
		also: []string{
			"internal/push",
			"nodeagent/telemetry",
			"nodeagent/settings",
			"nodeagent/machine",
		},
		why: "joins the figures of a node to what takes them elsewhere than by a scrape",
	},
	{
		path:  "nodeagent/pages",
		layer: 5,
		upTo:  3,
		also: []string{
			"collector",
			"internal/conffile",
			"internal/transport",
			"nodeagent/daemon",
			"nodeagent/settings",
		},
		why: "serves the metrics and the health of an agent",
	},
	{
		path:  "nodeagent/loginhost",
		layer: 5,
		upTo:  3,
		also: []string{
			"internal/transport",
			"nodeagent/controllers",
			"nodeagent/enrolment",
			"nodeagent/settings",
			"nodeagent/stepserver",
			"nodeagent/machine",
		},
		why: "the way of a host's commands to the controllers on others",
	},
	{
		path:  "nodeagent/assembly",
		layer: 5,
		upTo:  3,
		also: []string{
			"internal/clock",
			"internal/transport",
			"nodeagent/runtime",
			"nodeagent/display",
			"nodeagent/gpu",
			"nodeagent/telemetry",
			"nodeagent/daemon",
			"nodeagent/controllers",
			"nodeagent/enrolment",
			"nodeagent/settings",
			"nodeagent/stepserver",
			"nodeagent/podserver",
			"nodeagent/machine",
			"nodeagent/shipping",
			"nodeagent/pages",
			"nodeagent/loginhost",
		},
		why: "makes the agent of a host from its parts",
	},
	{
		path:    "accounting/daemon",
		layer:   5,
		upTo:    3,
		also:    []string{"api", "internal/wire"},
		outside: []string{mProtobuf},
		why:     "a daemon meets its adapters through interfaces it declares",
	},
	{
		path:  "ledger/store",
		layer: 5,
		upTo:  3,
		also:  []string{"ledger/log", "ledger/archive", "ledger/blob", "scheduler/daemon"},
		why:   "the ledger on disk behind the interfaces of the controller's daemon",
	},
	{
		path:    "ledger/care",
		layer:   5,
		upTo:    3,
		also:    []string{"ledger/log", "ledger/archive", "ledger/blob", "scheduler/daemon", "internal/conffile", "ledger/store"},
		outside: []string{"github.com/spf13/pflag"},
		why:     "reads and rebuilds a ledger that no controller uses",
	},
	{
		path:  "controller/peers",
		layer: 5,
		upTo:  3,
		also: []string{"internal/durable",
			"api",
			"ledger/log",
			"internal/clock",
			"internal/conffile",
			"internal/transport",
			"internal/audit",
		},
		outside: []string{mGRPC},
		why:     "what the controllers of a group ask each other and do about the answers",
	},
	{
		path:  "controller/catchup",
		layer: 5,
		upTo:  3,
		also: []string{
			"api",
			"internal/clock",
			"internal/transport",
			"ledger/store",
			"controller/peers",
		},
		why: "a controller that joins fetches what a snapshot names from the leader",
	},
	{
		path:  "internal/audit/trail",
		layer: 5,
		upTo:  3,
		also: []string{
			"api",
			"internal/audit",
			"internal/clock",
			"internal/conffile",
			"internal/transport",
			"ledger/log",
			"ledger/archive",
			"scheduler/daemon",
			"ledger/store",
			"controller/peers",
		},
		outside: []string{mGRPC, mProtobuf},
		why:     "gives the ledger and refused calls of a controller to the exporters of the trail",
	},
	{
		path:    "internal/traces/sending",
		layer:   5,
		upTo:    3,
		also:    []string{"api", "internal/audit", "internal/audit/trail", "internal/otlp", "internal/traces"},
		outside: []string{mOTLP},
		why:     "sends traces of jobs while this controller leads, from a position as the trail has",
	},
	{
		path:  "controller/host",
		layer: 5,
		upTo:  3,
		also: []string{
			"api", "scheduler/daemon", "internal/clock", "internal/conffile", "internal/nss",
			"internal/program", "internal/transport",
		},
		why: "the controller's host behind the interfaces of its daemon: users, programs, clock",
	},
	{
		path:  "controller/keys",
		layer: 5,
		upTo:  3,
		also: []string{"internal/durable",
			"scheduler/daemon",
			"internal/clock",
			"internal/conffile",
			"internal/transport",
			"controller/peers",
			"controller/host",
			"internal/transport/oidc",
		},
		why: "signs with the cluster's keys behind the interfaces of the controller's daemon",
	},
	{
		path:    "controller/forward",
		layer:   5,
		upTo:    3,
		also:    []string{"api", "internal/transport"},
		outside: []string{mGRPC, mProtobuf},
		why:     "a standby's gateway, whose calls the leader carries out",
	},
	{
		path:  "controller/sitescripts",
		layer: 5,
		upTo:  3,
		also:  []string{"internal/conffile", "internal/luascript", "scheduler/daemon"},
		why:   "the scripts of a site behind the interfaces of the controller's daemon",
	},
	{
		path:    "controller/founding",
		layer:   5,
		upTo:    3,
		also:    []string{"accounting/clickhouse", "ledger/log", "controller/peers"},
		outside: []string{"github.com/google/uuid"},
		why:     "looks wherever an older cluster may have left traces before a new one begins",
	},
	{
		path:  "controller/storage",
		layer: 5,
		upTo:  3,
		also: []string{
			"internal/conffile", "ledger/event", "ledger/log", "ledger/store", "scheduler/daemon",
		},
		why: "opens archive, content and log of a controller, and replays the log into the fold",
	},
	{
		path:    "controller/callers",
		layer:   5,
		upTo:    3,
		also:    []string{"internal/transport", "controller/host", "controller/forward"},
		outside: []string{mGRPC},
		why:     "joins tokens, certificates and users of the host to who calls a controller",
	},
	{
		path:    "controller/confirm",
		layer:   5,
		upTo:    3,
		also:    []string{"api", "ledger/log"},
		outside: []string{mGRPC},
		why:     "asks the log whether this controller leads before a call is answered",
	},
	{
		path:  "ledger/backup",
		layer: 5,
		upTo:  3,
		also: []string{"internal/durable",
			"api",
			"ledger/log",
			"ledger/archive",
			"ledger/blob",
			"scheduler/daemon",
			"internal/clock",
			"internal/conffile",
			"internal/program",
			"internal/transport",
			"ledger/store",
			"ledger/care",
			"controller/peers",
		},
		outside: []string{mGRPC, "github.com/spf13/pflag", "github.com/google/uuid"},
		why:     "copies a ledger that runs or rests, and puts a copy back",
	},
	{
		path:  "accounting/feed",
		layer: 5,
		upTo:  3,
		also: []string{
			"api",
			"internal/wire",
			"ledger/archive",
			"ledger/blob",
			"scheduler/daemon",
			"accounting/daemon",
			"ledger/store",
		},
		outside: []string{mGRPC},
		why:     "the ledger of this process or of another as accounting's source",
	},
	{
		path:  "controller/exporting",
		layer: 5,
		upTo:  3,
		also: []string{
			"internal/wire",
			"internal/clock",
			"internal/conffile",
			"internal/parts",
			"internal/push",
			"internal/transport",
			"internal/audit/trail",
			"internal/traces/sending",
			"ledger/log",
			"ledger/store",
			"collector",
			"accounting/feed",
		},
		outside: []string{mGRPC},
		why:     "joins the figures of a controller's parts to the pages and pushes of its metrics",
	},
	{
		path:  "controller/doors",
		layer: 5,
		upTo:  3,
		also: []string{
			"internal/conffile",
			"internal/parts",
			"internal/transport",
			"collector",
			"controller/callers",
		},
		why: "opens and serves what a process of musterd is reached by",
	},
	{
		path:  "controller/witness",
		layer: 5,
		upTo:  3,
		also: []string{
			"internal/clock",
			"internal/conffile",
			"internal/parts",
			"internal/transport",
			"ledger/log",
			"collector",
			"controller/peers",
			"controller/keys",
			"controller/exporting",
			"controller/doors",
		},
		why: "a member of a group of controllers that votes and keeps the log",
	},
	{
		path:  "controller/turns",
		layer: 5,
		upTo:  3,
		also:  []string{"internal/parts", "ledger/log", "scheduler/daemon"},
		why:   "decides when a controller of a group stands by and when it leads",
	},
	{
		path:  "controller/observer",
		layer: 5,
		upTo:  3,
		also: []string{
			"internal/clock",
			"internal/conffile",
			"internal/parts",
			"internal/transport",
			"collector",
			"controller/doors",
		},
		why: "runs the reader of a Slurm and serves what it read",
	},
	{
		path:  "accounting/observed",
		layer: 5,
		upTo:  3,
		also: []string{
			"accounting/clickhouse",
			"accounting/importer",
			"internal/conffile",
			"accounting/daemon",
		},
		why: "the history of a Slurm as accounting's source",
	},
	{
		path:  "accounting/jobcomp",
		layer: 5,
		upTo:  3,
		also:  []string{"internal/durable", "ledger/archive"},
		why:   "follows the ledger and its archive to write lines about finished jobs",
	},
	{
		path:  "accounting/mailing",
		layer: 5,
		upTo:  3,
		also: []string{"internal/durable", "internal/conffile", "internal/mailer",
			"accounting/daemon"},
		why: "sends reports while the accounting of this process is the one that stores, and mail about jobs while its controller leads",
	},
	{
		path:  "accounting/role",
		layer: 5,
		upTo:  3,
		also: []string{
			"api",
			"internal/clock",
			"internal/conffile",
			"internal/transport",
			"collector",
			"controller/host",
			"accounting/clickhouse",
			"accounting/embedded",
			"accounting/daemon",
			"accounting/feed",
			"accounting/mailing",
		},
		why: "puts the accounting of a process together, for a ledger here, elsewhere, or a Slurm",
	},

	{
		path:  "sim",
		layer: 6,
		upTo:  3,
		also: []string{
			"api",
			"internal/wire",
			"scheduler/daemon",
			"nodeagent/daemon",
			"accounting/daemon",
		},
		why: "the simulator drives the real decisions and twins of the adapters, never an adapter",
	},

	{path: "cli/opt", layer: 7, upTo: -1, outside: []string{"github.com/spf13/pflag"},
		why: "options as data, and their parser"},
	{
		path:  "cli/plain",
		layer: 7,
		upTo:  -1,
		why:   "makes text of others harmless for a terminal, whatever it is about",
	},
	{
		path:  "cli/column",
		layer: 7,
		upTo:  -1,
		also:  []string{"cli/plain"},
		why:   "lays out columns as Slurm's tools do, whatever is in them",
	},
	{
		path:  "cli/tree",
		layer: 7,
		upTo:  -1,
		why:   "writes a document as JSON or YAML, whatever is in it",
	},
	{
		path:  "cli/schema",
		layer: 7,
		upTo:  0,
		also:  []string{"cli/tree"},
		why:   "Slurm's documents as a table, whoever writes or reads them",
	},
	{
		path:  "cli/tool",
		layer: 7,
		upTo:  3,
		also:  []string{"api", "internal/wire", "internal/transport", "cli/opt", "cli/plain"},
		outside: []string{
			mProtobuf,
			mSys,
		},
		why: "what every command is made of; knows the connection and no command",
	},
	{
		path:    "cli/fetch",
		layer:   7,
		upTo:    3,
		also:    []string{"api", "internal/transport", "cli/tool"},
		outside: []string{mProtobuf},
		why:     "requests that several commands make, so that no command asks through another",
	},
	{
		path:  "cli/render",
		layer: 7,
		upTo:  3,
		also:  []string{"api", "cli/plain", "cli/column", "cli/schema", "cli/tree", "cli/tool"},
		why:   "nouns as text; a noun is written the same way by every command",
	},
	{
		path:  "cli/submit",
		layer: 7,
		upTo:  3,
		also: []string{
			"api",
			"internal/luascript",
			"internal/transport",
			"nodeagent/stepclient",
			"cli/opt",
			"cli/tool",
			"cli/fetch",
			"cli/render",
		},
		outside: []string{
			mProtobuf,
			mSys,
		},
		why: "the commands that start work, and no other command",
	},
	{
		path:  "cli/query",
		layer: 7,
		upTo:  3,
		also: []string{
			"api",
			"internal/wire",
			"internal/audit/ecs",
			"internal/traces",
			"cli/opt",
			"cli/column",
			"cli/tree",
			"cli/tool",
			"cli/fetch",
			"cli/render",
		},
		outside: []string{mProtobuf},
		why:     "the commands about the present, and no other command",
	},
	{
		path:  "cli/top",
		layer: 7,
		upTo:  3,
		also:  []string{"api", "cli/opt", "cli/tool", "cli/fetch", "cli/render"},
		outside: []string{
			mProtobuf,
			"github.com/charmbracelet",
		},
		why: "the full screen; muster-top links it, muster does not",
	},
	{
		path:  "cli/acct",
		layer: 7,
		upTo:  3,
		also: []string{
			"api",
			"cli/opt",
			"cli/column",
			"cli/tree",
			"cli/tool",
			"cli/fetch",
			"cli/render",
		},
		outside: []string{
			mProtobuf,
		},
		why: "the commands about the past and about accounts, and no other command",
	},
	{
		path:  "cli/suppose",
		layer: 7,
		upTo:  0,
		also: []string{
			"api",
			"cli/opt",
			"cli/tree",
			"cli/tool",
			"cli/render",
			"cli/submit",
			"cli/query",
			"cli/acct",
		},
		outside: []string{mProtobuf},
		why:     "runs the commands that change the cluster, and sends nothing of what they ask",
	},
	{
		path:    "internal/console",
		layer:   7,
		upTo:    3,
		also:    []string{"api", "internal/transport", "cli/tool", "cli/render", "cli/suppose"},
		outside: []string{mProtobuf},
		why:     "pages made of answers of the API, in the words of the commands",
	},
	{
		path:  "internal/console/firing",
		layer: 7,
		upTo:  3,
		also:  []string{"alerts", "internal/console"},
		why:   "keeps what Alertmanager says for the pages; the console itself knows no adapter",
	},
	{
		path:  "cli/local",
		layer: 7,
		upTo:  3,
		also:  []string{"sim", "cli/opt", "cli/tree", "cli/tool", "cli/render"},
		why:   "the commands that need no controller, and no other command",
	},
	{path: "cli/slurmapi", layer: 7, upTo: 3,
		also: []string{
			"api",
			"internal/transport",
			"cli/opt",
			"cli/schema",
			"cli/tree",
			"cli/tool",
			"cli/render",
			"cli/submit",
			"cli/query",
			"cli/acct",
		},
		outside: []string{
			mProtobuf,
		}, why: "answers programs by running commands; musterd links it, muster does not"},
	{
		path:  "cli/acct/importing",
		layer: 7,
		upTo:  3,
		also: []string{
			"accounting/clickhouse",
			"accounting/importer",
			"internal/clock",
			"internal/conffile",
		},
		outside: []string{
			"github.com/spf13/pflag",
		},
		why: "reads another cluster's records into the store; musterd links it, muster does not",
	},
	{path: "cli/local/cluster", layer: 7, upTo: 3,
		also: []string{"internal/durable",
			"api",
			"internal/conffile",
			"internal/program",
			"internal/transport",
			"nodeagent/runtime",
			"nodeagent/telemetry",
		},
		outside: []string{
			"github.com/spf13/pflag",
			mProtobuf,
		}, why: "sets up and starts daemons; musterd links it, muster does not"},
	{
		path:  "cli/local/whatif",
		layer: 7,
		upTo:  3,
		also: []string{"internal/durable",
			"api",
			"internal/wire",
			"internal/conffile",
			"internal/transport",
			"ledger/archive",
			"sim",
		},
		outside: []string{
			"github.com/spf13/pflag",
		},
		why: "replays the archive; musterd links it, muster does not",
	},
	{path: "cli/local/monitoring", layer: 7, upTo: 3,
		also: []string{"internal/durable",
			"alerts",
			"dashboards",
			"internal/conffile",
			"internal/mailer",
			"cli/local/cluster",
		},
		outside: []string{
			"github.com/spf13/pflag",
		}, why: "runs the generators of rules and panels; musterd links it, muster does not"},
	{
		path:  "cli",
		layer: 7,
		upTo:  3,
		also: []string{
			"cli/opt",
			"cli/tool",
			"cli/submit",
			"cli/query",
			"cli/acct",
			"cli/suppose",
			"cli/local",
		},
		why: "the table of commands; tools start quickly: no database, no GPU library, no gRPC",
	},

	{
		path:    "cmd",
		layer:   8,
		upTo:    8,
		outside: []string{anything},
		why:     "the mains put everything together",
	},
	{
		path:    "test",
		layer:   8,
		upTo:    8,
		outside: []string{anything},
		why:     "whole programs are tested with the real things",
	},
	{
		path:    "deploy",
		layer:   8,
		upTo:    8,
		outside: []string{anything},
		why:     "shipped files are rendered and parsed by tests",
	},
	{
		path:    "docs",
		layer:   8,
		upTo:    8,
		outside: []string{anything},
		why:     "generated pages read every definition",
	},
	{
		path:    "internal/testkit",
		layer:   8,
		upTo:    8,
		outside: []string{anything},
		why:     "serves tests only",
	},
	{path: "internal/tidy", layer: 8, upTo: -1, why: "judges the tree without being part of it"},
}

// testOnly are modules and rooms that production code never imports. A package
// whose name ends with "test" (a conformance suite) and testkit may.
var testOnly = []string{
	"testing", "net/http/httptest", "pgregory.net/rapid", "github.com/cockroachdb/datadriven", "internal/testkit", "internal/tidy",
}

// roomOf finds the room of a folder.
func roomOf(dir string) (room, bool) {
	best, found := room{}, false
	for _, r := range order {
		if isWithin(dir, r.path) && len(r.path) >= len(best.path) {
			best, found = r, true
		}
	}
	return best, found
}

// mayImport tells whether a package of room r may import one of room to.
func (r room) mayImport(to room) bool {
	return r.path == to.path || to.layer <= r.upTo || slices.Contains(r.also, to.path)
}

// mayKnow tells whether r may import a package from outside the module.
func (r room) mayKnow(importPath string) bool {
	return slices.ContainsFunc(
		r.outside,
		func(m string) bool { return m == anything || isWithin(importPath, m) },
	)
}

// isWithin tells whether path is dir or lies below it.
func isWithin(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, dir+"/")
}

// TableProblems finds mistakes in the order itself: a room listed twice, a
// neighbour that does not exist, an import that points upwards or in a circle.
func TableProblems() []string {
	var out []string
	seen := map[string]room{}
	for _, r := range order {
		if _, twice := seen[r.path]; twice {
			out = append(out, r.path+" stands in the table twice")
		}
		seen[r.path] = r
		if r.why == "" {
			out = append(out, r.path+" has no reason")
		}
		if r.pure && r.layer > 3 {
			out = append(out, r.path+" cannot be pure: only layers 0 to 3 are")
		}
		if r.upTo >= r.layer && r.layer < 8 {
			out = append(out, r.path+" may import its own layer as a whole: name the rooms instead")
		}
		for _, a := range r.also {
			// Only rooms that stand earlier, so that there can be no circle.
			if to, ok := seen[a]; !ok || to.layer > r.layer {
				out = append(out, r.path+" names "+a+", which does not stand above it in the table")
			}
		}
	}
	return out
}
