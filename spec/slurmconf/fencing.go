package slurmconf

import (
	"path"
	"strings"

	"github.com/musterhpc/muster/spec"
)

// readFencing reads FencingPolicy, of the cluster or of a partition.
func readFencing(v value) (spec.FencingPolicy, bool) {
	word, arg, _ := strings.Cut(v.Value, "=")
	switch strings.ToLower(word) {
	case "wait":
		if arg == "" {
			return spec.FencingPolicy{}, true
		}
	case "lease":
		inner := v
		inner.Value = arg
		if seconds, ok := inner.parseInteger(1, 1<<31); ok {
			return spec.FencingPolicy{
				Kind:  spec.FenceLease,
				Lease: spec.Span(seconds) * spec.Second,
			}, true
		}
		return spec.FencingPolicy{}, false
	case "program":
		if path.IsAbs(arg) {
			return spec.FencingPolicy{Kind: spec.FenceProgram, Program: arg}, true
		}
		v.failValue("%s is not an absolute path", quoteShort(arg))
		return spec.FencingPolicy{}, false
	}
	v.failValue(
		"%s is unknown; it must be wait, lease=SECONDS or program=PATH",
		quoteShort(v.Value),
	)
	return spec.FencingPolicy{}, false
}

// checkFencing refuses leases that cannot do what they are for.
func (b *builder) checkFencing(policy spec.FencingPolicy, at Setting) {
	timeout := b.file.Config.Timing.NodeTimeout
	switch {
	case policy.Kind == spec.FenceWait:
	case timeout == spec.Infinite:
		b.problems.addProblem(
			at,
			Error,
			"SlurmdTimeout=0: no node is ever given up, so there is nothing to fence; set SlurmdTimeout",
		)
	case policy.Kind == spec.FenceLease && policy.Lease < timeout:
		b.problems.addProblem(
			at,
			Error,
			"a lease of %d s ends jobs of nodes that are not given up yet: it must be at least SlurmdTimeout, %d s",
			policy.Lease.Seconds(),
			timeout.Seconds(),
		)
	case b.file.Config.RequeueUnfenced:
		b.problems.addProblem(
			at,
			Warning,
			"has no effect with requeue_unfenced of SlurmctldParameters, which starts jobs again without fencing",
		)
	}
}
