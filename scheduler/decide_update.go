package scheduler

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/place"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

// updateJob changes what scontrol update may change. All changes are checked
// before the first takes effect; unknown keys are refused by name.
func (d *decision) updateJob(c UpdateJob) error {
	j, err := d.target(c.Target, false)
	if err != nil {
		return err
	}
	if j.State.Terminal() {
		return spec.Refuse(spec.CodeAlreadyDone, "")
	}
	js := *j.Spec
	if js.Queue.Array != nil {
		a := *js.Queue.Array
		js.Queue.Array = &a
	}
	js.Queue.Hold, js.Time.Begin = j.Hold, j.Begin
	if j.State.Active() {
		js.Time.Limit = j.Limit
	}
	var changed []string
	for _, kv := range c.Changes {
		if err := d.change(&js, j, kv, c.Admin); err != nil {
			return err
		}
		changed = append(changed, changeName(kv.Key))
	}
	assoc, req := j.Assoc, j.Req
	if j.State == spec.Pending {
		if assoc, req, err = d.resolve(&js, j); err != nil {
			return err
		}
		if err := d.stillAllowed(&js, j, assoc, req); err != nil {
			return err
		}
	}
	if j, err = d.target(c.Target, true); err != nil {
		return err
	}
	newDep := !js.Queue.Dependency.Equal(j.Spec.Queue.Dependency)
	if err := d.emit(&event.JobUpdated{UID: j.UID, Spec: &js, Req: req, Assoc: assoc, Changed: changed}); err != nil {
		return err
	}
	if j.State == spec.Pending && (newDep || (j.Hold != js.Queue.Hold)) {
		return d.emit(&event.ReasonsChanged{Jobs: []event.JobReason{{UID: j.UID, Reason: updatedReason(&js)}}})
	}
	return nil
}

// updatedReason is why a job waits whose hold or dependency was changed,
// until the next pass looks at it.
func updatedReason(js *spec.JobSpec) spec.Reason {
	switch {
	case js.Queue.Hold != spec.NotHeld:
		return spec.Reason{Code: state.HoldReason(js.Queue.Hold)}
	case js.Queue.Dependency != nil:
		return spec.Reason{Code: spec.ReasonDependency}
	}
	return spec.Reason{Code: spec.ReasonNone}
}

// stillAllowed checks limits as at a submission: all where the job moves to
// another QOS, account or partition, else only what it alone may exceed.
func (d *decision) stillAllowed(js *spec.JobSpec, j *state.Job, assoc uint32, req spec.TRES) error {
	count := int64(0)
	if js.QOS != j.Spec.QOS || !slices.Equal(js.QOSes, j.Spec.QOSes) || assoc != j.Assoc || !slices.Equal(js.Partitions, j.Spec.Partitions) {
		count = j.Count()
	}
	return d.withinLimits(js, assoc, req, count)
}

// changeName is scontrol's own spelling of a key, for the record.
func changeName(key string) string {
	for _, name := range [...]string{"TimeLimit", "Comment", "JobName", "Partition", "QOS", "Account", "Nice", "Priority", "ArrayTaskThrottle", "Requeue",
		"AdminComment", "SystemComment", "Extra", "NumNodes", "NumCPUs", "NumTasks", "MinMemoryNode", "MinMemoryCPU", "Features", "ExcNodeList", "ReqNodeList", "Dependency"} {
		if strings.EqualFold(name, key) {
			return name
		}
	}
	switch key {
	case "name":
		return "JobName"
	case "reqnodes":
		return "NumNodes"
	}
	return key
}

