package top

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/charmbracelet/x/ansi"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
)

// column is a column of a list.
type column struct {
	head  string
	width int
	right bool
}

// cellText is what stands in a cell, and its colour.
type cellText struct {
	text, style string
}

// drawList writes the heads and the rows of the page.
func (m *model) drawList() []string {
	switch m.page {
	case nodesPage:
		return m.nodeList()
	case gpusPage:
		return m.gpuList()
	case queuePage:
	}
	return m.jobList()
}

// table writes the rows that are on the screen.
func (m *model) table(columns []column, count int, row func(i int) []cellText) []string {
	var head []string
	for _, c := range columns {
		head = append(head, fitColumn(c.head, c.width, c.right))
	}
	lines := []string{m.paintText(reversed, fitColumn(strings.Join(head, " "), m.width, false))}
	first := m.first[m.page]
	for i := first; i < min(first+m.visibleRows(), count); i++ {
		var parts []string
		for k, cell := range row(i) {
			text := fitColumn(cell.text, columns[k].width, columns[k].right)
			if i != m.cursor[m.page] {
				text = m.paintText(cell.style, text)
			}
			parts = append(parts, text)
		}
		line := strings.Join(parts, " ")
		switch {
		case i != m.cursor[m.page]:
		case m.colour:
			line = m.paintText(reversed, fitColumn(line, m.width, false))
		default:
			line = ">" + line[min(1, len(line)):]
		}
		lines = append(lines, strings.TrimRight(ansi.Truncate(line, m.width, "…"), " "))
	}
	if count == 0 {
		lines = append(lines, m.paintText(dim, "  nothing fits"))
	}
	return lines
}

// rest is the width that is left for the last column.
func (m *model) rest(columns []column) int {
	used := 0
	for _, c := range columns {
		used += c.width + 1
	}
	return max(m.width-used, 8)
}

// wide tells a screen with room for more columns.
func (m *model) wide() bool { return m.width >= 130 }

func (m *model) jobList() []string {
	columns := []column{
		{" JOB", 13, false},
		{"NAME", 16, false},
		{"USER", 9, false},
		{"ST", 2, false},
		{"TIME", 6, true},
		{"GPU", 4, true},
	}
	if m.wide() {
		columns = []column{
			{" JOB", 16, false},
			{"NAME", 26, false},
			{"USER", 12, false},
			{"ST", 2, false},
			{"TIME", 7, true},
			{"GPU", 4, true},
			{
				"CPU",
				5,
				true,
			},
			{"LIMIT", 7, true},
			{"PRIO", 7, true},
			{"ACCOUNT", 12, false},
			{"PARTITION", 12, false},
		}
	}
	columns = append(columns, column{"WHY OR WHERE", m.rest(columns), false})
	jobs, text := m.shownJobs(), m.text()
	return m.table(columns, len(jobs), func(i int) []cellText {
		job := jobs[i]
		_, state := render.StateNames(job)
		word, more, _ := render.WhyLine(job, text)
		gpus := ""
		if n := render.GPUs(job); n > 0 {
			gpus = strconv.FormatInt(n, 10)
		}
		row := []cellText{
			{" " + text.ID(render.JobRow{JobInfo: job, Task: -1}), plain},
			{render.CleanLine(job.GetSpec().GetName()), plain},
			{render.CleanLine(job.GetUser()), plain},
			{state, stateStyle(job)},
			{render.ShortSpan(render.Spent(job, text.Now)), plain},
			{gpus, plain},
		}
		if m.wide() {
			limit := "none"
			if job.GetTimeLimit() >= 0 {
				limit = render.ShortSpan(job.GetTimeLimit())
			}
			row = append(
				row,
				cellText{strconv.FormatUint(uint64(job.GetNumCpus()), 10), plain},
				cellText{limit, plain},
				cellText{strconv.FormatUint(uint64(job.GetPriority()), 10), plain},
				cellText{
					render.CleanLine(job.GetSpec().GetAccount()),
					plain,
				},
				cellText{render.CleanLine(job.GetPartition()), plain},
			)
		}
		return append(row, cellText{render.CleanLine(strings.TrimSpace(word + " " + more)), dim})
	})
}

func stateStyle(job *apiv1.JobInfo) string {
	switch state := spec.JobState(job.GetState()); {
	case job.GetCompleting():
		return cyan
	case state == spec.Pending:
		return yellow
	case state == spec.Running, state == spec.Completed:
		return green
	case state == spec.Suspended, state == spec.Cancelled:
		return plain
	}
	return red
}

