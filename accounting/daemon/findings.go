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

// querySeen asks for what findings of a window are made of. The ladder and the nodes are
// of the whole cluster, so they are left out where only some users or accounts are
// asked about.
func (r *report) querySeen(ctx context.Context, request query.Report) (findings.Seen, error) {
	var seen findings.Seen
	err := r.runQuery(ctx, request.FindingsWork(r.scope), func(scan func(...any) error) error {
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
	if err != nil {
		return seen, err
	}
	for _, resource := range []findings.Resource{findings.GPUTime, findings.CPUTime} {
		spreads := request.FindingsSpreads(r.scope, resource)
		err = r.runQuery(ctx, spreads, func(scan func(...any) error) error {
			spread := findings.Spread{Resource: resource}
			err := scan(
				&spread.User, &spread.Account, &spread.JobName, &spread.Held, &spread.AllRuns,
				&spread.Runs, &spread.Waited, &spread.Open,
				&spread.Late, &spread.LateRuns, &spread.Behind, &spread.BehindRuns,
			)
			seen.Spreads = append(seen.Spreads, spread)
			return err
		})
		if err != nil {
			return seen, err
		}
	}
	if !wholeCluster(&request) {
		return seen, nil
	}
	err = r.runQuery(ctx, request.FindingsDevices(r.scope), func(scan func(...any) error) error {
		var device findings.Device
		err := scan(
			&device.User, &device.Account, &device.JobName, &device.Type, &device.MemMHz,
			&device.Node, &device.UUID, &device.Index,
			&device.Runs, &device.Load, &device.MHz, &device.Throttled, &device.Alone, &device.Open,
		)
		seen.Devices = append(seen.Devices, device)
		return err
	})
	if err != nil {
		return seen, err
	}
	err = r.runQuery(ctx, request.FindingsPlaces(r.scope), func(scan func(...any) error) error {
		var place findings.Place
		err := scan(
			&place.User, &place.Account, &place.JobName, &place.Node,
			&place.GPUs, &place.Runs, &place.Median, &place.Total, &place.Had,
		)
		seen.Places = append(seen.Places, place)
		return err
	})
	if err != nil {
		return seen, err
	}
	seen.Nodes, seen.Steps, err = r.queryLadder(ctx, request)
	return seen, err
}

// queryLadder asks for the goodput ladder, and for the GPU time of each node that no run held. It
// has no step where no GPU was there.
func (r *report) queryLadder(ctx context.Context, request query.Report) (
	nodes []findings.Node,
	steps []findings.Step,
	err error,
) {
	err = r.runQuery(ctx, request.FindingsLadder(r.scope), func(scan func(...any) error) error {
		var names []string
		var amounts, bought, drained, down []int64
		if err := scan(&amounts, &names, &bought, &drained, &down); err != nil {
			return err
		}
		for i, name := range names {
			nodes = append(nodes, findings.Node{
				Name:    name,
				Bought:  bought[i],
				Drained: drained[i],
				Down:    down[i],
			})
		}
		all := int64(0)
		for i, step := range kpi.Steps() {
			steps = append(steps, findings.Step{Name: step.Name, Words: step.Words, GPU: amounts[i]})
			all += amounts[i]
		}
		if all == 0 {
			steps = nil
		}
		return nil
	})
	return nodes, steps, err
}

// wholeCluster tells whether nothing restricts a report.
func wholeCluster(request *query.Report) bool {
	return len(request.Accounts)+len(request.Users)+len(request.Partitions)+len(request.QOS)+
		len(request.WCKeys)+len(request.Jobs)+len(request.Nodes) == 0
}

// priceAt is what an hour of each resource costs at an instant.
func priceAt(rates *kpi.Rates, at spec.Instant) findings.Price {
	var price findings.Price
	for _, list := range rates.Prices {
		if list.From > at {
			break
		}
		price = findings.Price{}
		for _, p := range list.Per {
			switch p.TRES {
			case "gres/gpu":
				price.GPU = p.Micro
			case "cpu":
				price.CPU = p.Micro
			case "mem":
				price.Mem = p.Micro
			}
		}
	}
	return price
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
	r.addColumns(findingColumns(r.s.D.cfg.Rates.Currency)...)
	for i := range list[:min(len(list), r.addLines())] {
		finding := &list[i]
		var money any
		if price.Known() {
			money = float64(finding.Money) / 1e6
		}
		r.addRow(
			string(finding.Kind), finding.User, finding.Account, finding.JobName, finding.Node,
			finding.Step, finding.Runs,
			finding.GPU, finding.CPU, finding.Mem, money, finding.Change, finding.Advice,
			r.ask.FindingEvidence(finding),
			finding.Open, finding.Device, finding.Index,
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
		{"open_us", "int", "GPU-microseconds"}, {"device", "text"}, {"gpu", "int"},
	}
}

// reportUnlike lists runs that behave unlike their user's earlier runs of the same work.
func (r *report) reportUnlike(ctx context.Context) error {
	r.addColumns(
		[3]string{"job", "int"}, [3]string{"restart", "int"}, [3]string{"user", "text"},
		[3]string{"account", "text"}, [3]string{"job_name", "text"}, [3]string{"state", "text"},
		[3]string{"start_us", "int", "microseconds"}, [3]string{"gpus", "int"},
		[3]string{"held_us", "int", "GPU-microseconds"}, [3]string{"measure", "text"},
		[3]string{"unit", "text"}, [3]string{"value", "float"}, [3]string{"first_quartile", "float"},
		[3]string{"median", "float"}, [3]string{"third_quartile", "float"},
		[3]string{"earlier_runs", "int"}, [3]string{"evidence", "text"},
	)
	return r.runQuery(ctx, r.ask.FindingsUnlike(r.scope, r.addLines()), func(scan func(...any) error) error {
		var job, restart uint32
		var user, account, work, state, measure, unit string
		var start, gpus, held, earlier int64
		var value, low, middle, high float64
		err := scan(
			&job, &restart, &user, &account, &work, &state, &start, &gpus, &held,
			&measure, &unit, &value, &low, &middle, &high, &earlier,
		)
		if err != nil {
			return err
		}
		r.addRow(
			int64(job), int64(restart), user, account, work, state, start, gpus, held,
			measure, unit, value, low, middle, high, earlier,
			r.ask.UnlikeEvidence(user, account, work, gpus),
		)
		return nil
	})
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
	r.addColumns(
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

// windowBefore asks the same about the window before, which is as long.
func windowBefore(request query.Report) query.Report {
	length := request.End - request.Start
	request.End = request.Start
	request.Start -= length
	return request
}

// reportFindingsFollowed says what became of the findings of the window before, which
// is as long.
func (r *report) reportFindingsFollowed(ctx context.Context) error {
	now, err := r.readSeen(ctx, r.ask)
	if err != nil {
		return err
	}
	request := windowBefore(r.ask)
	if request.Start < 0 {
		return spec.Refuse(
			spec.CodeBadRequest,
			fmt.Sprintf("the window before would begin before 1970: choose a shorter one than %s",
				time.Duration(r.ask.End.Sub(r.ask.Start))),
		)
	}
	before, err := r.readSeen(ctx, request)
	if err != nil {
		return err
	}
	price := priceAt(&r.s.D.cfg.Rates, r.ask.End)
	list := findings.Find(before)
	findings.Rank(list, price)
	list = list[:min(len(list), r.addLines())]
	r.addColumns(
		[3]string{"kind", "text"}, [3]string{"user", "text"}, [3]string{"account", "text"},
		[3]string{"job_name", "text"}, [3]string{"node", "text"}, [3]string{"progress", "text"},
		[3]string{"resource", "text"},
		[3]string{"before_us", "int", "microseconds"}, [3]string{"now_us", "int", "microseconds"},
		[3]string{"saved_us", "int", "microseconds"},
		[3]string{"saved_value", "float", r.s.D.cfg.Rates.Currency},
		[3]string{"device", "text"}, [3]string{"gpu", "int"},
	)
	for _, followed := range findings.FollowUp(list, now, price) {
		var money any
		if price.Known() {
			money = float64(followed.SavedMoney) / 1e6
		}
		r.addRow(
			string(followed.Kind), followed.User, followed.Account, followed.JobName, followed.Node,
			string(followed.Progress),
			string(followed.Resource), followed.Amount(), followed.Now, followed.Saved, money,
			followed.Device, followed.Index,
		)
	}
	return nil
}
