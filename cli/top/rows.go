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
		for k, c := range row(i) {
			text := fitColumn(c.text, columns[k].width, columns[k].right)
			if i != m.cursor[m.page] {
				text = m.paintText(c.style, text)
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
	columns := []column{{" JOB", 13, false}, {"NAME", 16, false}, {"USER", 9, false}, {"ST", 2, false}, {"TIME", 6, true}, {"GPU", 4, true}}
	if m.wide() {
		columns = []column{{" JOB", 16, false}, {"NAME", 26, false}, {"USER", 12, false}, {"ST", 2, false}, {"TIME", 7, true}, {"GPU", 4, true},
			{"CPU", 5, true}, {"LIMIT", 7, true}, {"PRIO", 7, true}, {"ACCOUNT", 12, false}, {"PARTITION", 12, false}}
	}
	columns = append(columns, column{"WHY OR WHERE", m.rest(columns), false})
	jobs, text := m.shownJobs(), m.text()
	return m.table(columns, len(jobs), func(i int) []cellText {
		j := jobs[i]
		_, state := render.StateNames(j)
		word, more, _ := render.WhyLine(j, text)
		gpus := ""
		if n := render.GPUs(j); n > 0 {
			gpus = strconv.FormatInt(n, 10)
		}
		row := []cellText{{" " + text.ID(render.JobRow{JobInfo: j, Task: -1}), plain}, {safeText(j.GetSpec().GetName()), plain}, {safeText(j.GetUser()), plain}, {state, stateStyle(j)},
			{render.ShortSpan(render.Spent(j, text.Now)), plain}, {gpus, plain}}
		if m.wide() {
			limit := "none"
			if j.GetTimeLimit() >= 0 {
				limit = render.ShortSpan(j.GetTimeLimit())
			}
			row = append(row, cellText{strconv.FormatUint(uint64(j.GetNumCpus()), 10), plain}, cellText{limit, plain}, cellText{strconv.FormatUint(uint64(j.GetPriority()), 10), plain},
				cellText{safeText(j.GetSpec().GetAccount()), plain}, cellText{safeText(j.GetPartition()), plain})
		}
		return append(row, cellText{safeText(strings.TrimSpace(word + " " + more)), dim})
	})
}

func stateStyle(j *apiv1.JobInfo) string {
	switch state := spec.JobState(j.GetState()); {
	case j.GetCompleting():
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
		n := nodes[i]
		state := render.StateOf(n)
		long, _ := state.Words()
		style := plain
		switch {
		case state.Out() || state.Has("NOT_RESPONDING"):
			style = red
		case long == "idle":
			style = green
		}
		gpus := ""
		if all := len(n.GetGpus()); all > 0 {
			gpus = drawMeter(heldGPUs(n), all, 8) + fmt.Sprintf(" %d/%d", heldGPUs(n), all)
		}
		row := []cellText{{" " + safeText(n.GetName()), plain}, {long + state.Suffix(), style}, {gpus, plain},
			{drawMeter(int(n.GetCpusAlloc()), int(n.GetCpus()), 8) + fmt.Sprintf(" %d/%d", n.GetCpusAlloc(), n.GetCpus()), plain}}
		if m.wide() {
			load := "-"
			if n.GetLoadMilli() >= 0 {
				load = render.Milli(n.GetLoadMilli())
			}
			v := m.text()
			row = append(row, cellText{v.Memory(n.GetMemAlloc()) + "/" + v.Memory(n.GetMem()), plain}, cellText{load, plain},
				cellText{strconv.FormatUint(uint64(n.GetJobsRunning()), 10), plain}, cellText{safeText(strings.Join(n.GetPartitions(), ",")), plain})
		}
		return append(row, cellText{safeText(n.GetReason()), dim})
	})
}

func (m *model) gpuList() []string {
	columns := []column{{" NODE", 14, false}, {"GPU", 3, true}, {"STATE", 8, false}, {"JOB", 12, false}, {"USER", 10, false}}
	if m.wide() {
		columns = append(columns, column{"MODEL", 22, false}, column{"UUID", 41, false})
	}
	columns = append(columns, column{"NAME, OR WHAT IS WRONG", m.rest(columns), false})
	rows, text := m.shownGPUs(), m.text()
	return m.table(columns, len(rows), func(i int) []cellText {
		g := rows[i].gpu
		state, style := "free", green
		id := ""
		user := ""
		name := ""
		if g.GetAllocated() {
			state, style = "in use", plain
			if j := m.findJob(g.GetJobId()); j != nil {
				id = text.ID(render.JobRow{JobInfo: j, Task: -1})
				user = j.GetUser()
				name = j.GetSpec().GetName()
			} else if g.GetJobId() != 0 {
				id = strconv.FormatUint(uint64(g.GetJobId()), 10)
			}
		} else if render.StateOf(rows[i].node).Out() {
			state, style = "out", dim
		}
		if fault := lastFault(rows[i].node, g.GetUuid()); fault != "" {
			name, style = strings.TrimSpace(fault+" "+name), red
		}
		row := []cellText{{" " + safeText(rows[i].node.GetName()), plain}, {strconv.FormatUint(uint64(g.GetIndex()), 10), plain}, {state, style}, {id, plain}, {safeText(user), plain}}
		if m.wide() {
			row = append(row, cellText{safeText(g.GetModel()), plain}, cellText{safeText(g.GetUuid()), dim})
		}
		return append(row, cellText{safeText(name), plain})
	})
}

