package render

import (
	"cmp"
	"fmt"

	apiv1 "github.com/musterhpc/muster/api/v1"
)

// ReportRow is a row of a report whose cells are read by the names of their columns.
type ReportRow struct {
	at    map[string]int
	cells []*apiv1.Cell
}

// ReportRows are the rows of a report.
func ReportRows(reply *apiv1.ReportReply) []ReportRow {
	at := map[string]int{}
	for i, column := range reply.GetColumns() {
		at[column.GetName()] = i
	}
	var rows []ReportRow
	for _, row := range reply.GetRows() {
		if len(row.GetCells()) == len(at) {
			rows = append(rows, ReportRow{at, row.GetCells()})
		}
	}
	return rows
}

// Cell is nil where the report has no such column.
func (r ReportRow) Cell(name string) *apiv1.Cell {
	i, known := r.at[name]
	if !known {
		return nil
	}
	return r.cells[i]
}

// Text is the text of a cell.
func (r ReportRow) Text(name string) string { return r.Cell(name).GetText() }

// Number is the whole number of a cell.
func (r ReportRow) Number(name string) int64 { return r.Cell(name).GetInt() }

// Hours writes microseconds of GPUs or CPUs as hours of them.
func (r ReportRow) Hours(name string) string { return hoursText(r.Number(name), 1) }

// MemoryHours writes MiB times microseconds as GiB-hours.
func (r ReportRow) MemoryHours(name string) string { return hoursText(r.Number(name), 1024) }

// FollowedHours writes an amount of what a finding is judged by, in hours of that resource.
func (r ReportRow) FollowedHours(name string) string {
	if r.Text("resource") == "memory" {
		return r.MemoryHours(name)
	}
	return r.Hours(name)
}

func hoursText(us, scale int64) string {
	return fmt.Sprintf("%.2f", float64(us)/float64(scale)/3.6e9)
}

// Money writes an amount of money, or - without prices.
func (r ReportRow) Money(name string) string {
	if r.Cell(name).GetNull() {
		return "-"
	}
	return fmt.Sprintf("%.2f", r.Cell(name).GetFloat())
}

// Measure writes an amount in the unit that the row names.
func (r ReportRow) Measure(name string) string {
	return MeasureText(r.Cell(name).GetFloat(), r.Text("unit"))
}

// Whose says whose a finding is and about which work, node or device.
func (r ReportRow) Whose() (who, what string) {
	node := r.Text("node")
	switch {
	case node != "" && r.Text("device") != "":
		return "-", fmt.Sprintf("GPU %d of node %s", r.Number("gpu"), node)
	case node != "":
		return "-", "node " + node
	}
	return r.Text("user") + " (" + r.Text("account") + ")", cmp.Or(r.Text("job_name"), "(no name)")
}

// RunText names the run of a row, with the number of its restart.
func (r ReportRow) RunText() string {
	if n := r.Number("restart"); n > 0 {
		return fmt.Sprintf("%d (restart %d)", r.Number("job"), n)
	}
	return fmt.Sprint(r.Number("job"))
}
