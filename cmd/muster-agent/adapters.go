package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/musterhpc/muster/internal/clock"
	"github.com/musterhpc/muster/nodeagent/daemon"
	"github.com/musterhpc/muster/nodeagent/gpu/attrib"
	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/nodeagent/gpu/simulated"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/runtime"
	"github.com/musterhpc/muster/nodeagent/telemetry"
	"github.com/musterhpc/muster/nodeagent/telemetry/host"
	"github.com/musterhpc/muster/spec"
)

// kept is the keeper as the agent sees it.
type kept struct {
	keeper *runtime.Keeper
	base   string // of the private folders of jobs; empty where they have none
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
func (s *kept) Hello(ctx context.Context) (plan.Hello, error) {
	h, err := s.keeper.Hello(ctx)
	return h, translate(err)
}

// Launch implements daemon.Shepherd.
func (s *kept) Launch(ctx context.Context, runs []plan.RunSpec) ([]plan.LaunchResult, error) {
	r, err := s.keeper.Launch(ctx, runs)
	return r, translate(err)
}

// List implements daemon.Shepherd.
func (s *kept) List(ctx context.Context) ([]plan.Observed, error) {
	o, err := s.keeper.List(ctx)
	return o, translate(err)
}

// Tell implements daemon.Shepherd.
func (s *kept) Tell(ctx context.Context, k plan.RunKey, line string) error {
	return translate(s.keeper.Tell(ctx, k, line))
}

// Signal implements daemon.Shepherd.
func (s *kept) Signal(ctx context.Context, k plan.RunKey, sig int32, scope plan.Scope) error {
	return translate(s.keeper.Signal(ctx, k, sig, scope))
}

// Terminate implements daemon.Shepherd.
func (s *kept) Terminate(ctx context.Context, t plan.Terminate) error {
	return translate(s.keeper.Terminate(ctx, t))
}

// usagePatience is how long the shepherd may take over what jobs have used. It
// answers in milliseconds; one that stands still must not stop the figures of
// the machine, which the same loop reads.
const usagePatience = 5 * time.Second

// Usage implements daemon.Shepherd.
func (s *kept) Usage(ctx context.Context, keys ...plan.RunKey) ([]plan.Usage, error) {
	ctx, cancel := context.WithTimeout(ctx, usagePatience)
	defer cancel()
	u, err := s.keeper.Usage(ctx, keys...)
	return u, translate(err)
}

// Grant implements daemon.Shepherd.
func (s *kept) Grant(ctx context.Context, g plan.Grant) error {
	return translate(s.keeper.Grant(ctx, g))
}

// Spaces implements daemon.Shepherd.
func (s *kept) Spaces(ctx context.Context) ([]plan.RunKey, error) {
	k, err := s.keeper.Spaces(ctx, s.base)
	return k, translate(err)
}

// Vacate implements daemon.Shepherd.
func (s *kept) Vacate(ctx context.Context, k plan.RunKey) error {
	return translate(s.keeper.Vacate(ctx, k))
}

// Ack implements daemon.Shepherd.
func (s *kept) Ack(ctx context.Context, keys []plan.RunKey) error {
	return translate(s.keeper.Ack(ctx, keys))
}

// machine is this host.
type machine struct {
	s       *settings
	metrics *telemetry.Telemetry
	addr    string // of /metrics
	steps   *stepServer
}

// Inventory implements daemon.Host.
func (m *machine) Inventory(context.Context) (spec.Inventory, error) {
	found, err := host.Read(host.This("/tmp"))
	if err != nil {
		return spec.Inventory{}, err
	}
	inv := m.s.nodeInventory(found)
	inv.MetricsAddr, inv.Socket, inv.Addr = m.addr, m.steps.socketPath(), m.steps.reachableAddress()
	return inv, nil
}

// Load implements daemon.Host; what it reads is shown as metrics too.
func (m *machine) Load(context.Context) (loadMilli, freeMiB int64, err error) {
	stats, err := host.ReadStats(host.This("/tmp"))
	if err != nil {
		return 0, 0, err
	}
	m.metrics.SetNode(stats)
	return stats.LoadCenti[0] * 10, stats.MemoryAvailable >> 20, nil
}

// lookUpAccount looks a user up; it is asked only for jobs without an environment.
func lookUpAccount(uid uint32) (home, shell string) {
	u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
	if err != nil {
		return "", ""
	}
	shell = "/bin/sh"
	if b, err := os.ReadFile("/etc/passwd"); err == nil {
		for line := range strings.Lines(string(b)) {
			if f := strings.Split(strings.TrimSpace(line), ":"); len(f) == 7 &&
				f[0] == u.Username &&
				f[6] != "" {
				shell = f[6]
			}
		}
	}
	return u.HomeDir, shell
}

// spoolFile keeps the agent's state in one file. It is not synced: after a
// power cut the jobs are gone too, and the state is of another boot.
type spoolFile string

// Load implements daemon.Spool.
func (f spoolFile) Load() ([]byte, error) {
	b, err := os.ReadFile(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
}

// Save implements daemon.Spool.
func (f spoolFile) Save(data []byte) error {
	fresh := string(f) + ".new"
	if err := os.WriteFile(fresh, data, 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, string(f))
}

// clockAdapter is the machine's clock.
type clockAdapter struct{ clock.Clock }

// After implements daemon.Clock.
func (c clockAdapter) After(d spec.Span) (<-chan struct{}, func()) {
	ch := make(chan struct{})
	t := time.AfterFunc(time.Duration(d), func() { close(ch) })
	return ch, func() { t.Stop() }
}

// simulatedGPUs are declared devices as the agent sees them.
type simulatedGPUs struct{ *simulated.Provider }

// Inventory lists the devices; of their files only those that exist, since a
// job cannot be given others.
func (p simulatedGPUs) Inventory(ctx context.Context) ([]device.Device, error) {
	list, err := p.Provider.Inventory(ctx)
	for i := range list {
		var there []string
		for _, f := range list[i].Files {
			if _, err := os.Stat(f); err == nil {
				there = append(there, f)
			}
		}
		list[i].Files = there
	}
	return list, err
}

// Assign implements daemon.Simulator.
func (p simulatedGPUs) Assign(now spec.Instant, jobs []daemon.Assignment) error {
	var errs []error
	list := make([]simulated.Assignment, len(jobs))
	for i, j := range jobs {
		load, err := simulated.ParseLoad(j.Load, simulated.LoadOf(j.Job))
		if err != nil {
			errs = append(errs, fmt.Errorf("job %d: %w", j.Job, err))
			load = simulated.LoadOf(j.Job)
		}
		list[i] = simulated.Assignment{
			Job:     j.Job,
			Attempt: j.Attempt,
			From:    j.From,
			Load:    load,
			UUIDs:   j.UUIDs,
			Share:   j.Share,
		}
	}
	return errors.Join(append(errs, p.SetJobs(now, list))...)
}

// metrics is the telemetry as the agent sees it.
type metrics struct {
	t    *telemetry.Telemetry
	jobs *jobFiles
}

func (m metrics) SetDevices(d []device.Device) {
	m.t.SetDevices(d)
	m.jobs.markChanged()
}

func (m metrics) SetSample(s *device.Sample)        { m.t.SetSample(s) }
func (m metrics) SetGPUAccounts(a []attrib.Account) { m.t.SetGPUAccounts(a) }
func (m metrics) GPUEvent(k device.EventKind)       { m.t.GPUEvent(k) }
func (m metrics) SetControllerConnected(yes bool)   { m.t.SetControllerConnected(yes) }
func (m metrics) SetShepherdUp(up bool)             { m.t.SetShepherdUp(up) }
func (m metrics) SetReportsPending(n int)           { m.t.SetReportsPending(n) }
func (m metrics) SamplesStored(n int)               { m.t.SamplesStored(n) }
func (m metrics) SamplesLost(n int)                 { m.t.SamplesLost(n) }
func (m metrics) SetSamplesPending(n int)           { m.t.SetSamplesPending(n) }
func (m metrics) ReportSent()                       { m.t.ReportSent() }
func (m metrics) ReportFailed()                     { m.t.ReportFailed() }

func (m metrics) SetJobs(jobs []daemon.JobOnNode) {
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
	m.t.SetJobs(out)
	m.jobs.markChanged()
}

func (m metrics) SetUsage(list []daemon.JobUsage) {
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
		}
	}
	m.t.SetUsage(out)
}

func (m metrics) Collected(collection daemon.Collection, took spec.Span, err error) {
	source := telemetry.SourceNode
	switch collection {
	case daemon.CollectGPU:
		source = telemetry.SourceGPU
	case daemon.CollectJobs:
		source = telemetry.SourceJobs
	case daemon.CollectNode:
	}
	m.t.Collected(source, took, err)
}

// shepherdDir is where the shepherds of this node live.
func (s *settings) shepherdDir() string { return filepath.Join(s.stateDir, "shepherd") }
