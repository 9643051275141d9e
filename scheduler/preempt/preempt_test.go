package preempt_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/preempt"
	"github.com/musterhpc/muster/spec"
)

const (
	start = spec.Instant(1_800_000_000) * spec.Instant(spec.Second)
	cpus  = 64 // of the one node
)

type tester interface{ Fatal(...any) }

// cluster is one node with partitions p1, p2 and p3 of the tiers 1, 2 and 3.
type cluster struct {
	t    tester
	st   *state.State
	next int // the first CPU that is free
}

// newCluster makes the cluster; mode is the PreemptMode of p1.
func newCluster(t tester, sched spec.SchedConfig, mode string, qos ...spec.QOS) *cluster {
	c := &cluster{t: t, st: state.New()}
	config := &spec.Config{
		Nodes:  []spec.NodeSpec{{Name: "n", CPUs: cpus, Mem: 1000}},
		Limits: spec.JobLimits{JobRequeue: true},
		Sched:  sched,
	}
	for tier := uint32(1); tier <= 3; tier++ {
		config.Partitions = append(config.Partitions, spec.PartitionSpec{
			Name:         fmt.Sprintf("p%d", tier),
			NodeNames:    []string{"n"},
			PriorityTier: tier,
			GraceTime:    spec.Span(tier) * spec.Second,
		})
	}
	config.Partitions[0].PreemptMode = mode
	c.apply(start, &event.ConfigAdopted{Config: config})
	c.apply(start, &event.NodeRegistered{Node: "n", Inventory: spec.Inventory{CPUs: cpus, Mem: 1000}})
	for i := range qos {
		c.apply(start, &event.QOSPut{QOS: qos[i]})
	}
	return c
}