func (m *model) nodeList() []string {
	columns := []column{{" NODE", 14, false}, {"STATE", 11, false}, {"GPUS", 18, false}, {"CPUS", 20, false}}
	if m.wide() {
		columns = append(columns, column{"MEMORY", 18, true}, column{"LOAD", 7, true}, column{"JOBS", 5, true}, column{"PARTITIONS", 14, false})
	}
	columns = append(columns, column{"REASON", m.rest(columns), false})
	nodes := m.shownNodes()
	return m.table(columns, len(nodes), func(i int) []cellText {
		node := nodes[i]
		state := render.StateOf(node)
		long, _ := state.Words()
		style := plain
		switch {
		case state.Out() || state.Has("NOT_RESPONDING"):
			style = red
		case long == "idle":
			style = green
		}
		gpus := ""
		if all := len(node.GetGpus()); all > 0 {
			gpus = drawMeter(heldGPUs(node), all, 8) + fmt.Sprintf(" %d/%d", heldGPUs(node), all)
		}
		row := []cellText{{" " + render.CleanLine(node.GetName()), plain}, {long + state.Suffix(), style}, {gpus, plain},
			{drawMeter(int(node.GetCpusAlloc()), int(node.GetCpus()), 8) + fmt.Sprintf(" %d/%d", node.GetCpusAlloc(), node.GetCpus()), plain}}
		if m.wide() {
			load := "-"
			if node.GetLoadMilli() >= 0 {
				load = render.Milli(node.GetLoadMilli())
			}
			view := m.text()
			row = append(row, cellText{view.Memory(node.GetMemAlloc()) + "/" +
				view.Memory(node.GetMem()), plain}, cellText{load, plain},
				cellText{strconv.FormatUint(uint64(node.GetJobsRunning()), 10), plain}, cellText{render.CleanLine(strings.Join(node.GetPartitions(), ",")), plain})
		}
		return append(row, cellText{render.CleanLine(node.GetReason()), dim})
	})
}

func (m *model) gpuList() []string {
	columns := []column{
		{" NODE", 14, false},
		{"GPU", 3, true},
		{"STATE", 8, false},
		{"JOB", 12, false},
		{"USER", 10, false},
	}
	if m.wide() {
		columns = append(columns, column{"MODEL", 22, false}, column{"UUID", 41, false})
	}
	columns = append(columns, column{"NAME, OR WHAT IS WRONG", m.rest(columns), false})
	rows, text := m.shownGPUs(), m.text()
	return m.table(columns, len(rows), func(i int) []cellText {
		gpu := rows[i].gpu
		state, style := "free", green
		id := ""
		user := ""
		name := ""
		if gpu.GetAllocated() {
			state, style = "in use", plain
			if job := m.findJob(gpu.GetJobId()); job != nil {
				id = text.ID(render.JobRow{JobInfo: job, Task: -1})
				user = job.GetUser()
				name = job.GetSpec().GetName()
			} else if gpu.GetJobId() != 0 {
				id = strconv.FormatUint(uint64(gpu.GetJobId()), 10)
			}
		} else if render.TroubleOf(rows[i].node, gpu, text.Now).Lost() {
			state, style = "lost", red
		} else if render.StateOf(rows[i].node).Out() {
			state, style = "out", dim
		}
		if fault := m.gpuTrouble(rows[i].node, gpu); fault != "" {
			name, style = strings.TrimSpace(fault+" "+name), red
		}
		row := []cellText{
			{" " + render.CleanLine(rows[i].node.GetName()), plain},
			{cmp.Or(render.GPUNumber(gpu), "?"), plain},
			{state, style},
			{id, plain},
			{render.CleanLine(user), plain},
		}
		if m.wide() {
			row = append(
				row,
				cellText{render.CleanLine(gpu.GetModel()), plain},
				cellText{render.CleanLine(gpu.GetUuid()), dim},
			)
		}
		return append(row, cellText{render.CleanLine(name), plain})
	})
}

// gpuTrouble is what is known to be wrong with a GPU now.
func (m *model) gpuTrouble(node *apiv1.NodeInfo, gpu *apiv1.GpuInfo) string {
	trouble := render.TroubleOf(node, gpu, m.text().Now)
	switch {
	case trouble.Fault != nil:
		return render.FaultText(trouble.Fault)
	case trouble.Idle != nil:
		return render.FaultText(trouble.Idle)
	}
	return ""
}

// whyText is the explanation of a job, as muster why prints it.
func (m *model) whyText(id string, reply *apiv1.WhyReply) *detail {
	view := &render.WhyView{JobView: *m.text(), Asked: id}
	view.Now = reply.GetNow()
	head, _, _ := strings.Cut(view.Text(reply), "\n")
	lines := append([]string{""}, m.wrapped("", head)...)
	if spec.JobState(reply.GetJob().GetState()) == spec.Pending {
		lines = append(lines, "")
		for _, part := range view.Parts(reply) {
			title := part.Title
			for _, line := range part.Lines {
				lines = append(lines, m.wrapped(fitColumn(title, 12, false), line)...)
				title = ""
			}
		}
	}
	return &detail{job: id, why: true, lines: lines}
}

