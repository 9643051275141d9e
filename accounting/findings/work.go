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
		work := &list[i]
		k := key{user: work.User, account: work.Account, jobName: work.JobName, node: work.Node}
		g := at[k]
		if g == nil {
			g = &group{key: k, by: map[Outcome]*Work{}}
			at[k] = g
			order = append(order, g)
		}
		g.by[work.Outcome] = work
		g.held += work.GPUHeld
		g.cpu += work.CPUHeld
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
	var findings []Finding
	if work := g.by[Ended]; work != nil {
		findings = append(findings, g.findIdle(work)...)
		findings = append(findings, g.findSpare(work, uneven)...)
	}
	lost := func(outcome Outcome, kind Kind, step string, minRuns int64) *Finding {
		work := g.by[outcome]
		if work == nil || work.Runs < minRuns {
			return nil
		}
		finding := g.start(kind, step, work.Runs, work.GPUHeld)
		finding.CPU = work.CPUHeld
		if g.held == 0 {
			finding.Resource = CPUTime
			finding.Basis = g.cpu
		}
		findings = append(findings, finding)
		return &findings[len(findings)-1]
	}
	if f := lost(EarlyFailure, Crash, "failed_user", MinRuns); f != nil {
		f.Advice = fmt.Sprintf(
			"%d runs failed in their first minute: run one, read its errors, then submit the rest", f.Runs)
		f.Change = "#SBATCH --dependency=afterok:FIRST_JOB"
	}
	if finding := lost(LateFailure, Failing, "failed_user", MinRuns); finding != nil {
		finding.Advice = fmt.Sprintf("%d runs failed after more than a minute: save checkpoints, "+
			"and continue from the last", finding.Runs)
	}
	if f := lost(LimitReached, TimedOut, "failed_timeout", 1); f != nil {
		limit := g.by[LimitReached].MostLimit
		f.Advice = fmt.Sprintf("%s reached the time limit: ask for more, or save a checkpoint "+
			"on the signal before it", counted(f.Runs, "run"))
		if limit > 0 {
			f.Change = fmt.Sprintf("#SBATCH --time=%s --signal=B:USR1@300", clock(roundTime(2*limit)))
		}
	}
	if finding := lost(MemoryRanOut, OutOfMem, "failed_memory", 1); finding != nil {
		most := g.by[MemoryRanOut].MostMem
		finding.Advice = fmt.Sprintf("%s ran out of memory, with up to %d MiB a node",
			counted(finding.Runs, "run"), most)
		if most > 0 {
			finding.Change = fmt.Sprintf("#SBATCH --mem=%dG", gibibytes(most+most/2))
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
	return findings
}

// findIdle is about devices of runs that ended well or go on.
func (g *group) findIdle(work *Work) []Finding {
	const step = "held_idle"
	var findings []Finding
	if work.AllIdle > 0 {
		finding := g.start(Idle, step, work.AllIdleRuns, work.AllIdle)
		finding.Advice = "no GPU of these runs did anything: ask for none, end the session, " +
			"or find out why the program does not see them"
		finding.Change = "#SBATCH --gpus=0"
		findings = append(findings, finding)
	}
	if work.NeverUsed > 0 {
		finding := g.start(Unused, step, work.NeverUsedRuns, work.NeverUsed)
		finding.Advice = fmt.Sprintf(
			"at most %d of %d GPUs did anything", work.MostWorked, work.MostGPUs,
		)
		if work.MostWorked < work.MostGPUs {
			finding.Change = fmt.Sprintf("#SBATCH --gpus=%d", work.MostWorked)
		}
		findings = append(findings, finding)
	}
	if work.Between > 0 {
		finding := g.start(Input, step, work.BetweenRuns, work.Between)
		finding.Advice = "the GPUs wait for data or for another part of the program: " +
			"load data ahead, or share a device"
		// Where the CPUs were busy all the time, more of them load data faster.
		if work.MostNodes == 1 && 10*work.MostBusyCPUs >= 9*1000*work.MostCPUs &&
			work.MostCPUs > 0 {
			finding.Change = fmt.Sprintf("#SBATCH --cpus-per-task=%d", 2*work.MostCPUs)
		}
		findings = append(findings, finding)
	}
	return findings
}

// findSpare is about what else runs asked for and did not use. CPUs that waited for
// another node are in the finding about that.
func (g *group) findSpare(work *Work, uneven []Finding) []Finding {
	var findings []Finding
	waited := slices.ContainsFunc(uneven, func(finding Finding) bool {
		return finding.Resource == CPUTime && finding.User == g.user &&
			finding.Account == g.account && finding.JobName == g.jobName
	})
	if work.MeasuredRuns >= MinRuns && work.MostCPUs >= 2 && !waited {
		// A twentieth of a CPU is noise.
		want := max((work.MostBusyCPUs-50+999)/1000, 1, work.MostNodes)
		if want*4 <= work.MostCPUs*spareQuarters {
			finding := g.start(CPUs, "", work.MeasuredRuns, 0)
			finding.Resource = CPUTime
			finding.CPU = max(0, work.CPUMeasured-work.CPUUsed)
			finding.Basis = work.CPUMeasured
			finding.Advice = fmt.Sprintf("at most %d of %d CPUs were busy", want, work.MostCPUs)
			if work.MostNodes == 1 {
				finding.Change = fmt.Sprintf("#SBATCH --cpus-per-task=%d", want)
			}
			findings = append(findings, finding)
		}
	}
	if work.MeasuredRuns >= MinRuns && work.MostPeak > 0 {
		want := gibibytes(work.MostPeak + work.MostPeak/4)
		if want*1024*4 <= work.MostMem*spareQuarters {
			finding := g.start(Memory, "", work.MeasuredRuns, 0)
			finding.Resource = MemoryTime
			finding.Mem = work.MemUnused
			finding.Basis = work.MemHeld
			finding.Advice = fmt.Sprintf(
				"at most %d of %d MiB a node were used", work.MostPeak, work.MostMem,
			)
			finding.Change = fmt.Sprintf("#SBATCH --mem=%dG", want)
			findings = append(findings, finding)
		}
	}
	if work.LimitRuns >= MinRuns {
		want := roundTime(work.LongestRun + work.LongestRun/4)
		if want*4 <= work.MostLimit*spareQuarters {
			f := g.start(TimeLimit, "", work.LimitRuns, 0)
			f.Resource = NoResource
			f.Advice = fmt.Sprintf("the longest took %s of %s: a shorter limit fits into gaps "+
				"before others start", clock(work.LongestRun), clock(work.MostLimit))
			f.Change = "#SBATCH --time=" + clock(want)
			findings = append(findings, f)
		}
	}
	return findings
}

func findInNode(node Node) []Finding {
	var findings []Finding
	if node.Drained >= MinAway {
		findings = append(findings, Finding{
			Kind: Drained, Node: node.Name, Resource: GPUTime, Step: "drained", GPU: node.Drained,
			Basis:  node.Bought,
			Advice: "the node is drained and no run held its GPUs: repair it, or return it",
			Change: fmt.Sprintf("scontrol update nodename=%s state=resume", node.Name),
		})
	}
	if node.Down >= MinAway {
		findings = append(findings, Finding{
			Kind: Down, Node: node.Name, Resource: GPUTime, Step: "down", GPU: node.Down,
			Basis:  node.Bought,
			Advice: "the node was down: sinfo -R says since when and why",
			Change: fmt.Sprintf("scontrol update nodename=%s state=resume", node.Name),
		})
	}
	return findings
}

// findSlow compares the same work on different nodes: the median of a node with
// the median of the other nodes' medians.
func findSlow(places []Place) []Finding {
	var measured []Place
	had := map[string]int64{}
	for _, place := range places {
		had[place.Node] += place.Had
		if place.Runs >= MinRuns && place.GPUs > 0 {
			measured = append(measured, place)
		}
	}
	slow := map[string]*Finding{}
	for _, same := range groupPeers(measured, Place.sameWork) {
		slices.SortFunc(same, func(a, b Place) int {
			return cmp.Or(cmp.Compare(a.Median, b.Median), cmp.Compare(a.Node, b.Node))
		})
		for i, place := range same {
			usual := medianOfOthers(same, i).Median
			if place.Median*4 < usual*slowQuarters {
				continue
			}
			lost := min(max(0, place.Total-place.Runs*usual)*place.GPUs, place.Had)
			f := slow[place.Node]
			if f == nil {
				f = &Finding{
					Kind:     Slow,
					Node:     place.Node,
					Resource: GPUTime,
					Step:     "good",
					Basis:    had[place.Node],
				}
				f.Advice = "the same jobs take a quarter longer there, or more, than on the other nodes: " +
					"look at clocks, throttling, ECC and the fabric (muster gpu)"
				f.Change = fmt.Sprintf(
					"scontrol update nodename=%s state=drain reason=\"slower than its peers\"",
					place.Node,
				)
				slow[place.Node] = f
			}
			f.Runs += place.Runs
			f.GPU += lost
		}
	}
	findings := make([]Finding, 0, len(slow))
	for _, node := range slices.Sorted(maps.Keys(slow)) {
		findings = append(findings, *slow[node])
	}
	return findings
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
