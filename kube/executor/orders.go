package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/copilot"
	"github.com/musterhpc/muster/kube/claims"
	"github.com/musterhpc/muster/kube/muster"
)

func releaseOf(x *copilot.Release) *apiv1.ReleaseHoldRequest {
	return &apiv1.ReleaseHoldRequest{Node: x.Node, Id: x.Hold, Why: x.Why}
}

// answered tells a refusal of Muster from a failure to reach it.
func answered(err error) bool {
	var refused *muster.Refusal
	return errors.As(err, &refused) && !refused.Denied()
}

// patch is a change of an object that is still as it was seen: the API server
// refuses it with a conflict if uid or version differ.
type patch struct {
	Metadata patchMeta      `json:"metadata"`
	Spec     map[string]any `json:"spec,omitempty"`
	Status   map[string]any `json:"status,omitempty"`
}

type patchMeta struct {
	UID             types.UID         `json:"uid"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
	Annotations     map[string]string `json:"annotations,omitempty"`
	Finalizers      []string          `json:"finalizers,omitempty"` // to add
	DropFinalizers  []string          `json:"$deleteFromPrimitiveList/finalizers,omitempty"`
}

// letGo removes the gate and pins the pod, in one write.
func (r *round) letGo(ctx context.Context, x copilot.LetGo) {
	pod := r.pods[x.Pod.UID]
	if r.written.isOld(pod) {
		return
	}
	node, ok := r.names.kube[x.Node]
	if !ok {
		r.fail(
			"cannot let a pod through",
			fmt.Errorf("no Node of Kubernetes is %s in Muster", x.Node),
		)
		return
	}
	if !r.giveDevices(ctx, pod, node, x.GPUs) {
		return
	}
	change := patch{
		Metadata: patchMeta{UID: pod.UID, ResourceVersion: pod.ResourceVersion},
		Spec: map[string]any{
			"schedulingGates": []map[string]string{{"$patch": "delete", "name": Gate}},
			"affinity": map[string]any{
				"nodeAffinity": map[string]any{
					"requiredDuringSchedulingIgnoredDuringExecution": map[string]any{
						"nodeSelectorTerms": pinTerms(pod, node)},
				},
			},
		},
	}
	if len(x.GPUs) > 0 {
		change.Metadata.Annotations = map[string]string{DevicesAnnotation: uuids(x.GPUs)}
	}
	err := r.write(ctx, pod, change)
	switch {
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		return // it is not as it was seen, and the watch brings what it is
	case err != nil:
		r.fail("cannot let pod "+pod.Namespace+"/"+pod.Name+" through", err)
		return
	}
	r.written.note(pod)
	r.cfg.Metrics.noteAdmitted(pod)
	text := fmt.Sprintf("Muster holds %s for it on %s", needs(&x.Pod.Ask), x.Node)
	if len(x.GPUs) > 0 {
		text += " (" + uuids(x.GPUs) + ")"
	}
	r.cfg.Recorder.Event(pod, corev1.EventTypeNormal, "Held", text)
	if conditionOf(pod) != nil { // it was told that it waits
		r.setCondition(ctx, pod, corev1.ConditionTrue, "Held", text)
	}
}

// awayText is what a pod says that waits because Muster gives no orders.
func awayText(why error) string {
	if errors.Is(why, muster.ErrAway) {
		return "Muster does not answer, so the pod waits and what runs goes on: " + why.Error()
	}
	return "Muster refuses this program, so the pod waits and what runs goes on: " + why.Error()
}

// tellAway has the pods that wait say that Muster does not answer.
func (e *Executor) tellAway(ctx context.Context, seen []*corev1.Pod, names *names, why error) bool {
	r := round{Executor: e, names: names}
	text := awayText(why)
	var waiting []*corev1.Pod
	for _, p := range seen {
		pod := podOf(p, e.asks.of(p, e.cfg.GPUResource), &claims.Want{}, names)
		scheduled := p.Spec.SchedulerName == e.cfg.Scheduler && p.Spec.NodeName == ""
		if (pod.Gated || scheduled) && !pod.Over && !pod.Deleting {
			waiting = append(waiting, p)
		}
	}
	e.carryOut(each(nil, waiting, func(p *corev1.Pod) {
		if p.Spec.SchedulerName == e.cfg.Scheduler {
			r.tellScheduled(ctx, p, "MusterAway", text)
			return
		}
		r.tell(ctx, p, "MusterAway", text)
	}))
	return !r.failed.Load()
}

// tell has a pod say why it waits, by an event and a condition, when that is new.
func (r *round) tell(ctx context.Context, pod *corev1.Pod, reason, text string) {
	old := conditionOf(pod)
	if old != nil && old.Status == corev1.ConditionFalse && old.Reason == reason {
		// Of one reason the first text stays: figures change with each job, and who
		// is away says it in several ways.
		return
	}
	r.cfg.Recorder.Event(pod, corev1.EventTypeWarning, reason, text)
	r.setCondition(ctx, pod, corev1.ConditionFalse, reason, text)
}

func conditionOf(pod *corev1.Pod) *corev1.PodCondition {
	at := slices.IndexFunc(
		pod.Status.Conditions,
		func(c corev1.PodCondition) bool { return c.Type == Condition },
	)
	if at < 0 {
		return nil
	}
	return &pod.Status.Conditions[at]
}

func (r *round) setCondition(
	ctx context.Context,
	pod *corev1.Pod,
	status corev1.ConditionStatus,
	reason, text string,
) {
	change := patch{
		Metadata: patchMeta{UID: pod.UID},
		Status: map[string]any{"conditions": []corev1.PodCondition{
			{
				Type:               Condition,
				Status:             status,
				Reason:             reason,
				Message:            text,
				LastTransitionTime: metav1.Now(),
			}}},
	}
	if err := r.write(ctx, pod, change, "status"); err != nil && !apierrors.IsNotFound(err) &&
		!apierrors.IsConflict(err) {
		r.fail("cannot write the condition of pod "+pod.Namespace+"/"+pod.Name, err)
	}
}

func (r *round) write(
	ctx context.Context,
	pod *corev1.Pod,
	change patch,
	subresource ...string,
) error {
	text, err := json.Marshal(change)
	if err != nil {
		return err
	}
	_, err = r.cfg.Kube.CoreV1().
		Pods(pod.Namespace).
		Patch(ctx, pod.Name, types.StrategicMergePatchType, text, metav1.PatchOptions{}, subresource...)
	return err
}
