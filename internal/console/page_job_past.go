package console

import (
	"cmp"
	"fmt"
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
	GPUs    []render.Charted
	MoreGPU int
	From    moment
	To      moment
	Nodes   []render.Charted
	Advice  []advice
}

// period is a stretch of time for which one reason kept a job waiting.
type period struct {
	Reason, Detail, Span string
	At                   moment
	Bar                  int
}

type advice struct{ Text, Change string }

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
		if history, err := callAPI[*apiv1.GpuHistoryReply](v, tool.MethodAcctGPUHistory, &apiv1.GpuHistoryQuery{Job: id, Points: render.ChartPoints}); err == nil {
			var from, to int64
			data.GPUs, from, to = render.ChartGPUs(history)
			data.From, data.To = newMoment(from), newMoment(to)
			data.MoreGPU = len(history.GetGpus()) - len(data.GPUs)
		}
	}
	data.Nodes = render.ChartNodes(report)
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
	for _, reasonPeriod := range report.GetPeriods() {
		longest = max(longest, cmp.Or(reasonPeriod.GetTo(), report.GetNow())-reasonPeriod.GetFrom())
	}
	for _, reasonPeriod := range report.GetPeriods() {
		took := cmp.Or(reasonPeriod.GetTo(), report.GetNow()) - reasonPeriod.GetFrom()
		if took < tool.Second {
			continue
		}
		d.Waited = append(
			d.Waited,
			period{
				Reason: render.Clean(cmp.Or(reasonPeriod.GetReason().GetCode(), "None")),
				Detail: render.Clean(reasonPeriod.GetReason().GetDetail()),
				Span:   render.Span(took),
				At:     newMoment(reasonPeriod.GetFrom()),
				Bar:    max(inThousandths(took, longest), 5),
			},
		)
	}
	d.describeUse(report)
	for _, usageAdvice := range report.GetAdvice() {
		d.Advice = append(
			d.Advice,
			advice{render.Clean(usageAdvice.GetText()), render.Clean(usageAdvice.GetChange())},
		)
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
