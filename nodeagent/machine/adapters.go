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
	h, err := s.Keeper.Hello(ctx)
	return h, translate(err)
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
func (s *Shepherd) Tell(ctx context.Context, k plan.RunKey, line string) error {
	return translate(s.Keeper.Tell(ctx, k, line))
}

// Signal implements daemon.Shepherd.
func (s *Shepherd) Signal(ctx context.Context, k plan.RunKey, sig int32, scope plan.Scope) error {
	return translate(s.Keeper.Signal(ctx, k, sig, scope))
}

// Terminate implements daemon.Shepherd.
func (s *Shepherd) Terminate(ctx context.Context, t plan.Terminate) error {
	return translate(s.Keeper.Terminate(ctx, t))
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
func (s *Shepherd) Grant(ctx context.Context, g plan.Grant) error {
	return translate(s.Keeper.Grant(ctx, g))
}

// Spaces implements daemon.Shepherd.
func (s *Shepherd) Spaces(ctx context.Context) ([]plan.RunKey, error) {
	k, err := s.Keeper.Spaces(ctx, s.Base)
	return k, translate(err)
}

// Vacate implements daemon.Shepherd.
func (s *Shepherd) Vacate(ctx context.Context, k plan.RunKey) error {
	return translate(s.Keeper.Vacate(ctx, k))
}

// Adopt implements daemon.Shepherd.
func (s *Shepherd) Adopt(ctx context.Context, k plan.RunKey, pid int) error {
	return translate(s.Keeper.Adopt(ctx, k, pid))
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
	inv := m.Settings.NodeInventory(found)
	inv.MetricsAddr = m.Addr
	inv.Socket = m.Steps.SocketPath()
	inv.Addr = m.Steps.ReachableAddress()
	inv.Degraded = strings.Trim(inv.Degraded+"; "+m.Weaknesses.String(), "; ")
	return inv, nil
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
	b, err := os.ReadFile(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
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
func (m Telemetry) SetDevices(d []device.Device) {
	m.Of.SetDevices(d)
	m.Jobs.markChanged()
}

// SetSample implements daemon.Telemetry.
func (m Telemetry) SetSample(s *device.Sample) { m.Of.SetSample(s) }

// SetGPUAccounts implements daemon.Telemetry.
func (m Telemetry) SetGPUAccounts(a []attrib.Account) { m.Of.SetGPUAccounts(a) }

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
	out := make([]telemetry.JobOnNode, len(jobs))
	for i := range jobs {
		job := &jobs[i]
		out[i] = telemetry.JobOnNode{
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
			out[i].GPUs = append(out[i].GPUs, telemetry.GPUShare{UUID: g})
		}
		for _, p := range job.Shares {
			out[i].GPUs = append(out[i].GPUs, telemetry.GPUShare{UUID: p.UUID, Share: p.Share})
		}
	}
	m.Of.SetJobs(out)
	m.Jobs.markChanged()
}

// SetUsage implements daemon.Telemetry.
func (m Telemetry) SetUsage(list []daemon.JobUsage) {
	out := make([]telemetry.JobUsage, len(list))
	for i := range list {
		u := &list[i]
		out[i] = telemetry.JobUsage{
			UID:         u.UID,
			Attempt:     u.Attempt,
			UserNS:      int64(u.UserCPU),
			SystemNS:    int64(u.SystemCPU),
			MemoryBytes: u.RSS,
			PeakBytes:   u.PeakRSS,
			ReadBytes:   u.ReadB,
			WriteBytes:  u.WriteB,
			OOMKills:    u.OOMKills,
			Processes:   int64(u.Procs),
			Counters:    u.Counters,
		}
	}
	m.Of.SetUsage(out)
}

// SetCounters implements daemon.Telemetry.
func (m Telemetry) SetCounters(c spec.CounterValues) { m.Of.SetCounters(c) }

// SetEnergy implements daemon.Telemetry.
func (m Telemetry) SetEnergy(figures daemon.EnergyFigures) {
	out := telemetry.Energy{
		Source:         figures.Source,
		NodeMJ:         figures.NodeMJ,
		NobodyMJ:       figures.NobodyMJ,
		MilliWatts:     figures.MilliWatts,
		IdleMilliWatts: figures.IdleMilliW,
	}
	for _, job := range figures.Jobs {
		out.Jobs = append(
			out.Jobs,
			telemetry.JobEnergy{UID: job.UID, Attempt: job.Attempt, MJ: job.MJ},
		)
	}
	m.Of.SetEnergy(&out)
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
