package replay

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/musterhpc/muster/spec"
)

// epoch is where a trace's second 0 lies: no instant of a replay is 0, which
// means unknown.
const epoch = spec.Instant(1_000_000_000 * int64(spec.Second))

// Machine is the cluster that a trace without one is replayed on.
type Machine struct {
	Nodes int64 // 0 = one
	CPUs  int64 // of each node
	GPUs  int64 // of each node
}

// Config makes the configuration of a machine: one partition with everything.
func (m Machine) Config(settings Settings) *spec.Config {
	config := &spec.Config{ClusterName: "replay", Priority: settings.Priority}
	config.Sched = spec.SchedConfig{
		Backfill:     true,
		BFMaxJobTest: 1 << 30,
		Firm:         settings.Firm,
		PredictRuns:  settings.Predict,
	}
	config.Limits = spec.JobLimits{MaxJobCount: 1 << 30, MaxJobID: 1 << 30, EnforcePart: "ALL"}
	config.Timing.MinJobAge = spec.Second
	if m.GPUs > 0 {
		config.GresTypes = []string{"gpu"}
	}
	partition := spec.PartitionSpec{
		Name:        "all",
		Default:     true,
		State:       spec.PartitionUp,
		MaxTime:     spec.Infinite,
		DefaultTime: spec.Infinite,
	}
	for i := range max(m.Nodes, 1) {
		node := spec.NodeSpec{Name: fmt.Sprintf("n%d", i+1), CPUs: m.CPUs, ThreadsPerCore: 1}
		if m.GPUs > 0 {
			node.GRES = []spec.GRESSpec{{Name: "gpu", N: m.GPUs}}
		}
		config.Nodes = append(config.Nodes, node)
		partition.NodeNames = append(partition.NodeNames, node.Name)
	}
	config.Partitions = []spec.PartitionSpec{partition}
	return config
}

// Workload makes the jobs of a trace for a machine. A job that asks for no
// time limit gets its run time as one, so that it can be planned.
func (t *Trace) Workload(config *spec.Config) *Workload {
	workload := &Workload{Config: config, Jobs: make([]Job, len(t.Rows))}
	users, accounts := names{letter: "u"}, names{letter: "a"}
	known := map[ask]*spec.JobSpec{} // many jobs ask for the same
	for i := range t.Rows {
		row := &t.Rows[i]
		a := ask{
			user:  row.User,
			group: row.Group,
			procs: row.Procs,
			limit: row.Limit,
			gpus:  row.GPUs,
		}
		if a.limit == 0 {
			a.limit = max(row.Run, 1)
		}
		jobSpec := known[a]
		if jobSpec == nil {
			jobSpec = a.makeSpec(len(config.Nodes) == 1)
			jobSpec.User, jobSpec.Account = users.nameOf(row.User), accounts.nameOf(row.Group)
			known[a] = jobSpec
		}
		workload.Jobs[i] = Job{
			Spec:   jobSpec,
			Submit: epoch.Add(spec.Span(row.Submit) * spec.Second),
			Run:    spec.Span(row.Run) * spec.Second,
		}
	}
	return workload
}

// ask is what a job of a trace asks for.
type ask struct{ user, group, procs, limit, gpus int64 }

// makeSpec makes the request, of one pool of processors or of several nodes.
func (a *ask) makeSpec(pool bool) *spec.JobSpec {
	jobSpec := &spec.JobSpec{
		Name: "job",
		UID:  uint32(1000 + max(a.user, 0)),
		GID:  uint32(1000 + max(a.group, 0)),
	}
	jobSpec.Size.Tasks = uint32(a.procs)
	if pool && a.procs < 1<<16 { // at once
		jobSpec.Size.Tasks, jobSpec.Size.CPUsPerTask = 1, uint32(a.procs)
	}
	jobSpec.Time.Limit = spec.Span(a.limit) * spec.Second
	if a.gpus > 0 {
		jobSpec.Size.PerJob = []spec.Count{{Name: "gpu", N: a.gpus}}
	}
	return jobSpec
}

// names makes names of numbers, each once.
type names struct {
	letter string
	known  map[int64]string
}

func (n *names) nameOf(number int64) string {
	if n.known == nil {
		n.known = map[int64]string{}
	}
	name, ok := n.known[number]
	if !ok {
		name = n.letter + strconv.FormatInt(number, 10)
		n.known[number] = name
	}
	return name
}

// ExactLimits gives each job its run time as its time limit.
func (t *Trace) ExactLimits() {
	for i := range t.Rows {
		t.Rows[i].Limit = max(t.Rows[i].Run, 1)
	}
}

// WantsGPUs tells whether any job asks for GPUs.
func (t *Trace) WantsGPUs() bool {
	return slices.ContainsFunc(t.Rows, func(r Row) bool { return r.GPUs > 0 })
}

// Refusal is why the first job that was refused was.
func (r *Result) Refusal() string {
	for i := range r.Jobs {
		if err := r.Jobs[i].Refused; err != nil {
			return err.Error()
		}
	}
	return ""
}

// runOf is how long a job of the trace runs.
func (t *Trace) runOf(i int) spec.Span {
	run := t.Rows[i].Run
	if limit := t.Rows[i].Limit; limit > 0 {
		run = min(run, limit)
	}
	return spec.Span(run) * spec.Second
}
