package event

// Kind and sealed for every event; fresh makes an empty one of a kind.

// Kind implements Event.
func (*ClusterCreated) Kind() Kind { return KindClusterCreated }

// Kind implements Event.
func (*ClusterVersionRaised) Kind() Kind { return KindClusterVersionRaised }

// Kind implements Event.
func (*ConfigAdopted) Kind() Kind { return KindConfigAdopted }

// Kind implements Event.
func (*TokenIssued) Kind() Kind { return KindTokenIssued }

// Kind implements Event.
func (*CertificateIssued) Kind() Kind { return KindCertificateIssued }

// Kind implements Event.
func (*CertificateRevoked) Kind() Kind { return KindCertificateRevoked }

// Kind implements Event.
func (*TokenSpent) Kind() Kind { return KindTokenSpent }

// Kind implements Event.
func (*CertificatesDropped) Kind() Kind { return KindCertificatesDropped }

// Kind implements Event.
func (*EpochBegan) Kind() Kind { return KindEpochBegan }

// Kind implements Event.
func (*HistoryLost) Kind() Kind { return KindHistoryLost }

// Kind implements Event.
func (*QOSPut) Kind() Kind { return KindQOSPut }

// Kind implements Event.
func (*QOSRemoved) Kind() Kind { return KindQOSRemoved }

// Kind implements Event.
func (*AccountPut) Kind() Kind { return KindAccountPut }

// Kind implements Event.
func (*AccountRemoved) Kind() Kind { return KindAccountRemoved }

// Kind implements Event.
func (*UserPut) Kind() Kind { return KindUserPut }

// Kind implements Event.
func (*UserRemoved) Kind() Kind { return KindUserRemoved }

// Kind implements Event.
func (*AssociationPut) Kind() Kind { return KindAssociationPut }

// Kind implements Event.
func (*AssociationRemoved) Kind() Kind { return KindAssociationRemoved }

// Kind implements Event.
func (*WCKeyPut) Kind() Kind { return KindWCKeyPut }

// Kind implements Event.
func (*WCKeyRemoved) Kind() Kind { return KindWCKeyRemoved }

// Kind implements Event.
func (*ResourcePut) Kind() Kind { return KindResourcePut }

// Kind implements Event.
func (*ResourceRemoved) Kind() Kind { return KindResourceRemoved }

// Kind implements Event.
func (*ClusterPut) Kind() Kind { return KindClusterPut }

// Kind implements Event.
func (*ClusterRemoved) Kind() Kind { return KindClusterRemoved }

// Kind implements Event.
func (*UsageAged) Kind() Kind { return KindUsageAged }

// Kind implements Event.
func (*UsageCleared) Kind() Kind { return KindUsageCleared }

// Kind implements Event.
func (*SharesNoted) Kind() Kind { return KindSharesNoted }

// Kind implements Event.
func (*ReservationPut) Kind() Kind { return KindReservationPut }

// Kind implements Event.
func (*ReservationRemoved) Kind() Kind { return KindReservationRemoved }

// Kind implements Event.
func (*CrontabPut) Kind() Kind { return KindCrontabPut }

// Kind implements Event.
func (*TriggerPut) Kind() Kind { return KindTriggerPut }

// Kind implements Event.
func (*TriggerRemoved) Kind() Kind { return KindTriggerRemoved }

// Kind returns KindUserTokenIssued.
func (*UserTokenIssued) Kind() Kind { return KindUserTokenIssued }

// Kind returns KindUserTokensEnded.
func (*UserTokensEnded) Kind() Kind { return KindUserTokensEnded }

// Kind implements Event.
func (*JobSubmitted) Kind() Kind { return KindJobSubmitted }

// Kind implements Event.
func (*JobEligible) Kind() Kind { return KindJobEligible }

// Kind implements Event.
func (*ReasonsChanged) Kind() Kind { return KindReasonsChanged }

// Kind implements Event.
func (*JobHeld) Kind() Kind { return KindJobHeld }

// Kind implements Event.
func (*JobReleased) Kind() Kind { return KindJobReleased }

// Kind implements Event.
func (*JobUpdated) Kind() Kind { return KindJobUpdated }

