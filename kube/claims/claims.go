package claims

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
)

// Errors of a pod's claims.
var (
	// ErrNotYet: Kubernetes has not made a claim of the pod yet.
	ErrNotYet = errors.New("not made yet")
	// ErrUnsupported: a claim asks for what the ledger cannot give. It never will.
	ErrUnsupported = errors.New("not supported by Muster")
	// ErrOther: a claim is allocated otherwise than the ledger has it.
	ErrOther = errors.New("allocated otherwise")
)

// Source finds the objects that claims are made of.
type Source interface {
	Claim(namespace, name string) (*resourceapi.ResourceClaim, error)
	Class(name string) (*resourceapi.DeviceClass, error)
}

// Want is what a pod asks for by its claims.
type Want struct {
	GPUs   int64
	Type   string   // of all of them, as the ledger has it; empty: any
	Has    []string // UUIDs of those that are allocated
	Claims []*resourceapi.ResourceClaim
}

// Of reads the claims of a pod. A pod without claims for devices of the ledger wants
// nothing. Claims for devices of others are passed over: Kubernetes' scheduler sees to
// them. The error wraps ErrNotYet or ErrUnsupported, or is of the source.
func Of(pod *corev1.Pod, from Source) (Want, error) {
	var want Want
	types := map[string]bool{}
	for i := range pod.Spec.ResourceClaims {
		entry := &pod.Spec.ResourceClaims[i]
		name, ofPod, err := resourceclaim.Name(pod, entry)
		if errors.Is(err, resourceclaim.ErrClaimNotFound) {
			return Want{}, fmt.Errorf("claim %s of the pod is %w", entry.Name, ErrNotYet)
		}
		if err != nil {
			return Want{}, fmt.Errorf("claim %s of the pod: %w", entry.Name, err)
		}
		if name == nil {
			continue // found not to be needed
		}
		claim, err := from.Claim(pod.Namespace, *name)
		if apierrors.IsNotFound(err) {
			return Want{}, fmt.Errorf("claim %s is %w", *name, ErrNotYet)
		}
		if err == nil && ofPod {
			err = resourceclaim.IsForPod(pod, claim, false)
		}
		if err != nil {
			return Want{}, fmt.Errorf("claim %s: %w", *name, err)
		}
		n, err := want.read(claim, from, types)
		if err != nil {
			return Want{}, err
		}
		if n == 0 {
			continue
		}
		want.GPUs += n
		want.Claims = append(want.Claims, claim)
		if claim.Status.Allocation != nil {
			for _, r := range claim.Status.Allocation.Devices.Results {
				want.Has = append(want.Has, UUID(r.Device))
			}
		}
	}
	if len(types) > 1 {
		return Want{}, fmt.Errorf("GPUs of several types in one pod are %w; use one DeviceClass", ErrUnsupported)
	}
	for t := range types {
		want.Type = t
	}
	return want, nil
}

// read counts the devices of the ledger that a claim asks for.
func (w *Want) read(claim *resourceapi.ResourceClaim, from Source, types map[string]bool) (int64, error) {
	var n int64
	others := 0
	for i := range claim.Spec.Devices.Requests {
		request := &claim.Spec.Devices.Requests[i]
		typ, ours, err := typeOf(request, from)
		if err != nil {
			return 0, fmt.Errorf("claim %s: %w", claim.Name, err)
		}
		if !ours {
			others++
			continue
		}
		if what := beyond(request); what != "" {
			return 0, fmt.Errorf("claim %s: %s in request %s is %w; ask for a count of a DeviceClass",
				claim.Name, what, request.Name, ErrUnsupported)
		}
		types[typ] = true
		n += request.Exactly.Count
	}
	if n == 0 {
		return 0, nil
	}
	switch {
	case others > 0:
		return 0, fmt.Errorf("claim %s: devices of Muster and of others in one claim are %w; use two claims", claim.Name, ErrUnsupported)
	case len(claim.Spec.Devices.Constraints) > 0:
		return 0, fmt.Errorf("claim %s: constraints are %w; the ledger chooses devices that are close to each other", claim.Name, ErrUnsupported)
	case len(claim.Spec.Devices.Config) > 0:
		return 0, fmt.Errorf("claim %s: config is %w", claim.Name, ErrUnsupported)
	}
	return n, nil
}

// typeOf tells whether a request is for devices of the ledger, and for which.
func typeOf(request *resourceapi.DeviceRequest, from Source) (typ string, ours bool, err error) {
	names := make([]string, 0, 1)
	if request.Exactly != nil {
		names = append(names, request.Exactly.DeviceClassName)
	}
	for _, sub := range request.FirstAvailable {
		names = append(names, sub.DeviceClassName)
	}
	for _, name := range names {
		class, err := from.Class(name)
		if apierrors.IsNotFound(err) {
			return "", false, fmt.Errorf("its DeviceClass %s is %w", name, ErrNotYet)
		}
		if err != nil {
			return "", false, err
		}
		if t, labelled := class.Labels[TypeLabel]; labelled {
			return t, true, nil
		}
	}
	return "", false, nil
}

