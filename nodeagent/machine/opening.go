package machine

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/musterhpc/muster/internal/clock"
	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/nodeagent/daemon"
	"github.com/musterhpc/muster/nodeagent/gpu"
	"github.com/musterhpc/muster/nodeagent/gpu/clocks"
	"github.com/musterhpc/muster/nodeagent/settings"
	"github.com/musterhpc/muster/nodeagent/telemetry"
	"github.com/musterhpc/muster/nodeagent/telemetry/host"
	"github.com/musterhpc/muster/spec"
)

// Opening opens the adapters of a node that its jobs can do without. What cannot be opened is noted
// as a weakness.
type Opening struct {
	Settings   *settings.Settings
	Weaknesses *Weaknesses
	Log        *slog.Logger
}

// Meter finds what measures the node's energy, and tells the agent how often it
// is read; nil where nothing does.
func (o Opening) Meter(config *daemon.Config, now spec.Instant) daemon.Meter {
	meter, err := ChooseMeter(o.Settings, "/sys", now)
	if err != nil {
		o.Weaknesses.Note(err)
		return nil
	}
	if meter == nil {
		return nil
	}
	every, gap := o.Settings.MeterTimes(meter.IsSlow())
	if every == 0 {
		return nil
	}
	if every > gap {
		o.Weaknesses.Note(fmt.Errorf(
			"%w: %s would be read every %v, and counters may wrap around in %v: choose a shorter telemetry.interval",
			ErrEnergy,
			meter.Name(),
			time.Duration(every),
			time.Duration(gap),
		))
		return nil
	}
	config.EnergyEvery = every
	config.EnergyGap = gap
	config.IdleMilliWatts = o.Settings.Config.Energy.IdleWatts * 1000
	config.EnergySource = meter.Name()
	o.Log.Info("the node's energy is measured", "source", meter.Name())
	return meter
}

// SetCounters tells the agent what counts the network and the node.
func (o Opening) SetCounters(config *daemon.Config, deps *daemon.Deps) {
	gather := &o.Settings.Cluster.File.Agent.Gather
	if os.Geteuid() == 0 && gather.NetworkEvery != spec.Infinite {
		deps.Network = &Network{}
	}
	counters := &Counters{
		Source: host.This("/tmp"),
		Options: host.CounterOptions{
			NoFabric:      gather.NoInterconnect || gather.NetworkEvery == spec.Infinite,
			NoFilesystems: gather.NoFilesystem || gather.FilesystemEvery == spec.Infinite,
			Port:          o.Settings.Cluster.Gather.OFEDPort,
		},
	}
	if gather.Sysfs {
		counters.Options.Interfaces = o.Settings.Cluster.Gather.Interfaces
	}
	deps.Counters = counters
	config.CountEvery = o.Settings.CountEvery()
}

// Clocks is what sets the clocks of GPUs; nil where nothing can.
func (o Opening) Clocks(gpus gpu.Provider) daemon.Clocks {
	if gpus == nil {
		return nil
	}
	keeper, err := clocks.Open(filepath.Join(o.Settings.StateDir, "clocks.json"), gpus)
	if err != nil {
		o.Weaknesses.Note(fmt.Errorf("the clocks of GPUs are not set: %w", err))
		return nil
	}
	return keeper
}

// HealthRules makes the rules that muster.yaml asks for; nil where it asks for none.
func (o Opening) HealthRules(
	metrics *telemetry.Telemetry,
	sys clock.Clock,
) (*HealthRules, error) {
	if o.Settings.Config.Health.Interval == spec.Infinite {
		return nil, nil
	}
	rules, err := o.Settings.Config.Health.HealthRules()
	if err != nil {
		return nil, err
	}
	paths := append([]string{o.Settings.StateDir, "/tmp"}, o.Settings.Config.Health.Paths...)
	if base := o.Settings.SpaceBase(); base != "" {
		paths = append(paths, base)
	}
	return NewHealthRules(rules, paths, metrics, sys, o.Log), nil
}

// Images opens the cache of images.
func (o Opening) Images() (daemon.Images, error) {
	dir := filepath.Join(o.Settings.StateDir, "images")
	images, err := OpenImages(dir, &o.Settings.Config.Containers, o.Log)
	if err != nil {
		return nil, err
	}
	if err := images.CheckLogins(); err != nil {
		o.Log.Warn("the site's logins at registries are not used", "error", err)
		o.Weaknesses.Add(err.Error())
	}
	return images, nil
}

// Rereader reads the configuration again while the agent runs. The site's programs are
// taken over; anything else needs a restart, which is said.
func (o Opening) Rereader(
	source *pki.Source,
	scripts *NodeScripts,
	version string,
) func(context.Context) (daemon.Reread, error) {
	var one sync.Mutex // the files that the controller sends replace each other
	return func(ctx context.Context) (daemon.Reread, error) {
		one.Lock()
		defer one.Unlock()
		s, err := o.Settings.Reread(ctx, source, o.Log)
		if err != nil {
			return daemon.Reread{}, err
		}
		conf := &s.Cluster.File.Agent
		reread := daemon.Reread{
			Programs: s.AgentConfig(0, version).Programs,
			Restart:  s.NeedsRestart(o.Settings),
			Apply:    func() { scripts.Use(conf) },
		}
		if conf.Check.Program != "" {
			reread.Check = scripts
		}
		return reread, nil
	}
}
