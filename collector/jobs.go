package collector

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"

	"github.com/musterhpc/muster/internal/catalogue"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// liveStates are the states of jobs that are not over.
func liveStates() []string { return []string{"pending", "running", "suspended", "completing"} }

// countLive counts the jobs of one of liveStates.
func (t *tally) countLive(state string) int64 {
	switch state {
	case "pending":
		return t.shown[spec.Pending]
	case "running":
		return t.shown[spec.Running]
	case "suspended":
		return t.shown[spec.Suspended]
	}
	return t.closing
}

// eachLive sends the live jobs of every subject by state. Those that occur are
// shown, so that a user's series ends with the last job.
func eachLive(s *scrape, m *tallies) {
	for _, name := range m.keys {
		for _, st := range liveStates() {
			if n := m.by[name].countLive(st); n > 0 {
				s.sendSeries(float64(n), name, st)
			}
		}
	}
}

// eachTally gives one amount for every partition, also 0. A state, if any, is
// the second label.
func eachTally(s *scrape, amount func(counts *tally) float64, state ...string) {
	none := tally{}
	for i := range s.pic.parts {
		counts := s.pic.byPart.by[s.pic.parts[i].Name]
		if counts == nil {
			counts = &none
		}
		if len(state) > 0 {
			s.sendSeries(amount(counts), s.pic.parts[i].Name, state[0])
		} else {
			s.sendSeries(amount(counts), s.pic.parts[i].Name)
		}
	}
}

// jobFamilies need no ledger: they are served beside a Slurm too.
//
//muster:table one entry for each metric
func jobFamilies() []family {
	const live = "live job records"
	held := func(name, help string, unit catalogue.Unit, amount func(counts *tally) float64) family {
		return family{gaugeMetric(name, help, unit, live, "accounts with live jobs", "account"), func(s *scrape) {
			for _, a := range s.pic.byAcct.keys {
				if v := amount(s.pic.byAcct.by[a]); v > 0 {
					s.sendSeries(v, a)
				}
			}
		}}
	}
	return []family{
		{gaugeMetric("muster_jobs", "Live jobs by partition and state; tasks of arrays count each.", catalogue.None, live, "partitions x 4 states", "partition", "state"),
			func(s *scrape) {
				for _, st := range liveStates() {
					eachTally(s, func(counts *tally) float64 { return float64(counts.countLive(st)) }, st)
				}
			}},
		{gaugeMetric("muster_jobs_pending", "Pending jobs by partition and the reason they wait.", catalogue.None, live, "partitions x reasons in use (at most 216)", "partition", "reason"),
			func(s *scrape) {
				for _, k := range sortedPairs(s.pic.why) {
					s.sendSeries(float64(s.pic.why[k]), k.a, k.b)
				}
			}},
		{gaugeMetric("muster_account_jobs", "Live jobs by account and state.", catalogue.None, live, "accounts with live jobs x 4 states", "account", "state"),
			func(s *scrape) { eachLive(s, &s.pic.byAcct) }},
		{gaugeMetric("muster_qos_jobs", "Live jobs by QOS and state.", catalogue.None, live, "QOS with live jobs x 4 states", "qos", "state"),
			func(s *scrape) { eachLive(s, &s.pic.byQOS) }},
		held("muster_account_cpus", "CPUs that an account's jobs hold.", catalogue.None, func(counts *tally) float64 { return float64(counts.cpus) }),
		held("muster_account_gpus", "GPUs that an account's jobs hold.", catalogue.None, func(counts *tally) float64 { return float64(counts.gpus) }),
		held("muster_account_memory_bytes", "Memory that an account's jobs hold.", catalogue.Bytes, func(counts *tally) float64 { return float64(counts.mem) * (1 << 20) }),
		{gaugeMetric("muster_partition_pending_cpus", "CPUs that pending jobs ask for.", catalogue.None, live, "partitions", "partition"),
			func(s *scrape) { eachTally(s, func(counts *tally) float64 { return float64(counts.askCPU) }) }},
		{gaugeMetric("muster_partition_pending_gpus", "GPUs that pending jobs ask for.", catalogue.None, live, "partitions", "partition"),
			func(s *scrape) { eachTally(s, func(counts *tally) float64 { return float64(counts.askGPU) }) }},
		{gaugeMetric("muster_partition_pending_nodes", "Nodes that pending jobs ask for.", catalogue.None, live, "partitions", "partition"),
			func(s *scrape) { eachTally(s, func(counts *tally) float64 { return float64(counts.askNode) }) }},
		{gaugeMetric("muster_partition_pending_memory_bytes", "Memory that pending jobs ask for.", catalogue.Bytes, live, "partitions", "partition"),
			func(s *scrape) {
				eachTally(s, func(counts *tally) float64 { return float64(counts.askMem) * (1 << 20) })
			}},
		{gaugeMetric("muster_pending_gpus", "GPUs that pending jobs ask for, by the type they name; empty for any type.", catalogue.None, live, "GPU types + 1", "type"),
			func(s *scrape) {
				for _, k := range sortedKeys(s.pic.byType) {
					s.sendSeries(float64(s.pic.byType[k]), k)
				}
			}},
		{gaugeMetric("muster_partition_oldest_pending_seconds", "How long the job that has waited longest has been eligible; 0 when none waits.", catalogue.Seconds, live, "partitions", "partition"),
			func(s *scrape) {
				eachTally(s, func(counts *tally) float64 {
					if counts.oldest == 0 {
						return 0
					}
					return toSeconds(max(s.now.Sub(counts.oldest), 0))
				})
			}},
		{gaugeMetric("muster_jobs_held", "Pending jobs that are held.", catalogue.None, live, "partitions", "partition"),
			func(s *scrape) { eachTally(s, func(counts *tally) float64 { return float64(counts.held) }) }},
	}
}

