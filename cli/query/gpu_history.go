package query

import (
	"cmp"
	"fmt"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/fetch"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
	"github.com/musterhpc/muster/spec/format"
)

// gpuPast asks what a job's GPUs did over time.
func gpuPast(call *tool.Call, job string) (*apiv1.GpuHistoryReply, error) {
	var reply apiv1.GpuHistoryReply
	query := &apiv1.GpuHistoryQuery{Job: job, Points: uint32(lineWidth(call))}
	if err := fetch.UpToDate(call, tool.MethodAcctGPUHistory, query, &reply, func(seq uint64) {
		query.MinSeq = seq
	}); err != nil {
		return nil, err
	}
	return &reply, nil
}

// Widths of a line over time.
const (
	lineDefault = 60
	lineMost    = 2000
)

// lineWidth is how many columns a line over time takes.
func lineWidth(call *tool.Call) int {
	if n, ok := tool.PositiveNumber(call.Opts.Text("width")); ok {
		return min(int(n), lineMost)
	}
	return lineDefault
}

// overTime is one figure of a GPU's points.
type overTime struct {
	name  string
	most  float64 // the full height; 0 = the largest value
	get   func(*apiv1.GpuPoint) *float64
	write string // format of a value, and …
	scale float64
}

func overTimes() []overTime {
	return []overTime{
		{"util", 100, func(p *apiv1.GpuPoint) *float64 { return p.Util }, "%.0f%%", 1},
		{"sm", 1, func(p *apiv1.GpuPoint) *float64 { return p.Sm }, "%.0f%%", 100},
		{"tensor", 1, func(p *apiv1.GpuPoint) *float64 { return p.Tensor }, "%.0f%%", 100},
		{"memory", 0, func(p *apiv1.GpuPoint) *float64 { return p.MemoryMib }, "%.1fG", 1.0 / 1024},
		{"power", 0, func(p *apiv1.GpuPoint) *float64 { return p.Power }, "%.0fW", 1},
		{"temp", 100, func(p *apiv1.GpuPoint) *float64 { return p.Temp }, "%.0fC", 1},
	}
}

// gpuHistoryText shows each figure of each GPU as a line over time.
func gpuHistoryText(call *tool.Call, reply *apiv1.GpuHistoryReply) string {
	steps, empty := render.BarLevels(call)
	width := 0
	sampled := false
	absent := false
	for _, gpu := range reply.GetGpus() {
		for _, point := range gpu.GetPoints() {
			width, sampled = max(width, int(point.GetAt())+1), true
			absent = absent || point.Occupied != nil && point.GetOccupied() == 0
		}
	}
	if !sampled {
		return "No samples of its GPUs are stored: it shares them, or see telemetry.samples_interval and accounting.samples_keep.\n"
	}
	var rows [][]string
	rows = append(rows, []string{"NODE", "GPU", "WHAT", "OVER TIME", "MEAN", "MOST"})
	for _, gpu := range reply.GetGpus() {
		node, name := gpu.GetNode(), fmt.Sprint(gpu.GetIndex())
		if gpu.GetProfile() != "" {
			name += "/" + gpu.GetProfile()
		}
		for _, time := range overTimes() {
			line, mean, most, ok := time.drawLine(gpu.GetPoints(), width, steps, empty)
			if !ok {
				continue
			}
			rows = append(
				rows,
				[]string{
					node,
					name,
					time.name,
					line,
					fmt.Sprintf(time.write, mean*time.scale),
					fmt.Sprintf(time.write, most*time.scale),
				},
			)
			node, name = "", ""
		}
	}
	var text strings.Builder
	fmt.Fprintf(
		&text,
		"From %s to %s, %s a column",
		localTime(call, reply.GetFrom()),
		localTime(call, reply.GetFrom()+int64(width)*reply.GetStep()),
		render.Span(reply.GetStep()),
	)
	if absent {
		fmt.Fprintf(&text, "; %c = no process on it", empty)
	}
	text.WriteString(".\n")
	text.WriteString(render.Aligned(rows, func(i int) bool { return i < 4 }))
	return text.String()
}

