// Package guarantee gives accounts back what is guaranteed to them. What nobody is
// guaranteed, or does not use, anybody may have: it goes to the account that
// holds least beyond its own guarantee for each unit of its weight, which is its
// OverQuotaWeight, or else its Fairshare. When the owner of a guarantee returns, jobs
// of those who hold more than their own make room, first of the account that
// holds most beyond it by its weight.
package guarantee

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/order"
	"github.com/musterhpc/muster/scheduler/preempt"
	"github.com/musterhpc/muster/spec"
)

// Guarantees are the guarantees of a state and what is held of them.
type Guarantees struct {
	st     *state.State
	now    spec.Instant
	owners map[uint32]*owner
	names  []string         // of what some account is guaranteed
	totals map[string]int64 // how much of that there is
	runs   []*state.Job     // that may have to make room, the cheapest first
}

// owner is an account with a guarantee, or one without, which has none.
type owner struct {
	id      uint32
	floor   spec.Limits
	weight  int64     // of what it holds beyond its guarantee
	used    spec.TRES // by jobs that run and are not told to end
	claimed spec.TRES // by jobs of it that wait and for which others make room
	planned spec.TRES // by jobs of it that wait beyond its guarantee and have a start
}

// New collects the guarantees; nil where no account has one. Of the jobs that run
// only those make room that ran in an earlier state if one is given.
func New(cluster *state.State, now spec.Instant, ran *state.State) *Guarantees {
	if !slices.ContainsFunc(
		cluster.Policy.Assocs,
		func(a spec.Association) bool { return len(a.Guaranteed) > 0 },
	) {
		return nil
	}
	guarantees := &Guarantees{st: cluster, now: now, owners: map[uint32]*owner{}}
	guarantees.measureGuaranteed()
	cluster.Active.Range(func(uid uint64, _ struct{}) bool {
		job := cluster.Job(spec.JobUID(uid))
		if job.Alloc == nil || job.Ending != nil {
			return true
		}
		o := guarantees.ownerOf(job)
		o.used = o.used.Add(job.Alloc.TRES)
		if (ran == nil || ran.Active.Has(uid)) && job.State == spec.Running &&
			job.Started.Add(cluster.Config.Sched.PreemptExempt) <= now {
			guarantees.runs = append(guarantees.runs, job)
		}
		return true
	})
	cluster.Waiting.Range(func(uid uint64, _ struct{}) bool {
		if job := cluster.Job(spec.JobUID(uid)); job != nil && cluster.Claims(job) {
			guarantees.Claim(job, job.Req)
		}
		return true
	})
	running, prio := order.NewRunning(cluster, now),
		make(map[spec.JobUID]uint32, len(guarantees.runs))
	for _, job := range guarantees.runs {
		prio[job.UID] = running.Of(job)
	}
	slices.SortStableFunc(guarantees.runs, func(a, b *state.Job) int {
		return cmp.Or(
			cmp.Compare(prio[a.UID], prio[b.UID]),
			cmp.Compare(b.Started, a.Started),
			cmp.Compare(b.UID, a.UID),
		)
	})
	return guarantees
}

// ownerOf finds whose guarantee a job is under: the nearest account above it that has
// one, else its own account, which is guaranteed nothing.
func (f *Guarantees) ownerOf(job *state.Job) *owner {
	id := f.st.Policy.AccountAssoc(job.Spec.Account)
	var floor spec.Limits
	for _, assoc := range f.st.Policy.Chain(job.Assoc) {
		if len(assoc.Guaranteed) > 0 {
			id, floor = assoc.ID, assoc.Guaranteed
			break
		}
	}
	o := f.owners[id]
	if o == nil {
		o = &owner{id: id, floor: floor, weight: 1}
		if assoc := f.st.Policy.Assoc(id); assoc != nil {
			o.weight = max(assoc.Share(), 1)
			if assoc.OverQuota != nil {
				o.weight = *assoc.OverQuota
			}
		}
		f.owners[id] = o
	}
	return o
}

// guaranteedOf is how much of a TRES an owner is guaranteed.
func (o *owner) guaranteedOf(name string) int64 {
	n, _ := o.floor.Get(name)
	return max(n, 0)
}

