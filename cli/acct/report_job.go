package acct

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

// reportJob is the report about one run.
func (r *reporting) reportJob(id string) error {
	var reply apiv1.JobReportReply
	query := &apiv1.JobReportQuery{Job: id, Cluster: r.PastCluster()}
	if err := fetch.UpToDate(r.Call, tool.MethodAcctJobReport, query, &reply, func(seq uint64) {
		query.MinSeq = seq
	}); err != nil {
		return err
	}
	fetch.WarnBehind(r.Call, reply.GetBehind())
	if reply.GetRun() == nil {
		return r.Errorf("there is no job %s", id)
	}
	r.jobPage(id, &reply)
	if r.Opts.On("html") || r.Opts.Text("mail") != "" {
		r.drawJob(id, &reply)
	}
	r.tree = append(jobReportTree(&reply), r.tree...)
	return nil
}

func share(num, den float64) *float64 {
	if den <= 0 {
		return nil
	}
	v := num / den
	return &v
}

func (r *reporting) jobPage(id string, reply *apiv1.JobReportReply) {
	run, clock := reply.GetRun(), render.NewClock(r.Call.Env)
	running := run.GetEnd() == 0
	r.page.title = fmt.Sprintf(
		"Job %s %s of %s in %s: %s",
		id,
		run.GetName(),
		run.GetUser(),
		run.GetAccount(),
		run.GetState(),
	)
	head := part{}
	add := func(label, value string) { head.pairs = append(head.pairs, [2]string{label, value}) }
	add("Submitted", clock.Time(run.GetSubmit()))
	switch {
	case run.GetStart() != 0:
		add("Waited", format.Duration((run.GetStart()-run.GetSubmit())/tool.Second))
		add(
			"Ran",
			fmt.Sprintf(
				"%s of %s on %s (partition %s)",
				format.Duration(run.GetElapsed()/tool.Second),
				render.Limit(
					run.GetTimeLimit(),
					format.Duration,
				),
				run.GetNodeList(),
				run.GetPartition(),
			),
		)
		add("Held", render.TRESText(run.GetAllocTres()))
		if !running {
			add("Exit", fmt.Sprintf("%d:%d", run.GetExitCode(), run.GetExitSignal()))
		}
	case running:
		add(
			"Waits",
			fmt.Sprintf(
				"%s so far: %s (muster why %s)",
				format.Duration((reply.GetNow()-run.GetSubmit())/tool.Second),
				run.GetReason(),
				id,
			),
		)
	default:
		add("Waited", format.Duration((run.GetEnd()-run.GetSubmit())/tool.Second)+
			", and never started")
	}
	if reply.Cost != nil {
		add("Cost", strings.TrimSpace(fmt.Sprintf("%.2f %s", reply.GetCost(), reply.GetCurrency())))
	}
	if reply.EnergyJoules != nil {
		text := fmt.Sprintf("%.3f kWh", reply.GetEnergyJoules()/3.6e6)
		if reply.CarbonGrams != nil {
			text += fmt.Sprintf(", %.3f kg CO2e", reply.GetCarbonGrams()/1000)
		}
		add("Energy", text)
	}
	r.page.parts = append(r.page.parts, head)
	waits := part{heading: "Why it waited"}
	for _, period := range reply.GetPeriods() {
		to := period.GetTo()
		if to == 0 {
			to = reply.GetNow()
		}
		if to-period.GetFrom() < tool.Second {
			continue
		}
		waits.pairs = append(
			waits.pairs,
			[2]string{format.Duration((to - period.GetFrom()) / tool.Second), "from " +
				clock.Time(period.GetFrom()) + ": " + reasonWords(period.GetReason())},
		)
	}
	r.page.parts = append(r.page.parts, waits)
	r.useParts(reply, running)
	if run.GetHasUsage() {
		r.page.parts = append(r.page.parts, movedPart(run.GetUsage()))
	}
	r.overTime(reply)
	r.addAdvice(reply.GetAdvice(), false)
	r.brief = briefPage(&r.page, reply, running)
}

// briefPage is what a mail says of a run: nothing in it can begin a line that a user chose.
func briefPage(full *page, reply *apiv1.JobReportReply, running bool) *page {
	out := &page{title: render.Clean(full.title)}
	use := part{}
	for _, pair := range full.parts[0].pairs {
		if pair[0] == "Ran" || pair[0] == "Waits" || pair[0] == "Exit" {
			use.pairs = append(use.pairs, [2]string{pair[0], render.Clean(pair[1])})
		}
	}
	if nodes := reply.GetNodes(); len(nodes) > 0 {
		for _, bar := range useBars(nodes, running) {
			value := "not measured"
			if bar.Share != nil {
				value = fmt.Sprintf("%.1f %%", 100**bar.Share)
			}
			if bar.Text != "" {
				value += ", " + bar.Text
			}
			use.pairs = append(use.pairs, [2]string{bar.Label, value})
		}
	}
	if list := reply.GetAdvice(); len(list) > 0 {
		use.pairs = append(use.pairs, [2]string{"Advice", render.Clean(adviceLine(list[0]))})
	}
	out.parts = []part{use}
	return out
}

