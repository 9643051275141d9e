package format

import (
	"strconv"
	"strings"
)

// maxPerNode bounds how many nodes a list may stand for.
const maxPerNode = 1 << 18

// PerNode prints one count per node with runs folded: 2(x3),1. It is the form
// of SLURM_TASKS_PER_NODE and SLURM_JOB_CPUS_PER_NODE.
func PerNode(counts []int64) string {
	var buffer []byte
	for i := 0; i < len(counts); {
		j := i + 1
		for j < len(counts) && counts[j] == counts[i] {
			j++
		}
		if i > 0 {
			buffer = append(buffer, ',')
		}
		buffer = strconv.AppendInt(buffer, counts[i], 10)
		if j-i > 1 {
			buffer = append(buffer, "(x"...)
			buffer = append(strconv.AppendInt(buffer, int64(j-i), 10), ')')
		}
		i = j
	}
	return string(buffer)
}

// ParsePerNode reads 2(x3),1 back into 2,2,2,1.
func ParsePerNode(text string) ([]int64, error) {
	const what = "count per node"
	var out []int64
	for part := range strings.SplitSeq(text, ",") {
		number, times, folded := strings.Cut(part, "(x")
		n, ok := parseDigits(number, maxAmount)
		if !ok {
			return nil, badInput(what, text, "expected counts such as 2(x3),1")
		}
		reps := int64(1)
		if folded {
			body, closed := strings.CutSuffix(times, ")")
			reps, ok = parseDigits(body, maxPerNode+1)
			if !ok || !closed || reps == 0 {
				return nil, badInput(what, text, "expected counts such as 2(x3),1")
			}
		}
		if int64(len(out))+reps > maxPerNode {
			return nil, badInput(what, text, "more than %d nodes", maxPerNode)
		}
		for range reps {
			out = append(out, n)
		}
	}
	return out, nil
}
