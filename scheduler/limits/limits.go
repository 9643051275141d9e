// Package limits decides whether QOS and associations let a job be submitted
// or started, in Slurm's order: the partition's QOS, the job's QOS, then the
// association and its ancestors. A limit that one of them defines hides the
// same limit of those that come after it; only the group limits of
// associations bind at every level.
package limits

import (
	"slices"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// what is the quantity that a rule bounds.
type what uint8

const (
	groupSubmitted what = iota + 1 // jobs of the subject that have no verdict
	submitted                      // the same of one user
	accountSubmitted
	groupRunning
	running
	accountRunning
	wall // the job's time limit
	groupTRES
	userTRES
	accountTRES
	jobTRES   // of the job alone
	nodeTRES  // of the job on one node
	leastTRES // the job must ask for at least that
)

// rule is one limit that binds a job.
type rule struct {
	what  what
	tres  string // for TRES limits
	limit int64  // amount, count, or span
	usage uint64 // the counter it is compared with; 0 = the job alone
	code  spec.ReasonCode
	who   string
}

// Bound is all that limits a job of one user, account and QOS in a partition.
type Bound struct {
	st     *state.State
	rules  []rule // in the order in which they are checked
	strict bool   // a limit that can never be met refuses the job at submission
}

// Subject names whose limits bind a job.
type Subject struct {
	Job   *spec.JobSpec
	Part  *spec.PartitionSpec
	Assoc uint32
}

// Find collects the limits that bind a job; none bind where limits are not
// enforced.
func Find(st *state.State, s Subject) Bound {
	b := Bound{st: st}
	if !st.Config.Enforce.Limits {
		return b
	}
	qos := levels(st, s)
	b.strict = len(qos) == 0
	account := st.Policy.AccountAssoc(s.Job.Account)
	for _, q := range qos {
		b.strict = b.strict || q.HasFlag("DenyOnLimit")
		b.addQOS(q, s.Job.UID, account)
	}
	b.addChain(st.Policy.Chain(s.Assoc))
	return b
}

// levels are the QOS that bind a job, strongest first.
func levels(st *state.State, s Subject) []*spec.QOS {
	var part *spec.QOS
	if s.Part.QOS != "" && s.Part.QOS != s.Job.QOS {
		part = st.Policy.FindQOS(s.Part.QOS)
	}
	own := st.Policy.FindQOS(s.Job.QOS)
	switch {
	case part == nil && own == nil:
		return nil
	case part == nil:
		return []*spec.QOS{own}
	case own == nil:
		return []*spec.QOS{part}
	case own.HasFlag("OverPartQOS"):
		return []*spec.QOS{own, part}
	}
	return []*spec.QOS{part, own}
}

// hidden tells whether a stronger level has defined a limit already.
func hidden(before []rule, w what, tres string) bool {
	return slices.ContainsFunc(before, func(r rule) bool { return r.what == w && r.tres == tres })
}

func (b *Bound) addQOS(q *spec.QOS, user, account uint32) {
	who := "qos/" + q.Name
	all, one := state.UsageKey(state.UsageQOS, q.ID, 0), state.UsageKey(state.UsageQOSUser, q.ID, user)
	acct := state.UsageKey(state.UsageQOSAccount, q.ID, account)
	before := b.rules[:len(b.rules):len(b.rules)]
	count := func(w what, limit *int64, usage uint64, code spec.ReasonCode) {
		if limit != nil && !hidden(before, w, "") {
			b.rules = append(b.rules, rule{w, "", *limit, usage, code, who})
		}
	}
	tres := func(w what, limits spec.Limits, usage uint64, scope spec.LimitScope) {
		for _, l := range limits {
			if !hidden(before, w, l.Name) {
				b.rules = append(b.rules, rule{w, l.Name, l.N, usage, spec.LimitReason(scope, l.Name), who})
			}
		}
	}
	count(groupSubmitted, q.GrpSubmitJobs, all, spec.ReasonQOSGrpSubmit)
	count(accountSubmitted, q.MaxSubmitPerAcct, acct, spec.ReasonMaxSubmitAccount)
	count(submitted, q.MaxSubmitPerUser, one, spec.ReasonQOSMaxSubmitUser)
	count(groupRunning, q.GrpJobs, all, spec.ReasonQOSGrpJobs)
	count(accountRunning, q.MaxJobsPerAcct, acct, spec.ReasonMaxJobsAccount)
	count(running, q.MaxJobsPerUser, one, spec.ReasonQOSMaxJobsUser)
	if q.MaxWall > 0 && !hidden(before, wall, "") {
		b.rules = append(b.rules, rule{wall, "", int64(q.MaxWall), 0, spec.ReasonQOSMaxWall, who})
	}
	tres(groupTRES, q.GrpTRES, all, spec.ScopeQOSGrp)
	tres(jobTRES, q.MaxTRESPerJob, 0, spec.ScopeQOSMaxPerJob)
	tres(nodeTRES, q.MaxTRESPerNode, 0, spec.ScopeQOSMaxPerNode)
	tres(leastTRES, q.MinTRESPerJob, 0, spec.ScopeQOSMin)
	tres(accountTRES, q.MaxTRESPerAcct, acct, spec.ScopeMaxPerAccount)
	tres(userTRES, q.MaxTRESPerUser, one, spec.ScopeQOSMaxPerUser)
}

// addChain adds the limits of an association and its ancestors, nearest
// first. Limits of one job or user are inherited: the nearest that defines
// one rules, and it is compared with what the own association holds.
func (b *Bound) addChain(chain []*spec.Association) {
	if len(chain) == 0 {
		return
	}
	qos := b.rules[:len(b.rules):len(b.rules)]
	own := state.UsageKey(state.UsageAssoc, 0, chain[0].ID)
	for _, a := range chain {
		who, all := subject(a), state.UsageKey(state.UsageAssoc, 0, a.ID)
		count := func(w what, limit *int64, usage uint64, over []rule, code spec.ReasonCode) {
			if limit != nil && !hidden(over, w, "") {
				b.rules = append(b.rules, rule{w, "", *limit, usage, code, who})
			}
		}
		count(groupSubmitted, a.GrpSubmitJobs, all, qos, spec.ReasonAssocGrpSubmit)
		count(submitted, a.MaxSubmitJobs, own, b.rules, spec.ReasonAssocMaxSubmit)
		count(groupRunning, a.GrpJobs, all, qos, spec.ReasonAssocGrpJobs)
		count(running, a.MaxJobs, own, b.rules, spec.ReasonAssocMaxJobs)
		if a.MaxWall > 0 && !hidden(b.rules, wall, "") {
			b.rules = append(b.rules, rule{wall, "", int64(a.MaxWall), 0, spec.ReasonAssocMaxWall, who})
		}
		for _, l := range a.GrpTRES {
			if !hidden(qos, groupTRES, l.Name) {
				b.rules = append(b.rules, rule{groupTRES, l.Name, l.N, all, spec.LimitReason(spec.ScopeAssocGrp, l.Name), who})
			}
		}
		for _, l := range a.MaxTRESPerJob {
			if !hidden(b.rules, jobTRES, l.Name) {
				b.rules = append(b.rules, rule{jobTRES, l.Name, l.N, 0, spec.LimitReason(spec.ScopeAssocMaxPerJob, l.Name), who})
			}
		}
		for _, l := range a.MaxTRESPerNode {
			if !hidden(b.rules, nodeTRES, l.Name) {
				b.rules = append(b.rules, rule{nodeTRES, l.Name, l.N, 0, spec.LimitReason(spec.ScopeAssocMaxPerNode, l.Name), who})
			}
		}
	}
}

func subject(a *spec.Association) string {
	if a.User == "" {
		return "assoc/" + a.Account
	}
	return "assoc/" + a.Account + "/" + a.User
}

// Wall is the longest time limit that a job may have; 0 = any.
func (b *Bound) Wall() spec.Span {
	for i := range b.rules {
		if b.rules[i].what == wall {
			return spec.Span(b.rules[i].limit)
		}
	}
	return 0
}

// over makes the reason of a rule that used and asked exceed, or nil.
func (r *rule) over(tres string, used, asked int64) *spec.Reason {
	if used+asked <= r.limit {
		return nil
	}
	return &spec.Reason{Code: r.code, TRES: tres, Limit: r.limit, Used: used, Asked: asked, Subject: r.who}
}

// usage is the counter of a rule.
func (b *Bound) usage(r *rule) *state.Usage {
	if u, ok := b.st.Usage.Get(r.usage); ok {
		return u
	}
	return &state.Usage{}
}

// Submit checks a submission of count jobs (an array counts its tasks) of
// which each is at least req. The submit counters always refuse; a limit that
// one job alone exceeds refuses only where limits are strict: with
// DenyOnLimit, or without any QOS. A time limit that was not asked for is 0.
func (b *Bound) Submit(count int64, req spec.TRES, limit spec.Span) *spec.Reason {
	for i := range b.rules {
		r := &b.rules[i]
		switch r.what {
		case groupSubmitted, accountSubmitted, submitted:
			if x := r.over("jobs", b.usage(r).Submitted, count); x != nil {
				return x
			}
		}
	}
	if !b.strict {
		return nil
	}
	return b.Never(req, limit)
}

// Never finds a limit that a job exceeds even when nothing else runs.
func (b *Bound) Never(req spec.TRES, limit spec.Span) *spec.Reason {
	for i := range b.rules {
		r := &b.rules[i]
		var x *spec.Reason
		switch r.what {
		case wall:
			x = r.wall(limit)
		case groupTRES, userTRES, accountTRES, jobTRES:
			x = r.over(r.tres, 0, req.Get(r.tres))
		case nodeTRES:
			nodes := max(req.Node, 1)
			x = r.over(r.tres, 0, (req.Get(r.tres)+nodes-1)/nodes)
		case leastTRES:
			x = r.under(req.Get(r.tres))
		}
		if x != nil {
			return x
		}
	}
	return nil
}

func (r *rule) wall(limit spec.Span) *spec.Reason {
	if int64(limit) <= r.limit {
		return nil
	}
	return &spec.Reason{Code: r.code, TRES: "time", Limit: spec.Span(r.limit).Seconds(), Asked: limit.Seconds(), Subject: r.who}
}

func (r *rule) under(asked int64) *spec.Reason {
	if asked >= r.limit {
		return nil
	}
	return &spec.Reason{Code: r.code, TRES: r.tres, Limit: r.limit, Asked: asked, Subject: r.who}
}

// Before checks what is known before nodes are chosen: counts of running
// jobs, the time limit, and the amounts that the job will use at the least.
// It saves a search, and a reservation, for a job that cannot start anyhow.
func (b *Bound) Before(least spec.TRES, limit spec.Span) *spec.Reason {
	for i := range b.rules {
		r := &b.rules[i]
		var x *spec.Reason
		switch r.what {
		case groupRunning, accountRunning, running:
			x = r.over("jobs", b.usage(r).Running, 1)
		case wall:
			x = r.wall(limit)
		case groupTRES, userTRES, accountTRES, jobTRES:
			if r.tres != "node" || r.what == jobTRES { // nodes that are held already cost nothing
				x = b.amount(r, least.Get(r.tres))
			}
		}
		if x != nil {
			return x
		}
	}
	return nil
}

// amount checks a TRES limit for more of it on top of what is used.
func (b *Bound) amount(r *rule, more int64) *spec.Reason {
	used := int64(0)
	if r.what != jobTRES {
		used = b.usage(r).TRES.Get(r.tres)
		if more == 0 {
			return nil
		}
	}
	return r.over(r.tres, used, more)
}

// After checks a placement.
func (b *Bound) After(a *spec.Allocation) *spec.Reason {
	for i := range b.rules {
		r := &b.rules[i]
		var x *spec.Reason
		switch r.what {
		case groupTRES, userTRES, accountTRES, jobTRES:
			if r.tres == "node" && r.what != jobTRES {
				x = b.nodes(r, a)
			} else {
				x = b.amount(r, a.TRES.Get(r.tres))
			}
		case nodeTRES:
			for k := range a.Nodes {
				if x = r.over(r.tres, 0, onNode(&a.Nodes[k], r.tres)); x != nil {
					break
				}
			}
		case leastTRES:
			x = r.under(a.TRES.Get(r.tres))
		}
		if x != nil {
			return x
		}
	}
	return nil
}

// nodes checks a limit of nodes: distinct ones count, and one that the subject
// holds already costs nothing.
func (b *Bound) nodes(r *rule, a *spec.Allocation) *spec.Reason {
	u := b.usage(r)
	more := int64(0)
	for i := range a.Nodes {
		if !u.Nodes.Has(uint64(a.Nodes[i].ID)) {
			more++
		}
	}
	if more == 0 {
		return nil
	}
	return r.over("node", int64(u.Nodes.Len()), more)
}

// onNode is how much of a TRES one node's part of an allocation is.
func onNode(a *spec.NodeAlloc, tres string) int64 {
	switch tres {
	case "cpu", "billing":
		return int64(a.CPUs.Count())
	case "mem":
		return a.Mem
	case "node":
		return 1
	}
	var n int64
	for _, g := range a.GPUs {
		c := spec.Count{Name: "gpu", Type: g.Type}
		if c.TRES() == tres || c.TypedTRES() == tres {
			n++
		}
	}
	for _, c := range a.GRES {
		if c.TRES() == tres || c.TypedTRES() == tres {
			n += c.N
		}
	}
	return n
}
