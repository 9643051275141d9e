package guarantee_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/guarantee"
	"github.com/musterhpc/muster/scheduler/preempt"
	"github.com/musterhpc/muster/spec"
)

const (
	start    = spec.Instant(1_800_000_000) * spec.Instant(spec.Second)
	cpus     = 64 // of the one node
	accounts = 4  // below the root
)

// cluster is one node on which users of several accounts run jobs. Account i has the
// association 2i+2 and its only user the association 2i+3.
type cluster struct {
	t      *rapid.T
	st     *state.State
	used   spec.Bitset
	floor  [accounts]int64 // CPUs guaranteed; 0 = nothing
	weight [accounts]int64
}

func newCluster(t *rapid.T) *cluster {
	c := &cluster{t: t, st: state.New()}
	config := &spec.Config{
		Nodes:      []spec.NodeSpec{{Name: "n", CPUs: cpus, Mem: 1000}},
		Partitions: []spec.PartitionSpec{{Name: "p", NodeNames: []string{"n"}, GraceTime: 7 * spec.Second}},
		Limits:     spec.JobLimits{JobRequeue: rapid.Bool().Draw(t, "requeue")},
	}
	config.Sched.PreemptExempt = spec.Span(rapid.IntRange(0, 2).Draw(t, "exempt")) * spec.Minute
	c.apply(start, &event.ConfigAdopted{Config: config})
	c.apply(start, &event.NodeRegistered{Node: "n", Inventory: spec.Inventory{CPUs: cpus, Mem: 1000}})
	c.apply(start, &event.AssociationPut{Association: spec.Association{ID: 1, Account: "root"}})
	for i := range accounts {
		c.addAccount(i)
	}
	return c
}

func (c *cluster) addAccount(i int) {
	name := fmt.Sprintf("a%d", i)
	account := spec.Association{ID: uint32(2*i + 2), Account: name, Parent: 1}
	c.floor[i] = rapid.SampledFrom([]int64{0, 0, 4, 8, 16}).Draw(c.t, "floor of "+name)
	if c.floor[i] > 0 {
		account.Guaranteed = spec.Limits{{Name: "cpu", N: c.floor[i]}}
	}
	account.Shares = rapid.Int64Range(1, 5).Draw(c.t, "shares of "+name)
	c.weight[i] = account.Shares
	if rapid.Bool().Draw(c.t, "own weight of "+name) {
		weight := rapid.Int64Range(0, 3).Draw(c.t, "weight of "+name)
		account.OverQuota = &weight
		c.weight[i] = weight
	}
	user := spec.Association{ID: uint32(2*i + 3), Account: name, User: "u" + name, Parent: account.ID}
	c.apply(start, &event.AssociationPut{Association: account}, &event.AssociationPut{Association: user})
}

func (c *cluster) apply(at spec.Instant, events ...event.Event) {
	for _, e := range events {
		if err := c.st.Apply(&event.Envelope{Seq: c.st.Seq + 1, At: at, Event: e}); err != nil {
			c.t.Fatal(err)
		}
	}
}

// submit queues a job of an account that requests some CPUs.
func (c *cluster) submit(account int, n int64) *state.Job {
	name := fmt.Sprintf("a%d", account)
	uid := c.st.NextUID
	c.apply(max(c.st.At, start), &event.JobSubmitted{
		UID:      uid,
		ID:       c.st.NextID,
		Spec:     &spec.JobSpec{User: "u" + name, Account: name, Partitions: []string{"p"}},
		Req:      spec.TRES{CPU: n, Node: 1},
		Assoc:    uint32(2*account + 3),
		Eligible: start,
	})
	return c.st.Job(uid)
}

// run starts a job of an account at an instant, if the node has the CPUs.
func (c *cluster) run(account int, n int64, at spec.Instant) {
	if int64(c.used.Count())+n > cpus {
		return
	}
	job := c.submit(account, n)
	var mine spec.Bitset
	for range n {
		cpu := 0
		for c.used.Has(cpu) {
			cpu++
		}
		mine = mine.Set(cpu)
		c.used = c.used.Set(cpu)
	}
	c.apply(at, &event.JobStarted{UID: job.UID, Attempt: 1, Limit: spec.Hour, Alloc: &spec.Allocation{
		Partition: "p",
		Nodes:     []spec.NodeAlloc{{ID: c.st.Node("n").ID, Name: "n", CPUs: mine}},
		TRES:      spec.TRES{CPU: n, Node: 1},
	}})
}

