package state

import (
	"fmt"
	"strings"
	"testing"

	"github.com/musterhpc/muster/spec"
)

// show prints one aspect of a state for the transcripts.
func show(t *testing.T, s *State, what string, out *strings.Builder) {
	t.Helper()
	switch what {
	case "jobs":
		s.Jobs.Range(func(_ uint64, j *Job) bool { showJob(s, j, out); return true })
	case "nodes":
		s.Nodes.Range(func(_ uint64, n *Node) bool { showNode(n, out); return true })
	case "arrays":
		s.Arrays.Range(func(_ uint64, a *Array) bool {
			fmt.Fprintf(out, "array %d: total %d, running %d, started %d, ended %d, well %d, records %d, split", a.UID, a.Total, a.Running, a.Started, a.Ended, a.OK, a.Records)
			a.Split.Range(func(task uint64, uid spec.JobUID) bool { fmt.Fprintf(out, " %d=%d", task, uid); return true })
			out.WriteByte('\n')
			return true
		})
	case "usage":
		s.Usage.Range(func(key uint64, u *Usage) bool {
			kind, qos, id := ParseUsageKey(key)
			fmt.Fprintf(out, "%s: submitted %d, running %d, %s", subject{kind, qos, id}, u.Submitted, u.Running, orDash(u.TRES.String()))
			u.Nodes.Range(func(id uint64, n int32) bool { fmt.Fprintf(out, ", %d on node %d", n, id); return true })
			out.WriteByte('\n')
			return true
		})
	case "indexes":
		fmt.Fprintf(out, "waiting %v, active %v, finished", keys(&s.Waiting), keys(&s.Active))
		s.Finished.Range(func(seq uint64, uid spec.JobUID) bool { fmt.Fprintf(out, " %d@%d", uid, seq); return true })
		out.WriteString(", ids")
		s.ByID.Range(func(id uint64, uid spec.JobUID) bool { fmt.Fprintf(out, " %d=%d", id, uid); return true })
		out.WriteString(", waiters")
		s.Waiters.Range(func(uid uint64, set Set) bool { fmt.Fprintf(out, " %d<-%v", uid, keys(&set)); return true })
		fmt.Fprintf(out, ", named %d, next uid %d id %d\n", s.Named.Len(), s.NextUID, s.NextID)
	case "licences":
		fmt.Fprintln(out, "held", s.Licenses)
	case "totals":
		fmt.Fprintf(out, "submitted %d, started %d, backfilled %d, requeued %d, ended %v\n", s.Totals.Submitted, s.Totals.Started, s.Totals.Backfilled, s.Totals.Requeued, s.Totals.Ended)
		for _, p := range s.Totals.Parts {
			fmt.Fprintf(out, "%s: submitted %d, started %d, ended %v, waits %d (%d s), runs %d (%d s)\n", p.Name, p.Submitted, p.Started, p.Ended,
				p.Wait.Count, p.Wait.Sum.Seconds(), p.Run.Count, p.Run.Sum.Seconds())
		}
	case "policy":
		for _, a := range s.Policy.Assocs {
			fmt.Fprintf(out, "assoc %d: account %s, user %s, parent %d, depth %d\n", a.ID, a.Account, orDash(a.User), a.Parent, len(s.Policy.Chain(a.ID)))
		}
	case "access":
		fmt.Fprintf(out, "%d tokens; certificates", len(s.Access.Tokens))
		for _, c := range s.Access.Certs {
			fmt.Fprintf(out, " %s (revoked %v)", c.Serial, c.Revoked)
		}
		out.WriteByte('\n')
	default:
		t.Fatalf("show %q?", what)
	}
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func keys(set *Set) []uint64 {
	out := []uint64{}
	set.Range(func(k uint64, _ struct{}) bool { out = append(out, k); return true })
	return out
}

func showJob(s *State, j *Job, out *strings.Builder) {
	fmt.Fprintf(out, "%s: %s", s.labelJob(j), j.State)
	if j.IsArrayRecord() {
		fmt.Fprintf(out, " tasks %s", j.Tasks)
	}
	fmt.Fprintf(out, ", attempt %d", j.Attempt)
	if j.Restarts > 0 {
		fmt.Fprintf(out, ", restarts %d", j.Restarts)
	}
	if j.Hold != spec.NotHeld {
		fmt.Fprintf(out, ", held by %d", j.Hold)
	}
	fmt.Fprintf(out, ", reason %s, submitted %d", j.Reason, j.Submitted.Unix())
	for _, at := range []struct {
		name string
		at   spec.Instant
	}{{"eligible", j.Eligible}, {"started", j.Started}, {"ended", j.Ended}} {
		if at.at != 0 {
			fmt.Fprintf(out, ", %s %d", at.name, at.at.Unix())
		}
	}
	if j.State != spec.Pending && j.Alloc != nil {
		fmt.Fprintf(out, ", on %s (done %v), limit %d s", strings.Join(j.Alloc.NodeNames(), ","), j.Done.Members(), j.Limit.Seconds())
	}
	if j.Configuring() {
		out.WriteString(", configuring")
	}
	if j.Ending != nil {
		fmt.Fprintf(out, ", ending %d since event %d", j.Ending.Cause, j.Ending.Seq)
	}
	if !j.Exit.OK() {
		fmt.Fprintf(out, ", exit %d:%d", j.Exit.Code, j.Exit.Signal)
	}
	if j.Usage.UserCPU != 0 {
		fmt.Fprintf(out, ", used %d s", j.Usage.UserCPU.Seconds())
	}
	for _, st := range j.Steps {
		fmt.Fprintf(out, ", step %s %s", st.ID, st.State)
	}
	if j.LastSignal != nil {
		fmt.Fprintf(out, ", signal %d at event %d", j.LastSignal.Number, j.LastSignal.Seq)
	}
	out.WriteByte('\n')
}

func showNode(n *Node, out *strings.Builder) {
	fmt.Fprintf(out, "%d %s: %d of %d CPUs free, %d of %d MiB free", n.ID, n.Spec.Name, n.FreeCPUs(), n.CPUs, n.FreeMem(), n.Mem)
	if len(n.GPUs) > 0 {
		fmt.Fprintf(out, ", GPUs %v of %d used", n.UsedGPU.Members(), len(n.GPUs))
	}
	if len(n.UsedGRES) > 0 {
		fmt.Fprintf(out, ", holds %v", n.UsedGRES)
	}
	fmt.Fprintf(out, ", jobs %v, admin %d", n.Jobs, n.Admin)
	for _, f := range []struct {
		name string
		is   bool
	}{{"usable", n.Usable()}, {"lost", n.Lost}, {"removed", n.Removed}, {"shrunk", n.Shrunk}} {
		if f.is {
			out.WriteString(", " + f.name)
		}
	}
	if n.Power != 0 {
		fmt.Fprintf(out, ", power %d", n.Power)
	}
	if n.Reboot != nil {
		fmt.Fprintf(out, ", reboot %+v", *n.Reboot)
	}
	if n.Reason != "" {
		fmt.Fprintf(out, ", because %q", n.Reason)
	}
	out.WriteByte('\n')
}
