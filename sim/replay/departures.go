package replay

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/musterhpc/muster/spec"
)

// Arrivals says how the pods of an Openb arrive, and how long they run.
type Arrivals struct {
	Seed    uint64
	Pods    int
	Nodes   int   // of the list, at equal distances; 0 = all
	Percent int64 // of the GPU time until the last arrival that the pods ask for together
	// Runs are jobs whose run times the pods have: each pod that of a job with as many GPUs, or
	// with the next lower number that the trace has.
	Runs *Trace
	Mix  bool // SchedulerParameters=pack_mix
}

// podUsers is how many users the pods belong to.
const podUsers = 20

// limitsOfPods are the time limits that users choose from, in seconds: the smallest that their run
// fits into.
var limitsOfPods = []int64{
	1800, 3600, 4 * 3600, 12 * 3600, 86400, 3 * 86400, 7 * 86400, 30 * 86400,
}

// Workload lets pods arrive at random moments and leave when they have run. It draws pods and run
// times, each with the same chance and independently of each other.
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

// someNodes is the same pods with so many of the nodes, which are those at equal distances in the
// list; 0 is all.
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

// makeJob is a pod of one of the users, which runs for so many seconds.
func (p *openbPod) makeJob(user int, seconds int64) Job {
	request := p.requestOf()
	request.UID += uint32(user)
	request.User = fmt.Sprintf("u%d", user)
	request.Time.Limit = spec.Span(limitOfPod(seconds)) * spec.Second
	return Job{Spec: request, Run: spec.Span(seconds) * spec.Second}
}

// limitOfPod is the time limit of a pod that runs for so many seconds.
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

// drawLength is the run time of a pod with so many GPUs. Pods with a part of one, or with none, run for
// as long as those with one.
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