// change applies one key. On a running job only the time limit, comment, and
// name may change.
//
//muster:table one case for each key
func (d *decision) change(js *spec.JobSpec, j *state.Job, kv spec.KeyValue, admin bool) error {
	if j.State.Active() && !slices.Contains([]string{"timelimit", "comment", "admincomment", "systemcomment", "extra", "jobname", "name", "requeue"}, kv.Key) {
		return spec.Refuse(spec.CodeJobNotPending, kv.Key)
	}
	v := kv.Value
	switch kv.Key {
	case "timelimit":
		old := d.limitNow(js, j)
		limit, err := d.newLimit(old, v)
		if err != nil {
			return err
		}
		if limit > old && !admin {
			return spec.Refuse(spec.CodeAccessDenied, "only an administrator may raise a time limit")
		}
		js.Time.Limit = limit
	case "dependency":
		dep, err := spec.ParseDependency(v)
		if err != nil {
			return spec.Refuse(spec.CodeDependencyProblem, err.Error())
		}
		js.Queue.Dependency = dep
	case "comment":
		js.Comment = v
	case "extra":
		js.Extra = v
	case "admincomment", "systemcomment":
		if !admin {
			return spec.Refuse(spec.CodeAccessDenied, "only an administrator may set "+changeName(kv.Key))
		}
		if kv.Key == "admincomment" {
			js.AdminComment = v
		} else {
			js.SystemComment = v
		}
	case "jobname", "name":
		js.Name = v
	case "partition":
		js.Partitions = strings.Split(v, ",")
	case "qos":
		js.QOS, js.QOSes = v, nil
	case "account":
		js.Account = v
	case "nice":
		n, err := strconv.ParseInt(v, 10, 32)
		if err != nil || (n < 0 && !admin) {
			return spec.Refuse(spec.CodeAccessDenied, "nice="+v)
		}
		js.Queue.Nice = int32(n)
	case "sitefactor":
		n, err := strconv.ParseInt(v, 10, 32)
		if err != nil || !admin {
			return spec.Refuse(spec.CodeAccessDenied, "sitefactor="+v+": a whole number, set by an administrator")
		}
		js.Queue.SiteFactor = int32(n)
	case "priority":
		n, err := strconv.ParseUint(v, 10, 32)
		if err != nil {
			return spec.Refuse(spec.CodeBadRequest, "priority="+v)
		}
		switch {
		case n == 0: // as scontrol hold
			js.Queue.Hold = max(js.Queue.Hold, spec.HeldByUser)
			if admin {
				js.Queue.Hold = spec.HeldByAdmin
			}
			return nil
		case js.Queue.Hold != spec.NotHeld:
			return spec.Refuse(spec.CodeJobHeld, "")
		case !admin:
			return spec.Refuse(spec.CodeAccessDenied, "only an administrator may set a priority")
		}
		js.Queue.Priority = uint32(n)
	case "arraytaskthrottle":
		n, err := strconv.ParseUint(v, 10, 32)
		if err != nil || js.Queue.Array == nil {
			return spec.Refuse(spec.CodeInvalidArray, "arraytaskthrottle="+v)
		}
		js.Queue.Array.Throttle = uint32(n)
	case "requeue":
		switch v {
		case "0":
			js.Queue.Requeue = spec.No
		case "1":
			js.Queue.Requeue = spec.Yes
		default:
			return spec.Refuse(spec.CodeBadRequest, "requeue="+v+": expected 0 or 1")
		}
	case "numnodes", "reqnodes":
		return d.changeNodes(js, v)
	case "numcpus", "numtasks":
		n, err := strconv.ParseUint(v, 10, 32)
		if err != nil || n == 0 {
			return spec.Refuse(spec.CodeTaskCountInvalid, kv.Key+"="+v)
		}
		js.Size.Tasks = uint32(n)
	case "minmemorynode":
		n, err := format.ParseMemory(v)
		if err != nil {
			return spec.Refuse(spec.CodeMemoryUnavailable, v)
		}
		js.Size.MemPerNode, js.Size.MemPerCPU, js.Size.MemPerGPU = n, 0, 0
	case "minmemorycpu":
		n, err := format.ParseMemory(v)
		if err != nil {
			return spec.Refuse(spec.CodeMemoryUnavailable, v)
		}
		js.Size.MemPerNode, js.Size.MemPerCPU, js.Size.MemPerGPU = 0, n, 0
	case "reservationname", "reservation":
		js.Place.Reservation = v
	case "features":
		js.Place.Constraint = v
	case "excnodelist":
		js.Place.Exclude = v
	case "reqnodelist":
		js.Place.Nodes = v
	default:
		return spec.Refuse(spec.CodeBadRequest, fmt.Sprintf("%s cannot be updated in this release", kv.Key))
	}
	return nil
}

// limitNow is the time limit that a change starts from: the one in force, or
// what the partition would give.
func (d *decision) limitNow(js *spec.JobSpec, j *state.Job) spec.Span {
	if p := d.t.Parts.Find(j.Partition()); js.Time.Limit == 0 && p != nil {
		dem := place.Resolve(d.t.Config, p.Spec, js)
		return dem.Limit
	}
	return js.Time.Limit
}

// newLimit reads a time limit that may begin with + or -.
func (d *decision) newLimit(old spec.Span, v string) (spec.Span, error) {
	rel := byte(0)
	if v != "" && (v[0] == '+' || v[0] == '-') {
		rel, v = v[0], v[1:]
	}
	sec, err := format.ParseDuration(v)
	if err != nil {
		return 0, spec.Refuse(spec.CodeInvalidTimeLimit, err.Error())
	}
	span := spec.Infinite
	if sec != format.Infinite {
		span = spec.Seconds(sec)
	}
	switch rel {
	case '+':
		if old == spec.Infinite || span == spec.Infinite {
			return spec.Infinite, nil
		}
		span += old
	case '-':
		if span >= old {
			return 0, spec.Refuse(spec.CodeInvalidTimeLimit, "nothing would be left")
		}
		span = old - span
	}
	if span <= 0 {
		return 0, spec.Refuse(spec.CodeInvalidTimeLimit, v)
	}
	return span, nil
}

func (d *decision) changeNodes(js *spec.JobSpec, v string) error {
	lo, hi, ranged := strings.Cut(v, "-")
	n, err := strconv.ParseUint(lo, 10, 32)
	m := n
	if ranged && err == nil {
		m, err = strconv.ParseUint(hi, 10, 32)
	}
	if err != nil || n == 0 || m < n {
		return spec.Refuse(spec.CodeNodeCountInvalid, v)
	}
	js.Size.MinNodes, js.Size.MaxNodes = uint32(n), uint32(m)
	return nil
}