// lastFault is the newest thing that is known to be wrong with a GPU.
func lastFault(n *apiv1.NodeInfo, uuid string) string {
	var last *apiv1.GpuFault
	for _, f := range n.GetGpuFaults() {
		if f.GetUuid() == uuid && (last == nil || f.GetAt() > last.GetAt()) {
			last = f
		}
	}
	if last == nil || spec.GPUFaultKind(last.GetKind()) == spec.GPUReturned || spec.GPUFaultKind(last.GetKind()) == spec.GPUMIGChanged {
		return ""
	}
	return render.FaultText(last)
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
	text := safeText(line)
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
func (m *model) jobText(id string, j *apiv1.JobInfo, now int64, history *apiv1.GpuHistoryReply) *detail {
	v := m.text()
	v.Now = now
	state, _ := render.StateNames(j)
	lines := []string{"", "  " + m.paintText(bold, safeText("Job "+v.ID(render.JobRow{JobInfo: j, Task: -1})+" "+j.GetSpec().GetName())) + " of " + safeText(j.GetUser()) + "  " + m.paintText(stateStyle(j), state)}
	add := func(name, value string) {
		if value != "" {
			lines = append(lines, "  "+fitColumn(name, 12, false)+" "+safeText(value))
		}
	}
	lines = append(lines, "")
	add("submitted", v.Time(j.GetSubmit()))
	switch {
	case spec.JobState(j.GetState()) != spec.Pending:
		add("started", v.Time(j.GetStart())+", ran "+render.Span(render.Elapsed(j, now)))
	case j.GetPlannedStart() != 0:
		add("planned", v.Time(j.GetPlannedStart())+" on "+j.GetPlannedNodes())
	}
	if spec.JobState(j.GetState()).Terminal() {
		add("ended", fmt.Sprintf("%s, exit %d:%d", v.Time(j.GetEnd()), j.GetExitCode(), j.GetExitSignal()))
	} else if j.GetEnd() != 0 {
		add("ends by", v.Time(j.GetEnd())+", in "+render.Span(j.GetEnd()-now))
	}
	word, more, sentence := render.WhyLine(j, v)
	if spec.JobState(j.GetState()) == spec.Pending {
		add("waits", word+": "+sentence)
	} else if word != "" {
		add("reason", word+" "+more)
	}
	add("account", j.GetSpec().GetAccount()+", partition "+j.GetPartition()+", QOS "+render.QOSOf(j))
	add("asked for", render.TRESText(j.GetReqTres()))
	for _, n := range j.GetAllocation() {
		var gpus []string
		for _, g := range n.GetGpus() {
			gpus = append(gpus, strconv.FormatUint(uint64(g.GetIndex()), 10))
		}
		text := v.Memory(n.GetMem()) + " of memory"
		if len(gpus) > 0 {
			text += ", GPUs " + strings.Join(gpus, ",")
		}
		add(n.GetName(), text)
	}
	add("command", render.CommandLine(j))
	add("output", cmp.Or(j.GetStdout(), v.Stdout(j)))
	return &detail{job: id, lines: append(lines, m.charts(history)...)}
}

// charts draws the figures of each GPU as a line of blocks.
func (m *model) charts(history *apiv1.GpuHistoryReply) []string {
	var lines []string
	for _, g := range history.GetGpus() {
		steps := uint32(0)
		for _, p := range g.GetPoints() {
			steps = max(steps, p.GetAt()+1)
		}
		figure := func(name, unit string, full float64, get func(p *apiv1.GpuPoint) *float64) {
			values := make([]*float64, steps)
			for _, p := range g.GetPoints() {
				values[p.GetAt()] = get(p)
			}
			line, mean, most, ok := render.DrawLine(values, full, m.bars)
			if ok {
				lines = append(lines, fmt.Sprintf("  %s %s  mean %.0f %s, most %.0f %s", fitColumn(name, 12, false), m.paintText(green, string(line)), mean, unit, most, unit))
			}
		}
		lines = append(lines, "", "  "+m.paintText(bold, safeText(g.GetNode())+" GPU "+strconv.FormatUint(uint64(g.GetIndex()), 10)))
		figure("utilisation", "%", 100, func(p *apiv1.GpuPoint) *float64 { return p.Util })
		figure("memory", "MiB", 0, func(p *apiv1.GpuPoint) *float64 { return p.MemoryMib })
		figure("power", "W", 0, func(p *apiv1.GpuPoint) *float64 { return p.Power })
	}
	return lines
}

// chartPoints is how many points fit beside the name and the figures.
func (m *model) chartPoints() uint32 { return uint32(max(min(m.width-52, 120), 20)) }
