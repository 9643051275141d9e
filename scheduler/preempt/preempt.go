// Package preempt says whom a job may push out of its place: by the tier of
// partitions or by QOS, in which way, after how long, and in which order
// victims are taken. Which of them are enough is for the pass to find out.
package preempt

import (
	"cmp"
	"slices"
	"strings"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/order"
	"github.com/musterhpc/muster/spec"
)

// Mode is what happens to a victim.
type Mode uint8

// The modes. A job that cannot be requeued is cancelled instead; one that is
// suspended leaves its CPUs only. A heterogeneous job makes room as a whole: it
// is requeued instead of suspended, and takes no turns.
const (
	Off Mode = iota
	Cancel
	Requeue
	Suspend
)

// Victim is a running job that may have to make room.
type Victim struct {
	UID     spec.JobUID
	Attempt uint32
	Mode    Mode
	Grace   spec.Span // between the first signal and the last; 0 = KillWait
}

// Rules are the rules of a configuration applied to the jobs that run.
type Rules struct {
	st   *state.State
	now  spec.Instant
	byQ  bool // preempt/qos, else preempt/partition_prio
	prio order.Running
	runs []run
}

// run is a job that runs, with what the rules look at.
type run struct {
	job   *state.Job
	prio  uint32
	part  *spec.PartitionSpec
	qos   *spec.QOS
	tier  uint32
	mode  Mode
	words string
	grace spec.Span
	from  spec.Instant // exempt before
	share int          // how many jobs take turns on its CPUs; 0 = they do not
	turn  spec.Instant // when its turn is over
}

// New collects the jobs that can be preempted at all, of those only that ran
// in an earlier state if one is given. It is nil where there are none, or no
// preemption.
func New(cluster *state.State, now spec.Instant, ran *state.State) *Rules {
	config := &cluster.Config.Sched
	if noneByRank(config) && !has(config.PreemptMode, "GANG") {
		return nil
	}
	rules := &Rules{
		st:   cluster,
		now:  now,
		byQ:  config.PreemptType == "preempt/qos",
		prio: order.NewRunning(cluster, now),
	}
	cluster.Active.Range(func(uid uint64, _ struct{}) bool {
		if ran != nil && !ran.Active.Has(uid) {
			return true
		}
		if x, ok := rules.lookAt(cluster.Job(spec.JobUID(uid))); ok {
			rules.runs = append(rules.runs, x)
		}
		return true
	})
	if rules.runs == nil {
		return nil
	}
	slices.SortStableFunc(rules.runs, rules.compareCost(config.PreemptYoungest))
	return rules
}

// Since keeps those jobs only that did not run in an earlier state.
func (r *Rules) Since(ran *state.State) *Rules {
	if r != nil {
		r.runs = slices.DeleteFunc(
			r.runs,
			func(x run) bool { return ran.Active.Has(uint64(x.job.UID)) },
		)
	}
	return r
}

// Configured tells that jobs of a higher rank push others out.
func Configured(config *spec.SchedConfig) bool { return !noneByRank(config) }

// noneByRank tells that no job is preempted for one of a higher rank.
func noneByRank(config *spec.SchedConfig) bool {
	return config.PreemptType == "" || config.PreemptType == "preempt/none"
}

// defaultSlice is SchedulerTimeSlice.
const defaultSlice = 30 * spec.Second

// Slice is how long a job runs at a time where jobs take turns.
func Slice(config *spec.SchedConfig) spec.Span {
	if config.TimeSlice > 0 {
		return config.TimeSlice
	}
	return defaultSlice
}

// turnsOf is how many jobs of a partition take turns on the same CPUs; 0 = they
// do not.
func turnsOf(config *spec.SchedConfig, part *spec.PartitionSpec) int {
	if part == nil {
		return 0
	}
	return config.Turns(part)
}

// TakesTurns tells of a job that may stand still for others, and go on by itself.
func TakesTurns(job *state.Job) bool { return job.Het == nil && job.Spec.Runner().Suspends() }