// promiseGrace is spec.PromiseGrace in words.
func promiseGrace() string {
	return strconv.FormatInt(int64(spec.PromiseGrace/spec.Second), 10) + " s"
}

// ledgerJobFamilies are counted by the ledger's fold and survive restarts.
//
//muster:table one entry for each metric
func ledgerJobFamilies() []family {
	const totals = "totals folded from the ledger"
	return []family{
		{counterMetric("muster_jobs_submitted_total", "Jobs accepted since the cluster was created, by the partition asked for first.", catalogue.None, totals, "partitions", "partition"),
			func(s *scrape) { eachPart(s, func(p *state.PartTotals) { s.sendSeries(float64(p.Submitted), p.Name) }) }},
		{counterMetric("muster_jobs_started_total", "Attempts started since the cluster was created.", catalogue.None, totals, "partitions", "partition"),
			func(s *scrape) { eachPart(s, func(p *state.PartTotals) { s.sendSeries(float64(p.Started), p.Name) }) }},
		{counterMetric("muster_jobs_ended_total", "Jobs ended since the cluster was created, by final state.", catalogue.None, totals, "partitions x 9 states", "partition", "state"),
			func(s *scrape) {
				eachPart(s, func(partTotals *state.PartTotals) {
					for st := spec.Completed; st <= spec.OutOfMemory; st++ {
						s.sendSeries(
							float64(partTotals.Ended[st]),
							partTotals.Name,
							strings.ToLower(st.String()),
						)
					}
				})
			}},
		{counterMetric("muster_promises_total", "First promises of a start since the cluster was created that were kept and broken: broken by a start, or an end without one, more than "+promiseGrace()+" after the promised start.", catalogue.None, totals, "partitions x 2 outcomes", "partition", "outcome"),
			func(s *scrape) {
				eachPart(s, func(partTotals *state.PartTotals) {
					s.sendSeries(float64(partTotals.Promises.Kept), partTotals.Name, "kept")
					s.sendSeries(float64(partTotals.Promises.Broken), partTotals.Name, "broken")
				})
			}},
		{counterMetric("muster_promise_late_seconds_total", "How much later than first promised jobs started, added up; an early start counts as 0.", catalogue.Seconds, totals, "partitions", "partition"),
			func(s *scrape) {
				eachPart(s, func(p *state.PartTotals) { s.sendSeries(toSeconds(p.Promises.Late), p.Name) })
			}},
		{counterMetric("muster_qos_promises_total", "As muster_promises_total, by the QOS of the job; a QOS appears with its first start.", catalogue.None, totals, "QOS that occur x 2 outcomes", "qos", "outcome"),
			func(s *scrape) {
				for _, qos := range s.v.State.Totals.Waits {
					s.sendSeries(float64(qos.Promises.Kept), qos.Name, "kept")
					s.sendSeries(float64(qos.Promises.Broken), qos.Name, "broken")
				}
			}},
		{gaugeMetric("muster_jobs_promised", "Pending job records with a promised start that can still be kept: it is ahead, or no more than "+promiseGrace()+" ago. Held jobs have none.", catalogue.None, "live job records", "partitions", "partition"),
			func(s *scrape) { eachTally(s, func(counts *tally) float64 { return float64(counts.promised) }) }},
		{gaugeMetric("muster_jobs_slipped", "Pending job records of muster_jobs_promised whose promise will be broken by the plan: it has them start more than "+promiseGrace()+" after the start that they were first promised.", catalogue.None, "live job records, the plan of the last full pass", "partitions", "partition"),
			func(s *scrape) { eachTally(s, func(counts *tally) float64 { return float64(counts.slipped) }) }},
		{gaugeMetric("muster_jobs_overdue", "Pending job records whose first promised start is more than "+promiseGrace()+" ago.", catalogue.None, "live job records", "partitions", "partition"),
			func(s *scrape) { eachTally(s, func(counts *tally) float64 { return float64(counts.overdue) }) }},
		{counterMetric("muster_jobs_backfilled_total", "Attempts started out of order without delaying any job of higher priority.", catalogue.None, totals, "1"),
			func(s *scrape) { s.sendSeries(float64(s.v.State.Totals.Backfilled)) }},
		{counterMetric("muster_jobs_requeued_total", "Attempts that ended with the job back in the queue.", catalogue.None, totals, "1"),
			func(s *scrape) { s.sendSeries(float64(s.v.State.Totals.Requeued)) }},
		{counterMetric("muster_attempts_requeued_total", "Attempts that ended with the job back in the queue, by the state that the attempt ended in: node_fail for those lost with a node.", catalogue.None, totals, "partitions x 9 states", "partition", "state"),
			func(s *scrape) {
				eachPart(s, func(partTotals *state.PartTotals) {
					for st := spec.Completed; st <= spec.OutOfMemory; st++ {
						s.sendSeries(
							float64(partTotals.Requeued[st]),
							partTotals.Name,
							strings.ToLower(st.String()),
						)
					}
				})
			}},
		{counterMetric("muster_node_power_total", "Nodes that SuspendProgram (down) and ResumeProgram (up) were run for since the cluster was created, and those that did not come up in time (failed).", catalogue.None, totals, "3", "step"), func(s *scrape) {
			t := &s.v.State.Totals
			s.sendSeries(float64(t.PoweredDown), "down")
			s.sendSeries(float64(t.PoweredUp), "up")
			s.sendSeries(float64(t.BootFailed), "failed")
		}},
		{counterMetric("muster_gpu_faults_total", "Things that happened to GPUs since the cluster was created: kinds are xid, lost, returned, thermal, ecc, mig_changed and idle.", catalogue.None, totals, "7 kinds, xid x 6 classes", "kind", "class"), func(s *scrape) {
			for _, faultTotals := range s.v.State.Totals.GPUFaults {
				s.sendSeries(
					float64(faultTotals.Count), faultTotals.Kind.String(), faultTotals.Class,
				)
			}
		}},
		{gaugeMetric("muster_job_planned_start_timestamp_seconds", fmt.Sprintf("When the plan has a pending job start, of the %d jobs that start first: a prediction that every pass renews.", maxPlanned),
			catalogue.Seconds, "the plan of the last full pass", strconv.Itoa(maxPlanned), "slurm_job_id", "user", "account", "partition"), plannedStarts},
		histogram("muster_job_wait_seconds", "Time from submission to start of the attempts started so far.", false, func(t *state.SizeTotals) *state.Times { return &t.Wait }),
		histogram("muster_job_run_seconds", "Time from start to end of the attempts ended so far.", true, func(t *state.SizeTotals) *state.Times { return &t.Run }),
	}
}

