package local

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
	"github.com/musterhpc/muster/sim/replay"
)

// churnOpenb runs simulate --openb --itp: pods arrive and leave, in --shuffles random orders.
func churnOpenb(call *tool.Call, p *packing, openb *replay.Openb) error {
	runs, err := readTrace(call, &simulation{kind: "itp", file: p.runs})
	if err != nil {
		return call.Errorf("%s: %v", p.runs, err)
	}
	rule, err := replay.RuleNamed("muster")
	if err != nil {
		return err
	}
	began, asTree := call.Now(), render.WantsDocument(call)
	var rows tree.List
	var total replay.Summary
	for seed := int64(1); seed <= p.shuffles; seed++ {
		workload, err := openb.Workload(replay.Arrivals{
			Seed:    uint64(seed),
			Pods:    int(p.pods),
			Nodes:   int(p.nodes),
			Percent: p.load,
			Runs:    runs,
			Mix:     p.mix,
		}, rule.Settings())
		if err != nil {
			return call.Errorf("%s: %v", p.runs, err)
		}
		told := newProgress(call, call.Now(), fmt.Sprintf("pods of order %d have left", seed))
		result, err := replay.Run(call.Ctx, workload, rule, told)
		progressOver(call)
		if errors.Is(err, context.Canceled) {
			return call.Errorf("interrupted: nothing was written")
		}
		if err != nil {
			return call.Errorf("order %d: %v", seed, err)
		}
		sum := result.Summarise()
		addChurn(&total, &sum)
		if asTree {
			rows = append(rows, append(tree.Object{{Key: "shuffle", Value: seed}}, summaryTree(&sum)...))
			continue
		}
		writeChurn(call, fmt.Sprintf("order %d", seed), &sum)
		if err := call.Out.Flush(); err != nil { // the next one takes its time
			return err
		}
	}
	divideChurn(&total, float64(p.shuffles))
	took := call.Now().Sub(began)
	if asTree {
		return render.PrintOffline(call, tree.Object{
			{Key: "packing", Value: p.spellPacking()},
			{Key: "load_percent", Value: p.load},
			{Key: "shuffles", Value: rows},
			{Key: "mean", Value: tree.Object{
				{Key: "mean_wait", Value: total.MeanWait},
				{Key: "p95_wait", Value: total.P95Wait},
				{Key: "mean_bounded_slowdown", Value: total.MeanSlowdown},
				{Key: "gpus_free", Value: total.GPUsFree},
				{Key: "gpus_stranded", Value: total.GPUsStranded},
			}},
			{Key: "seconds", Value: took.Seconds()},
		})
	}
	if p.shuffles > 1 {
		writeChurn(call, "mean", &total)
	}
	fmt.Fprintf(
		call.Out,
		"%d pods each, %d %% of the GPU time requested, placed by %s (%s s)\n",
		p.pods, p.load, p.spellPacking(), formatDecimals(took.Round(time.Second).Seconds(), 0),
	)
	return nil
}

// writeChurn writes the figures of one order as a line.
func writeChurn(call *tool.Call, name string, sum *replay.Summary) {
	fmt.Fprintf(
		call.Out,
		"%-9s mean wait %6s s, P95 %6s s, slowdown %s, GPUs free %s %%, stranded %s %%\n",
		name,
		formatDecimals(sum.MeanWait, 0),
		formatDecimals(sum.P95Wait, 0),
		formatDecimals(sum.MeanSlowdown, 3),
		formatDecimals(100*sum.GPUsFree, 2),
		formatDecimals(100*sum.GPUsStranded, 2),
	)
}

func addChurn(total, summary *replay.Summary) {
	total.MeanWait += summary.MeanWait
	total.P95Wait += summary.P95Wait
	total.MeanSlowdown += summary.MeanSlowdown
	total.GPUsFree += summary.GPUsFree
	total.GPUsStranded += summary.GPUsStranded
}

func divideChurn(total *replay.Summary, by float64) {
	total.MeanWait /= by
	total.P95Wait /= by
	total.MeanSlowdown /= by
	total.GPUsFree /= by
	total.GPUsStranded /= by
}
