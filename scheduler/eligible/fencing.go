package eligible

import (
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// FencingWait is why a job waits whose earlier attempt may still live, or nil.
func FencingWait(st *state.State, j *state.Job) *spec.Reason {
	if j.Unfenced == 0 || st.Config.RequeueUnfenced {
		return nil
	}
	reason := &spec.Reason{Code: spec.ReasonFencingWait}
	bounded := true
	for _, node := range st.UnfencedNodes(j.UID) {
		if reason.Detail != "" {
			reason.Detail += ","
		}
		reason.Detail += node.Spec.Name
		for _, debt := range node.Unfenced {
			if debt.UID != j.UID {
				continue
			}
			bounded = bounded && debt.Until != 0
			if policy := st.FencingOf(debt.Partition); policy.Kind == spec.FenceProgram {
				reason.Subject = policy.Program
			}
			reason.Until = max(reason.Until, debt.Until)
		}
	}
	if !bounded {
		reason.Until = 0
	}
	return reason
}