func (c *cluster) apply(at spec.Instant, events ...event.Event) {
	for _, e := range events {
		if err := c.st.Apply(&event.Envelope{Seq: c.st.Seq + 1, At: max(at, c.st.At), Event: e}); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *cluster) submit(job spec.JobSpec) *state.Job {
	uid := c.st.NextUID
	c.apply(c.st.At, &event.JobSubmitted{
		UID:      uid,
		ID:       c.st.NextID,
		Spec:     &job,
		Req:      spec.TRES{CPU: 1, Node: 1},
		Eligible: c.st.At,
	})
	return c.st.Job(uid)
}

// run starts a job with one CPU of its own.
func (c *cluster) run(job spec.JobSpec, at spec.Instant, priority uint32) *state.Job {
	uid := c.submit(job).UID
	alloc := &spec.Allocation{
		Partition: job.Partitions[0],
		Nodes:     []spec.NodeAlloc{{ID: c.st.Node("n").ID, Name: "n", CPUs: spec.Bitset{}.Set(c.next)}},
		TRES:      spec.TRES{CPU: 1, Node: 1},
	}
	c.next++
	c.apply(at, &event.JobStarted{UID: uid, Attempt: 1, Limit: spec.Hour, Priority: priority, Alloc: alloc})
	return c.st.Job(uid)
}

func (c *cluster) part(name string) *spec.PartitionSpec { return c.st.Parts.Find(name).Spec }

// findVictims lists whom a job may push out at an instant; rules are nil where there is nobody.
func (c *cluster) findVictims(
	job *state.Job,
	at spec.Instant,
	priority uint32,
) ([]preempt.Victim, spec.Instant) {
	rules := preempt.New(c.st, at, nil)
	if rules == nil {
		return nil, spec.FarFuture
	}
	return rules.Victims(job, c.part(job.Spec.Partitions[0]), priority)
}

// TestModes: what happens to a victim follows from the words of PreemptMode, of the
// partition before those of the cluster, and from whether the job can be queued again.
func TestModes(t *testing.T) {
	plain := spec.JobSpec{Partitions: []string{"p1"}}
	once := plain
	once.Queue.Requeue = spec.No
	shell := plain
	shell.Shell = true
	for _, c := range []struct {
		cluster, part string
		job           spec.JobSpec
		want          preempt.Mode
	}{
		{"OFF", "", plain, preempt.Off},
		{"CANCEL", "", plain, preempt.Cancel},
		{"REQUEUE", "", plain, preempt.Requeue},
		{"REQUEUE", "", once, preempt.Cancel},
		{"REQUEUE", "", shell, preempt.Cancel},
		{"SUSPEND,GANG", "", plain, preempt.Suspend},
		{"SUSPEND,GANG", "", once, preempt.Suspend},
		{"CANCEL", "REQUEUE", plain, preempt.Requeue},
		{"CANCEL", "OFF", plain, preempt.Off},
		{"OFF", "CANCEL", plain, preempt.Cancel},
	} {
		sched := spec.SchedConfig{PreemptType: "preempt/partition_prio", PreemptMode: c.cluster}
		lab := newCluster(t, sched, c.part)
		running := lab.run(c.job, start, 0)
		waits := lab.submit(spec.JobSpec{Partitions: []string{"p2"}})
		list, _ := lab.findVictims(waits, start, 0)
		var want []preempt.Victim
		if c.want != preempt.Off {
			want = []preempt.Victim{{UID: running.UID, Attempt: 1, Mode: c.want, Grace: spec.Second}}
		}
		if !slices.Equal(list, want) {
			t.Errorf("cluster %q, partition %q: victims %+v, want %+v", c.cluster, c.part, list, want)
		}
	}
}

// TestByQOS: with preempt/qos the list of the QOS decides, not the tier of the partition,
// and WITHIN adds jobs of the same QOS whose priority is lower.
func TestByQOS(t *testing.T) {
	qos := []spec.QOS{
		{ID: 1, Name: "low", GraceTime: 9 * spec.Second},
		{ID: 2, Name: "high", Preempt: []string{"low"}, PreemptMode: "WITHIN"},
		{ID: 3, Name: "kept", PreemptMode: "OFF"},
		{ID: 4, Name: "all", Preempt: []string{"low", "high", "kept"}, PreemptMode: "REQUEUE"},
	}
	sched := spec.SchedConfig{PreemptType: "preempt/qos", PreemptMode: "CANCEL"}
	for _, c := range []struct {
		waits, runs string
		priority    uint32 // of the job that waits; the other has 10
		want        preempt.Mode
	}{
		{"high", "low", 0, preempt.Cancel},
		{"low", "high", 99, preempt.Off},
		{"low", "low", 99, preempt.Off},
		{"high", "high", 11, preempt.Cancel},
		{"high", "high", 10, preempt.Off},
		{"all", "kept", 99, preempt.Off},
		{"all", "high", 0, preempt.Cancel},
		{"", "low", 99, preempt.Off},
	} {
		lab := newCluster(t, sched, "", qos...)
		running := lab.run(spec.JobSpec{Partitions: []string{"p3"}, QOS: c.runs}, start, 10)
		waits := lab.submit(spec.JobSpec{Partitions: []string{"p1"}, QOS: c.waits})
		list, _ := lab.findVictims(waits, start, c.priority)
		var want []preempt.Victim
		if c.want != preempt.Off {
			victim := preempt.Victim{UID: running.UID, Attempt: 1, Mode: c.want}
			if c.runs == "low" {
				victim.Grace = 9 * spec.Second
			}
			want = append(want, victim)
		}
		if !slices.Equal(list, want) {
			t.Errorf("%q for %q: victims %+v, want %+v", c.runs, c.waits, list, want)
		}
	}
}

// TestExemptAndOrder: for jobs of random tiers, ages and priorities, the victims are exactly
// those of a lower tier that ran for long enough, in the order of what they cost, and the
// second result is the instant at which the next one joins them.
func TestExemptAndOrder(t *testing.T) {
	found, exempt := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		sched := spec.SchedConfig{
			PreemptType:       "preempt/partition_prio",
			PreemptMode:       "REQUEUE",
			PreemptExempt:     spec.Span(rapid.IntRange(0, 10).Draw(t, "exempt")) * spec.Minute,
			PreemptExemptPrio: uint32(rapid.IntRange(0, 8).Draw(t, "exempt from priority")),
			PreemptYoungest:   rapid.Bool().Draw(t, "youngest first"),
		}
		lab := newCluster(t, sched, "")
		for i := range rapid.IntRange(0, 12).Draw(t, "jobs") {
			tier := rapid.SampledFrom([]string{"p1", "p2", "p3"}).Draw(t, "partition")
			priority := uint32(rapid.IntRange(1, 9).Draw(t, "priority"))
			at := start.Add(spec.Span(i/2) * spec.Minute) // two start at once
			lab.run(spec.JobSpec{Partitions: []string{tier}}, at, priority)
		}
		now := lab.st.At
		waits := lab.submit(spec.JobSpec{Partitions: []string{"p3"}})
		list, next := lab.findVictims(waits, now, 0)
		want, wantNext := lab.expectVictims(now)
		if !slices.Equal(list, want) || next != wantNext {
			t.Fatalf("victims %+v, next %d; want %+v, next %d", list, next, want, wantNext)
		}
		found += len(list)
		for _, victim := range list {
			if !preempt.Allowed(lab.st, now, waits, lab.part("p3"), 0, victim) {
				t.Fatalf("victim %+v is not allowed", victim)
			}
			victim.Attempt++
			if preempt.Allowed(lab.st, now, waits, lab.part("p3"), 0, victim) {
				t.Fatalf("victim %+v of a later attempt is allowed", victim)
			}
		}
		if next == spec.FarFuture {
			return
		}
		exempt++
		if before, _ := lab.findVictims(waits, next-1, 0); len(before) != len(list) {
			t.Fatalf("%d victims just before %d, %d now", len(before), next, len(list))
		}
		if later, _ := lab.findVictims(waits, next, 0); len(later) <= len(list) {
			t.Fatalf("%d victims at %d, %d before", len(later), next, len(list))
		}
	})
	if found == 0 || exempt == 0 {
		t.Errorf("%d victims and %d exempt jobs: the test does not reach what it is for", found, exempt)
	}
}

