package submit

import (
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

// isVerbose tells whether -v was given, or a number other than 0 in the variable that stands
// for as many of them.
func isVerbose(call *tool.Call, variable string) bool {
	if call.Opts.On("verbose") {
		return true
	}
	count, err := strconv.Atoi(call.Getenv(variable))
	return err == nil && count > 0
}

// printOptions is -v: what holds after all sources were read.
func printOptions(call *tool.Call) {
	var names []string
	for _, option := range call.Command.AllOptions() {
		if call.Opts.On(option.Long) {
			names = append(names, option.Long)
		}
	}
	sort.Strings(names)
	say := func(format string, args ...any) {
		fmt.Fprintf(call.Stderr, call.Command.Name+": "+format+"\n", args...)
	}
	say("defined options")
	say("-------------------- --------------------")
	for _, name := range names {
		value, _ := call.Opts.Get(name)
		text := value.Text
		switch {
		case name == "verbose":
			text = strconv.Itoa(value.Count)
		case !value.Has && text == "":
			text = "set"
		}
		say("%-20s: %s", name, text)
	}
	say("-------------------- --------------------")
	say("end of defined options")
}

// sayLaunch tells of a step that was made what srun -v does: the nodes and CPUs of its job, and
// the tasks of each node.
func (r *stepRun) sayLaunch() {
	for _, part := range partsOf(r.created) {
		allocation := part.GetJob().GetAllocation()
		cpus := make([]int, len(allocation))
		for i, node := range allocation {
			cpus[i] = spec.Bitset(node.GetCpus()).Count()
		}
		r.printLine(
			"jobid %d: nodes(%d):`%s', cpu counts: %s",
			part.GetJobId(), len(allocation), part.GetJob().GetNodes(), countsWithNodes(cpus),
		)
		for _, node := range part.GetNodes() {
			ranks := make([]string, len(node.GetRanks()))
			for i, rank := range node.GetRanks() {
				ranks[i] = "t" + tool.Itoa(rank)
			}
			r.printLine(
				"launching %s on host %s, %d tasks: %s",
				placeName(part), node.GetName(), len(ranks),
				strings.TrimPrefix(hostlist.Fold(ranks), "t"),
			)
		}
	}
}

// countsWithNodes writes 8(x2),4(x1): unlike SLURM_TASKS_PER_NODE it names one node too.
func countsWithNodes(counts []int) string {
	var parts []string
	for i := 0; i < len(counts); {
		next := i
		for next < len(counts) && counts[next] == counts[i] {
			next++
		}
		parts = append(parts, fmt.Sprintf("%d(x%d)", counts[i], next-i))
		i = next
	}
	return strings.Join(parts, ",")
}

// endedWell is said of a task without an error where srun is verbose.
const endedWell = "Completed"
