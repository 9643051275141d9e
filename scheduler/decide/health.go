package decide

import (
	"fmt"
	"strings"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/commit"
	"github.com/musterhpc/muster/spec"
)

// gpuReport records what happened to a GPU and does what the site wants done
// about it. A report about an attempt that is over still says something about
// the GPU, and nothing about the job.
func (d nodeCommands) gpuReport(c GPUReport) error {
	n := d.t.Node(c.Node)
	if n == nil || c.Fault.Kind < spec.GPUXID || c.Fault.Kind > spec.GPUIdle {
		d.res.Stale++
		return nil
	}
	f := c.Fault
	j := d.t.Job(f.Job)
	nameHolder(&f, j)
	if j == nil || j.Attempt != f.Attempt || !commit.HoldsNode(j, c.Node) {
		j = nil
		f.Job = 0
		f.Attempt = 0
	}
	if f.Kind == spec.GPUIdle && j == nil {
		d.res.Stale++ // nobody holds it any more
		return nil
	}
	if f.Kind == spec.GPUIdle && j.State.Active() && j.Ending == nil {
		f.Warned = c.Policy.WarnIdle || c.Policy.CancelIdle
		if left := c.Policy.IdleAfter + c.Policy.Grace - f.Idle; c.Policy.CancelIdle && left > 0 {
			f.Cancel = f.At.Add(left)
		}
	}
	if err := d.Emit(&event.GPUFaulted{Node: c.Node, Fault: f}); err != nil {
		return err
	}
	if c.Policy.Drain && f.Fatal() && n.Admin == event.NodeResume {
		if err := d.Emit(&event.NodeStateSet{Node: c.Node, State: event.NodeDrain, Reason: faultReason(&f)}); err != nil {
			return err
		}
	}
	if f.Kind == spec.GPUIdle && c.Policy.CancelIdle && f.Idle >= c.Policy.IdleAfter+c.Policy.Grace && j.State.Active() && j.Ending == nil {
		why := fmt.Sprintf("GPU %s was held for %d minutes without a process", f.UUID, f.Idle/spec.Minute)
		return d.RequestEnd(j, event.EndCancel, false, spec.NotHeld, why)
	}
	return nil
}

// nameHolder records whom a fault struck. The report of an error that killed a
// job often arrives after the job's end, or after its next start elsewhere: the
// agent says which attempt held the GPU at the time, so the name is still right.
func nameHolder(f *spec.GPUFault, j *state.Job) {
	f.JobID = 0
	f.User = ""
	f.Account = ""
	if j == nil || f.Attempt == 0 || f.Attempt > j.Attempt {
		return
	}
	f.JobID = j.ID
	f.User = j.Spec.User
	f.Account = j.Spec.Account
}

// faultReason is the reason of a drain.
func faultReason(f *spec.GPUFault) string {
	switch f.Kind {
	case spec.GPULost:
		return "GPU " + f.UUID + " is lost"
	case spec.GPUECC:
		return "GPU " + f.UUID + " has uncorrectable memory errors"
	case spec.GPUXID, spec.GPUReturned, spec.GPUThermal, spec.GPUMIGChanged, spec.GPUIdle:
	}
	return fmt.Sprintf("GPU %s: XID %d", f.UUID, f.XID)
}

// unwell begins the reason of a node that its HealthCheckProgram set aside.
const unwell = "Health check: "

// checkReport sets a node aside that is not well, and takes one back that was
// set aside for that and is well again. What an administrator has set stays.
func (d nodeCommands) checkReport(c CheckReport) error {
	n := d.t.Node(c.Node)
	switch {
	case n == nil:
		d.res.Stale++
		return nil
	case c.Failed != "":
		return d.DrainNode(c.Node, unwell+c.Failed)
	case n.Admin == event.NodeDrain && n.ReasonBy.Kind == event.ActorNode && strings.HasPrefix(n.Reason, unwell):
		return d.Emit(&event.NodeStateSet{Node: c.Node, State: event.NodeResume})
	}
	return nil
}
