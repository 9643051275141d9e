package executor

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/copilot"
	"github.com/musterhpc/muster/internal/wire"
)

// How often what changes with every pass is written again, and when a submission that was
// refused is tried again: the account may be there by then.
const (
	retellEvery  = time.Minute
	refusedAgain = 30 * time.Second
)

// scheduledPods are the pods that Muster schedules.
func (r *round) scheduledPods(
	seen []*corev1.Pod,
	nodes []*corev1.Node,
	admitting *admissions,
) []copilot.JobPod {
	reader := jobPods{
		surroundings: &r.around,
		scheduler:    r.cfg.Scheduler,
		gpu:          r.cfg.GPUResource,
		nodes:        nodes,
		names:        r.names,
		admitting:    admitting,
		wants:        r.wants,
	}
	var out []copilot.JobPod
	for _, p := range seen {
		if pod, ok := reader.read(p); ok {
			out = append(out, pod)
		}
	}
	return out
}

// jobOrders are those of a plan.
func (r *round) jobOrders(ctx context.Context, plan copilot.JobPlan) []func() {
	var out []func()
	out = each(out, plan.Overs, func(x copilot.Over) { r.tellOver(ctx, x) })
	out = each(out, plan.Deletes, func(x copilot.Delete) { r.deletePod(ctx, x) })
	out = each(out, plan.Frees, func(x copilot.Free) {
		r.changeFinalizer(ctx, x.Pod.UID, patchMeta{DropFinalizers: []string{GangFinalizer}})
	})
	out = each(out, plan.Keeps, func(x copilot.Keep) {
		r.changeFinalizer(ctx, x.Pod.UID, patchMeta{Finalizers: []string{GangFinalizer}})
	})
	out = each(out, plan.Binds, func(x copilot.Bind) { r.bindPod(ctx, x) })
	out = each(out, plan.Admits, func(x copilot.Admit) { r.admitPods(ctx, x) })
	out = each(out, plan.Submits, func(x copilot.Submit) { r.submitPods(ctx, x) })
	return each(out, plan.Tells, func(x copilot.Tell) {
		r.tellScheduled(ctx, r.pods[x.Pod.UID], x.Reason, x.Text)
	})
}

// changeFinalizer has Kubernetes keep a pod, or lets go of it.
func (r *round) changeFinalizer(ctx context.Context, uid string, change patchMeta) {
	pod := r.pods[uid]
	change.UID = pod.UID
	err := r.write(ctx, pod, patch{Metadata: change})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		r.fail("cannot change the finalizers of pod "+pod.Namespace+"/"+pod.Name, err)
	}
}

// areMissing looks afresh at pods that were not seen.
func (r *round) areMissing(ctx context.Context, confirm map[string]string) bool {
	for uid, name := range confirm {
		now, err := r.freshLook(ctx, name)
		if err != nil {
			r.fail("cannot look at pod "+name, err)
			return false
		}
		if !copilot.Missing(uid, now) {
			r.failed.Store(true) // the watch is behind and will bring it
			return false
		}
	}
	return true
}

func (r *round) tellOver(ctx context.Context, x copilot.Over) {
	if !r.areMissing(ctx, x.Confirm) {
		return
	}
	rep, err := r.cfg.Muster.PodsOver(ctx, &apiv1.PodsOverRequest{
		Uid:     uint64(x.Job.Run.UID),
		Attempt: x.Job.Run.Attempt,
		Epoch:   x.Job.Run.Epoch,
		Pod:     x.Job.Pods.Pods[0].UID,
		Ended:   wire.PodsEnd(x.Result),
		Why:     x.Why,
	})
	if err != nil {
		r.fail(fmt.Sprintf("cannot tell Muster that the pods of job %d are over", x.Job.ID), err)
		return
	}
	r.came(rep.GetSeq())
	r.cfg.Log.Info("the pods of a job are over", "job", x.Job.ID, "why", x.Why)
}

// deletePod deletes a pod whose job ends. Its condition tells controllers that it is no
// fault of the pod's.
func (r *round) deletePod(ctx context.Context, x copilot.Delete) {
	if !r.areMissing(ctx, x.Confirm) {
		return
	}
	pod := r.pods[x.Pod.UID]
	text := fmt.Sprintf("job %d of Muster ends: %s", x.Job.ID, x.Why)
	r.setConditions(ctx, pod, corev1.PodCondition{
		Type:               corev1.DisruptionTarget,
		Status:             corev1.ConditionTrue,
		Reason:             "DeletionByMuster",
		Message:            text,
		LastTransitionTime: metav1.Now(),
	})
	uid := pod.UID
	err := r.cfg.Kube.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid},
	})
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		return // it is gone, and another one may have its name
	case err != nil:
		r.fail("cannot delete pod "+pod.Namespace+"/"+pod.Name, err)
		return
	}
	r.cfg.Recorder.Event(pod, corev1.EventTypeNormal, "Deleted", text)
	r.cfg.Log.Info("pod deleted", "pod", pod.Namespace+"/"+pod.Name, "why", text)
}

