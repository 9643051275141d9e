package findings

import (
	"cmp"
	"fmt"
	"maps"
	"math/bits"
	"slices"

	"github.com/musterhpc/muster/spec/format"
)

// scale is a * num / den without overflow, for num <= den and what is not negative.
func scale(a, num, den int64) int64 {
	high, low := bits.Mul64(uint64(a), uint64(num))
	quotient, _ := bits.Div64(high, low, uint64(den))
	return int64(quotient)
}

// group is the work of one user, account and job name, by outcome.
type group struct {
	key

	by   map[Outcome]*Work
	held int64 // GPU time of all of them
	cpu  int64
}

// groupWork brings the outcomes of the same work together, sorted by name.
func groupWork(list []Work) []*group {
	var order []*group
	at := map[key]*group{}
	for i := range list {
		w := &list[i]
		k := key{user: w.User, account: w.Account, jobName: w.JobName, node: w.Node}
		g := at[k]
		if g == nil {
			g = &group{key: k, by: map[Outcome]*Work{}}
			at[k] = g
			order = append(order, g)
		}
		g.by[w.Outcome] = w
		g.held += w.GPUHeld
		g.cpu += w.CPUHeld
	}
	slices.SortFunc(order, func(a, b *group) int { return compareKeys(a.key, b.key) })
	return order
}

// start is a finding about the group.
func (g *group) start(kind Kind, step string, runs, gpu int64) Finding {
	return Finding{
		Kind:     kind,
		User:     g.user,
		Account:  g.account,
		JobName:  g.jobName,
		Node:     g.node,
		Resource: GPUTime,
		Step:     step,
		Runs:     runs,
		GPU:      gpu,
		Basis:    g.held,
	}
}

func findInWork(g *group, uneven []Finding) []Finding {
	var out []Finding
	if w := g.by[Ended]; w != nil {
		out = append(out, g.findIdle(w)...)
		out = append(out, g.findSpare(w, uneven)...)
	}
	lost := func(outcome Outcome, kind Kind, step string, minRuns int64) *Finding {
		w := g.by[outcome]
		if w == nil || w.Runs < minRuns {
			return nil
		}
		f := g.start(kind, step, w.Runs, w.GPUHeld)
		f.CPU = w.CPUHeld
		if g.held == 0 {
			f.Resource = CPUTime
			f.Basis = g.cpu
		}
		out = append(out, f)
		return &out[len(out)-1]
	}
	if f := lost(EarlyFailure, Crash, "failed_user", MinRuns); f != nil {
		f.Advice = fmt.Sprintf(
			"%d runs failed in their first minute: run one, read its errors, then submit the rest", f.Runs)
		f.Change = "#SBATCH --dependency=afterok:FIRST_JOB"
	}
	if f := lost(LateFailure, Failing, "failed_user", MinRuns); f != nil {
		f.Advice = fmt.Sprintf("%d runs failed after more than a minute: save checkpoints, "+
			"and continue from the last", f.Runs)
	}
	if f := lost(LimitReached, TimedOut, "failed_timeout", 1); f != nil {
		limit := g.by[LimitReached].MostLimit
		f.Advice = fmt.Sprintf("%s reached the time limit: ask for more, or save a checkpoint "+
			"on the signal before it", counted(f.Runs, "run"))
		if limit > 0 {
			f.Change = fmt.Sprintf("#SBATCH --time=%s --signal=B:USR1@300", clock(roundTime(2*limit)))
		}
	}
	if f := lost(MemoryRanOut, OutOfMem, "failed_memory", 1); f != nil {
		most := g.by[MemoryRanOut].MostMem
		f.Advice = fmt.Sprintf("%s ran out of memory, with up to %d MiB a node",
			counted(f.Runs, "run"), most)
		if most > 0 {
			f.Change = fmt.Sprintf("#SBATCH --mem=%dG", gibibytes(most+most/2))
		}
	}
	if f := lost(WasPreempted, Preempted, "preempted", 1); f != nil {
		f.Advice = fmt.Sprintf("%s lost to preemption or to a requeue: save a checkpoint on the "+
			"signal, and continue from it", countedWere(f.Runs, "run"))
		f.Change = "#SBATCH --requeue --signal=B:USR1@120"
	}
	if f := lost(NodeFailed, BadNode, "failed_node", 1); f != nil {
		f.Advice = fmt.Sprintf("%s lost when the node failed: test it before it runs jobs again",
			countedWere(f.Runs, "run"))
		f.Change = fmt.Sprintf("scontrol update nodename=%s state=drain reason=\"failed under %s\"",
			g.node, counted(f.Runs, "run"))
	}
	return out
}

// findIdle is about devices of runs that ended well or go on.
func (g *group) findIdle(w *Work) []Finding {
	const step = "held_idle"
	var out []Finding
	if w.AllIdle > 0 {
		f := g.start(Idle, step, w.AllIdleRuns, w.AllIdle)
		f.Advice = "no GPU of these runs did anything: ask for none, end the session, " +
			"or find out why the program does not see them"
		f.Change = "#SBATCH --gpus=0"
		out = append(out, f)
	}
	if w.NeverUsed > 0 {
		f := g.start(Unused, step, w.NeverUsedRuns, w.NeverUsed)
		f.Advice = fmt.Sprintf("at most %d of %d GPUs did anything", w.MostWorked, w.MostGPUs)
		if w.MostWorked < w.MostGPUs {
			f.Change = fmt.Sprintf("#SBATCH --gpus=%d", w.MostWorked)
		}
		out = append(out, f)
	}
	if w.Between > 0 {
		f := g.start(Input, step, w.BetweenRuns, w.Between)
		f.Advice = "the GPUs wait for data or for another part of the program: " +
			"load data ahead, or share a device"
		// Where the CPUs were busy all the time, more of them load data faster.
		if w.MostNodes == 1 && 10*w.MostBusyCPUs >= 9*1000*w.MostCPUs && w.MostCPUs > 0 {
			f.Change = fmt.Sprintf("#SBATCH --cpus-per-task=%d", 2*w.MostCPUs)
		}
		out = append(out, f)
	}
	return out
}

