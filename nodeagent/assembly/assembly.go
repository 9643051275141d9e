// Package assembly makes the agent of a node or of a login host from its parts: it reads the
// settings, opens each adapter, hands them to the daemon and runs what stands beside it. What an
// adapter does is the business of its own package; what one of them cannot do is noted here as a
// weakness of the node, because a node with a broken counter still runs jobs.
package assembly

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/musterhpc/muster/internal/clock"
	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/nodeagent/controllers"
	"github.com/musterhpc/muster/nodeagent/daemon"
	"github.com/musterhpc/muster/nodeagent/display"
	"github.com/musterhpc/muster/nodeagent/enrolment"
	"github.com/musterhpc/muster/nodeagent/gpu"
	"github.com/musterhpc/muster/nodeagent/gpu/simulated"
	"github.com/musterhpc/muster/nodeagent/loginhost"
	"github.com/musterhpc/muster/nodeagent/machine"
	"github.com/musterhpc/muster/nodeagent/pages"
	"github.com/musterhpc/muster/nodeagent/podserver"
	"github.com/musterhpc/muster/nodeagent/podserver/podapi"
	"github.com/musterhpc/muster/nodeagent/runtime"
	"github.com/musterhpc/muster/nodeagent/runtime/readas"
	"github.com/musterhpc/muster/nodeagent/settings"
	"github.com/musterhpc/muster/nodeagent/shipping"
	"github.com/musterhpc/muster/nodeagent/stepserver"
	"github.com/musterhpc/muster/nodeagent/telemetry"
	"github.com/musterhpc/muster/spec"
)

// Serve runs the agent of a compute node until the context ends. The log goes to errOut.
func Serve(ctx context.Context, options settings.Options, version string, errOut io.Writer) error {
	options, err := settings.FetchConfig(ctx, options, slog.New(slog.NewTextHandler(errOut, nil)))
	if err != nil {
		return err
	}
	s, err := settings.Read(options)
	if err != nil {
		return err
	}
	logger := s.Config.Log.NewLogger(errOut, new(slog.LevelVar)).With("node", s.Node.Name)
	for _, w := range s.Warnings {
		logger.Warn("configuration", "problem", w)
	}
	// Users' jobs are run from below this folder: they must be able to pass.
	if err := os.MkdirAll(s.StateDir, 0o711); err != nil {
		return err
	}
	unlock, err := machine.LockDir(s.StateDir)
	if err != nil {
		return err
	}
	defer unlock()
	addresses, err := s.ControllerAddresses()
	if err != nil {
		return err
	}
	party := s.NodeParty()
	party.Waiting = func(err error) {
		logger.Warn("no controller answers the enrolment yet", "error", err)
	}
	source, err := party.OpenCertificates(ctx, addresses)
	if err != nil {
		return err
	}
	ctl := controllers.NewControllers(addresses, source)
	defer func() { _ = ctl.Close() }()
	a := newAssembled(s, version, logger)
	a.source, a.addresses = source, addresses
	err = a.assembleAgent(ctx, ctl)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel() // first: what wg waits for ends with the context
	if source != nil {
		wg.Go(func() {
			enrolment.RenewCertificate(ctx, source, pki.Dir(s.NodeParty().TLS), ctl, logger)
		})
	}
	if err := a.pages.Serve(ctx, &wg, a.metrics.Handler(), a.agent.Health); err != nil {
		return err
	}
	if err := a.shipping.Start(ctx, &wg); err != nil {
		a.weak.Note(err)
	}
	defer a.steps.Close()
	defer a.displays.Close()
	a.steps.Serve(ctx, &wg)
	a.openPods(ctl).Serve(ctx, &wg)
	loginhost.OpenGate(s, addresses, source, a.weak, logger).ServeCommands(ctx, &wg)
	return a.run(ctx)
}

// assembled is an agent with its adapters.
type assembled struct {
	s         *settings.Settings
	version   string
	log       *slog.Logger
	addresses []string    // of the controllers
	source    *pki.Source // this host's certificates; nil over a local socket

	agent    *daemon.Agent
	keeper   *machine.Shepherd
	metrics  *telemetry.Telemetry
	pages    *pages.Pages
	gpus     gpu.Provider
	weak     *machine.Weaknesses
	shipping *shipping.Shipping
	steps    *stepserver.Server
	displays *display.Displays
}

func newAssembled(s *settings.Settings, version string, logger *slog.Logger) *assembled {
	return &assembled{
		s:       s,
		version: version,
		log:     logger,
		keeper:  &machine.Shepherd{Base: s.SpaceBase()},
		weak:    machine.NewWeaknesses(logger),
	}
}

