package render

import (
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/accounting/kpi"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

// FigureTitle is what people call a figure.
func FigureTitle(name string) string {
	for _, k := range kpi.All() {
		if k.Name == name {
			return k.Title
		}
	}
	return name
}

// FigureText writes a value with its unit; "-" where nothing was measured.
func FigureText(cell *apiv1.Cell, column *apiv1.ReportColumn) string {
	if text, ok := cell.GetKind().(*apiv1.Cell_Text); ok {
		return text.Text
	}
	n, ok := CellAmount(cell)
	if !ok || math.IsNaN(n) {
		return "-"
	}
	decimals := func(n float64, digits int) string { return strconv.FormatFloat(n, 'f', digits, 64) }
	switch kpi.Unit(column.GetUnit()) {
	case kpi.Ratio:
		return decimals(100*n, 1) + " %"
	case kpi.Seconds:
		return format.Duration(int64(n + 0.5))
	case kpi.ByteHours:
		return decimals(n/(1<<30), 1) + " GiB-hours"
	case kpi.PerDay:
		return decimals(100*n, 2) + " % per day"
	}
	if column.GetKind() == "int" {
		return strings.TrimSpace(decimals(n, 0) + " " + column.GetUnit())
	}
	return strings.TrimSpace(decimals(n, 2) + " " + column.GetUnit())
}

func GiB(bytes int64) string { return fmt.Sprintf("%.2f GiB", float64(bytes)/(1<<30)) }

// ParseGRES reads name[:type][:count] or, with only set, [type:]count.
func ParseGRES(text, only string) ([]*apiv1.Count, bool) {
	var counts []*apiv1.Count
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimPrefix(part, "gres/")
		part = strings.TrimPrefix(part, "gres:")
		words := strings.Split(strings.ReplaceAll(part, "=", ":"), ":")
		c := &apiv1.Count{Name: only, N: 1}
		if only == "" {
			c.Name, words = words[0], words[1:]
		}
		if n := len(words); n > 0 {
			if count, err := format.ParseCount(words[n-1]); err == nil {
				c.N, words = count, words[:n-1]
			} else if only != "" {
				return nil, false // --gpus wants a number
			}
		}
		switch {
		case len(words) > 1 || c.Name == "" || (len(words) == 1 && words[0] == ""):
			return nil, false
		case len(words) == 1:
			c.Type = words[0]
		}
		counts = append(counts, c)
	}
	return counts, true
}

// Texts for what is not there, as Slurm prints them.
const (
	Null         = "(null)"
	NotAvailable = "N/A"
)

// Limit writes a time limit in nanoseconds; -1 is UNLIMITED.
func Limit(ns int64, show func(int64) string) string {
	if ns < 0 {
		return "UNLIMITED"
	}
	return show(ns / tool.Second)
}

// ToTRES reads a vector.
func ToTRES(tres *apiv1.Tres) spec.TRES {
	out := spec.TRES{
		CPU:     tres.GetCpu(),
		Mem:     tres.GetMem(),
		Node:    tres.GetNode(),
		Billing: tres.GetBilling(),
		Energy:  tres.GetEnergy(),
	}
	for _, c := range tres.GetOther() {
		out = out.With(c.GetName(), c.GetN())
	}
	return out
}

// TRESText writes a vector as squeue and scontrol do, empty when it is.
func TRESText(tres *apiv1.Tres) string { return ToTRES(tres).String() }

func YesNo(b bool) string {
	if b {
		return "YES"
	}
	return "NO"
}

func ZeroOne(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// CountsText writes GRES or licences: gpu:h100:2,nic:1.
func CountsText(list []*apiv1.Count, prefix, sep string) string {
	parts := make([]string, len(list))
	for i, count := range list {
		parts[i] = prefix + count.GetName()
		if count.GetType() != "" {
			parts[i] += sep + count.GetType()
		}
		parts[i] += sep + CountText(count.GetN())
	}
	return strings.Join(parts, ",")
}

// CountText writes an amount of a resource; one that counts bytes has a unit.
func CountText(n int64) string {
	if n < 1<<20 {
		return tool.Itoa(n)
	}
	return format.Count(n)
}

// SortedTRES writes a vector in the order of names, as sacct does.
func SortedTRES(tres spec.TRES) string {
	parts := strings.Split(tres.String(), ",")
	sort.Strings(parts)
	return strings.Join(parts, ",")
}

// CellAmount reads a cell that is a number; false where nothing was measured.
func CellAmount(cell *apiv1.Cell) (float64, bool) {
	switch k := cell.GetKind().(type) {
	case *apiv1.Cell_Int:
		return float64(k.Int), true
	case *apiv1.Cell_Float:
		return k.Float, true
	}
	return 0, false
}

func MatchPrefix(words []string, typed string) string {
	for _, w := range words {
		if typed != "" && strings.HasPrefix(w, strings.ToLower(typed)) {
			return w
		}
	}
	return ""
}

func SixDigits(f float64) string { return strconv.FormatFloat(f, 'f', 6, 64) }

// Span writes a length of time for people: 45 s, 12 min, 3 h 20 min, 2 d 4 h.
func Span(ns int64) string {
	seconds := max(ns, 0) / tool.Second
	min := (seconds + 30) / 60
	two := func(a int64, unit string, b int64, small string) string {
		if b == 0 {
			return fmt.Sprintf("%d %s", a, unit)
		}
		return fmt.Sprintf("%d %s %d %s", a, unit, b, small)
	}
	switch {
	case seconds < 120:
		return fmt.Sprintf("%d s", seconds)
	case min < 60:
		return fmt.Sprintf("%d min", min)
	case seconds < 2*86400:
		return two(min/60, "h", min%60, "min")
	}
	h := (seconds + 1800) / 3600
	return two(h/24, "d", h%24, "h")
}

// formatQuantity writes an amount of a TRES for people: 4 GPUs, 16 GiB memory.
func formatQuantity(tres string, n int64) string {
	plural := func(one string) string {
		if n == 1 {
			return "1 " + one
		}
		return fmt.Sprintf("%d %ss", n, one)
	}
	kind, name, _ := strings.Cut(tres, "/")
	switch kind {
	case "cpu":
		return plural("CPU")
	case "mem":
		return format.Units(n, 'M', format.Convert{}) + " of memory"
	case "node":
		return plural("node")
	case "time":
		return Span(n * tool.Second)
	case "billing":
		return plural("billing unit")
	case "energy":
		return fmt.Sprintf("%d J", n)
	case "gres":
		name, typ, typed := strings.Cut(name, ":")
		if name == "gpu" {
			name = "GPU"
		}
		if typed {
			name = typ + " " + name
		}
		return plural(name)
	case "license":
		return plural(name + " licence")
	case "tmp":
		return format.Units(n, 'M', format.Convert{}) + " of temporary disk"
	}
	return strings.TrimSpace(fmt.Sprintf("%d %s", n, tres))
}

// MeasureText writes an amount of one of the units that findings compare runs by.
func MeasureText(n float64, unit string) string {
	switch unit {
	case "ratio":
		return strconv.FormatFloat(100*n, 'f', 1, 64) + " %"
	case "bytes":
		return GiB(int64(n))
	case "bytes/s":
		return strconv.FormatFloat(n/(1<<20), 'f', 1, 64) + " MiB/s"
	case "seconds":
		return format.Duration(int64(n + 0.5))
	}
	return strconv.FormatFloat(n, 'f', 2, 64)
}