// Within tells whether a job that needs at least so much is within its guarantee:
// with what the owner holds and has claimed already. It asks for some of what is
// guaranteed.
func (f *Guarantees) Within(job *state.Job, least spec.TRES) bool {
	if f == nil {
		return false
	}
	o := f.ownerOf(job)
	some := false
	for _, count := range o.floor {
		n := least.Get(count.Name)
		some = some || n > 0
		more := n
		if f.st.Claims(job) {
			more = 0 // it is among what is claimed
		}
		if o.used.Get(count.Name)+o.claimed.Get(count.Name)+more > o.guaranteedOf(count.Name) &&
			n > 0 {
			return false
		}
	}
	return some
}

// Claim counts what a job of an owner is to get as if it had it.
func (f *Guarantees) Claim(job *state.Job, least spec.TRES) {
	if f != nil {
		o := f.ownerOf(job)
		o.claimed = o.claimed.Add(least)
	}
}

// Unclaim is the reverse of Claim.
func (f *Guarantees) Unclaim(job *state.Job, least spec.TRES) {
	if f != nil {
		o := f.ownerOf(job)
		o.claimed = o.claimed.Sub(least)
	}
}

// CountPromised counts a job that is planned as if it had what it asks for: within
// its guarantee for all purposes, beyond it for the order in which others come.
func (f *Guarantees) CountPromised(job *state.Job) {
	if f == nil {
		return
	}
	if f.Within(job, job.Req) {
		f.Claim(job, job.Req)
		return
	}
	o := f.ownerOf(job)
	o.planned = o.planned.Add(job.Req)
}

// measureGuaranteed finds what is guaranteed to anybody, and how much of it there is.
func (f *Guarantees) measureGuaranteed() {
	f.totals = map[string]int64{}
	for i := range f.st.Policy.Assocs {
		for _, count := range f.st.Policy.Assocs[i].Guaranteed {
			if !slices.Contains(f.names, count.Name) {
				f.names = append(f.names, count.Name)
			}
		}
	}
	f.st.Nodes.Range(func(_ uint64, node *state.Node) bool {
		all := node.Capacity()
		for _, name := range f.names {
			f.totals[name] += all.Get(name)
		}
		return true
	})
}

// Share is what the account of a job holds beyond its guarantee for each unit of its
// weight: of what is guaranteed to anybody that which it holds most of, in
// billionths of all there is. The account with the least comes first with what
// goes beyond guarantees. One without weight comes last; a job within its guarantee does
// not wait for a share.
func (f *Guarantees) Share(job *state.Job) uint64 {
	if f.Within(job, job.Req) {
		return 0
	}
	o := f.ownerOf(job)
	if o.weight == 0 {
		return math.MaxUint64
	}
	var most uint64
	for _, name := range f.names {
		held := o.used.Get(name) + o.claimed.Get(name) + o.planned.Get(name) - o.guaranteedOf(name)
		hi, lo := bits.Mul64(uint64(max(held, 0)), 1_000_000_000)
		if total := uint64(max(f.totals[name], 1)); hi < total {
			share, _ := bits.Div64(hi, lo, total)
			most = max(most, share/uint64(o.weight))
		}
	}
	return most
}

// RemoveVictim takes a job that was told to make room from what its owner holds.
func (f *Guarantees) RemoveVictim(uid spec.JobUID) {
	if f == nil {
		return
	}
	i := slices.IndexFunc(f.runs, func(job *state.Job) bool { return job.UID == uid })
	if i < 0 {
		return
	}
	o := f.ownerOf(f.runs[i])
	o.used = o.used.Sub(f.runs[i].Alloc.TRES)
	f.runs = slices.Delete(f.runs, i, i+1)
}

// exceedsGuarantee tells that an owner holds more of something than it is guaranteed, of
// what a job both needs and is guaranteed and another one holds.
func (o *owner) exceedsGuarantee(mine *owner, least, held spec.TRES) bool {
	return slices.ContainsFunc(mine.floor, func(count spec.TRESCount) bool {
		return least.Get(count.Name) > 0 && held.Get(count.Name) > 0 &&
			o.used.Get(count.Name) > o.guaranteedOf(count.Name)
	})
}

// Most bounds the victims that are looked at for one job.
const most = 1000

