// Package machine is this host behind the interfaces that nodeagent/daemon declares: the shepherd,
// the inventory, GPUs, images, scripts, health rules, metrics, the files of job mapping, and
// the clock.
package machine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/musterhpc/muster/internal/clock"
	"github.com/musterhpc/muster/internal/nss"
	"github.com/musterhpc/muster/nodeagent/daemon"
	"github.com/musterhpc/muster/nodeagent/gpu/attrib"
	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/runtime"
	"github.com/musterhpc/muster/nodeagent/settings"
	"github.com/musterhpc/muster/nodeagent/stepserver"
	"github.com/musterhpc/muster/nodeagent/telemetry"
	"github.com/musterhpc/muster/nodeagent/telemetry/host"
	"github.com/musterhpc/muster/spec"
)

// Shepherd is the keeper as the agent sees it.
type Shepherd struct {
	Keeper *runtime.Keeper
	Base   string // of the private folders of jobs; empty where they have none
}

func translate(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, runtime.ErrNotFound):
		return fmt.Errorf("%w: %w", daemon.ErrNoRun, err)
	case errors.Is(err, runtime.ErrDown),
		errors.Is(err, runtime.ErrClosed),
		errors.Is(err, runtime.ErrNoAnswer):
		return fmt.Errorf("%w: %w", daemon.ErrDown, err)
	}
	return err
}

// Hello implements daemon.Shepherd.
func (s *Shepherd) Hello(ctx context.Context) (plan.Hello, error) {
	hello, err := s.Keeper.Hello(ctx)
	return hello, translate(err)
}

// Launch implements daemon.Shepherd.
func (s *Shepherd) Launch(ctx context.Context, runs []plan.RunSpec) ([]plan.LaunchResult, error) {
	r, err := s.Keeper.Launch(ctx, runs)
	return r, translate(err)
}

// List implements daemon.Shepherd.
func (s *Shepherd) List(ctx context.Context) ([]plan.Observed, error) {
	o, err := s.Keeper.List(ctx)
	return o, translate(err)
}

// Tell implements daemon.Shepherd.
func (s *Shepherd) Tell(ctx context.Context, key plan.RunKey, line string) error {
	return translate(s.Keeper.Tell(ctx, key, line))
}

// Signal implements daemon.Shepherd.
func (s *Shepherd) Signal(ctx context.Context, key plan.RunKey, sig int32, scope plan.Scope) error {
	return translate(s.Keeper.Signal(ctx, key, sig, scope))
}

// Terminate implements daemon.Shepherd.
func (s *Shepherd) Terminate(ctx context.Context, terminate plan.Terminate) error {
	return translate(s.Keeper.Terminate(ctx, terminate))
}

// usagePatience is how long the shepherd may take over what jobs have used. It
// answers in milliseconds; one that stands still must not stop the figures of
// the machine, which the same loop reads.
const usagePatience = 5 * time.Second

// Usage implements daemon.Shepherd.
func (s *Shepherd) Usage(ctx context.Context, keys ...plan.RunKey) ([]plan.Usage, error) {
	ctx, cancel := context.WithTimeout(ctx, usagePatience)
	defer cancel()
	u, err := s.Keeper.Usage(ctx, keys...)
	return u, translate(err)
}

// Grant implements daemon.Shepherd.
func (s *Shepherd) Grant(ctx context.Context, grant plan.Grant) error {
	return translate(s.Keeper.Grant(ctx, grant))
}

// Spaces implements daemon.Shepherd.
func (s *Shepherd) Spaces(ctx context.Context) ([]plan.RunKey, error) {
	k, err := s.Keeper.Spaces(ctx, s.Base)
	return k, translate(err)
}

// Vacate implements daemon.Shepherd.
func (s *Shepherd) Vacate(ctx context.Context, key plan.RunKey) error {
	return translate(s.Keeper.Vacate(ctx, key))
}

// Adopt implements daemon.Shepherd.
func (s *Shepherd) Adopt(ctx context.Context, key plan.RunKey, pid int) error {
	return translate(s.Keeper.Adopt(ctx, key, pid))
}