// lookAt applies the rules that depend on the victim alone.
func (r *Rules) lookAt(job *state.Job) (run, bool) {
	config := &r.st.Config.Sched
	if job.State != spec.Running || job.Ending != nil || job.Alloc == nil {
		return run{}, false
	}
	x := r.findRank(job)
	if noneByRank(config) || (config.PreemptExemptPrio > 0 && x.prio >= config.PreemptExemptPrio) {
		x.mode = Off
	}
	x.turn = job.RunsSince().Add(Slice(config))
	if TakesTurns(job) {
		x.share = turnsOf(config, x.part)
	}
	return x, x.mode != Off || x.share > 1
}

// findRank finds the rank of a job that runs and how it is preempted.
func (r *Rules) findRank(job *state.Job) run {
	config := &r.st.Config.Sched
	x := run{
		job:   job,
		prio:  r.prio.Of(job),
		words: config.PreemptMode,
		tier:  1,
		qos:   r.st.Policy.FindQOS(job.QOS()),
	}
	if partition := r.st.Parts.Find(job.Alloc.Partition); partition != nil {
		x.part, x.tier = partition.Spec, order.Tier(partition.Spec)
	}
	exempt := config.PreemptExempt
	switch {
	case !r.byQ && x.part != nil:
		x.grace = x.part.GraceTime
		if x.part.PreemptMode != "" {
			x.words = x.part.PreemptMode
		}
	case r.byQ && x.qos != nil:
		x.grace = x.qos.GraceTime
		if own := x.qos.PreemptMode; modeOf(own) != Off || has(own, "OFF") {
			x.words = own
		} else if own != "" { // only a modifier of the cluster's mode
			x.words += "," + own
		}
	}
	if x.qos != nil && x.qos.PreemptExempt > 0 {
		exempt = x.qos.PreemptExempt
	}
	x.mode = modeOf(x.words)
	standsStill := job.Het == nil && job.Spec.Runner().Suspends()
	if x.mode == Requeue || (x.mode == Suspend && !standsStill) {
		x.mode = Leave(r.st, job)
	}
	if exempt > 0 {
		x.from = job.Started.Add(exempt)
	}
	return x
}

// Leave is how a job makes room that is not to stand still: it is queued again,
// or cancelled where it cannot be. Of a heterogeneous job the leader decides,
// since all of it goes.
func Leave(cluster *state.State, job *state.Job) Mode {
	if job.Het.Follows() {
		if leader := cluster.Job(job.Het.Leader); leader != nil {
			job = leader
		}
	}
	if job.Spec.Shell || !job.Spec.Queue.Requeue.Or(cluster.Config.Limits.JobRequeue) {
		return Cancel
	}
	return Requeue
}

// modeOf finds the mode among the words of a PreemptMode.
func modeOf(words string) Mode {
	switch {
	case has(words, "OFF"):
		return Off
	case has(words, "REQUEUE"):
		return Requeue
	case has(words, "CANCEL"):
		return Cancel
	case has(words, "SUSPEND"):
		return Suspend
	}
	return Off
}

func has(words, word string) bool { return slices.Contains(strings.Split(words, ","), word) }

// compareCost orders victims: the lowest tier or priority of the QOS first, then
// the lowest priority, then the youngest; with youngest_first that comes first.
func (r *Rules) compareCost(youngest bool) func(a, b run) int {
	rank := func(x *run) int64 {
		if !r.byQ {
			return int64(x.tier)
		}
		if x.qos == nil {
			return 0
		}
		return int64(x.qos.Priority)
	}
	return func(a, b run) int {
		young := cmp.Compare(b.job.Started, a.job.Started)
		if youngest && young != 0 {
			return young
		}
		return cmp.Or(
			cmp.Compare(rank(&a), rank(&b)),
			cmp.Compare(a.prio, b.prio),
			young,
			cmp.Compare(b.job.UID, a.job.UID),
		)
	}
}

