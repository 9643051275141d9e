package limits

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// What an association is told to inherit is what binds its jobs.
func TestEffectiveIsWhatBinds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		count := rapid.Ptr(rapid.Int64Range(0, 5), true)
		tres := rapid.Custom(func(rt *rapid.T) (out spec.Limits) {
			for _, name := range []string{"cpu", "gres/gpu", "mem"} {
				if rapid.Bool().Draw(rt, name) {
					out = append(out, spec.TRESCount{Name: name, N: rapid.Int64Range(0, 9).Draw(rt, "n")})
				}
			}
			return out
		})
		st := &state.State{Policy: &state.Policy{}, Config: &spec.Config{}}
		st.Config.Enforce.Limits = true
		depth := rapid.IntRange(1, 5).Draw(rt, "depth")
		for i := range depth {
			st.Policy.Assocs = append(st.Policy.Assocs, spec.Association{ID: uint32(i + 1), Parent: uint32(i), Account: string(rune('a' + i)),
				MaxJobs: count.Draw(rt, "jobs"), MaxSubmitJobs: count.Draw(rt, "submit"), MinPrio: count.Draw(rt, "prio"), MaxWall: spec.Span(rapid.IntRange(0, 3).Draw(rt, "wall")) * spec.Hour,
				MaxTRESPerJob: tres.Draw(rt, "per job"), MaxTRESPerNode: tres.Draw(rt, "per node"), MaxTRESMins: tres.Draw(rt, "minutes")})
		}
		id := uint32(depth)
		b, e := Find(st, Subject{Job: &spec.JobSpec{}, Part: &spec.PartitionSpec{}, Assoc: id}), Effective(st.Policy, id)
		want := map[what]*int64{running: e.MaxJobs, submitted: e.MaxSubmitJobs}
		if e.MaxWall > 0 {
			n := int64(e.MaxWall)
			want[wall] = &n
		}
		lists := map[what]spec.Limits{jobTRES: e.MaxTRESPerJob, nodeTRES: e.MaxTRESPerNode, jobMins: e.MaxTRESMins}
		left := 0
		for _, n := range want {
			if n != nil {
				left++
			}
		}
		for _, l := range lists {
			left += len(l)
		}
		for _, r := range b.rules {
			n, ok := lists[r.what].Get(r.tres)
			if r.tres == "" && want[r.what] != nil {
				n, ok = *want[r.what], true
			}
			if !ok || n != r.limit {
				rt.Fatalf("%+v binds, told is %+v", r, e)
			}
			left--
		}
		if left != 0 || (e.MinPrio != nil) != b.HasPriority() || (e.MinPrio != nil && *e.MinPrio != b.minPrio) {
			rt.Fatalf("%d limits are told and do not bind, or a priority: %+v, %+v", left, e, b)
		}
	})
}
