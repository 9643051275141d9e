package spec

import "slices"

// Block is a set of nodes that are close to each other.
type Block struct {
	Name  string   `cbor:"1,keyasint"`
	Nodes []string `cbor:"2,keyasint,omitempty"`
}

// Switch is a network switch: a leaf with nodes, or one above other switches.
type Switch struct {
	Name     string   `cbor:"1,keyasint"`
	Level    uint32   `cbor:"2,keyasint,omitempty"` // 0 = a leaf
	Nodes    []string `cbor:"3,keyasint,omitempty"` // all below it
	Switches []string `cbor:"4,keyasint,omitempty"` // right below it
}

// Topology is how nodes are connected: by a tree of switches, in blocks, or in no
// way that matters (flat).
type Topology struct {
	Name     string   `cbor:"1,keyasint,omitempty"`
	Switches []Switch `cbor:"2,keyasint,omitempty"` // the leaves first
	Blocks   []Block  `cbor:"3,keyasint,omitempty"`
	// Sizes are the planning sizes of blocks, in nodes, the smallest first; the
	// others are it times a power of two.
	Sizes []uint32 `cbor:"4,keyasint,omitempty"`
}

// MainTopology is that of the partitions that name none.
func (c *Config) MainTopology() Topology {
	return Topology{
		Name:     c.TopologyName,
		Switches: c.Topology,
		Blocks:   c.Blocks,
		Sizes:    c.BlockSizes,
	}
}

// TopologyOf is that of a partition.
func (c *Config) TopologyOf(partition *PartitionSpec) Topology {
	for i := range c.Topologies {
		if partition.Topology != "" && c.Topologies[i].Name == partition.Topology {
			return c.Topologies[i]
		}
	}
	return c.MainTopology()
}

// HasTopology tells whether a topology has a name.
func (c *Config) HasTopology(name string) bool {
	return name == c.TopologyName ||
		slices.ContainsFunc(c.Topologies, func(t Topology) bool { return t.Name == name })
}

// HasBlocks tells whether some topology has blocks.
func (c *Config) HasBlocks() bool {
	for i := range c.Topologies {
		if len(c.Topologies[i].Blocks) > 0 {
			return true
		}
	}
	return len(c.Blocks) > 0
}