// fill runs jobs of all accounts, one for each minute before now.
func (c *cluster) fill() (now spec.Instant) {
	at := start
	for range rapid.IntRange(0, 20).Draw(c.t, "jobs") {
		account := rapid.IntRange(0, accounts-1).Draw(c.t, "account")
		at = at.Add(spec.Minute)
		c.run(account, rapid.Int64Range(1, 8).Draw(c.t, "CPUs"), at)
	}
	return at
}

// held counts the CPUs of the jobs of each account.
func (c *cluster) held() (out [accounts]int64) {
	c.st.Active.Range(func(uid uint64, _ struct{}) bool {
		job := c.st.Job(spec.JobUID(uid))
		out[accountOf(job)] += job.Alloc.TRES.CPU
		return true
	})
	return out
}

func accountOf(job *state.Job) int { return int(job.Assoc-3) / 2 }

func (c *cluster) guaranteesAny() bool {
	return slices.ContainsFunc(c.floor[:], func(n int64) bool { return n > 0 })
}

// TestVictimsHoldMoreThanTheirOwn compares the list of victims with what a plain count of
// the CPUs says: only a job within its guarantee has victims, each victim leaves its account
// with no less than its own at the moment it is taken, and the accounts give back in the
// order of what they hold beyond it by weight.
func TestVictimsHoldMoreThanTheirOwn(t *testing.T) {
	victims := 0
	rapid.Check(t, func(t *rapid.T) {
		c := newCluster(t)
		now := c.fill()
		mine := rapid.IntRange(0, accounts-1).Draw(t, "whose job")
		job := c.submit(mine, rapid.Int64Range(1, 12).Draw(t, "requested"))
		held := c.held()
		within := c.floor[mine] > 0 && held[mine]+job.Req.CPU <= c.floor[mine]

		g := guarantee.New(c.st, now, nil)
		if (g != nil) != c.guaranteesAny() {
			t.Fatalf("guarantees %v of floors %v", g, c.floor)
		}
		if got := g.Within(job, job.Req); got != within {
			t.Fatalf("within %v: holds %d, requests %d, floor %d", got, held[mine], job.Req.CPU, c.floor[mine])
		}
		list := g.Victims(job, job.Req)
		if !within && list != nil {
			t.Fatalf("%d victims of a job beyond its guarantee", len(list))
		}
		for _, victim := range list {
			victims++
			from := c.st.Job(victim.UID)
			at := accountOf(from)
			if at == mine || held[at] <= c.floor[at] {
				t.Fatalf("account %d, which holds %d of its %d, makes room for account %d", at, held[at], c.floor[at], mine)
			}
			if now.Sub(from.Started) < c.st.Config.Sched.PreemptExempt {
				t.Fatalf("job %d makes room after %d", from.ID, now.Sub(from.Started))
			}
			for other := range accounts {
				if other != mine && c.comesBefore(other, at, held) && c.hasVictim(other, list) {
					t.Fatalf("account %d gives back before account %d: %v of %v, weights %v", at, other, held, c.floor, c.weight)
				}
			}
			held[at] -= from.Alloc.TRES.CPU
			list = list[1:]
		}
	})
	if victims == 0 {
		t.Error("no job had a victim: the test does not reach what it is for")
	}
}

// comesBefore tells whether an account gives back before another one.
func (c *cluster) comesBefore(a, b int, held [accounts]int64) bool {
	if held[a] <= c.floor[a] {
		return false
	}
	if (c.weight[a] == 0) != (c.weight[b] == 0) {
		return c.weight[a] == 0
	}
	excess := func(i int) int64 { return (held[i] - c.floor[i]) * 1000 / max(c.weight[i], 1) }
	return excess(a) > excess(b)
}

// hasVictim tells whether a job of an account is still to come in a list.
func (c *cluster) hasVictim(account int, list []preempt.Victim) bool {
	return slices.ContainsFunc(list, func(v preempt.Victim) bool {
		return accountOf(c.st.Job(v.UID)) == account
	})
}