// Any tells whether a job of a QOS in a partition could ever preempt one of
// those that run.
func (r *Rules) Any(job *state.Job, part *spec.PartitionSpec) bool {
	if r == nil {
		return false
	}
	qos := r.st.Policy.FindQOS(job.QOS())
	return slices.ContainsFunc(
		r.runs,
		func(x run) bool { return r.outranksRun(qos, part, &x) || x.takesTurns(part) },
	)
}

// takesTurns tells whether a job leaves its CPUs to another of a partition when
// its turn is over.
func (x *run) takesTurns(part *spec.PartitionSpec) bool {
	return x.share > 1 && x.part.Name == part.Name
}

// isCrowded tells that as many jobs take turns with one that runs as may, on some
// node that it still has.
func (r *Rules) isCrowded(x *run) bool {
	for i := range x.job.Alloc.Nodes {
		if x.job.Done.Has(i) {
			continue // who is there now shares nothing with it
		}
		alloc, others := &x.job.Alloc.Nodes[i], 1
		node := r.st.NodeByID(alloc.ID)
		if node == nil {
			return true
		}
		for _, uid := range node.Jobs {
			if job := r.st.Job(uid); job.Auto &&
				job.Alloc.Nodes[job.Alloc.Index(alloc.ID)].CPUs.Intersects(alloc.CPUs) {
				others++
			}
		}
		if others >= x.share {
			return true
		}
	}
	return false
}

// outranksRun tells whether the rank of a job lets it preempt another: what does
// not depend on priority and time.
func (r *Rules) outranksRun(qos *spec.QOS, part *spec.PartitionSpec, x *run) bool {
	if x.mode == Off {
		return false
	}
	if !r.byQ {
		return order.Tier(part) > x.tier
	}
	if qos == nil || x.qos == nil {
		return false
	}
	return slices.Contains(qos.Preempt, x.qos.Name) ||
		(qos.Name == x.qos.Name && has(x.words, "WITHIN"))
}

// Victims lists the jobs that a job of a priority may preempt in a partition,
// those that are taken first in front, and when the next job stops being
// exempt; FarFuture if none is.
func (r *Rules) Victims(
	job *state.Job,
	part *spec.PartitionSpec,
	priority uint32,
) ([]Victim, spec.Instant) {
	var victims []Victim
	next := spec.FarFuture
	qos := r.st.Policy.FindQOS(job.QOS())
	for i := range r.runs {
		x := &r.runs[i]
		if TakesTurns(job) && !r.outranksRun(qos, part, x) && x.takesTurns(part) && !r.isCrowded(x) {
			if x.turn > r.now {
				next = min(next, x.turn)
				continue
			}
			victims = append(victims, Victim{UID: x.job.UID, Attempt: x.job.Attempt, Mode: Suspend})
			continue
		}
		within := r.byQ && qos != nil && x.qos != nil && qos.Name == x.qos.Name
		if !r.outranksRun(qos, part, x) ||
			((within || has(x.words, "PRIORITY")) && priority <= x.prio) {
			continue
		}
		if x.from > r.now {
			next = min(next, x.from)
			continue
		}
		victims = append(
			victims,
			Victim{UID: x.job.UID, Attempt: x.job.Attempt, Mode: x.mode, Grace: x.grace},
		)
	}
	return victims, next
}

// Allowed tells whether the rules still name a job as a victim of another.
func Allowed(
	cluster *state.State,
	now spec.Instant,
	job *state.Job,
	part *spec.PartitionSpec,
	priority uint32,
	v Victim,
) bool {
	victim := cluster.Job(v.UID)
	if victim == nil || victim.Attempt != v.Attempt {
		return false
	}
	rules := &Rules{
		st:   cluster,
		now:  now,
		byQ:  cluster.Config.Sched.PreemptType == "preempt/qos",
		prio: order.NewRunning(cluster, now),
	}
	x, ok := rules.lookAt(victim)
	if !ok {
		return false
	}
	rules.runs = []run{x}
	list, _ := rules.Victims(job, part, priority)
	return slices.Contains(list, v)
}
