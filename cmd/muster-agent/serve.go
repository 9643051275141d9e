package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/musterhpc/muster/collector/web"
	"github.com/musterhpc/muster/internal/clock"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/transport/listen"
	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/nodeagent/controllers"
	"github.com/musterhpc/muster/nodeagent/daemon"
	"github.com/musterhpc/muster/nodeagent/enrolment"
	"github.com/musterhpc/muster/nodeagent/gpu"
	"github.com/musterhpc/muster/nodeagent/gpu/clocks"
	"github.com/musterhpc/muster/nodeagent/gpu/simulated"
	"github.com/musterhpc/muster/nodeagent/machine"
	"github.com/musterhpc/muster/nodeagent/runtime"
	"github.com/musterhpc/muster/nodeagent/runtime/readas"
	"github.com/musterhpc/muster/nodeagent/settings"
	"github.com/musterhpc/muster/nodeagent/stepserver"
	"github.com/musterhpc/muster/nodeagent/telemetry"
	"github.com/musterhpc/muster/nodeagent/telemetry/host"
	"github.com/musterhpc/muster/spec"
)

// serveAgent runs the agent until the context ends.
func serveAgent(ctx context.Context, o settings.Options, errOut io.Writer) error {
	o, err := settings.FetchConfig(ctx, o, slog.New(slog.NewTextHandler(errOut, nil)))
	if err != nil {
		return err
	}
	s, err := settings.Read(o)
	if err != nil {
		return err
	}
	log := newLogger(s.Config.Log, errOut).With("node", s.Node.Name)
	for _, w := range s.Warnings {
		log.Warn("configuration", "problem", w)
	}
	// Users' jobs are run from below this folder: they must be able to pass.
	if err := os.MkdirAll(s.StateDir, 0o711); err != nil {
		return err
	}
	unlock, err := lockDir(s.StateDir)
	if err != nil {
		return err
	}
	defer unlock()
	addresses, err := s.ControllerAddresses()
	if err != nil {
		return err
	}
	source, err := s.NodeParty().OpenCertificates(ctx, addresses)
	if err != nil {
		return err
	}
	ctl := controllers.NewControllers(addresses, source)
	defer func() { _ = ctl.Close() }()
	a, err := assembleAgent(ctx, s, ctl, addresses, source, log)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	if source != nil {
		wg.Go(func() { enrolment.RenewCertificate(ctx, source, pki.Dir(s.NodeParty().TLS), ctl, log) })
	}
	if err := a.serveHTTP(ctx, &wg); err != nil {
		return err
	}
	a.startShipping(ctx, &wg)
	defer a.steps.Close()
	a.steps.Serve(ctx, &wg)
	a.openPods(ctl).Serve(ctx, &wg)
	a.gateHere(addresses, source).ServeCommands(ctx, &wg)
	return a.run(ctx)
}

// lockDir keeps a second agent out of a state folder.
func lockDir(dir string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf(
			"%s is in use by another muster-agent: give each agent its own --state-dir",
			dir,
		)
	}
	return func() { _ = f.Close() }, nil
}

// assembled is an agent with its adapters.
type assembled struct {
	s        *settings.Settings
	log      *slog.Logger
	agent    *daemon.Agent
	keeper   *machine.Shepherd
	metrics  *telemetry.Telemetry
	listener net.Listener // of /metrics; nil when off
	gpus     gpu.Provider
	jobs     *machine.JobFiles // nil when no mapping is written
	headers  []string          // of each push
	troubles []string          // what is weaker than the configuration asks for
	steps    *stepserver.Server
}

// noteWeakness notes something that is wrong and takes nothing from the jobs: it is
// logged, and the node says it of itself.
func (a *assembled) noteWeakness(err error) {
	a.log.Error("part of the configuration cannot be followed", "error", err)
	a.troubles = append(a.troubles, err.Error())
}

// maxSocket is what the kernel takes for the path of a unix socket.
const maxSocket = 107

