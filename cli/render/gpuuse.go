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
			if value, ok := strings.CutPrefix(kv, name+"="); ok && value != "" {
				value = strings.ToUpper(value)
				if strings.Contains(value, "UTF-8") || strings.Contains(value, "UTF8") {
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
	for _, value := range values {
		if value != nil {
			mean += *value
			most = max(most, *value)
			n++
		}
	}
	if n == 0 {
		return nil, 0, 0, false
	}
	if full == 0 {
		full = max(most, 1)
	}
	for _, value := range values {
		if value == nil {
			out = append(out, ' ')
			continue
		}
		out = append(out, steps[min(max(int(*value/full*float64(len(steps))), 0), len(steps)-1)])
	}
	return out, mean / float64(n), most, true
}

// WholeDevice is the part of a run that had its device alone, in thousandths.
const WholeDevice = 1000

// HeldPart is the time that a run held a device, times its part of it: what
// its other times and integrals are of.
func HeldPart(gpu *apiv1.JobReportGpu) float64 {
	if s := gpu.GetShare(); s > 0 {
		return float64(gpu.GetHeld()) * float64(s) / WholeDevice
	}
	return float64(gpu.GetHeld())
}

// MethodText says how a device's figures became those of a run; "" = not known.
func MethodText(gpu *apiv1.JobReportGpu) string {
	if InParts(gpu) {
		return fmt.Sprintf("%s, %.4g%%", gpu.GetMethod(), float64(gpu.GetShare())*100/WholeDevice)
	}
	return gpu.GetMethod()
}

// InParts tells that others had parts of the device at the same time: whose its
// memory was, nobody knows.
func InParts(gpu *apiv1.JobReportGpu) bool {
	return gpu.GetShare() > 0 && gpu.GetShare() < WholeDevice
}

// PeakText is the most memory that a run had on a device.
func PeakText(gpu *apiv1.JobReportGpu) string {
	if InParts(gpu) {
		return "-"
	}
	return GiB(gpu.GetPeakMem())
}
