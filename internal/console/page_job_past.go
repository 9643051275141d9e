package console

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
)

// pastData is what accounting says of a job. It is a part of the job's page that
// is loaded after it, because a store answers later than a state in memory.
type pastData struct {
	Missing string // why there is nothing
	Run     []fact
	Times   []stage
	Waited  []period
	Use     []fact
	GPUs    []gpuUse
	MoreGPU int
	From    moment
	To      moment
	Nodes   []nodeUse
	Advice  []advice
}

// period is a stretch of time for which one reason kept a job waiting.
type period struct {
	Reason, Detail, Span string
	At                   moment
	Bar                  int
}

// gpuUse is a GPU of a job with its figures over time.
type gpuUse struct {
	Name, UUID string
	Charts     []chart
}

// nodeUse is a node of a job with its figures over time.
type nodeUse struct {
	Name   string
	Charts []chart
}

// chart is a figure over time: a line in a box that is width wide and 100 high.
type chart struct {
	Name, Mean, Most string
	Line, Area       string // paths
	Width            int
	None             bool
}

type advice struct{ Text, Change string }

const (
	maxCharted = 16
	points     = 90
)

func (c *Console) pastPart(v *visit) (answer, error) {
	id := v.PathValue("id")
	if !tool.ValidTarget(id) {
		return answer{}, spec.Refuse(spec.CodeInvalidJobID, "")
	}
	out := answer{page: "job-past", bare: true}
	report, err := callAPI[*apiv1.JobReportReply](
		v,
		tool.MethodAcctJobReport,
		&apiv1.JobReportQuery{Job: id},
	)
	if err != nil {
		refused := tool.ExplainError(err)
		out.data = pastData{Missing: render.Clean(cmp.Or(refused.Detail, refused.Text))}
		return out, nil
	}
	if report.GetRun() == nil {
		out.data = pastData{Missing: "it knows no such job"}
		return out, nil
	}
	data := pastData{}
	data.describe(report)
	if report.GetRun().GetStart() != 0 && render.GPUsOf(report.GetRun().GetAllocTres()) > 0 {
		if history, err := callAPI[*apiv1.GpuHistoryReply](v, tool.MethodAcctGPUHistory, &apiv1.GpuHistoryQuery{Job: id, Points: points}); err == nil {
			data.chartGPUs(history)
		}
	}
	data.chartNodes(report)
	out.data = data
	return out, nil
}

// describe is what the report of a job says in words.
func (d *pastData) describe(report *apiv1.JobReportReply) {
	run := report.GetRun()
	add := func(list *[]fact, name, value string) {
		if value != "" {
			*list = append(*list, fact{Name: name, Value: render.Clean(value)})
		}
	}
	add(&d.Run, "name", run.GetName())
	add(&d.Run, "user", run.GetUser())
	add(&d.Run, "account", run.GetAccount())
	add(&d.Run, "state", strings.ToLower(run.GetState()))
	if run.GetEnd() != 0 {
		add(&d.Run, "exit", fmt.Sprintf("%d:%d", run.GetExitCode(), run.GetExitSignal()))
	}
	add(&d.Run, "partition", run.GetPartition())
	add(&d.Run, "nodes", run.GetNodeList())
	add(&d.Run, "held", spaceList(render.TRESText(run.GetAllocTres())))
	d.Times = []stage{
		{Name: "submitted", At: newMoment(run.GetSubmit())},
		{Name: "started", At: newMoment(run.GetStart())},
		{Name: "ended", At: newMoment(run.GetEnd())},
	}
	add(&d.Run, "submitted with", run.GetSubmitLine())
	longest := int64(1)
	for _, p := range report.GetPeriods() {
		longest = max(longest, cmp.Or(p.GetTo(), report.GetNow())-p.GetFrom())
	}
	for _, p := range report.GetPeriods() {
		took := cmp.Or(p.GetTo(), report.GetNow()) - p.GetFrom()
		if took < tool.Second {
			continue
		}
		d.Waited = append(
			d.Waited,
			period{
				Reason: render.Clean(cmp.Or(p.GetReason().GetCode(), "None")),
				Detail: render.Clean(p.GetReason().GetDetail()),
				Span:   render.Span(took),
				At:     newMoment(p.GetFrom()),
				Bar:    max(inThousandths(took, longest), 5),
			},
		)
	}
	d.describeUse(report)
	for _, a := range report.GetAdvice() {
		d.Advice = append(d.Advice, advice{render.Clean(a.GetText()), render.Clean(a.GetChange())})
	}
}

// describeUse sums up what the job used of what it held.
func (d *pastData) describeUse(report *apiv1.JobReportReply) {
	var held, used, memHeld, peak, gpuHeld, gpuUsed, gpuNone int64
	for _, node := range report.GetNodes() {
		if !node.GetMeasured() {
			continue
		}
		held += node.GetCpus() * node.GetHeld()
		used += node.GetCpuTime()
		memHeld += node.GetMemMib() << 20
		peak += node.GetPeakRss()
		for _, gpu := range node.GetGpus() {
			if gpu.GetMeasured() {
				gpuHeld += gpu.GetHeld()
				gpuUsed += gpu.GetUtil()
				gpuNone += gpu.GetNoProcess() + gpu.GetIdle()
			}
		}
	}
	add := func(name, value string) { d.Use = append(d.Use, fact{Name: name, Value: value}) }
	percent := func(part, whole int64) string {
		return strconv.FormatFloat(100*float64(part)/float64(whole), 'f', 1, 64) + " %"
	}
	if held > 0 {
		add("CPU time used of CPU time held", percent(used, held))
	}
	if memHeld > 0 && peak > 0 {
		add("most memory used", render.GiB(peak)+" of "+render.GiB(memHeld))
	}
	if gpuHeld > 0 {
		add("GPU utilisation", percent(gpuUsed, gpuHeld))
		if gpuNone > 0 {
			add("GPU time held without work", render.Span(gpuNone)+" ("+percent(gpuNone, gpuHeld)+
				")")
		}
	}
	if report.Cost != nil {
		add(
			"cost",
			strings.TrimSpace(
				fmt.Sprintf("%.2f %s", report.GetCost(), render.Clean(report.GetCurrency())),
			),
		)
	}
	if report.EnergyJoules != nil {
		add("energy", fmt.Sprintf("%.3f kWh", report.GetEnergyJoules()/3.6e6))
	}
	if report.CarbonGrams != nil {
		add("carbon", fmt.Sprintf("%.3f kg CO2e", report.GetCarbonGrams()/1000))
	}
}

