package acct

import (
	"fmt"
	"slices"
	"strings"

	"github.com/musterhpc/muster/cli/render"
)

// page is a report before it is text or HTML.
type page struct {
	title string
	parts []part
	steps []rune // what a course is drawn with in text, from least to most; nil = blocks
}

// part is one piece of a page, under a heading if it has one. What is empty is
// not shown.
type part struct {
	heading string
	indent  bool
	pairs   [][2]string // label, value
	bars    []render.Bar
	head    []string // of a table
	rows    [][]string
	texts   int      // how many of its columns, from the left, are texts
	drawn   bool     // cells in brackets are courses over time, of blocks
	list    []string // sentences
	none    string   // said where everything else is empty

	form    form // which form of the page has it
	folded  bool // a reader opens it
	wide    int  // the column that breaks where it is too wide; 0 = none
	life    *life
	charted []render.Charted
}

// form is a form of a page.
type form uint8

const (
	everyForm form = iota
	textForm
	drawnForm // HTML, which has charts in the place of courses of blocks
)

// shown tells whether a form of the page has the part.
func (p *part) shown(in form) bool {
	if p.form != everyForm && p.form != in {
		return false
	}
	return p.none != "" || !p.empty()
}

func (p *part) empty() bool {
	return len(p.pairs)+len(p.bars)+len(p.rows)+len(p.list)+len(p.charted) == 0 && p.life == nil
}

// text writes a page for a terminal.
func (p *page) text() string {
	var text strings.Builder
	text.WriteString(p.title + "\n")
	for i := range p.parts {
		t := &p.parts[i]
		if !t.shown(textForm) {
			continue
		}
		in := "  "
		if t.indent {
			in = "    "
		}
		if t.heading != "" {
			text.WriteString("\n" + in[2:] + t.heading + "\n")
		}
		if t.empty() {
			text.WriteString(in + t.none + "\n")
		}
		var lines [][]string
		for _, kv := range t.pairs {
			lines = append(lines, []string{in + kv[0], kv[1]})
		}
		for _, bar := range t.bars {
			lines = append(lines, []string{in + bar.Label, bar.Draw(), bar.Text})
		}
		text.WriteString(render.AlignedTexts(lines))
		if len(t.rows) > 0 {
			table := append([][]string{t.head}, t.rows...)
			for k, line := range table {
				table[k] = slices.Clone(line)
				table[k][0] = in + line[0]
				for i, cell := range line[1:] {
					if t.drawn && isCourse(cell) {
						table[k][i+1] = p.inSteps(cell)
					}
				}
			}
			text.WriteString(render.Aligned(table, func(i int) bool { return i < t.texts }))
		}
		for _, s := range t.list {
			text.WriteString(in + "- " + s + "\n")
		}
	}
	return text.String()
}

// pageStyle is how a page looks: figures do not break in the middle, a table
// that is wider than the window scrolls by itself, and who reads in the dark
// gets it dark.
const pageStyle = `:root{color-scheme:light dark;--ink:#1d2733;--faint:#5b6875;--line:#dfe4ea;--track:#e3e8ee;--fill:#2f7ebc;--ran:#3c8d5a;--w0:#d99a2b;--w1:#b0587d;--w2:#7a6fc0;--w3:#a3703f;--w4:#7d8895}
@media(prefers-color-scheme:dark){:root{--ink:#dde3ea;--faint:#93a0ad;--line:#323c47;--track:#2b343e;--fill:#5aa2dc;--ran:#5cb37d;--w0:#e3b057;--w1:#d487a8;--w2:#a49be0;--w3:#c79a6c;--w4:#98a4b0}body{background:#14191f}}
body{font:15px/1.45 system-ui,sans-serif;margin:2em auto;max-width:76em;padding:0 1em;color:var(--ink)}h1{font-size:1.4em;overflow-wrap:anywhere}h2{font-size:1.1em;margin:1.6em 0 .4em}
h3{font-size:1em;margin:1em 0 .2em}small{color:var(--faint);font-weight:400}
.s{overflow-x:auto}table{border-collapse:collapse}td,th{padding:.2em 1em .2em 0;text-align:left;vertical-align:top;white-space:nowrap}th{color:var(--faint);font-weight:600}
.t td,.t th{border-bottom:1px solid var(--line)}td.w{white-space:normal;overflow-wrap:anywhere}.n{text-align:right;font-variant-numeric:tabular-nums}
.bar{background:var(--track);width:14em;height:.8em;display:inline-block;border-radius:3px;overflow:hidden}.bar i{background:var(--fill);height:100%;display:block}
.in{margin-left:1.5em}.in h2{margin-top:1em}details{margin-top:1.6em}summary{font-weight:600;font-size:1.1em;cursor:pointer}
.life{display:block;width:100%;height:30px}.ends{display:flex;justify-content:space-between;margin:.2em 0;color:var(--faint);font-size:.9em}.mark{stroke:var(--ink);stroke-width:1;vector-effect:non-scaling-stroke}
.legend{list-style:none;padding:0;margin:.4em 0}.legend i{display:inline-block;width:.8em;height:.8em;border-radius:2px;margin-right:.5em}
.ran{fill:var(--ran);background:var(--ran)}.w0{fill:var(--w0);background:var(--w0)}.w1{fill:var(--w1);background:var(--w1)}.w2{fill:var(--w2);background:var(--w2)}.w3{fill:var(--w3);background:var(--w3)}.w4{fill:var(--w4);background:var(--w4)}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(12em,1fr));gap:.8em}figure{margin:0}figcaption,figure p{font-size:.85em;color:var(--faint);margin:0}figcaption b{color:var(--ink)}
figure svg{display:block;width:100%;height:3.2em;border-bottom:1px solid var(--line)}.area{fill:var(--fill);opacity:.2}.curve{fill:none;stroke:var(--fill);stroke-width:1.5;vector-effect:non-scaling-stroke}
@media print{body{margin:0;max-width:none}}`