// adviceLine is a piece of advice with the option that follows it.
func adviceLine(advice *apiv1.UsageAdvice) string {
	if advice.GetChange() == "" {
		return advice.GetText()
	}
	return advice.GetChange() + ": " + advice.GetText()
}

// reasonWords is a reason with its numbers.
func reasonWords(reason *apiv1.Reason) string {
	text := cmp.Or(reason.GetCode(), "None")
	if reason.GetTres() != "" {
		text += " " + reason.GetTres()
	}
	if reason.GetAsked() != 0 || reason.GetLimit() != 0 {
		text += fmt.Sprintf(
			" (asked %d, used %d, limit %d)",
			reason.GetAsked(),
			reason.GetUsed(),
			reason.GetLimit(),
		)
	}
	if reason.GetDetail() != "" {
		text += ": " + reason.GetDetail()
	}
	return text
}

// useParts shows the use in all, and node by node where there are several.
func (r *reporting) useParts(reply *apiv1.JobReportReply, running bool) {
	nodes := reply.GetNodes()
	if len(nodes) == 0 {
		return
	}
	all := part{heading: "Use", bars: useBars(nodes, running)}
	if running {
		all.list = append(all.list, "It runs: what it used is known when it ends.")
	}
	for _, node := range nodes {
		if node.GetLost() {
			all.list = append(all.list, "Node "+node.GetNode()+
				" was lost: what was used there is not known.")
		}
	}
	r.page.parts = append(r.page.parts, all)
	for _, node := range nodes {
		p := part{heading: "Node " + node.GetNode(), indent: true}
		if len(nodes) > 1 {
			p.bars = useBars([]*apiv1.JobReportNode{node}, running)[:2]
		}
		for _, gpu := range node.GetGpus() {
			bar := render.Bar{
				Label: fmt.Sprintf("GPU %d", gpu.GetIndex()),
				Text: strings.TrimSpace(gpu.GetType() +
					" " + gpu.GetUuid()),
			}
			if gpu.GetMeasured() {
				held := render.HeldPart(gpu)
				bar.Share = share(float64(gpu.GetUtil()), held)
				if gpu.Sm != nil && held > 0 {
					bar.Text += fmt.Sprintf(", SM active %.1f %%", 100*float64(gpu.GetSm())/held)
				}
				if m := render.MethodText(gpu); m != "" {
					bar.Text += ", " + m
				}
				if !render.InParts(gpu) {
					bar.Text += ", memory at most " + render.PeakText(gpu)
				}
				if idle := gpu.GetNoProcess() + gpu.GetIdle(); idle > 0 {
					bar.Text += ", held idle " + format.Duration(idle/tool.Second)
				}
			}
			p.bars = append(p.bars, bar)
		}
		r.page.parts = append(r.page.parts, p)
	}
}

// overTime shows what was sampled of CPU and memory, node by node, in parts of
// what the run held there.
func (r *reporting) overTime(reply *apiv1.JobReportReply) {
	width := 0
	for _, history := range reply.GetUsage() {
		for _, point := range history.GetPoints() {
			width = max(width, int(point.GetAt())+1)
		}
	}
	if width == 0 {
		return
	}
	held := map[string]*apiv1.JobReportNode{}
	for _, node := range reply.GetNodes() {
		held[node.GetNode()] = node
	}
	steps := []rune(render.BlockLevels)
	r.page.steps, _ = render.BarLevels(r.Call)
	p := part{
		heading: fmt.Sprintf(
			"Over time, from %s, %s a column",
			render.NewClock(r.Call.Env).Time(reply.GetUsageFrom()),
			format.Duration(reply.GetUsageStep()/tool.Second),
		),
		head:  []string{"Node", "What", "", "Mean", "Most"},
		texts: 3,
		drawn: true,
		form:  textForm,
	}
	for _, usage := range reply.GetUsage() {
		cpus, rss := make([]*float64, width), make([]*float64, width)
		for _, point := range usage.GetPoints() {
			bytes := float64(point.GetRss())
			cpus[point.GetAt()], rss[point.GetAt()] = point.Cpus, &bytes
		}
		node := held[usage.GetNode()]
		if line, mean, most, ok := render.DrawLine(cpus, float64(node.GetCpus()), steps); ok {
			p.rows = append(
				p.rows,
				[]string{
					usage.GetNode(),
					"CPUs",
					"[" + string(line) + "]",
					fmt.Sprintf("%.1f", mean),
					fmt.Sprintf("%.1f", most),
				},
			)
		}
		if line, mean, most, ok := render.DrawLine(rss, float64(node.GetMemMib())*(1<<20), steps); ok {
			p.rows = append(
				p.rows,
				[]string{
					usage.GetNode(),
					"Memory",
					"[" + string(line) + "]",
					render.GiB(int64(mean)),
					render.GiB(int64(most)),
				},
			)
		}
	}
	if more := reply.GetUsageMore(); more > 0 {
		p.list = append(
			p.list,
			fmt.Sprintf(
				"%d more nodes are not shown: muster sql 'SELECT … FROM usage_samples' has them.",
				more,
			),
		)
	}
	r.page.parts = append(r.page.parts, p)
}