// TestAllowedAgreesWithVictims: on an unchanged state the check of a proposal lets pass what
// the search named first, and nothing of another attempt, mode or account.
func TestAllowedAgreesWithVictims(t *testing.T) {
	checked := 0
	rapid.Check(t, func(t *rapid.T) {
		c := newCluster(t)
		now := c.fill()
		job := c.submit(rapid.IntRange(0, accounts-1).Draw(t, "whose job"), rapid.Int64Range(1, 8).Draw(t, "requested"))
		for _, victim := range guarantee.New(c.st, now, nil).Victims(job, job.Req) {
			checked++
			if !guarantee.Allowed(c.st, now, job, victim) {
				t.Fatalf("victim %+v is not allowed", victim)
			}
			other := victim
			other.Attempt++
			if guarantee.Allowed(c.st, now, job, other) {
				t.Fatal("a later attempt is allowed")
			}
			other = victim
			other.Mode = preempt.Suspend
			if guarantee.Allowed(c.st, now, job, other) {
				t.Fatal("a job may be suspended, which gives nothing back")
			}
			owner := c.submit(accountOf(c.st.Job(victim.UID)), 1)
			if guarantee.Allowed(c.st, now, owner, victim) {
				t.Fatal("an account takes from itself")
			}
		}
	})
	if checked == 0 {
		t.Error("no victim was checked")
	}
}

// TestShareIsWhatIsHeldBeyond compares Share with the quotient that its comment names, and
// sees that claims count like jobs and that Unclaim takes back what Claim counted.
func TestShareIsWhatIsHeldBeyond(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newCluster(t)
		now := c.fill()
		mine := rapid.IntRange(0, accounts-1).Draw(t, "whose job")
		job := c.submit(mine, rapid.Int64Range(1, 12).Draw(t, "requested"))
		g := guarantee.New(c.st, now, nil)
		if g == nil {
			return
		}
		share := func(held int64) uint64 {
			beyond := held - c.floor[mine]
			switch {
			case c.floor[mine] > 0 && beyond+job.Req.CPU <= 0:
				return 0
			case c.weight[mine] == 0:
				return math.MaxUint64
			}
			return uint64(max(beyond, 0)) * 1_000_000_000 / cpus / uint64(c.weight[mine])
		}
		held := c.held()[mine]
		if got := g.Share(job); got != share(held) {
			t.Fatalf("share %d of %d CPUs, floor %d, weight %d, want %d", got, held, c.floor[mine], c.weight[mine], share(held))
		}
		more := rapid.Int64Range(0, 40).Draw(t, "claimed")
		claim := spec.TRES{CPU: more}
		g.Claim(job, claim)
		if got := g.Share(job); got != share(held+more) {
			t.Fatalf("share %d after a claim of %d, want %d", got, more, share(held+more))
		}
		g.Unclaim(job, claim)
		if got := g.Share(job); got != share(held) {
			t.Fatalf("share %d after the claim was taken back, want %d", got, share(held))
		}
	})
}

// TestRemovedVictimCountsNoMore: an account whose job was told to make room holds that
// much less, so that no more of its jobs are taken than are needed.
func TestRemovedVictimCountsNoMore(t *testing.T) {
	removed := 0
	rapid.Check(t, func(t *rapid.T) {
		c := newCluster(t)
		now := c.fill()
		job := c.submit(rapid.IntRange(0, accounts-1).Draw(t, "whose job"), 1)
		g := guarantee.New(c.st, now, nil)
		list := g.Victims(job, job.Req)
		for i, victim := range list {
			removed++
			g.RemoveVictim(victim.UID)
			if got := g.Victims(job, job.Req); !slices.Equal(got, list[i+1:]) {
				t.Fatalf("after %d victims %v come next, not %v", i+1, got, list[i+1:])
			}
		}
	})
	if removed == 0 {
		t.Error("no victim was removed")
	}
}

// TestNoGuarantees: a state in which nothing is guaranteed has no Guarantees, and what a
// pass asks of those answers that nothing is.
func TestNoGuarantees(t *testing.T) {
	st := state.New()
	g := guarantee.New(st, start, nil)
	if g != nil {
		t.Fatalf("guarantees %v of an empty state", g)
	}
	job := &state.Job{Spec: &spec.JobSpec{Account: "a"}}
	g.Claim(job, job.Req)
	g.Unclaim(job, job.Req)
	g.CountPromised(job)
	g.RemoveVictim(1)
	if g.Within(job, job.Req) || g.Victims(job, job.Req) != nil {
		t.Error("a job is within a guarantee that there is not")
	}
	if lines := guarantee.Explain(st, start, job); lines != nil {
		t.Errorf("explained: %q", lines)
	}
}