// Kind implements Event.
func (*ArrayTaskSplit) Kind() Kind { return KindArrayTaskSplit }

// Kind implements Event.
func (*JobStarted) Kind() Kind { return KindJobStarted }

// Kind implements Event.
func (*JobEndRequested) Kind() Kind { return KindJobEndRequested }

// Kind implements Event.
func (*JobSignalled) Kind() Kind { return KindJobSignalled }

// Kind implements Event.
func (*JobEnded) Kind() Kind { return KindJobEnded }

// Kind implements Event.
func (*JobNodeDone) Kind() Kind { return KindJobNodeDone }

// Kind implements Event.
func (*JobRequeued) Kind() Kind { return KindJobRequeued }

// Kind implements Event.
func (*JobPurged) Kind() Kind { return KindJobPurged }

// Kind implements Event.
func (*StepStarted) Kind() Kind { return KindStepStarted }

// Kind implements Event.
func (*StepEnded) Kind() Kind { return KindStepEnded }

// Kind implements Event.
func (*StepNodeDone) Kind() Kind { return KindStepNodeDone }

// Kind implements Event.
func (*StepEndRequested) Kind() Kind { return KindStepEndRequested }

// Kind implements Event.
func (*StepSignalled) Kind() Kind { return KindStepSignalled }

// Kind implements Event.
func (*StepUpdated) Kind() Kind { return KindStepUpdated }

// Kind implements Event.
func (*JobShrunk) Kind() Kind { return KindJobShrunk }

// Kind implements Event.
func (*JobsAccruing) Kind() Kind { return KindJobsAccruing }

// Kind implements Event.
func (*JobPrepared) Kind() Kind { return KindJobPrepared }

// Kind implements Event.
func (*JobEpilogOver) Kind() Kind { return KindJobEpilogOver }

// Kind implements Event.
func (*ImagePinned) Kind() Kind { return KindImagePinned }

// Kind implements Event.
func (*JobNoted) Kind() Kind { return KindJobNoted }

// Kind implements Event.
func (*JobPodsOver) Kind() Kind { return KindJobPodsOver }

// Kind implements Event.
func (*JobSuspended) Kind() Kind { return KindJobSuspended }

// Kind implements Event.
func (*JobResumed) Kind() Kind { return KindJobResumed }

// Kind implements Event.
func (*JobReady) Kind() Kind { return KindJobReady }

// Kind implements Event.
func (*NodeRegistered) Kind() Kind { return KindNodeRegistered }

// Kind implements Event.
func (*NodeStateSet) Kind() Kind { return KindNodeStateSet }

// Kind implements Event.
func (*NodeLost) Kind() Kind { return KindNodeLost }

// Kind implements Event.
func (*NodeReturned) Kind() Kind { return KindNodeReturned }

// Kind implements Event.
func (*RunFenced) Kind() Kind { return KindRunFenced }

// Kind implements Event.
func (*FenceTried) Kind() Kind { return KindFenceTried }

// Kind implements Event.
func (*GPUFaulted) Kind() Kind { return KindGPUFaulted }

// Kind implements Event.
func (*NodePowered) Kind() Kind { return KindNodePowered }

// Kind implements Event.
func (*NodeReboot) Kind() Kind { return KindNodeReboot }

// Kind implements Event.
func (*NodeAdded) Kind() Kind { return KindNodeAdded }

// Kind implements Event.
func (*NodeDeleted) Kind() Kind { return KindNodeDeleted }

// Kind implements Event.
func (*PartitionPut) Kind() Kind { return KindPartitionPut }

// Kind implements Event.
func (*NodeChanged) Kind() Kind { return KindNodeChanged }

// Kind implements Event.
func (*PartitionAdded) Kind() Kind { return KindPartitionAdded }

// Kind implements Event.
func (*PartitionGone) Kind() Kind { return KindPartitionGone }

// Kind implements Event.
func (*ForeignHoldTaken) Kind() Kind { return KindForeignHoldTaken }

// Kind implements Event.
func (*ForeignHoldReleased) Kind() Kind { return KindForeignHoldReleased }

