package spec

import "slices"

// Takes tells whether a node that is added while the cluster runs is of the
// partition.
func (p *PartitionSpec) Takes(n *NodeSpec) bool {
	return p.AllNodes ||
		slices.ContainsFunc(
			n.Features,
			func(f string) bool { return slices.Contains(p.NodeFeatures, f) },
		)
}

// Taking are the partitions that a node belongs to that is added, by name.
func (c *Config) Taking(node *NodeSpec) []string {
	var out []string
	for i := range c.Partitions {
		if c.Partitions[i].Takes(node) {
			out = append(out, c.Partitions[i].Name)
		}
	}
	return out
}

// WithNode is the configuration with one more node, in partitions. The
// receiver stays as it is.
func (c *Config) WithNode(node NodeSpec, parts []string) *Config {
	out := *c
	out.Nodes = append(slices.Clip(c.Nodes), node)
	out.Partitions = slices.Clone(c.Partitions)
	for i := range out.Partitions {
		if p := &out.Partitions[i]; slices.Contains(parts, p.Name) &&
			!slices.Contains(p.NodeNames, node.Name) {
			p.NodeNames = append(slices.Clip(p.NodeNames), node.Name)
		}
	}
	return &out
}

// WithoutNode is the configuration without a node. The receiver stays as it is.
func (c *Config) WithoutNode(name string) *Config {
	out := *c
	out.Nodes = slices.DeleteFunc(
		slices.Clone(c.Nodes),
		func(n NodeSpec) bool { return n.Name == name },
	)
	out.Partitions = slices.Clone(c.Partitions)
	for i := range out.Partitions {
		if p := &out.Partitions[i]; slices.Contains(p.NodeNames, name) {
			p.NodeNames = slices.DeleteFunc(
				slices.Clone(p.NodeNames),
				func(n string) bool { return n == name },
			)
		}
	}
	return &out
}

// WithNewPartition is the configuration with one more partition. The receiver
// stays as it is.
func (c *Config) WithNewPartition(partition PartitionSpec) *Config {
	out := *c
	partition.Dynamic = true
	out.Partitions = append(slices.Clip(c.Partitions), partition)
	return &out
}

// WithoutPartition is the configuration without a partition. The receiver stays
// as it is.
func (c *Config) WithoutPartition(name string) *Config {
	out := *c
	out.Partitions = slices.DeleteFunc(
		slices.Clone(c.Partitions),
		func(p PartitionSpec) bool { return p.Name == name },
	)
	return &out
}

// KeepDynamic is a configuration as the files have it, with the nodes and the
// partitions of an older one that were added while the cluster ran and that no
// file names now.
func (c *Config) KeepDynamic(old *Config) *Config {
	named := make(map[string]bool, len(c.Nodes))
	for i := range c.Nodes {
		named[c.Nodes[i].Name] = true
	}
	out := c
	for i := range old.Nodes {
		if n := &old.Nodes[i]; n.Dynamic && !named[n.Name] {
			named[n.Name] = true
			out = out.WithNode(*n, c.Taking(n))
		}
	}
	for i := range old.Partitions {
		partition := old.Partitions[i]
		if !partition.Dynamic || indexPartition(c.Partitions, partition.Name) >= 0 {
			continue
		}
		partition.NodeNames = slices.DeleteFunc(
			slices.Clone(partition.NodeNames),
			func(n string) bool { return !named[n] },
		)
		partition.Default = partition.Default &&
			!slices.ContainsFunc(c.Partitions, func(o PartitionSpec) bool { return o.Default })
		out = out.WithNewPartition(partition)
	}
	return out
}

// DynamicNodes counts the nodes that were added while the cluster ran.
func (c *Config) DynamicNodes() int {
	n := 0
	for i := range c.Nodes {
		if c.Nodes[i].Dynamic {
			n++
		}
	}
	return n
}
