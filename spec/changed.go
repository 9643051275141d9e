package spec

import (
	"reflect"
	"slices"
)

// WithoutNodes is a partition without all that says which nodes are of it.
func (p *PartitionSpec) WithoutNodes() PartitionSpec {
	partition := *p
	partition.Nodes = ""
	partition.NodeNames = nil
	partition.AllNodes = false
	partition.NodeFeatures = nil
	return partition
}

// sameNodes gives a partition the nodes of another one.
func (p *PartitionSpec) sameNodes(as *PartitionSpec) {
	p.Nodes = as.Nodes
	p.NodeNames = as.NodeNames
	p.AllNodes = as.AllNodes
	p.NodeFeatures = as.NodeFeatures
}

// WithPartition is the configuration with a partition replaced, which remembers
// what the files say of it; its nodes stay unless they are part of the change. The
// receiver stays as it is.
func (c *Config) WithPartition(partition *PartitionSpec, nodes bool) *Config {
	i := indexPartition(c.Partitions, partition.Name)
	if i < 0 {
		return c
	}
	config, was := *c, &c.Partitions[i]
	next := *partition
	if !nodes {
		next.sameNodes(was)
	}
	config.Partitions = slices.Clone(c.Partitions)
	config.Partitions[i] = next
	if was.Dynamic {
		config.Partitions[i].Dynamic = true
		return &config
	}
	at := indexPartition(c.FileParts, partition.Name)
	config.FileParts = slices.Clone(c.FileParts)
	if at < 0 {
		at, config.FileParts = len(c.FileParts), append(config.FileParts, was.WithoutNodes())
	}
	file := &config.FileParts[at]
	if nodes && !slices.Contains(c.PartNodes, partition.Name) {
		file.sameNodes(was)
		file.NodeNames = c.filedNodes(was.NodeNames)
		config.PartNodes = append(slices.Clip(c.PartNodes), partition.Name)
	}
	if !slices.Contains(config.PartNodes, partition.Name) {
		next = next.WithoutNodes()
	} else {
		next.NodeNames = c.filedNodes(next.NodeNames)
	}
	if reflect.DeepEqual(*file, next) {
		config.FileParts = slices.Delete(config.FileParts, at, at+1)
		config.PartNodes = slices.DeleteFunc(
			slices.Clone(config.PartNodes),
			func(name string) bool { return name == partition.Name },
		)
	}
	if len(config.FileParts) == 0 {
		config.FileParts = nil
	}
	if len(config.PartNodes) == 0 {
		config.PartNodes = nil
	}
	return &config
}

// filedNodes are those of some nodes that files name.
func (c *Config) filedNodes(names []string) []string {
	if c.DynamicNodes() == 0 {
		return names
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		i := indexNode(c.Nodes, name)
		return i >= 0 && c.Nodes[i].Dynamic
	})
}

// WithChangedNode is the configuration with a node replaced by one of the same
// name; it remembers what the files say of it. The receiver stays as it is.
func (c *Config) WithChangedNode(node NodeSpec) *Config {
	config := *c
	config.Nodes, config.FileNodes = slices.Clone(c.Nodes), slices.Clone(c.FileNodes)
	config.ChangeNode(node)
	return &config
}

// ChangeNode is WithChangedNode for a configuration of which nobody else has the
// lists of nodes: a thousand nodes are changed one by one.
func (c *Config) ChangeNode(node NodeSpec) {
	i := indexNode(c.Nodes, node.Name)
	if i < 0 {
		return
	}
	was := c.Nodes[i]
	c.Nodes[i] = node
	if node.Dynamic {
		return
	}
	at := indexNode(c.FileNodes, node.Name)
	if at < 0 {
		at, c.FileNodes = len(c.FileNodes), append(c.FileNodes, was)
	}
	if reflect.DeepEqual(c.FileNodes[at], node) {
		c.FileNodes = slices.Delete(c.FileNodes, at, at+1)
	}
	if len(c.FileNodes) == 0 {
		c.FileNodes = nil
	}
}

// KeepChanged is a configuration as the files have it, with the partitions and
// nodes of an older one that were changed while the cluster ran and of which the
// files say what they said then.
func (c *Config) KeepChanged(old *Config) *Config {
	config := c
	for i := range old.FileParts {
		file := &old.FileParts[i]
		at, was := indexPartition(
			c.Partitions,
			file.Name,
		), indexPartition(
			old.Partitions,
			file.Name,
		)
		if at < 0 || was < 0 {
			continue
		}
		now, nodes := c.Partitions[at], slices.Contains(old.PartNodes, file.Name)
		if nodes {
			now.NodeNames = c.filedNodes(now.NodeNames)
		} else {
			now = now.WithoutNodes()
		}
		if reflect.DeepEqual(now, *file) {
			config = config.WithPartition(&old.Partitions[was], nodes)
		}
	}
	owned := false // out has lists of nodes of its own
	for i := range old.FileNodes {
		file := &old.FileNodes[i]
		at, was := indexNode(c.Nodes, file.Name), indexNode(old.Nodes, file.Name)
		if at >= 0 && was >= 0 && reflect.DeepEqual(c.Nodes[at], *file) {
			if owned {
				config.ChangeNode(old.Nodes[was])
				continue
			}
			config, owned = config.WithChangedNode(old.Nodes[was]), true
		}
	}
	return config
}

func indexNode(list []NodeSpec, name string) int {
	for i := range list { // a node is much to copy
		if list[i].Name == name {
			return i
		}
	}
	return -1
}

func indexPartition(list []PartitionSpec, name string) int {
	return slices.IndexFunc(list, func(p PartitionSpec) bool { return p.Name == name })
}
