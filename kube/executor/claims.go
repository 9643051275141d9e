package executor

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	resourcelisters "k8s.io/client-go/listers/resource/v1"

	"github.com/musterhpc/muster/kube/claims"
	"github.com/musterhpc/muster/spec"
)

// claimSource finds claims and DeviceClasses in what the informers have read.
type claimSource struct {
	claims  resourcelisters.ResourceClaimLister
	classes resourcelisters.DeviceClassLister
}

// Claim implements claims.Source.
func (s claimSource) Claim(namespace, name string) (*resourceapi.ResourceClaim, error) {
	return s.claims.ResourceClaims(namespace).Get(name)
}

// Class implements claims.Source.
func (s claimSource) Class(name string) (*resourceapi.DeviceClass, error) {
	return s.classes.Get(name)
}

// noWant is that of a pod whose claims cannot be read now: it waits.
var noWant = &claims.Want{}

// want reads the claims of a pod, and tells a pod at the gate why they keep it there.
func (r *round) want(ctx context.Context, pod *corev1.Pod) *claims.Want {
	if len(pod.Spec.ResourceClaims) == 0 {
		return &claims.Want{}
	}
	want, err := claims.Of(pod, r.claims)
	if err == nil {
		r.wants[string(pod.UID)] = &want
		return &want
	}
	if len(pod.Spec.SchedulingGates) > 0 && pod.DeletionTimestamp == nil {
		switch {
		case errors.Is(err, claims.ErrUnsupported):
			r.tell(ctx, pod, "Unsupported", err.Error())
		case errors.Is(err, claims.ErrNotYet):
			r.tell(ctx, pod, "NoClaim", err.Error())
		default:
			r.fail("cannot read the claims of pod "+pod.Namespace+"/"+pod.Name, err)
		}
	}
	return noWant
}

// giveDevices allocates the claims of a pod as the ledger has it, before the pod is let
// through: Kubernetes' scheduler takes an allocation that is there as it is.
func (r *round) giveDevices(ctx context.Context, pod *corev1.Pod, node string, gpus []spec.GPURef) bool {
	want := r.wants[string(pod.UID)]
	if want == nil || want.GPUs == 0 {
		return true
	}
	list := make([]string, len(gpus))
	for i, gpu := range gpus {
		list[i] = gpu.UUID
	}
	err := claims.Give(ctx, r.cfg.Kube, pod, want, node, list)
	switch {
	case err == nil:
		return true
	case apierrors.IsConflict(err):
		// It is not as it was seen. The watch brings what it is.
	case errors.Is(err, claims.ErrOther):
		r.tell(ctx, pod, "ClaimInUse", err.Error())
	default:
		r.fail(fmt.Sprintf("cannot allocate the claims of pod %s/%s", pod.Namespace, pod.Name), err)
	}
	return false
}
