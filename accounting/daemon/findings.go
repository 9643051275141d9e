package daemon

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhpc/muster/accounting/findings"
	"github.com/musterhpc/muster/accounting/kpi"
	"github.com/musterhpc/muster/accounting/query"
	"github.com/musterhpc/muster/spec"
)

// readSeen reads what findings of a window are made of. The ladder and the nodes are
// of the whole cluster, so they are left out where only some users or accounts are
// asked about.
func (r *report) readSeen(ctx context.Context, ask query.Report) (findings.Seen, error) {
	var seen findings.Seen
	err := r.runQuery(ctx, ask.FindingsWork(r.scope), func(scan func(...any) error) error {
		var w findings.Work
		err := scan(
			&w.User, &w.Account, &w.JobName, &w.Node, (*string)(&w.Outcome),
			&w.Runs, &w.GPUHeld, &w.CPUHeld,
			&w.AllIdle, &w.NeverUsed, &w.Between,
			&w.AllIdleRuns, &w.NeverUsedRuns, &w.BetweenRuns,
			&w.CPUMeasured, &w.CPUUsed, &w.MemHeld, &w.MemUnused, &w.MeasuredRuns,
			&w.MostGPUs, &w.MostWorked, &w.MostCPUs, &w.MostNodes, &w.MostBusyCPUs,
			&w.MostMem, &w.MostPeak, &w.MostLimit,
			&w.LimitRuns, &w.LongestRun, &w.LimitUnused,
		)
		seen.Work = append(seen.Work, w)
		return err
	})
	if err != nil || !wholeCluster(&ask) {
		return seen, err
	}
	err = r.runQuery(ctx, ask.FindingsPlaces(r.scope), func(scan func(...any) error) error {
		var p findings.Place
		err := scan(
			&p.User, &p.Account, &p.JobName, &p.Node,
			&p.GPUs, &p.Runs, &p.Median, &p.Total, &p.Had,
		)
		seen.Places = append(seen.Places, p)
		return err
	})
	if err != nil {
		return seen, err
	}
	err = r.runQuery(ctx, ask.FindingsNodes(r.scope), func(scan func(...any) error) error {
		var n findings.Node
		err := scan(&n.Name, &n.Bought, &n.Drained, &n.Down)
		seen.Nodes = append(seen.Nodes, n)
		return err
	})
	if err != nil {
		return seen, err
	}
	err = r.runQuery(ctx, ask.FindingsSteps(r.scope), func(scan func(...any) error) error {
		var s findings.Step
		err := scan(&s.Name, &s.Words, &s.GPU)
		seen.Steps = append(seen.Steps, s)
		return err
	})
	return seen, err
}

// wholeCluster tells whether nothing restricts a report.
func wholeCluster(ask *query.Report) bool {
	return len(ask.Accounts)+len(ask.Users)+len(ask.Partitions)+len(ask.QOS)+
		len(ask.WCKeys)+len(ask.Jobs)+len(ask.Nodes) == 0
}

// priceAt is what an hour of each resource costs at an instant.
func priceAt(rates *kpi.Rates, at spec.Instant) findings.Price {
	var out findings.Price
	for _, list := range rates.Prices {
		if list.From > at {
			break
		}
		out = findings.Price{}
		for _, p := range list.Per {
			switch p.TRES {
			case "gres/gpu":
				out.GPU = p.Micro
			case "cpu":
				out.CPU = p.Micro
			case "mem":
				out.Mem = p.Micro
			}
		}
	}
	return out
}

// reportFindings is muster findings: what should be changed, that which would save
// most first.
func (r *report) reportFindings(ctx context.Context) error {
	seen, err := r.readSeen(ctx, r.ask)
	if err != nil {
		return err
	}
	list := findings.Find(seen)
	price := priceAt(&r.s.D.cfg.Rates, r.ask.End)
	findings.Rank(list, price)
	r.setColumns(findingColumns(r.s.D.cfg.Rates.Currency)...)
	for i := range list[:min(len(list), r.addLines())] {
		f := &list[i]
		var money any
		if price.Known() {
			money = float64(f.Money) / 1e6
		}
		r.addRow(
			string(f.Kind), f.User, f.Account, f.JobName, f.Node, f.Step, f.Runs,
			f.GPU, f.CPU, f.Mem, money, f.Change, f.Advice, r.ask.FindingEvidence(f),
		)
	}
	return nil
}

func findingColumns(currency string) [][3]string {
	return [][3]string{
		{"kind", "text"}, {"user", "text"}, {"account", "text"}, {"job_name", "text"},
		{"node", "text"}, {"step", "text"}, {"runs", "int"},
		{"gpu_us", "int", "GPU-microseconds"}, {"cpu_us", "int", "CPU-microseconds"},
		{"mem_mib_us", "int", "MiB-microseconds"}, {"value", "float", currency},
		{"change", "text"}, {"advice", "text"}, {"evidence", "text"},
	}
}

// reportFindingsSum sets the findings beside the goodput ladder.
func (r *report) reportFindingsSum(ctx context.Context) error {
	if !wholeCluster(&r.ask) {
		return spec.Refuse(
			spec.CodeBadRequest,
			"the goodput ladder is of the whole cluster: leave the users, accounts and other choices out",
		)
	}
	seen, err := r.readSeen(ctx, r.ask)
	if err != nil {
		return err
	}
	r.setColumns(
		[3]string{"step", "text"}, [3]string{"what", "text"},
		[3]string{"gpu_us", "int", "GPU-microseconds"},
		[3]string{"found_us", "int", "GPU-microseconds"},
		[3]string{"rest_us", "int", "GPU-microseconds"},
	)
	for _, line := range findings.AddUp(findings.Find(seen), seen.Steps) {
		r.addRow(line.Name, line.Words, line.GPU, line.Found, line.Rest())
	}
	return nil
}

// reportFindingsFollowed says what became of the findings of the window before, which
// is as long.
func (r *report) reportFindingsFollowed(ctx context.Context) error {
	now, err := r.readSeen(ctx, r.ask)
	if err != nil {
		return err
	}
	ask := r.ask
	ask.Start = r.ask.Start - r.ask.End + r.ask.Start
	ask.End = r.ask.Start
	if ask.Start < 0 {
		return spec.Refuse(
			spec.CodeBadRequest,
			fmt.Sprintf("the window before would begin before 1970: choose a shorter one than %s",
				time.Duration(r.ask.End.Sub(r.ask.Start))),
		)
	}
	before, err := r.readSeen(ctx, ask)
	if err != nil {
		return err
	}
	price := priceAt(&r.s.D.cfg.Rates, r.ask.End)
	list := findings.Find(before)
	findings.Rank(list, price)
	list = list[:min(len(list), r.addLines())]
	r.setColumns(
		[3]string{"kind", "text"}, [3]string{"user", "text"}, [3]string{"account", "text"},
		[3]string{"job_name", "text"}, [3]string{"node", "text"}, [3]string{"progress", "text"},
		[3]string{"resource", "text"},
		[3]string{"before_us", "int", "microseconds"}, [3]string{"now_us", "int", "microseconds"},
		[3]string{"saved_us", "int", "microseconds"},
		[3]string{"saved_value", "float", r.s.D.cfg.Rates.Currency},
	)
	for _, f := range findings.FollowUp(list, now, price) {
		var money any
		if price.Known() {
			money = float64(f.SavedMoney) / 1e6
		}
		r.addRow(
			string(f.Kind), f.User, f.Account, f.JobName, f.Node, string(f.Progress),
			string(f.Resource), f.Amount(), f.Now, f.Saved, money,
		)
	}
	return nil
}
