package telemetry

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/musterhpc/muster/internal/catalogue"
	"github.com/musterhpc/muster/nodeagent/gpu/attrib"
	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/spec"
)

// Telemetry holds what a node's /metrics shows. Its methods may be called from
// any goroutine; each Set replaces its part of the picture at once.
type Telemetry struct {
	options Options
	fields  []device.Info               // exported, ascending
	labels  []string                    // of a device series
	owner   []string                    // labels of the job
	listed  map[string]catalogue.Metric // by name; does not change
	self    *self

	mu    sync.Mutex // writers only: a scrape never takes it
	state atomic.Pointer[state]
	pool  sync.Pool // of *scratch
	zips  sync.Pool // of *gzip.Writer
}

// New makes the telemetry of one node.
func New(options Options) (*Telemetry, error) {
	if options.Node == "" {
		return nil, fmt.Errorf("%w: the node has no name", ErrOption)
	}
	if options.JobLabels > JobLabelsNone {
		return nil, fmt.Errorf("%w: job labels %d", ErrOption, options.JobLabels)
	}
	if options.MaxJobs <= 0 {
		options.MaxJobs = 1024
	}
	telemetry := &Telemetry{options: options, listed: map[string]catalogue.Metric{}}
	for _, metric := range Metrics() {
		telemetry.listed[metric.Name] = metric
	}
	telemetry.labels, telemetry.owner = deviceLabels[:], jobLabels[:]
	if options.JobAlias != "" && options.JobAlias != jobLabels[0] {
		telemetry.owner = withLabels(jobLabels[:], options.JobAlias)
	}
	if options.ClusterLabel != "" {
		telemetry.labels = withLabels(telemetry.labels, options.ClusterLabel)
	}
	if options.Counters != nil {
		telemetry.fields = slices.Clone(options.Counters.Fields)
		if options.Counters.DriverVersion {
			telemetry.labels = withLabels(telemetry.labels, driverLabel)
		}
	} else {
		telemetry.fields = slices.DeleteFunc(device.Fields(), func(f device.Info) bool { return !f.Default })
	}
	telemetry.self = newSelf(&telemetry.options)
	telemetry.pool.New = func() any { return &scratch{} }
	telemetry.state.Store(&state{})
	return telemetry, nil
}

// publishState replaces the state by a changed copy.
func (t *Telemetry) publishState(change func(*state)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	next := *t.state.Load()
	change(&next)
	next.deriveOwners(t.describeDevice, t.owner)
	t.state.Store(&next)
}

// SetDevices replaces the inventory. Readings of devices that are not in it
// are not shown.
func (t *Telemetry) SetDevices(devices []device.Device) {
	devices = slices.Clone(devices)
	t.publishState(func(s *state) { s.devices = devices })
}

// SetSample shows a collection. The sample is copied.
func (t *Telemetry) SetSample(sample *device.Sample) {
	copied := sample.Clone()
	t.publishState(func(s *state) { s.sample = copied })
}

// SetJobs replaces the jobs that run on the node, all of them. Series of jobs
// that are not in the list end with the next scrape.
func (t *Telemetry) SetJobs(jobs []JobOnNode) {
	kept, omitted := admitJobs(jobs, t.options.MaxJobs)
	t.publishState(func(s *state) { s.jobs, s.omitted = kept, omitted })
}

// SetPods replaces the devices that pods hold, all of them.
func (t *Telemetry) SetPods(pods []PodOnNode) {
	byDevice := make(map[string]PodOnNode, len(pods))
	for _, pod := range pods {
		byDevice[pod.UUID] = pod
	}
	t.publishState(func(s *state) { s.pods = byDevice })
}

// Devices lists the inventory as it was set last.
func (t *Telemetry) Devices() []device.Device { return slices.Clone(t.state.Load().devices) }

// SetUsage replaces what the jobs have used; jobs that do not run are ignored.
func (t *Telemetry) SetUsage(usage []JobUsage) {
	byJob := make(map[jobKey]JobUsage, len(usage))
	for _, jobUsage := range usage {
		byJob[jobKey{jobUsage.UID, jobUsage.Attempt}] = jobUsage
	}
	t.publishState(func(s *state) { s.usage = byJob })
}

// SetGPUAccounts replaces the GPU accounts; those of jobs that do not run are
// ignored.
func (t *Telemetry) SetGPUAccounts(accounts []attrib.Account) {
	accounts = slices.Clone(accounts)
	t.publishState(func(s *state) { s.accounts = accounts })
}

// SetNode replaces the figures of the node.
func (t *Telemetry) SetNode(stats NodeStats) {
	t.publishState(func(s *state) { s.node = &stats })
}

// SetEnergy replaces the energy of the node and its jobs; jobs that do not run are
// ignored. The figures must not change afterwards.
func (t *Telemetry) SetEnergy(energy *Energy) {
	t.publishState(func(s *state) { s.energy = energy })
}

// SetCounters replaces what the node as a whole has counted. The list must not change
// afterwards.
func (t *Telemetry) SetCounters(values spec.CounterValues) {
	t.publishState(func(s *state) { s.counters = values })
}

// Served lists what this telemetry can serve: Metrics, with the field set, the
// help texts and the label mode it was made with.
func (t *Telemetry) Served() []catalogue.Metric {
	fields := map[string]device.Info{}
	for _, info := range t.fields {
		fields[info.Name] = info
	}
	var metrics []catalogue.Metric
	for _, metric := range Metrics() {
		if metric.Source == fieldSource {
			info, ok := fields[metric.Name]
			if !ok {
				continue
			}
			metric.Help = info.Help
			metric.Type = catalogue.Gauge
			metric.Labels = withLabels(t.labels)
			if info.Kind == device.Counter {
				metric.Type = catalogue.Counter
			}
			if t.isLabelled(info) {
				metric.Labels = withLabels(t.labels, jobLabels[:]...)
			}
		} else if metric.Dialect == catalogue.DCGM {
			metric.Labels = withLabels(t.labels, metric.Labels[len(deviceLabels):]...)
		}
		if at := slices.Index(metric.Labels, jobLabels[0]); at >= 0 {
			metric.Labels = slices.Replace(
				slices.Clone(metric.Labels),
				at,
				at+len(jobLabels),
				t.owner...)
		}
		metrics = append(metrics, metric)
	}
	return metrics
}

// isLabelled tells whether a field's series carry job labels.
func (t *Telemetry) isLabelled(info device.Info) bool {
	switch {
	case info.Kind == device.Counter, t.options.JobLabels == JobLabelsNone:
		return false
	case t.options.JobLabels == JobLabelsCore:
		return info.Core
	}
	return true
}