// assembleAgent makes the agent, without starting anything but the GPU library.
func assembleAgent(
	ctx context.Context,
	s *settings.Settings,
	ctl daemon.Controller,
	addresses []string,
	source *pki.Source,
	log *slog.Logger,
) (*assembled, error) {
	a := &assembled{s: s, log: log, keeper: &machine.Shepherd{Base: s.SpaceBase()}}
	if err := checkShepherd(s); err != nil {
		return nil, err
	}
	sys := clock.NewSystem()
	choice, err := machine.ChooseGPUs(ctx, s, sys)
	if err != nil {
		return nil, err
	}
	for _, f := range choice.Failures {
		log.Warn("a way to the GPUs failed", "error", f)
	}
	if choice.Reason != "" {
		log.Info("GPUs", "choice", choice.Reason)
	}
	labels, err := telemetry.ParseJobLabels(s.Config.Telemetry.JobLabels)
	if err != nil {
		return nil, err
	}
	opts := telemetry.Options{
		Cluster:      s.Cluster.Config.ClusterName,
		Node:         s.Node.Name,
		Version:      version,
		JobLabels:    labels,
		JobAlias:     s.Config.Telemetry.JobLabelName,
		ClusterLabel: s.Config.Telemetry.ClusterLabel,
		Private:      s.HidesJobs(),
	}
	opts.Counters, err = machine.ReadCounters(s.Config.Telemetry.CountersFile)
	if err != nil {
		a.noteWeakness(fmt.Errorf("the default GPU fields are exported: %w", err))
	}
	var gpus daemon.GPUs
	a.gpus = choice.Provider
	if a.gpus != nil {
		opts.Provider, gpus = a.gpus.Name(), a.gpus
		if p, ok := a.gpus.(*simulated.Provider); ok {
			gpus = machine.SimulatedGPUs{Provider: p}
		}
	}
	a.metrics, err = telemetry.New(opts)
	if err != nil {
		return nil, err
	}
	if err := a.openShipping(); err != nil {
		return nil, err
	}
	a.steps = stepserver.Open(ctx, stepserver.Options{
		Node:         s.Node,
		Hostname:     s.Host.Hostname,
		Socket:       filepath.Join(s.StateDir, stepserver.Socket),
		Near:         stepserver.NearSocket(s.Config),
		Listen:       s.Config.Listen.AgentGRPC,
		Controllers:  addresses,
		Source:       source,
		Log:          log,
		NoteWeakness: a.noteWeakness,
	})
	m := &machine.Host{Settings: s, Metrics: a.metrics, Steps: a.steps}
	m.Addr, err = a.listenMetrics(ctx)
	if err != nil {
		return nil, err
	}
	cfg := s.AgentConfig(sys.Now(), version)
	if a.gpus == nil &&
		slices.ContainsFunc(s.Node.GRES, func(g spec.GRESSpec) bool { return g.Name == "gpu" }) {
		a.troubles = append(a.troubles, choice.Reason)
	}
	if p, ok := a.gpus.(interface{ Note() string }); ok && p.Note() != "" {
		a.troubles = append(a.troubles, p.Note())
	}
	if os.Geteuid() != 0 {
		why := fmt.Sprintf(
			"the agent is not root (uid %d): it runs jobs of that user only, and cannot hold them to their limits",
			os.Geteuid(),
		)
		log.Warn("running without root", "effect", why)
		a.troubles = append(a.troubles, why)
	}
	tuner := a.openClocks()
	cfg.Degraded = strings.Join(a.troubles, "; ")
	scripts := machine.NewNodeScripts(&s.Cluster.File.Agent, s.Node.Name)
	deps := daemon.Deps{
		Shepherd: a.keeper, Controller: ctl, Clocks: tuner, Credentials: &controllers.Verifier{Node: s.Node.Name}, GPUs: gpus, Host: m, Telemetry: machine.Telemetry{Of: a.metrics, Jobs: a.jobs},
		Samples: controllers.NewSampleStore(s.Config.Telemetry.SamplesTo, s.Config.AccountingSocket, ctl), Scripts: scripts, Spool: machine.SpoolFile(filepath.Join(s.StateDir, "agent.json")), Clock: machine.Clock{Clock: sys}, BootClock: runtime.BootClock, Jitter: rand.Int64N, Logger: log, Reboot: machine.NewRebooter(s.Cluster.Config.RebootProgram, filepath.Join(s.StateDir, "reboot.log"), log),
		Revoked:  a.steps.DropRevoked,
		Reread:   a.rereader(source, scripts),
		Outputs:  machine.OutputReader{Files: readas.New()},
		Accounts: machine.NewAccounts(),
	}
	deps.Meter = a.openMeter(&cfg, sys.Now())
	a.openCounters(&cfg, &deps)
	if os.Geteuid() == 0 {
		deps.Images, err = a.openImages()
		if err != nil {
			return nil, err
		}
	}
	if s.Cluster.File.Agent.Check.Program != "" {
		deps.Check = scripts
	}
	rules, err := a.openHealth(sys)
	if err != nil {
		return nil, err
	}
	if rules != nil {
		deps.Rules = rules
	}
	a.agent = daemon.New(cfg, deps)
	a.steps.SetAgent(a.agent)
	return a, nil
}

