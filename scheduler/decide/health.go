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
func (d nodeCommands) gpuReport(command GPUReport) error {
	node := d.t.Node(command.Node)
	if node == nil || command.Fault.Kind < spec.GPUXID || command.Fault.Kind > spec.GPUIdle {
		d.res.Stale++
		return nil
	}
	fault := command.Fault
	job := d.t.Job(fault.Job)
	nameHolder(&fault, job)
	if job == nil || job.Attempt != fault.Attempt || !commit.HoldsNode(job, command.Node) {
		job = nil
		fault.Job = 0
		fault.Attempt = 0
	}
	if fault.Kind == spec.GPUIdle && job == nil {
		d.res.Stale++ // nobody holds it any more
		return nil
	}
	if fault.Kind == spec.GPUIdle && job.GoesOn() {
		fault.Warned = command.Policy.WarnIdle || command.Policy.CancelIdle
		if left := command.Policy.IdleAfter +
			command.Policy.Grace - fault.Idle; command.Policy.CancelIdle &&
			left > 0 {
			fault.Cancel = fault.At.Add(left)
		}
	}
	if err := d.Emit(&event.GPUFaulted{Node: command.Node, Fault: fault}); err != nil {
		return err
	}
	if command.Policy.Drain && fault.Fatal() && node.Admin == event.NodeResume {
		if err := d.Emit(
			&event.NodeStateSet{
				Node: command.Node, State: event.NodeDrain, Reason: faultReason(&fault),
			},
		); err != nil {
			return err
		}
	}
	if fault.Kind == spec.GPUIdle && command.Policy.CancelIdle &&
		fault.Idle >= command.Policy.IdleAfter+command.Policy.Grace &&
		job.GoesOn() {
		reason := fmt.Sprintf(
			"GPU %s was held for %d minutes without a process",
			fault.UUID,
			fault.Idle/spec.Minute,
		)
		return d.RequestEnd(job, event.EndCancel, false, spec.NotHeld, reason)
	}
	return nil
}

// nameHolder records whom a fault struck. The report of an error that killed a
// job often arrives after the job's end, or after its next start elsewhere: the
// agent says which attempt held the GPU at the time, so the name is still right.
func nameHolder(fault *spec.GPUFault, job *state.Job) {
	fault.JobID = 0
	fault.User = ""
	fault.Account = ""
	if job == nil || fault.Attempt == 0 || fault.Attempt > job.Attempt {
		return
	}
	fault.JobID = job.ID
	fault.User = job.Spec.User
	fault.Account = job.Spec.Account
}

// faultReason is the reason of a drain.
func faultReason(fault *spec.GPUFault) string {
	switch fault.Kind {
	case spec.GPULost:
		return "GPU " + fault.UUID + " is lost"
	case spec.GPUECC:
		return "GPU " + fault.UUID + " has uncorrectable memory errors"
	case spec.GPUXID, spec.GPUReturned, spec.GPUThermal, spec.GPUMIGChanged, spec.GPUIdle:
	}
	return fmt.Sprintf("GPU %s: XID %d", fault.UUID, fault.XID)
}

// unwell begins the reason of a node that its HealthCheckProgram set aside.
const unwell = "Health check: "

// checkReport drains an unhealthy node, and resumes one that was
// drained for its health and has recovered. What an administrator has set stays.
func (d nodeCommands) checkReport(check CheckReport) error {
	node := d.t.Node(check.Node)
	switch {
	case node == nil:
		d.res.Stale++
		return nil
	case check.Failed != "":
		return d.DrainNode(check.Node, unwell+check.Failed)
	case node.Admin == event.NodeDrain && node.ReasonBy.Kind == event.ActorNode && strings.HasPrefix(node.Reason, unwell):
		return d.Emit(&event.NodeStateSet{Node: check.Node, State: event.NodeResume})
	}
	return nil
}
