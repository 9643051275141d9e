package daemon

import (
	"context"

	"github.com/musterhpc/muster/accounting/kpi"
	"github.com/musterhpc/muster/accounting/query"
	"github.com/musterhpc/muster/internal/slo"
	"github.com/musterhpc/muster/spec"
)

// objectives reports how the waits of the jobs that started in the window kept the
// site's objectives, by QOS, and what is left of the errors that they allow.
func (r *report) objectives(ctx context.Context) error {
	ratio := string(kpi.Ratio)
	r.addColumns(
		[3]string{"QOS", "text"},
		[3]string{"Objective", "text"},
		[3]string{"Starts", "int"},
		[3]string{"In time", "int"},
		[3]string{"Kept", "float", ratio},
		[3]string{"Budget left", "float", ratio},
	)
	var named []query.QOSWait
	var rest *spec.Span
	of := map[string]slo.Objective{}
	for _, objective := range r.s.D.cfg.Objectives {
		switch {
		case objective.Kind != slo.Wait:
			continue
		case objective.Class == slo.EveryQOS:
			rest = &objective.Within
		default:
			named = append(named, query.QOSWait{QOS: objective.Class, Within: objective.Within})
		}
		of[objective.Class] = objective
	}
	if len(of) == 0 {
		return nil
	}
	return r.runQuery(ctx, r.ask.Waits(r.scope, named, rest), func(scan func(...any) error) error {
		var qos string
		var starts, good int64
		if err := scan(&qos, &starts, &good); err != nil {
			return err
		}
		objective, ok := of[qos]
		if !ok {
			objective = of[slo.EveryQOS]
		}
		kept := float64(good) / float64(max(starts, 1))
		r.addRow(qos, objective.Text(), starts, good, kept, 1-(1-kept)/(1-objective.Part))
		return nil
	})
}

// reportPromises tells, by partition and QOS, how the promises of a start that were
// due in the window were kept.
func (r *report) reportPromises(ctx context.Context) error {
	seconds := string(kpi.Seconds)
	r.addColumns(
		[3]string{"Partition", "text"},
		[3]string{"QOS", "text"},
		[3]string{"Promises", "int"},
		[3]string{"Kept", "int"},
		[3]string{"Share kept", "float", string(kpi.Ratio)},
		[3]string{"Late, median", "float", seconds},
		[3]string{"Late, P95", "float", seconds},
		[3]string{"Latest", "float", seconds},
	)
	return r.runQuery(ctx, r.ask.Promises(r.scope), func(scan func(...any) error) error {
		var partition, qos string
		var promises, kept int64
		var median, p95, latest float64
		if err := scan(&partition, &qos, &promises, &kept, &median, &p95, &latest); err != nil {
			return err
		}
		share := float64(kept) / float64(max(promises, 1))
		r.addRow(partition, qos, promises, kept, share, median, p95, latest)
		return nil
	})
}
