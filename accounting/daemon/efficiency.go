package daemon

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/musterhpc/muster/accounting/kpi"
	"github.com/musterhpc/muster/spec"
)

// Lines of these reports when nothing is said, and at most.
const (
	reportLines = 20
	reportMost  = 10_000
)

func (r *report) addLines() int {
	return min(cmp.Or(int(r.q.GetTop()), reportLines), reportMost)
}

// reportEfficiency is the table of muster report user, account and site: how well
// runs that ended in the window used what they held.
func (r *report) reportEfficiency(ctx context.Context) error {
	by := cmp.Or(strings.ToLower(r.q.GetBy()), "user")
	if !slices.Contains([]string{"user", "account", "name", "partition"}, by) {
		return spec.Refuse(
			spec.CodeBadRequest,
			fmt.Sprintf(
				"efficiency is not told by %q: it is one of user, account, name, partition",
				by,
			),
		)
	}
	r.addColumns(
		[3]string{by, "text"},
		[3]string{"runs", "int"},
		[3]string{"cpu_hours", "float", "CPU-hours"},
		[3]string{"gpu_hours", "float", string(kpi.GPUHours)},
		[3]string{
			"cpu_efficiency",
			"float",
			string(kpi.Ratio),
		},
		[3]string{"memory_waste", "float", string(kpi.ByteHours)},
		[3]string{
			"memory_waste_share",
			"float",
			string(kpi.Ratio),
		},
		[3]string{"gpu_occupancy", "float", string(kpi.Ratio)},
		[3]string{"gpu_idle", "float", string(kpi.GPUHours)},
		[3]string{
			"failure_rate",
			"float",
			string(kpi.Ratio),
		},
		[3]string{"mean_wait", "float", string(kpi.Seconds)},
	)
	return r.runQuery(
		ctx,
		r.ask.Efficiency(r.scope, by, r.addLines()),
		func(scan func(...any) error) error {
			var key string
			var runs, failed, judged uint64
			var cpu, gpu, used, measured, waste, memory, util, gpuMeasured, idle, wait float64
			if err := scan(
				&key,
				&runs,
				&cpu,
				&gpu,
				&used,
				&measured,
				&waste,
				&memory,
				&util,
				&gpuMeasured,
				&idle,
				&failed,
				&judged,
				&wait,
			); err != nil {
				return err
			}
			part := func(num, den float64) any {
				if den == 0 {
					return nil
				}
				return num / den
			}
			known := func(value float64, seen bool) any {
				if !seen {
					return nil
				}
				return value / 3600
			}
			r.addRow(
				key,
				int64(runs),
				cpu/3600,
				gpu/3600,
				part(used, measured),
				known(waste, memory > 0),
				part(waste, memory),
				part(util, gpuMeasured),
				known(
					idle,
					gpuMeasured > 0,
				),
				part(float64(failed), float64(judged)),
				part(wait, float64(runs)),
			)
			return nil
		},
	)
}

// reportWaste is muster report waste: runs whose peak memory stayed below a part of
// what they held.
func (r *report) reportWaste(ctx context.Context) error {
	below := r.q.GetBelow()
	if below == 0 {
		below = 0.5
	}
	if below < 0 || below > 1 {
		return spec.Refuse(
			spec.CodeBadRequest,
			"memory-below is a part of what a run held: between 0 and 100 %",
		)
	}
	r.addColumns(
		[3]string{"JobID", "text"},
		[3]string{"User", "text"},
		[3]string{"Account", "text"},
		[3]string{"JobName", "text"},
		[3]string{"State", "text"},
		[3]string{
			"Elapsed",
			"float",
			string(kpi.Seconds),
		},
		[3]string{"Held", "int", "bytes"},
		[3]string{"Peak", "int", "bytes"},
		[3]string{
			"Ratio",
			"float",
			string(kpi.Ratio),
		},
		[3]string{"Waste", "float", string(kpi.ByteHours)},
	)
	return r.runQuery(
		ctx,
		r.ask.Waste(r.scope, below, r.addLines()),
		func(scan func(...any) error) error {
			var id, array uint32
			var task, elapsed, memory, peak int64
			var user, account, name, state string
			var ratio, waste float64
			if err := scan(
				&id,
				&array,
				&task,
				&user,
				&account,
				&name,
				&state,
				&elapsed,
				&memory,
				&peak,
				&ratio,
				&waste,
			); err != nil {
				return err
			}
			number := fmt.Sprint(id)
			if array != 0 {
				number = fmt.Sprintf("%d_%d", array, task)
			}
			r.addRow(
				number,
				user,
				account,
				name,
				state,
				float64(elapsed)/1e6,
				memory*mib,
				peak,
				ratio,
				waste/3600,
			)
			return nil
		},
	)
}

// reportIdle is muster report idle: who held GPUs longest without using them.
// GPUs and their samples know of the other choices nothing.
func (r *report) reportIdle(ctx context.Context) error {
	if a := &r.ask; len(a.QOS)+len(a.WCKeys)+len(a.Jobs)+len(a.Nodes) > 0 {
		return spec.Refuse(
			spec.CodeBadRequest,
			"the report of idle GPUs is for accounts, users and partitions: leave the QOS, wckeys, jobs and nodes out",
		)
	}
	r.addColumns(
		[3]string{"User", "text"},
		[3]string{"Idle", "float", string(kpi.GPUHours)},
		[3]string{"NoProcess", "float", string(kpi.GPUHours)},
		[3]string{
			"Held",
			"float",
			string(kpi.GPUHours),
		},
		[3]string{"Idle/held", "float", string(kpi.Ratio)},
	)
	return r.runQuery(ctx, r.ask.Idle(r.scope, r.addLines()), func(scan func(...any) error) error {
		var user string
		var idle, absent, held float64
		if err := scan(&user, &idle, &absent, &held); err != nil {
			return err
		}
		r.addRow(user, idle/3600, absent/3600, held/3600, idle/held)
		return nil
	})
}
