package spec

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