// expectVictims is the list for a job of p3 by a plain look at all jobs that run.
func (c *cluster) expectVictims(now spec.Instant) ([]preempt.Victim, spec.Instant) {
	sched := &c.st.Config.Sched
	next := spec.FarFuture
	var jobs []*state.Job
	c.st.Active.Range(func(uid uint64, _ struct{}) bool {
		job := c.st.Job(spec.JobUID(uid))
		above := sched.PreemptExemptPrio > 0 && job.StartPrio >= sched.PreemptExemptPrio
		from := job.Started.Add(sched.PreemptExempt)
		switch {
		case above || job.Alloc.Partition == "p3":
		case from > now:
			next = min(next, from)
		default:
			jobs = append(jobs, job)
		}
		return true
	})
	slices.SortFunc(jobs, func(a, b *state.Job) int {
		younger := b.Started.Sub(a.Started)
		switch {
		case sched.PreemptYoungest && younger != 0:
			return sign(int64(younger))
		case a.Alloc.Partition != b.Alloc.Partition:
			return sign(int64(c.part(a.Alloc.Partition).PriorityTier) - int64(c.part(b.Alloc.Partition).PriorityTier))
		case a.StartPrio != b.StartPrio:
			return sign(int64(a.StartPrio) - int64(b.StartPrio))
		case younger != 0:
			return sign(int64(younger))
		}
		return sign(int64(b.UID) - int64(a.UID))
	})
	var out []preempt.Victim
	for _, job := range jobs {
		out = append(out, preempt.Victim{
			UID:     job.UID,
			Attempt: 1,
			Mode:    preempt.Requeue,
			Grace:   c.part(job.Alloc.Partition).GraceTime,
		})
	}
	return out, next
}

func sign(n int64) int {
	switch {
	case n < 0:
		return -1
	case n > 0:
		return 1
	}
	return 0
}

// TestJobsThatRanBefore: a search can be bounded to jobs that ran in an earlier state, or to
// those that have started since; each job is in exactly one of the two.
func TestJobsThatRanBefore(t *testing.T) {
	sched := spec.SchedConfig{PreemptType: "preempt/partition_prio", PreemptMode: "CANCEL"}
	lab := newCluster(t, sched, "")
	old := lab.run(spec.JobSpec{Partitions: []string{"p1"}}, start, 0)
	before := lab.st.Freeze()
	lab.st = before.Fork()
	young := lab.run(spec.JobSpec{Partitions: []string{"p1"}}, start.Add(spec.Minute), 0)
	waits := lab.submit(spec.JobSpec{Partitions: []string{"p2"}})
	now := lab.st.At
	for _, c := range []struct {
		name  string
		rules *preempt.Rules
		want  spec.JobUID
	}{
		{"ran before", preempt.New(lab.st, now, before), old.UID},
		{"started since", preempt.New(lab.st, now, nil).Since(before), young.UID},
	} {
		list, _ := c.rules.Victims(waits, lab.part("p2"), 0)
		if len(list) != 1 || list[0].UID != c.want {
			t.Errorf("%s: victims %+v, want job uid %d", c.name, list, c.want)
		}
	}
}