func (*ClusterCreated) sealed()       {}
func (*ClusterVersionRaised) sealed() {}
func (*ConfigAdopted) sealed()        {}
func (*TokenIssued) sealed()          {}
func (*CertificateIssued) sealed()    {}
func (*CertificateRevoked) sealed()   {}
func (*TokenSpent) sealed()           {}
func (*CertificatesDropped) sealed()  {}
func (*EpochBegan) sealed()           {}
func (*HistoryLost) sealed()          {}
func (*QOSPut) sealed()               {}
func (*QOSRemoved) sealed()           {}
func (*AccountPut) sealed()           {}
func (*AccountRemoved) sealed()       {}
func (*UserPut) sealed()              {}
func (*UserRemoved) sealed()          {}
func (*AssociationPut) sealed()       {}
func (*AssociationRemoved) sealed()   {}
func (*WCKeyPut) sealed()             {}
func (*WCKeyRemoved) sealed()         {}
func (*ResourcePut) sealed()          {}
func (*ResourceRemoved) sealed()      {}
func (*ClusterPut) sealed()           {}
func (*ClusterRemoved) sealed()       {}
func (*UsageAged) sealed()            {}
func (*UsageCleared) sealed()         {}
func (*SharesNoted) sealed()          {}
func (*ReservationPut) sealed()       {}
func (*ReservationRemoved) sealed()   {}
func (*CrontabPut) sealed()           {}
func (*TriggerPut) sealed()           {}
func (*TriggerRemoved) sealed()       {}
func (*UserTokenIssued) sealed()      {}
func (*UserTokensEnded) sealed()      {}
func (*JobSubmitted) sealed()         {}
func (*JobEligible) sealed()          {}
func (*ReasonsChanged) sealed()       {}
func (*JobHeld) sealed()              {}
func (*JobReleased) sealed()          {}
func (*JobUpdated) sealed()           {}
func (*ArrayTaskSplit) sealed()       {}
func (*JobStarted) sealed()           {}
func (*JobEndRequested) sealed()      {}
func (*JobSignalled) sealed()         {}
func (*JobEnded) sealed()             {}
func (*JobNodeDone) sealed()          {}
func (*JobRequeued) sealed()          {}
func (*JobPurged) sealed()            {}
func (*StepStarted) sealed()          {}
func (*StepEnded) sealed()            {}
func (*StepNodeDone) sealed()         {}
func (*StepEndRequested) sealed()     {}
func (*StepSignalled) sealed()        {}
func (*StepUpdated) sealed()          {}
func (*JobShrunk) sealed()            {}
func (*JobsAccruing) sealed()         {}
func (*JobPrepared) sealed()          {}
func (*JobEpilogOver) sealed()        {}
func (*ImagePinned) sealed()          {}
func (*JobNoted) sealed()             {}
func (*JobPodsOver) sealed()          {}
func (*JobSuspended) sealed()         {}
func (*JobResumed) sealed()           {}
func (*JobReady) sealed()             {}
func (*NodeRegistered) sealed()       {}
func (*NodeStateSet) sealed()         {}
func (*NodeLost) sealed()             {}
func (*NodeReturned) sealed()         {}
func (*RunFenced) sealed()            {}
func (*FenceTried) sealed()           {}
func (*GPUFaulted) sealed()           {}
func (*NodePowered) sealed()          {}
func (*NodeReboot) sealed()           {}
func (*NodeAdded) sealed()            {}
func (*NodeDeleted) sealed()          {}
func (*PartitionPut) sealed()         {}
func (*NodeChanged) sealed()          {}
func (*PartitionAdded) sealed()       {}
func (*PartitionGone) sealed()        {}
func (*ForeignHoldTaken) sealed()     {}
func (*ForeignHoldReleased) sealed()  {}

// New returns an empty event of a kind, or nil for a kind of a newer release.
func New(k Kind) Event { return newEvent(k) }

