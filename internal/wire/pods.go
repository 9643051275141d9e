package wire

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/copilot"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// PodSet writes the pods of a job; nil where it has none.
func PodSet(set *spec.PodSet) *apiv1.PodSet {
	if set == nil {
		return nil
	}
	podSet := &apiv1.PodSet{
		Space:  set.Space,
		Owner:  set.Owner,
		Group:  set.Group,
		Admits: set.Admits,
	}
	for _, pod := range set.Pods {
		podSet.Pods = append(podSet.Pods, &apiv1.PodRef{Uid: pod.UID, Name: pod.Name})
	}
	return podSet
}

// ToPodSet reads them. ToJobSpec does not: a submission of a user has no pods.
func ToPodSet(message *apiv1.PodSet) *spec.PodSet {
	set := &spec.PodSet{
		Space:  message.GetSpace(),
		Owner:  message.GetOwner(),
		Group:  message.GetGroup(),
		Admits: message.GetAdmits(),
	}
	for _, pod := range message.GetPods() {
		set.Pods = append(set.Pods, spec.Pod{UID: pod.GetUid(), Name: pod.GetName()})
	}
	return set
}

// PodJob writes a job of pods for those who bind them.
func PodJob(job *copilot.PodJob) *apiv1.PodJob {
	podJob := &apiv1.PodJob{
		Uid:      uint64(job.Run.UID),
		JobId:    uint32(job.ID),
		Attempt:  job.Run.Attempt,
		Epoch:    job.Run.Epoch,
		Pods:     PodSet(job.Pods),
		Pending:  job.Pending,
		Bindable: job.Bindable,
		Ends:     job.Ends,
		Why:      job.Why,
		Reason:   job.Reason,
		Text:     job.Text,
		Leader:   uint64(job.Leader),
	}
	for i := range job.Places {
		place := &apiv1.PodPlace{Pod: job.Places[i].Pod.UID, Node: job.Places[i].Node}
		for _, gpu := range job.Places[i].GPUs {
			place.Gpus = append(
				place.Gpus,
				&apiv1.HeldGpu{Uuid: gpu.UUID, Index: gpu.Index, Type: gpu.Type},
			)
		}
		podJob.Places = append(podJob.Places, place)
	}
	return podJob
}

// ToPodJob reads what PodJob writes.
func ToPodJob(message *apiv1.PodJob) copilot.PodJob {
	job := copilot.PodJob{
		Run: copilot.JobRun{
			UID:     spec.JobUID(message.GetUid()),
			Attempt: message.GetAttempt(),
			Epoch:   message.GetEpoch(),
		},
		ID:       spec.JobID(message.GetJobId()),
		Pods:     ToPodSet(message.GetPods()),
		Pending:  message.GetPending(),
		Bindable: message.GetBindable(),
		Ends:     message.GetEnds(),
		Why:      message.GetWhy(),
		Reason:   message.GetReason(),
		Text:     message.GetText(),
		Leader:   spec.JobUID(message.GetLeader()),
	}
	for i, place := range message.GetPlaces() {
		if i >= len(job.Pods.Pods) {
			break
		}
		at := spec.PodPlace{Pod: job.Pods.Pods[i], Node: place.GetNode()}
		at.GPUs = ToGPURefs(place.GetGpus())
		job.Places = append(job.Places, at)
	}
	return job
}

// PodsEnd writes how pods ended; nil where they did not.
func PodsEnd(result *event.StepResult) *apiv1.PodsEnd {
	if result == nil {
		return nil
	}
	return &apiv1.PodsEnd{
		Started:    int64(result.Started),
		Ended:      int64(result.Ended),
		ExitCode:   result.Exit.Code,
		ExitSignal: result.Exit.Signal,
		Detail:     result.Detail,
	}
}

// ToPodsEnd reads it.
func ToPodsEnd(message *apiv1.PodsEnd) *event.StepResult {
	if message == nil {
		return nil
	}
	return &event.StepResult{
		Started: spec.Instant(message.GetStarted()),
		Ended:   spec.Instant(message.GetEnded()),
		Exit:    spec.ExitStatus{Code: message.GetExitCode(), Signal: message.GetExitSignal()},
		Detail:  message.GetDetail(),
	}
}

// WaitText says in one line why a job waits and when it is planned to start, for those
// who do not have the commands of Muster at hand.
func WaitText(id spec.JobID, reason spec.Reason, planned spec.Instant) string {
	var parts []string
	if reason.Asked > 0 || reason.Limit > 0 {
		what := strings.TrimSpace(cmp.Or(reason.TRES, "resources") + " " + reason.Subject)
		numbers := fmt.Sprintf("requested %d", reason.Asked)
		if reason.Limit > 0 {
			numbers = fmt.Sprintf("limit %d, in use %d, %s", reason.Limit, reason.Used, numbers)
		}
		parts = append(parts, what+": "+numbers)
	}
	if reason.Until != 0 && reason.Until != planned {
		parts = append(parts, "until "+utc(reason.Until))
	}
	if planned != 0 && planned != spec.FarFuture {
		parts = append(parts, "planned start "+utc(planned))
	}
	text := fmt.Sprintf("job %d of Muster waits (%s)", id, reason)
	if len(parts) > 0 {
		text += ": " + strings.Join(parts, "; ")
	}
	return text
}

func utc(at spec.Instant) string {
	return time.Unix(0, int64(at)).UTC().Format("2006-01-02T15:04:05Z")
}
