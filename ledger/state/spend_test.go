package state

import (
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/fixed"
)

// ledgerOfUse is the same history in rationals: what every subject has used.
type ledgerOfUse map[uint64]*big.Rat

func rational(a fixed.U128) *big.Rat {
	n := new(big.Int).Lsh(new(big.Int).SetUint64(a.Hi), 64)
	return new(big.Rat).SetFrac(n.Or(n, new(big.Int).SetUint64(a.Lo)), new(big.Int).Lsh(big.NewInt(1), 64))
}

func share(f uint64) *big.Rat {
	return new(big.Rat).SetFrac(new(big.Int).SetUint64(f), new(big.Int).SetUint64(event.One))
}

// power is f^n, rounded to 2^-200 on the way.
func power(f *big.Rat, n int64) *big.Rat {
	out, unit := big.NewRat(1, 1), new(big.Int).Lsh(big.NewInt(1), 200)
	for b := new(big.Rat).Set(f); n > 0; n >>= 1 {
		if n&1 == 1 {
			out.Mul(out, b)
		}
		b.Mul(b, b)
		for _, r := range []*big.Rat{out, b} {
			q := new(big.Int).Mul(r.Num(), unit)
			r.SetFrac(q.Quo(q, r.Denom()), unit)
		}
	}
	return out
}

func (l ledgerOfUse) add(key uint64, n *big.Rat) {
	if l[key] == nil {
		l[key] = new(big.Rat)
	}
	l[key].Add(l[key], n)
}

// TestUseAgainstRationals runs jobs of random lengths with decay, and compares
// what associations and QOS have used with the same sums in rationals: each
// second of a job counts billing times UsageFactor, faded by how long the
// charge covers, and fades further with every period.
func TestUseAgainstRationals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := New()
		at := spec.Instant(0)
		put := func(e event.Event) {
			if err := s.Apply(&event.Envelope{Seq: s.Seq + 1, At: at, Event: e}); err != nil {
				t.Fatal(err)
			}
		}
		factor := rapid.SampledFrom([]int64{-1, 0, 250_000, 1_000_000, 3_000_000}).Draw(t, "factor")
		put(&event.ConfigAdopted{Config: &spec.Config{Nodes: []spec.NodeSpec{{Name: "n", CPUs: 64}},
			Partitions: []spec.PartitionSpec{{Name: "p", NodeNames: []string{"n"}, QOS: "kept"}}}})
		put(&event.NodeRegistered{Node: "n", Inventory: spec.Inventory{CPUs: 64}})
		put(&event.QOSPut{QOS: spec.QOS{ID: 1, Name: "normal", UsageFactor: factor}})
		put(&event.QOSPut{QOS: spec.QOS{ID: 2, Name: "kept", Flags: []string{"NoDecay"}}})
		put(&event.AssociationPut{Association: spec.Association{ID: 1, Account: "root"}})
		put(&event.AssociationPut{Association: spec.Association{ID: 2, Account: "a", Parent: 1}})
		put(&event.AssociationPut{Association: spec.Association{ID: 3, Account: "a", User: "u", Parent: 2}})
		perSecond := event.One - rapid.Uint64Range(0, event.One/1000).Draw(t, "decay")
		want := ledgerOfUse{}
		fades := func(key uint64) bool { return key != UsageKey(UsageQOS, 2, 0) }
		aged := func(span spec.Span) {
			keep := fixed.Pow(perSecond, span.Seconds())
			put(&event.UsageAged{PerSecond: perSecond, Keep: keep})
			for key, n := range want {
				if fades(key) {
					n.Mul(n, share(keep))
				}
			}
		}
		aged(0)
		last, started, charged := at, spec.Instant(0), spec.Instant(0)
		var billing int64
		charge := func() {
			secs := big.NewRat(int64(at.Sub(charged)), int64(spec.Second))
			for _, key := range []uint64{UsageKey(UsageQOS, 1, 0), UsageKey(UsageQOS, 2, 0), UsageKey(UsageAssoc, 0, 1), UsageKey(UsageAssoc, 0, 2), UsageKey(UsageAssoc, 0, 3)} {
				n := new(big.Rat).Set(secs)
				if fades(key) {
					n.Mul(n, power(share(perSecond), at.Sub(charged).Seconds()))
				}
				n.Mul(n, big.NewRat((&spec.QOS{UsageFactor: factor}).Factor(), 1_000_000))
				want.add(key, n.Mul(n, big.NewRat(billing, 1)))
			}
			charged = at
		}
		for i := range rapid.IntRange(1, 12).Draw(t, "steps") {
			at += spec.Instant(rapid.Int64Range(0, int64(2*spec.Hour)).Draw(t, "time"))
			switch rapid.SampledFrom([]string{"start", "end", "age"}).Draw(t, "step") {
			case "start":
				if started != 0 {
					continue
				}
				billing = rapid.Int64Range(1, 1000).Draw(t, "billing")
				uid := s.NextUID
				put(&event.JobSubmitted{UID: uid, ID: s.NextID, Assoc: 3, Spec: &spec.JobSpec{Name: "j", User: "u", Account: "a", QOS: "normal", Partitions: []string{"p"}}})
				put(&event.JobStarted{UID: uid, Attempt: 1, Limit: spec.Hour, Alloc: &spec.Allocation{Partition: "p",
					TRES: spec.TRES{CPU: 1, Node: 1, Billing: billing}, Nodes: []spec.NodeAlloc{{ID: s.NodeIDs["n"], Name: "n", CPUs: spec.Bitset{}.Set(i)}}}})
				started, charged = max(at, 1), at
			case "end":
				if started == 0 {
					continue
				}
				charge()
				uid := s.NextUID - 1
				put(&event.JobEnded{UID: uid, Attempt: 1, State: spec.Completed})
				put(&event.JobNodeDone{UID: uid, Attempt: 1, Node: "n"})
				started = 0
			default:
				aged(at.Sub(last))
				if started != 0 {
					charge()
				}
				last = at
			}
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		for key, n := range want {
			got := new(big.Rat)
			if u, ok := s.Spent.Get(key); ok {
				got = rational(u.Raw)
			}
			d := new(big.Rat).Sub(n, got)
			if d.Abs(d).Cmp(big.NewRat(1, 1_000_000)) > 0 {
				t.Fatalf("%d has used %s, exactly %s", key, got.FloatString(9), n.FloatString(9))
			}
		}
	})
}

