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
	out := &apiv1.PodSet{
		Space:  set.Space,
		Owner:  set.Owner,
		Group:  set.Group,
		Admits: set.Admits,
	}
	for _, pod := range set.Pods {
		out.Pods = append(out.Pods, &apiv1.PodRef{Uid: pod.UID, Name: pod.Name})
	}
	return out
}

// ToPodSet reads them. ToJobSpec does not: a submission of a user has no pods.
func ToPodSet(m *apiv1.PodSet) *spec.PodSet {
	out := &spec.PodSet{
		Space:  m.GetSpace(),
		Owner:  m.GetOwner(),
		Group:  m.GetGroup(),
		Admits: m.GetAdmits(),
	}
	for _, pod := range m.GetPods() {
		out.Pods = append(out.Pods, spec.Pod{UID: pod.GetUid(), Name: pod.GetName()})
	}
	return out
}

// PodJob writes a job of pods for those who bind them.
func PodJob(job *copilot.PodJob) *apiv1.PodJob {
	out := &apiv1.PodJob{
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
		for _, g := range job.Places[i].GPUs {
			place.Gpus = append(
				place.Gpus,
				&apiv1.HeldGpu{Uuid: g.UUID, Index: g.Index, Type: g.Type},
			)
		}
		out.Places = append(out.Places, place)
	}
	return out
}

// ToPodJob reads what PodJob writes.
func ToPodJob(m *apiv1.PodJob) copilot.PodJob {
	out := copilot.PodJob{
		Run: copilot.JobRun{
			UID:     spec.JobUID(m.GetUid()),
			Attempt: m.GetAttempt(),
			Epoch:   m.GetEpoch(),
		},
		ID:       spec.JobID(m.GetJobId()),
		Pods:     ToPodSet(m.GetPods()),
		Pending:  m.GetPending(),
		Bindable: m.GetBindable(),
		Ends:     m.GetEnds(),
		Why:      m.GetWhy(),
		Reason:   m.GetReason(),
		Text:     m.GetText(),
		Leader:   spec.JobUID(m.GetLeader()),
	}
	for i, place := range m.GetPlaces() {
		if i >= len(out.Pods.Pods) {
			break
		}
		at := spec.PodPlace{Pod: out.Pods.Pods[i], Node: place.GetNode()}
		for _, g := range place.GetGpus() {
			at.GPUs = append(
				at.GPUs,
				spec.GPURef{UUID: g.GetUuid(), Index: g.GetIndex(), Type: g.GetType()},
			)
		}
		out.Places = append(out.Places, at)
	}
	return out
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
func ToPodsEnd(m *apiv1.PodsEnd) *event.StepResult {
	if m == nil {
		return nil
	}
	return &event.StepResult{
		Started: spec.Instant(m.GetStarted()),
		Ended:   spec.Instant(m.GetEnded()),
		Exit:    spec.ExitStatus{Code: m.GetExitCode(), Signal: m.GetExitSignal()},
		Detail:  m.GetDetail(),
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
