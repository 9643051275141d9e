package spec

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// GPUFreq is a --gpu-freq: the clocks that a job's devices run at.
type GPUFreq struct {
	GPU, Memory FreqAsk
	Verbose     bool // tell the job what was set
}

// FreqAsk asks for one clock: by its place among those that a device can run
// at, or by its frequency. The zero value leaves it alone.
type FreqAsk struct {
	Level FreqLevel
	MHz   uint32 // of FreqExact
}

// FreqLevel is a place among the frequencies of a device.
type FreqLevel uint8

// The levels of --gpu-freq.
const (
	FreqAny    FreqLevel = iota // left alone
	FreqLow                     // the lowest
	FreqMedium                  // in the middle of them
	FreqHighM1                  // the highest but one
	FreqHigh                    // the highest
	FreqExact                   // the nearest to a number of megahertz
)

// ParseGPUFreq reads [type=]value[,type=value][,verbose], where the type is gpu
// or memory, gpu where it is left out, and the value low, medium, high, highm1
// or a number of megahertz.
func ParseGPUFreq(text string) (GPUFreq, error) {
	var freq GPUFreq
	for word := range strings.SplitSeq(text, ",") {
		word = strings.ToLower(word)
		if word == "verbose" {
			freq.Verbose = true
			continue
		}
		name, value, typed := strings.Cut(word, "=")
		to := &freq.GPU
		switch {
		case !typed:
			value = word
		case name == "memory":
			to = &freq.Memory
		case name != "gpu":
			return GPUFreq{}, badGPUFreq(text)
		}
		if to.Level != FreqAny {
			return GPUFreq{}, badGPUFreq(text)
		}
		switch value {
		case "low":
			to.Level = FreqLow
		case "medium":
			to.Level = FreqMedium
		case "high":
			to.Level = FreqHigh
		case "highm1":
			to.Level = FreqHighM1
		default:
			n, err := strconv.ParseUint(value, 10, 32)
			if err != nil || n == 0 {
				return GPUFreq{}, badGPUFreq(text)
			}
			*to = FreqAsk{FreqExact, uint32(n)}
		}
	}
	return freq, nil
}

func badGPUFreq(text string) error {
	return fmt.Errorf(
		"%q is no GPU frequency: want [type=]value[,type=value][,verbose] with the types gpu and memory and the values low, medium, high, highm1 or MHz",
		text,
	)
}

// Pick chooses among the frequencies that there are, in any order; 0 when the
// clock is to be left alone or there is none. Of two that are equally near to a
// number the higher is taken.
func (a FreqAsk) Pick(have []uint32) uint32 {
	if a.Level == FreqAny || len(have) == 0 {
		return 0
	}
	sorted := slices.Compact(slices.Sorted(slices.Values(have)))
	last := len(sorted) - 1
	switch a.Level {
	case FreqAny:
	case FreqLow:
		return sorted[0]
	case FreqMedium:
		return sorted[last/2]
	case FreqHighM1:
		return sorted[max(last-1, 0)]
	case FreqHigh:
		return sorted[last]
	case FreqExact:
		best := sorted[0]
		for _, s := range sorted {
			if gap(s, a.MHz) <= gap(best, a.MHz) {
				best = s
			}
		}
		return best
	}
	return 0
}

func gap(a, b uint32) uint32 { return max(a, b) - min(a, b) }
