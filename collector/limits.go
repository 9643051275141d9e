package collector

import (
	"strings"

	"github.com/musterhpc/muster/internal/catalogue"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/limits"
	"github.com/musterhpc/muster/spec"
)

// limit is one limit with what counts against it.
type limit struct {
	scope, name, limit string
	most, used         int64
}

// policyFamilies show how much of the limits is used.
//
//muster:table one entry for each metric
func policyFamilies() []family {
	const src = "limits of QOS, accounts and users, and the counters they are compared with"
	const card = "limits that are set on QOS and accounts, and those on one user or account x those with live jobs"
	return []family{
		{gaugeMetric("muster_limit", "A limit on everything of a QOS, an account, a user in a QOS (qos_user), an account in a QOS (qos_account) or a user of an account (user), in Slurm's units (memory in MiB).", catalogue.None, src, card, "scope", "name", "limit"),
			func(s *scrape) {
				eachLimit(s, func(l limit) { s.sendSeries(float64(l.most), l.scope, l.name, l.limit) })
			}},
		{gaugeMetric("muster_limit_used", "What counts against a limit now, in the limit's unit.", catalogue.None, src, card, "scope", "name", "limit"),
			func(s *scrape) {
				eachLimit(s, func(l limit) { s.sendSeries(float64(l.used), l.scope, l.name, l.limit) })
			}},
		{gaugeMetric("muster_limit_used_ratio", "Part of a limit that is used; above 1 when it was lowered under what runs.", catalogue.Ratio, src, card, "scope", "name", "limit"),
			func(s *scrape) {
				eachLimit(s, func(l limit) {
					if l.most > 0 {
						s.sendSeries(float64(l.used)/float64(l.most), l.scope, l.name, l.limit)
					}
				})
			}},
	}
}

// shareFamilies compare what accounts are entitled to with what they used.
//
//muster:table one entry for each metric
func shareFamilies() []family {
	const src, card = "shares and decayed use of the associations", "accounts"
	each := func(metric catalogue.Metric, amount func(r *shareRow) float64) family {
		return family{metric, func(s *scrape) {
			for i := range s.pic.shares {
				if row := &s.pic.shares[i]; row.User == "" && row.HasUsage &&
					row.Account != "root" {
					s.sendSeries(amount(row), row.Account)
				}
			}
		}}
	}
	return []family{
		each(gaugeMetric("muster_account_shares_ratio", "Part of its siblings' shares that an account has.", catalogue.Ratio, src, card, "account"), func(r *shareRow) float64 { return r.NormShares }),
		each(gaugeMetric("muster_account_usage_ratio", "Part of its siblings' decayed use that is an account's: above its shares, it has had more than its part.", catalogue.Ratio, src, card, "account"),
			func(r *shareRow) float64 { return r.EffectUsage }),
		each(gaugeMetric("muster_account_billing_seconds", "Decayed use of an account in billing units x seconds.", catalogue.Seconds, src, card, "account"), func(r *shareRow) float64 { return r.RawUsage }),
		{gaugeMetric("muster_reservation_nodes", "Nodes of a reservation, by whether it holds them now.", catalogue.None, "reservations", "reservations", "reservation", "state"), func(s *scrape) {
			for i := range s.pic.resvs {
				s.sendSeries(float64(s.pic.resvs[i].NodeCount), s.pic.resvs[i].Name, strings.ToLower(s.pic.resvs[i].State))
			}
		}},
		{gaugeMetric("muster_reservation_cpus", "CPUs of the nodes that an active reservation holds, by what they are given to.", catalogue.None, "reservations and nodes", "reservations x 2", "reservation", "state"), func(s *scrape) {
			for i := range s.pic.resvs {
				if s.pic.resvs[i].State == "ACTIVE" {
					used, all := s.pic.cpusOf(s.pic.resvs[i].members)
					s.sendSeries(float64(used), s.pic.resvs[i].Name, "allocated")
					s.sendSeries(float64(all-used), s.pic.resvs[i].Name, "idle")
				}
			}
		}},
		{gaugeMetric("muster_reservation_start_timestamp_seconds", "When a reservation begins.", catalogue.Seconds, "reservations", "reservations", "reservation"), func(s *scrape) {
			for i := range s.pic.resvs {
				s.sendSeries(float64(s.pic.resvs[i].Start.Unix()), s.pic.resvs[i].Name)
			}
		}},
		{gaugeMetric("muster_reservation_end_timestamp_seconds", "When a reservation ends.", catalogue.Seconds, "reservations", "reservations", "reservation"), func(s *scrape) {
			for i := range s.pic.resvs {
				s.sendSeries(float64(s.pic.resvs[i].End.Unix()), s.pic.resvs[i].Name)
			}
		}},
	}
}

// cpusOf are the CPUs of some nodes: those that jobs hold, and all.
func (p *picture) cpusOf(nodes []int32) (used, all int64) {
	for _, k := range nodes {
		used, all = used+p.nodes[k].CPUAlloc, all+p.nodes[k].CPUs
	}
	return used, all
}