// findSpare is about what else runs asked for and did not use. CPUs that waited for
// another node are in the finding about that.
func (g *group) findSpare(w *Work, uneven []Finding) []Finding {
	var out []Finding
	waited := slices.ContainsFunc(uneven, func(f Finding) bool {
		return f.Resource == CPUTime && f.User == g.user && f.Account == g.account && f.JobName == g.jobName
	})
	if w.MeasuredRuns >= MinRuns && w.MostCPUs >= 2 && !waited {
		// A twentieth of a CPU is noise.
		want := max((w.MostBusyCPUs-50+999)/1000, 1, w.MostNodes)
		if want*4 <= w.MostCPUs*spareQuarters {
			f := g.start(CPUs, "", w.MeasuredRuns, 0)
			f.Resource = CPUTime
			f.CPU = max(0, w.CPUMeasured-w.CPUUsed)
			f.Basis = w.CPUMeasured
			f.Advice = fmt.Sprintf("at most %d of %d CPUs were busy", want, w.MostCPUs)
			if w.MostNodes == 1 {
				f.Change = fmt.Sprintf("#SBATCH --cpus-per-task=%d", want)
			}
			out = append(out, f)
		}
	}
	if w.MeasuredRuns >= MinRuns && w.MostPeak > 0 {
		want := gibibytes(w.MostPeak + w.MostPeak/4)
		if want*1024*4 <= w.MostMem*spareQuarters {
			f := g.start(Memory, "", w.MeasuredRuns, 0)
			f.Resource = MemoryTime
			f.Mem = w.MemUnused
			f.Basis = w.MemHeld
			f.Advice = fmt.Sprintf("at most %d of %d MiB a node were used", w.MostPeak, w.MostMem)
			f.Change = fmt.Sprintf("#SBATCH --mem=%dG", want)
			out = append(out, f)
		}
	}
	if w.LimitRuns >= MinRuns {
		want := roundTime(w.LongestRun + w.LongestRun/4)
		if want*4 <= w.MostLimit*spareQuarters {
			f := g.start(TimeLimit, "", w.LimitRuns, 0)
			f.Resource = NoResource
			f.Advice = fmt.Sprintf("the longest took %s of %s: a shorter limit fits into gaps "+
				"before others start", clock(w.LongestRun), clock(w.MostLimit))
			f.Change = "#SBATCH --time=" + clock(want)
			out = append(out, f)
		}
	}
	return out
}

func findInNode(n Node) []Finding {
	var out []Finding
	if n.Drained >= MinAway {
		out = append(out, Finding{
			Kind: Drained, Node: n.Name, Resource: GPUTime, Step: "drained", GPU: n.Drained, Basis: n.Bought,
			Advice: "the node is drained and no run held its GPUs: repair it, or return it",
			Change: fmt.Sprintf("scontrol update nodename=%s state=resume", n.Name),
		})
	}
	if n.Down >= MinAway {
		out = append(out, Finding{
			Kind: Down, Node: n.Name, Resource: GPUTime, Step: "down", GPU: n.Down, Basis: n.Bought,
			Advice: "the node was down: sinfo -R says since when and why",
			Change: fmt.Sprintf("scontrol update nodename=%s state=resume", n.Name),
		})
	}
	return out
}

// findSlow compares the same work on different nodes: the median of a node with
// the median of the other nodes' medians.
func findSlow(places []Place) []Finding {
	var measured []Place
	had := map[string]int64{}
	for _, p := range places {
		had[p.Node] += p.Had
		if p.Runs >= MinRuns && p.GPUs > 0 {
			measured = append(measured, p)
		}
	}
	slow := map[string]*Finding{}
	for _, same := range groupPeers(measured, Place.sameWork) {
		slices.SortFunc(same, func(a, b Place) int {
			return cmp.Or(cmp.Compare(a.Median, b.Median), cmp.Compare(a.Node, b.Node))
		})
		for i, p := range same {
			usual := medianOfOthers(same, i).Median
			if p.Median*4 < usual*slowQuarters {
				continue
			}
			lost := min(max(0, p.Total-p.Runs*usual)*p.GPUs, p.Had)
			f := slow[p.Node]
			if f == nil {
				f = &Finding{Kind: Slow, Node: p.Node, Resource: GPUTime, Step: "good", Basis: had[p.Node]}
				f.Advice = "the same jobs take a quarter longer there, or more, than on the other nodes: " +
					"look at clocks, throttling, ECC and the fabric (muster gpu)"
				f.Change = fmt.Sprintf("scontrol update nodename=%s state=drain reason=\"slower than its peers\"", p.Node)
				slow[p.Node] = f
			}
			f.Runs += p.Runs
			f.GPU += lost
		}
	}
	out := make([]Finding, 0, len(slow))
	for _, node := range slices.Sorted(maps.Keys(slow)) {
		out = append(out, *slow[node])
	}
	return out
}

func counted(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func countedWere(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun + " was"
	}
	return counted(n, noun) + " were"
}

func gibibytes(mib int64) int64 { return max(1, (mib+1023)/1024) }

// clock writes microseconds as a time limit.
func clock(us int64) string { return format.Duration((us + 999_999) / 1_000_000) }

// roundTime rounds up to five minutes, to hours from six hours on.
func roundTime(us int64) int64 {
	step := int64(hour / 12)
	if us > 6*hour {
		step = hour
	}
	return (us + step - 1) / step * step
}