// chartGPUs draws what the GPUs did.
func (d *pastData) chartGPUs(history *apiv1.GpuHistoryReply) {
	list := history.GetGpus()
	d.MoreGPU = max(len(list)-maxCharted, 0)
	steps := uint32(1)
	for _, g := range list {
		for _, p := range g.GetPoints() {
			steps = max(steps, p.GetAt()+1)
		}
	}
	d.From, d.To = newMoment(
		history.GetFrom(),
	), newMoment(
		history.GetFrom()+int64(steps)*history.GetStep(),
	)
	for _, gpu := range list[:min(len(list), maxCharted)] {
		line := func(name, unit string, most float64, get func(p *apiv1.GpuPoint) *float64) chart {
			values := make([]*float64, steps)
			for _, p := range gpu.GetPoints() {
				values[p.GetAt()] = get(p)
			}
			return draw(name, unit, most, values)
		}
		d.GPUs = append(d.GPUs, gpuUse{Name: render.Clean(gpu.GetNode()) + " GPU " +
			formatNumber(gpu.GetIndex()), UUID: render.Clean(gpu.GetUuid()), Charts: []chart{
			line("utilisation", "%", 100, func(p *apiv1.GpuPoint) *float64 { return p.Util }),
			line(
				"SM active",
				"%",
				100,
				func(p *apiv1.GpuPoint) *float64 { return times(p.Sm, 100) },
			),
			line(
				"tensor active",
				"%",
				100,
				func(p *apiv1.GpuPoint) *float64 { return times(p.Tensor, 100) },
			),
			line(
				"memory",
				"GiB",
				0,
				func(p *apiv1.GpuPoint) *float64 { return times(p.MemoryMib, 1.0/1024) },
			),
			line("power", "W", 0, func(p *apiv1.GpuPoint) *float64 { return p.Power }),
		}})
	}
}

// times is a measured value in another unit.
func times(v *float64, by float64) *float64 {
	if v == nil {
		return nil
	}
	out := *v * by
	return &out
}

// chartNodes draws what the job used of CPUs and memory.
func (d *pastData) chartNodes(report *apiv1.JobReportReply) {
	held := map[string]*apiv1.JobReportNode{}
	for _, n := range report.GetNodes() {
		held[n.GetNode()] = n
	}
	for _, usage := range report.GetUsage()[:min(len(report.GetUsage()), maxCharted)] {
		steps := uint32(1)
		for _, p := range usage.GetPoints() {
			steps = max(steps, p.GetAt()+1)
		}
		cpus, resident := make([]*float64, steps), make([]*float64, steps)
		for _, p := range usage.GetPoints() {
			gib := float64(p.GetRss()) / (1 << 30)
			cpus[p.GetAt()] = p.Cpus
			resident[p.GetAt()] = &gib
		}
		n := held[usage.GetNode()]
		d.Nodes = append(d.Nodes, nodeUse{Name: render.Clean(usage.GetNode()), Charts: []chart{
			draw("CPUs in use of "+formatNumber(n.GetCpus()), "", float64(n.GetCpus()), cpus),
			draw(
				"memory of "+formatMemory(n.GetMemMib()),
				"GiB",
				float64(n.GetMemMib())/1024,
				resident,
			)}})
	}
}

// draw makes a chart of values, of which nil was not measured. full is the value
// at its top; 0 takes the largest.
func draw(name, unit string, full float64, values []*float64) chart {
	c := chart{Name: name, Width: max(len(values)-1, 1)}
	sum := 0.0
	most := 0.0
	n := 0
	for _, v := range values {
		if v != nil {
			sum += *v
			most = math.Max(most, *v)
			n++
		}
	}
	if n == 0 {
		c.None = true
		return c
	}
	if full <= 0 {
		full = most
	}
	c.Mean, c.Most = amount(sum/float64(n), unit), amount(most, unit)
	var path, area strings.Builder
	drawing, last := false, 0
	for i, v := range values {
		if v == nil {
			if drawing {
				fmt.Fprintf(&area, "L%d 100Z", last)
			}
			drawing = false
			continue
		}
		y := 100.0
		if full > 0 {
			y = 100 - 98*math.Min(*v/full, 1)
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
	c.Line, c.Area = path.String(), area.String()
	return c
}

// amount is a figure with its unit, in as many digits as say something.
func amount(v float64, unit string) string {
	digits := 0
	if v < 10 {
		digits = 1
	}
	text := strconv.FormatFloat(v, 'f', digits, 64)
	if unit == "" {
		return text
	}
	return text + " " + unit
}
