package spec

// PowerConfig says how nodes that nobody needs are powered down, and up again
// for a job.
type PowerConfig struct {
	Suspend    string `cbor:"1,keyasint,omitempty"` // SuspendProgram; gets the nodes as a host list
	Resume     string `cbor:"2,keyasint,omitempty"`
	ResumeFail string `cbor:"3,keyasint,omitempty"` // for nodes that did not come up
	IdleAfter  Span   `cbor:"4,keyasint,omitempty"` // SuspendTime; 0 = never
	// How long a node may take to go down and to come up; 0 = Slurm's defaults.
	DownIn Span `cbor:"5,keyasint,omitempty"`
	UpIn   Span `cbor:"6,keyasint,omitempty"`
	// How many nodes a minute are powered down and up; 0 = any number.
	DownRate uint32 `cbor:"7,keyasint,omitempty"`
	UpRate   uint32 `cbor:"8,keyasint,omitempty"`
	// What is not powered down because it is idle.
	Keep       []KeepUp `cbor:"9,keyasint,omitempty"`
	KeepParts  []string `cbor:"10,keyasint,omitempty"`
	KeepStates []string `cbor:"11,keyasint,omitempty"` // CLOUD, DOWN, DRAIN, …
	// IdleOnDown puts a node back into service when it is powered down, whatever
	// it was (idle_on_node_suspend).
	IdleOnDown bool `cbor:"12,keyasint,omitempty"`
	// MaxUp is how many nodes may be powered up at once for jobs; 0 = any number
	// (max_powered_nodes).
	MaxUp uint32 `cbor:"13,keyasint,omitempty"`
}

// KeepUp keeps nodes from being powered down: as many of them as N says, or
// all if it is 0.
type KeepUp struct {
	Nodes []string `cbor:"1,keyasint"`
	N     int64    `cbor:"2,keyasint,omitempty"`
}

// Slurm's defaults of SuspendTimeout and ResumeTimeout.
const (
	defaultDownIn = 30 * Second
	defaultUpIn   = 60 * Second
)

// PowerTimes are the times that count for one node.
type PowerTimes struct {
	IdleAfter    Span // 0 = it is not powered down by itself
	DownIn, UpIn Span
}

// On tells whether nodes can be powered down and up.
func (p *PowerConfig) On() bool { return p != nil && p.Suspend != "" && p.Resume != "" }

// PowerTimes are the times of a node in some partitions: its own, else the
// longest of its partitions, else those of the cluster.
func (c *Config) PowerTimes(node *NodeSpec, parts []*PartitionSpec) PowerTimes {
	times := PowerTimes{DownIn: defaultDownIn, UpIn: defaultUpIn}
	if power := c.Power; power != nil {
		times.IdleAfter = power.IdleAfter
		if power.DownIn > 0 {
			times.DownIn = power.DownIn
		}
		if power.UpIn > 0 {
			times.UpIn = power.UpIn
		}
	}
	var idle, down, up Span
	for _, partition := range parts {
		own := partition.SuspendTime
		if partition.PowerDownOnIdle && own == 0 {
			own = 1
		}
		idle, down, up = max(
			idle,
			own,
		), max(
			down,
			partition.SuspendTimeout,
		), max(
			up,
			partition.ResumeTimeout,
		)
	}
	if node.SuspendTime != 0 {
		idle = node.SuspendTime
	}
	if idle > 0 {
		times.IdleAfter = idle
	}
	if down > 0 {
		times.DownIn = down
	}
	if up > 0 {
		times.UpIn = up
	}
	if times.IdleAfter == Infinite {
		times.IdleAfter = 0
	}
	return times
}
