package replay

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/musterhpc/muster/spec"
)

// Arrivals describes when the pods of an Openb trace arrive and how long they run.
type Arrivals struct {
	Seed    uint64
	Pods    int
	Nodes   int   // how many of the trace's nodes, picked at equal distances; 0 = all
	Percent int64 // load: GPU time that all pods request, of the GPU time until the last arrival
	// Runs is the trace that run times are drawn from. A pod gets the run time of a job with as
	// many GPUs, or with the next lower number of GPUs in that trace.
	Runs *Trace
	Mix  bool // SchedulerParameters=pack_mix
}

// podUsers is the number of users among whom the pods are divided.
const podUsers = 20

// limitsOfPods are the time limits that users choose from, in seconds. Each takes the smallest one
// that its run fits into.
var limitsOfPods = []int64{
	1800, 3600, 4 * 3600, 12 * 3600, 86400, 3 * 86400, 7 * 86400, 30 * 86400,
}

// Workload makes a workload of pods that arrive at random moments and leave when they have run.
// Pods and run times are drawn independently of each other, each with equal probability.
func (o *Openb) Workload(arrivals Arrivals, settings Settings) (*Workload, error) {
	lengths := runsByGPUs(arrivals.Runs)
	if len(lengths) == 0 {
		return nil, fmt.Errorf("no job with GPUs to take run times from: %w", ErrEmpty)
	}
	part := o.someNodes(arrivals.Nodes)
	random := rand.New(rand.NewPCG(arrivals.Seed, 1))
	workload := &Workload{Config: part.makeConfig(settings)}
	workload.Config.Sched.PackMix = arrivals.Mix
	var work int64 // thousandths of GPUs times seconds
	for range arrivals.Pods {
		pod := o.pods[random.IntN(len(o.pods))]
		seconds := lengths.drawLength(random, pod.gpus)
		work += (pod.gpus*1000 + pod.milli) * seconds
		workload.Jobs = append(workload.Jobs, pod.makeJob(random.IntN(podUsers), seconds))
	}
	seconds := work * 100 / (part.Capacity() * arrivals.Percent)
	for i := range workload.Jobs {
		at := spec.Span(random.Int64N(max(seconds, 1))) * spec.Second
		workload.Jobs[i].Submit = epoch.Add(at)
	}
	slices.SortStableFunc(workload.Jobs, func(a, b Job) int { return int(a.Submit.Sub(b.Submit)) })
	return workload, nil
}

// someNodes returns the trace with count of its nodes, picked at equal distances in its list; 0
// keeps all.
func (o *Openb) someNodes(count int) *Openb {
	if count <= 0 || count >= len(o.nodes) {
		return o
	}
	part := &Openb{pods: o.pods}
	for i := range count {
		part.nodes = append(part.nodes, o.nodes[i*len(o.nodes)/count])
	}
	return part
}

// makeJob returns the job of a pod that belongs to a user and runs for this many seconds.
func (p *openbPod) makeJob(user int, seconds int64) Job {
	request := p.requestOf()
	request.UID += uint32(user)
	request.User = fmt.Sprintf("u%d", user)
	request.Time.Limit = spec.Span(limitOfPod(seconds)) * spec.Second
	return Job{Spec: request, Run: spec.Span(seconds) * spec.Second}
}

// limitOfPod returns the time limit, in seconds, that the user of a run of this length chooses.
func limitOfPod(seconds int64) int64 {
	for _, limit := range limitsOfPods {
		if seconds <= limit {
			return limit
		}
	}
	return seconds
}

// lengths are the run times of a trace in seconds, by number of GPUs.
type lengths map[int64][]int64

func runsByGPUs(trace *Trace) lengths {
	out := lengths{}
	for i := range trace.Rows {
		row := &trace.Rows[i]
		if row.GPUs > 0 && row.Run > 0 {
			out[row.GPUs] = append(out[row.GPUs], row.Run)
		}
	}
	return out
}

// drawLength draws the run time, in seconds, of a pod with this many GPUs. Pods with a fraction of a
// GPU, or with none, draw from the runs with one.
func (l lengths) drawLength(random *rand.Rand, gpus int64) int64 {
	for n := max(gpus, 1); n > 0; n-- {
		if list := l[n]; len(list) > 0 {
			return list[random.IntN(len(list))]
		}
	}
	least := int64(1 << 62)
	for n := range l {
		least = min(least, n)
	}
	return l[least][random.IntN(len(l[least]))]
}
