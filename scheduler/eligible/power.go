package eligible

import (
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// CheckPowerLimit says that too many nodes would be powered up if those of an
// allocation were, or nil.
func CheckPowerLimit(cluster *state.State, allocation *spec.Allocation) *spec.Reason {
	if cluster.Config.Power == nil || cluster.Config.Power.MaxUp == 0 {
		return nil
	}
	asleep, up := int64(0), int64(0)
	for i := range allocation.Nodes {
		if n := cluster.NodeByID(allocation.Nodes[i].ID); n != nil && n.Power == event.PoweredDown {
			asleep++
		}
	}
	if asleep == 0 {
		return nil
	}
	cluster.Nodes.Range(func(_ uint64, node *state.Node) bool {
		if node.Power != event.PoweredDown && !node.Removed {
			up++
		}
		return true
	})
	if most := int64(cluster.Config.Power.MaxUp); up+asleep > most {
		return &spec.Reason{
			Code:  "MaxPoweredUpNodes",
			TRES:  "node",
			Limit: most,
			Used:  up,
			Asked: asleep,
		}
	}
	return nil
}
