package event

// Kind and sealed for every event, and the table of kinds.

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

// kindRow is one kind of event: all that the package knows of it beside its type.
type kindRow struct {
	kind  Kind
	name  string
	since uint32 // the vocabulary version that it came with
	fresh func() Event
}

// kindTable has a row for each kind of this release, in the order of Kinds. A constant without a
// row fails a test, because nothing else would: its events could be written and not be read.
//
//muster:table one row for each kind
var kindTable = [...]kindRow{
	{KindClusterCreated, "ClusterCreated", 1, func() Event { return new(ClusterCreated) }},
	{KindClusterVersionRaised, "ClusterVersionRaised", 1, func() Event { return new(ClusterVersionRaised) }},
	{KindConfigAdopted, "ConfigAdopted", 1, func() Event { return new(ConfigAdopted) }},
	{KindTokenIssued, "TokenIssued", 1, func() Event { return new(TokenIssued) }},
	{KindCertificateIssued, "CertificateIssued", 1, func() Event { return new(CertificateIssued) }},
	{KindCertificateRevoked, "CertificateRevoked", 1, func() Event { return new(CertificateRevoked) }},
	{KindTokenSpent, "TokenSpent", 1, func() Event { return new(TokenSpent) }},
	{KindCertificatesDropped, "CertificatesDropped", 1, func() Event { return new(CertificatesDropped) }},
	{KindEpochBegan, "EpochBegan", 1, func() Event { return new(EpochBegan) }},
	{KindHistoryLost, "HistoryLost", 1, func() Event { return new(HistoryLost) }},
	{KindQOSPut, "QOSPut", 1, func() Event { return new(QOSPut) }},
	{KindQOSRemoved, "QOSRemoved", 1, func() Event { return new(QOSRemoved) }},
	{KindAccountPut, "AccountPut", 1, func() Event { return new(AccountPut) }},
	{KindAccountRemoved, "AccountRemoved", 1, func() Event { return new(AccountRemoved) }},
	{KindUserPut, "UserPut", 1, func() Event { return new(UserPut) }},
	{KindUserRemoved, "UserRemoved", 1, func() Event { return new(UserRemoved) }},
	{KindAssociationPut, "AssociationPut", 1, func() Event { return new(AssociationPut) }},
	{KindAssociationRemoved, "AssociationRemoved", 1, func() Event { return new(AssociationRemoved) }},
	{KindWCKeyPut, "WCKeyPut", 1, func() Event { return new(WCKeyPut) }},
	{KindWCKeyRemoved, "WCKeyRemoved", 1, func() Event { return new(WCKeyRemoved) }},
	{KindResourcePut, "ResourcePut", 1, func() Event { return new(ResourcePut) }},
	{KindResourceRemoved, "ResourceRemoved", 1, func() Event { return new(ResourceRemoved) }},
	{KindClusterPut, "ClusterPut", 2, func() Event { return new(ClusterPut) }},
	{KindClusterRemoved, "ClusterRemoved", 2, func() Event { return new(ClusterRemoved) }},
	{KindUsageAged, "UsageAged", 1, func() Event { return new(UsageAged) }},
	{KindUsageCleared, "UsageCleared", 1, func() Event { return new(UsageCleared) }},
	{KindSharesNoted, "SharesNoted", 1, func() Event { return new(SharesNoted) }},
	{KindReservationPut, "ReservationPut", 1, func() Event { return new(ReservationPut) }},
	{KindReservationRemoved, "ReservationRemoved", 1, func() Event { return new(ReservationRemoved) }},
	{KindCrontabPut, "CrontabPut", 1, func() Event { return new(CrontabPut) }},
	{KindTriggerPut, "TriggerPut", 1, func() Event { return new(TriggerPut) }},
	{KindTriggerRemoved, "TriggerRemoved", 1, func() Event { return new(TriggerRemoved) }},
	{KindUserTokenIssued, "UserTokenIssued", 1, func() Event { return new(UserTokenIssued) }},
	{KindUserTokensEnded, "UserTokensEnded", 1, func() Event { return new(UserTokensEnded) }},
	{KindJobSubmitted, "JobSubmitted", 1, func() Event { return new(JobSubmitted) }},
	{KindJobEligible, "JobEligible", 1, func() Event { return new(JobEligible) }},
	{KindReasonsChanged, "ReasonsChanged", 1, func() Event { return new(ReasonsChanged) }},
	{KindJobHeld, "JobHeld", 1, func() Event { return new(JobHeld) }},
	{KindJobReleased, "JobReleased", 1, func() Event { return new(JobReleased) }},
	{KindJobUpdated, "JobUpdated", 1, func() Event { return new(JobUpdated) }},
	{KindArrayTaskSplit, "ArrayTaskSplit", 1, func() Event { return new(ArrayTaskSplit) }},
	{KindJobStarted, "JobStarted", 1, func() Event { return new(JobStarted) }},
	{KindJobEndRequested, "JobEndRequested", 1, func() Event { return new(JobEndRequested) }},
	{KindJobSignalled, "JobSignalled", 1, func() Event { return new(JobSignalled) }},
	{KindJobEnded, "JobEnded", 1, func() Event { return new(JobEnded) }},
	{KindJobNodeDone, "JobNodeDone", 1, func() Event { return new(JobNodeDone) }},
	{KindJobRequeued, "JobRequeued", 1, func() Event { return new(JobRequeued) }},
	{KindJobPurged, "JobPurged", 1, func() Event { return new(JobPurged) }},
	{KindStepStarted, "StepStarted", 1, func() Event { return new(StepStarted) }},
	{KindStepEnded, "StepEnded", 1, func() Event { return new(StepEnded) }},
	{KindStepNodeDone, "StepNodeDone", 1, func() Event { return new(StepNodeDone) }},
	{KindStepEndRequested, "StepEndRequested", 1, func() Event { return new(StepEndRequested) }},
	{KindStepSignalled, "StepSignalled", 1, func() Event { return new(StepSignalled) }},
	{KindStepUpdated, "StepUpdated", 1, func() Event { return new(StepUpdated) }},
	{KindJobShrunk, "JobShrunk", 1, func() Event { return new(JobShrunk) }},
	{KindJobsAccruing, "JobsAccruing", 1, func() Event { return new(JobsAccruing) }},
	{KindJobPrepared, "JobPrepared", 1, func() Event { return new(JobPrepared) }},
	{KindJobEpilogOver, "JobEpilogOver", 1, func() Event { return new(JobEpilogOver) }},
	{KindImagePinned, "ImagePinned", 1, func() Event { return new(ImagePinned) }},
	{KindJobNoted, "JobNoted", 2, func() Event { return new(JobNoted) }},
	{KindJobPodsOver, "JobPodsOver", 2, func() Event { return new(JobPodsOver) }},
	{KindJobSuspended, "JobSuspended", 1, func() Event { return new(JobSuspended) }},
	{KindJobResumed, "JobResumed", 1, func() Event { return new(JobResumed) }},
	{KindJobReady, "JobReady", 1, func() Event { return new(JobReady) }},
	{KindNodeRegistered, "NodeRegistered", 1, func() Event { return new(NodeRegistered) }},
	{KindNodeStateSet, "NodeStateSet", 1, func() Event { return new(NodeStateSet) }},
	{KindNodeLost, "NodeLost", 1, func() Event { return new(NodeLost) }},
	{KindNodeReturned, "NodeReturned", 1, func() Event { return new(NodeReturned) }},
	{KindRunFenced, "RunFenced", 1, func() Event { return new(RunFenced) }},
	{KindFenceTried, "FenceTried", 1, func() Event { return new(FenceTried) }},
	{KindGPUFaulted, "GPUFaulted", 1, func() Event { return new(GPUFaulted) }},
	{KindNodePowered, "NodePowered", 1, func() Event { return new(NodePowered) }},
	{KindNodeReboot, "NodeReboot", 1, func() Event { return new(NodeReboot) }},
	{KindNodeAdded, "NodeAdded", 1, func() Event { return new(NodeAdded) }},
	{KindNodeDeleted, "NodeDeleted", 1, func() Event { return new(NodeDeleted) }},
	{KindPartitionPut, "PartitionPut", 1, func() Event { return new(PartitionPut) }},
	{KindNodeChanged, "NodeChanged", 1, func() Event { return new(NodeChanged) }},
	{KindPartitionAdded, "PartitionAdded", 1, func() Event { return new(PartitionAdded) }},
	{KindPartitionGone, "PartitionGone", 1, func() Event { return new(PartitionGone) }},
	{KindForeignHoldTaken, "ForeignHoldTaken", 1, func() Event { return new(ForeignHoldTaken) }},
	{KindForeignHoldReleased, "ForeignHoldReleased", 1, func() Event { return new(ForeignHoldReleased) }},
}

