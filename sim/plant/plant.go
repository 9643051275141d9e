// Package plant makes clusters and queues of a given size, for measuring the
// scheduler: equal nodes with GPUs, half of them busy, and jobs of many users
// whose sizes and time limits are mixed as on a busy site. Everything is drawn
// from a seed.
package plant

import (
	"fmt"
	"math/rand/v2"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/scheduler/trial"
	"github.com/musterhpc/muster/spec"
)

// Of each node.
const (
	NodeCPUs = 64
	NodeGPUs = 8
	NodeMem  = 512_000 // MiB
	users    = 60
	accounts = 12
)

const nodeName = "n%05d"

// NodeNames are those of so many nodes, as slurm.conf has them.
func NodeNames(nodes int) string { return fmt.Sprintf("n[00001-%05d]", nodes) }

// Epoch is when the cluster begins.
const Epoch = spec.Instant(1_750_000_000 * int64(spec.Second))

// Site is a cluster in memory, on which commands are decided and folded.
type Site struct {
	State *state.State
	Now   spec.Instant
	// Told, if set, is given the events of each command.
	Told func([]event.Envelope) error

	epoch spec.Instant
	rng   *rand.Rand
}

// New makes a cluster of idle nodes.
func New(nodes int, seed uint64) (*Site, error) { return NewAt(nodes, seed, Epoch, nil) }

// NewAt is New for a cluster that begins at another time, of which somebody is
// told all events.
func NewAt(
	nodes int,
	seed uint64,
	epoch spec.Instant,
	told func([]event.Envelope) error,
) (*Site, error) {
	site := &Site{
		State: state.New(),
		Now:   epoch,
		Told:  told,
		epoch: epoch,
		rng:   rand.New(rand.NewPCG(seed, 0x6c6f6164)),
	}
	config := &spec.Config{ClusterName: "bench", GresTypes: []string{"gpu"}}
	config.Sched = spec.SchedConfig{
		Backfill:     true,
		Memory:       true,
		Cores:        true,
		BFMaxJobTest: 1 << 30,
	}
	config.Limits = spec.JobLimits{
		JobRequeue:   true,
		DefMemPerCPU: 4000,
		MaxJobCount:  1 << 30,
		MaxArraySize: 1 << 30,
	}
	config.Priority = spec.PriorityConfig{Age: 1000, JobSize: 1000, Partition: 1000, QOS: 2000}
	config.Timing.MinJobAge = 300 * spec.Second
	part := spec.PartitionSpec{
		Name:        "gpu",
		Default:     true,
		DefaultTime: spec.Hour,
		MaxTime:     7 * spec.Day,
		State:       spec.PartitionUp,
	}
	for i := range nodes {
		name := fmt.Sprintf(nodeName, i+1)
		part.NodeNames = append(part.NodeNames, name)
		config.Nodes = append(
			config.Nodes,
			spec.NodeSpec{
				Name:           name,
				CPUs:           NodeCPUs,
				ThreadsPerCore: 1,
				Mem:            NodeMem,
				GRES:           []spec.GRESSpec{{Name: "gpu", N: NodeGPUs}},
			},
		)
	}
	config.Partitions = []spec.PartitionSpec{part}
	if err := site.Do(scheduler.Policy{Events: []event.Event{&event.ClusterCreated{UUID: [16]byte{1}, Name: "bench", Version: event.Version}}}); err != nil {
		return nil, err
	}
	if err := site.Do(scheduler.Configure{Config: config}); err != nil {
		return nil, err
	}
	for _, name := range part.NodeNames {
		inventory := spec.Inventory{BootID: "1", CPUs: NodeCPUs, Mem: NodeMem}
		for g := range uint32(NodeGPUs) {
			inventory.GPUs = append(
				inventory.GPUs, spec.GPU{Index: g, UUID: fmt.Sprintf("GPU-%s-%d", name, g)},
			)
		}
		if err := site.Do(scheduler.RegisterNode{Node: name, Inventory: inventory}); err != nil {
			return nil, err
		}
	}
	return site, nil
}

// Do decides a command and folds its events.
func (s *Site) Do(command scheduler.Command) error {
	t := trial.On(s.State, s.Now, event.Actor{Kind: event.ActorSystem}, "")
	if _, err := scheduler.Decide(t, command); err != nil || s.Told == nil {
		return err
	}
	return s.Told(t.Events)
}

// Pass runs the scheduler on the cluster as it is. Nothing is committed.
func (s *Site) Pass(options scheduler.PassOptions) (*scheduler.Outcome, error) {
	return scheduler.Pass(s.State.Freeze(), s.Now, options)
}

