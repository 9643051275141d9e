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
	for _, h := range history {
		to := h.GetTo()
		if to == 0 {
			to = v.Now
		}
		code := cmp.Or(h.GetReason().GetCode(), "None")
		if code == "None" && to-h.GetFrom() < tool.Second {
			continue
		}
		switch n := h.GetRestarts(); {
		case n == 1:
			code += " (requeued)"
		case n > 1:
			code += fmt.Sprintf(" (requeued %d times)", n)
		}
		if last != nil && last.GetTo() == h.GetFrom() && table[len(table)-1][2] == code {
			table[len(table)-1][1] = Span(to - from)
		} else {
			from = h.GetFrom()
			table = append(table, []string{tableRow + v.Time(from), Span(to - from), code})
		}
		last = h
	}
	if more := len(table) - historyMost; more > 0 {
		return append(
			[]string{fmt.Sprintf("%d changes before these (--json prints all)", more)},
			splitTable(table[more:])...)
	}
	return splitTable(table)
}