// Ack implements daemon.Shepherd.
func (s *Shepherd) Ack(ctx context.Context, keys []plan.RunKey) error {
	return translate(s.Keeper.Ack(ctx, keys))
}

// Host is this host.
type Host struct {
	Settings *settings.Settings
	Metrics  *telemetry.Telemetry
	Addr     string // of /metrics
	Steps    *stepserver.Server
	// Weaknesses are reported with the inventory. They are complete when the agent begins to run.
	Weaknesses *Weaknesses
}

// Inventory implements daemon.Host.
func (m *Host) Inventory(context.Context) (spec.Inventory, error) {
	found, err := host.Read(host.This("/tmp"))
	if err != nil {
		return spec.Inventory{}, err
	}
	inventory := m.Settings.NodeInventory(found)
	inventory.MetricsAddr = m.Addr
	inventory.Socket = m.Steps.SocketPath()
	inventory.Addr = m.Steps.ReachableAddress()
	inventory.Degraded = strings.Trim(inventory.Degraded+"; "+m.Weaknesses.String(), "; ")
	return inventory, nil
}

// Load implements daemon.Host; what it reads is shown as metrics too.
func (m *Host) Load(context.Context) (loadMilli, freeMiB int64, err error) {
	stats, err := host.ReadStats(host.This("/tmp"))
	if err != nil {
		return 0, 0, err
	}
	m.Metrics.SetNode(stats)
	return stats.LoadCenti[0] * 10, stats.MemoryAvailable >> 20, nil
}

// BusyCPU implements daemon.Host.
func (m *Host) BusyCPU() (int64, error) { return host.ReadBusyCPU(host.This("/tmp")) }

// accountPatience is how long the user databases may take. SSSD gives up on a server
// that is away after some 10 seconds, and asks the next.
const accountPatience = 30 * time.Second

// Accounts are the users of this host.
type Accounts struct{ known *nss.Accounts }

// NewAccounts knows no user yet.
func NewAccounts() Accounts { return Accounts{nss.NewAccounts(nss.System(accountPatience))} }

// FindAccount implements daemon.Accounts.
func (a Accounts) FindAccount(ctx context.Context, uid uint32) (daemon.Account, error) {
	found, err := a.known.Find(ctx, uid)
	return daemon.Account{Home: found.Home, Shell: found.Shell}, err
}

// SpoolFile keeps the agent's state in one file. It is not synced: after a
// power cut the jobs are gone too, and the state is of another boot.
type SpoolFile string

