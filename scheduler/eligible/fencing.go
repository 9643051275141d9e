package eligible

import (
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// FencingWait is why a job waits whose earlier attempt may still live, or nil.
func FencingWait(cluster *state.State, job *state.Job) *spec.Reason {
	if job.Unfenced == 0 || cluster.Config.RequeueUnfenced {
		return nil
	}
	reason := &spec.Reason{Code: spec.ReasonFencingWait}
	bounded := true
	for _, node := range cluster.UnfencedNodes(job.UID) {
		if reason.Detail != "" {
			reason.Detail += ","
		}
		reason.Detail += node.Spec.Name
		for i := range node.Unfenced {
			debt := &node.Unfenced[i]
			if debt.UID != job.UID {
				continue
			}
			bounded = bounded && debt.Until != 0
			if program := cluster.FenceProgram(node, debt); program != "" {
				reason.Subject = program
			}
			reason.Until = max(reason.Until, debt.Until)
		}
	}
	if !bounded {
		reason.Until = 0
	}
	return reason
}