// TestClearUse takes an account's use out of those above it, too.
func TestClearUse(t *testing.T) {
	s := New()
	put := func(e event.Event) {
		if err := s.Apply(&event.Envelope{Seq: s.Seq + 1, Event: e}); err != nil {
			t.Fatal(err)
		}
	}
	for i, a := range []spec.Association{{Account: "root"}, {Account: "a", Parent: 1}, {Account: "a", User: "u", Parent: 2}, {Account: "b", Parent: 1}} {
		a.ID = uint32(i + 1)
		put(&event.AssociationPut{Association: a})
	}
	for id, n := range map[uint32]int64{1: 100, 2: 60, 3: 50, 4: 40} {
		s.Spent.Set(s.own, UsageKey(UsageAssoc, 0, id), &Spent{own: s.own, Raw: fixed.Of(n), TRES: []SpentCount{{"cpu", fixed.Of(n)}}})
	}
	raw := func() (out [4]uint64) {
		for i := range out {
			if u := s.SpentOf(UsageAssoc, 0, uint32(i+1)); u != nil {
				out[i] = u.Raw.Hi
			}
		}
		return out
	}
	put(&event.AssociationPut{Association: spec.Association{ID: 2, Account: "a", Parent: 4}})
	if got := raw(); got != [4]uint64{100, 60, 50, 100} {
		t.Errorf("an account that moved: %v", got)
	}
	put(&event.UsageCleared{Assoc: 2})
	if got := raw(); got != [4]uint64{40, 0, 0, 40} {
		t.Errorf("an account that was cleared: %v", got)
	}
	put(&event.AssociationRemoved{ID: 4})
	if got := raw(); got != [4]uint64{40, 0, 0, 0} {
		t.Errorf("an account that was removed: %v", got)
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}
