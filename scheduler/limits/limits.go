// Package limits decides whether QOS and associations let a job be submitted
// or started, in Slurm's order: the partition's QOS, the job's QOS, then the
// association and its ancestors. A limit that one of them defines hides the
// same limit of those that come after it; only the group limits of
// associations bind at every level.
package limits

import (
	"math"
	"slices"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/fixed"
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
	wall         // the job's time limit
	groupWall    // seconds that jobs of the subject ran, fading
	groupTRES    // held now
	userTRES     //
	accountTRES  //
	jobTRES      // of the job alone
	nodeTRES     // of the job on one node
	leastTRES    // the job must ask for at least that
	groupMins    // TRES minutes used, fading
	budgetMins   // the same, of an account's budget: it ends nobody's job
	groupRunMins // TRES minutes that running jobs may still use
	userRunMins  //
	accountRunMins
	jobMins // TRES times the time limit of the job alone
)

// The orders in which Slurm looks at the limits of one level: of a submission
// that must be able to start some day, before nodes are chosen, and then.
func atSubmit() []what {
	return []what{
		accountTRES,
		userTRES,
		groupTRES,
		jobMins,
		groupMins,
		groupRunMins,
		accountRunMins,
		userRunMins,
		wall,
		groupWall,
		jobTRES,
		nodeTRES,
		leastTRES,
	}
}

func beforeNodes() []what { return []what{groupRunning, groupWall, accountRunning, running, wall} }

func withNodes() []what {
	return []what{
		groupMins,
		budgetMins,
		groupTRES,
		groupRunMins,
		jobMins,
		jobTRES,
		nodeTRES,
		leastTRES,
		accountTRES,
		userTRES,
		accountRunMins,
		userRunMins,
	}
}

// rule is one limit that binds a job.
type rule struct {
	what  what
	level int    // QOS by strength, then associations from the job's own up
	tres  string // for TRES limits
	limit int64  // amount, count, span, or minutes
	usage uint64 // the counter it is compared with; 0 = the job alone
	code  spec.ReasonCode
	who   string
}

// Bound is all that limits a job of one user, account and QOS in a partition.
type Bound struct {
	st      *state.State
	now     spec.Instant
	rules   []rule // by level
	strict  bool   // a limit that can never be met refuses the job at submission
	safe    bool   // minutes must suffice until the job's time limit
	factor  int64  // UsageFactor for those minutes, in millionths
	own     string // the job's QOS as rules name it
	charge  int64  // its UsageFactor, in millionths
	scale   int64  // LimitFactor of limits of associations, in millionths
	minPrio int64  // priority below which the job does not start
	prioWho string
	beside  spec.TRES // of the rest of its gang
}

// Subject names whose limits bind a job.
type Subject struct {
	Job   *spec.JobSpec
	Part  *spec.PartitionSpec
	Assoc uint32
	Now   spec.Instant // 0 = that of the state
	Sizes *Sizes       // shared by questions about one state; nil: none
	// Beside is what the rest of its gang of pods asks for: limits of a job alone are for all of it.
	Beside spec.TRES
}

// Beside is what the other components of a job request, where one job is meant by all of them:
// a gang of unequal pods is a heterogeneous job only because its pods differ. The components
// that a user writes himself are limited one by one, as in Slurm.
func Beside(cluster *state.State, job *state.Job) spec.TRES {
	var sum spec.TRES
	if job.Spec.Pods == nil {
		return sum
	}
	for _, part := range cluster.Components(job) {
		if part.UID != job.UID {
			sum = sum.Add(part.Req)
		}
	}
	return sum
}

// million is 1 among factors.
const million = 1_000_000

