package telemetry

import (
	"errors"
	"fmt"
	"strings"

	"github.com/musterhpc/muster/nodeagent/health"
	"github.com/musterhpc/muster/nodeagent/telemetry/host"
	"github.com/musterhpc/muster/spec"
)

// ErrOption is wrapped by every error of New and of the readers of options.
var ErrOption = errors.New("bad telemetry option")

// JobLabels says which gauges carry the job's labels.
type JobLabels uint8

// The choices of telemetry.job_labels.
const (
	JobLabelsAll  JobLabels = iota // every gauge
	JobLabelsCore                  // utilisation, memory, power, SM, tensor and engine activity
	JobLabelsNone                  // none: join through muster_gpu_job_info
)

// ParseJobLabels reads all, core or none; empty means all.
func ParseJobLabels(text string) (JobLabels, error) {
	switch text {
	case "", "all":
		return JobLabelsAll, nil
	case "core":
		return JobLabelsCore, nil
	case "none":
		return JobLabelsNone, nil
	}
	return 0, fmt.Errorf("%w: telemetry.job_labels: %q: want all, core or none", ErrOption, text)
}

// Options of New.
type Options struct {
	Cluster  string // label of Muster's own series
	Node     string // label node of Muster's own series, hostname of GPU series
	Version  string
	Commit   string
	Provider string // where GPU readings come from; empty for a node without GPUs
	// JobLabels bounds how often a change of jobs makes new series.
	JobLabels JobLabels
	// JobAlias is a further label with the number of slurm_job_id, for
	// dashboards that know it by another name, such as hpc_job; "" = none.
	JobAlias string
	// ClusterLabel is a further label of the device series with the cluster's
	// name; "" = none.
	ClusterLabel string
	// Private leaves jobs and their users out of the pages that Handler serves. What
	// is pushed or written goes where the site has chosen, and has them.
	Private bool
	// Counters is what ParseCounters read; nil exports the default set.
	Counters *Counters
	// MaxJobs bounds the jobs with series of their own; 0 means 1024. The jobs
	// beyond it are counted in muster_agent_jobs_without_series.
	MaxJobs int
	// Health are the health rules by which the node is judged; nil: the default ones.
	Health []health.Rule
	// NoProcess leaves out the series of this process, its memory and files: one
	// that stands for many nodes has them once, not for each.
	NoProcess bool
}

// GPUShare is a part of a device or MIG instance.
type GPUShare struct {
	UUID  string
	Share int // thousandths; 0 or 1000 is all of it
}

// JobOnNode is a job that runs on this node now.
type JobOnNode struct {
	UID       spec.JobUID
	Attempt   uint32
	ID        spec.JobID // slurm_job_id
	User      string
	Account   string
	Partition string
	From      spec.Instant // start on this node
	CPUs      int
	Memory    int64 // given on this node, bytes; 0 when not limited
	GPUs      []GPUShare
}

// PodOnNode is a device that a container of a pod holds.
type PodOnNode struct {
	UUID      string // of the device or MIG instance
	Namespace string
	Pod       string
	Container string       // empty where several containers of the pod share it
	From      spec.Instant // since when it holds it
}

// JobUsage is what a job's cgroup has counted so far.
type JobUsage struct {
	UID         spec.JobUID
	Attempt     uint32
	UserNS      int64
	SystemNS    int64
	MemoryBytes int64
	PeakBytes   int64
	ReadBytes   int64
	WriteBytes  int64
	OOMKills    int64
	Processes   int64
	Counters    spec.CounterValues // what else was counted
}

// Energy is the energy of the node, in millijoules, and that of its jobs.
type Energy struct {
	Source         string // the meter
	NodeMJ         int64
	NobodyMJ       int64 // belongs to no job
	MilliWatts     int64
	IdleMilliWatts int64
	Jobs           []JobEnergy
}

// JobEnergy is what a job has used on this node until now, without its GPUs.
type JobEnergy struct {
	UID     spec.JobUID
	Attempt uint32
	MJ      int64
}

// NodeStats is what the node says about itself; package host reads it.
type NodeStats = host.Stats

// escapeLabel writes a label's value as the exposition format wants it: one value
// that is not UTF-8 would cost the whole scrape.
func escapeLabel(text string) string {
	text = strings.ToValidUTF8(text, "\ufffd")
	if !strings.ContainsAny(text, "\\\"\n") {
		return text
	}
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(text)
}

// labelPairs gives name="value" for each name, joined by commas.
func labelPairs(names []string, values ...string) string {
	var text strings.Builder
	for i, name := range names {
		if i > 0 {
			text.WriteByte(',')
		}
		text.WriteString(name)
		text.WriteString(`="`)
		text.WriteString(escapeLabel(values[i]))
		text.WriteByte('"')
	}
	return text.String()
}
