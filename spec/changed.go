package spec

import (
	"reflect"
	"slices"
)

// WithoutNodes is a partition without all that says which nodes are of it.
func (p *PartitionSpec) WithoutNodes() PartitionSpec {
	out := *p
	out.Nodes, out.NodeNames, out.AllNodes, out.NodeFeatures = "", nil, false, nil
	return out
}

// WithPartition is the configuration with a partition replaced but for its
// nodes, which remembers what the files say of it. The receiver stays as it is.
func (c *Config) WithPartition(p *PartitionSpec) *Config {
	i := indexPartition(c.Partitions, p.Name)
	if i < 0 {
		return c
	}
	out, was := *c, &c.Partitions[i]
	next := *p
	next.Nodes, next.NodeNames, next.AllNodes, next.NodeFeatures = was.Nodes, was.NodeNames, was.AllNodes, was.NodeFeatures
	out.Partitions = slices.Clone(c.Partitions)
	out.Partitions[i] = next
	if was.Dynamic {
		out.Partitions[i].Dynamic = true
		return &out
	}
	at := indexPartition(c.FileParts, p.Name)
	if at < 0 {
		at, out.FileParts = len(c.FileParts), append(slices.Clip(c.FileParts), was.WithoutNodes())
	}
	if reflect.DeepEqual(out.FileParts[at], next.WithoutNodes()) {
		out.FileParts = slices.Delete(slices.Clone(out.FileParts), at, at+1)
	}
	if len(out.FileParts) == 0 {
		out.FileParts = nil
	}
	return &out
}

// WithChangedNode is the configuration with a node replaced by one of the same
// name; it remembers what the files say of it. The receiver stays as it is.
func (c *Config) WithChangedNode(n NodeSpec) *Config {
	out := *c
	out.Nodes, out.FileNodes = slices.Clone(c.Nodes), slices.Clone(c.FileNodes)
	out.ChangeNode(n)
	return &out
}

// ChangeNode is WithChangedNode for a configuration of which nobody else has the
// lists of nodes: a thousand nodes are changed one by one.
func (c *Config) ChangeNode(n NodeSpec) {
	i := indexNode(c.Nodes, n.Name)
	if i < 0 {
		return
	}
	was := c.Nodes[i]
	if c.Nodes[i] = n; n.Dynamic {
		return
	}
	at := indexNode(c.FileNodes, n.Name)
	if at < 0 {
		at, c.FileNodes = len(c.FileNodes), append(c.FileNodes, was)
	}
	if reflect.DeepEqual(c.FileNodes[at], n) {
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
	out := c
	for i := range old.FileParts {
		file := &old.FileParts[i]
		at, was := indexPartition(c.Partitions, file.Name), indexPartition(old.Partitions, file.Name)
		if at >= 0 && was >= 0 && reflect.DeepEqual(c.Partitions[at].WithoutNodes(), *file) {
			out = out.WithPartition(&old.Partitions[was])
		}
	}
	owned := false // out has lists of nodes of its own
	for i := range old.FileNodes {
		file := &old.FileNodes[i]
		at, was := indexNode(c.Nodes, file.Name), indexNode(old.Nodes, file.Name)
		if at >= 0 && was >= 0 && reflect.DeepEqual(c.Nodes[at], *file) {
			if owned {
				out.ChangeNode(old.Nodes[was])
				continue
			}
			out, owned = out.WithChangedNode(old.Nodes[was]), true
		}
	}
	return out
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
