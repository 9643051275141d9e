package spec

// ReasonDoc says when a reason is given, or why it never is.
type ReasonDoc struct {
	Code  ReasonCode
	Given bool
	Text  string
}

// ReasonDocs describes every reason of Slurm, in its order, and then Muster's own.
func ReasonDocs() []ReasonDoc {
	codes := append(ReasonCodes(), ReasonUnknownExit, ReasonFencingWait)
	docs := make([]ReasonDoc, len(codes))
	for i, c := range codes {
		docs[i] = ReasonDoc{Code: c}
	}
	tell := func(doc ReasonDoc) {
		for i := range docs {
			if docs[i].Code == doc.Code && !docs[i].Given {
				docs[i] = doc
			}
		}
	}
	for _, scope := range LimitScopes() {
		for _, tres := range [...]string{"energy", "bb/NAME", "fs/NAME", "cpu", "mem", "node", "gres/NAME", "license/NAME", "billing"} {
			given, text := true, "starting the job would exceed "+scopeField(scope)+" for "+tres
			switch {
			case scope == ScopeQOSMin:
				text = "the job requests less than " + scopeField(scope) + " for " + tres
			case scope == ScopeQOSMaxMinutesPerJob || scope == ScopeAssocMaxMinutes:
				text = "the job's time limit would exceed " + scopeField(scope) + " for " + tres
			}
			switch tres {
			case "energy", "fs/NAME":
				given, text = false, "jobs cannot request "+tres+", and limits of it delay no job"
			case "bb/NAME":
				given, text = false, "Muster has no burst buffers"
			}
			tell(ReasonDoc{LimitReason(scope, tres), given, text})
		}
	}
	for _, doc := range plainReasons() {
		tell(doc)
	}
	return docs
}

// scopeField is the field of a QOS or an association that a family of reasons
// is about.
func scopeField(scope LimitScope) string {
	switch scope {
	case ScopeQOSGrp:
		return "GrpTRES of the QOS"
	case ScopeQOSGrpMinutes:
		return "GrpTRESMins of the QOS"
	case ScopeQOSGrpRunMinutes:
		return "GrpTRESRunMins of the QOS"
	case ScopeQOSMaxPerJob:
		return "MaxTRESPerJob of the QOS"
	case ScopeQOSMaxPerNode:
		return "MaxTRESPerNode of the QOS"
	case ScopeQOSMaxPerUser:
		return "MaxTRESPerUser of the QOS"
	case ScopeQOSMaxMinutesPerJob:
		return "MaxTRESMinsPerJob of the QOS"
	case ScopeMaxPerAccount:
		return "MaxTRESPerAccount of the QOS"
	case ScopeMaxRunMinsPerAcct:
		return "MaxTRESRunMinsPerAccount of the QOS"
	case ScopeMaxRunMinsPerUser:
		return "MaxTRESRunMinsPerUser of the QOS"
	case ScopeQOSMin:
		return "MinTRESPerJob of the QOS"
	case ScopeAssocGrp:
		return "GrpTRES of an association"
	case ScopeAssocGrpMinutes:
		return "GrpTRESMins of an association"
	case ScopeAssocGrpRunMinutes:
		return "GrpTRESRunMins of an association"
	case ScopeAssocMaxPerJob:
		return "MaxTRESPerJob of an association"
	case ScopeAssocMaxPerNode:
		return "MaxTRESPerNode of an association"
	}
	return "MaxTRESMinsPerJob of an association"
}