// Victims lists the jobs that have to make room for a job within its guarantee,
// those that are taken first in front; nil for other jobs. None is of an account
// that holds no more than it is guaranteed when its turn comes.
func (f *Guarantees) Victims(job *state.Job, least spec.TRES) []preempt.Victim {
	if !f.Within(job, least) {
		return nil
	}
	mine := f.ownerOf(job)
	rest := map[uint32]*owner{}
	queues := map[uint32][]*state.Job{}
	var ids []uint32
	for _, r := range f.runs {
		o := f.ownerOf(r)
		if o == mine || !o.exceedsGuarantee(mine, least, r.Alloc.TRES) {
			continue
		}
		if rest[o.id] == nil {
			c := *o
			rest[o.id] = &c
			ids = append(ids, o.id)
		}
		queues[o.id] = append(queues[o.id], r)
	}
	slices.Sort(ids)
	var victims []preempt.Victim
	for len(victims) < most {
		best := -1
		for i, id := range ids {
			if len(queues[id]) > 0 &&
				rest[id].exceedsGuarantee(mine, least, queues[id][0].Alloc.TRES) &&
				(best < 0 || rest[id].givesBackBefore(rest[ids[best]], mine, least)) {
				best = i
			}
		}
		if best < 0 {
			return victims
		}
		o, r := rest[ids[best]], queues[ids[best]][0]
		queues[ids[best]] = queues[ids[best]][1:]
		o.used = o.used.Sub(r.Alloc.TRES)
		victims = append(victims, f.makeVictim(r))
	}
	return victims
}

// givesBackBefore tells whether an owner gives back before another one: whoever has no
// weight at all does, and then whoever holds more beyond its guarantee by its weight.
func (o *owner) givesBackBefore(p, mine *owner, least spec.TRES) bool {
	if (o.weight == 0) != (p.weight == 0) {
		return o.weight == 0
	}
	return o.excessOf(mine, least) > p.excessOf(mine, least)
}

// excessOf is what an owner holds beyond its guarantee by its weight, of what a job
// needs.
func (o *owner) excessOf(mine *owner, least spec.TRES) int64 {
	var sum int64
	for _, count := range mine.floor {
		if least.Get(count.Name) > 0 {
			sum += max(
				o.used.Get(count.Name)-o.guaranteedOf(count.Name), 0,
			) * 1000 / max(o.weight, 1)
		}
	}
	return sum
}

// makeVictim is how a job makes room: it is requeued, or cancelled where it cannot
// be.
func (f *Guarantees) makeVictim(r *state.Job) preempt.Victim {
	victim := preempt.Victim{UID: r.UID, Attempt: r.Attempt, Mode: preempt.Leave(f.st, r)}
	if partition := f.st.Parts.Find(r.Alloc.Partition); partition != nil {
		victim.Grace = partition.Spec.GraceTime
	}
	return victim
}

// Explain tells what is guaranteed to the account of a job that waits, of what it
// asks for, and what that means for it; nil if nothing is.
func Explain(cluster *state.State, now spec.Instant, job *state.Job) []string {
	guarantees := New(cluster, now, nil)
	if guarantees == nil {
		return nil
	}
	o, name := guarantees.ownerOf(job), job.Spec.Account
	if association := cluster.Policy.Assoc(o.id); association != nil {
		name = association.Account
	}
	var out []string
	for _, count := range o.floor {
		if job.Req.Get(count.Name) > 0 {
			text := fmt.Sprintf(
				"account %s holds %d of the %d %s that are guaranteed to it",
				name,
				o.used.Get(count.Name),
				count.N,
				count.Name,
			)
			if n := o.claimed.Get(count.Name); n > 0 {
				text += fmt.Sprintf(", and others make room for %d more", n)
			}
			out = append(out, text)
		}
	}
	switch {
	case len(out) == 0:
		return nil
	case guarantees.Within(job, job.Req):
		return append(
			out,
			"the job is within that: it comes first, and jobs of accounts that hold more than their own make room for it",
		)
	}
	return append(
		out,
		fmt.Sprintf(
			"the job goes beyond that: of what nobody is guaranteed, or uses, the account with the least beyond its own for each unit of weight comes first; %s has the weight %d",
			name,
			o.weight,
		),
	)
}

// Allowed tells whether a job may still push another out for its guarantee.
func Allowed(cluster *state.State, now spec.Instant, job *state.Job, victim preempt.Victim) bool {
	guarantees := New(cluster, now, nil)
	r := cluster.Job(victim.UID)
	if guarantees == nil || r == nil {
		return false
	}
	sameRun := r.Attempt == victim.Attempt && slices.Contains(guarantees.runs, r)
	if !sameRun || guarantees.makeVictim(r) != victim {
		return false
	}
	mine := guarantees.ownerOf(job)
	o := guarantees.ownerOf(r)
	return o != mine && guarantees.Within(job, job.Req) &&
		o.exceedsGuarantee(mine, job.Req, r.Alloc.TRES)
}
