package eligible

import (
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// CheckArrayThrottle says that as many tasks of an array run as may, or nil.
func CheckArrayThrottle(cluster *state.State, job *state.Job) *spec.Reason {
	array := cluster.ArrayOf(job)
	if array == nil || job.Spec.Queue.Array == nil {
		return nil
	}
	if most := int64(job.Spec.Queue.Array.Throttle); most > 0 && array.Running >= most {
		return &spec.Reason{
			Code: spec.ReasonArrayTaskLimit, Limit: most, Used: array.Running, Asked: 1,
		}
	}
	return nil
}
