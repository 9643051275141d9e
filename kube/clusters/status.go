package clusters

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// report writes the status if it is new. wrong is about the spec and its configuration,
// failed about what was to be done.
func (o *Operator) report(ctx context.Context, c *MusterCluster, wrong, failed error) error {
	next := &Status{ObservedGeneration: c.Generation, Conditions: slices.Clone(c.Status.Conditions)}
	controllers, current := o.count(c, c.controllerSet(), &next.Controllers)
	witness, votes := true, ""
	if c.Spec.Controllers.Witness != nil {
		witness, _ = o.count(c, c.witnessSet(), &votes)
	}
	logins := true
	if c.Spec.Login != nil {
		logins, _ = o.count(c, c.loginSet(), &next.Logins)
	}
	accepted := metav1.Condition{Type: Accepted, Status: metav1.ConditionTrue, Reason: "Valid", ObservedGeneration: c.Generation}
	if wrong != nil {
		accepted.Status, accepted.Reason, accepted.Message = metav1.ConditionFalse, "Invalid", wrong.Error()
	}
	ready := metav1.Condition{Type: Ready, Status: metav1.ConditionFalse, ObservedGeneration: c.Generation}
	switch {
	case c.DeletionTimestamp != nil:
		ready.Reason, ready.Message = "Leaving", "its NodeSets drain their nodes and wait for the jobs there"
	case wrong != nil:
		ready.Reason = "Invalid"
	case failed != nil:
		ready.Reason, ready.Message = "Failed", failed.Error()
	case !controllers:
		ready.Reason, ready.Message = "Starting", "controllers: "+next.Controllers
	case !current:
		ready.Reason, ready.Message = "Updating", "controllers are started again one after the other"
	case !witness:
		ready.Reason, ready.Message = "Starting", "witness: "+votes
	case !logins:
		ready.Reason, ready.Message = "Starting", "login hosts: "+next.Logins
	default:
		ready.Status, ready.Reason = metav1.ConditionTrue, "Running"
	}
	meta.SetStatusCondition(&next.Conditions, accepted)
	meta.SetStatusCondition(&next.Conditions, ready)
	was, err := json.Marshal(c.Status)
	if err != nil {
		return err
	}
	now, err := json.Marshal(next)
	if err != nil || string(was) == string(now) {
		return err
	}
	return o.patch(ctx, Resource, c.Namespace, c.Name, map[string]any{"status": next}, "status")
}

// count tells how many pods of a StatefulSet are ready, whether all are, and whether all are
// of its newest template.
func (o *Operator) count(c *MusterCluster, name string, text *string) (all, current bool) {
	set, err := o.stateful.StatefulSets(c.Namespace).Get(name)
	if err != nil {
		*text = "0/?" // it is being made
		return false, false
	}
	want := int32(1)
	if set.Spec.Replicas != nil {
		want = *set.Spec.Replicas
	}
	*text = fmt.Sprintf("%d/%d", set.Status.ReadyReplicas, want)
	seen := set.Status.ObservedGeneration == set.Generation
	return seen && set.Status.ReadyReplicas == want, seen && set.Status.UpdateRevision == set.Status.CurrentRevision
}

// reportSlurm writes the status of a SlurmCluster if it is new.
func (o *Operator) reportSlurm(ctx context.Context, s *SlurmCluster, condition metav1.Condition, failed error) error {
	next := SlurmStatus{ObservedGeneration: s.Generation, Conditions: slices.Clone(s.Status.Conditions)}
	changed := meta.SetStatusCondition(&next.Conditions, condition)
	if !changed && s.Status.ObservedGeneration == s.Generation {
		return failed
	}
	return errors.Join(failed, o.patch(ctx, SlurmResource, s.Namespace, s.Name, map[string]any{"status": next}, "status"))
}
