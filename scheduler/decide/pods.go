package decide

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/commit"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

// podCommands decides about jobs that consist of pods. They wait, start and make room
// like all others. What differs is who tells of their end: Kubernetes, and nobody
// else. Their nodes stay allocated until it has said that nothing of the pods can run
// any more, whatever an agent, a clock or an operator has to say meanwhile.
type podCommands struct{ *decision }

// AdmitPods replaces the list of nodes that Kubernetes admits for the pods of a pending job.
type AdmitPods struct {
	UID    spec.JobUID
	Pod    string // UID of the first pod
	Admits string
}

// PodsOver tells that the pods of a job have ended, or that there are none any more.
// Both are final in Kubernetes.
type PodsOver struct {
	Run   commit.Run // attempt 0: the job has not started
	Epoch uint64     // of the attempt
	Pod   string     // UID of the first pod
	// Result is how they ended; nil where they were deleted first.
	Result *event.StepResult
	Why    string // for people, where Result is nil
}

func (AdmitPods) command() string { return "admit pods" }
func (PodsOver) command() string  { return "pods over" }

// maxPods bounds a gang: all its pods are in one message.
const maxPods = 4096

// submitPods accepts a job of pods, of one kind or, as a heterogeneous job, of several. To ask
// again is to get the same answer, however often and however late it is, because a pod is
// of one job only.
func (d podCommands) submitPods(command Submit) error {
	parts := append([]*spec.JobSpec{command.Spec}, command.Rest...)
	if err := checkGang(parts); err != nil {
		return err
	}
	if job, err := d.findGang(parts); job != nil || err != nil {
		if job != nil {
			d.res.UID, d.res.ID = job.UID, job.ID
		}
		return err
	}
	if len(command.Rest) > 0 {
		return d.het().submitHet(parts, command)
	}
	return d.submission().submitJob(command.Spec, command.Request, command.ByScript)
}

// findGang finds the job of which the pods are already; nil: they are of none.
func (d podCommands) findGang(parts []*spec.JobSpec) (*state.Job, error) {
	for _, part := range parts {
		for _, pod := range part.Pods.Pods {
			job := d.t.JobOfPod(pod.UID)
			if job == nil {
				continue
			}
			gang := d.gangOf(job)
			if !slices.EqualFunc(gang, parts, func(have *state.Job, asked *spec.JobSpec) bool {
				return have.Spec.Pods.Same(asked.Pods)
			}) {
				return nil, spec.Refuse(spec.CodeBadRequest, fmt.Sprintf(
					"pod %s/%s is of job %d, which has other pods too",
					part.Pods.Space,
					pod.Name,
					job.ID,
				))
			}
			return gang[0], nil
		}
	}
	return nil, nil
}

// gangOf are the jobs that start and end with one: the components of a heterogeneous job in
// their order, or the job by itself.
func (d podCommands) gangOf(job *state.Job) []*state.Job {
	if job.Het == nil {
		return []*state.Job{job}
	}
	return d.t.Components(job)
}

// checkGang refuses what no pods can be.
func checkGang(parts []*spec.JobSpec) error {
	seen := map[string]bool{}
	for _, part := range parts {
		if part.Pods == nil {
			return spec.Refuse(spec.CodeBadRequest, "a component of a job of pods has no pods")
		}
		if problem := podsProblem(part); problem != "" {
			return spec.Refuse(spec.CodeBadRequest, problem)
		}
		for _, pod := range part.Pods.Pods {
			if pod.UID == "" || seen[pod.UID] {
				return spec.Refuse(
					spec.CodeBadRequest,
					fmt.Sprintf("pod %q has no UID, or is named twice", pod.Name),
				)
			}
			seen[pod.UID] = true
		}
	}
	if len(seen) > maxPods {
		return spec.Refuse(
			spec.CodeBadRequest,
			fmt.Sprintf("%d pods: expected 1 to %d", len(seen), maxPods),
		)
	}
	return nil
}

// podsProblem says why something cannot be asked for pods; empty: it can.
func podsProblem(jobSpec *spec.JobSpec) string {
	pods := jobSpec.Pods
	_, err := hostlist.Expand(pods.Admits)
	switch {
	case len(pods.Pods) == 0 || len(pods.Pods) > maxPods:
		return fmt.Sprintf("%d pods: expected 1 to %d", len(pods.Pods), maxPods)
	case int(jobSpec.Size.Tasks) != len(pods.Pods):
		return fmt.Sprintf("%d tasks for %d pods", jobSpec.Size.Tasks, len(pods.Pods))
	case !jobSpec.Shell || !jobSpec.Script.IsZero() || jobSpec.Attended:
		return "a job of pods has no script and no client that attends it"
	case jobSpec.Queue.Array != nil || jobSpec.Container != nil || jobSpec.Time.Signal != 0:
		return "a job of pods is no array and has no container and no signal of Muster"
	case jobSpec.Queue.NoKill || jobSpec.Queue.Reboot:
		return "a job of pods has neither --no-kill nor --reboot"
	case err != nil:
		return err.Error()
	}
	return ""
}