// Load implements daemon.Spool.
func (f SpoolFile) Load() ([]byte, error) {
	data, err := os.ReadFile(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// Save implements daemon.Spool.
func (f SpoolFile) Save(data []byte) error {
	fresh := string(f) + ".new"
	if err := os.WriteFile(fresh, data, 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, string(f))
}

// Clock is the machine's clock.
type Clock struct{ clock.Clock }

// After implements daemon.Clock.
func (c Clock) After(d spec.Span) (<-chan struct{}, func()) {
	ch := make(chan struct{})
	t := time.AfterFunc(time.Duration(d), func() { close(ch) })
	return ch, func() { t.Stop() }
}

// Telemetry is the telemetry as the agent sees it.
type Telemetry struct {
	Of   *telemetry.Telemetry
	Jobs *JobFiles
}

// SetDevices implements daemon.Telemetry.
func (m Telemetry) SetDevices(devices []device.Device) {
	m.Of.SetDevices(devices)
	m.Jobs.markChanged()
}

// SetSample implements daemon.Telemetry.
func (m Telemetry) SetSample(sample *device.Sample) { m.Of.SetSample(sample) }

// SetGPUAccounts implements daemon.Telemetry.
func (m Telemetry) SetGPUAccounts(accounts []attrib.Account) { m.Of.SetGPUAccounts(accounts) }

// GPUEvent implements daemon.Telemetry.
func (m Telemetry) GPUEvent(k device.EventKind) { m.Of.GPUEvent(k) }

// SetControllerConnected implements daemon.Telemetry.
func (m Telemetry) SetControllerConnected(yes bool) { m.Of.SetControllerConnected(yes) }

// SetShepherdUp implements daemon.Telemetry.
func (m Telemetry) SetShepherdUp(up bool) { m.Of.SetShepherdUp(up) }

// SetReportsPending implements daemon.Telemetry.
func (m Telemetry) SetReportsPending(n int) { m.Of.SetReportsPending(n) }

// SamplesStored implements daemon.Telemetry.
func (m Telemetry) SamplesStored(n int) { m.Of.SamplesStored(n) }

// SamplesLost implements daemon.Telemetry.
func (m Telemetry) SamplesLost(n int) { m.Of.SamplesLost(n) }

// SetSamplesPending implements daemon.Telemetry.
func (m Telemetry) SetSamplesPending(n int) { m.Of.SetSamplesPending(n) }

// ReportSent implements daemon.Telemetry.
func (m Telemetry) ReportSent() { m.Of.ReportSent() }

// ReportFailed implements daemon.Telemetry.
func (m Telemetry) ReportFailed() { m.Of.ReportFailed() }

// SetJobs implements daemon.Telemetry.
func (m Telemetry) SetJobs(jobs []daemon.JobOnNode) {
	nodes := make([]telemetry.JobOnNode, len(jobs))
	for i := range jobs {
		job := &jobs[i]
		nodes[i] = telemetry.JobOnNode{
			UID:       job.UID,
			Attempt:   job.Attempt,
			ID:        job.ID,
			User:      job.User,
			Account:   job.Account,
			Partition: job.Partition,
			From:      job.From,
			CPUs:      job.CPUs,
			Memory:    job.MemoryMiB << 20,
		}
		for _, g := range job.GPUs {
			nodes[i].GPUs = append(nodes[i].GPUs, telemetry.GPUShare{UUID: g})
		}
		for _, part := range job.Shares {
			nodes[i].GPUs = append(
				nodes[i].GPUs, telemetry.GPUShare{UUID: part.UUID, Share: part.Share},
			)
		}
	}
	m.Of.SetJobs(nodes)
	m.Jobs.markChanged()
}

// SetUsage implements daemon.Telemetry.
func (m Telemetry) SetUsage(list []daemon.JobUsage) {
	usages := make([]telemetry.JobUsage, len(list))
	for i := range list {
		usage := &list[i]
		usages[i] = telemetry.JobUsage{
			UID:         usage.UID,
			Attempt:     usage.Attempt,
			UserNS:      int64(usage.UserCPU),
			SystemNS:    int64(usage.SystemCPU),
			MemoryBytes: usage.RSS,
			PeakBytes:   usage.PeakRSS,
			ReadBytes:   usage.ReadB,
			WriteBytes:  usage.WriteB,
			OOMKills:    usage.OOMKills,
			Processes:   int64(usage.Procs),
			Counters:    usage.Counters,
		}
	}
	m.Of.SetUsage(usages)
}

// SetCounters implements daemon.Telemetry.
func (m Telemetry) SetCounters(values spec.CounterValues) { m.Of.SetCounters(values) }

// SetEnergy implements daemon.Telemetry.
func (m Telemetry) SetEnergy(figures daemon.EnergyFigures) {
	energy := telemetry.Energy{
		Source:         figures.Source,
		NodeMJ:         figures.NodeMJ,
		NobodyMJ:       figures.NobodyMJ,
		MilliWatts:     figures.MilliWatts,
		IdleMilliWatts: figures.IdleMilliW,
	}
	for _, job := range figures.Jobs {
		energy.Jobs = append(
			energy.Jobs,
			telemetry.JobEnergy{UID: job.UID, Attempt: job.Attempt, MJ: job.MJ},
		)
	}
	m.Of.SetEnergy(&energy)
}

// Collected implements daemon.Telemetry.
func (m Telemetry) Collected(collection daemon.Collection, took spec.Span, err error) {
	source := telemetry.SourceNode
	switch collection {
	case daemon.CollectGPU:
		source = telemetry.SourceGPU
	case daemon.CollectJobs:
		source = telemetry.SourceJobs
	case daemon.CollectEnergy:
		source = telemetry.SourceEnergy
	case daemon.CollectNode:
	}
	m.Of.Collected(source, took, err)
}
