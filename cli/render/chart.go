package render

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec/format"
)

// Bounds of charts: how many devices or nodes of a job are drawn, and the points of each line.
const (
	maxCharted  = 16
	ChartPoints = 90
)

// Chart is a figure over time: a line in a box that is Width wide and 100 high.
type Chart struct {
	Name, Mean, Most string
	Line, Area       string // paths of SVG
	Width            int
	None             bool // nothing was measured
}

// Charted is a device or a node of a job with its figures over time.
type Charted struct {
	Name, UUID string
	Charts     []Chart
}

// ChartGPUs draws what the first GPUs of a job did, and from when to when that is.
func ChartGPUs(history *apiv1.GpuHistoryReply) (charted []Charted, from, to int64) {
	list := history.GetGpus()
	steps := uint32(1)
	for _, gpuHistory := range list {
		for _, point := range gpuHistory.GetPoints() {
			steps = max(steps, point.GetAt()+1)
		}
	}
	for _, gpu := range list[:min(len(list), maxCharted)] {
		line := func(name, unit string, full, scale float64, get func(p *apiv1.GpuPoint) *float64) Chart {
			values := make([]*float64, steps)
			for _, point := range gpu.GetPoints() {
				values[point.GetAt()] = scaleValue(get(point), scale)
			}
			return DrawChart(name, unit, full, values)
		}
		charted = append(charted, Charted{
			Name: fmt.Sprintf("%s GPU %d", Clean(gpu.GetNode()), gpu.GetIndex()),
			UUID: Clean(gpu.GetUuid()),
			Charts: []Chart{
				line("utilisation", "%", 100, 1, func(p *apiv1.GpuPoint) *float64 { return p.Util }),
				line("SM active", "%", 100, 100, func(p *apiv1.GpuPoint) *float64 { return p.Sm }),
				line("tensor active", "%", 100, 100, func(p *apiv1.GpuPoint) *float64 { return p.Tensor }),
				line("memory", "GiB", 0, 1.0/1024, func(p *apiv1.GpuPoint) *float64 { return p.MemoryMib }),
				line("power", "W", 0, 1, func(p *apiv1.GpuPoint) *float64 { return p.Power }),
			},
		})
	}
	return charted, history.GetFrom(), history.GetFrom() + int64(steps)*history.GetStep()
}

// scaleValue is a measured value in another unit.
func scaleValue(value *float64, by float64) *float64 {
	if value == nil {
		return nil
	}
	out := *value * by
	return &out
}

// ChartNodes draws what a job used of CPUs and memory on its first nodes.
func ChartNodes(report *apiv1.JobReportReply) []Charted {
	held := map[string]*apiv1.JobReportNode{}
	for _, node := range report.GetNodes() {
		held[node.GetNode()] = node
	}
	var out []Charted
	for _, usage := range report.GetUsage()[:min(len(report.GetUsage()), maxCharted)] {
		steps := uint32(1)
		for _, point := range usage.GetPoints() {
			steps = max(steps, point.GetAt()+1)
		}
		cpus, resident := make([]*float64, steps), make([]*float64, steps)
		for _, point := range usage.GetPoints() {
			gib := float64(point.GetRss()) / (1 << 30)
			cpus[point.GetAt()] = point.Cpus
			resident[point.GetAt()] = &gib
		}
		node := held[usage.GetNode()]
		memory := "memory of " + format.Units(node.GetMemMib(), 'M', format.Convert{})
		out = append(out, Charted{Name: Clean(usage.GetNode()), Charts: []Chart{
			DrawChart(
				fmt.Sprintf("CPUs in use of %d", node.GetCpus()), "", float64(node.GetCpus()), cpus,
			),
			DrawChart(memory, "GiB", float64(node.GetMemMib())/1024, resident),
		}})
	}
	return out
}

// DrawChart makes a chart of values, of which nil was not measured. full is the value
// at its top; 0 takes the largest.
func DrawChart(name, unit string, full float64, values []*float64) Chart {
	chart := Chart{Name: name, Width: max(len(values)-1, 1)}
	sum := 0.0
	most := 0.0
	n := 0
	for _, value := range values {
		if value != nil {
			sum += *value
			most = math.Max(most, *value)
			n++
		}
	}
	if n == 0 {
		chart.None = true
		return chart
	}
	if full <= 0 {
		full = most
	}
	chart.Mean, chart.Most = formatAmount(sum/float64(n), unit), formatAmount(most, unit)
	var path, area strings.Builder
	drawing, last := false, 0
	for i, value := range values {
		if value == nil {
			if drawing {
				fmt.Fprintf(&area, "L%d 100Z", last)
			}
			drawing = false
			continue
		}
		y := 100.0
		if full > 0 {
			y = 100 - 98*math.Min(*value/full, 1)
		}
		if !drawing {
			fmt.Fprintf(&path, "M%d %.1f", i, y)
			fmt.Fprintf(&area, "M%d 100L%d %.1f", i, i, y)
		} else {
			fmt.Fprintf(&path, "L%d %.1f", i, y)
			fmt.Fprintf(&area, "L%d %.1f", i, y)
		}
		drawing, last = true, i
	}
	if drawing {
		fmt.Fprintf(&area, "L%d 100Z", last)
	}
	chart.Line, chart.Area = path.String(), area.String()
	return chart
}

// formatAmount is a figure with its unit, in as many digits as say something.
func formatAmount(value float64, unit string) string {
	digits := 0
	if value < 10 {
		digits = 1
	}
	text := strconv.FormatFloat(value, 'f', digits, 64)
	if unit == "" {
		return text
	}
	return text + " " + unit
}