// plainReasons are the reasons that no limit of a TRES gives.
//
//muster:table one row for each reason
func plainReasons() []ReasonDoc {
	const (
		old   = "superseded in Slurm by a reason for each limit, which is given instead"
		burst = "Muster has no burst buffers"
	)
	return []ReasonDoc{
		{ReasonNone, true, "no scheduling pass has considered the job yet, or it is running"},
		{ReasonProlog, true, "PrologSlurmctld or a Prolog is running"},
		{ReasonPriority, true, "jobs of higher priority are waiting, or its priority is below MinPrioThreshold"},
		{ReasonDependency, true, "a condition of --dependency is not satisfied yet"},
		{ReasonResources, true, "the job is next, but the resources it requests are in use"},
		{ReasonPartitionNodeLimit, true, "the number of nodes is outside the limits of the partition"},
		{ReasonPartitionTimeLimit, true, "the time limit exceeds that of the partition"},
		{ReasonPartitionDown, true, "the partition is down or was deleted"},
		{ReasonPartitionInactive, true, "the partition is inactive"},
		{ReasonHeldAdmin, true, "held by an operator"},
		{ReasonHeldUser, true, "held by its owner"},
		{"NvidiaImexChannels", false, "IMEX channels are not counted"},
		{ReasonBeginTime, true, "the time of --begin has not come, or the job was requeued a moment ago"},
		{ReasonLicenses, true, "not enough licences are free"},
		{"AssociationJobLimit", false, old}, {"AssociationResourceLimit", false, old}, {"AssociationTimeLimit", false, old},
		{"QOSJobLimit", false, old}, {"QOSResourceLimit", false, old}, {"QOSTimeLimit", false, old}, {"AccountingPolicy", false, old},
		{ReasonReservation, true, "the reservation has not started"},
		{"ReservationDeleted", true, "the reservation was deleted"},
		{"ReservationInvalid", true, "the job no longer fits into its reservation"},
		{ReasonReqNodeNotAvail, true, "required nodes are out of service or reserved for others"},
		{"SchedDefer", false, "scheduling cannot be deferred"},
		{ReasonNodeDown, true, "terminated because a node was lost"},
		{ReasonBadConstraints, true, "no node has the requested features or names"},
		{"Constraints", false, "ReqNodeNotAvail or BadConstraints says which of the two it is"},
		{ReasonSystemFailure, false, "the cause is given instead: JobLaunchFailure, NodeDown, OutOfMemory and so on"},
		{ReasonLaunchFailure, true, "the job could not be launched"},
		{ReasonNonZeroExit, true, "the job exited with a nonzero code"},
		{ReasonRaisedSignal, true, "the job was terminated by a signal"},
		{ReasonTimeLimit, true, "the job reached its time limit"},
		{"InactiveLimit", false, "jobs are not terminated for being inactive"},
		{ReasonInvalidAccount, true, "the association was deleted"},
		{ReasonInvalidQOS, true, "the QOS was deleted, or the user may no longer use it"},
		{ReasonQOSUsageThreshold, true, "the fair-share factor is below the UsageThreshold of the QOS"},
		{ReasonCleaning, true, "the previous attempt has not ended on all nodes"},
		{ReasonQOSNotAllowed, true, "the partition does not allow the QOS"},
		{ReasonAccountNotAllowed, true, "the partition does not allow the account"},
		{ReasonDependencyNever, true, "a condition of --dependency can never be satisfied"},
		{ReasonQOSGrpJobs, true, "GrpJobs of the QOS"}, {ReasonQOSGrpSubmit, true, "GrpSubmitJobs of the QOS; refused at submission"},
		{ReasonQOSGrpWall, true, "GrpWall of the QOS"}, {ReasonQOSMaxWall, true, "MaxWall of the QOS"}, {ReasonQOSMaxJobsUser, true, "MaxJobsPerUser of the QOS"},
		{ReasonQOSMaxSubmitUser, true, "MaxSubmitJobsPerUser of the QOS; refused at submission"},
		{ReasonAssocGrpJobs, true, "GrpJobs of an association"}, {ReasonAssocGrpSubmit, true, "GrpSubmitJobs of an association; refused at submission"},
		{ReasonAssocGrpWall, true, "GrpWall of an association"}, {ReasonAssocMaxJobs, true, "MaxJobs of an association"},
		{ReasonAssocMaxWall, true, "MaxWall of an association"}, {ReasonAssocMaxSubmit, true, "MaxSubmitJobs of an association; refused at submission"},
		{ReasonMaxJobsAccount, true, "MaxJobsPerAccount of the QOS"}, {ReasonMaxSubmitAccount, true, "MaxSubmitJobsPerAccount of the QOS; refused at submission"},
		{ReasonHoldMaxRequeue, true, "held after MaxBatchRequeue requeues"},
		{ReasonArrayTaskLimit, true, "the array has reached its limit of running tasks (--array=…%N)"},
		{"BurstBufferResources", false, burst}, {"BurstBufferStageIn", false, burst}, {"BurstBufferOperation", false, burst},
		{ReasonDeadLine, true, "the job cannot end before its --deadline"},
		{ReasonPartitionConfig, true, "no set of nodes in the partition can satisfy the request"},
		{"FedJobLock", false, "Muster has no federation"},
		{ReasonOutOfMemory, true, "the job exceeded its memory limit"},
		{"MaxMemPerLimit", true, "the request exceeds MaxMemPerCPU or MaxMemPerNode"},
		{"MaxPoweredUpNodes", true, "powering up nodes for the job would exceed max_powered_nodes"},
		{"MpiPortsBusy", false, "Muster does not reserve ports for MPI"},
		{ReasonUnknownExit, true, "Muster's own: how the job ended was not observed"},
		{ReasonFencingWait, true, "Muster's own: an earlier run of the job may still live on a node that does not respond; see operations/dead-node.md"},
	}
}
