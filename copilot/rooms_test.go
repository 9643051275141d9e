package copilot_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/copilot"
	"github.com/musterhpc/muster/spec"
)

// TestFindsAsThePlainLoop: the search through ordered rooms chooses for each pod the node
// that a look at every node for every pod chooses.
func TestFindsAsThePlainLoop(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		small := func(what string, most int) int64 {
			return int64(rapid.IntRange(0, most).Draw(t, what))
		}
		var nodes []copilot.Node
		var names []string
		for i := range rapid.IntRange(0, 8).Draw(t, "nodes") {
			names = append(names, fmt.Sprintf("n%d", i))
			nodes = append(nodes, copilot.Node{
				Name:     names[i],
				Open:     small("open", 4) > 0,
				FreeCPU:  small("cpu", 4),
				SpareCPU: small("spare", 2500),
				FreeMem:  small("mem", 300),
				FreeGPU:  map[string]int64{"a100": small("a100", 2), "h100": small("h100", 2)},
			})
		}
		lists := [][]string{nil, names, {"elsewhere"}}
		if len(names) > 0 {
			lists = append(lists, rapid.SliceOfN(rapid.SampledFrom(names), 1, 4).Draw(t, "some"))
		}
		var pods []copilot.Pod
		for i := range rapid.IntRange(0, 25).Draw(t, "pods") {
			pods = append(pods, copilot.Pod{
				UID:     fmt.Sprintf("p%02d", i),
				Created: spec.Instant(i),
				Gated:   true,
				Admits:  rapid.SampledFrom(lists).Draw(t, "admits"),
				Ask: copilot.Ask{
					MilliCPU: small("milli", 3000),
					Mem:      small("need", 150),
					GPUs:     small("gpus", 2),
					GPUType:  rapid.SampledFrom([]string{"", "a100"}).Draw(t, "type"),
				},
			})
		}
		want, got := plain(pods, nodes), chosen(copilot.Reconcile(pods, nodes))
		if !maps.Equal(want, got) {
			t.Errorf("it finds\n%v\nand the plain loop\n%v", got, want)
		}
	})
}

func chosen(plan copilot.Plan) map[string]string {
	out := map[string]string{}
	for _, take := range plan.Takes {
		out[take.Pod.UID] = take.Node
	}
	return out
}

// plain chooses by looking at every node for every pod, in the order of the pods.
func plain(pods []copilot.Pod, nodes []copilot.Node) map[string]string {
	out := map[string]string{}
	nodes = slices.Clone(nodes)
	for i := range nodes {
		nodes[i].FreeGPU = maps.Clone(nodes[i].FreeGPU)
	}
	for _, pod := range pods {
		var best *copilot.Node
		for i := range nodes {
			node := &nodes[i]
			free := node.FreeGPU["a100"]
			if pod.Ask.GPUType == "" {
				free = devices(node)
			}
			enough := node.FreeCPU*1000+node.SpareCPU >= pod.Ask.MilliCPU &&
				node.FreeMem >= pod.Ask.Mem && free >= pod.Ask.GPUs
			if !node.Open || !enough || !slices.Contains(pod.Admits, node.Name) {
				continue
			}
			if best == nil || before(node, best) {
				best = node
			}
		}
		if best == nil {
			continue
		}
		out[pod.UID] = best.Name
		best.SpareCPU -= pod.Ask.MilliCPU
		for best.SpareCPU < 0 {
			best.FreeCPU--
			best.SpareCPU += 1000
		}
		best.FreeMem -= pod.Ask.Mem
		ofA100 := min(pod.Ask.GPUs, best.FreeGPU["a100"])
		best.FreeGPU["a100"] -= ofA100
		best.FreeGPU["h100"] -= pod.Ask.GPUs - ofA100
	}
	return out
}

func devices(node *copilot.Node) int64 { return node.FreeGPU["a100"] + node.FreeGPU["h100"] }

func before(a, b *copilot.Node) bool {
	switch {
	case devices(a) != devices(b):
		return devices(a) < devices(b)
	case a.FreeCPU != b.FreeCPU:
		return a.FreeCPU < b.FreeCPU
	case a.FreeMem != b.FreeMem:
		return a.FreeMem < b.FreeMem
	}
	return strings.Compare(a.Name, b.Name) < 0
}

// BenchmarkReconcile plans for pods that wait for 1,000 nodes, which have room for
// all of them or for none.
func BenchmarkReconcile(b *testing.B) {
	const count = 1000
	for _, pods := range []int{1000, 10_000} {
		for _, full := range []bool{false, true} {
			b.Run(fmt.Sprintf("pods=%d/full=%v", pods, full), func(b *testing.B) {
				random := rand.New(rand.NewPCG(1, 2))
				var nodes []copilot.Node
				var names []string
				for i := range count {
					names = append(names, fmt.Sprintf("node%04d", i))
					nodes = append(nodes, copilot.Node{Name: names[i], Open: true, FreeCPU: 64,
						FreeMem: 256 << 10, FreeGPU: map[string]int64{"h100": int64(i % 9)}})
					if full {
						nodes[i].FreeMem = 0
					}
				}
				var waiting []copilot.Pod
				for i := range pods {
					waiting = append(waiting, copilot.Pod{
						UID:    fmt.Sprintf("pod%05d", i),
						Gated:  true,
						Admits: names,
						Ask: copilot.Ask{
							MilliCPU: 100 * (1 + random.Int64N(40)),
							Mem:      1 + random.Int64N(8000),
						},
					})
				}
				for b.Loop() {
					plan := copilot.Reconcile(waiting, nodes)
					if full && len(plan.Waits) != pods || !full && len(plan.Takes) != pods {
						b.Fatalf("%d takes, %d waits of %d", len(plan.Takes), len(plan.Waits), pods)
					}
				}
			})
		}
	}
}
