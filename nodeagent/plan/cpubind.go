package plan

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// binding is which CPUs each task of a step's part has, and what its
// environment says of that.
type binding struct {
	tasks                     [][]int32 // by local id; nil: all of the step's
	text, kind, list, verbose string
}

func (b *binding) taskCPUs(local int) []int32 {
	if b.tasks == nil {
		return nil
	}
	return b.tasks[local]
}

// bindTasks carries --cpu-bind out. cpus are the step's on this node; none
// means that nothing is bound here. What is said is for the user of a verbose
// binding.
func bindTasks(step *StepPart, node *Node, cpus []int32) (*binding, []string, error) {
	b := &binding{verbose: "quiet"}
	kind := ""
	rest := step.Spec.CPUBind
	for rest != "" {
		word, more, _ := strings.Cut(rest, ",")
		switch word {
		case "verbose", "v":
			b.verbose = "verbose"
		case "quiet", "q":
		default:
			kind, more = rest, ""
		}
		rest = more
	}
	kind, list, _ := strings.Cut(kind, ":")
	tasks := len(step.Ranks)
	each := max(int(step.Spec.CPUsPerTask), 1)
	var err error
	switch {
	case len(cpus) == 0:
		kind = "none"
	case kind == "":
		// As Slurm does by itself: bind where the tasks fill what the step has.
		kind = "none"
		if tasks*each == len(cpus) {
			kind, b.tasks = "cores", dealBlocks(cpus, tasks, each)
		}
	case kind == "none":
	case kind == "cores" || kind == "threads" || kind == "rank":
		b.tasks = dealBlocks(cpus, tasks, each)
	case kind == "map_cpu":
		b.list = list
		b.tasks, err = mapped(list, cpus, tasks)
	case kind == "mask_cpu":
		b.list = list
		b.tasks, err = masked(list, cpus, tasks)
	default:
		err = fmt.Errorf(
			"--cpu-bind=%s is not supported here: none, cores, threads, rank, map_cpu and mask_cpu are",
			kind,
		)
	}
	if err != nil {
		return nil, nil, err
	}
	b.kind = kind
	switch b.text = b.verbose + "," + kind; {
	case b.list != "":
		b.kind += ":"
		b.text += ":" + b.list
	case b.tasks != nil:
		b.kind = "mask_cpu:"
		masks := make([]string, tasks)
		for i := range masks {
			masks[i] = formatMask(b.tasks[i])
		}
		b.list = strings.Join(masks, ",")
		b.text = b.verbose + ",mask_cpu:" + b.list
	}
	var told []string
	if b.verbose == "verbose" {
		for i, r := range step.Ranks {
			of := b.taskCPUs(i)
			if of == nil {
				of = cpus
			}
			told = append(
				told,
				fmt.Sprintf(
					"cpu-bind=%s - %s, task %2d %2d: mask %s set",
					strings.ToUpper(strings.TrimSuffix(b.kind, ":")),
					node.Host,
					r,
					i,
					formatMask(of),
				),
			)
		}
	}
	return b, told, nil
}

// dealBlocks deals out CPUs in their order, so many to each task; where there are
// too few it begins anew.
func dealBlocks(cpus []int32, tasks, each int) [][]int32 {
	out := make([][]int32, tasks)
	for i := range out {
		for k := range min(each, len(cpus)) {
			out[i] = append(out[i], cpus[(i*each+k)%len(cpus)])
		}
		slices.Sort(out[i])
	}
	return out
}

// parseRepeated reads a list of entries with repetitions: 0,2*3.
func parseRepeated(text string, tasks int, entry func(string) ([]int32, error)) ([][]int32, error) {
	var all [][]int32
	for word := range strings.SplitSeq(text, ",") {
		one, times, found := strings.Cut(word, "*")
		n := 1
		var err error
		if found {
			n, err = strconv.Atoi(times)
			if err != nil || n < 1 || n > 1<<16 {
				return nil, fmt.Errorf("%q is no number of repetitions", times)
			}
		}
		of, err := entry(one)
		if err != nil {
			return nil, err
		}
		for range min(n, tasks-len(all)) { // the tasks need no more
			all = append(all, of)
		}
	}
	out := make([][]int32, tasks)
	for i := range out {
		out[i] = all[i%len(all)]
	}
	return out, nil
}

func mapped(text string, cpus []int32, tasks int) ([][]int32, error) {
	return parseRepeated(text, tasks, func(word string) ([]int32, error) {
		n, err := strconv.ParseInt(word, 0, 32)
		if err != nil {
			return nil, fmt.Errorf("--cpu-bind=map_cpu: %q is no CPU", word)
		}
		if !slices.Contains(cpus, int32(n)) {
			return nil, fmt.Errorf(
				"--cpu-bind=map_cpu: CPU %d is not one of the step's on this node",
				n,
			)
		}
		return []int32{int32(n)}, nil
	})
}

func masked(text string, cpus []int32, tasks int) ([][]int32, error) {
	return parseRepeated(text, tasks, func(word string) ([]int32, error) {
		bits, ok := new(big.Int).SetString(strings.TrimPrefix(strings.ToLower(word), "0x"), 16)
		if !ok || bits.Sign() <= 0 || bits.BitLen() > 1<<12 {
			return nil, fmt.Errorf("--cpu-bind=mask_cpu: %q is no mask of CPUs", word)
		}
		var out []int32
		for _, c := range cpus {
			if bits.Bit(int(c)) == 1 {
				out = append(out, c)
			}
		}
		if len(out) == 0 {
			return nil, fmt.Errorf(
				"--cpu-bind=mask_cpu: none of the CPUs of %s is the step's on this node",
				word,
			)
		}
		return out, nil
	})
}

// formatMask writes a set of CPUs: 0x5.
func formatMask(cpus []int32) string {
	bits := new(big.Int)
	for _, c := range cpus {
		bits.SetBit(bits, int(c), 1)
	}
	return "0x" + strings.ToUpper(bits.Text(16))
}