// maxPlanned bounds the jobs whose planned start has a series: their users look at
// the next ones to start, and a long queue must not swamp Prometheus.
const maxPlanned = 200

// plannedStarts sends when the jobs that start next are to start. Of an array the
// task that starts first counts.
func plannedStarts(s *scrape) {
	if s.v.Plan == nil {
		return
	}
	starts := map[spec.JobUID]spec.Instant{}
	var order []spec.JobUID
	for i := range s.v.Plan.Jobs {
		planned := &s.v.Plan.Jobs[i]
		if had, ok := starts[planned.UID]; !ok {
			order = append(order, planned.UID)
		} else if had <= planned.Start {
			continue
		}
		starts[planned.UID] = planned.Start
	}
	slices.SortStableFunc(
		order,
		func(a, b spec.JobUID) int { return cmp.Compare(starts[a], starts[b]) },
	)
	for _, uid := range order[:min(len(order), maxPlanned)] {
		// The plan may be older than the state: its job has started or is gone.
		job := s.v.State.Job(uid)
		if job == nil || job.State != spec.Pending {
			continue
		}
		s.sendSeries(
			float64(starts[uid].Unix()),
			strconv.FormatUint(uint64(job.ID), 10),
			job.Spec.User,
			job.Spec.Account,
			job.Partition(),
		)
	}
}