// Job draws a request: 60 % on one node, 30 % on 1 to 16, 10 % on 16 to 64
// nodes, but never more than half of the cluster; 1 to 8 GPUs of each node
// with their share of the CPUs; ten minutes to a day.
func (s *Site) Job() *spec.JobSpec {
	pick := func(list ...int) int { return list[s.rng.IntN(len(list))] }
	nodes := 1
	switch k := s.rng.IntN(10); {
	case k == 9:
		nodes = 16 + s.rng.IntN(49)
	case k >= 6:
		nodes = 1 + s.rng.IntN(16)
	}
	nodes = min(nodes, max(s.State.Nodes.Len()/2, 1))
	gpus := pick(1, 1, 2, 4, 8, 8)
	who := s.rng.IntN(users)
	jobSpec := &spec.JobSpec{
		Name:    "load",
		UID:     uint32(1000 + who),
		GID:     100,
		User:    fmt.Sprintf("u%d", who),
		Group:   "users",
		Account: fmt.Sprintf("a%d", who%accounts),
		IO:      spec.JobIO{WorkDir: "/tmp", Stdout: "/dev/null"},
	}
	jobSpec.Size.MinNodes, jobSpec.Size.MaxNodes = uint32(nodes), uint32(nodes)
	jobSpec.Size.TasksPerNode = uint32(gpus * NodeCPUs / NodeGPUs)
	jobSpec.Size.PerNode = []spec.Count{{Name: "gpu", N: int64(gpus)}}
	jobSpec.Time.Limit = spec.Span(pick(10, 30, 60, 120, 240, 480, 720, 1440)) * spec.Minute
	return jobSpec
}

// Submit hands in so many jobs.
func (s *Site) Submit(jobs int) error {
	for range jobs {
		if err := s.Do(scheduler.Submit{Spec: s.Job()}); err != nil {
			return err
		}
	}
	return nil
}

// SubmitArray hands in one array of so many one-GPU tasks.
func (s *Site) SubmitArray(tasks int) error {
	jobSpec := s.Job()
	jobSpec.Size.MinNodes = 1
	jobSpec.Size.MaxNodes = 1
	jobSpec.Size.TasksPerNode = NodeCPUs / NodeGPUs
	jobSpec.Size.PerNode = []spec.Count{{Name: "gpu", N: 1}}
	jobSpec.Queue.Array = spec.NewArrayAsk(
		spec.TaskSet{{First: 0, Last: int64(tasks - 1), Step: 1}},
		0,
	)
	return s.Do(scheduler.Submit{Spec: jobSpec})
}

// Occupy starts jobs of the same kind until half of the GPUs are taken, over
// the last hour.
func (s *Site) Occupy() error {
	half := s.State.Nodes.Len() * NodeGPUs / 2
	for used := 0; used < half; {
		jobSpec := s.Job()
		used += int(jobSpec.Size.MinNodes) * int(jobSpec.Size.PerNode[0].N)
		if used > half {
			jobSpec.Size.MinNodes, jobSpec.Size.MaxNodes = 1, 1
		}
		jobSpec.Time.Limit += spec.Hour // none is over its limit when the hour is over
		if err := s.Do(scheduler.Submit{Spec: jobSpec}); err != nil {
			return err
		}
	}
	for s.State.Waiting.Len() > 0 {
		before := s.State.Waiting.Len()
		outcome, err := s.Pass(scheduler.PassOptions{Starts: max(before/6, 1)})
		if err != nil {
			return err
		}
		if err := s.Do(scheduler.Starts{Proposal: &outcome.Proposal}); err != nil {
			return err
		}
		if s.State.Waiting.Len() == before {
			return fmt.Errorf("%d jobs that should fill half of the cluster do not start", before)
		}
		s.Now = s.Now.Add(8 * spec.Minute)
		s.Now = min(s.Now, s.epoch.Add(55*spec.Minute))
	}
	s.Now = s.epoch.Add(spec.Hour)
	return s.Do(scheduler.Tick{})
}

// EndOne lets one running job end, drawn by chance, and tells its number of
// nodes; 0 if nothing runs.
func (s *Site) EndOne() (int, error) {
	var running []spec.JobUID
	s.State.Active.Range(func(uid uint64, _ struct{}) bool {
		running = append(running, spec.JobUID(uid))
		return true
	})
	if len(running) == 0 {
		return 0, nil
	}
	job := s.State.Job(running[s.rng.IntN(len(running))])
	for i := range job.Alloc.Nodes {
		done := &scheduler.NodeDone{}
		if i == 0 {
			done.Batch = &event.StepResult{}
		}
		if err := s.Do(scheduler.Report{Node: job.Alloc.Nodes[i].Name, Run: scheduler.Run{UID: job.UID, Attempt: job.Attempt}, Done: done}); err != nil {
			return 0, err
		}
	}
	return len(job.Alloc.Nodes), nil
}