// newEvent is New: one line for each kind.
//
//muster:table one line for each kind
func newEvent(kind Kind) Event {
	switch kind {
	case KindClusterCreated:
		return new(ClusterCreated)
	case KindClusterVersionRaised:
		return new(ClusterVersionRaised)
	case KindConfigAdopted:
		return new(ConfigAdopted)
	case KindTokenIssued:
		return new(TokenIssued)
	case KindCertificateIssued:
		return new(CertificateIssued)
	case KindCertificateRevoked:
		return new(CertificateRevoked)
	case KindTokenSpent:
		return new(TokenSpent)
	case KindCertificatesDropped:
		return new(CertificatesDropped)
	case KindEpochBegan:
		return new(EpochBegan)
	case KindHistoryLost:
		return new(HistoryLost)
	case KindQOSPut:
		return new(QOSPut)
	case KindQOSRemoved:
		return new(QOSRemoved)
	case KindAccountPut:
		return new(AccountPut)
	case KindAccountRemoved:
		return new(AccountRemoved)
	case KindUserPut:
		return new(UserPut)
	case KindUserRemoved:
		return new(UserRemoved)
	case KindAssociationPut:
		return new(AssociationPut)
	case KindAssociationRemoved:
		return new(AssociationRemoved)
	case KindWCKeyPut:
		return new(WCKeyPut)
	case KindWCKeyRemoved:
		return new(WCKeyRemoved)
	case KindResourcePut:
		return new(ResourcePut)
	case KindResourceRemoved:
		return new(ResourceRemoved)
	case KindClusterPut:
		return new(ClusterPut)
	case KindClusterRemoved:
		return new(ClusterRemoved)
	case KindUsageAged:
		return new(UsageAged)
	case KindUsageCleared:
		return new(UsageCleared)
	case KindSharesNoted:
		return new(SharesNoted)
	case KindReservationPut:
		return new(ReservationPut)
	case KindReservationRemoved:
		return new(ReservationRemoved)
	case KindCrontabPut:
		return new(CrontabPut)
	case KindTriggerPut:
		return new(TriggerPut)
	case KindTriggerRemoved:
		return new(TriggerRemoved)
	case KindUserTokenIssued:
		return new(UserTokenIssued)
	case KindUserTokensEnded:
		return new(UserTokensEnded)
	case KindJobSubmitted:
		return new(JobSubmitted)
	case KindJobEligible:
		return new(JobEligible)
	case KindReasonsChanged:
		return new(ReasonsChanged)
	case KindJobHeld:
		return new(JobHeld)
	case KindJobReleased:
		return new(JobReleased)
	case KindJobUpdated:
		return new(JobUpdated)
	case KindArrayTaskSplit:
		return new(ArrayTaskSplit)
	case KindJobStarted:
		return new(JobStarted)
	case KindJobEndRequested:
		return new(JobEndRequested)
	case KindJobSignalled:
		return new(JobSignalled)
	case KindJobEnded:
		return new(JobEnded)
	case KindJobNodeDone:
		return new(JobNodeDone)
	case KindJobRequeued:
		return new(JobRequeued)
	case KindJobPurged:
		return new(JobPurged)
	case KindStepStarted:
		return new(StepStarted)
	case KindStepEnded:
		return new(StepEnded)
	case KindStepNodeDone:
		return new(StepNodeDone)
	case KindStepEndRequested:
		return new(StepEndRequested)
	case KindStepSignalled:
		return new(StepSignalled)
	case KindStepUpdated:
		return new(StepUpdated)
	case KindJobShrunk:
		return new(JobShrunk)
	case KindJobsAccruing:
		return new(JobsAccruing)
	case KindJobPrepared:
		return new(JobPrepared)
	case KindJobEpilogOver:
		return new(JobEpilogOver)
	case KindImagePinned:
		return new(ImagePinned)
	case KindJobNoted:
		return new(JobNoted)
	case KindJobPodsOver:
		return new(JobPodsOver)
	case KindJobSuspended:
		return new(JobSuspended)
	case KindJobResumed:
		return new(JobResumed)
	case KindJobReady:
		return new(JobReady)
	case KindNodeRegistered:
		return new(NodeRegistered)
	case KindNodeStateSet:
		return new(NodeStateSet)
	case KindNodeLost:
		return new(NodeLost)
	case KindNodeReturned:
		return new(NodeReturned)
	case KindRunFenced:
		return new(RunFenced)
	case KindFenceTried:
		return new(FenceTried)
	case KindGPUFaulted:
		return new(GPUFaulted)
	case KindNodePowered:
		return new(NodePowered)
	case KindNodeReboot:
		return new(NodeReboot)
	case KindNodeAdded:
		return new(NodeAdded)
	case KindNodeDeleted:
		return new(NodeDeleted)
	case KindPartitionPut:
		return new(PartitionPut)
	case KindNodeChanged:
		return new(NodeChanged)
	case KindPartitionAdded:
		return new(PartitionAdded)
	case KindPartitionGone:
		return new(PartitionGone)
	case KindForeignHoldTaken:
		return new(ForeignHoldTaken)
	case KindForeignHoldReleased:
		return new(ForeignHoldReleased)
	}
	return nil
}