// useBars are CPU, memory and, if there are any, GPUs of some nodes together:
// sums before they are divided.
func useBars(nodes []*apiv1.JobReportNode, running bool) []render.Bar {
	var cpuUsed, cpuHeld, peak, mem, util, gpuHeld float64
	var cpus, gpus, measuredGPUs int64
	memKnown, memSeen := !running, 0
	for _, node := range nodes {
		cpus += node.GetCpus()
		gpus += int64(len(node.GetGpus()))
		if node.GetMeasured() {
			cpuUsed += float64(node.GetCpuTime())
			cpuHeld += float64(node.GetCpus()) * float64(node.GetHeld())
		}
		if node.PeakRss != nil {
			peak += float64(node.GetPeakRss())
			mem += float64(node.GetMemMib()) * (1 << 20)
			memSeen++
		} else {
			memKnown = false
		}
		for _, gpu := range node.GetGpus() {
			if gpu.GetMeasured() {
				measuredGPUs++
				util += float64(gpu.GetUtil())
				gpuHeld += render.HeldPart(gpu)
			}
		}
	}
	cpu := render.Bar{
		Label: "CPU",
		Share: share(cpuUsed, cpuHeld),
		Text:  fmt.Sprintf("of %d CPUs", cpus),
	}
	if cpu.Share != nil {
		cpu.Text = fmt.Sprintf("%.1f of %d CPUs", *cpu.Share*float64(cpus), cpus)
	}
	memory := render.Bar{Label: "Memory"}
	switch {
	case peak > 0 || memKnown:
		memory.Share, memory.Text = share(
			peak,
			mem,
		), fmt.Sprintf(
			"peak %s of %s",
			render.GiB(int64(peak)),
			render.GiB(int64(mem)),
		)
		if mem == 0 {
			memory.Text = "peak " + render.GiB(int64(peak)) + "; no memory was allocated"
		}
		if memSeen < len(nodes) {
			memory.Text += fmt.Sprintf(", on %d of %d nodes", memSeen, len(nodes))
		}
	}
	bars := []render.Bar{cpu, memory}
	if gpus > 0 {
		bar := render.Bar{
			Label: "GPU",
			Share: share(util, gpuHeld),
			Text:  fmt.Sprintf("utilisation of %d GPUs", gpus),
		}
		if measuredGPUs > 0 && measuredGPUs < gpus {
			bar.Text = fmt.Sprintf(
				"utilisation of %d GPUs, %d of them measured", gpus, measuredGPUs,
			)
		}
		bars = append(bars, bar)
	}
	return bars
}

// addAdvice adds what to change.
func (r *reporting) addAdvice(list []*apiv1.UsageAdvice, names bool) {
	p := part{heading: "Advice"}
	out := tree.List{}
	for _, advice := range list {
		text := adviceLine(advice)
		if names {
			text = advice.GetJobName() + ": " + text
		}
		p.list = append(p.list, text)
		out = append(
			out,
			tree.Object{
				{Key: "kind", Value: advice.GetKind()},
				{Key: "job_name", Value: advice.GetJobName()},
				{Key: "change", Value: advice.GetChange()},
				{Key: "text", Value: advice.GetText()},
				{
					Key:   "runs",
					Value: int64(advice.GetRuns()),
				},
				{Key: "gain_seconds", Value: advice.GetGain() / tool.Second},
				{Key: "peers", Value: int64(advice.GetPeers())},
			},
		)
	}
	r.page.parts = append(r.page.parts, p)
	r.tree = append(r.tree, tree.Member{Key: "advice", Value: out})
}

// told gives a value, or null where it is what stands for nothing.
func told[T comparable](v T) any {
	var none T
	if v == none {
		return nil
	}
	return v
}

// knownOrNull gives a value, or null.
func knownOrNull[T any](p *T) any {
	if p == nil {
		return nil
	}
	return *p
}

