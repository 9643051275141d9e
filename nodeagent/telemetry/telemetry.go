package telemetry

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/musterhpc/muster/internal/catalogue"
	"github.com/musterhpc/muster/nodeagent/gpu/attrib"
	"github.com/musterhpc/muster/nodeagent/gpu/device"
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
func New(o Options) (*Telemetry, error) {
	if o.Node == "" {
		return nil, fmt.Errorf("%w: the node has no name", ErrOption)
	}
	if o.JobLabels > JobLabelsNone {
		return nil, fmt.Errorf("%w: job labels %d", ErrOption, o.JobLabels)
	}
	if o.MaxJobs <= 0 {
		o.MaxJobs = 1024
	}
	t := &Telemetry{options: o, listed: map[string]catalogue.Metric{}}
	for _, m := range Metrics() {
		t.listed[m.Name] = m
	}
	t.labels, t.owner = deviceLabels[:], jobLabels[:]
	if o.JobAlias != "" && o.JobAlias != jobLabels[0] {
		t.owner = withLabels(jobLabels[:], o.JobAlias)
	}
	if o.ClusterLabel != "" {
		t.labels = withLabels(t.labels, o.ClusterLabel)
	}
	if o.Counters != nil {
		t.fields = slices.Clone(o.Counters.Fields)
		if o.Counters.DriverVersion {
			t.labels = withLabels(t.labels, driverLabel)
		}
	} else {
		t.fields = slices.DeleteFunc(device.Fields(), func(f device.Info) bool { return !f.Default })
	}
	t.self = newSelf(&t.options)
	t.pool.New = func() any { return &scratch{} }
	t.state.Store(&state{})
	return t, nil
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

// SetUsage replaces what the jobs have used; jobs that do not run are ignored.
func (t *Telemetry) SetUsage(usage []JobUsage) {
	byJob := make(map[jobKey]JobUsage, len(usage))
	for _, u := range usage {
		byJob[jobKey{u.UID, u.Attempt}] = u
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
func (t *Telemetry) SetNode(n NodeStats) {
	t.publishState(func(s *state) { s.node = &n })
}

// Served lists what this telemetry can serve: Metrics, with the field set, the
// help texts and the label mode it was made with.
func (t *Telemetry) Served() []catalogue.Metric {
	fields := map[string]device.Info{}
	for _, f := range t.fields {
		fields[f.Name] = f
	}
	var out []catalogue.Metric
	for _, m := range Metrics() {
		if m.Source == fieldSource {
			f, ok := fields[m.Name]
			if !ok {
				continue
			}
			m.Help, m.Type, m.Labels = f.Help, catalogue.Gauge, withLabels(t.labels)
			if f.Kind == device.Counter {
				m.Type = catalogue.Counter
			}
			if t.isLabelled(f) {
				m.Labels = withLabels(t.labels, jobLabels[:]...)
			}
		} else if m.Dialect == catalogue.DCGM {
			m.Labels = withLabels(t.labels, m.Labels[len(deviceLabels):]...)
		}
		if at := slices.Index(m.Labels, jobLabels[0]); at >= 0 {
			m.Labels = slices.Replace(slices.Clone(m.Labels), at, at+len(jobLabels), t.owner...)
		}
		out = append(out, m)
	}
	return out
}

// isLabelled tells whether a field's series carry job labels.
func (t *Telemetry) isLabelled(f device.Info) bool {
	switch {
	case f.Kind == device.Counter, t.options.JobLabels == JobLabelsNone:
		return false
	case t.options.JobLabels == JobLabelsCore:
		return f.Core
	}
	return true
}
