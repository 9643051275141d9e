package slurmconf

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

// switchDraft is a line of topology.conf while it is read.
type switchDraft struct {
	Setting
	spec.Switch
	block           string
	sizes           []uint32
	nodes, switches hostlist.List
}

// setSizes reads BlockSizes: the size of a block, and its multiples by powers
// of two.
func (d *switchDraft) setSizes(v value) {
	for item := range strings.SplitSeq(v.Value, ",") {
		one := v
		one.Value = item
		n, ok := one.parseInteger(1, 1<<20)
		if !ok {
			return
		}
		if len(d.sizes) > 0 {
			k := uint32(n)
			times := k / d.sizes[0]
			if k%d.sizes[0] != 0 || times&(times-1) != 0 || k <= d.sizes[len(d.sizes)-1] {
				v.failValue("each size is the first one times a power of two, in ascending order")
				return
			}
		}
		d.sizes = append(d.sizes, uint32(n))
	}
}

// topologyKeys are the keys of topology.conf.
//
//muster:table one row for each key
func topologyKeys() []key[switchDraft] {
	hosts := func(to func(*switchDraft) *hostlist.List) func(*switchDraft, value) {
		return func(draft *switchDraft, v value) {
			list, err := hostlist.Parse(v.Value)
			if err != nil {
				v.failValue("%v", err)
				return
			}
			*to(draft) = list
		}
	}
	return []key[switchDraft]{
		{"BlockName", implemented, "", "", func(d *switchDraft, v value) { d.block = v.Value }},
		{"BlockSizes", implemented, "", "", func(d *switchDraft, v value) { d.setSizes(v) }},
		{"LinkSpeed", meaningless, "", "nodes are chosen by the number of switches alone", nil},
		{"Nodes", implemented, "", "", hosts(func(d *switchDraft) *hostlist.List { return &d.nodes })},
		{"SwitchName", implemented, "", "", func(d *switchDraft, v value) { d.Name = v.Value }},
		{"Switches", implemented, "", "", hosts(func(d *switchDraft) *hostlist.List { return &d.switches })},
	}
}

// ReadBlocks reads topology.conf as blocks of nodes, with the sizes by which
// they are put together. Without sizes there is the largest block's.
func ReadBlocks(fsys fs.FS, name string, nodes []spec.NodeSpec) ([]spec.Block, []uint32, Problems) {
	var problems Problems
	recs, _ := lexFiles(fsys, name, &problems)
	return settleBlocks(recs, nodes, problems)
}

// settleBlocks makes blocks of the records of a file.
func settleBlocks(
	recs []Record,
	nodes []spec.NodeSpec,
	problems Problems,
) ([]spec.Block, []uint32, Problems) {
	t := newTable("a line of topology.conf", topologyKeys())
	var blocks []spec.Block
	var sizes []uint32
	blockOf := map[string]string{}
	known := map[string]bool{}
	for i := range nodes {
		known[nodes[i].Name] = true
	}
	for _, record := range recs {
		draft := switchDraft{Setting: record[0]}
		applyAll(&draft, t, record, &problems)
		switch {
		case draft.sizes != nil && draft.block == "" && draft.Name == "":
			sizes = draft.sizes
			continue
		case draft.block == "":
			problems.addProblem(
				record[0],
				Error,
				"topology/block: the line names no block (BlockName)",
			)
			continue
		case draft.nodes.Len() == 0:
			problems.addProblem(record[0], Error, "block %s has no Nodes", quoteShort(draft.block))
			continue
		case slices.ContainsFunc(blocks, func(b spec.Block) bool { return b.Name == draft.block }):
			problems.addProblem(
				record[0], Error, "block %s is there twice", quoteShort(draft.block),
			)
			continue
		}
		block := spec.Block{Name: draft.block, Nodes: slices.Collect(draft.nodes.All())}
		for _, name := range block.Nodes {
			switch other, twice := blockOf[name]; {
			case !known[name]:
				problems.addProblem(
					draft.Setting,
					Error,
					"node %s is not configured",
					quoteShort(name),
				)
			case twice:
				problems.addProblem(
					draft.Setting,
					Error,
					"node %s is in block %s already",
					quoteShort(name),
					other,
				)
			}
			blockOf[name] = draft.block
		}
		blocks = append(blocks, block)
	}
	if len(sizes) == 0 {
		most := 1
		for i := range blocks {
			most = max(most, len(blocks[i].Nodes))
		}
		sizes = []uint32{uint32(most)}
	}
	return blocks, sizes, problems.sortedByLine()
}

// ReadTopology reads topology.conf as a tree of switches over some nodes: the
// leaves first, then level by level.
func ReadTopology(fsys fs.FS, name string, nodes []spec.NodeSpec) ([]spec.Switch, Problems) {
	var problems Problems
	recs, _ := lexFiles(fsys, name, &problems)
	return settleTree(recs, nodes, problems)
}