// eachPart goes through the totals of the partitions. One that nobody has used
// yet has its series too, at 0: a counter whose first sample is already above
// 0 hides its first jobs from increase().
func eachPart(s *scrape, f func(p *state.PartTotals)) {
	used := map[string]bool{}
	for i := range s.v.State.Totals.Parts {
		totals := &s.v.State.Totals.Parts[i]
		used[totals.Name] = true
		f(totals)
	}
	for i := range s.pic.parts {
		if name := s.pic.parts[i].Name; !used[name] {
			f(&state.PartTotals{Name: name})
		}
	}
}

// histogram shows times with classic buckets, which every reader understands,
// and with native ones for a scraper that asks for them (the protobuf format). In
// OpenMetrics and protobuf each bucket has an exemplar that leads to a job's trace.
func histogram(name, help string, run bool, of func(t *state.SizeTotals) *state.Times) family {
	metric := gaugeMetric(
		name,
		help,
		catalogue.Seconds,
		"totals folded from the ledger",
		"partitions x size classes that occur (at most 8) x 44",
		"partition",
		"size",
	)
	metric.Type = catalogue.Histogram
	return family{metric, func(s *scrape) {
		eachPart(s, func(totals *state.PartTotals) {
			for i := range totals.Sizes {
				if times := of(totals.Sizes[i]); times.Histogram.Count > 0 {
					h := timesHistogram(times)
					s.pointExemplars(
						h,
						exemplarOf{partition: totals.Name, size: totals.Sizes[i].Class, run: run},
					)
					s.sendHistogram(h, totals.Name, totals.Sizes[i].Class.String())
				}
			}
		})
	}}
}

// classicBuckets are the upper bounds, in seconds, of the classic buckets of
// times: from a second to twelve days, two for each doubling. A quantile that is
// read from them is off by less than the root of two; with buckets of 60 and
// 300 s it was off by a factor. They are bounds of the fine buckets too, by index.
func classicBuckets() (bounds []float64, index []int) {
	const first, last = -state.FineFirst, -state.FineFirst + 4*20
	for i := first; i <= last; i += 2 {
		exact := math.Exp2(float64(state.FineFirst+i) / 4)
		bounds = append(bounds, math.Round(exact*1000)/1000)
		index = append(index, i)
	}
	return bounds, index
}

// timesHistogram writes the counts as the exposition wants them.
func timesHistogram(times *state.Times) *dto.Histogram {
	sum := toSeconds(times.Histogram.Sum)
	histogram := &dto.Histogram{SampleCount: &times.Histogram.Count, SampleSum: &sum}
	bounds, index := classicBuckets()
	rows := make([]dto.Bucket, len(bounds))
	counts := make([]uint64, len(bounds))
	total := times.Tiny
	next := 0
	for i := range bounds {
		for ; next <= index[i]; next++ {
			total += times.Fine[next]
		}
		counts[i] = total
		rows[i].UpperBound, rows[i].CumulativeCount = &bounds[i], &counts[i]
		histogram.Bucket = append(histogram.Bucket, &rows[i])
	}
	schema, threshold := int32(2), 1.0/128
	histogram.Schema = &schema
	histogram.ZeroThreshold = &threshold
	histogram.ZeroCount = &times.Tiny
	last, gap := int64(0), int32(state.FineFirst)
	var span *dto.BucketSpan
	for i := range times.Fine {
		n := int64(times.Fine[i])
		if n == 0 {
			gap++
			span = nil
			continue
		}
		if span == nil {
			offset, length := gap, uint32(0)
			span = &dto.BucketSpan{Offset: &offset, Length: &length}
			histogram.PositiveSpan = append(histogram.PositiveSpan, span)
			gap = 0
		}
		*span.Length++
		histogram.PositiveDelta = append(histogram.PositiveDelta, n-last)
		last = n
	}
	return histogram
}
