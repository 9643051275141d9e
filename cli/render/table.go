package render

import (
	"fmt"
	"strings"

	"github.com/musterhpc/muster/cli/column"
	"github.com/musterhpc/muster/cli/plain"
	"github.com/musterhpc/muster/cli/tool"
)

// Cell is a text of others for one cell of a table or one value of a line: without
// characters that act on a terminal.
func Cell(text string) string { return plain.Cell(text) }

// AlignedTexts lays a table out whose cells are all texts.
func AlignedTexts(table [][]string) string {
	return Aligned(table, func(int) bool { return true })
}

// Aligned lays a table out, texts to the left and numbers to the right.
func Aligned(table [][]string, text func(col int) bool) string {
	var wide []int
	for _, line := range table {
		for i, cell := range line {
			cell = plain.Cell(cell)
			line[i] = cell
			if i == len(wide) {
				wide = append(wide, 0)
			}
			wide[i] = max(wide[i], len([]rune(cell)))
		}
	}
	var b strings.Builder
	for _, line := range table {
		row := ""
		for i, cell := range line {
			pad := strings.Repeat(" ", wide[i]-len([]rune(cell)))
			if text(i) {
				row += cell + pad + "  "
			} else {
				row += pad + cell + "  "
			}
		}
		b.WriteString(strings.TrimRight(row, " ") + "\n")
	}
	return b.String()
}

// Bar is a share with what it is made of. Without a share there is no bar.
type Bar struct {
	Label string
	Share *float64
	Text  string
}

const barWidth = 30

// BlockLevels are what a course over time is drawn of, from least to most.
const BlockLevels = "▁▂▃▄▅▆▇█"

// TableStyle is the style of -p, -P, -n and --delimiter.
func TableStyle(call *tool.Call) column.Style {
	return column.Style{
		Parsable: call.Opts.On("parsable") || call.Opts.On("parsable2"),
		Trailing: call.Opts.On("parsable") && !call.Opts.On("parsable2"),
		Delim:    call.Opts.Text("delimiter"),
		NoHeader: call.Opts.On("noheader"),
	}
}

// FieldHelp is --helpformat: the names in four columns.
func FieldHelp[F any](fields []F, name func(F) string) []byte {
	var buffer []byte
	for i, f := range fields {
		switch {
		case i > 0 && i%4 == 0:
			buffer = append(buffer, '\n')
		case i > 0:
			buffer = append(buffer, ' ')
		}
		buffer = append(buffer, fmt.Sprintf("%-19s", name(f))...)
	}
	return append(buffer, '\n')
}

// SortKey is one letter of -S.
type SortKey struct {
	Letter  byte
	Falling bool
}