// jobReportTree is the report as data: seconds, bytes, null where nothing was
// measured.
func jobReportTree(reply *apiv1.JobReportReply) tree.Object {
	run := reply.GetRun()
	sec := func(ns int64) float64 { return float64(ns) / 1e9 }
	nodes, waits := tree.List{}, tree.List{}
	for _, node := range reply.GetNodes() {
		gpus := tree.List{}
		for _, gpu := range node.GetGpus() {
			object := tree.Object{{Key: "uuid", Value: gpu.GetUuid()}, {Key: "index", Value: int64(gpu.GetIndex())}, {Key: "type", Value: gpu.GetType()}, {Key: "held_seconds", Value: sec(gpu.GetHeld())}}
			for _, member := range [...]tree.Member{{Key: "utilisation_seconds", Value: sec(gpu.GetUtil())}, {Key: "no_process_seconds", Value: sec(gpu.GetNoProcess())},
				{Key: "idle_seconds", Value: sec(gpu.GetIdle())}, {Key: "peak_memory_bytes", Value: gpu.GetPeakMem()},
				{Key: "method", Value: told(gpu.GetMethod())}, {Key: "share_ratio", Value: told(float64(gpu.GetShare()) / render.WholeDevice)}} {
				if !gpu.GetMeasured() || member.Key == "peak_memory_bytes" && render.InParts(gpu) {
					member.Value = nil
				}
				object = append(object, member)
			}
			var sm any
			if gpu.Sm != nil && gpu.GetMeasured() {
				sm = sec(gpu.GetSm())
			}
			gpus = append(gpus, append(object, tree.Member{Key: "sm_active_seconds", Value: sm}, tree.Member{Key: "energy_millijoules", Value: knownOrNull(gpu.EnergyMj)}))
		}
		var cpu any
		if node.GetMeasured() {
			cpu = sec(node.GetCpuTime())
		}
		nodes = append(nodes, tree.Object{{Key: "node", Value: node.GetNode()}, {Key: "cpus", Value: node.GetCpus()}, {Key: "memory_bytes", Value: node.GetMemMib() << 20},
			{Key: "held_seconds", Value: sec(node.GetHeld())}, {Key: "lost", Value: node.GetLost()}, {Key: "cpu_seconds", Value: cpu}, {Key: "peak_memory_bytes", Value: knownOrNull(node.PeakRss)}, {Key: "gpus", Value: gpus}})
	}
	usage := tree.List{}
	for _, history := range reply.GetUsage() {
		points := tree.List{}
		for _, point := range history.GetPoints() {
			points = append(
				points,
				tree.Object{{Key: "at", Value: (reply.GetUsageFrom() +
					int64(
						point.GetAt(),
					)*reply.GetUsageStep()) / tool.Second}, {
					Key: "cpus", Value: knownOrNull(point.Cpus),
				}, {Key: "memory_bytes", Value: point.GetRss()}},
			)
		}
		usage = append(
			usage,
			tree.Object{
				{Key: "node", Value: history.GetNode()},
				{Key: "samples", Value: int64(history.GetSamples())},
				{Key: "points", Value: points},
			},
		)
	}
	for _, period := range reply.GetPeriods() {
		waits = append(
			waits,
			tree.Object{
				{Key: "reason", Value: render.ReasonTree(period.GetReason())},
				{Key: "from", Value: period.GetFrom() / tool.Second},
				{Key: "to", Value: period.GetTo() / tool.Second},
			},
		)
	}
	var counters any
	if run.GetHasUsage() {
		counters = countersTree(run.GetUsage())
	}
	return tree.Object{{Key: "cluster", Value: reply.GetCluster()},
		{Key: "job_id", Value: int64(run.GetJobId())}, {Key: "name", Value: run.GetName()},
		{Key: "user", Value: run.GetUser()},
		{Key: "account", Value: run.GetAccount()}, {Key: "partition", Value: run.GetPartition()}, {Key: "state", Value: run.GetState()}, {Key: "submit", Value: run.GetSubmit() / tool.Second},
		{Key: "start", Value: run.GetStart() / tool.Second}, {Key: "end", Value: run.GetEnd() / tool.Second}, {Key: "elapsed_seconds", Value: sec(run.GetElapsed())},
		{Key: "held", Value: render.TRESText(run.GetAllocTres())},
		{Key: "cost", Value: knownOrNull(reply.Cost)},
		{Key: "currency", Value: reply.GetCurrency()},
		{Key: "energy_joules", Value: knownOrNull(reply.EnergyJoules)},
		{Key: "carbon_grams", Value: knownOrNull(reply.CarbonGrams)}, {Key: "nodes", Value: nodes},
		{Key: "counters", Value: counters},
		{Key: "over_time_step_seconds", Value: reply.GetUsageStep() / tool.Second},
		{Key: "over_time", Value: usage}, {Key: "waits", Value: waits}}
}