// Kinds lists every kind of this release in order.
//
//muster:table one line for each kind
func Kinds() []Kind {
	return []Kind{
		KindClusterCreated,
		KindClusterVersionRaised,
		KindConfigAdopted,
		KindTokenIssued,
		KindCertificateIssued,
		KindCertificateRevoked,
		KindTokenSpent,
		KindCertificatesDropped,
		KindEpochBegan,
		KindHistoryLost,
		KindQOSPut,
		KindQOSRemoved,
		KindAccountPut,
		KindAccountRemoved,
		KindUserPut,
		KindUserRemoved,
		KindAssociationPut,
		KindAssociationRemoved,
		KindWCKeyPut,
		KindWCKeyRemoved,
		KindResourcePut,
		KindResourceRemoved,
		KindClusterPut,
		KindClusterRemoved,
		KindUsageAged,
		KindUsageCleared,
		KindSharesNoted,
		KindReservationPut,
		KindReservationRemoved,
		KindCrontabPut,
		KindTriggerPut,
		KindTriggerRemoved,
		KindUserTokenIssued,
		KindUserTokensEnded,
		KindJobSubmitted,
		KindJobEligible,
		KindReasonsChanged,
		KindJobHeld,
		KindJobReleased,
		KindJobUpdated,
		KindArrayTaskSplit,
		KindJobStarted,
		KindJobEndRequested,
		KindJobSignalled,
		KindJobEnded,
		KindJobNodeDone,
		KindJobRequeued,
		KindJobPurged,
		KindStepStarted,
		KindStepEnded,
		KindStepNodeDone,
		KindStepEndRequested,
		KindStepSignalled,
		KindStepUpdated,
		KindJobShrunk,
		KindJobsAccruing,
		KindJobPrepared,
		KindJobEpilogOver,
		KindImagePinned,
		KindJobNoted,
		KindJobPodsOver,
		KindJobSuspended,
		KindJobResumed,
		KindJobReady,
		KindNodeRegistered,
		KindNodeStateSet,
		KindNodeLost,
		KindNodeReturned,
		KindRunFenced,
		KindFenceTried,
		KindGPUFaulted,
		KindNodePowered,
		KindNodeReboot,
		KindNodeAdded,
		KindNodeDeleted,
		KindPartitionPut,
		KindNodeChanged,
		KindPartitionAdded,
		KindPartitionGone,
		KindForeignHoldTaken,
		KindForeignHoldReleased,
	}
}

