package render

import (
	"cmp"
	"fmt"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
)

// historyLines is a table of the reasons so far. Neighbours that differ only
// in their numbers are one line; the moment before the first look at a job is
// none.
func (v *WhyView) historyLines(history []*apiv1.ReasonPeriod) []string {
	var table [][]string
	var last *apiv1.ReasonPeriod
	var from int64
	for _, period := range history {
		to := period.GetTo()
		if to == 0 {
			to = v.Now
		}
		code := cmp.Or(period.GetReason().GetCode(), "None")
		if code == "None" && to-period.GetFrom() < tool.Second {
			continue
		}
		switch n := period.GetRestarts(); {
		case n == 1:
			code += " (requeued)"
		case n > 1:
			code += fmt.Sprintf(" (requeued %d times)", n)
		}
		if last != nil && last.GetTo() == period.GetFrom() && table[len(table)-1][2] == code {
			table[len(table)-1][1] = Span(to - from)
		} else {
			from = period.GetFrom()
			table = append(table, []string{tableRow + v.Time(from), Span(to - from), code})
		}
		last = period
	}
	if more := len(table) - historyMost; more > 0 {
		return append(
			[]string{fmt.Sprintf("%d changes before these (--json prints all)", more)},
			splitTable(table[more:])...)
	}
	return splitTable(table)
}