// isCourse tells whether a cell is a course of blocks.
func isCourse(text string) bool {
	text, begins := strings.CutPrefix(text, "[")
	text, ends := strings.CutSuffix(text, "]")
	return begins && ends && strings.Trim(text, render.BlockLevels+" ") == ""
}

// inSteps writes a course of blocks with what the terminal can show.
func (p *page) inSteps(text string) string {
	if p.steps == nil {
		return text
	}
	return strings.Map(func(c rune) rune {
		if i := slices.Index([]rune(render.BlockLevels), c); i >= 0 {
			return p.steps[i]
		}
		return c
	}, text)
}

// writeCell writes a cell of a table.
func (t *part) writeCell(b *strings.Builder, tag string, column int, text string) {
	class := ""
	switch {
	case t.wide > 0 && column == t.wide:
		class = ` class="w"`
	case column >= t.texts:
		class = ` class="n"`
	}
	fmt.Fprintf(b, "<%s%s>%s</%s>", tag, class, plainHTML(text), tag)
}

// renderHTML writes a page that needs nothing else.
func (p *page) renderHTML() string {
	var b strings.Builder
	e := plainHTML
	fmt.Fprintf(
		&b,
		"<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"><title>%s</title><style>%s</style></head>\n<body><h1>%s</h1>\n",
		e(p.title),
		pageStyle,
		e(p.title),
	)
	for i := range p.parts {
		t := &p.parts[i]
		if !t.shown(drawnForm) {
			continue
		}
		class := ""
		if t.indent {
			class = ` class="in"`
		}
		tag := "div"
		if t.folded {
			tag = "details"
		}
		fmt.Fprintf(&b, "<%s%s>", tag, class)
		switch {
		case t.folded:
			fmt.Fprintf(&b, "<summary>%s (%d)</summary>\n", e(t.heading), len(t.rows))
		case t.heading != "":
			fmt.Fprintf(&b, "<h2>%s</h2>\n", e(t.heading))
		}
		if t.empty() {
			fmt.Fprintf(&b, "<p>%s</p>", e(t.none))
		}
		if t.life != nil {
			t.life.write(&b)
		}
		writeCharted(&b, t.charted)
		if len(t.pairs)+len(t.bars) > 0 {
			b.WriteString(`<div class="s"><table>`)
			for _, kv := range t.pairs {
				fmt.Fprintf(&b, "<tr><th>%s</th><td class=\"w\">%s</td></tr>", e(kv[0]), e(kv[1]))
			}
			for _, bar := range t.bars {
				if bar.Share == nil {
					fmt.Fprintf(
						&b,
						"<tr><th>%s</th><td>not measured</td><td></td><td>%s</td></tr>",
						e(bar.Label),
						e(bar.Text),
					)
				} else {
					fmt.Fprintf(&b, "<tr><th>%s</th><td><span class=\"bar\"><i style=\"width:%.1f%%\"></i></span></td><td class=\"n\">%.1f %%</td><td class=\"w\">%s</td></tr>",
						e(bar.Label), 100*min(1, max(0, *bar.Share)), 100**bar.Share, e(bar.Text))
				}
			}
			b.WriteString("</table></div>\n")
		}
		if len(t.rows) > 0 {
			b.WriteString(`<div class="s"><table class="t">`)
			for k, row := range append([][]string{t.head}, t.rows...) {
				cell := "td"
				if k == 0 {
					cell = "th"
				}
				b.WriteString("<tr>")
				for i, text := range row {
					t.writeCell(&b, cell, i, text)
				}
				b.WriteString("</tr>")
			}
			b.WriteString("</table></div>\n")
		}
		if len(t.list) > 0 {
			b.WriteString("<ul>")
			for _, s := range t.list {
				fmt.Fprintf(&b, "<li>%s</li>", e(s))
			}
			b.WriteString("</ul>\n")
		}
		fmt.Fprintf(&b, "</%s>\n", tag)
	}
	b.WriteString("</body></html>\n")
	return b.String()
}