// String gives the name of the kind.
//
//muster:table one line for each kind
func (k Kind) String() string {
	switch k {
	case KindClusterCreated:
		return "ClusterCreated"
	case KindClusterVersionRaised:
		return "ClusterVersionRaised"
	case KindConfigAdopted:
		return "ConfigAdopted"
	case KindTokenIssued:
		return "TokenIssued"
	case KindCertificateIssued:
		return "CertificateIssued"
	case KindCertificateRevoked:
		return "CertificateRevoked"
	case KindTokenSpent:
		return "TokenSpent"
	case KindCertificatesDropped:
		return "CertificatesDropped"
	case KindEpochBegan:
		return "EpochBegan"
	case KindHistoryLost:
		return "HistoryLost"
	case KindQOSPut:
		return "QOSPut"
	case KindQOSRemoved:
		return "QOSRemoved"
	case KindAccountPut:
		return "AccountPut"
	case KindAccountRemoved:
		return "AccountRemoved"
	case KindUserPut:
		return "UserPut"
	case KindUserRemoved:
		return "UserRemoved"
	case KindAssociationPut:
		return "AssociationPut"
	case KindAssociationRemoved:
		return "AssociationRemoved"
	case KindWCKeyPut:
		return "WCKeyPut"
	case KindWCKeyRemoved:
		return "WCKeyRemoved"
	case KindResourcePut:
		return "ResourcePut"
	case KindResourceRemoved:
		return "ResourceRemoved"
	case KindClusterPut:
		return "ClusterPut"
	case KindClusterRemoved:
		return "ClusterRemoved"
	case KindUsageAged:
		return "UsageAged"
	case KindUsageCleared:
		return "UsageCleared"
	case KindSharesNoted:
		return "SharesNoted"
	case KindReservationPut:
		return "ReservationPut"
	case KindReservationRemoved:
		return "ReservationRemoved"
	case KindCrontabPut:
		return "CrontabPut"
	case KindTriggerPut:
		return "TriggerPut"
	case KindTriggerRemoved:
		return "TriggerRemoved"
	case KindUserTokenIssued:
		return "UserTokenIssued"
	case KindUserTokensEnded:
		return "UserTokensEnded"
	case KindJobSubmitted:
		return "JobSubmitted"
	case KindJobEligible:
		return "JobEligible"
	case KindReasonsChanged:
		return "ReasonsChanged"
	case KindJobHeld:
		return "JobHeld"
	case KindJobReleased:
		return "JobReleased"
	case KindJobUpdated:
		return "JobUpdated"
	case KindArrayTaskSplit:
		return "ArrayTaskSplit"
	case KindJobStarted:
		return "JobStarted"
	case KindJobEndRequested:
		return "JobEndRequested"
	case KindJobSignalled:
		return "JobSignalled"
	case KindJobEnded:
		return "JobEnded"
	case KindJobNodeDone:
		return "JobNodeDone"
	case KindJobRequeued:
		return "JobRequeued"
	case KindJobPurged:
		return "JobPurged"
	case KindStepStarted:
		return "StepStarted"
	case KindStepEnded:
		return "StepEnded"
	case KindStepNodeDone:
		return "StepNodeDone"
	case KindStepEndRequested:
		return "StepEndRequested"
	case KindStepSignalled:
		return "StepSignalled"
	case KindStepUpdated:
		return "StepUpdated"
	case KindJobShrunk:
		return "JobShrunk"
	case KindJobsAccruing:
		return "JobsAccruing"
	case KindJobPrepared:
		return "JobPrepared"
	case KindJobEpilogOver:
		return "JobEpilogOver"
	case KindImagePinned:
		return "ImagePinned"
	case KindJobNoted:
		return "JobNoted"
	case KindJobPodsOver:
		return "JobPodsOver"
	case KindJobSuspended:
		return "JobSuspended"
	case KindJobResumed:
		return "JobResumed"
	case KindJobReady:
		return "JobReady"
	case KindNodeRegistered:
		return "NodeRegistered"
	case KindNodeStateSet:
		return "NodeStateSet"
	case KindNodeLost:
		return "NodeLost"
	case KindNodeReturned:
		return "NodeReturned"
	case KindRunFenced:
		return "RunFenced"
	case KindFenceTried:
		return "FenceTried"
	case KindGPUFaulted:
		return "GPUFaulted"
	case KindNodePowered:
		return "NodePowered"
	case KindNodeReboot:
		return "NodeReboot"
	case KindNodeAdded:
		return "NodeAdded"
	case KindNodeDeleted:
		return "NodeDeleted"
	case KindPartitionPut:
		return "PartitionPut"
	case KindNodeChanged:
		return "NodeChanged"
	case KindPartitionAdded:
		return "PartitionAdded"
	case KindPartitionGone:
		return "PartitionGone"
	case KindForeignHoldTaken:
		return "ForeignHoldTaken"
	case KindForeignHoldReleased:
		return "ForeignHoldReleased"
	}
	return "unknown"
}

// Since is the vocabulary version that a kind came with. A kind that is not here is as old as
// the vocabulary.
func (k Kind) Since() uint32 {
	switch k {
	case KindJobNoted, KindJobPodsOver, KindClusterPut, KindClusterRemoved:
		return 2
	}
	return 1
}
