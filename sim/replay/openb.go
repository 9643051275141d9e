package replay

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/scheduler/place"
	"github.com/musterhpc/muster/scheduler/trial"
	"github.com/musterhpc/muster/spec"
)

// Openb is a GPU cluster and its pods, many of which want a part of a GPU: a
// question of packing, not of time.
type Openb struct {
	nodes []openbNode
	pods  []openbPod
}

type openbNode struct{ cpu, mem, gpus int64 }

// openbPod wants whole GPUs, or thousandths of one.
type openbPod struct{ cpu, mem, gpus, milli int64 }

// grain is how many thousandths of a CPU are one CPU of the simulated cluster:
// what a pod asks for is rounded up to it.
const grain = 20

// ReadOpenb reads the lists of nodes and pods.
func ReadOpenb(nodes, pods io.Reader) (*Openb, error) {
	openb := &Openb{}
	err := eachNumbers(nodes, []string{"cpu_milli", "memory_mib", "gpu"}, func(n []int64) {
		openb.nodes = append(openb.nodes, openbNode{n[0] / grain, n[1], n[2]})
	})
	if err != nil {
		return nil, fmt.Errorf("the nodes: %w", err)
	}
	err = eachNumbers(
		pods,
		[]string{"cpu_milli", "memory_mib", "num_gpu", "gpu_milli"},
		func(n []int64) {
			pod := openbPod{cpu: (n[0] + grain - 1) / grain, mem: n[1], gpus: n[2]}
			if n[2] == 1 && n[3] < 1000 {
				pod.gpus, pod.milli = 0, n[3]
			}
			openb.pods = append(openb.pods, pod)
		},
	)
	if err != nil {
		return nil, fmt.Errorf("the pods: %w", err)
	}
	if len(openb.nodes) == 0 || len(openb.pods) == 0 || openb.Capacity() == 0 {
		return nil, ErrEmpty
	}
	// Those with GPUs first: whether a pod could run at all is then soon known.
	slices.SortStableFunc(
		openb.nodes,
		func(a, b openbNode) int { return int(min(b.gpus, 1) - min(a.gpus, 1)) },
	)
	return openb, nil
}

// eachNumbers reads some columns of whole numbers of a CSV file with a header.
func eachNumbers(r io.Reader, columns []string, row func([]int64)) error {
	c := csv.NewReader(r)
	head, err := c.Read()
	if err != nil {
		return err
	}
	at := make([]int, len(columns))
	for i, name := range columns {
		at[i] = slices.Index(head, name)
		if at[i] < 0 {
			return fmt.Errorf("no column %s", name)
		}
	}
	out := make([]int64, len(columns))
	for line := 2; ; line++ {
		record, err := c.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for i, k := range at {
			out[i], err = strconv.ParseInt(record[k], 10, 64)
			if err != nil || out[i] < 0 || out[i] > 1<<40 {
				return fmt.Errorf("line %d: %s=%q is no whole number", line, columns[i], record[k])
			}
		}
		row(out)
	}
}

// Capacity is the GPUs of all nodes in thousandths.
func (o *Openb) Capacity() int64 {
	var sum int64
	for _, node := range o.nodes {
		sum += node.gpus * 1000
	}
	return sum
}

// Packed is how far a cluster was filled.
type Packed struct {
	Pods, Placed    int
	Asked, Alloc    int64 // thousandths of GPUs
	Capacity        int64
	Started, Passed *state.State // before the pass, and with what it started
}

// Pack lets the pods arrive in a random order, and further ones drawn from them
// until they ask for so many percent of the GPUs; nobody leaves. The pass that
// runs in production places them, with the mix of the pods or best fit.
func (o *Openb) Pack(seed uint64, percent int64, mix bool) (*Packed, error) {
	packed := &Packed{Capacity: o.Capacity()}
	random := rand.New(rand.NewPCG(seed, 0))
	pods := slices.Clone(o.pods)
	random.Shuffle(len(pods), func(i, k int) { pods[i], pods[k] = pods[k], pods[i] })
	for i := range pods {
		packed.Asked += pods[i].gpus*1000 + pods[i].milli
	}
	for packed.Asked*100 < packed.Capacity*percent {
		pod := o.pods[random.IntN(len(o.pods))]
		pods = append(pods, pod)
		packed.Asked += pod.gpus*1000 + pod.milli
	}
	packed.Pods = len(pods)
	tr, err := o.makeCluster(pods)
	if err != nil {
		return nil, err
	}
	options := scheduler.PassOptions{Discipline: scheduler.Discipline{Depth: -1}}
	if mix {
		options.Mix = o.mixOf()
	}
	packed.Started = tr.State.Freeze()
	result, err := scheduler.Pass(packed.Started, tr.Now, options)
	if err != nil {
		return nil, err
	}
	for i := range result.Starts {
		packed.Placed++
		for k := range result.Starts[i].Alloc.Nodes {
			allocation := &result.Starts[i].Alloc.Nodes[k]
			packed.Alloc += int64(len(allocation.GPUs))*1000 + allocation.ShareOf("shard")
		}
	}
	if _, err := scheduler.Decide(tr, scheduler.Starts{Proposal: &result.Proposal}); err != nil {
		return nil, err
	}
	packed.Passed = tr.State
	return packed, nil
}

