package cli

import (
	"fmt"
	"html"
	"strings"
)

// page is a report before it is text or HTML.
type page struct {
	title string
	parts []part
}

// part is one piece of a page, under a heading if it has one. What is empty is
// not shown.
type part struct {
	heading string
	indent  bool
	pairs   [][2]string // label, value
	bars    []bar
	head    []string // of a table
	rows    [][]string
	texts   int      // how many of its columns, from the left, are texts
	drawn   bool     // lines of the table are drawn: every character is as wide as any other
	list    []string // sentences
	none    string   // said where everything else is empty
}

// bar is a share with what it is made of. Without a share there is no bar.
type bar struct {
	label string
	share *float64
	text  string
}

func (p *part) empty() bool { return len(p.pairs)+len(p.bars)+len(p.rows)+len(p.list) == 0 }

const barWidth = 30

// draw writes a share as [|||    ] 43.2 %.
func (b bar) draw() string {
	if b.share == nil {
		return "[" + strings.Repeat(" ", barWidth/2-6) + "not measured" + strings.Repeat(" ", barWidth/2-6) + "]      - "
	}
	n := int(min(1, max(0, *b.share))*barWidth + 0.5)
	return "[" + strings.Repeat("|", n) + strings.Repeat(" ", barWidth-n) + fmt.Sprintf("] %5.1f %%", 100**b.share)
}

// text writes a page for a terminal.
func (p *page) text() string {
	var b strings.Builder
	b.WriteString(p.title + "\n")
	for i := range p.parts {
		t := &p.parts[i]
		if t.empty() && t.none == "" {
			continue
		}
		in := "  "
		if t.indent {
			in = "    "
		}
		if t.heading != "" {
			b.WriteString("\n" + in[2:] + t.heading + "\n")
		}
		if t.empty() {
			b.WriteString(in + t.none + "\n")
		}
		var lines [][]string
		for _, kv := range t.pairs {
			lines = append(lines, []string{in + kv[0], kv[1]})
		}
		for _, x := range t.bars {
			lines = append(lines, []string{in + x.label, x.draw(), x.text})
		}
		b.WriteString(aligned(lines, func(int) bool { return true }))
		if len(t.rows) > 0 {
			table := append([][]string{t.head}, t.rows...)
			for _, line := range table {
				lines := append([]string{in + line[0]}, line[1:]...)
				copy(line, lines)
			}
			b.WriteString(aligned(table, func(i int) bool { return i < t.texts }))
		}
		for _, s := range t.list {
			b.WriteString(in + "- " + s + "\n")
		}
	}
	return b.String()
}

const pageStyle = `body{font:15px/1.45 system-ui,sans-serif;margin:2em auto;max-width:60em;padding:0 1em;color:#1d2733}h1{font-size:1.4em}h2{font-size:1.1em;margin-bottom:.3em}
table{border-collapse:collapse}td,th{padding:.15em .8em .15em 0;text-align:left;vertical-align:top}.n{text-align:right;font-variant-numeric:tabular-nums}
.bar{background:#e3e8ee;width:14em;height:.8em;display:inline-block;border-radius:3px;overflow:hidden}.bar i{background:#2f7ebc;height:100%;display:block}.in{margin-left:1.5em}.m td{font-family:monospace;white-space:pre}`

// html writes a page that needs nothing else.
func (p *page) html() string {
	var b strings.Builder
	e := html.EscapeString
	fmt.Fprintf(&b, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>%s</title><style>%s</style></head>\n<body><h1>%s</h1>\n", e(p.title), pageStyle, e(p.title))
	for i := range p.parts {
		t := &p.parts[i]
		if t.empty() && t.none == "" {
			continue
		}
		class := ""
		if t.indent {
			class = ` class="in"`
		}
		fmt.Fprintf(&b, "<div%s>", class)
		if t.heading != "" {
			fmt.Fprintf(&b, "<h2>%s</h2>\n", e(t.heading))
		}
		if t.empty() {
			fmt.Fprintf(&b, "<p>%s</p>", e(t.none))
		}
		if len(t.pairs)+len(t.bars) > 0 {
			b.WriteString("<table>")
			for _, kv := range t.pairs {
				fmt.Fprintf(&b, "<tr><th>%s</th><td>%s</td></tr>", e(kv[0]), e(kv[1]))
			}
			for _, x := range t.bars {
				if x.share == nil {
					fmt.Fprintf(&b, "<tr><th>%s</th><td>not measured</td><td></td><td>%s</td></tr>", e(x.label), e(x.text))
				} else {
					fmt.Fprintf(&b, "<tr><th>%s</th><td><span class=\"bar\"><i style=\"width:%.1f%%\"></i></span></td><td class=\"n\">%.1f %%</td><td>%s</td></tr>",
						e(x.label), 100*min(1, max(0, *x.share)), 100**x.share, e(x.text))
				}
			}
			b.WriteString("</table>\n")
		}
		if len(t.rows) > 0 {
			b.WriteString(map[bool]string{true: `<table class="m">`, false: "<table>"}[t.drawn])
			for k, row := range append([][]string{t.head}, t.rows...) {
				cell := "td"
				if k == 0 {
					cell = "th"
				}
				b.WriteString("<tr>")
				for i, text := range row {
					n := ""
					if i >= t.texts {
						n = ` class="n"`
					}
					fmt.Fprintf(&b, "<%s%s>%s</%s>", cell, n, e(text), cell)
				}
				b.WriteString("</tr>")
			}
			b.WriteString("</table>\n")
		}
		if len(t.list) > 0 {
			b.WriteString("<ul>")
			for _, s := range t.list {
				fmt.Fprintf(&b, "<li>%s</li>", e(s))
			}
			b.WriteString("</ul>\n")
		}
		b.WriteString("</div>\n")
	}
	b.WriteString("</body></html>\n")
	return b.String()
}
