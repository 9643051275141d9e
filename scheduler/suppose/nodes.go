package suppose

import (
	"fmt"
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/scheduler/trial"
	"github.com/musterhpc/muster/spec"
)

// MaxNodes is how many nodes may be supposed at once.
const MaxNodes = 10_000

// AddNodes adds nodes like one that there is, in its partitions, whatever
// MaxNodeCount says. It returns their names: new1, new2 and so on.
func AddNodes(t *trial.Trial, like string, count int) ([]string, error) {
	if count < 1 || count > MaxNodes {
		return nil, spec.Refuse(
			spec.CodeNodeCountInvalid,
			fmt.Sprintf("%d nodes: suppose 1 to %d", count, MaxNodes),
		)
	}
	model := t.Node(like)
	if model == nil || model.Removed {
		return nil, spec.Refuse(spec.CodeInvalidNodeName, like)
	}
	var partitions []string
	for i := range t.Parts.List {
		partition := t.Parts.List[i].Spec
		if slices.Contains(partition.NodeNames, like) {
			partitions = append(partitions, partition.Name)
		}
	}
	names := make([]string, 0, count)
	for number := 1; len(names) < count; number++ {
		node := *model.Spec
		node.Name = fmt.Sprintf("new%d", number)
		if t.Node(node.Name) != nil {
			continue
		}
		node.Dynamic = true
		if err := t.Emit(&event.NodeAdded{Node: node, Partitions: partitions}); err != nil {
			return nil, err
		}
		names = append(names, node.Name)
	}
	return names, nil
}