// openMeter finds what measures the node's energy, and tells the agent how often it
// is read; nil where nothing does.
func (a *assembled) openMeter(cfg *daemon.Config, now spec.Instant) daemon.Meter {
	meter, err := machine.ChooseMeter(a.s, "/sys", now)
	if err != nil {
		a.noteWeakness(err)
		return nil
	}
	if meter == nil {
		return nil
	}
	every, gap := a.s.MeterTimes(meter.IsSlow())
	if every == 0 {
		return nil
	}
	if every > gap {
		a.noteWeakness(fmt.Errorf(
			"%w: %s would be read every %v, and counters may wrap around in %v: choose a shorter telemetry.interval",
			machine.ErrEnergy,
			meter.Name(),
			time.Duration(every),
			time.Duration(gap),
		))
		return nil
	}
	cfg.EnergyEvery = every
	cfg.EnergyGap = gap
	cfg.IdleMilliWatts = a.s.Config.Energy.IdleWatts * 1000
	cfg.EnergySource = meter.Name()
	a.log.Info("the node's energy is measured", "source", meter.Name())
	return meter
}

// openCounters tells the agent what counts the network and the node.
func (a *assembled) openCounters(cfg *daemon.Config, deps *daemon.Deps) {
	gather := &a.s.Cluster.File.Agent.Gather
	if os.Geteuid() == 0 && gather.NetworkEvery != spec.Infinite {
		deps.Network = &machine.Network{}
	}
	counters := &machine.Counters{
		Source: host.This("/tmp"),
		Options: host.CounterOptions{
			NoFabric:      gather.NoInterconnect || gather.NetworkEvery == spec.Infinite,
			NoFilesystems: gather.NoFilesystem || gather.FilesystemEvery == spec.Infinite,
			Port:          a.s.Cluster.Gather.OFEDPort,
		},
	}
	if gather.Sysfs {
		counters.Options.Interfaces = a.s.Cluster.Gather.Interfaces
	}
	deps.Counters = counters
	cfg.CountEvery = a.s.CountEvery()
}

// checkShepherd finds what would keep the shepherd from starting.
func checkShepherd(s *settings.Settings) error {
	if p := runtime.Socket(s.ShepherdDir(), shepherdRelease()); len(p) > maxSocket {
		return fmt.Errorf(
			"the path of the shepherd's socket is %d characters long, and the kernel takes %d: choose a shorter --state-dir (%s)",
			len(p),
			maxSocket,
			p,
		)
	}
	if _, err := os.Stat(s.Shepherd); err != nil {
		return fmt.Errorf("the shepherd: %w (name it with --shepherd)", err)
	}
	return nil
}

// openClocks is what sets the clocks of GPUs; nil where nothing can.
func (a *assembled) openClocks() daemon.Clocks {
	if a.gpus == nil {
		return nil
	}
	keeper, err := clocks.Open(filepath.Join(a.s.StateDir, "clocks.json"), a.gpus)
	if err != nil {
		a.noteWeakness(fmt.Errorf("the clocks of GPUs are not set: %w", err))
		return nil
	}
	return keeper
}

// shepherdRelease names the shepherd that belongs to this agent.
func shepherdRelease() string {
	return strings.Map(func(r rune) rune {
		if r == '/' || r == 0 {
			return '-'
		}
		return r
	}, version)
}