// settleTree makes a tree of the records of a file.
func settleTree(recs []Record, nodes []spec.NodeSpec, problems Problems) ([]spec.Switch, Problems) {
	t := newTable("a line of topology.conf", topologyKeys())
	var list []switchDraft
	for _, record := range recs {
		draft := switchDraft{Setting: record[0]}
		applyAll(&draft, t, record, &problems)
		switch {
		case draft.Name == "" || draft.block != "" || draft.sizes != nil:
			problems.addProblem(
				record[0],
				Error,
				"topology/tree: the line names no switch (SwitchName)",
			)
		case slices.ContainsFunc(list, func(o switchDraft) bool { return o.Name == draft.Name }):
			problems.addProblem(
				record[0], Error, "switch %s is there twice", quoteShort(draft.Name),
			)
		case (draft.nodes.Len() == 0) == (draft.switches.Len() == 0):
			problems.addProblem(record[0], Error, "a switch has either Nodes or Switches")
		default:
			list = append(list, draft)
		}
	}
	if problems.Err() != nil {
		return nil, problems.sortedByLine()
	}
	return computeLayers(list, nodes, &problems), problems.sortedByLine()
}

// computeLayers works out levels and all the nodes below each switch.
func computeLayers(list []switchDraft, nodes []spec.NodeSpec, problems *Problems) []spec.Switch {
	known := make(map[string]bool, len(nodes))
	for i := range nodes {
		known[nodes[i].Name] = true
	}
	done := map[string]*spec.Switch{}
	leafOf := map[string]string{}
	var switches []spec.Switch
	for level := uint32(0); len(done) < len(list); level++ {
		var ready []*switchDraft
		for i := range list {
			draft := &list[i]
			if done[draft.Name] == nil &&
				!slices.ContainsFunc(
					slices.Collect(draft.switches.All()),
					func(s string) bool { return done[s] == nil },
				) {
				ready = append(ready, draft)
			}
		}
		if ready == nil {
			problems.addProblem(
				stuckSwitch(list, done),
				Error,
				"it stands above a switch that does not exist, or above itself",
			)
			return nil
		}
		for _, draft := range ready {
			s := spec.Switch{
				Name:     draft.Name,
				Level:    level,
				Switches: slices.Collect(draft.switches.All()),
			}
			for name := range draft.nodes.All() {
				if !known[name] {
					problems.addProblem(
						draft.Setting,
						Error,
						"node %s is not configured",
						quoteShort(name),
					)
				}
				if other, twice := leafOf[name]; twice {
					problems.addProblem(
						draft.Setting,
						Error,
						"node %s is below switch %s already",
						quoteShort(name),
						other,
					)
				}
				leafOf[name] = draft.Name
				s.Nodes = append(s.Nodes, name)
			}
			for _, below := range s.Switches {
				s.Nodes = append(s.Nodes, done[below].Nodes...)
			}
			done[draft.Name] = &s
			switches = append(switches, s)
		}
	}
	for i := range nodes {
		if leafOf[nodes[i].Name] == "" && len(list) > 0 {
			problems.addProblem(
				list[0].Setting,
				Warning,
				"node %s is below no switch",
				quoteShort(nodes[i].Name),
			)
		}
	}
	return switches
}

func stuckSwitch(list []switchDraft, done map[string]*spec.Switch) Setting {
	for i := range list {
		if done[list[i].Name] == nil {
			return list[i].Setting
		}
	}
	return Setting{}
}

// setTopology takes the plugin; the tree itself is in topology.conf.
func setTopology(file *File, v value) {
	word, ok := v.parseWord(
		"none|topology/none|topology/default|topology/flat|topology/tree|topology/block|topology/3d_torus",
	)
	if !ok {
		return
	}
	switch word {
	case "topology/tree":
		file.TreeTopology = true
	case "topology/block":
		file.BlockTopology = true
	case "topology/3d_torus":
		v.warnValue(
			"%s is not supported: nodes are chosen without regard to switches; topology/tree and topology/block are",
			word,
		)
	}
}

// addTopology reads topology.yaml beside slurm.conf, or topology.conf where
// TopologyPlugin asks for it.
func (c *Cluster) addTopology(fsys fs.FS, name string, problems Problems) Problems {
	problems = append(problems, c.readTopology(fsys, name)...)
	for _, setting := range c.topologies {
		if !c.Config.HasTopology(setting.Value) {
			problems.addProblem(
				setting,
				Error,
				"there is no topology %s: topology.yaml beside slurm.conf names them",
				quoteShort(setting.Value),
			)
		}
	}
	return problems
}

func (c *Cluster) readTopology(fsys fs.FS, name string) (problems Problems) {
	if yaml := strings.TrimSuffix(name, ".conf") + ".yaml"; fileExists(fsys, yaml) {
		return c.yamlTopology(fsys, yaml)
	}
	if !c.TreeTopology && !c.BlockTopology {
		return nil
	}
	if !fileExists(fsys, name) {
		return Problems{
			{
				File:     c.Name,
				Key:      "TopologyPlugin",
				Severity: Warning,
				Text: fmt.Sprintf(
					"topology/tree and topology/block need the file %s: nodes are chosen without regard to switches",
					name,
				),
			},
		}
	}
	if c.BlockTopology {
		c.Config.Blocks, c.Config.BlockSizes, problems = ReadBlocks(fsys, name, c.Config.Nodes)
		return problems
	}
	c.Config.Topology, problems = ReadTopology(fsys, name, c.Config.Nodes)
	return problems
}
