package query

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec/hostlist"
)

// loadTopologies gets the topologies from the controller. The first is the cluster's default.
func loadTopologies(call *tool.Call) ([]*apiv1.TopologyInfo, error) {
	var reply apiv1.GetConfigReply
	if err := call.RPC(tool.MethodGetConfig, &apiv1.GetConfigRequest{}, &reply); err != nil {
		refusal := tool.ExplainError(err)
		return nil, tool.Fail(
			1, append(refusal.Preamble("scontrol"), "slurm_load_topo error: "+refusal.Text)...,
		)
	}
	all := reply.GetTopologies()
	if len(all) == 0 {
		// A controller of an older release sends the switches of its only topology.
		all = []*apiv1.TopologyInfo{{Switches: reply.GetTopology()}}
	}
	if len(all) == 1 && len(all[0].GetSwitches())+len(all[0].GetBlocks()) == 0 {
		return nil, tool.Fail(0, "scontrol: error: No topology information available")
	}
	return all, nil
}

// showTopoConf is scontrol show topoconf: the topologies in force, in the format of topology.yaml.
func showTopoConf(call *tool.Call) error {
	all, err := loadTopologies(call)
	if err != nil {
		return err
	}
	var text strings.Builder
	text.WriteString("---\n")
	for i, topology := range all {
		name := cmp.Or(topology.GetName(), "default")
		fmt.Fprintf(&text, "- topology: %s\n  cluster_default: %t\n", name, i == 0)
		writeTopology(&text, topology)
	}
	return call.WriteOut([]byte(text.String()))
}

// writeTopology writes the switches or blocks of a topology as topology.yaml has them.
func writeTopology(text *strings.Builder, topology *apiv1.TopologyInfo) {
	switch {
	case len(topology.GetSwitches()) > 0:
		text.WriteString("  tree:\n    switches:\n")
		for _, unit := range topology.GetSwitches() {
			fmt.Fprintf(text, "      - switch: %s\n", unit.GetName())
			if len(unit.GetSwitches()) > 0 {
				fmt.Fprintf(text, "        children: %s\n", hostlist.Fold(unit.GetSwitches()))
			} else {
				fmt.Fprintf(text, "        nodes: %s\n", hostlist.Fold(unit.GetNodes()))
			}
		}
	case len(topology.GetBlocks()) > 0:
		text.WriteString("  block:\n")
		if sizes := topology.GetBlockSizes(); len(sizes) > 0 {
			texts := make([]string, len(sizes))
			for i, size := range sizes {
				texts[i] = tool.Itoa(size)
			}
			fmt.Fprintf(text, "    block_sizes: [%s]\n", strings.Join(texts, ", "))
		}
		text.WriteString("    blocks:\n")
		for _, unit := range topology.GetBlocks() {
			nodes := hostlist.Fold(unit.GetNodes())
			fmt.Fprintf(text, "      - block: %s\n        nodes: %s\n", unit.GetName(), nodes)
		}
	default:
		text.WriteString("  flat: true\n")
	}
}

// showTopology is scontrol show topology [TOPOLOGY|SWITCH|BLOCK|NODE].
func showTopology(call *tool.Call, name string) error {
	all, err := loadTopologies(call)
	if err != nil {
		return err
	}
	name = strings.TrimPrefix(strings.TrimPrefix(name, "node="), "unit=")
	found := false
	for i, topology := range all {
		whole := name == "" || (name == topology.GetName() && len(all) > 1)
		lines := topologyLines(topology, func(unit string, nodes []string) bool {
			return whole || unit == name || slices.Contains(nodes, name)
		})
		if len(all) > 1 && (whole || len(lines) > 0) {
			header := "Topology=" + topology.GetName() + " Default=" + render.YesNo(i == 0) +
				" Type=" + topologyType(topology)
			lines = append([]string{header}, lines...)
		}
		found = found || len(lines) > 0
		for _, line := range lines {
			if err := call.WriteOut([]byte(line + "\n")); err != nil {
				return err
			}
		}
	}
	if !found {
		return call.Errorf("Topology information contains no switch, block or node named %s", name)
	}
	return nil
}

func topologyType(topology *apiv1.TopologyInfo) string {
	switch {
	case len(topology.GetSwitches()) > 0:
		return "tree"
	case len(topology.GetBlocks()) > 0:
		return "block"
	}
	return "flat"
}

// topologyLines writes the wanted switches, blocks and aggregated blocks of a topology, one to a
// line, as Slurm writes them. An aggregated block is a row of neighbouring blocks, as many as one
// of the larger BlockSizes holds.
func topologyLines(
	topology *apiv1.TopologyInfo,
	want func(unit string, nodes []string) bool,
) (lines []string) {
	for _, s := range topology.GetSwitches() {
		if !want(s.GetName(), s.GetNodes()) {
			continue
		}
		line := "SwitchName=" + s.GetName() + " Level=" + tool.Itoa(s.GetLevel()) +
			" LinkSpeed=1 Nodes=" + hostlist.Fold(s.GetNodes())
		if len(s.GetSwitches()) > 0 {
			line += " Switches=" + hostlist.Fold(s.GetSwitches())
		}
		lines = append(lines, line)
	}
	blocks := topology.GetBlocks()
	sizes := topology.GetBlockSizes()
	for i, size := range sizes {
		key := "AggregatedBlock="
		if i == 0 {
			key = "BlockName="
		}
		together := int(size / sizes[0])
		for from := 0; from < len(blocks); from += together {
			var names, nodes []string
			for _, block := range blocks[from:min(from+together, len(blocks))] {
				names = append(names, block.GetName())
				nodes = append(nodes, block.GetNodes()...)
			}
			name := hostlist.Fold(names)
			if !want(name, nodes) {
				continue
			}
			lines = append(lines, key+name+" BlockIndex="+strconv.Itoa(from/together)+
				" Nodes="+hostlist.Fold(nodes)+" BlockSize="+tool.Itoa(size))
		}
	}
	return lines
}