// eachLimit calls f for every limit that is set: of a QOS or account as a whole,
// and of each user and account in a QOS, and each user of an account, that has
// live jobs. Without the latter a job that waits for QOSMaxGRESPerUser would
// show under no limit at all.
func eachLimit(s *scrape, f func(l limit)) {
	cluster := s.v.State
	var sizes limits.Sizes
	byID := map[uint32]*spec.QOS{}
	for i := range cluster.Policy.QOS {
		qos := sizes.Amounts(cluster, &cluster.Policy.QOS[i])
		byID[qos.ID] = qos
		used := cluster.UsageOf(state.UsageQOS, qos.ID, 0)
		group(
			&used,
			limit{scope: "qos", name: qos.Name},
			qos.GrpTRES,
			qos.GrpJobs,
			qos.GrpSubmitJobs,
			f,
		)
	}
	for i := range cluster.Policy.Assocs {
		assoc := &cluster.Policy.Assocs[i]
		if assoc.User != "" || s.hidesLimit(state.UsageAssoc, assoc) {
			continue
		}
		used := cluster.UsageOf(state.UsageAssoc, 0, assoc.ID)
		group(
			&used,
			limit{scope: "account", name: assoc.Account},
			assoc.GrpTRES,
			assoc.GrpJobs,
			assoc.GrpSubmitJobs,
			f,
		)
	}
	cluster.Usage.Range(func(key uint64, used *state.Usage) bool {
		if used.Submitted == 0 {
			return true
		}
		kind, qos, subject := state.ParseUsageKey(key)
		if s.hidesLimit(kind, cluster.Policy.Assoc(subject)) {
			return true
		}
		switch kind {
		case state.UsageQOSUser:
			user := s.pic.userNames[subject]
			if q := byID[qos]; q != nil && user != "" {
				group(
					used,
					limit{scope: "qos_user", name: q.Name + "/" + user},
					q.MaxTRESPerUser,
					q.MaxJobsPerUser,
					q.MaxSubmitPerUser,
					f,
				)
			}
		case state.UsageQOSAccount:
			association := cluster.Policy.Assoc(subject)
			if q := byID[qos]; q != nil && association != nil {
				group(
					used,
					limit{scope: "qos_account", name: q.Name + "/" + association.Account},
					q.MaxTRESPerAcct,
					q.MaxJobsPerAcct,
					q.MaxSubmitPerAcct,
					f,
				)
			}
		case state.UsageAssoc:
			if association := cluster.Policy.Assoc(subject); association != nil &&
				association.User != "" {
				ofUser(cluster, association, used, f)
			}
		case state.UsageQOS: // above, also without any use
		}
		return true
	})
}

// ofUser gives the limits of a user's association. Its counts of jobs are
// inherited: the nearest association above it that sets one rules.
func ofUser(cluster *state.State, assoc *spec.Association, used *state.Usage, f func(l limit)) {
	jobs := nearest(cluster, assoc, func(association *spec.Association) *int64 { return association.MaxJobs })
	submits := nearest(cluster, assoc, func(association *spec.Association) *int64 { return association.MaxSubmitJobs })
	l := limit{scope: "user", name: assoc.Account + "/" + assoc.User}
	if assoc.GrpJobs != nil && (jobs == nil || *assoc.GrpJobs < *jobs) {
		jobs = assoc.GrpJobs
	}
	if assoc.GrpSubmitJobs != nil && (submits == nil || *assoc.GrpSubmitJobs < *submits) {
		submits = assoc.GrpSubmitJobs
	}
	group(used, l, assoc.GrpTRES, jobs, submits, f)
}

// nearest finds an inherited limit, from an association upwards.
func nearest(
	cluster *state.State, assoc *spec.Association, of func(association *spec.Association) *int64,
) *int64 {
	const deepest = 64 // a tree of accounts is never that deep; a circle would have no end
	for depth := 0; assoc != nil && depth < deepest; depth++ {
		if n := of(assoc); n != nil {
			return n
		}
		if assoc.Parent == 0 {
			return nil
		}
		assoc = cluster.Policy.Assoc(assoc.Parent)
	}
	return nil
}

// group gives the limits of one subject in a fixed order.
func group(used *state.Usage, l limit, tres spec.Limits, jobs, submits *int64, f func(l limit)) {
	if jobs != nil {
		l.limit = "jobs"
		l.most = *jobs
		l.used = used.Running
		f(l)
	}
	if submits != nil {
		l.limit = "submit_jobs"
		l.most = *submits
		l.used = used.Submitted
		f(l)
	}
	for _, count := range tres {
		l.limit = count.Name
		l.most = count.N
		l.used = used.TRES.Get(count.Name)
		if count.Name == "node" {
			l.used = int64(used.Nodes.Len())
		}
		f(l)
	}
}
