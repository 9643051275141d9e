package render

import (
	"fmt"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
)

// BarLevels are the characters of a line over time: from least to most, then the
// one for a GPU without a process.
func BarLevels(call *tool.Call) (steps []rune, empty rune) {
	for _, name := range [...]string{"LC_ALL", "LC_CTYPE", "LANG"} {
		for _, kv := range call.Environ {
			if v, ok := strings.CutPrefix(kv, name+"="); ok && v != "" {
				v = strings.ToUpper(v)
				if strings.Contains(v, "UTF-8") || strings.Contains(v, "UTF8") {
					return []rune(BlockLevels), '·'
				}
				return []rune("_.-:=+*#"), 'x'
			}
		}
	}
	return []rune("_.-:=+*#"), 'x'
}

// DrawLine draws values as a line, a blank where there is none, with their mean and
// the largest. full is the whole height; 0 = the largest.
func DrawLine(
	values []*float64,
	full float64,
	steps []rune,
) (out []rune, mean, most float64, ok bool) {
	n := 0
	for _, v := range values {
		if v != nil {
			mean, most, n = mean+*v, max(most, *v), n+1
		}
	}
	if n == 0 {
		return nil, 0, 0, false
	}
	if full == 0 {
		full = max(most, 1)
	}
	for _, v := range values {
		if v == nil {
			out = append(out, ' ')
			continue
		}
		out = append(out, steps[min(max(int(*v/full*float64(len(steps))), 0), len(steps)-1)])
	}
	return out, mean / float64(n), most, true
}

// WholeDevice is the part of a run that had its device alone, in thousandths.
const WholeDevice = 1000

// HeldPart is the time that a run held a device, times its part of it: what
// its other times and integrals are of.
func HeldPart(t *apiv1.JobReportGpu) float64 {
	if s := t.GetShare(); s > 0 {
		return float64(t.GetHeld()) * float64(s) / WholeDevice
	}
	return float64(t.GetHeld())
}

// MethodText says how a device's figures became those of a run; "" = not known.
func MethodText(t *apiv1.JobReportGpu) string {
	if InParts(t) {
		return fmt.Sprintf("%s, %.4g%%", t.GetMethod(), float64(t.GetShare())*100/WholeDevice)
	}
	return t.GetMethod()
}

// InParts tells that others had parts of the device at the same time: whose its
// memory was, nobody knows.
func InParts(t *apiv1.JobReportGpu) bool { return t.GetShare() > 0 && t.GetShare() < WholeDevice }

// PeakText is the most memory that a run had on a device.
func PeakText(t *apiv1.JobReportGpu) string {
	if InParts(t) {
		return "-"
	}
	return GiB(t.GetPeakMem())
}
