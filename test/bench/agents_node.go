package main

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/musterhpc/muster/internal/clock"
	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/nodeagent/controllers"
	"github.com/musterhpc/muster/nodeagent/daemon"
	"github.com/musterhpc/muster/nodeagent/gpu/attrib"
	"github.com/musterhpc/muster/nodeagent/gpu/device"
	adapters "github.com/musterhpc/muster/nodeagent/machine"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/spec"
)

// benchNode is a node without a machine: the agent as it is shipped, with its connection and its
// certificate, between a shepherd that runs nothing and a host that never changes.
type benchNode struct {
	name  string
	agent *daemon.Agent
	link  *controllers.Controllers

	mu        sync.Mutex
	connected bool
	since     time.Time // it is connected
	answered  time.Time // when its newest registration or heartbeat was
	silent    time.Duration
}

// newBenchNode makes the agent of a node that reaches the controllers at some addresses. Every
// node has an address of its own, since controllers limit the handshakes of one address.
func newBenchNode(number int, addresses []string, source *pki.Source) *benchNode {
	own := &net.TCPAddr{IP: net.IPv4(127, 1, byte(number>>8), byte(number))}
	dial := func(ctx context.Context, address string) (net.Conn, error) {
		dialer := net.Dialer{LocalAddr: own}
		return dialer.DialContext(ctx, "tcp", address)
	}
	name := nodeName(number)
	link := controllers.NewControllers(addresses, source, grpc.WithContextDialer(dial))
	node := &benchNode{name: name, link: link}
	config := daemon.Config{
		Node:    plan.Node{Name: name, Host: name, MemoryMiB: 16000},
		Version: version,
		Place:   name,
		// What a node reads of itself is not measured here.
		Interval: spec.Hour,
	}
	node.agent = daemon.New(config, daemon.Deps{
		Shepherd:    idleShepherd{node},
		Controller:  node.link,
		Credentials: &controllers.Verifier{Node: name},
		Host:        idleHost{},
		Telemetry:   nodeTelemetry{node},
		Spool:       noSpool{},
		Clock:       adapters.Clock{Clock: clock.NewSystem()},
		BootClock:   bootClock,
		Jitter:      rand.Int64N,
		Logger:      slog.New(slog.DiscardHandler),
	})
	return node
}

func nodeName(number int) string { return fmt.Sprintf("node%d", number) }

// run is the node's life until the context ends.
func (n *benchNode) run(ctx context.Context) {
	_ = n.agent.Run(ctx) // it ends with the context
	_ = n.link.Close()
}

// noteConnected takes that the connection to a controller began or ended.
func (n *benchNode) noteConnected(yes bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if yes {
		n.since = time.Now()
	}
	n.connected = yes
}

// noteAnswered takes that the controller has answered a heartbeat.
func (n *benchNode) noteAnswered() {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	if !n.answered.IsZero() {
		n.silent = max(n.silent, now.Sub(n.answered))
	}
	n.answered = now
}

// connectedSince tells when the connection began that the node has; false = it has none.
func (n *benchNode) connectedSince() (time.Time, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.since, n.connected
}

// longestSilence is the longest time between two answers to heartbeats so far.
func (n *benchNode) longestSilence() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return max(n.silent, time.Since(n.answered))
}

func bootClock() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		panic(fmt.Errorf("Linux has had CLOCK_BOOTTIME since 2.6.39: %w", err))
	}
	return now.Nano()
}

// idleShepherd runs nothing.
type idleShepherd struct{ of *benchNode }

func (idleShepherd) Hello(context.Context) (plan.Hello, error) {
	return plan.Hello{Protocol: 1, Release: version, BootID: benchBoot, CgroupMode: "none"}, nil
}
func (idleShepherd) Launch(context.Context, []plan.RunSpec) ([]plan.LaunchResult, error) {
	return nil, daemon.ErrDown
}
func (idleShepherd) List(context.Context) ([]plan.Observed, error) { return nil, nil }
func (idleShepherd) Signal(context.Context, plan.RunKey, int32, plan.Scope) error {
	return daemon.ErrNoRun
}
func (idleShepherd) Terminate(context.Context, plan.Terminate) error { return daemon.ErrNoRun }
func (idleShepherd) Tell(context.Context, plan.RunKey, string) error { return daemon.ErrNoRun }
func (idleShepherd) Adopt(context.Context, plan.RunKey, int) error   { return daemon.ErrNoRun }
func (idleShepherd) Ack(context.Context, []plan.RunKey) error        { return nil }
func (idleShepherd) Spaces(context.Context) ([]plan.RunKey, error)   { return nil, nil }
func (idleShepherd) Vacate(context.Context, plan.RunKey) error       { return nil }
func (idleShepherd) Usage(context.Context, ...plan.RunKey) ([]plan.Usage, error) {
	return nil, nil
}

// Grant is how the agent passes on that a heartbeat was answered.
func (s idleShepherd) Grant(context.Context, plan.Grant) error {
	s.of.noteAnswered()
	return nil
}

const benchBoot = "bench"

// idleHost is a machine of eight processors.
type idleHost struct{}

func (idleHost) Inventory(context.Context) (spec.Inventory, error) {
	return spec.Inventory{
		BootID: benchBoot, Arch: "amd64", OS: "Linux", CPUs: 8, Sockets: 1, CoresPerSocket: 8,
		ThreadsPerCore: 1, Mem: 16000,
	}, nil
}
func (idleHost) Load(context.Context) (int64, int64, error) { return 0, 16000, nil }
func (idleHost) BusyCPU() (int64, error)                    { return 0, nil }

// noSpool forgets.
type noSpool struct{}

func (noSpool) Load() ([]byte, error) { return nil, nil }
func (noSpool) Save([]byte) error     { return nil }

// nodeTelemetry keeps whether the node is connected, and drops everything else.
type nodeTelemetry struct{ of *benchNode }

func (t nodeTelemetry) SetControllerConnected(yes bool)             { t.of.noteConnected(yes) }
func (nodeTelemetry) SetDevices([]device.Device)                    {}
func (nodeTelemetry) SetSample(*device.Sample)                      {}
func (nodeTelemetry) SetGPUAccounts([]attrib.Account)               {}
func (nodeTelemetry) SetJobs([]daemon.JobOnNode)                    {}
func (nodeTelemetry) SetUsage([]daemon.JobUsage)                    {}
func (nodeTelemetry) SetEnergy(daemon.EnergyFigures)                {}
func (nodeTelemetry) SetCounters(spec.CounterValues)                {}
func (nodeTelemetry) GPUEvent(device.EventKind)                     {}
func (nodeTelemetry) SetShepherdUp(bool)                            {}
func (nodeTelemetry) SetReportsPending(int)                         {}
func (nodeTelemetry) SamplesStored(int)                             {}
func (nodeTelemetry) SamplesLost(int)                               {}
func (nodeTelemetry) SetSamplesPending(int)                         {}
func (nodeTelemetry) ReportSent()                                   {}
func (nodeTelemetry) ReportFailed()                                 {}
func (nodeTelemetry) Collected(daemon.Collection, spec.Span, error) {}
