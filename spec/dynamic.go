package spec

import "slices"

// Takes tells whether a node that is added while the cluster runs is of the
// partition.
func (p *PartitionSpec) Takes(node *NodeSpec) bool {
	return p.AllNodes ||
		slices.ContainsFunc(
			node.Features,
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
	config := *c
	config.Nodes = append(slices.Clip(c.Nodes), node)
	config.Partitions = slices.Clone(c.Partitions)
	for i := range config.Partitions {
		if partition := &config.Partitions[i]; slices.Contains(parts, partition.Name) &&
			!slices.Contains(partition.NodeNames, node.Name) {
			partition.NodeNames = append(slices.Clip(partition.NodeNames), node.Name)
		}
	}
	return &config
}

// WithoutNode is the configuration without a node. The receiver stays as it is.
func (c *Config) WithoutNode(name string) *Config {
	config := *c
	config.Nodes = slices.DeleteFunc(
		slices.Clone(c.Nodes),
		func(n NodeSpec) bool { return n.Name == name },
	)
	config.Partitions = slices.Clone(c.Partitions)
	for i := range config.Partitions {
		if partition := &config.Partitions[i]; slices.Contains(partition.NodeNames, name) {
			partition.NodeNames = slices.DeleteFunc(
				slices.Clone(partition.NodeNames),
				func(n string) bool { return n == name },
			)
		}
	}
	return &config
}

// WithNewPartition is the configuration with one more partition. The receiver
// stays as it is.
func (c *Config) WithNewPartition(partition PartitionSpec) *Config {
	config := *c
	partition.Dynamic = true
	config.Partitions = append(slices.Clip(c.Partitions), partition)
	return &config
}

// WithoutPartition is the configuration without a partition. The receiver stays
// as it is.
func (c *Config) WithoutPartition(name string) *Config {
	config := *c
	config.Partitions = slices.DeleteFunc(
		slices.Clone(c.Partitions),
		func(p PartitionSpec) bool { return p.Name == name },
	)
	return &config
}

// KeepDynamic is a configuration as the files have it, with the nodes and the
// partitions of an older one that were added while the cluster ran and that no
// file names now.
func (c *Config) KeepDynamic(old *Config) *Config {
	named := make(map[string]bool, len(c.Nodes))
	for i := range c.Nodes {
		named[c.Nodes[i].Name] = true
	}
	config := c
	for i := range old.Nodes {
		if node := &old.Nodes[i]; node.Dynamic && !named[node.Name] {
			named[node.Name] = true
			config = config.WithNode(*node, c.Taking(node))
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
		config = config.WithNewPartition(partition)
	}
	return config
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
