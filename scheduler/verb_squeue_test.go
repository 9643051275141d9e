package scheduler_test

import (
	"fmt"
	"strings"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

// squeue lists jobs: the pending, then the running; with -a also those with a
// verdict. --numbers adds the numbers of the reason, --qos the QOS.
//
//	$ squeue
//	JOBID PART NAME USER ST TIME NODES NODELIST(REASON)
//	    2 gpu  b    bob  PD 0:00:00  1 (Priority)
//	    1 gpu  a    bob  R  0:01:00  1 n1
func squeue(s *session, args []string) error {
	all, numbers, qos := false, false, false
	for _, a := range args[1:] {
		all, numbers, qos = all || a == "-a", numbers || a == "--numbers", qos || a == "--qos"
	}
	rows := [][]string{{"JOBID", "PARTITION", "NAME", "USER", "ST", "TIME", "NODES", "NODELIST(REASON)"}}
	for _, j := range s.jobs(func(j *state.Job) bool { return all || !j.State.Terminal() || j.Completing() }) {
		nodes, where := j.Req.Node, "("+j.Reason.String()+")"
		if j.Alloc != nil && j.State != spec.Pending {
			nodes, where = int64(len(j.Alloc.Nodes)), s.where(j)
			if j.State.Terminal() && j.Reason.Code != spec.ReasonNone && j.Reason.Code != "" {
				where += " " + j.Reason.String()
			}
		}
		if numbers {
			where += reasonNumbers(s, j.Reason)
		}
		if qos {
			name := j.QOS()
			if j.State == spec.Pending {
				name = j.Spec.QOSText()
			}
			where += " in " + name
		}
		st := j.State.Compact()
		switch {
		case j.Completing():
			st = "CG"
		case j.Configuring():
			st = "CF"
		}
		rows = append(rows, []string{s.title(j), strings.Join(partitions(j), ","), j.Spec.Name, j.Spec.User, st, clock(runTime(s, j)), fmt.Sprint(nodes), where})
	}
	s.table(rows)
	return nil
}

func partitions(j *state.Job) []string {
	if j.Alloc != nil && j.State != spec.Pending {
		return []string{j.Alloc.Partition}
	}
	return j.Spec.Partitions
}

func runTime(s *session, j *state.Job) spec.Span {
	switch {
	case j.State.Active():
		return s.now.Sub(j.Started)
	case j.State.Terminal() && j.Alloc != nil:
		return j.Ended.Sub(j.Started)
	}
	return 0
}

// where is a job's nodes; with more than the nodes' own names if it holds
// devices: n1(gpu 0-3).
func (s *session) where(j *state.Job) string {
	gpus := false
	for i := range j.Alloc.Nodes {
		gpus = gpus || len(j.Alloc.Nodes[i].GPUs)+len(j.Alloc.Nodes[i].Shares) > 0
	}
	if !gpus {
		return hostlist.Fold(j.Alloc.NodeNames())
	}
	var parts []string
	for i := range j.Alloc.Nodes {
		var set spec.Bitset
		for _, g := range j.Alloc.Nodes[i].GPUs {
			set = set.Set(int(g.Index))
		}
		var held []string
		if !set.Empty() || len(j.Alloc.Nodes[i].Shares) == 0 {
			held = append(held, "gpu "+ranges(set))
		}
		for _, g := range j.Alloc.Nodes[i].Shares {
			held = append(held, fmt.Sprintf("%d/%d %s of gpu %d", g.N, g.Of, g.Name, g.Index))
		}
		parts = append(parts, fmt.Sprintf("%s(%s)", j.Alloc.Nodes[i].Name, strings.Join(held, ", ")))
	}
	return strings.Join(parts, ",")
}

// ranges prints a set as 0-2,5.
func ranges(set spec.Bitset) string {
	var parts []string
	for i := set.Next(0); i >= 0; {
		k := i
		for set.Has(k + 1) {
			k++
		}
		if k == i {
			parts = append(parts, fmt.Sprint(i))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", i, k))
		}
		i = set.Next(k + 1)
	}
	return strings.Join(parts, ",")
}

func reasonNumbers(s *session, r spec.Reason) string {
	var b strings.Builder
	if r.Subject != "" {
		b.WriteString(" " + r.Subject)
	}
	if r.TRES != "" {
		fmt.Fprintf(&b, " %s: limit %d, used %d, asked %d", r.TRES, r.Limit, r.Used, r.Asked)
	}
	if r.Until != 0 {
		fmt.Fprintf(&b, " until %s", when(r.Until))
	}
	if r.Blocker != 0 {
		fmt.Fprintf(&b, " behind %s", s.title(s.head.Job(r.Blocker)))
	}
	return b.String()
}

// table prints rows in columns.
func (s *session) table(rows [][]string) {
	width := make([]int, len(rows[0]))
	for _, r := range rows {
		for i, c := range r {
			width[i] = max(width[i], len(c))
		}
	}
	for _, r := range rows {
		var b strings.Builder
		for i, c := range r {
			fmt.Fprintf(&b, "%-*s ", width[i], c)
		}
		s.printf("%s\n", strings.TrimRight(b.String(), " "))
	}
}