// rowByKind has the row of each kind at its number; decoding asks for each event.
var rowByKind = indexKinds()

func indexKinds() []*kindRow {
	var rows []*kindRow
	for i := range kindTable {
		row := &kindTable[i]
		for int(row.kind) >= len(rows) {
			rows = append(rows, nil)
		}
		rows[row.kind] = row
	}
	return rows
}

// rowOf is the row of a kind, or nil for a kind of a newer release.
func rowOf(kind Kind) *kindRow {
	if int(kind) >= len(rowByKind) {
		return nil
	}
	return rowByKind[kind]
}

// New returns an empty event of a kind, or nil for a kind of a newer release.
func New(kind Kind) Event {
	if row := rowOf(kind); row != nil {
		return row.fresh()
	}
	return nil
}

// Kinds lists every kind of this release in order.
func Kinds() []Kind {
	kinds := make([]Kind, len(kindTable))
	for i := range kindTable {
		kinds[i] = kindTable[i].kind
	}
	return kinds
}

// String gives the name of the kind.
func (k Kind) String() string {
	if row := rowOf(k); row != nil {
		return row.name
	}
	return "unknown"
}

// Since is the vocabulary version that a kind came with. A kind of a newer release is as old as
// the vocabulary: its number is refused before its version is asked for.
func (k Kind) Since() uint32 {
	if row := rowOf(k); row != nil {
		return row.since
	}
	return 1
}