// mayChangePods refuses changes of a job that its pods would not follow.
func mayChangePods(old, changed *spec.JobSpec, leave []string) error {
	if old.Pods == nil {
		return nil
	}
	if len(leave) > 0 || old.Queue.Requeue != changed.Queue.Requeue || old.Time.Signal != changed.Time.Signal ||
		!reflect.DeepEqual(old.Size, changed.Size) {
		return spec.Refuse(
			spec.CodeDisabled,
			"what a pod requests is in its specification: change it there",
		)
	}
	return nil
}

// admitPods changes where a waiting job may start. Where it has started, its pods go
// where they were let go.
func (d podCommands) admitPods(command AdmitPods) error {
	job := d.t.Job(command.UID)
	if job == nil || job.Spec.Pods == nil || job.Spec.Pods.Pods[0].UID != command.Pod ||
		job.State != spec.Pending {
		d.res.Stale++
		return nil
	}
	if _, err := hostlist.Expand(command.Admits); err != nil {
		return spec.Refuse(spec.CodeBadRequest, err.Error())
	}
	if job.Spec.Pods.Admits == command.Admits {
		return nil
	}
	changed := *job.Spec
	pods := *job.Spec.Pods
	pods.Admits = command.Admits
	changed.Pods = &pods
	return d.Emit(&event.JobUpdated{
		UID:     job.UID,
		Spec:    &changed,
		Req:     job.Req,
		Assoc:   job.Assoc,
		Changed: []string{"Pods"},
	})
}

// endPods ends a job, with all components of a heterogeneous one, because Kubernetes reports that
// its pods are over.
func (d podCommands) endPods(command PodsOver) error {
	job := d.t.Job(command.Run.UID)
	if job == nil || job.PodsOver || job.Het.Follows() || !isOfPods(job, command) {
		d.res.Stale++
		return nil
	}
	if job.State == spec.Pending {
		verdict := &event.JobEnded{
			UID:     job.UID,
			Attempt: job.Attempt,
			State:   spec.Cancelled,
			Reason:  spec.Reason{Code: spec.ReasonNone, Detail: command.Why},
			By:      d.t.Actor.UID,
		}
		if err := d.Emit(verdict); err != nil {
			return err
		}
	}
	// The leader comes last: its end asks components that run to end too.
	gang := d.gangOf(job)
	slices.Reverse(gang)
	ends := slices.ContainsFunc(gang, func(j *state.Job) bool { return !j.GoesOn() })
	for _, part := range gang {
		if err := d.giveBack(part.UID, &command, ends); err != nil {
			return err
		}
	}
	for _, part := range gang {
		done := &event.JobPodsOver{UID: part.UID, Attempt: d.t.Job(part.UID).Attempt}
		if err := d.Emit(done); err != nil {
			return err
		}
	}
	return nil
}

// giveBack ends the attempt and gives its nodes back, all together: the gang is over as
// a whole. The first node has what there is of an exit, as that of a batch script. ends
// tells that the gang was to end, be it because of another component.
func (d podCommands) giveBack(uid spec.JobUID, command *PodsOver, ends bool) error {
	job := d.t.Job(uid)
	if !job.HoldsNodes() {
		return nil
	}
	if (command.Result == nil || ends) && job.GoesOn() {
		if err := d.RequestEnd(job, event.EndCancel, false, spec.NotHeld, command.Why); err != nil {
			return err
		}
	}
	result := command.Result
	for i := range d.t.Job(uid).Alloc.Nodes {
		job = d.t.Job(uid)
		name := job.Alloc.Nodes[i].Name
		if !commit.HoldsNode(job, name) {
			continue
		}
		if err := d.FinishNode(job, name, &commit.NodeDone{Batch: result}, false); err != nil {
			return err
		}
		result = nil
	}
	return nil
}

// endOn asks the jobs of pods on a node to end. Kubernetes tells when they have.
func (d podCommands) endOn(node, reason string) error {
	for _, uid := range slices.Clone(d.t.Node(node).Jobs) {
		job := d.t.Job(uid)
		if job.Spec.Pods == nil || !job.GoesOn() {
			continue
		}
		if err := d.RequestEnd(job, event.EndNodeLost, false, spec.NotHeld, reason); err != nil {
			return err
		}
	}
	return nil
}

// clearOfPods refuses what would take a node from under pods.
func (d podCommands) clearOfPods(node *state.Node) error {
	for _, uid := range node.Jobs {
		job := d.t.Job(uid)
		if job.Spec.Pods == nil || job.Configuring() {
			continue
		}
		return spec.Refuse(spec.CodeNodesBusy, fmt.Sprintf(
			"pods of job %d (%s) are on %s: drain the node and wait, or cancel the job",
			job.ID,
			job.Spec.Name,
			node.Spec.Name,
		))
	}
	return nil
}

// isOfPods tells whether the word is about the pods of a job in its present attempt. A job that has
// not begun yet has no epoch.
func isOfPods(job *state.Job, command PodsOver) bool {
	if job.Spec.Pods == nil || job.Spec.Pods.Pods[0].UID != command.Pod {
		return false
	}
	return job.Attempt == command.Run.Attempt && (job.Attempt == 0 || job.Epoch == command.Epoch)
}