// assembleAgent makes the agent, without starting anything but the GPU library.
func (a *assembled) assembleAgent(ctx context.Context, ctl *controllers.Controllers) error {
	s := a.s
	logger := a.log
	if err := machine.CheckShepherd(s, a.version); err != nil {
		return err
	}
	sys := clock.NewSystem()
	choice, err := machine.ChooseGPUs(ctx, s, sys)
	if err != nil {
		return err
	}
	for _, f := range choice.Failures {
		logger.Warn("a way to the GPUs failed", "error", f)
	}
	if choice.Reason != "" {
		logger.Info("GPUs", "choice", choice.Reason)
	}
	opts, err := a.exporterOptions()
	if err != nil {
		return err
	}
	var gpus daemon.GPUs
	a.gpus = choice.Provider
	if a.gpus != nil {
		opts.Provider, gpus = a.gpus.Name(), a.gpus
		if provider, ok := a.gpus.(*simulated.Provider); ok {
			gpus = machine.SimulatedGPUs{Provider: provider}
		}
	}
	a.metrics, err = telemetry.New(opts)
	if err != nil {
		return err
	}
	a.shipping, err = shipping.Open(s, a.metrics, a.weak, logger)
	if err != nil {
		return err
	}
	if err := a.openSteps(ctx); err != nil {
		return err
	}
	a.pages, err = pages.Open(ctx, s, logger)
	if err != nil {
		return err
	}
	host := &machine.Host{
		Settings:   s,
		Metrics:    a.metrics,
		Steps:      a.steps,
		Addr:       a.pages.Address(),
		Weaknesses: a.weak,
	}
	config := s.AgentConfig(sys.Now(), a.version)
	a.noteGPUs(choice.Reason)
	a.noteWithoutRoot()
	opening := machine.Opening{Settings: s, Weaknesses: a.weak, Log: logger}
	tuner := opening.Clocks(a.gpus)
	scripts := machine.NewNodeScripts(&s.Cluster.File.Agent, s.Node.Name)
	deps := daemon.Deps{
		Shepherd:    a.keeper,
		Controller:  ctl,
		Clocks:      tuner,
		Displays:    a.displays,
		Credentials: &controllers.Verifier{Node: s.Node.Name},
		GPUs:        gpus,
		Host:        host,
		Telemetry:   machine.Telemetry{Of: a.metrics, Jobs: a.shipping.Jobs()},
		Samples: controllers.NewSampleStore(
			s.Config.Telemetry.SamplesTo,
			s.Config.AccountingSocket,
			ctl,
		),
		Scripts:   scripts,
		Spool:     machine.SpoolFile(filepath.Join(s.StateDir, "agent.json")),
		Clock:     machine.Clock{Clock: sys},
		BootClock: runtime.BootClock,
		Jitter:    rand.Int64N,
		Logger:    logger,
		Reboot: machine.NewRebooter(
			s.Cluster.Config.RebootProgram,
			filepath.Join(s.StateDir, "reboot.log"),
			logger,
		),
		Revoked:  a.steps.DropRevoked,
		Reread:   opening.Rereader(a.source, scripts, a.version),
		Outputs:  machine.OutputReader{Files: readas.New()},
		Accounts: machine.NewAccounts(),
	}
	deps.Meter = opening.Meter(&config, sys.Now())
	opening.SetCounters(&config, &deps)
	if os.Geteuid() == 0 {
		deps.Images, err = opening.Images()
		if err != nil {
			return err
		}
	}
	if s.Cluster.File.Agent.Check.Program != "" {
		deps.Check = scripts
	}
	rules, err := opening.HealthRules(a.metrics, sys)
	if err != nil {
		return err
	}
	if rules != nil {
		deps.Rules = rules
	}
	a.agent = daemon.New(config, deps)
	a.steps.SetAgent(a.agent)
	return nil
}

// noteGPUs notes why there is no provider where the node declares GPUs, and what a provider says
// of itself.
func (a *assembled) noteGPUs(reason string) {
	isGPU := func(g spec.GRESSpec) bool { return g.Name == "gpu" }
	if a.gpus == nil && slices.ContainsFunc(a.s.Node.GRES, isGPU) {
		a.weak.Add(reason)
	}
	if p, ok := a.gpus.(interface{ Note() string }); ok && p.Note() != "" {
		a.weak.Add(p.Note())
	}
}

