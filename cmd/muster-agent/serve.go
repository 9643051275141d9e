package main

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
	unlock, err := machine.LockDir(s.StateDir)
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
	if err := a.pages.Serve(ctx, &wg, a.metrics.Handler(), a.agent.Health); err != nil {
		return err
	}
	if err := a.shipping.Start(ctx, &wg); err != nil {
		a.weak.Note(err)
	}
	defer a.steps.Close()
	a.steps.Serve(ctx, &wg)
	a.openPods(ctl).Serve(ctx, &wg)
	loginhost.OpenGate(s, addresses, source, a.weak, log).ServeCommands(ctx, &wg)
	return a.run(ctx)
}

// assembled is an agent with its adapters.
type assembled struct {
	s        *settings.Settings
	log      *slog.Logger
	agent    *daemon.Agent
	keeper   *machine.Shepherd
	metrics  *telemetry.Telemetry
	pages    *pages.Pages
	gpus     gpu.Provider
	weak     *machine.Weaknesses
	shipping *shipping.Shipping
	steps    *stepserver.Server
}

// assembleAgent makes the agent, without starting anything but the GPU library.
func assembleAgent(
	ctx context.Context,
	s *settings.Settings,
	ctl daemon.Controller,
	addresses []string,
	source *pki.Source,
	log *slog.Logger,
) (*assembled, error) {
	a := &assembled{
		s:      s,
		log:    log,
		keeper: &machine.Shepherd{Base: s.SpaceBase()},
		weak:   machine.NewWeaknesses(log),
	}
	if err := machine.CheckShepherd(s, version); err != nil {
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
	opts, err := exporterOptions(s, a.weak)
	if err != nil {
		return nil, err
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
	a.shipping, err = shipping.Open(s, a.metrics, a.weak, log)
	if err != nil {
		return nil, err
	}
	a.steps = openSteps(ctx, s, addresses, source, a.weak, log)
	a.pages, err = pages.Open(ctx, s, log)
	if err != nil {
		return nil, err
	}
	m := &machine.Host{
		Settings:   s,
		Metrics:    a.metrics,
		Steps:      a.steps,
		Addr:       a.pages.Address(),
		Weaknesses: a.weak,
	}
	cfg := s.AgentConfig(sys.Now(), version)
	a.noteGPUs(choice.Reason)
	noteWithoutRoot(a.weak, log)
	opening := machine.Opening{Settings: s, Weaknesses: a.weak, Log: log}
	tuner := opening.Clocks(a.gpus)
	scripts := machine.NewNodeScripts(&s.Cluster.File.Agent, s.Node.Name)
	deps := daemon.Deps{
		Shepherd:    a.keeper,
		Controller:  ctl,
		Clocks:      tuner,
		Credentials: &controllers.Verifier{Node: s.Node.Name},
		GPUs:        gpus,
		Host:        m,
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
		Logger:    log,
		Reboot: machine.NewRebooter(
			s.Cluster.Config.RebootProgram,
			filepath.Join(s.StateDir, "reboot.log"),
			log,
		),
		Revoked:  a.steps.DropRevoked,
		Reread:   opening.Rereader(source, scripts, version),
		Outputs:  machine.OutputReader{Files: readas.New()},
		Accounts: machine.NewAccounts(),
	}
	deps.Meter = opening.Meter(&cfg, sys.Now())
	opening.SetCounters(&cfg, &deps)
	if os.Geteuid() == 0 {
		deps.Images, err = opening.Images()
		if err != nil {
			return nil, err
		}
	}
	if s.Cluster.File.Agent.Check.Program != "" {
		deps.Check = scripts
	}
	rules, err := opening.HealthRules(a.metrics, sys)
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
func openSteps(
	ctx context.Context,
	s *settings.Settings,
	controllers []string,
	source *pki.Source,
	weak *machine.Weaknesses,
	log *slog.Logger,
) *stepserver.Server {
	return stepserver.Open(ctx, stepserver.Options{
		Node:         s.Node,
		Hostname:     s.Host.Hostname,
		Socket:       filepath.Join(s.StateDir, stepserver.Socket),
		Near:         stepserver.NearSocket(s.Config),
		Listen:       s.Config.Listen.AgentGRPC,
		Controllers:  controllers,
		Source:       source,
		Log:          log,
		NoteWeakness: weak.Note,
	})
}

// exporterOptions configures the exporter of this node. If the file of GPU fields cannot be read,
// the exporter has its default fields, and the node reports the error as a weakness.
func exporterOptions(s *settings.Settings, weak *machine.Weaknesses) (telemetry.Options, error) {
	labels, err := telemetry.ParseJobLabels(s.Config.Telemetry.JobLabels)
	if err != nil {
		return telemetry.Options{}, err
	}
	options := telemetry.Options{
		Cluster:      s.Cluster.Config.ClusterName,
		Node:         s.Node.Name,
		Version:      version,
		JobLabels:    labels,
		JobAlias:     s.Config.Telemetry.JobLabelName,
		ClusterLabel: s.Config.Telemetry.ClusterLabel,
		Private:      s.HidesJobs(),
	}
	options.Counters, err = machine.ReadCounters(s.Config.Telemetry.CountersFile)
	if err != nil {
		weak.Note(fmt.Errorf("the default GPU fields are exported: %w", err))
	}
	return options, nil
}

// noteWithoutRoot says what an agent cannot do that is not root.
func noteWithoutRoot(weak *machine.Weaknesses, log *slog.Logger) {
	if os.Geteuid() == 0 {
		return
	}
	why := fmt.Sprintf(
		"the agent is not root (uid %d): it runs jobs of that user only, and cannot hold them to their limits",
		os.Geteuid(),
	)
	log.Warn("running without root", "effect", why)
	weak.Add(why)
}

// run starts or finds the shepherd and runs the agent until the context ends;
// shepherd and jobs go on.
func (a *assembled) run(ctx context.Context) error {
	if a.gpus != nil {
		defer func() { _ = a.gpus.Close() }()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	keeper, err := runtime.Keep(ctx, machine.ShepherdConfig(a.s, version), a.log, a.agent.Heard)
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

// enrolNode is --enrol on a compute node.
func enrolNode(ctx context.Context, o settings.Options, out io.Writer) error {
	o, err := settings.FetchConfig(ctx, o, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	s, err := settings.Read(o)
	if err != nil {
		return err
	}
	if o.Sent != nil { // it has enrolled on the way
		return s.NodeParty().NoteWelcome(ctx, enrolment.Enrolled{Controllers: o.Sent.Controllers}, out)
	}
	addresses, err := s.ControllerAddresses()
	if err != nil {
		return err
	}
	return s.NodeParty().EnrolHost(ctx, enrolment.Enrolled{Controllers: addresses}, out)
}

// serveLogin is --login: the agent of a login host, or its enrolment.
func serveLogin(ctx context.Context, o settings.Options, out, errOut io.Writer) error {
	s, err := settings.ReadLogin(o)
	if err != nil {
		return err
	}
	if o.Enrol {
		return loginhost.Enrol(ctx, s, out)
	}
	return loginhost.Serve(ctx, s, newLogger(s.Cfg.Log, errOut).With("login", s.Party.Name))
}
