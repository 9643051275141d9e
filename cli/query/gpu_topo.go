package query

import (
	"cmp"
	"fmt"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/spec/hostlist"
)

// gpuTopo shows how the GPUs of nodes are connected.
func gpuTopo(call *tool.Call, nodes []*apiv1.NodeInfo) error {
	if w := call.Opts.Text("nodes"); w != "" && len(nodes) == 0 {
		return call.Errorf("there is no node %s", w)
	}
	if render.WantsDocument(call) {
		rows := make(tree.List, 0, len(nodes))
		for _, node := range nodes {
			rows = append(rows, topoTree(node))
		}
		return render.Print(call, tree.Member{Key: "nodes", Value: rows})
	}
	return call.WriteOut([]byte(topoText(nodes, !call.Opts.On("noheader"))))
}

// topoText lays out one matrix for all nodes that are alike, in the order of the
// first of them, and below what its words mean.
func topoText(nodes []*apiv1.NodeInfo, header bool) string {
	var order []string
	alike, seen := map[string][]string{}, map[string]bool{}
	for _, node := range nodes {
		text := "no GPUs\n"
		if len(node.GetGpus()) > 0 {
			text = topoMatrix(node.GetGpus(), header, seen)
		} else if node.GetGres() != "" && !node.GetRegistered() {
			text = "not known: the node has not registered yet\n"
		}
		if alike[text] == nil {
			order = append(order, text)
		}
		alike[text] = append(alike[text], node.GetName())
	}
	var b strings.Builder
	for i, text := range order {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s\n%s", hostlist.FoldSorted(alike[text]), text)
	}
	for _, w := range linkWords() {
		if seen[w.short] && header {
			fmt.Fprintf(&b, "\n%-4s  %s", w.short, w.means)
		}
	}
	return strings.TrimSuffix(b.String(), "\n") + "\n"
}

// sameDevice is the word for two slices of one device.
const sameDevice = "DEV"

// linkWords are the words of the matrix and what they mean, the closest first.
func linkWords() []struct{ short, means string } {
	return []struct{ short, means string }{
		{
			sameDevice,
			"slices of one device",
		}, {"NV#", "so many NVLinks"}, {"PSB", "on one board"}, {"PIX", "through one PCIe switch"}, {"PXB", "through several PCIe switches"},
		{
			"PHB",
			"through the PCIe host bridge",
		}, {"NODE", "between the host bridges of one NUMA node"}, {"SYS", "between NUMA nodes"}, {"?", "not known"},
	}
}

// topoLink is how a GPU reaches another one of its node, in a word, and over how
// many NVLinks.
func topoLink(gpus []*apiv1.GpuInfo, from, to int) (word string, lanes uint8) {
	gpu := gpus[from]
	switch links := gpu.GetLinks(); {
	case from == to:
		return "X", 0
	case gpu.GetParent() != "" && gpu.GetParent() == gpus[to].GetParent():
		return sameDevice, 0
	case to < len(links):
		link := device.LinkOf(links[to])
		return link.String(), link.NVLinks
	}
	return device.Link{}.String(), 0
}

// topoMatrix lays out the GPUs of a node, and notes which kinds of links there are.
func topoMatrix(gpus []*apiv1.GpuInfo, header bool, seen map[string]bool) string {
	var rows [][]string
	if header {
		head := []string{"GPU"}
		for _, gpu := range gpus {
			head = append(head, fmt.Sprint(gpu.GetIndex()))
		}
		rows = append(rows, append(head, "NUMA", "CPUS", "PCI", "TYPE", "MEMORY"))
	}
	for i, gpu := range gpus {
		row := []string{fmt.Sprint(gpu.GetIndex())}
		for k := range gpus {
			word, lanes := topoLink(gpus, i, k)
			row = append(row, word)
			if lanes > 0 {
				word = "NV#"
			}
			seen[word] = true
		}
		rows = append(
			rows,
			append(
				row,
				numaText(gpu),
				topoCPUs(gpu),
				cmp.Or(gpu.GetPci(), "-"),
				cmp.Or(gpu.GetType(), cmp.Or(gpu.GetModel(), "-")),
				fmt.Sprintf("%.1fG", float64(gpu.GetMem())/1024),
			),
		)
	}
	return render.AlignedTexts(rows)
}

func numaText(gpu *apiv1.GpuInfo) string {
	if gpu.GetNuma() == device.Unknown {
		return "-"
	}
	return fmt.Sprint(gpu.GetNuma())
}

func topoCPUs(gpu *apiv1.GpuInfo) string {
	if len(gpu.GetCpus()) == 0 {
		return "all"
	}
	return wire.Indices(gpu.GetCpus())
}

func topoTree(node *apiv1.NodeInfo) tree.Object {
	gpus := make(tree.List, 0, len(node.GetGpus()))
	for i, gpu := range node.GetGpus() {
		links := make(tree.List, 0, len(node.GetGpus()))
		for k, o := range node.GetGpus() {
			if k != i {
				word, lanes := topoLink(node.GetGpus(), i, k)
				links = append(
					links,
					tree.Object{
						{Key: "gpu", Value: o.GetIndex()},
						{Key: "link", Value: word},
						{Key: "nvlinks", Value: int(lanes)},
					},
				)
			}
		}
		var numa any
		if gpu.GetNuma() != device.Unknown {
			numa = int(gpu.GetNuma())
		}
		gpus = append(
			gpus,
			tree.Object{
				{Key: "gpu", Value: gpu.GetIndex()},
				{Key: "uuid", Value: gpu.GetUuid()},
				{Key: "type", Value: gpu.GetType()},
				{Key: "model", Value: gpu.GetModel()},
				{
					Key:   "parent",
					Value: gpu.GetParent(),
				},
				{Key: "memory_mib", Value: gpu.GetMem()},
				{Key: "pci", Value: gpu.GetPci()},
				{Key: "numa", Value: numa},
				{Key: "cpus", Value: topoCPUs(gpu)},
				{Key: "provider", Value: gpu.GetProvider()},
				{Key: "links", Value: links},
			},
		)
	}
	return tree.Object{{Key: "node", Value: node.GetName()}, {Key: "gpus", Value: gpus}}
}
