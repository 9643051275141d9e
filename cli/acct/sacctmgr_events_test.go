package acct

import (
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
)

// TestEventLength: an event that goes on lasts until now. Of a reply that lacks one of the two
// times nothing is said.
func TestEventLength(t *testing.T) {
	const second = 1_000_000_000
	at := func(seconds int64) *apiv1.Cell { return &apiv1.Cell{Kind: &apiv1.Cell_Int{Int: seconds * second}} }
	both := &apiv1.ReportReply{Columns: []*apiv1.ReportColumn{
		{Name: "TimeStart", Unit: "time"},
		{Name: "TimeEnd", Unit: "time"},
	}}
	begin := &apiv1.ReportReply{Columns: both.GetColumns()[:1]}
	for _, c := range []struct {
		name string
		rep  *apiv1.ReportReply
		row  *apiv1.ReportRow
		want string
	}{
		{"over", both, &apiv1.ReportRow{Cells: []*apiv1.Cell{at(10), at(75)}}, "00:01:05"},
		{"goes on", both, &apiv1.ReportRow{Cells: []*apiv1.Cell{at(10), at(0)}}, "00:01:30"},
		{"no end is sent", begin, &apiv1.ReportRow{Cells: []*apiv1.Cell{at(10)}}, ""},
	} {
		if got := eventLength(c.rep, c.row, 100*second); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
