package state

import (
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// PodKey is the key of Pods: a hash of a pod's UID, so a reader compares the UID too.
func PodKey(uid string) uint64 {
	h := uint64(14695981039346656037) // FNV-1a
	for i := 0; i < len(uid); i++ {
		h = (h ^ uint64(uid[i])) * 1099511628211
	}
	return h
}

// JobOfPod is the job of which a pod is, or nil: there is none, or its pods are over.
func (s *State) JobOfPod(uid string) *Job {
	of, ok := s.Pods.Get(PodKey(uid))
	if !ok {
		return nil
	}
	job := s.Job(of)
	if job == nil || job.Spec.Pods == nil || !job.Spec.Pods.Has(uid) {
		return nil
	}
	return job
}

// indexPods notes the pods of a job that has come, unless they are over: what is left
// of a gang that lost a pod before it started may be of another job.
func (s *State) indexPods(job *Job) {
	if job.Spec.Pods == nil || job.PodsOver {
		return
	}
	for _, pod := range job.Spec.Pods.Pods {
		s.Pods.Set(s.own, PodKey(pod.UID), job.UID)
	}
}

// forgetPods undoes indexPods.
func (s *State) forgetPods(job *Job) {
	if job.Spec.Pods == nil || job.PodsOver {
		return
	}
	for _, pod := range job.Spec.Pods.Pods {
		s.Pods.Delete(s.own, PodKey(pod.UID))
	}
}

func (s *State) applyPodsOver(envelope *event.Envelope, e *event.JobPodsOver) error {
	job, err := s.editJob(e.UID, envelope)
	if err != nil {
		return err
	}
	if job.Spec.Pods == nil || job.PodsOver || job.Attempt != e.Attempt || !job.isFinished() {
		return contradictionError(
			"the pods of attempt %d of job uid %d (%s) cannot be over: it holds nodes, or has none",
			e.Attempt,
			e.UID,
			job.State,
		)
	}
	s.forgetPods(job)
	job.PodsOver = true
	s.storeJob(job)
	return nil
}

// EndsWithNode tells whether a node has jobs that are over when it is silent.
func (s *State) EndsWithNode(node *Node) bool {
	for _, uid := range node.Jobs {
		if job := s.Job(uid); job.Spec.Runner().EndsWithNode() || job.Configuring() {
			return true
		}
	}
	return false
}

// Bindable tells whether the pods of a job may be bound to the nodes that it holds: it
// has started, nothing is to be done before, and it is not to end.
func (j *Job) Bindable() bool {
	hasStarted := j.State == spec.Running && !j.Prepares && !j.Configuring()
	return j.Spec.Pods != nil && hasStarted && j.Ending == nil
}

// CheckPods is S26 as far as the ledger knows: a pod that is not over is of one job, the job has a task for each of its pods, and one attempt; nothing of it
// stands still.
func CheckPods(state *State) error {
	pods := 0
	err := state.eachJob(func(job *Job) error {
		set := job.Spec.Pods
		if set == nil {
			if job.PodsOver {
				return brokenInvariant("%s has no pods, and they are over", state.labelJob(job))
			}
			return nil
		}
		for _, pod := range set.Pods {
			if job.PodsOver {
				break
			}
			pods++
			if of, _ := state.Pods.Get(PodKey(pod.UID)); of != job.UID {
				return brokenInvariant(
					"pod %s of %s is found under job uid %d",
					pod.Name,
					state.labelJob(job),
					of,
				)
			}
		}
		switch {
		case job.Attempt > 1 || job.State == spec.Suspended || job.Unfenced > 0:
			return brokenInvariant(
				"%s consists of pods and is %s in attempt %d, with %d runs to fence",
				state.labelJob(job),
				job.State,
				job.Attempt,
				job.Unfenced,
			)
		case job.PodsOver && !job.isFinished():
			return brokenInvariant("%s is not over, but its pods are", state.labelJob(job))
		case job.Alloc != nil && job.HoldsNodes() && len(set.Places(job.Alloc)) != len(set.Pods):
			return brokenInvariant(
				"%s has tasks for %d of its %d pods",
				state.labelJob(job),
				len(set.Places(job.Alloc)),
				len(set.Pods),
			)
		}
		return nil
	})
	if err == nil && pods != state.Pods.Len() {
		return brokenInvariant("jobs have %d pods, and %d are found", pods, state.Pods.Len())
	}
	return err
}

// refusePods refuses an event that no job of pods can have, or that makes a job of what
// are no pods of its own. It is one place, so that the others need not know of pods.
func (s *State) refusePods(ev event.Event) error {
	uid := spec.JobUID(0)
	switch e := ev.(type) {
	case *event.JobSubmitted:
		return s.refuseSet(e)
	case *event.JobUpdated:
		job := s.Job(e.UID)
		if job == nil || e.Spec == nil || samePods(job.Spec.Pods, e.Spec.Pods) {
			return nil
		}
		return contradictionError("job uid %d cannot come to have other pods", e.UID)
	case *event.JobStarted:
		job := s.Job(e.UID)
		if job == nil || job.Spec.Pods == nil || e.Alloc == nil {
			return nil
		}
		if e.Attempt != 1 || len(job.Spec.Pods.Places(e.Alloc)) != len(job.Spec.Pods.Pods) {
			return contradictionError(
				"attempt %d of job uid %d does not have a place for each pod",
				e.Attempt,
				e.UID,
			)
		}
		return nil
	case *event.JobNodeDone:
		if !e.Unfenced && e.Rest == nil {
			return nil
		}
		uid = e.UID
	case *event.JobSuspended:
		uid = e.UID
	case *event.JobShrunk:
		uid = e.UID
	case *event.JobRequeued:
		uid = e.UID
	default:
		return nil
	}
	if job := s.Job(uid); job != nil && job.Spec.Pods != nil {
		return contradictionError("job uid %d consists of pods: %s cannot happen to it", uid, ev.Kind())
	}
	return nil
}

func samePods(a, b *spec.PodSet) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Same(b)
}

// refuseSet refuses pods of a new job that are none, or another job's.
func (s *State) refuseSet(e *event.JobSubmitted) error {
	if e.Spec == nil || e.Spec.Pods == nil {
		return nil
	}
	if len(e.Spec.Pods.Pods) == 0 || e.Spec.Queue.Array != nil {
		return contradictionError("job uid %d has no pods, or several times", e.UID)
	}
	seen := make(map[uint64]bool, len(e.Spec.Pods.Pods))
	for _, pod := range e.Spec.Pods.Pods {
		key := PodKey(pod.UID)
		if of, taken := s.Pods.Get(key); taken || seen[key] {
			return contradictionError("pod %s of job uid %d is of job uid %d", pod.UID, e.UID, of)
		}
		seen[key] = true
	}
	return nil
}