// Find collects the limits that bind a job; none bind where limits are not
// enforced.
func Find(cluster *state.State, s Subject) Bound {
	bound := Bound{
		st:     cluster,
		now:    max(s.Now, cluster.At),
		safe:   cluster.Config.Enforce.Safe,
		factor: million,
		charge: million,
		scale:  million,
		beside: s.Beside,
	}
	if !cluster.Config.Enforce.Limits {
		return bound
	}
	qos := qosLevels(cluster, s)
	bound.strict = len(qos) == 0
	if own := cluster.Policy.FindQOS(s.Job.QOS); own != nil {
		bound.own, bound.charge = "qos/"+own.Name, own.Factor()
		if own.HasFlag("UsageFactorSafe") {
			bound.factor = own.Factor()
		}
		if own.LimitFactor > 0 {
			bound.scale = own.LimitFactor
		}
	}
	account := cluster.Policy.AccountAssoc(s.Job.Account)
	for i, q := range qos {
		bound.strict = bound.strict || q.HasFlag("DenyOnLimit")
		bound.addQOS(s.Sizes.Amounts(cluster, q), i, s.Job.UID, account)
		bound.atLeast(q.MinPrio, "qos/"+q.Name)
	}
	bound.addChain(cluster.Policy.Chain(s.Assoc), len(qos))
	return bound
}

// atLeast takes the first threshold of priority that somebody sets.
func (b *Bound) atLeast(threshold *int64, who string) {
	if threshold != nil && b.prioWho == "" {
		b.minPrio, b.prioWho = *threshold, who
	}
}

