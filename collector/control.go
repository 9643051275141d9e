package collector

import (
	"github.com/musterhpc/muster/internal/catalogue"
	"github.com/musterhpc/muster/spec"
)

func secs(d spec.Span) float64 { return float64(d) / float64(spec.Second) }

// one is a family with a single series.
func one(m catalogue.Metric, read func(s *scrape) float64) family {
	return family{m, func(s *scrape) { s.send(read(s)) }}
}

//muster:table one entry for each metric
func schedulerFamilies() []family {
	const src = "pass statistics of the controller since it started"
	return []family{
		one(counter("muster_scheduler_passes_total", "Scheduling passes over the queue.", catalogue.None, src, "1"), func(s *scrape) float64 { return float64(s.v.Pass.Passes) }),
		one(counter("muster_scheduler_pass_seconds_total", "Time spent in scheduling passes.", catalogue.Seconds, src, "1"), func(s *scrape) float64 { return secs(s.v.Pass.Total) }),
		one(gauge("muster_scheduler_pass_last_seconds", "Time the last pass took.", catalogue.Seconds, src, "1"), func(s *scrape) float64 { return secs(s.v.Pass.Last) }),
		one(gauge("muster_scheduler_pass_max_seconds", "Time the longest pass took.", catalogue.Seconds, src, "1"), func(s *scrape) float64 { return secs(s.v.Pass.Max) }),
		one(gauge("muster_scheduler_pass_depth", "Jobs tried in the last pass.", catalogue.None, src, "1"), func(s *scrape) float64 { return float64(s.v.Pass.Depth) }),
		one(gauge("muster_scheduler_planned_jobs", "Jobs with a predicted start in the plan.", catalogue.None, src, "1"), func(s *scrape) float64 { return float64(s.v.Pass.Planned) }),
		one(gauge("muster_scheduler_queue_records", "Pending job records at the last pass.", catalogue.None, src, "1"), func(s *scrape) float64 { return float64(s.v.Pass.Queue) }),
		one(counter("muster_scheduler_dropped_proposals_total", "Starts that a pass proposed and the writer dropped because the state had moved on.", catalogue.None, src, "1"), func(s *scrape) float64 { return float64(s.v.Pass.Dropped) }),
	}
}

//muster:table one entry for each metric
func ledgerFamilies() []family {
	const src = "the writer of the ledger, since the controller started"
	return []family{
		one(counter("muster_ledger_events_total", "Events in the ledger.", catalogue.None, "the ledger's sequence number", "1"), func(s *scrape) float64 { return float64(s.v.State.Seq) }),
		one(counter("muster_ledger_batches_total", "Batches of events in the ledger's log.", catalogue.None, "the log's position", "1"), func(s *scrape) float64 { return float64(s.v.Writer.LogPosition) }),
		one(gauge("muster_ledger_append_last_seconds", "Time from decision to durability of the last batch.", catalogue.Seconds, src, "1"), func(s *scrape) float64 { return secs(s.v.Writer.AppendLast) }),
		one(gauge("muster_ledger_append_max_seconds", "Longest time from decision to durability.", catalogue.Seconds, src, "1"), func(s *scrape) float64 { return secs(s.v.Writer.AppendMax) }),
		one(counter("muster_controller_commands_total", "Commands the writer has decided.", catalogue.None, src, "1"), func(s *scrape) float64 { return float64(s.v.Writer.Commands) }),
		one(counter("muster_controller_refusals_total", "Commands the writer has refused.", catalogue.None, src, "1"), func(s *scrape) float64 { return float64(s.v.Writer.Refused) }),
		one(counter("muster_controller_stale_reports_total", "Reports about attempts that were no longer current.", catalogue.None, src, "1"), func(s *scrape) float64 { return float64(s.v.Writer.StaleReports) }),
		one(counter("muster_controller_invariant_failures_total", "Sampled checks of the state's invariants that failed: always 0 unless there is a bug.", catalogue.None, src, "1"), func(s *scrape) float64 { return float64(s.v.Writer.InvariantFailures) }),
		one(gauge("muster_controller_command_queue", "Commands waiting for the writer.", catalogue.None, src, "1"), func(s *scrape) float64 { return float64(s.v.Writer.QueueLen) }),
		one(gauge("muster_agents_connected", "Node agents with a stream to this controller.", catalogue.None, "the controller's connections", "1"), func(s *scrape) float64 { return float64(s.src.Agents()) }),
		{info(gauge("muster_build_info", "Always 1; the label says which release serves this.", catalogue.None, "the program", "1", "version")), func(s *scrape) { s.send(1, s.src.Version) }},
	}
}

//muster:table one entry for each metric
func accountingFamilies() []family {
	const src = "the ingest of the accounting service"
	lag := func(f func(l AccountingLag, s *scrape) float64) func(s *scrape) {
		return func(s *scrape) {
			if s.src.Accounting != nil {
				s.send(f(s.src.Accounting(), s))
			}
		}
	}
	return []family{
		{gauge("muster_accounting_up", "Whether the accounting store takes rows (1) or not (0).", catalogue.None, src, "1"), lag(func(l AccountingLag, _ *scrape) float64 {
			if l.Up {
				return 1
			}
			return 0
		})},
		{gauge("muster_accounting_lag_events", "Events of the ledger that are not in the accounting store yet.", catalogue.None, src, "1"),
			lag(func(l AccountingLag, s *scrape) float64 { return float64(s.v.State.Seq - min(l.Seq, s.v.State.Seq)) })},
		{gauge("muster_accounting_lag_seconds", "Age of the oldest event that is not in the accounting store yet; 0 when none is missing.", catalogue.Seconds, src, "1"),
			lag(func(l AccountingLag, _ *scrape) float64 { return l.Seconds })},
	}
}