// beyond names what of a request is more than a count; empty: nothing.
func beyond(request *resourceapi.DeviceRequest) string {
	exact := request.Exactly
	switch {
	case exact == nil:
		return "firstAvailable"
	case exact.AllocationMode != "" && exact.AllocationMode != resourceapi.DeviceAllocationModeExactCount:
		return "allocationMode " + string(exact.AllocationMode)
	case exact.AdminAccess != nil && *exact.AdminAccess:
		return "adminAccess"
	case len(exact.Selectors) > 0:
		return "a selector"
	case exact.Capacity != nil:
		return "capacity"
	}
	return ""
}

// Give writes the allocations that give a pod its devices on a Node, in the order of its
// claims, and reserves the claims for it. Claims that have what they should are left
// alone, so that it may be done again after a crash. The pod may be let go afterwards.
func Give(ctx context.Context, kube kubernetes.Interface, pod *corev1.Pod, want *Want, node string, uuids []string) error {
	free := slices.Clone(uuids)
	for _, uuid := range want.Has {
		at := slices.Index(free, uuid)
		if at < 0 {
			return fmt.Errorf("a claim of the pod is %w: it has %s, and the ledger gave %v on %s", ErrOther, uuid, uuids, node)
		}
		free = slices.Delete(free, at, at+1)
	}
	for _, claim := range want.Claims {
		if claim.Status.Allocation != nil && reserved(claim, pod.UID) {
			continue
		}
		next := claim.DeepCopy()
		if next.Status.Allocation == nil {
			allocation, rest, err := allocate(next, node, free)
			if err != nil {
				return err
			}
			next.Status.Allocation = allocation
			free = rest
		}
		if !resourceclaim.CanBeReserved(next) || len(next.Status.ReservedFor) > 0 && !reserved(next, pod.UID) {
			return fmt.Errorf("claim %s is %w: it is in use by another pod; give each pod a claim of its own by resourceClaimTemplateName",
				claim.Name, ErrOther)
		}
		if !reserved(next, pod.UID) {
			next.Status.ReservedFor = append(next.Status.ReservedFor,
				resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID})
		}
		if err := write(ctx, kube, next); err != nil {
			return fmt.Errorf("claim %s: %w", claim.Name, err)
		}
	}
	return nil
}

func reserved(claim *resourceapi.ResourceClaim, pod types.UID) bool {
	return slices.ContainsFunc(claim.Status.ReservedFor,
		func(r resourceapi.ResourceClaimConsumerReference) bool { return r.UID == pod })
}

// allocate takes the devices of a claim from a list.
func allocate(claim *resourceapi.ResourceClaim, node string, uuids []string) (*resourceapi.AllocationResult, []string, error) {
	now := metav1.Now()
	out := &resourceapi.AllocationResult{
		AllocationTimestamp: &now,
		NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{
				{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
			},
		}}},
	}
	for i := range claim.Spec.Devices.Requests {
		request := &claim.Spec.Devices.Requests[i]
		for range request.Exactly.Count {
			if len(uuids) == 0 {
				return nil, nil, fmt.Errorf("claim %s asks for more devices than the ledger gave: it has changed since", claim.Name)
			}
			out.Devices.Results = append(out.Devices.Results, resourceapi.DeviceRequestAllocationResult{
				Request:     request.Name,
				Driver:      Driver,
				Pool:        Pool(node),
				Device:      DeviceName(uuids[0]),
				Tolerations: request.Exactly.Tolerations,
			})
			uuids = uuids[1:]
		}
	}
	return out, uuids, nil
}

// write puts the finalizer of allocated claims on first, as Kubernetes' scheduler does:
// without it, a claim could be deleted while a pod has its devices.
func write(ctx context.Context, kube kubernetes.Interface, claim *resourceapi.ResourceClaim) error {
	api := kube.ResourceV1().ResourceClaims(claim.Namespace)
	if !slices.Contains(claim.Finalizers, resourceapi.Finalizer) {
		status := claim.Status
		claim.Finalizers = append(claim.Finalizers, resourceapi.Finalizer)
		updated, err := api.Update(ctx, claim, metav1.UpdateOptions{})
		if err != nil {
			return err
		}
		claim = updated
		claim.Status = status
	}
	_, err := api.UpdateStatus(ctx, claim, metav1.UpdateOptions{})
	return err
}
