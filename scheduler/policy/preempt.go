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
func setPreempts(policy *state.Policy, qos *spec.QOS) setter {
	return func(v string, mode byte) error {
		var names []string
		for _, name := range strings.Split(v, ",") {
			name = strings.TrimSpace(name)
			if name == "" || name == "-1" {
				continue
			}
			if name[0] == '+' || name[0] == '-' {
				mode, name = name[0], name[1:]
			}
			if policy.FindQOS(name) == nil {
				return fmt.Errorf("unknown QOS %q", name)
			}
			names = append(names, name)
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
			if n == qos.Name || preemptsAt(policy, n, qos.Name, map[string]bool{}) {
				return spec.Refuse(spec.CodePreemptionLoop, "")
			}
		}
		qos.Preempt = out
		return nil
	}
}

// preemptsAt tells whether a QOS may preempt another, directly or in turn.
func preemptsAt(policy *state.Policy, from, to string, seen map[string]bool) bool {
	qos := policy.FindQOS(from)
	if qos == nil || seen[from] {
		return false
	}
	seen[from] = true
	return slices.ContainsFunc(
		qos.Preempt,
		func(n string) bool { return n == to || preemptsAt(policy, n, to, seen) },
	)
}

// preemptMode is how the jobs of a QOS are preempted: cluster, off, cancel,
// requeue or suspend, perhaps with within.
func preemptMode(to *string) setter {
	return func(v string, _ byte) error {
		var words []string
		for _, word := range strings.Split(strings.ToUpper(v), ",") {
			switch word = strings.TrimSpace(word); word {
			case "", "-1", "CLUSTER":
			case "OFF", "CANCEL", "REQUEUE", "SUSPEND", "GANG", "WITHIN":
				words = append(words, word)
			default:
				return fmt.Errorf("unknown mode %q", word)
			}
		}
		*to = strings.Join(words, ",")
		return nil
	}
}
