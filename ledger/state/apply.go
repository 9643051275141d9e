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
func (s *State) Apply(envelope *event.Envelope) error {
	if envelope.Event == nil {
		return contradictionError("event %d says nothing", envelope.Seq)
	}
	if s.own == nil {
		return fmt.Errorf("apply %s to a frozen state: %w", envelope.Event.Kind(), ErrContradiction)
	}
	if envelope.Seq != s.Seq+1 {
		return fmt.Errorf("event %d follows event %d: %w", envelope.Seq, s.Seq, ErrContradiction)
	}
	if envelope.At < s.At {
		return fmt.Errorf(
			"event %d is older than the one before it: %w", envelope.Seq, ErrContradiction,
		)
	}
	err := s.refusePods(envelope.Event)
	if err != nil {
		return fmt.Errorf("event %d: %w", envelope.Seq, err)
	}
	switch e := envelope.Event.(type) {
	case *event.ClusterCreated:
		err = s.applyClusterCreated(envelope, e)
	case *event.ClusterVersionRaised:
		err = s.applyVersionRaised(e)
	case *event.ConfigAdopted:
		err = s.applyConfig(e)
	case *event.TokenIssued:
		err = s.applyTokenIssued(e)
	case *event.TokenSpent:
		err = s.applyTokenSpent(envelope, e)
	case *event.CertificateIssued:
		err = s.applyCertificate(e)
	case *event.CertificateRevoked:
		err = s.applyRevoked(e)
	case *event.CertificatesDropped:
		err = s.applyDropped(envelope, e)
	case *event.EpochBegan:
		err = s.applyEpochBegan(envelope, e)
	case *event.HistoryLost:
		err = s.applyHistoryLost(envelope, e)
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
		err = s.applyUserToken(envelope, e)
	case *event.UserTokensEnded:
		err = s.applyUserTokensEnded(envelope, e)
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
		err = s.applyUsageAged(envelope, e)
	case *event.UsageCleared:
		err = s.applyUsageCleared(e)
	case *event.SharesNoted: // a note for accounting
	case *event.JobsAccruing:
		err = s.applyAccruing(envelope, e)
	case *event.JobSubmitted:
		err = s.applySubmitted(envelope, e)
	case *event.JobEligible:
		err = s.applyEligible(envelope, e)
	case *event.ReasonsChanged:
		err = s.applyReasons(envelope, e)
	case *event.JobHeld:
		err = s.applyHeld(envelope, e)
	case *event.JobReleased:
		err = s.applyReleased(envelope, e)
	case *event.JobUpdated:
		err = s.applyUpdated(envelope, e)
	case *event.ArrayTaskSplit:
		err = s.applySplit(envelope, e)
	case *event.JobStarted:
		err = s.applyStarted(envelope, e)
	case *event.JobEndRequested:
		err = s.applyEndRequested(envelope, e)
	case *event.JobPrepared:
		err = s.applyPrepared(envelope, e)
	case *event.JobPodsOver:
		err = s.applyPodsOver(envelope, e)
	case *event.ImagePinned:
		err = s.applyImagePinned(envelope, e)
	case *event.JobNoted:
		err = s.applyNoted(envelope, e)
	case *event.JobEpilogOver:
		err = s.applyEpilogOver(envelope, e)
	case *event.JobSuspended:
		err = s.applySuspended(envelope, e)
	case *event.JobResumed:
		err = s.applyResumed(envelope, e)
	case *event.JobReady:
		err = s.applyReady(envelope, e)
	case *event.JobSignalled:
		err = s.applySignalled(envelope, e)
	case *event.JobEnded:
		err = s.applyEnded(envelope, e)
	case *event.JobNodeDone:
		err = s.applyNodeDone(envelope, e)
	case *event.JobRequeued:
		err = s.applyRequeued(envelope, e)
	case *event.JobPurged:
		err = s.applyPurged(e)
	case *event.StepStarted:
		err = s.applyStepStarted(envelope, e)
	case *event.StepEnded:
		err = s.applyStepEnded(envelope, e)
	case *event.StepNodeDone:
		err = s.applyStepNodeDone(envelope, e)
	case *event.StepEndRequested:
		err = s.applyStepEndRequested(envelope, e)
	case *event.StepSignalled:
		err = s.applyStepSignalled(envelope, e)
	case *event.StepUpdated:
		err = s.applyStepUpdated(envelope, e)
	case *event.JobShrunk:
		err = s.applyShrunk(envelope, e)
	case *event.NodeRegistered:
		err = s.applyRegistered(envelope, e)
	case *event.NodeStateSet:
		err = s.applyNodeState(envelope, e)
	case *event.NodeLost:
		err = s.applyNodeLost(envelope, e)
	case *event.RunFenced:
		err = s.applyRunFenced(envelope, e)
	case *event.FenceTried:
		err = s.applyFenceTried(envelope, e)
	case *event.NodeReturned:
		err = s.applyNodeReturned(e)
	case *event.NodePowered:
		err = s.applyPowered(envelope, e)
	case *event.NodeReboot:
		err = s.applyReboot(envelope, e)
	case *event.GPUFaulted:
		err = s.applyGPUFaulted(e)
	case *event.NodeAdded:
		err = s.applyNodeAdded(e)
	case *event.NodeDeleted:
		err = s.applyNodeDeleted(e)
	case *event.PartitionPut:
		err = s.applyPartitionPut(e)
	case *event.NodeChanged:
		err = s.applyNodeChanged(envelope, e)
	case *event.PartitionAdded:
		err = s.applyPartitionAdded(e)
	case *event.PartitionGone:
		err = s.applyPartitionGone(e)
	case *event.ForeignHoldTaken:
		err = s.applyForeignHoldTaken(envelope, e)
	case *event.ForeignHoldReleased:
		err = s.applyForeignHoldReleased(envelope, e)
	default:
		err = event.ErrNewer
	}
	if err != nil {
		return fmt.Errorf("event %d (%s): %w", envelope.Seq, envelope.Event.Kind(), err)
	}
	s.runOut(envelope.At)
	s.Seq, s.At = envelope.Seq, envelope.At
	return nil
}

// contradictionError makes an error of ErrContradiction.
func contradictionError(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), ErrContradiction)
}
