package acct

import (
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
)

// reportTree is a report as data; what was not measured is null.
func reportTree(rep *apiv1.ReportReply) tree.Object {
	rows := tree.List{}
	for _, r := range rep.GetRows() {
		row := tree.Object{}
		for i, col := range rep.GetColumns() {
			var v any
			switch k := r.GetCells()[i].GetKind().(type) {
			case *apiv1.Cell_Text:
				v = k.Text
			case *apiv1.Cell_Int:
				v = k.Int
			case *apiv1.Cell_Float:
				v = k.Float
			}
			row = append(row, tree.Member{Key: col.GetName(), Value: v})
		}
		rows = append(rows, row)
	}
	columns := tree.List{}
	for _, col := range rep.GetColumns() {
		columns = append(
			columns,
			tree.Object{
				{Key: "name", Value: col.GetName()},
				{Key: "kind", Value: col.GetKind()},
				{Key: "unit", Value: col.GetUnit()},
			},
		)
	}
	return tree.Object{
		{Key: "cluster", Value: rep.GetCluster()},
		{Key: "start", Value: rep.GetStart() / tool.Second},
		{Key: "end", Value: rep.GetEnd() / tool.Second},
		{Key: "columns", Value: columns},
		{Key: "rows", Value: rows},
	}
}

const reportRule = "--------------------------------------------------------------------------------\n"
