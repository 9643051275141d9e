package acct

import (
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
)

// reportTree is a report as data; what was not measured is null.
func reportTree(reply *apiv1.ReportReply) tree.Object {
	rows := tree.List{}
	for _, reportRow := range reply.GetRows() {
		row := tree.Object{}
		for i, column := range reply.GetColumns() {
			var value any
			switch k := reportRow.GetCells()[i].GetKind().(type) {
			case *apiv1.Cell_Text:
				value = k.Text
			case *apiv1.Cell_Int:
				value = k.Int
			case *apiv1.Cell_Float:
				value = k.Float
			}
			row = append(row, tree.Member{Key: column.GetName(), Value: value})
		}
		rows = append(rows, row)
	}
	columns := tree.List{}
	for _, column := range reply.GetColumns() {
		columns = append(
			columns,
			tree.Object{
				{Key: "name", Value: column.GetName()},
				{Key: "kind", Value: column.GetKind()},
				{Key: "unit", Value: column.GetUnit()},
			},
		)
	}
	return tree.Object{
		{Key: "cluster", Value: reply.GetCluster()},
		{Key: "start", Value: reply.GetStart() / tool.Second},
		{Key: "end", Value: reply.GetEnd() / tool.Second},
		{Key: "columns", Value: columns},
		{Key: "rows", Value: rows},
	}
}

const reportRule = "--------------------------------------------------------------------------------\n"
