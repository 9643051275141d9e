package daemon

import (
	"context"
	"errors"

	"github.com/musterhpc/muster/accounting/findings"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

// Findings are those of the last days as they were last computed; nil before that. What it
// points to never changes.
func (d *Daemon) Findings() *findings.Found { return d.found.Load() }

// Findings are computed less often than KPIs: nobody acts on them within minutes, and on a
// large store they are the dearest of all questions.
const (
	findingsEvery = 4 // refreshes of the KPIs
	findingsPart  = 2 // the part of the time that the KPIs may take, divided by this
)

// refreshFindings computes the findings of metrics until the context ends.
func (d *Daemon) refreshFindings(ctx context.Context) {
	failures := 0
	for ctx.Err() == nil {
		began := d.cfg.Clock.Now()
		found, err := d.computeFindings(ctx)
		took := d.cfg.Clock.Now().Sub(began)
		switch {
		case err == nil:
			failures = 0
			d.found.Store(found)
		case errors.Is(err, errNothingStored):
			failures = 0
		case ctx.Err() == nil:
			failures++
			d.cfg.Log.Debug("the findings could not be computed", "error", err)
		}
		pause := findingsPause(findingsEvery*d.cfg.Refresh, took, d.cfg.RefreshShare, failures, err == nil)
		if !d.sleepFor(ctx, pause) {
			return
		}
	}
}

// findingsPause is the time until the next attempt. A cluster that has just begun shows its first
// findings soon, and so does a store that was away for a moment; a store that takes
// long, in vain or not, is spared.
func findingsPause(regular, took spec.Span, share int64, failures int, found bool) spec.Span {
	pause := regular
	if !found {
		pause = min(pause, spec.Second<<min(failures, 16))
	}
	return max(pause, findingsPart*pauseFor(took, share))
}

var errNothingStored = errors.New("nothing is stored yet")

// computeFindings looks at the last days, and at as many before them.
func (d *Daemon) computeFindings(ctx context.Context) (*findings.Found, error) {
	scope, _, err := d.openScope(ctx, 0)
	if err != nil {
		return nil, err
	}
	if scope.Seq == 0 {
		return nil, errNothingStored
	}
	query := &apiv1.ReportQuery{Window: int64(findings.MetricDays * spec.Day)}
	r, err := Service{D: d}.newReport(query, scope, true)
	if err != nil {
		return nil, err
	}
	now, err := r.readSeen(ctx, r.ask)
	if err != nil {
		return nil, err
	}
	before, err := r.readSeen(ctx, windowBefore(r.ask))
	if err != nil {
		return nil, err
	}
	return findings.Sum(before, now, priceAt(&d.cfg.Rates, r.ask.End)), nil
}
