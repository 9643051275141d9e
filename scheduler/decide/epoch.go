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
func (d *decision) raiseVersion(command RaiseVersion) error {
	if command.To <= d.t.Version {
		return nil
	}
	return d.Emit(&event.ClusterVersionRaised{Version: command.To})
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

func (d nodeCommands) noteLostHistory(command NoteLostHistory) error {
	if d.t.HasSeen(command.Seen.Epoch, command.Seen.Seq) {
		return nil
	}
	known := d.t.Lost
	numbersKnown := d.t.NextUID >= command.Seen.NextUID && d.t.NextID >= command.Seen.NextID
	if known != nil && known.Seen.Epoch == command.Seen.Epoch &&
		known.Seen.Seq >= command.Seen.Seq &&
		numbersKnown {
		return nil // another witness has told as much
	}
	lost := &event.HistoryLost{Witness: command.Witness, Seen: command.Seen}
	if d.t.Version >= event.LostNumbersSince {
		lost.FirstUID, lost.FirstID = d.t.NextUID, d.t.NextID
	}
	return d.Emit(lost)
}

// orphansReason begins the reason of a node that is drained for its orphans.
const orphansReason = "Lost history: "

func (d nodeCommands) holdOrphans(command HoldOrphans) error {
	node := d.t.Node(command.Node)
	if node == nil {
		return nil
	}
	ours := node.Admin == event.NodeDrain && strings.HasPrefix(node.Reason, orphansReason)
	if command.Runs == 0 {
		if !ours {
			return nil
		}
		return d.Emit(&event.NodeStateSet{Node: command.Node, State: event.NodeResume})
	}
	if ours {
		return nil
	}
	return d.DrainNode(
		command.Node,
		fmt.Sprintf(
			"%s%s that this ledger does not know (muster runs)",
			orphansReason,
			format.Plural(command.Runs, "run", "runs"),
		),
	)
}