// wrapped writes a line beside its title; rows of a table stay whole.
func (m *model) wrapped(title, line string) []string {
	text := render.CleanLine(line)
	if strings.HasPrefix(line, "  ") {
		return []string{title + strings.TrimPrefix(text, "  ")}
	}
	var out []string
	for i, piece := range tool.Lines(text, max(m.width-len(title), 20)) {
		if i > 0 {
			title = strings.Repeat(" ", len(title))
		}
		out = append(out, title+piece)
	}
	return out
}

// jobText is one job with the figures of its GPUs over time.
func (m *model) jobText(
	id string,
	job *apiv1.JobInfo,
	now int64,
	history *apiv1.GpuHistoryReply,
) *detail {
	view := m.text()
	view.Now = now
	state, _ := render.StateNames(job)
	lines := []string{"", "  " +
		m.paintText(
			bold,
			render.CleanLine(
				"Job "+view.ID(render.JobRow{JobInfo: job, Task: -1})+" "+job.GetSpec().GetName(),
			),
		) +
		" of " + render.CleanLine(job.GetUser()) + "  " + m.paintText(stateStyle(job), state)}
	add := func(name, value string) {
		if value != "" {
			lines = append(lines, "  "+fitColumn(name, 12, false)+" "+render.CleanLine(value))
		}
	}
	lines = append(lines, "")
	add("submitted", view.Time(job.GetSubmit()))
	switch {
	case spec.JobState(job.GetState()) != spec.Pending:
		add("started", view.Time(job.GetStart())+", ran "+render.Span(render.Elapsed(job, now)))
	case job.GetPlannedStart() != 0:
		add("planned", view.Time(job.GetPlannedStart())+" on "+job.GetPlannedNodes())
	}
	if spec.JobState(job.GetState()).Terminal() {
		add(
			"ended",
			fmt.Sprintf(
				"%s, exit %d:%d",
				view.Time(job.GetEnd()),
				job.GetExitCode(),
				job.GetExitSignal(),
			),
		)
	} else if job.GetEnd() != 0 {
		add("ends by", view.Time(job.GetEnd())+", in "+render.Span(job.GetEnd()-now))
	}
	word, more, sentence := render.WhyLine(job, view)
	if spec.JobState(job.GetState()) == spec.Pending {
		add("waits", word+": "+sentence)
	} else if word != "" {
		add("reason", word+" "+more)
	}
	add("account", job.GetSpec().GetAccount()+", partition "+job.GetPartition()+", QOS "+
		render.QOSOf(job))
	add("asked for", render.TRESText(job.GetReqTres()))
	for _, node := range job.GetAllocation() {
		var gpus []string
		for _, gpu := range node.GetGpus() {
			gpus = append(gpus, strconv.FormatUint(uint64(gpu.GetIndex()), 10))
		}
		text := view.Memory(node.GetMem()) + " of memory"
		if len(gpus) > 0 {
			text += ", GPUs " + strings.Join(gpus, ",")
		}
		add(node.GetName(), text)
	}
	add("command", render.CommandLine(job))
	add("output", cmp.Or(job.GetStdout(), view.Stdout(job)))
	return &detail{job: id, lines: append(lines, m.charts(history)...)}
}

// charts draws the figures of each GPU as a line of blocks.
func (m *model) charts(history *apiv1.GpuHistoryReply) []string {
	var lines []string
	for _, gpu := range history.GetGpus() {
		steps := uint32(0)
		for _, point := range gpu.GetPoints() {
			steps = max(steps, point.GetAt()+1)
		}
		figure := func(name, unit string, full float64, get func(p *apiv1.GpuPoint) *float64) {
			values := make([]*float64, steps)
			for _, point := range gpu.GetPoints() {
				values[point.GetAt()] = get(point)
			}
			line, mean, most, ok := render.DrawLine(values, full, m.bars)
			if ok {
				lines = append(
					lines,
					fmt.Sprintf(
						"  %s %s  mean %.0f %s, most %.0f %s",
						fitColumn(name, 12, false),
						m.paintText(green, string(line)),
						mean,
						unit,
						most,
						unit,
					),
				)
			}
		}
		lines = append(lines, "", "  "+
			m.paintText(bold, render.CleanLine(gpu.GetNode())+" GPU "+
				strconv.FormatUint(uint64(gpu.GetIndex()), 10)))
		figure("utilisation", "%", 100, func(p *apiv1.GpuPoint) *float64 { return p.Util })
		figure("memory", "MiB", 0, func(p *apiv1.GpuPoint) *float64 { return p.MemoryMib })
		figure("power", "W", 0, func(p *apiv1.GpuPoint) *float64 { return p.Power })
	}
	return lines
}

// chartPoints is how many points fit beside the name and the figures.
func (m *model) chartPoints() uint32 { return uint32(max(min(m.width-52, 120), 20)) }
