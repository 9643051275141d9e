package eligible

import (
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// CheckArrayThrottle says that as many tasks of an array run as may, or nil.
func CheckArrayThrottle(st *state.State, job *state.Job) *spec.Reason {
	a := st.ArrayOf(job)
	if a == nil || job.Spec.Queue.Array == nil {
		return nil
	}
	if most := int64(job.Spec.Queue.Array.Throttle); most > 0 && a.Running >= most {
		return &spec.Reason{Code: spec.ReasonArrayTaskLimit, Limit: most, Used: a.Running, Asked: 1}
	}
	return nil
}
