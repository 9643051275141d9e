package collector

import (
	"sort"
	"strings"

	"github.com/musterhpc/muster/internal/catalogue"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// jobCounts are the live jobs counted once for a scrape.
type jobCounts struct {
	byState   map[[2]string]int64 // partition, state
	byReason  map[[2]string]int64 // partition, reason
	byAccount map[[2]string]int64 // account, state
	byQOS     map[[2]string]int64
	reasons   map[string]int64 // reason, cluster-wide
	demand    map[string]spec.TRES
	cpusBy    map[string]int64 // account: CPUs of running jobs
	memUsed   int64
}

// countJobs walks the live jobs. A record that stands for several tasks
// counts as that many.
func countJobs(st *state.State) *jobCounts {
	c := &jobCounts{byState: map[[2]string]int64{}, byReason: map[[2]string]int64{}, byAccount: map[[2]string]int64{},
		byQOS: map[[2]string]int64{}, reasons: map[string]int64{}, demand: map[string]spec.TRES{}, cpusBy: map[string]int64{}}
	st.Jobs.Range(func(_ uint64, j *state.Job) bool {
		name, n := liveState(j), j.Count()
		if name == "" {
			return true
		}
		part := j.Partition()
		c.byState[[2]string{part, name}] += n
		c.byAccount[[2]string{j.Spec.Account, name}] += n
		c.byQOS[[2]string{j.Spec.QOS, name}] += n
		switch {
		case j.State == spec.Pending:
			code := string(j.Reason.Code)
			c.byReason[[2]string{part, code}] += n
			c.reasons[code] += n
			c.demand[part] = c.demand[part].Add(j.Req.Scale(n))
		case j.State.Active():
			c.cpusBy[j.Spec.Account] += j.Alloc.TRES.CPU
		}
		return true
	})
	return c
}

// liveState is the state a live job is counted under; "" for one that is over.
func liveState(j *state.Job) string {
	switch {
	case j.HoldsNodes() && (j.State.Terminal() || j.Ending != nil):
		return "completing"
	case j.State.Terminal():
		return ""
	}
	return strings.ToLower(j.State.String())
}

// each calls f for the entries of a count in order.
func each(m map[[2]string]int64, f func(a, b string, n int64)) {
	keys := make([][2]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Slice(keys, func(i, j int) bool {
		return keys[i][0] < keys[j][0] || (keys[i][0] == keys[j][0] && keys[i][1] < keys[j][1])
	})
	for _, k := range keys {
		f(k[0], k[1], m[k])
	}
}

//muster:table one entry for each metric
func jobFamilies() []family {
	const live, totals = "live job records", "totals folded from the ledger"
	return []family{
		{gauge("muster_jobs", "Live jobs by partition and state; tasks of arrays count each.", catalogue.None, live, "partitions x 4 states", "partition", "state"),
			func(s *scrape) { each(s.jobs.byState, func(p, st string, n int64) { s.send(float64(n), p, st) }) }},
		{gauge("muster_jobs_pending", "Pending jobs by partition and the reason they wait.", catalogue.None, live, "partitions x reasons in use (at most 216)", "partition", "reason"),
			func(s *scrape) { each(s.jobs.byReason, func(p, r string, n int64) { s.send(float64(n), p, r) }) }},
		{gauge("muster_account_jobs", "Live jobs by account and state.", catalogue.None, live, "accounts with live jobs x 4 states", "account", "state"),
			func(s *scrape) { each(s.jobs.byAccount, func(a, st string, n int64) { s.send(float64(n), a, st) }) }},
		{gauge("muster_qos_jobs", "Live jobs by QOS and state.", catalogue.None, live, "QOS with live jobs x 4 states", "qos", "state"),
			func(s *scrape) { each(s.jobs.byQOS, func(q, st string, n int64) { s.send(float64(n), q, st) }) }},
		{gauge("muster_partition_pending_cpus", "CPUs that pending jobs ask for.", catalogue.None, live, "partitions", "partition"),
			func(s *scrape) { eachDemand(s, func(t spec.TRES) int64 { return t.CPU }) }},
		{gauge("muster_partition_pending_gpus", "GPUs that pending jobs ask for.", catalogue.None, live, "partitions", "partition"),
			func(s *scrape) { eachDemand(s, func(t spec.TRES) int64 { return t.Get("gres/gpu") }) }},
		{counter("muster_jobs_submitted_total", "Jobs accepted since the cluster was created, by the partition asked for first.", catalogue.None, totals, "partitions", "partition"),
			func(s *scrape) { eachPart(s, func(p *state.PartTotals) { s.send(float64(p.Submitted), p.Name) }) }},
		{counter("muster_jobs_started_total", "Attempts started since the cluster was created.", catalogue.None, totals, "partitions", "partition"),
			func(s *scrape) { eachPart(s, func(p *state.PartTotals) { s.send(float64(p.Started), p.Name) }) }},
		{counter("muster_jobs_ended_total", "Jobs ended since the cluster was created, by final state.", catalogue.None, totals, "partitions x 9 states", "partition", "state"),
			func(s *scrape) {
				eachPart(s, func(p *state.PartTotals) {
					for st := spec.Completed; st <= spec.OutOfMemory; st++ {
						s.send(float64(p.Ended[st]), p.Name, strings.ToLower(st.String()))
					}
				})
			}},
		{counter("muster_jobs_backfilled_total", "Attempts started out of order without delaying any job of higher priority.", catalogue.None, totals, "1"),
			func(s *scrape) { s.send(float64(s.v.State.Totals.Backfilled)) }},
		{counter("muster_jobs_requeued_total", "Attempts that ended with the job back in the queue.", catalogue.None, totals, "1"),
			func(s *scrape) { s.send(float64(s.v.State.Totals.Requeued)) }},
		histogram("muster_job_wait_seconds", "Time from submission to start of the attempts started so far.", func(p *state.PartTotals) *state.Histogram { return &p.Wait }),
		histogram("muster_job_run_seconds", "Time from start to end of the attempts ended so far.", func(p *state.PartTotals) *state.Histogram { return &p.Run }),
	}
}

func eachPart(s *scrape, f func(p *state.PartTotals)) {
	for i := range s.v.State.Totals.Parts {
		f(&s.v.State.Totals.Parts[i])
	}
}

// eachDemand gives one amount for every partition, also 0.
func eachDemand(s *scrape, amount func(t spec.TRES) int64) {
	for i := range s.v.State.Parts.List {
		name := s.v.State.Parts.List[i].Spec.Name
		s.send(float64(amount(s.jobs.demand[name])), name)
	}
}

func histogram(name, help string, of func(p *state.PartTotals) *state.Histogram) family {
	m := gauge(name, help, catalogue.Seconds, "totals folded from the ledger", "partitions x 16 buckets", "partition")
	m.Type = catalogue.Histogram
	return family{m, func(s *scrape) {
		eachPart(s, func(p *state.PartTotals) {
			h := of(p)
			buckets, sum := map[float64]uint64{}, uint64(0)
			for i, bound := range state.HistogramBounds() {
				sum += h.Buckets[i]
				buckets[float64(bound)] = sum
			}
			s.hist(h.Count, float64(h.Sum)/float64(spec.Second), buckets, p.Name)
		})
	}}
}
