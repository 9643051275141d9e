package top

import (
	"fmt"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/spec"
)

// The colours are those of the terminal, so that they can be read on whatever
// ground it has.
const (
	plain    = ""
	bold     = "1"
	dim      = "2"
	reversed = "7"
	red      = "31"
	green    = "32"
	yellow   = "33"
	cyan     = "36"
)

// paintText colours a text.
func (m *model) paintText(style, text string) string {
	if !m.colour || style == plain {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

// fitColumn makes a text exactly as wide as a column: cut, or filled with blanks.
func fitColumn(text string, width int, right bool) string {
	if width <= 0 {
		return ""
	}
	text = ansi.Truncate(text, width, "…")
	gap := strings.Repeat(" ", max(width-ansi.StringWidth(text), 0))
	if right {
		return gap + text
	}
	return text + gap
}

// drawScreen writes everything, in as many lines as the terminal has.
func (m *model) drawScreen() string {
	m.settleCursor()
	lines := []string{m.summary()}
	switch {
	case m.help:
		lines = append(lines, m.filled(helpLines(), 0)...)
	case m.detail != nil:
		lines = append(lines, m.filled(m.detail.lines, m.detail.first)...)
	default:
		lines = append(lines, m.tabs())
		lines = append(lines, m.drawList()...)
	}
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	return strings.Join(append(lines[:m.height-1], m.foot()), "\n")
}

// filled is a part of a text, a line for each row between the first and the last.
func (m *model) filled(text []string, first int) []string {
	rows := max(m.height-2, 1)
	out := make([]string, 0, rows)
	for i := first; i < len(text) && len(out) < rows; i++ {
		out = append(out, ansi.Truncate(text[i], m.width, "…"))
	}
	return out
}

// summary is the first line: what the cluster does.
func (m *model) summary() string {
	var running, pending, held, all int
	for _, job := range m.jobs.GetJobs() {
		switch state := spec.JobState(job.GetState()); {
		case state == spec.Pending:
			pending++
		case state.Active():
			running++
		}
	}
	out := 0
	for _, node := range m.nodes.GetNodes() {
		held += heldGPUs(node)
		all += len(node.GetGpus())
		if render.StateOf(node).Out() {
			out++
		}
	}
	parts := []string{
		m.paintText(bold, render.CleanLine(m.cluster)),
		m.clockText(),
		m.paintText(green, fmt.Sprint(running)) +
			" running",
		m.paintText(yellow, fmt.Sprint(pending)) + " pending",
	}
	if all > 0 {
		parts = append(parts, fmt.Sprintf("GPUs %d/%d %s", held, all, drawMeter(held, all, 12)))
	}
	if out > 0 {
		parts = append(parts, m.paintText(red, fmt.Sprintf("nodes out: %d", out)))
	}
	switch {
	case m.fault != "":
		parts = append(parts, m.paintText(red, render.CleanLine(m.fault)))
	case m.paused:
		parts = append(parts, m.paintText(yellow, "paused"))
	}
	return ansi.Truncate(strings.Join(parts, "  "), m.width, "…")
}

// clockText is the time of what is shown; of the past with its day.
func (m *model) clockText() string {
	if m.jobs.GetNow() == 0 {
		return ""
	}
	now := time.Unix(0, m.jobs.GetNow()).In(m.env.Loc)
	switch seq := m.moment.GetSeq(); {
	case m.moment == nil:
		return now.Format(time.TimeOnly)
	case seq != 0:
		return m.paintText(yellow, fmt.Sprintf("PAST #%d %s", seq, now.Format(time.DateTime)))
	}
	return m.paintText(yellow, "PAST "+now.Format(time.DateTime))
}

// drawMeter draws a part of a whole.
func drawMeter(part, whole, width int) string {
	if whole <= 0 {
		return ""
	}
	full := part * width / whole
	return "[" + strings.Repeat("|", full) + strings.Repeat(" ", width-full) + "]"
}

// tabs is the second line: which list it is, and how it was chosen.
func (m *model) tabs() string {
	var parts []string
	for i, name := range [...]string{"1 Queue", "2 Nodes", "3 GPUs"} {
		style := dim
		if page(i) == m.page {
			style = bold
			name = "[" + name + "]"
		}
		parts = append(parts, m.paintText(style, name))
	}
	sorts := jobSorts()
	if m.page != queuePage {
		sorts = nodeSorts()
	}
	order := "by " + sorts[m.column[m.page]]
	if m.reversed[m.page] {
		order += ", reversed"
	}
	parts = append(parts, fmt.Sprintf("%d %s", m.countRows(), order))
	if m.mine {
		parts = append(parts, m.paintText(cyan, "mine"))
	}
	switch {
	case m.typing:
		parts = append(parts, m.paintText(cyan, "/"+render.CleanLine(m.filter)+"_"))
	case m.filter != "":
		parts = append(parts, m.paintText(cyan, "/"+render.CleanLine(m.filter)))
	}
	return ansi.Truncate(strings.Join(parts, "  "), m.width, "…")
}

// foot is the last line: a question, what was done, or the keys.
func (m *model) foot() string {
	switch {
	case m.asking.verb != "":
		return ansi.Truncate(
			m.paintText(
				yellow,
				fmt.Sprintf(
					"%s job %s? y = yes, any other key = no   (%s)",
					m.asking.verb,
					m.asking.target,
					commandOf(m.asking),
				),
			),
			m.width,
			"…",
		)
	case m.dating:
		return ansi.Truncate(
			m.paintText(cyan, "go to (09:30, now-1hour, #event): "+render.CleanLine(m.date)+"_"),
			m.width,
			"…",
		)
	case m.message != "":
		return ansi.Truncate(m.paintText(cyan, render.CleanLine(m.message)), m.width, "…")
	case m.detail != nil:
		return ansi.Truncate(
			m.paintText(dim, "esc back  j/k scroll  w why  c cancel  r again"),
			m.width,
			"…",
		)
	}
	if m.moment != nil {
		return ansi.Truncate(
			m.paintText(dim, "[ ] a minute  { } an hour  t go to  n the present  enter open  w why  ? keys"),
			m.width,
			"…",
		)
	}
	return ansi.Truncate(
		m.paintText(
			dim,
			"/ filter  s sort  u mine  enter open  w why  c cancel  h hold  ? keys  q quit",
		),
		m.width,
		"…",
	)
}

// commandOf is the command line that does the same.
func commandOf(e effect) string {
	if e.verb == "cancel" {
		return "scancel " + e.target
	}
	return "scontrol " + e.verb + " " + e.target
}

func helpLines() []string {
	return []string{
		"", "  1 2 3 tab     queue, nodes, GPUs", "  j k, arrows   move; pgup pgdn g G too", "  /             filter: words, user:alice, state:pending, reason:…, -key:… for not",
		"  esc           end the filter", "  u             only your jobs", "  s S           next order, reverse it",
		"  enter         open a job; of a node, its GPUs", "  w             why a job waits, and what would help", "  c             cancel a job, after a question",
		"  h             hold a job that waits, or release it", "  p             pause", "  r             read again",
		"  [ ] { }       a minute or an hour back or forward in time", "  t n           go to a moment; to the present",
		"  q             quit", "",
		"  Any key ends this help.",
	}
}