// bindPod binds a pod to the node that its job has for it, if it is as it was seen.
func (r *round) bindPod(ctx context.Context, x copilot.Bind) {
	pod := r.pods[x.Pod.UID]
	if r.written.isOld(pod) {
		return
	}
	node, ok := r.names.kube[x.Place.Node]
	if !ok {
		r.fail("cannot bind a pod", fmt.Errorf("no Node of Kubernetes is %s in Muster", x.Place.Node))
		return
	}
	if !r.giveDevices(ctx, pod, node, x.Place.GPUs) {
		return
	}
	notes := map[string]string{JobAnnotation: fmt.Sprint(x.Job.ID)}
	if len(x.Place.GPUs) > 0 {
		notes[DevicesAnnotation] = uuids(x.Place.GPUs)
	}
	err := r.cfg.Kube.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   pod.Namespace,
			Name:        pod.Name,
			UID:         pod.UID,
			Annotations: notes,
		},
		Target: corev1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{})
	switch {
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		return // it is not as it was seen, and the watch brings what it is
	case err != nil:
		r.fail("cannot bind pod "+pod.Namespace+"/"+pod.Name, err)
		return
	}
	r.written.note(pod)
	text := fmt.Sprintf("job %d of Muster has started on %s", x.Job.ID, x.Place.Node)
	if len(x.Place.GPUs) > 0 {
		text += " (" + uuids(x.Place.GPUs) + ")"
	}
	r.cfg.Recorder.Event(pod, corev1.EventTypeNormal, "Scheduled", text)
}

func (r *round) admitPods(ctx context.Context, x copilot.Admit) {
	rep, err := r.cfg.Muster.AdmitPods(ctx, &apiv1.AdmitPodsRequest{
		Uid:    uint64(x.Job.Run.UID),
		Pod:    x.Job.Pods.Pods[0].UID,
		Admits: x.Admits,
	})
	if err != nil {
		r.fail(fmt.Sprintf("cannot tell Muster where the pods of job %d may go", x.Job.ID), err)
		return
	}
	r.came(rep.GetSeq())
}

// submitPods asks for a job. What was refused is asked again after a while only.
func (r *round) submitPods(ctx context.Context, x copilot.Submit) {
	first := x.Pods[0].UID
	err := r.refusals.of(first)
	if err == nil {
		req := &apiv1.SubmitPodsRequest{User: x.Pods[0].Request.User}
		for i, jobSpec := range x.Specs() {
			if i == 0 {
				req.Spec = wire.JobSpec(jobSpec)
				continue
			}
			req.Rest = append(req.Rest, wire.JobSpec(jobSpec))
		}
		var rep *apiv1.SubmitPodsReply
		rep, err = r.cfg.Muster.SubmitPods(ctx, req)
		if err == nil {
			r.came(rep.GetSeq())
			r.cfg.Log.Info(
				"pods submitted",
				"job",
				rep.GetJobId(),
				"pods",
				len(x.Pods),
				"first",
				x.Pods[0].Namespace+"/"+x.Pods[0].Name,
			)
			return
		}
		if answered(err) {
			r.refusals.note(first, err)
		}
	}
	r.failed.Store(true)
	r.cfg.Metrics.failures.Inc()
	reason, text := "Refused", "Muster refuses the pod: "+err.Error()
	if !answered(err) {
		reason, text = "MusterAway", awayText(err)
	}
	for i := range x.Pods {
		r.tellScheduled(ctx, r.pods[x.Pods[i].UID], reason, text)
	}
}

// refusals remember for a while what Muster has refused.
type refusals struct {
	mu    sync.Mutex
	until map[string]refusal
}

type refusal struct {
	at  time.Time
	err error
}

// of is the refusal of a pod that is not to be asked about yet; nil: ask.
func (l *refusals) of(uid string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for other, said := range l.until {
		if time.Since(said.at) > refusedAgain {
			delete(l.until, other)
		}
	}
	return l.until[uid].err
}

func (l *refusals) note(uid string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until[uid] = refusal{time.Now(), err}
}

// tellScheduled has a pod say why it waits, as any scheduler does: by the condition
// PodScheduled, and by an event when the reason is another one.
func (r *round) tellScheduled(ctx context.Context, pod *corev1.Pod, reason, text string) {
	var old corev1.PodCondition
	if at := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled
	}); at >= 0 {
		old = pod.Status.Conditions[at]
	}
	same := old.Status == corev1.ConditionFalse && old.Reason == reason
	if same && (old.Message == text || time.Since(old.LastTransitionTime.Time) < retellEvery) {
		return
	}
	if !same {
		r.cfg.Recorder.Event(pod, corev1.EventTypeWarning, reason, text)
	}
	r.setConditions(ctx, pod, corev1.PodCondition{
		Type:               corev1.PodScheduled,
		Status:             corev1.ConditionFalse,
		Reason:             reason,
		Message:            text,
		LastTransitionTime: metav1.Now(),
	})
}

func (r *round) setConditions(ctx context.Context, pod *corev1.Pod, list ...corev1.PodCondition) {
	change := patch{
		Metadata: patchMeta{UID: types.UID(pod.UID)},
		Status:   map[string]any{"conditions": list},
	}
	if err := r.write(ctx, pod, change, "status"); err != nil && !apierrors.IsNotFound(err) &&
		!apierrors.IsConflict(err) {
		r.fail("cannot write the condition of pod "+pod.Namespace+"/"+pod.Name, err)
	}
}
