package spec

// ReasonDoc says when a reason is given, or why it never is.
type ReasonDoc struct {
	Code  ReasonCode
	Given bool
	Text  string
}

// ReasonDocs describes every reason of Slurm, in its order, and then Muster's own.
func ReasonDocs() []ReasonDoc {
	codes := append(ReasonCodes(), ReasonUnknownExit)
	out := make([]ReasonDoc, len(codes))
	for i, c := range codes {
		out[i] = ReasonDoc{Code: c}
	}
	tell := func(d ReasonDoc) {
		for i := range out {
			if out[i].Code == d.Code && !out[i].Given {
				out[i] = d
			}
		}
	}
	for _, scope := range LimitScopes() {
		for _, tres := range [...]string{"energy", "bb/NAME", "fs/NAME", "cpu", "mem", "node", "gres/NAME", "license/NAME", "billing"} {
			given, text := true, scopeField(scope)+" says less of "+tres+" than the job would hold"
			switch {
			case scope == ScopeQOSMin:
				text = scopeField(scope) + " says more of " + tres + " than the job asks for"
			case scope == ScopeQOSMaxMinutesPerJob || scope == ScopeAssocMaxMinutes:
				text = scopeField(scope) + " says fewer minutes of " + tres + " than the job's time limit allows it"
			}
			switch tres {
			case "energy", "fs/NAME":
				given, text = false, "no job asks for "+tres+", and no limit of it keeps one waiting"
			case "bb/NAME":
				given, text = false, "there are no burst buffers"
			}
			tell(ReasonDoc{LimitReason(scope, tres), given, text})
		}
	}
	for _, d := range plainReasons() {
		tell(d)
	}
	return out
}

// scopeField is the field of a QOS or an association that a family of reasons
// is about.
func scopeField(s LimitScope) string {
	switch s {
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
		old   = "a name from before Slurm named each limit: the limit itself is named here"
		burst = "there are no burst buffers"
	)
	return []ReasonDoc{
		{ReasonNone, true, "no pass has looked at the job yet, or it runs"},
		{ReasonProlog, true, "PrologSlurmctld or a Prolog runs"},
		{ReasonPriority, true, "jobs that come before it wait too, or its priority is below MinPrioThreshold"},
		{ReasonDependency, true, "a condition of --dependency is open"},
		{ReasonResources, true, "it is its turn, but what it needs is in use"},
		{ReasonPartitionNodeLimit, true, "more or fewer nodes than the partition gives a job"},
		{ReasonPartitionTimeLimit, true, "more time than the partition gives a job"},
		{ReasonPartitionDown, true, "its partition is down, or gone"},
		{ReasonPartitionInactive, true, "its partition is inactive"},
		{ReasonHeldAdmin, true, "held by an operator"},
		{ReasonHeldUser, true, "held by its owner"},
		{"NvidiaImexChannels", false, "IMEX channels are not counted"},
		{ReasonBeginTime, true, "--begin is still to come, or it was queued again a moment ago"},
		{ReasonLicenses, true, "a licence is used up, or its server has none left"},
		{"AssociationJobLimit", false, old}, {"AssociationResourceLimit", false, old}, {"AssociationTimeLimit", false, old},
		{"QOSJobLimit", false, old}, {"QOSResourceLimit", false, old}, {"QOSTimeLimit", false, old}, {"AccountingPolicy", false, old},
		{ReasonReservation, true, "its reservation has not begun"},
		{"ReservationDeleted", true, "its reservation is gone"},
		{"ReservationInvalid", true, "it does not fit into its reservation any more"},
		{ReasonReqNodeNotAvail, true, "nodes that it needs are out of service, or reserved for others"},
		{"SchedDefer", false, "no option puts scheduling off"},
		{ReasonNodeDown, true, "it ended since a node was lost"},
		{ReasonBadConstraints, true, "no node has the features, or the names, that it asks for"},
		{"Constraints", false, "ReqNodeNotAvail or BadConstraints says which of the two it is"},
		{ReasonSystemFailure, false, "a failure is named by its cause: JobLaunchFailure, NodeDown, OutOfMemory and so on"},
		{ReasonLaunchFailure, true, "it could not be started"},
		{ReasonNonZeroExit, true, "it ended with another exit code than 0"},
		{ReasonRaisedSignal, true, "a signal ended it"},
		{ReasonTimeLimit, true, "it ran into its time limit"},
		{"InactiveLimit", false, "no job ends for being idle"},
		{ReasonInvalidAccount, true, "its association is gone"},
		{ReasonInvalidQOS, true, "its QOS is gone, or its user may not use it any more"},
		{ReasonQOSUsageThreshold, true, "the fair share is below the UsageThreshold of its QOS"},
		{ReasonCleaning, true, "its attempt before has not ended on all nodes"},
		{ReasonQOSNotAllowed, true, "the partition does not take its QOS"},
		{ReasonAccountNotAllowed, true, "the partition does not take its account"},
		{ReasonDependencyNever, true, "a condition of --dependency can never come true"},
		{ReasonQOSGrpJobs, true, "GrpJobs of the QOS"}, {ReasonQOSGrpSubmit, true, "GrpSubmitJobs of the QOS; refused at submission"},
		{ReasonQOSGrpWall, true, "GrpWall of the QOS"}, {ReasonQOSMaxWall, true, "MaxWall of the QOS"}, {ReasonQOSMaxJobsUser, true, "MaxJobsPerUser of the QOS"},
		{ReasonQOSMaxSubmitUser, true, "MaxSubmitJobsPerUser of the QOS; refused at submission"},
		{ReasonAssocGrpJobs, true, "GrpJobs of an association"}, {ReasonAssocGrpSubmit, true, "GrpSubmitJobs of an association; refused at submission"},
		{ReasonAssocGrpWall, true, "GrpWall of an association"}, {ReasonAssocMaxJobs, true, "MaxJobs of an association"},
		{ReasonAssocMaxWall, true, "MaxWall of an association"}, {ReasonAssocMaxSubmit, true, "MaxSubmitJobs of an association; refused at submission"},
		{ReasonMaxJobsAccount, true, "MaxJobsPerAccount of the QOS"}, {ReasonMaxSubmitAccount, true, "MaxSubmitJobsPerAccount of the QOS; refused at submission"},
		{ReasonHoldMaxRequeue, true, "queued again MaxBatchRequeue times, and held"},
		{ReasonArrayTaskLimit, true, "as many tasks of its array run as --array=…%N lets"},
		{"BurstBufferResources", false, burst}, {"BurstBufferStageIn", false, burst}, {"BurstBufferOperation", false, burst},
		{ReasonDeadLine, true, "it cannot end before its --deadline"},
		{ReasonPartitionConfig, true, "no set of nodes of the partition can give what it asks for"},
		{"FedJobLock", false, "there are no federations"},
		{ReasonOutOfMemory, true, "it used more memory than it had"},
		{"MaxMemPerLimit", true, "more memory than MaxMemPerCPU or MaxMemPerNode"},
		{"MaxPoweredUpNodes", true, "more nodes would be powered up than max_powered_nodes"},
		{"MpiPortsBusy", false, "no ports are reserved for MPI"},
		{ReasonUnknownExit, true, "Muster's own: nobody saw how it ended"},
	}
}
