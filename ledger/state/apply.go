package state

import (
	"errors"
	"fmt"

	"github.com/musterhpc/muster/ledger/event"
)

// ErrContradiction tells an event that cannot follow the state: the ledger is
// damaged or a rule was broken when it was written. The controller stops.
var ErrContradiction = errors.New("the ledger contradicts itself")

// Apply folds one event. On an error the state must not be used any more.
//
//muster:table one case for each kind of event
func (s *State) Apply(env *event.Envelope) error {
	if env.Event == nil {
		return contradictionError("event %d says nothing", env.Seq)
	}
	if s.own == nil {
		return fmt.Errorf("apply %s to a frozen state: %w", env.Event.Kind(), ErrContradiction)
	}
	if env.Seq != s.Seq+1 {
		return fmt.Errorf("event %d follows event %d: %w", env.Seq, s.Seq, ErrContradiction)
	}
	if env.At < s.At {
		return fmt.Errorf("event %d is older than the one before it: %w", env.Seq, ErrContradiction)
	}
	err := s.refusePods(env.Event)
	if err != nil {
		return fmt.Errorf("event %d: %w", env.Seq, err)
	}
	switch e := env.Event.(type) {
	case *event.ClusterCreated:
		err = s.applyClusterCreated(env, e)
	case *event.ClusterVersionRaised:
		err = s.applyVersionRaised(e)
	case *event.ConfigAdopted:
		err = s.applyConfig(e)
	case *event.TokenIssued:
		err = s.applyTokenIssued(e)
	case *event.TokenSpent:
		err = s.applyTokenSpent(env, e)
	case *event.CertificateIssued:
		err = s.applyCertificate(e)
	case *event.CertificateRevoked:
		err = s.applyRevoked(e)
	case *event.CertificatesDropped:
		err = s.applyDropped(env, e)
	case *event.EpochBegan:
		err = s.applyEpochBegan(env, e)
	case *event.HistoryLost:
		err = s.applyHistoryLost(env, e)
	case *event.QOSPut:
		err = s.applyQOSPut(e)
	case *event.QOSRemoved:
		s.applyQOSRemoved(e)
	case *event.AccountPut:
		s.applyAccountPut(e)
	case *event.AccountRemoved:
		s.applyAccountRemoved(e)
	case *event.UserPut:
		s.applyUserPut(e)
	case *event.UserRemoved:
		s.applyUserRemoved(e)
	case *event.AssociationPut:
		err = s.applyAssocPut(e)
	case *event.ReservationPut:
		err = s.applyReservationPut(e)
	case *event.ReservationRemoved:
		err = s.applyReservationRemoved(e)
	case *event.UserTokenIssued:
		err = s.applyUserToken(env, e)
	case *event.UserTokensEnded:
		err = s.applyUserTokensEnded(env, e)
	case *event.TriggerPut:
		err = s.applyTriggerPut(&e.Trigger)
	case *event.TriggerRemoved:
		err = s.applyTriggerRemoved(e)
	case *event.CrontabPut:
		err = s.applyCrontabPut(&e.Crontab)
	case *event.AssociationRemoved:
		s.applyAssocRemoved(e)
	case *event.WCKeyPut:
		err = s.applyWCKeyPut(e)
	case *event.WCKeyRemoved:
		s.applyWCKeyRemoved(e)
	case *event.ResourcePut:
		s.applyResourcePut(e)
	case *event.ResourceRemoved:
		s.applyResourceRemoved(e)
	case *event.ClusterPut:
		s.applyClusterPut(e)
	case *event.ClusterRemoved:
		s.applyClusterRemoved(e)
	case *event.UsageAged:
		err = s.applyUsageAged(env, e)
	case *event.UsageCleared:
		err = s.applyUsageCleared(e)
	case *event.SharesNoted: // a note for accounting
	case *event.JobsAccruing:
		err = s.applyAccruing(env, e)
	case *event.JobSubmitted:
		err = s.applySubmitted(env, e)
	case *event.JobEligible:
		err = s.applyEligible(env, e)
	case *event.ReasonsChanged:
		err = s.applyReasons(env, e)
	case *event.JobHeld:
		err = s.applyHeld(env, e)
	case *event.JobReleased:
		err = s.applyReleased(env, e)
	case *event.JobUpdated:
		err = s.applyUpdated(env, e)
	case *event.ArrayTaskSplit:
		err = s.applySplit(env, e)
	case *event.JobStarted:
		err = s.applyStarted(env, e)
	case *event.JobEndRequested:
		err = s.applyEndRequested(env, e)
	case *event.JobPrepared:
		err = s.applyPrepared(env, e)
	case *event.JobPodsOver:
		err = s.applyPodsOver(env, e)
	case *event.ImagePinned:
		err = s.applyImagePinned(env, e)
	case *event.JobNoted:
		err = s.applyNoted(env, e)
	case *event.JobEpilogOver:
		err = s.applyEpilogOver(env, e)
	case *event.JobSuspended:
		err = s.applySuspended(env, e)
	case *event.JobResumed:
		err = s.applyResumed(env, e)
	case *event.JobReady:
		err = s.applyReady(env, e)
	case *event.JobSignalled:
		err = s.applySignalled(env, e)
	case *event.JobEnded:
		err = s.applyEnded(env, e)
	case *event.JobNodeDone:
		err = s.applyNodeDone(env, e)
	case *event.JobRequeued:
		err = s.applyRequeued(env, e)
	case *event.JobPurged:
		err = s.applyPurged(e)
	case *event.StepStarted:
		err = s.applyStepStarted(env, e)
	case *event.StepEnded:
		err = s.applyStepEnded(env, e)
	case *event.StepNodeDone:
		err = s.applyStepNodeDone(env, e)
	case *event.StepEndRequested:
		err = s.applyStepEndRequested(env, e)
	case *event.StepSignalled:
		err = s.applyStepSignalled(env, e)
	case *event.StepUpdated:
		err = s.applyStepUpdated(env, e)
	case *event.JobShrunk:
		err = s.applyShrunk(env, e)
	case *event.NodeRegistered:
		err = s.applyRegistered(env, e)
	case *event.NodeStateSet:
		err = s.applyNodeState(env, e)
	case *event.NodeLost:
		err = s.applyNodeLost(env, e)
	case *event.RunFenced:
		err = s.applyRunFenced(env, e)
	case *event.FenceTried:
		err = s.applyFenceTried(env, e)
	case *event.NodeReturned:
		err = s.applyNodeReturned(e)
	case *event.NodePowered:
		err = s.applyPowered(env, e)
	case *event.NodeReboot:
		err = s.applyReboot(env, e)
	case *event.GPUFaulted:
		err = s.applyGPUFaulted(e)
	case *event.NodeAdded:
		err = s.applyNodeAdded(e)
	case *event.NodeDeleted:
		err = s.applyNodeDeleted(e)
	case *event.PartitionPut:
		err = s.applyPartitionPut(e)
	case *event.NodeChanged:
		err = s.applyNodeChanged(env, e)
	case *event.PartitionAdded:
		err = s.applyPartitionAdded(e)
	case *event.PartitionGone:
		err = s.applyPartitionGone(e)
	case *event.ForeignHoldTaken:
		err = s.applyForeignHoldTaken(env, e)
	case *event.ForeignHoldReleased:
		err = s.applyForeignHoldReleased(env, e)
	default:
		err = event.ErrNewer
	}
	if err != nil {
		return fmt.Errorf("event %d (%s): %w", env.Seq, env.Event.Kind(), err)
	}
	s.runOut(env.At)
	s.Seq, s.At = env.Seq, env.At
	return nil
}

// contradictionError makes an error of ErrContradiction.
func contradictionError(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), ErrContradiction)
}
