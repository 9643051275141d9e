package place

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// Pick finds a placement whenever there is one: every subset of a few nodes
// is tried in the slow way.
func TestPickFindsWhatThereIs(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := func(label string, low, high int) int64 { return int64(rapid.IntRange(low, high).Draw(rt, label)) }
		d := Demand{Partition: "p", Tasks: n("tasks", 1, 8), CPUsPerTask: n("cpus", 1, 2), CPUsPerGPU: n("cpus per gpu", 0, 2), Memory: true, MemPerCPU: n("mem", 0, 2)}
		d.MinNodes = n("min", 1, 3)
		d.MaxNodes = d.MinNodes + n("more", 0, 2)
		d.Tasks = max(d.Tasks, d.MinNodes)
		d.MaxNodes = max(min(d.MaxNodes, d.Tasks), d.MinNodes)
		if g := n("gpus", 0, 5); g > 0 {
			d.PerJob = []spec.Count{{Name: "gpu", N: g}}
		}
		var kinds []Kind
		if d.Share = n("share", 0, 2); d.Share > 0 || n("cap", 0, 1) == 1 {
			kinds = []Kind{{Counts: CountsPartitionCPUs, Name: "p", N: 6}}
			if d.Share > 0 {
				kinds[0].Counts = CountsSharedCPUs
			}
		}
		var opt Options
		var cands []Candidate
		for i := range n("nodes", 1, 5) {
			shape := &Shape{CPUs: n("cpus of node", 1, 8), Mem: 16, Threads: 1, GPUs: 4, Kinds: kinds}
			node := &state.Node{ID: spec.NodeID(i), Spec: &spec.NodeSpec{Name: fmt.Sprint("n", i), Weight: uint32(n("weight", 0, 1))}}
			cands = append(cands, Candidate{Node: node, Shape: shape, Free: Free{CPU: n("free cpus", 0, int(min(shape.CPUs, 6))), Mem: n("free mem", 0, 12), GPU: n("free gpus", 0, 3)}})
			if kinds != nil {
				cands[i].Free.More = []int64{n("of partition", 0, 6)}
			}
			if n("must", 0, 6) == 0 {
				opt.Must = opt.Must.Set(int(i))
			}
		}
		parts := Pick(&d, cands, opt)
		if possible := exists(&d, cands, opt); possible != (parts != nil) {
			rt.Fatalf("a placement exists: %v, found was %v", possible, parts)
		}
		var tasks, gpu int64
		for _, p := range parts {
			c := cands[p.Node.ID]
			if p.Tasks < 1 || !c.Free.Holds(&p.Use) || p.CPUs > cpusFor(&d, &c) || p.CPUs < p.Tasks*d.CPUsPerTask || p.CPUs < p.Use.GPU*d.CPUsPerGPU || p.Mem < p.CPUs*d.MemPerCPU {
				rt.Fatalf("node %d gives %+v of %+v", p.Node.ID, p, c.Free)
			}
			tasks, gpu = tasks+p.Tasks, gpu+p.Use.GPU
		}
		if parts != nil && (tasks != d.Tasks || gpu < countGPUs(d.PerJob) || int64(len(parts)) < d.MinNodes || int64(len(parts)) > d.MaxNodes) {
			rt.Fatalf("%d tasks, %d GPUs on %d nodes for %+v", tasks, gpu, len(parts), d)
		}
	})
}

// exists tries every subset of the nodes.
func exists(d *Demand, cands []Candidate, opt Options) bool {
	for set := 1; set < 1<<len(cands); set++ {
		var nodes, tasks, gpu int64
		ok := true
		for i := range cands {
			if set&(1<<i) == 0 {
				ok = ok && !opt.Must.Has(i)
				continue
			}
			f, cpus := cands[i].Free, cpusFor(d, &cands[i])
			most, devices := int64(0), int64(0)
			for t := int64(1); t <= d.Tasks && t*d.CPUsPerTask <= cpus && t*d.CPUsPerTask*d.MemPerCPU <= f.Mem; t++ {
				most = t
			}
			for g := int64(1); g <= f.GPU && max(g*d.CPUsPerGPU, 1) <= cpus && max(g*d.CPUsPerGPU, 1)*d.MemPerCPU <= f.Mem; g++ {
				devices = g
			}
			ok = ok && most > 0
			nodes, tasks, gpu = nodes+1, tasks+most, gpu+devices
		}
		if ok && nodes >= d.MinNodes && nodes <= d.MaxNodes && tasks >= d.Tasks && gpu >= countGPUs(d.PerJob) {
			return true
		}
	}
	return false
}

// cpusFor is how many CPUs of a node a demand may have: those that are free or
// may be shared, and no more than are left of its partition's.
func cpusFor(d *Demand, c *Candidate) int64 {
	cpus := c.Free.CPU
	if d.Share > 0 {
		cpus = c.Shape.CPUs
	}
	if len(c.Free.More) > 0 {
		cpus = min(cpus, c.Free.More[0])
	}
	return cpus
}
