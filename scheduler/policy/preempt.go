package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// setPreempts changes the list of QOS whose jobs a QOS may preempt. A list that
// would let two QOS preempt each other's jobs in turn is refused.
func setPreempts(pol *state.Policy, qos *spec.QOS) setter {
	return func(v string, mode byte) error {
		var names []string
		for _, n := range strings.Split(v, ",") {
			n = strings.TrimSpace(n)
			if n == "" || n == "-1" {
				continue
			}
			if n[0] == '+' || n[0] == '-' {
				mode, n = n[0], n[1:]
			}
			if pol.FindQOS(n) == nil {
				return fmt.Errorf("unknown QOS %q", n)
			}
			names = append(names, n)
		}
		out := slices.Clone(qos.Preempt)
		switch mode {
		case '+':
			for _, n := range names {
				if !slices.Contains(out, n) {
					out = append(out, n)
				}
			}
		case '-':
			out = slices.DeleteFunc(out, func(n string) bool { return slices.Contains(names, n) })
		default:
			out = names
		}
		for _, n := range out {
			if n == qos.Name || preemptsAt(pol, n, qos.Name, map[string]bool{}) {
				return spec.Refuse(spec.CodePreemptionLoop, "")
			}
		}
		qos.Preempt = out
		return nil
	}
}

// preemptsAt tells whether a QOS may preempt another, directly or in turn.
func preemptsAt(pol *state.Policy, from, to string, seen map[string]bool) bool {
	qos := pol.FindQOS(from)
	if qos == nil || seen[from] {
		return false
	}
	seen[from] = true
	return slices.ContainsFunc(
		qos.Preempt,
		func(n string) bool { return n == to || preemptsAt(pol, n, to, seen) },
	)
}

// preemptMode is how the jobs of a QOS are preempted: cluster, off, cancel,
// requeue or suspend, perhaps with within.
func preemptMode(to *string) setter {
	return func(v string, _ byte) error {
		var words []string
		for _, w := range strings.Split(strings.ToUpper(v), ",") {
			switch w = strings.TrimSpace(w); w {
			case "", "-1", "CLUSTER":
			case "OFF", "CANCEL", "REQUEUE", "SUSPEND", "GANG", "WITHIN":
				words = append(words, w)
			default:
				return fmt.Errorf("unknown mode %q", w)
			}
		}
		*to = strings.Join(words, ",")
		return nil
	}
}
