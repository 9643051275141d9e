package decide

import (
	"fmt"
	"strings"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec/format"
)

// RaiseVersion lets events and fields up to a vocabulary version into the ledger. Whoever sends
// it has made sure that every controller of the group knows that version.
type RaiseVersion struct{ To uint32 }

// raiseVersion does nothing where the version is as high already.
func (d *decision) raiseVersion(c RaiseVersion) error {
	if c.To <= d.t.Version {
		return nil
	}
	return d.Emit(&event.ClusterVersionRaised{Version: c.To})
}

// BeginEpoch is the first command of a controller that begins to lead. Value is
// random.
type BeginEpoch struct {
	Value         uint64
	Host, Version string
}

// NoteLostHistory tells of a position that somebody has seen. Where the ledger
// does not hold it, history was lost, and the job numbers that were given away
// in the lost part are not given away again.
type NoteLostHistory struct {
	Witness string // node NAME, archive, or accounting store
	Seen    event.Position
}

// HoldOrphans tells how many runs a node has that the ledger does not know.
// The node takes nothing new while there are any.
type HoldOrphans struct {
	Node string
	Runs int
}

func (d nodeCommands) noteLostHistory(c NoteLostHistory) error {
	if d.t.HasSeen(c.Seen.Epoch, c.Seen.Seq) {
		return nil
	}
	known := d.t.Lost
	numbersKnown := d.t.NextUID >= c.Seen.NextUID && d.t.NextID >= c.Seen.NextID
	if known != nil && known.Seen.Epoch == c.Seen.Epoch && known.Seen.Seq >= c.Seen.Seq &&
		numbersKnown {
		return nil // another witness has told as much
	}
	return d.Emit(&event.HistoryLost{Witness: c.Witness, Seen: c.Seen})
}

// orphansReason begins the reason of a node that is drained for its orphans.
const orphansReason = "Lost history: "

func (d nodeCommands) holdOrphans(c HoldOrphans) error {
	node := d.t.Node(c.Node)
	if node == nil {
		return nil
	}
	ours := node.Admin == event.NodeDrain && strings.HasPrefix(node.Reason, orphansReason)
	if c.Runs == 0 {
		if !ours {
			return nil
		}
		return d.Emit(&event.NodeStateSet{Node: c.Node, State: event.NodeResume})
	}
	if ours {
		return nil
	}
	return d.DrainNode(
		c.Node,
		fmt.Sprintf(
			"%s%s that this ledger does not know (muster runs)",
			orphansReason,
			format.Plural(c.Runs, "run", "runs"),
		),
	)
}