// qosLevels are the QOS that bind a job, strongest first.
func qosLevels(cluster *state.State, s Subject) []*spec.QOS {
	var part *spec.QOS
	if s.Part.QOS != "" && s.Part.QOS != s.Job.QOS {
		part = cluster.Policy.FindQOS(s.Part.QOS)
	}
	own := cluster.Policy.FindQOS(s.Job.QOS)
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

// isHidden tells whether a stronger level has defined a limit already.
func isHidden(before []rule, w what, tres string) bool {
	return slices.ContainsFunc(before, func(r rule) bool { return r.what == w && r.tres == tres })
}

func (b *Bound) addQOS(qos *spec.QOS, level int, user, account uint32) {
	who := "qos/" + qos.Name
	all, one := state.UsageKey(
		state.UsageQOS,
		qos.ID,
		0,
	), state.UsageKey(
		state.UsageQOSUser,
		qos.ID,
		user,
	)
	acct := state.UsageKey(state.UsageQOSAccount, qos.ID, account)
	before := b.rules[:len(b.rules):len(b.rules)]
	count := func(w what, limit *int64, usage uint64, code spec.ReasonCode) {
		if limit != nil && !isHidden(before, w, "") {
			b.rules = append(b.rules, rule{w, level, "", *limit, usage, code, who})
		}
	}
	tres := func(w what, limits spec.Limits, usage uint64, scope spec.LimitScope) {
		for _, limit := range limits {
			if !isHidden(before, w, limit.Name) {
				b.rules = append(
					b.rules,
					rule{
						w,
						level,
						limit.Name,
						limit.N,
						usage,
						spec.LimitReason(scope, limit.Name),
						who,
					},
				)
			}
		}
	}
	span := func(w what, limit spec.Span, usage uint64, code spec.ReasonCode) {
		if limit > 0 && !isHidden(before, w, "") {
			b.rules = append(b.rules, rule{w, level, "", int64(limit), usage, code, who})
		}
	}
	count(groupSubmitted, qos.GrpSubmitJobs, all, spec.ReasonQOSGrpSubmit)
	count(accountSubmitted, qos.MaxSubmitPerAcct, acct, spec.ReasonMaxSubmitAccount)
	count(submitted, qos.MaxSubmitPerUser, one, spec.ReasonQOSMaxSubmitUser)
	count(groupRunning, qos.GrpJobs, all, spec.ReasonQOSGrpJobs)
	count(accountRunning, qos.MaxJobsPerAcct, acct, spec.ReasonMaxJobsAccount)
	count(running, qos.MaxJobsPerUser, one, spec.ReasonQOSMaxJobsUser)
	span(wall, qos.MaxWall, 0, spec.ReasonQOSMaxWall)
	span(groupWall, qos.GrpWall, all, spec.ReasonQOSGrpWall)
	tres(groupTRES, qos.GrpTRES, all, spec.ScopeQOSGrp)
	tres(groupMins, qos.GrpTRESMins, all, spec.ScopeQOSGrpMinutes)
	tres(groupRunMins, qos.GrpTRESRunMins, all, spec.ScopeQOSGrpRunMinutes)
	tres(jobTRES, qos.MaxTRESPerJob, 0, spec.ScopeQOSMaxPerJob)
	tres(jobMins, qos.MaxTRESMins, 0, spec.ScopeQOSMaxMinutesPerJob)
	tres(nodeTRES, qos.MaxTRESPerNode, 0, spec.ScopeQOSMaxPerNode)
	tres(leastTRES, qos.MinTRESPerJob, 0, spec.ScopeQOSMin)
	tres(accountTRES, qos.MaxTRESPerAcct, acct, spec.ScopeMaxPerAccount)
	tres(userTRES, qos.MaxTRESPerUser, one, spec.ScopeQOSMaxPerUser)
	tres(accountRunMins, qos.MaxRunMinsAcct, acct, spec.ScopeMaxRunMinsPerAcct)
	tres(userRunMins, qos.MaxRunMinsUser, one, spec.ScopeMaxRunMinsPerUser)
}

// isOfGroup tells a limit that each association has for itself and all below it; the
// others are inherited.
func (w what) isOfGroup() bool {
	switch w {
	case groupSubmitted, groupRunning, groupWall, groupTRES, groupMins, groupRunMins:
		return true
	}
	return false
}

// addChain adds the limits of an association and its ancestors, nearest
// first. Limits of one job or user are inherited: the nearest that defines
// one rules, it is compared with what the own association holds, and it
// stands at the own association's level.
func (b *Bound) addChain(chain []*spec.Association, base int) {
	if len(chain) == 0 {
		return
	}
	qos := b.rules[:len(b.rules):len(b.rules)]
	own := state.UsageKey(state.UsageAssoc, 0, chain[0].ID)
	for up, assoc := range chain {
		who := subject(assoc)
		all := state.UsageKey(state.UsageAssoc, 0, assoc.ID)
		level := base + up
		add := func(w what, at int, tres string, limit int64, usage uint64, code spec.ReasonCode) {
			over := qos
			if at == base && !w.isOfGroup() {
				over = b.rules
			}
			if !isHidden(over, w, tres) {
				b.rules = append(b.rules, rule{w, at, tres, limit, usage, code, who})
			}
		}
		count := func(w what, at int, limit *int64, usage uint64, code spec.ReasonCode) {
			if limit != nil {
				add(w, at, "", *limit, usage, code)
			}
		}
		tres := func(w what, at int, limits spec.Limits, usage uint64, scope spec.LimitScope) {
			for _, limit := range limits {
				add(
					w,
					at,
					limit.Name,
					b.scaleAmounts(w, limit.N),
					usage,
					spec.LimitReason(scope, limit.Name),
				)
			}
		}
		count(groupSubmitted, level, assoc.GrpSubmitJobs, all, spec.ReasonAssocGrpSubmit)
		count(submitted, base, assoc.MaxSubmitJobs, own, spec.ReasonAssocMaxSubmit)
		count(groupRunning, level, assoc.GrpJobs, all, spec.ReasonAssocGrpJobs)
		count(running, base, assoc.MaxJobs, own, spec.ReasonAssocMaxJobs)
		if assoc.MaxWall > 0 {
			add(wall, base, "", int64(assoc.MaxWall), 0, spec.ReasonAssocMaxWall)
		}
		if assoc.GrpWall > 0 {
			add(groupWall, level, "", int64(assoc.GrpWall), all, spec.ReasonAssocGrpWall)
		}
		tres(groupTRES, level, assoc.GrpTRES, all, spec.ScopeAssocGrp)
		tres(groupMins, level, assoc.GrpTRESMins, all, spec.ScopeAssocGrpMinutes)
		for _, limit := range assoc.Budget { // no other limit hides it
			b.rules = append(
				b.rules,
				rule{
					budgetMins,
					level,
					limit.Name,
					limit.N,
					all,
					spec.LimitReason(spec.ScopeAssocGrpMinutes, limit.Name),
					"budget/" +
						assoc.Account,
				},
			)
		}
		tres(groupRunMins, level, assoc.GrpTRESRunMins, all, spec.ScopeAssocGrpRunMinutes)
		tres(jobTRES, base, assoc.MaxTRESPerJob, 0, spec.ScopeAssocMaxPerJob)
		tres(nodeTRES, base, assoc.MaxTRESPerNode, 0, spec.ScopeAssocMaxPerNode)
		tres(jobMins, base, assoc.MaxTRESMins, 0, spec.ScopeAssocMaxMinutes)
		b.atLeast(assoc.MinPrio, who)
	}
	slices.SortStableFunc(b.rules, func(p, q rule) int { return p.level - q.level })
}

// scaleAmounts applies the LimitFactor of the job's QOS to amounts of TRES.
func (b *Bound) scaleAmounts(w what, n int64) int64 {
	if b.scale == million || (w != groupTRES && w != jobTRES) || n > math.MaxInt64/b.scale {
		return n
	}
	return n * b.scale / million
}

func subject(assoc *spec.Association) string {
	if assoc.User == "" {
		return "assoc/" + assoc.Account
	}
	return "assoc/" + assoc.Account + "/" + assoc.User
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

// breachOver makes the reason of a rule that used and asked exceed, or nil.
func (r *rule) breachOver(tres string, used, asked int64) *spec.Reason {
	if used+asked <= r.limit {
		return nil
	}
	return &spec.Reason{
		Code:    r.code,
		TRES:    tres,
		Limit:   r.limit,
		Used:    used,
		Asked:   asked,
		Subject: r.who,
	}
}

// usageOf is the counter of a rule.
func (b *Bound) usageOf(r *rule) *state.Usage {
	if usage, ok := b.st.Usage.Get(r.usage); ok {
		return usage
	}
	return &state.Usage{}
}

// usedUp is what of a limit in minutes or seconds was used in the past.
func (b *Bound) usedUp(r *rule) int64 {
	usage, _ := b.st.Spent.Get(r.usage)
	if r.what == groupWall {
		return SpentSeconds(usage)
	}
	return SpentMinutes(usage, r.tres)
}

// minutesOf is an amount for as long as a time limit; one without end counts as
// a year.
func minutesOf(n int64, limit spec.Span) int64 {
	if limit == spec.Infinite {
		limit = 365 * spec.Day
	}
	m := int64(limit / spec.Minute)
	if n > 0 && m > math.MaxInt64/4/n {
		return math.MaxInt64 / 4
	}
	return n * m
}

// wantedMinutes is what of a limit in minutes a job must find unused: with safe limits
// enough until its time limit, weighted where its QOS says so; otherwise
// anything at all.
func (b *Bound) wantedMinutes(n int64, limit spec.Span) int64 {
	if !b.safe {
		return min(n, 1)
	}
	return b.weightedMinutes(minutesOf(n, limit))
}

// weightedMinutes applies the UsageFactor of a QOS with UsageFactorSafe.
func (b *Bound) weightedMinutes(m int64) int64 { return multiplyMinutes(m, b.factor) }

// multiplyMinutes multiplies minutes by a factor in millionths.
func multiplyMinutes(m, factor int64) int64 {
	if factor == million {
		return m
	}
	return int64(min(fixed.Of(m).Times(factor).Over(million).Hi, math.MaxInt64/4))
}

// chargedMinutes applies the UsageFactor of the job's QOS to minutes that a limit of that
// QOS counts. All jobs that such a limit counts are in the QOS and have its factor;
// limits of associations count jobs of several QOS and are in plain minutes.
func (b *Bound) chargedMinutes(r *rule, m int64) int64 {
	if r.who != b.own {
		return m
	}
	return multiplyMinutes(m, b.charge)
}

// checkUsed checks a limit in minutes against what was used and, where limits are
// safe, what running jobs may still use. A job that uses none of it is free.
func (b *Bound) checkUsed(r *rule, n int64, limit spec.Span) *spec.Reason {
	if n == 0 {
		return nil
	}
	used := b.usedUp(r)
	if b.safe {
		used += b.weightedMinutes(RunMinutes(b.st, r.usage, r.tres, b.now))
	}
	return r.breachOver(r.tres+" minutes", used, b.wantedMinutes(n, limit))
}

// checkWall checks how long jobs of a subject may run together.
func (b *Bound) checkWall(r *rule, limit spec.Span) *spec.Reason {
	most := spec.Span(r.limit).Seconds()
	used, asked := b.usedUp(r), int64(1)
	if b.safe {
		asked = limit.Seconds()
		if limit == spec.Infinite {
			asked = (365 * spec.Day).Seconds()
		}
	}
	if used+asked <= most {
		return nil
	}
	return &spec.Reason{
		Code:    r.code,
		TRES:    "time",
		Limit:   most,
		Used:    used,
		Asked:   asked,
		Subject: r.who,
	}
}

// checkRemaining checks a limit of what running jobs may still use.
func (b *Bound) checkRemaining(r *rule, n int64, limit spec.Span) *spec.Reason {
	if n == 0 {
		return nil
	}
	used := RunMinutes(b.st, r.usage, r.tres, b.now)
	return r.breachOver(
		r.tres+" minutes",
		b.chargedMinutes(r, used),
		b.chargedMinutes(r, minutesOf(n, limit)),
	)
}

// firstBreach finds the first breach: level by level, and in each in an order.
func (b *Bound) firstBreach(order []what, breach func(r *rule) *spec.Reason) *spec.Reason {
	for from := 0; from < len(b.rules); {
		to := from
		for to < len(b.rules) && b.rules[to].level == b.rules[from].level {
			to++
		}
		for _, w := range order {
			for i := from; i < to; i++ {
				if r := &b.rules[i]; r.what == w {
					if reason := breach(r); reason != nil {
						return reason
					}
				}
			}
		}
		from = to
	}
	return nil
}

// Submit checks a submission of count jobs (an array counts its tasks) of
// which each is at least request. The submit counters always refuse; a limit that
// one job alone exceeds refuses only where limits are strict: with
// DenyOnLimit, or without any QOS.
func (b *Bound) Submit(count int64, request spec.TRES, limit spec.Span) *spec.Reason {
	reason := b.firstBreach(
		[]what{groupSubmitted, accountSubmitted, submitted},
		func(r *rule) *spec.Reason {
			return r.breachOver("jobs", b.usageOf(r).Submitted, count)
		},
	)
	if reason != nil || !b.strict {
		return reason
	}
	return b.Never(request, limit)
}

// Never finds a limit that a job exceeds even when nothing else runs or ran.
func (b *Bound) Never(request spec.TRES, limit spec.Span) *spec.Reason {
	return b.firstBreach(atSubmit(), func(r *rule) *spec.Reason {
		n := b.ofJob(r, request.Get(r.tres))
		switch r.what {
		case wall:
			return r.breachWall(limit)
		case groupWall:
			if b.safe && limit.Seconds() > spec.Span(r.limit).Seconds() {
				return b.checkWall(r, limit)
			}
		case groupTRES, userTRES, accountTRES, jobTRES:
			return r.breachOver(r.tres, 0, n)
		case nodeTRES:
			nodes := max(request.Node, 1)
			return r.breachOver(r.tres, 0, (n+nodes-1)/nodes)
		case leastTRES:
			return r.breachUnder(n)
		case groupMins:
			if n > 0 {
				return r.breachOver(r.tres+" minutes", 0, b.wantedMinutes(n, limit))
			}
		case jobMins:
			return r.breachOver(r.tres+" minutes", 0, minutesOf(n, limit))
		case groupRunMins, userRunMins, accountRunMins:
			return r.breachOver(r.tres+" minutes", 0, b.chargedMinutes(r, minutesOf(n, limit)))
		}
		return nil
	})
}

func (r *rule) breachWall(limit spec.Span) *spec.Reason {
	if int64(limit) <= r.limit {
		return nil
	}
	return &spec.Reason{
		Code:    r.code,
		TRES:    "time",
		Limit:   spec.Span(r.limit).Seconds(),
		Asked:   limit.Seconds(),
		Subject: r.who,
	}
}

func (r *rule) breachUnder(asked int64) *spec.Reason {
	if asked >= r.limit {
		return nil
	}
	return &spec.Reason{Code: r.code, TRES: r.tres, Limit: r.limit, Asked: asked, Subject: r.who}
}

// Priority is why a priority is too low to start, or nil.
func (b *Bound) Priority(n uint32) *spec.Reason {
	if b.prioWho == "" || int64(n) >= b.minPrio {
		return nil
	}
	return &spec.Reason{
		Code:    spec.ReasonPriority,
		TRES:    "priority",
		Limit:   b.minPrio,
		Asked:   int64(n),
		Subject: b.prioWho,
	}
}

// HasPriority tells whether Priority ever finds anything.
func (b *Bound) HasPriority() bool { return b.prioWho != "" }

// Before checks what is known before nodes are chosen: counts of running
// jobs, times, and then the amounts that the job will use at the least. It
// saves a search, and a reservation, for a job that cannot start anyhow.
func (b *Bound) Before(least spec.TRES, limit spec.Span) *spec.Reason {
	reason := b.firstBreach(beforeNodes(), func(r *rule) *spec.Reason {
		switch r.what {
		case wall:
			return r.breachWall(limit)
		case groupWall:
			return b.checkWall(r, limit)
		}
		return r.breachOver("jobs", b.usageOf(r).Running, 1)
	})
	if reason != nil {
		return reason
	}
	return b.firstBreach(withNodes(), func(r *rule) *spec.Reason {
		switch r.what {
		case nodeTRES, leastTRES: // only an allocation shows
			return nil
		case groupTRES, userTRES, accountTRES:
			if r.tres == "node" { // nodes that are held already cost nothing
				return nil
			}
		}
		return b.check(r, least.Get(r.tres), limit)
	})
}

// ofJob is what a rule about a job alone compares: with what the rest of its gang has.
func (b *Bound) ofJob(r *rule, n int64) int64 {
	switch r.what {
	case jobTRES, jobMins, leastTRES:
		return n + b.beside.Get(r.tres)
	}
	return n
}

// check checks a limit for more of a TRES.
func (b *Bound) check(r *rule, n int64, limit spec.Span) *spec.Reason {
	n = b.ofJob(r, n)
	switch r.what {
	case groupMins, budgetMins:
		return b.checkUsed(r, n, limit)
	case groupRunMins, userRunMins, accountRunMins:
		return b.checkRemaining(r, n, limit)
	case jobMins:
		return r.breachOver(r.tres+" minutes", 0, minutesOf(n, limit))
	case leastTRES:
		return r.breachUnder(n)
	}
	return b.checkAmount(r, n)
}

// Exhausted finds a limit in minutes, or of time, that a running job's subjects
// have used up. Where limits are safe no job starts that could come to that.
func (b *Bound) Exhausted(held spec.TRES) *spec.Reason {
	if b.safe {
		return nil
	}
	return b.firstBreach([]what{groupMins, groupWall}, func(r *rule) *spec.Reason {
		switch {
		case r.what == groupWall:
			return b.checkWall(r, 0)
		case held.Get(r.tres) > 0:
			return b.checkUsed(r, 1, 0)
		}
		return nil
	})
}

// checkAmount checks a TRES limit for more of it on top of what is used.
func (b *Bound) checkAmount(r *rule, more int64) *spec.Reason {
	used := int64(0)
	if r.what != jobTRES {
		used = Held(b.usageOf(r), r.tres)
		if more == 0 {
			return nil
		}
	}
	return r.breachOver(r.tres, used, more)
}

// After checks a placement that runs at most until a time limit.
func (b *Bound) After(allocation *spec.Allocation, limit spec.Span) *spec.Reason {
	return b.firstBreach(withNodes(), func(r *rule) *spec.Reason {
		switch r.what {
		case groupTRES, userTRES, accountTRES:
			if r.tres == "node" {
				return b.checkNodes(r, allocation)
			}
		case nodeTRES:
			for k := range allocation.Nodes {
				if reason := r.breachOver(
					r.tres, 0, onNode(&allocation.Nodes[k], r.tres),
				); reason != nil {
					return reason
				}
			}
			return nil
		}
		return b.check(r, allocation.TRES.Get(r.tres), limit)
	})
}

// checkNodes checks a limit of nodes: distinct ones count, and one that the subject
// holds already costs nothing.
func (b *Bound) checkNodes(r *rule, allocation *spec.Allocation) *spec.Reason {
	usage := b.usageOf(r)
	more := int64(0)
	for i := range allocation.Nodes {
		if !usage.Nodes.Has(uint64(allocation.Nodes[i].ID)) {
			more++
		}
	}
	if more == 0 {
		return nil
	}
	return r.breachOver("node", Held(usage, "node"), more)
}

// onNode is how much of a TRES one node's part of an allocation is.
func onNode(alloc *spec.NodeAlloc, tres string) int64 {
	switch tres {
	case "cpu", "billing":
		return int64(alloc.CPUs.Count())
	case "mem":
		return alloc.Mem
	case "node":
		return 1
	}
	var n int64
	for _, gpu := range alloc.GPUs {
		count := spec.Count{Name: "gpu", Type: gpu.Type}
		if count.TRES() == tres || count.TypedTRES() == tres {
			n++
		}
	}
	for _, count := range alloc.GRES {
		if count.TRES() == tres || count.TypedTRES() == tres {
			n += count.N
		}
	}
	return n
}

// Accrues tells whether count more jobs of a subject may age: the limits
// GrpJobsAccrue and MaxJobsAccrue of QOS and associations. They keep no job
// from starting.
func Accrues(cluster *state.State, s Subject, count int64) bool {
	if !cluster.Config.Enforce.Limits {
		return true
	}
	room := func(limit *int64, usage uint64) bool {
		if limit == nil {
			return true
		}
		u, ok := cluster.Usage.Get(usage)
		return (!ok && count <= *limit) || (ok && u.Accruing+count <= *limit)
	}
	account := cluster.Policy.AccountAssoc(s.Job.Account)
	for _, qos := range qosLevels(cluster, s) {
		if !room(qos.GrpJobsAccrue, state.UsageKey(state.UsageQOS, qos.ID, 0)) ||
			!room(qos.MaxAccruePerUser, state.UsageKey(state.UsageQOSUser, qos.ID, s.Job.UID)) ||
			!room(qos.MaxAccruePerAcct, state.UsageKey(state.UsageQOSAccount, qos.ID, account)) {
			return false
		}
	}
	most := (*int64)(nil)
	for _, assoc := range cluster.Policy.Chain(s.Assoc) {
		if most == nil {
			most = assoc.MaxJobsAccrue
		}
		if !room(assoc.GrpJobsAccrue, state.UsageKey(state.UsageAssoc, 0, assoc.ID)) {
			return false
		}
	}
	return room(most, state.UsageKey(state.UsageAssoc, 0, s.Assoc))
}

// LimitsAccrual tells whether any QOS or association limits how many jobs age.
func LimitsAccrual(cluster *state.State) bool {
	return cluster.Config.Enforce.Limits && (slices.ContainsFunc(cluster.Policy.QOS,
		func(qos spec.QOS) bool {
			return qos.GrpJobsAccrue != nil || qos.MaxAccruePerUser != nil ||
				qos.MaxAccruePerAcct != nil
		}) || slices.ContainsFunc(cluster.Policy.Assocs, func(a spec.Association) bool {
		return a.GrpJobsAccrue != nil || a.MaxJobsAccrue != nil
	}))
}