// openSteps makes the server that srun, sattach and sbcast reach on this node.
func (a *assembled) openSteps(ctx context.Context) error {
	s := a.s
	var err error
	a.displays, err = display.Open(filepath.Join(s.StateDir, "x11"), a.log)
	if err != nil {
		return err
	}
	a.steps = stepserver.Open(ctx, stepserver.Options{
		Node:         s.Node,
		Hostname:     s.Host.Hostname,
		Socket:       filepath.Join(s.StateDir, stepserver.Socket),
		Near:         stepserver.NearSocket(s.Config),
		Listen:       s.Config.Listen.AgentGRPC,
		Controllers:  a.addresses,
		Source:       a.source,
		Displays:     a.displays,
		Log:          a.log,
		NoteWeakness: a.weak.Note,
	})
	return nil
}

// exporterOptions configures the exporter of this node. If the file of GPU fields cannot be read,
// the exporter has its default fields, and the node reports the error as a weakness.
func (a *assembled) exporterOptions() (telemetry.Options, error) {
	s := a.s
	labels, err := telemetry.ParseJobLabels(s.Config.Telemetry.JobLabels)
	if err != nil {
		return telemetry.Options{}, err
	}
	options := telemetry.Options{
		Cluster:      s.Cluster.Config.ClusterName,
		Node:         s.Node.Name,
		Version:      a.version,
		JobLabels:    labels,
		JobAlias:     s.Config.Telemetry.JobLabelName,
		ClusterLabel: s.Config.Telemetry.ClusterLabel,
		Private:      s.HidesJobs(),
	}
	options.Health, err = s.Config.Health.HealthRules()
	if err != nil {
		return telemetry.Options{}, err
	}
	options.Counters, err = machine.ReadCounters(s.Config.Telemetry.CountersFile)
	if err != nil {
		a.weak.Note(fmt.Errorf("the default GPU fields are exported: %w", err))
	}
	return options, nil
}

// noteWithoutRoot says what an agent cannot do that is not root.
func (a *assembled) noteWithoutRoot() {
	if os.Geteuid() == 0 {
		return
	}
	reason := fmt.Sprintf(
		"the agent is not root (uid %d): it runs jobs of that user only, and cannot hold them to their limits",
		os.Geteuid(),
	)
	a.log.Warn("running without root", "effect", reason)
	a.weak.Add(reason)
}

// run starts or finds the shepherd and runs the agent until the context ends;
// shepherd and jobs go on.
func (a *assembled) run(ctx context.Context) error {
	if a.gpus != nil {
		defer func() { _ = a.gpus.Close() }()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	keeper, err := runtime.Keep(ctx, machine.ShepherdConfig(a.s, a.version), a.log, a.agent.Heard)
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

// openPods opens the socket for what another scheduler runs on this node; nil, with the
// reason in the log, where it cannot be. Jobs need none of it.
func (a *assembled) openPods(ctl *controllers.Controllers) *podserver.Server {
	server, err := podserver.Open(podserver.Options{
		Node:    a.s.Node.Name,
		Socket:  filepath.Join(a.s.StateDir, podapi.Socket),
		Devices: a.metrics.Devices,
		Holds:   ctl.FetchHolds,
		SetPods: a.metrics.SetPods,
		Log:     a.log,
	})
	if err != nil {
		a.log.Warn("the socket for pods is not open", "error", err)
	}
	return server
}

// Enrol gets the certificate of a compute node, says so on out, and ends.
func Enrol(ctx context.Context, options settings.Options, out io.Writer) error {
	options, err := settings.FetchConfig(ctx, options, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	s, err := settings.Read(options)
	if err != nil {
		return err
	}
	if options.Sent != nil { // it has enrolled on the way
		return s.NodeParty().NoteWelcome(
			ctx, enrolment.Enrolled{Controllers: options.Sent.Controllers}, out,
		)
	}
	addresses, err := s.ControllerAddresses()
	if err != nil {
		return err
	}
	return s.NodeParty().EnrolHost(ctx, enrolment.Enrolled{Controllers: addresses}, out)
}

// ServeLogin runs the agent of a login host until the context ends, or only enrols it.
func ServeLogin(ctx context.Context, options settings.Options, out, errOut io.Writer) error {
	login, err := settings.ReadLogin(options)
	if err != nil {
		return err
	}
	if options.Enrol {
		return loginhost.Enrol(ctx, login, out)
	}
	return loginhost.Serve(
		ctx,
		login,
		login.Cfg.Log.NewLogger(errOut, new(slog.LevelVar)).With("login", login.Party.Name),
	)
}