// drawLine draws the points: a blank where there is no sample.
func (f *overTime) drawLine(
	points []*apiv1.GpuPoint,
	width int,
	steps []rune,
	empty rune,
) (text string, mean, most float64, ok bool) {
	values := make([]*float64, width)
	for _, point := range points {
		if int(point.GetAt()) < width {
			values[point.GetAt()] = f.get(point)
		}
	}
	out, mean, most, ok := render.DrawLine(values, f.most, steps)
	if !ok {
		return "", 0, 0, false
	}
	for _, point := range points {
		if point.Occupied != nil && point.GetOccupied() == 0 && int(point.GetAt()) < width &&
			f.get(point) != nil {
			out[point.GetAt()] = empty
		}
	}
	return string(out), mean, most, true
}

// localTime is an instant as people here read it.
func localTime(call *tool.Call, ns int64) string {
	return format.Time(ns/tool.Second, call.Loc)
}

// gpuEnded lays out what the ledger says of the GPUs of a run that is over.
func gpuEnded(list []*apiv1.GpuHistory, header bool) string {
	var rows [][]string
	if header {
		rows = append(
			rows,
			[]string{
				"NODE",
				"GPU",
				"HELD",
				"NO PROCESS",
				"NO WORK",
				"UTIL",
				"SM",
				"PEAK MEM",
				"ENERGY",
				"METHOD",
				"UUID",
			},
		)
	}
	for _, gpu := range list {
		t := gpu.GetTotal()
		if t == nil {
			continue
		}
		row := []string{
			gpu.GetNode(),
			fmt.Sprint(gpu.GetIndex()),
			formatSeconds(float64(t.GetHeld() / tool.Second)),
			"-",
			"-",
			"-",
			"-",
			"-",
			"-",
			cmp.Or(render.MethodText(t), "-"),
			gpu.GetUuid(),
		}
		if held := render.HeldPart(t); t.GetMeasured() && held > 0 {
			part := func(ns int64) string { return fmt.Sprintf("%.0f%%", 100*float64(ns)/held) }
			row[3] = formatSeconds(float64(t.GetNoProcess() / tool.Second))
			row[4] = formatSeconds(float64(t.GetIdle() / tool.Second))
			row[5] = part(t.GetUtil())
			row[7] = render.PeakText(t)
			if t.Sm != nil {
				row[6] = part(t.GetSm())
			}
			if t.EnergyMj != nil {
				row[8] = fmt.Sprintf("%.1fWh", float64(t.GetEnergyMj())/3.6e6)
			}
		}
		rows = append(rows, row)
	}
	return render.Aligned(rows, func(i int) bool { return i == 0 || i == 1 || i >= 9 })
}

// gpuHistoryTree is the history as JSON or YAML.
func gpuHistoryTree(reply *apiv1.GpuHistoryReply) tree.Object {
	gpus := tree.List{}
	for _, gpu := range reply.GetGpus() {
		points := tree.List{}
		for _, point := range gpu.GetPoints() {
			object := tree.Object{
				{
					Key:   "at",
					Value: (reply.GetFrom() + int64(point.GetAt())*reply.GetStep()) / tool.Second,
				},
			}
			for _, f := range []struct {
				key string
				v   *float64
			}{{"utilization_percent", point.Util}, {"sm_active_ratio", point.Sm}, {"tensor_active_ratio", point.Tensor}, {"memory_used_mib", point.MemoryMib},
				{"power_watts", point.Power}, {"temperature_celsius", point.Temp}, {"occupied_ratio", point.Occupied}} {
				var value any
				if f.v != nil {
					value = *f.v
				}
				object = append(object, tree.Member{Key: f.key, Value: value})
			}
			points = append(points, object)
		}
		gpus = append(
			gpus,
			tree.Object{
				{Key: "node", Value: gpu.GetNode()},
				{Key: "gpu", Value: int64(gpu.GetIndex())},
				{Key: "uuid", Value: gpu.GetUuid()},
				{
					Key:   "mig_profile",
					Value: gpu.GetProfile(),
				},
				{Key: "samples", Value: int64(gpu.GetSamples())},
				{Key: "points", Value: points},
			},
		)
	}
	return tree.Object{
		{Key: "step_seconds", Value: reply.GetStep() / tool.Second},
		{Key: "gpus", Value: gpus},
	}
}