// listenMetrics opens the metrics' address and gives it as others reach it.
func (a *assembled) listenMetrics(ctx context.Context) (string, error) {
	address := conffile.Addr(cmp.Or(a.s.Options.Metrics, string(a.s.Config.Listen.AgentMetrics)))
	if address.Off() || address == "off" {
		return "", nil
	}
	if !strings.Contains(string(address), ":") {
		address = ":" + address
	}
	var err error
	a.listener, err = listen.TCP(ctx, string(address))
	if err != nil {
		return "", fmt.Errorf("metrics: %w (choose another address with --metrics)", err)
	}
	hostPart, port, err := net.SplitHostPort(a.listener.Addr().String())
	if err != nil {
		return "", err
	}
	if ip := net.ParseIP(hostPart); ip == nil || ip.IsUnspecified() {
		hostPart = cmp.Or(a.s.Node.Addr, a.s.Host.Hostname)
	}
	return net.JoinHostPort(hostPart, port), nil
}

// serveHTTP serves metrics and health until the context ends.
func (a *assembled) serveHTTP(ctx context.Context, wg *sync.WaitGroup) error {
	if a.listener == nil {
		return nil
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", a.metrics.Handler())
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		h := a.agent.Health()
		answer(w, h.Shepherd, h)
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		h := a.agent.Health()
		answer(w, h.Shepherd && h.Connected, h)
	})
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	opts := webOptions(a.s.Config)
	if err := opts.Check(); err != nil {
		return err
	}
	wg.Go(func() {
		if err := opts.Serve(a.listener, srv, a.log); !errors.Is(err, http.ErrServerClosed) {
			a.log.Error("metrics are not served any more", "error", err)
		}
	})
	wg.Go(func() {
		<-ctx.Done()
		stop, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_ = srv.Shutdown(stop)
	})
	a.log.Info("metrics", "address", a.listener.Addr().String())
	return nil
}

// answer says how the agent does.
func answer(w http.ResponseWriter, ok bool, health daemon.Health) {
	if !ok {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	says := func(yes bool, good, bad string) string {
		if yes {
			return good
		}
		return bad
	}
	fmt.Fprintf(
		w,
		"shepherd: %s\ncontroller: %s\nreports waiting: %d\n",
		says(health.Shepherd, "answers", "does not answer"),
		says(health.Connected, "connected", "not connected, jobs go on"),
		health.Pending,
	)
}

// run starts or finds the shepherd and runs the agent until the context ends;
// shepherd and jobs go on.
func (a *assembled) run(ctx context.Context) error {
	if a.gpus != nil {
		defer func() { _ = a.gpus.Close() }()
	}
	cfg := runtime.Config{
		Binary:      a.s.Shepherd,
		Dir:         a.s.ShepherdDir(),
		Node:        a.s.Node.Name,
		Release:     shepherdRelease(),
		Env:         a.s.ShepherdEnv,
		CallTimeout: time.Duration(a.s.Cluster.Config.Timing.MessageTimeout),
	}
	switch a.s.Cluster.Cgroup.Plugin {
	case "cgroup/v1":
		cfg.Args = append(cfg.Args, "--cgroup-mode", "v1")
	case "cgroup/v2":
		cfg.Args = append(cfg.Args, "--cgroup-mode", "v2")
	case "disabled":
		cfg.Args = append(cfg.Args, "--cgroup-mode", "none")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	keeper, err := runtime.Keep(ctx, cfg, a.log, a.agent.Heard)
	if err != nil {
		return err
	}
	a.keeper.Keeper = keeper
	err = a.agent.Run(ctx)
	cancel()
	keeper.Wait()
	if err == nil {
		a.log.Info("the agent ends; the shepherd and the jobs go on")
	}
	return err
}

// printNode prints this machine as slurmd -C does.
func printNode(out interface{ Write([]byte) (int, error) }) error {
	inv, err := host.Read(host.This("/tmp"))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, inv.String())
	return err
}

// webOptions is what the metrics ask of those who read them.
func webOptions(cfg *conffile.Config) web.Options {
	return web.Options{ConfigFile: cfg.TLS.AgentWebConfig, TokenFile: cfg.TLS.WebTokenFile}
}
