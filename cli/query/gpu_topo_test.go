package query

import (
	"strings"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tree"
	"github.com/musterhpc/muster/nodeagent/gpu/device"
)

// topoNodes are three machines: two alike, with NVLink within pairs and a slow way
// between them, and one with a device in slices beside one of which nothing is known.
func topoNodes() []*apiv1.NodeInfo {
	nv, sys := device.Link{Kind: device.LinkNVLink, NVLinks: 12}.Closeness(), device.Link{Kind: device.LinkSystem}.Closeness()
	self := device.Link{Kind: device.LinkSelf}.Closeness()
	pair := func() []*apiv1.GpuInfo {
		return []*apiv1.GpuInfo{
			{Index: 0, Uuid: "GPU-a", Type: "a100", Mem: 81920, Pci: "0000:01:00.0", Cpus: []uint64{0xf}, Links: []int32{self, nv, sys}},
			{Index: 1, Uuid: "GPU-b", Type: "a100", Mem: 81920, Pci: "0000:02:00.0", Cpus: []uint64{0xf}, Links: []int32{nv, self, sys}},
			{Index: 2, Uuid: "GPU-c", Type: "a100", Mem: 81920, Pci: "0000:81:00.0", Cpus: []uint64{0xf0}, Numa: 1, Links: []int32{sys, sys, self}},
		}
	}
	sliced := []*apiv1.GpuInfo{{Index: 0, Model: "A100 MIG 1g.10gb", Parent: "GPU-x", Mem: 10240, Numa: device.Unknown}, {Index: 1, Type: "1g.10gb", Parent: "GPU-x", Mem: 10240}, {Index: 2, Uuid: "GPU-y"}}
	return []*apiv1.NodeInfo{{Name: "g1", Registered: true, Gpus: pair()}, {Name: "m1", Gpus: sliced}, {Name: "g2", Registered: true, Gpus: pair()}, {Name: "c1", Registered: true}, {Name: "w1", Gres: "gpu:4"}}
}

func TestGPUTopology(t *testing.T) {
	const want = `g[1-2]
GPU  0     1     2    NUMA  CPUS  PCI           TYPE  MEMORY
0    X     NV12  SYS  0     0-3   0000:01:00.0  a100  80.0G
1    NV12  X     SYS  0     0-3   0000:02:00.0  a100  80.0G
2    SYS   SYS   X    1     4-7   0000:81:00.0  a100  80.0G

m1
GPU  0    1    2  NUMA  CPUS  PCI  TYPE              MEMORY
0    X    DEV  ?  -     all   -    A100 MIG 1g.10gb  10.0G
1    DEV  X    ?  0     all   -    1g.10gb           10.0G
2    ?    ?    X  0     all   -    -                 0.0G

c1
no GPUs

w1
not known: the node has not registered yet

DEV   slices of one device
NV#   so many NVLinks
SYS   between NUMA nodes
?     not known
`
	if got := topoText(topoNodes(), true); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := topoText(topoNodes()[:1], false); !strings.HasPrefix(got, "g1\n0  X     NV12  SYS") || strings.Contains(got, "NVLinks") {
		t.Errorf("without headers:\n%s", got)
	}
	var document strings.Builder
	if err := tree.WriteJSON(&document, topoTree(topoNodes()[0]), false); err != nil {
		t.Fatal(err)
	}
	text := document.String()
	for _, part := range []string{`"node": "g1"`, `"link": "NV12"`, `"nvlinks": 12`, `"numa": 1`, `"cpus": "4-7"`, `"uuid": "GPU-c"`} {
		if !strings.Contains(text, part) {
			t.Errorf("the JSON has no %s:\n%s", part, text)
		}
	}
}
