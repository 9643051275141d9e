package collector

import (
	"maps"
	"slices"

	"github.com/musterhpc/muster/internal/catalogue"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

func toSeconds(d spec.Span) float64 { return float64(d) / float64(spec.Second) }

// singleSeries is a family with a single series.
func singleSeries(metric catalogue.Metric, read func(s *scrape) float64) family {
	return family{metric, func(s *scrape) { s.sendSeries(read(s)) }}
}

//muster:table one entry for each metric
func schedulerFamilies() []family {
	const src = "pass statistics of the controller since it started"
	return []family{
		singleSeries(counterMetric("muster_scheduler_passes_total", "Scheduling passes over the queue.", catalogue.None, src, "1"), func(s *scrape) float64 { return float64(s.v.Pass.Passes) }),
		singleSeries(counterMetric("muster_scheduler_pass_seconds_total", "Time spent in scheduling passes.", catalogue.Seconds, src, "1"), func(s *scrape) float64 { return toSeconds(s.v.Pass.Total) }),
		singleSeries(gaugeMetric("muster_scheduler_pass_last_seconds", "Time the last pass took.", catalogue.Seconds, src, "1"), func(s *scrape) float64 { return toSeconds(s.v.Pass.Last) }),
		singleSeries(gaugeMetric("muster_scheduler_pass_max_seconds", "Time the longest pass took.", catalogue.Seconds, src, "1"), func(s *scrape) float64 { return toSeconds(s.v.Pass.Max) }),
		singleSeries(gaugeMetric("muster_scheduler_pass_depth", "Jobs tried in the last pass.", catalogue.None, src, "1"), func(s *scrape) float64 { return float64(s.v.Pass.Depth) }),
		singleSeries(counterMetric("muster_scheduler_pass_depth_total", "Jobs tried in all passes.", catalogue.None, src, "1"), func(s *scrape) float64 { return float64(s.v.Pass.DepthTotal) }),
		singleSeries(gaugeMetric("muster_scheduler_pass_last_timestamp_seconds", "When the last pass began; 0 before the first.", catalogue.Seconds, src, "1"),
			func(s *scrape) float64 { return float64(s.v.Pass.LastAt.Unix()) }),
		{counterMetric("muster_scheduler_pass_exits_total", "Passes by how they ended: at the end of the queue, at the limit of jobs tried (depth), or of jobs started (starts).", catalogue.None, src, "3", "reason"), func(s *scrape) {
			s.sendSeries(float64(s.v.Pass.ExitEnd), "end")
			s.sendSeries(float64(s.v.Pass.ExitDepth), "depth")
			s.sendSeries(float64(s.v.Pass.ExitStarts), "starts")
		}},
		singleSeries(gaugeMetric("muster_scheduler_planned_jobs", "Jobs with a predicted start in the plan.", catalogue.None, src, "1"), func(s *scrape) float64 { return float64(s.v.Pass.Planned) }),
		singleSeries(gaugeMetric("muster_scheduler_queue_records", "Pending job records at the last pass.", catalogue.None, src, "1"), func(s *scrape) float64 { return float64(s.v.Pass.Queue) }),
		singleSeries(counterMetric("muster_scheduler_dropped_proposals_total", "Starts that a pass proposed and the writer dropped because the state had moved on.", catalogue.None, src, "1"), func(s *scrape) float64 { return float64(s.v.Pass.Dropped) }),
	}
}

//muster:table one entry for each metric
func ledgerFamilies() []family {
	const src = "the writer of the ledger, since the controller started"
	return []family{
		singleSeries(counterMetric("muster_ledger_events_total", "Events in the ledger.", catalogue.None, "the ledger's sequence number", "1"), func(s *scrape) float64 { return float64(s.v.State.Seq) }),
		singleSeries(counterMetric("muster_ledger_batches_total", "Batches of events in the ledger's log.", catalogue.None, "the log's position", "1"), func(s *scrape) float64 { return float64(s.v.Writer.LogPosition) }),
		singleSeries(gaugeMetric("muster_ledger_append_last_seconds", "Time from decision to durability of the last batch.", catalogue.Seconds, src, "1"), func(s *scrape) float64 { return toSeconds(s.v.Writer.AppendLast) }),
		singleSeries(gaugeMetric("muster_ledger_append_max_seconds", "Longest time from decision to durability.", catalogue.Seconds, src, "1"), func(s *scrape) float64 { return toSeconds(s.v.Writer.AppendMax) }),
		singleSeries(counterMetric("muster_controller_commands_total", "Commands the writer has decided.", catalogue.None, src, "1"), func(s *scrape) float64 { return float64(s.v.Writer.Commands) }),
		singleSeries(counterMetric("muster_controller_refusals_total", "Commands the writer has refused.", catalogue.None, src, "1"), func(s *scrape) float64 { return float64(s.v.Writer.Refused) }),
		singleSeries(counterMetric("muster_controller_stale_reports_total", "Reports about attempts that were no longer current.", catalogue.None, src, "1"), func(s *scrape) float64 { return float64(s.v.Writer.StaleReports) }),
		singleSeries(gaugeMetric("muster_ledger_orphan_runs", "Runs that nodes have and the ledger does not know, because it was restored from an older copy; see muster runs.", catalogue.None, src, "1"), func(s *scrape) float64 { return float64(s.v.Orphans) }),
		singleSeries(counterMetric("muster_ledger_history_lost_total", "Times that somebody had seen more of the ledger than it holds: it was restored from an older copy.", catalogue.None, src, "1"), func(s *scrape) float64 {
			if s.v.State.Lost == nil {
				return 0
			}
			return float64(s.v.State.Lost.Times)
		}),
		singleSeries(counterMetric("muster_controller_invariant_failures_total", "Sampled checks of the state's invariants that failed: always 0 unless there is a bug.", catalogue.None, src, "1"), func(s *scrape) float64 { return float64(s.v.Writer.InvariantFailures) }),
		singleSeries(gaugeMetric("muster_controller_command_queue", "Commands waiting for the writer.", catalogue.None, src, "1"), func(s *scrape) float64 { return float64(s.v.Writer.QueueLen) }),
		{counterMetric("muster_api_refused_total", "Connections and calls refused because a user, a machine or an address exceeded a limit, by the limit.", catalogue.None, "the controller's connections", "6", "reason"), refused},
		singleSeries(gaugeMetric("muster_agents_connected", "Node agents with a stream to this controller.", catalogue.None, "the controller's connections", "1"), func(s *scrape) float64 { return float64(s.src.Agents()) }),
		{gaugeMetric("muster_agents", "Nodes by what the controller hears of their agents: in touch, silent, never registered, or not expected because the node is powered down or on the way there or back (asleep).", catalogue.None, "node records", "4", "state"), agents},
	}
}

// buildFamilies name the release.
func buildFamilies() []family {
	return []family{
		{
			infoMetric(
				gaugeMetric(
					"muster_build_info",
					"Always 1; the label says which release serves this.",
					catalogue.None,
					"the program",
					"1",
					"version",
				),
			),
			func(s *scrape) { s.sendSeries(1, s.src.Version) },
		},
	}
}

// agents counts the nodes by whether their agent is heard.
func agents(s *scrape) {
	var up, silent, never, asleep float64
	s.v.State.Nodes.Range(func(_ uint64, node *state.Node) bool {
		switch {
		case node.Asleep():
			asleep++
		case node.Inv == nil:
			never++
		case node.Lost:
			silent++
		default:
			up++
		}
		return true
	})
	s.sendSeries(up, "connected")
	s.sendSeries(silent, "silent")
	s.sendSeries(never, "unregistered")
	s.sendSeries(asleep, "asleep")
}

// raftFamilies show the replicated log below the ledger.
//
//muster:table one entry for each metric
func raftFamilies() []family {
	const src = "the log below the ledger, since the controller started"
	at := func(metric catalogue.Metric, f func(r Raft) float64) family {
		return family{metric, func(s *scrape) {
			if s.src.Raft != nil {
				s.sendSeries(f(s.src.Raft()))
			}
		}}
	}
	return []family{
		at(gaugeMetric("muster_raft_leader", "1 while this controller leads.", catalogue.None, src, "1"), func(r Raft) float64 { return oneIf(r.Leader) }),
		at(gaugeMetric("muster_raft_leader_known", "1 while the controllers agree on a leader.", catalogue.None, src, "1"), func(r Raft) float64 { return oneIf(r.LeaderKnown) }),
		at(counterMetric("muster_raft_applied_batches_total", "Batches applied from the log.", catalogue.None, src, "1"), func(r Raft) float64 { return float64(r.Batches) }),
		at(counterMetric("muster_raft_applied_bytes_total", "Bytes of the batches applied from the log.", catalogue.Bytes, src, "1"), func(r Raft) float64 { return float64(r.Bytes) }),
		at(counterMetric("muster_raft_syncs_total", "Group commits, each with one sync of the disk.", catalogue.None, src, "1"), func(r Raft) float64 { return float64(r.Syncs) }),
		at(counterMetric("muster_raft_sync_seconds_total", "Time spent in group commits.", catalogue.Seconds, src, "1"), func(r Raft) float64 { return r.SyncSeconds }),
		at(counterMetric("muster_raft_sync_failures_total", "Group commits that failed.", catalogue.None, src, "1"), func(r Raft) float64 { return float64(r.SyncFailures) }),
		at(gaugeMetric("muster_raft_pending_batches", "Batches appended and not answered yet.", catalogue.None, src, "1"), func(r Raft) float64 { return float64(r.Pending) }),
		at(gaugeMetric(
			"muster_raft_log_entries", "Entries that the log keeps.", catalogue.None, src, "1",
		), func(raft Raft) float64 {
			return float64(raft.LastIndex + 1 - min(raft.FirstIndex, raft.LastIndex+1))
		}),
		at(gaugeMetric(
			"muster_raft_snapshot_lag_entries",
			"Entries since the newest snapshot of the state.",
			catalogue.None,
			src,
			"1",
		), func(raft Raft) float64 {
			return float64(raft.LastIndex - min(raft.SnapshotIndex, raft.LastIndex))
		}),
		at(counterMetric("muster_raft_snapshots_total", "Snapshots of the state taken.", catalogue.None, src, "1"), func(r Raft) float64 { return float64(r.Snapshots) }),
		{gaugeMetric("muster_ledger_disk_free_bytes", "Space left on the ledger's disk.", catalogue.Bytes, "statfs, once in 5 s", "1"), func(s *scrape) {
			if s.src.Raft != nil && !s.src.Raft().HeadroomUnknown {
				s.sendSeries(float64(s.src.Raft().FreeBytes))
			}
		}},
		at(gaugeMetric("muster_ledger_disk_reserve_bytes", "Free space on the ledger's disk below which submissions are refused.", catalogue.Bytes, "ledger.reserve_bytes", "1"),
			func(r Raft) float64 { return float64(r.ReserveBytes) }),
	}
}

func oneIf(on bool) float64 {
	if on {
		return 1
	}
	return 0
}

// auditFamilies show how the audit trail gets to its targets.
//
//muster:table one entry for each metric
func auditFamilies() []family {
	const src, card = "the exporters of the audit trail, on the controller that leads", "3"
	each := func(f func(t AuditTarget, s *scrape) float64) func(s *scrape) {
		return func(s *scrape) {
			if s.src.Audit == nil {
				return
			}
			for _, target := range s.src.Audit() {
				s.sendSeries(f(target, s), target.Name)
			}
		}
	}
	return []family{
		{gaugeMetric("muster_audit_lag_events", "Events of the ledger that a target of the audit trail has not taken yet.", catalogue.None, src, card, "target"),
			each(func(t AuditTarget, s *scrape) float64 { return float64(s.v.State.Seq - min(t.Seq, s.v.State.Seq)) })},
		{gaugeMetric("muster_audit_lag_seconds", "Time since a target of the audit trail last had every event; 0 when none is missing.", catalogue.Seconds, src, card, "target"),
			each(func(t AuditTarget, _ *scrape) float64 { return t.Seconds })},
		{counterMetric("muster_audit_records_total", "Records of the audit trail that a target has taken, repeated ones included.", catalogue.None, src, card, "target"),
			each(func(t AuditTarget, _ *scrape) float64 { return float64(t.Records) })},
		{counterMetric("muster_audit_failures_total", "Tries to write the audit trail that failed: each is tried again, with pauses up to 30 s.", catalogue.None, src, card, "target"),
			each(func(t AuditTarget, _ *scrape) float64 { return float64(t.Failures) })},
		{counterMetric("muster_audit_refusals_left_out_total", "Refused calls without a record in the audit trail, because they came faster than they are written.", catalogue.None, src, card, "target"),
			each(func(t AuditTarget, _ *scrape) float64 { return float64(t.LeftOut) })},
	}
}

// pushFamilies show how these metrics get to where they are pushed.
//
//muster:table one entry for each metric
func pushFamilies() []family {
	const src, card = "what pushes metrics (telemetry.push_from), on the controller that leads", "1"
	one := func(f func(p Pushed) float64) func(s *scrape) {
		return func(s *scrape) {
			if s.src.Pushed == nil {
				return
			}
			if pushed, on := s.src.Pushed(); on {
				s.sendSeries(f(pushed))
			}
		}
	}
	return []family{
		{counterMetric("muster_pushes_total", "Pushes of the controller's metrics that the receiver has taken.", catalogue.None, src, card),
			one(func(p Pushed) float64 { return float64(p.Pushes) })},
		{counterMetric("muster_push_failures_total", "Tries to push the controller's metrics that failed.", catalogue.None, src, card),
			one(func(p Pushed) float64 { return float64(p.Failures) })},
		{counterMetric("muster_pushes_dropped_total", "Pushes of the controller's metrics that were given up: the receiver was away for more than 30 of them, or refused one for good.", catalogue.None, src, card),
			one(func(p Pushed) float64 { return float64(p.Dropped) })},
		{gaugeMetric("muster_pushes_waiting", "Pushes of the controller's metrics that wait for the receiver.", catalogue.None, src, card),
			one(func(p Pushed) float64 { return float64(p.Waiting) })},
	}
}

// traceFamilies show how traces of jobs get to a collector.
//
//muster:table one entry for each metric
func traceFamilies() []family {
	const src, card = "what sends traces (otlp.traces), on the controller that leads", "1"
	one := func(f func(t SentTraces, s *scrape) float64) func(s *scrape) {
		return func(s *scrape) {
			if s.src.Traces == nil {
				return
			}
			if traces, on := s.src.Traces(); on {
				s.sendSeries(f(traces, s))
			}
		}
	}
	return []family{
		{gaugeMetric("muster_traces_lag_events", "Events of the ledger behind the position up to which every trace of a job has been taken by the collector.", catalogue.None, src, card),
			one(func(t SentTraces, s *scrape) float64 { return float64(s.v.State.Seq - min(t.Seq, s.v.State.Seq)) })},
		{gaugeMetric("muster_traces_lag_seconds", "Time since the oldest trace that the collector has not taken was whole; 0 when none waits.", catalogue.Seconds, src, card),
			one(func(t SentTraces, _ *scrape) float64 { return t.Seconds })},
		{counterMetric("muster_traces_sent_total", "Traces of jobs that the collector has taken or refused for good, repeated ones included.", catalogue.None, src, card),
			one(func(t SentTraces, _ *scrape) float64 { return float64(t.Traces) })},
		{counterMetric("muster_traces_spans_total", "Spans that the collector has taken, repeated ones included.", catalogue.None, src, card),
			one(func(t SentTraces, _ *scrape) float64 { return float64(t.Spans) })},
		{counterMetric("muster_traces_spans_refused_total", "Spans that the collector refused for good.", catalogue.None, src, card),
			one(func(t SentTraces, _ *scrape) float64 { return float64(t.Refused) })},
		{counterMetric("muster_traces_failures_total", "Tries to send traces that failed: each is tried again, with pauses up to 30 s or as long as the collector asks.", catalogue.None, src, card),
			one(func(t SentTraces, _ *scrape) float64 { return float64(t.Failures) })},
	}
}

//muster:table one entry for each metric
func accountingFamilies() []family {
	const src = "the ingest of the accounting service"
	const mails = "the schedule of reports; nothing where accounting runs in another process"
	const samples = "GPU samples that agents hand in; nothing where accounting runs in another process"
	lag := func(f func(l AccountingLag, s *scrape) float64) func(s *scrape) {
		return func(s *scrape) {
			if s.src.Accounting != nil {
				s.sendSeries(f(s.src.Accounting(), s))
			}
		}
	}
	return []family{
		{gaugeMetric("muster_accounting_up", "Whether the accounting store takes rows (1) or not (0).", catalogue.None, src, "1"), lag(func(l AccountingLag, _ *scrape) float64 {
			if l.Up {
				return 1
			}
			return 0
		})},
		{gaugeMetric("muster_accounting_lag_events", "Events of the ledger that are not in the accounting store yet.", catalogue.None, src, "1"),
			lag(func(l AccountingLag, s *scrape) float64 { return float64(s.v.State.Seq - min(l.Seq, s.v.State.Seq)) })},
		{gaugeMetric("muster_accounting_lag_seconds", "Age of the oldest event that is not in the accounting store yet; 0 when none is missing.", catalogue.Seconds, src, "1"),
			lag(func(l AccountingLag, _ *scrape) float64 { return l.Seconds })},
		{counterMetric("muster_accounting_gpu_samples_stored_total", "Readings of GPUs and jobs that this process has stored.", catalogue.None, samples, "1"),
			lag(func(l AccountingLag, _ *scrape) float64 { return float64(l.SamplesStored) })},
		{counterMetric("muster_accounting_gpu_samples_refused_total", "Readings of GPUs and jobs that the store did not take, or for which there was no room: the agents keep them and try again, and count what they lose.",
			catalogue.None, samples, "1"), lag(func(l AccountingLag, _ *scrape) float64 { return float64(l.SamplesRefused) })},
		{counterMetric("muster_accounting_samples_left_out_total", "Readings of GPUs and jobs that were not stored, because they are older than accounting.samples_keep or their time is in the future.",
			catalogue.None, samples, "1"), lag(func(l AccountingLag, _ *scrape) float64 { return float64(l.SamplesLeftOut) })},
		{gaugeMetric("muster_accounting_gpu_samples_waiting", "Readings of GPUs and jobs that wait for the next insert.", catalogue.None, samples, "1"),
			lag(func(l AccountingLag, _ *scrape) float64 { return float64(l.SamplesWaiting) })},
		{counterMetric("muster_accounting_reports_mailed_total", "Reports of reports.mail that were handed to the mail server or sendmail.", catalogue.None, mails, "1"),
			lag(func(l AccountingLag, _ *scrape) float64 { return float64(l.ReportsMailed) })},
		{counterMetric("muster_accounting_report_mail_failures_total", "Tries to mail a report of reports.mail that failed: each is tried again, with pauses up to an hour.", catalogue.None, mails, "1"),
			lag(func(l AccountingLag, _ *scrape) float64 { return float64(l.ReportsFailed) })},
	}
}

// refused are the refusals of the API by the limit that was exceeded.
func refused(s *scrape) {
	if s.src.Refused == nil {
		return
	}
	counts := s.src.Refused()
	for _, reason := range slices.Sorted(maps.Keys(counts)) {
		s.sendSeries(float64(counts[reason]), reason)
	}
}
