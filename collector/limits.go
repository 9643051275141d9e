package collector

import (
	"github.com/musterhpc/muster/internal/catalogue"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// limit is one limit of a QOS or account with what counts against it.
type limit struct {
	scope, name, limit string
	most, used         int64
}

// policyFamilies show how much of the limits is used.
//
//muster:table one entry for each metric
func policyFamilies() []family {
	const src = "limits of QOS and accounts, and the counters they are compared with"
	const card = "limits that are set on QOS and accounts"
	return []family{
		{gauge("muster_limit", "A limit on everything that runs in a QOS or account, in Slurm's units (memory in MiB).", catalogue.None, src, card, "scope", "name", "limit"),
			func(s *scrape) { eachLimit(s, func(l limit) { s.send(float64(l.most), l.scope, l.name, l.limit) }) }},
		{gauge("muster_limit_used", "What counts against a limit now, in the limit's unit.", catalogue.None, src, card, "scope", "name", "limit"),
			func(s *scrape) { eachLimit(s, func(l limit) { s.send(float64(l.used), l.scope, l.name, l.limit) }) }},
		{gauge("muster_limit_used_ratio", "Part of a limit that is used; above 1 when it was lowered under what runs.", catalogue.Ratio, src, card, "scope", "name", "limit"),
			func(s *scrape) {
				eachLimit(s, func(l limit) {
					if l.most > 0 {
						s.send(float64(l.used)/float64(l.most), l.scope, l.name, l.limit)
					}
				})
			}},
	}
}

func eachLimit(s *scrape, f func(l limit)) {
	st := s.v.State
	for i := range st.Policy.QOS {
		q := &st.Policy.QOS[i]
		used := st.UsageOf(state.UsageQOS, q.ID, 0)
		group(&used, limit{scope: "qos", name: q.Name}, q.GrpTRES, q.GrpJobs, q.GrpSubmitJobs, f)
	}
	for i := range st.Policy.Assocs {
		a := &st.Policy.Assocs[i]
		if a.User != "" {
			continue
		}
		used := st.UsageOf(state.UsageAssoc, 0, a.ID)
		group(&used, limit{scope: "account", name: a.Account}, a.GrpTRES, a.GrpJobs, a.GrpSubmitJobs, f)
	}
}

// group gives the limits of one subject in a fixed order.
func group(used *state.Usage, l limit, tres spec.Limits, jobs, submits *int64, f func(l limit)) {
	if jobs != nil {
		l.limit, l.most, l.used = "jobs", *jobs, used.Running
		f(l)
	}
	if submits != nil {
		l.limit, l.most, l.used = "submit_jobs", *submits, used.Submitted
		f(l)
	}
	for _, c := range tres {
		l.limit, l.most, l.used = c.Name, c.N, used.TRES.Get(c.Name)
		if c.Name == "node" {
			l.used = int64(used.Nodes.Len())
		}
		f(l)
	}
}