// mixOf is what the pods ask for.
func (o *Openb) mixOf() *place.Mix { return place.NewMix(o.wantedOf()) }

// wantedOf is what each pod asks for.
func (o *Openb) wantedOf() []place.Wanted {
	list := make([]place.Wanted, len(o.pods))
	for i, pod := range o.pods {
		list[i] = place.Wanted{CPU: pod.cpu, Mem: pod.mem, GPUs: pod.gpus, Part: pod.milli, Jobs: 1}
	}
	return list
}

// makeCluster is the nodes with the pods waiting.
func (o *Openb) makeCluster(pods []openbPod) (*trial.Trial, error) {
	config := o.makeConfig(Settings{Priority: spec.PriorityConfig{Basic: true}})
	tr := trial.On(state.New(), epoch, event.Actor{Kind: event.ActorSystem}, "openb")
	do := func(command scheduler.Command) error {
		_, err := scheduler.Decide(tr, command)
		return err
	}
	if err := do(scheduler.Policy{Events: []event.Event{&event.ClusterCreated{UUID: [16]byte{1}, Name: config.ClusterName, Version: event.Version}}}); err != nil {
		return nil, err
	}
	if err := do(scheduler.Configure{Config: config}); err != nil {
		return nil, err
	}
	for i := range config.Nodes {
		if err := do(scheduler.RegisterNode{Node: config.Nodes[i].Name, Inventory: config.Nodes[i].FullInventory("replay")}); err != nil {
			return nil, err
		}
	}
	for i := range pods {
		if err := do(scheduler.Submit{Spec: pods[i].requestOf()}); err != nil {
			return nil, fmt.Errorf("pod %d (%+v): %w", i+1, pods[i], err)
		}
	}
	return tr, nil
}

// makeConfig is the nodes, each GPU in a thousand shards.
func (o *Openb) makeConfig(settings Settings) *spec.Config {
	config := Machine{}.Config(settings)
	config.GresTypes = []string{"gpu", "shard"}
	config.Sched.Memory = true
	part := &config.Partitions[0]
	config.Nodes, part.NodeNames = nil, nil
	for i, node := range o.nodes {
		nodeSpec := spec.NodeSpec{
			Name:           fmt.Sprintf("n%d", i+1),
			CPUs:           node.cpu,
			ThreadsPerCore: 1,
			Mem:            node.mem,
		}
		if node.gpus > 0 {
			nodeSpec.GRES = []spec.GRESSpec{
				{Name: "gpu", N: node.gpus},
				{Name: "shard", N: node.gpus * 1000},
			}
		}
		config.Nodes = append(config.Nodes, nodeSpec)
		part.NodeNames = append(part.NodeNames, nodeSpec.Name)
	}
	return config
}

// requestOf is a pod as a job of one node.
func (p *openbPod) requestOf() *spec.JobSpec {
	jobSpec := &spec.JobSpec{Name: "pod", User: "u", Account: "a", UID: 1000}
	jobSpec.Size = spec.Size{
		MinNodes:    1,
		MaxNodes:    1,
		Tasks:       1,
		CPUsPerTask: uint32(p.cpu),
		MemPerNode:  p.mem,
	}
	switch {
	case p.milli > 0:
		jobSpec.Size.PerNode = []spec.Count{{Name: "shard", N: p.milli}}
	case p.gpus > 0:
		jobSpec.Size.PerNode = []spec.Count{{Name: "gpu", N: p.gpus}}
	}
	return jobSpec
}
