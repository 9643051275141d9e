package spec

import (
	"fmt"
	"strings"
)

// ReasonCode is why a job waits or ended, under Slurm's own name, as squeue
// prints it between parentheses.
type ReasonCode string

// The codes that this release sets. ReasonCodes has Slurm's whole list.
const (
	ReasonNone               ReasonCode = "None"
	ReasonPriority           ReasonCode = "Priority"
	ReasonResources          ReasonCode = "Resources"
	ReasonDependency         ReasonCode = "Dependency"
	ReasonDependencyNever    ReasonCode = "DependencyNeverSatisfied"
	ReasonBeginTime          ReasonCode = "BeginTime"
	ReasonHeldUser           ReasonCode = "JobHeldUser"
	ReasonHeldAdmin          ReasonCode = "JobHeldAdmin"
	ReasonHoldMaxRequeue     ReasonCode = "JobHoldMaxRequeue"
	ReasonArrayTaskLimit     ReasonCode = "JobArrayTaskLimit"
	ReasonLicenses           ReasonCode = "Licenses"
	ReasonReqNodeNotAvail    ReasonCode = "ReqNodeNotAvail"
	ReasonPartitionDown      ReasonCode = "PartitionDown"
	ReasonPartitionInactive  ReasonCode = "PartitionInactive"
	ReasonPartitionNodeLimit ReasonCode = "PartitionNodeLimit"
	ReasonPartitionTimeLimit ReasonCode = "PartitionTimeLimit"
	ReasonPartitionConfig    ReasonCode = "PartitionConfig"
	ReasonBadConstraints     ReasonCode = "BadConstraints"
	ReasonInvalidAccount     ReasonCode = "InvalidAccount"
	ReasonInvalidQOS         ReasonCode = "InvalidQOS"
	ReasonQOSNotAllowed      ReasonCode = "QOSNotAllowed"
	ReasonAccountNotAllowed  ReasonCode = "AccountNotAllowed"
	ReasonCleaning           ReasonCode = "Cleaning"
	ReasonProlog             ReasonCode = "Prolog" // PrologSlurmctld runs
	ReasonReservation        ReasonCode = "Reservation"
	ReasonDeadLine           ReasonCode = "DeadLine"
	// ReasonFencingWait is Muster's own: an earlier attempt may still live on a node
	// that nobody can ask.
	ReasonFencingWait ReasonCode = "FencingWait"

	ReasonNodeDown      ReasonCode = "NodeDown"
	ReasonNonZeroExit   ReasonCode = "NonZeroExitCode"
	ReasonRaisedSignal  ReasonCode = "RaisedSignal"
	ReasonTimeLimit     ReasonCode = "TimeLimit"
	ReasonOutOfMemory   ReasonCode = "OutOfMemory"
	ReasonLaunchFailure ReasonCode = "JobLaunchFailure"
	ReasonSystemFailure ReasonCode = "SystemFailure"
	ReasonUnknownExit   ReasonCode = "UnknownExit" // Muster's own: the exit was seen by nobody

	ReasonQOSUsageThreshold ReasonCode = "QOSUsageThreshold"

	ReasonQOSGrpJobs       ReasonCode = "QOSGrpJobsLimit"
	ReasonQOSGrpSubmit     ReasonCode = "QOSGrpSubmitJobsLimit"
	ReasonQOSGrpWall       ReasonCode = "QOSGrpWallLimit"
	ReasonQOSMaxJobsUser   ReasonCode = "QOSMaxJobsPerUserLimit"
	ReasonQOSMaxSubmitUser ReasonCode = "QOSMaxSubmitJobPerUserLimit"
	ReasonQOSMaxWall       ReasonCode = "QOSMaxWallDurationPerJobLimit"
	ReasonAssocGrpJobs     ReasonCode = "AssocGrpJobsLimit"
	ReasonAssocGrpSubmit   ReasonCode = "AssocGrpSubmitJobsLimit"
	ReasonAssocGrpWall     ReasonCode = "AssocGrpWallLimit"
	ReasonAssocMaxJobs     ReasonCode = "AssocMaxJobsLimit"
	ReasonAssocMaxSubmit   ReasonCode = "AssocMaxSubmitJobLimit"
	ReasonAssocMaxWall     ReasonCode = "AssocMaxWallDurationPerJobLimit"
	ReasonMaxJobsAccount   ReasonCode = "MaxJobsPerAccount"
	ReasonMaxSubmitAccount ReasonCode = "MaxSubmitJobsPerAccount"
)

// Reason is a code with its numbers, so that "why" is data and not prose.
// Fields that do not apply are zero.
type Reason struct {
	Code    ReasonCode `cbor:"1,keyasint"`
	TRES    string     `cbor:"2,keyasint,omitempty"` // which resource: gres/gpu
	Limit   int64      `cbor:"3,keyasint,omitempty"` // the limit or capacity
	Used    int64      `cbor:"4,keyasint,omitempty"` // in use now
	Asked   int64      `cbor:"5,keyasint,omitempty"` // what the job wants
	Subject string     `cbor:"6,keyasint,omitempty"` // whose limit: qos/normal, assoc/ml/alice, partition/gpu, node list
	Until   Instant    `cbor:"7,keyasint,omitempty"` // known end of the obstacle
	Blocker JobUID     `cbor:"8,keyasint,omitempty"` // the job in the way, where one is
	Detail  string     `cbor:"9,keyasint,omitempty"` // appended as Slurm does: UnavailableNodes:n1
}

// Same tells reasons that a user would read as the same, so that a change of
// numbers alone is no new fact for the ledger. That a job which waited for
// others asks for more than the whole limit is a new fact: it waits for ever.
func (r Reason) Same(s Reason) bool {
	sameText := r.Code == s.Code && r.TRES == s.TRES && r.Subject == s.Subject &&
		r.Detail == s.Detail
	return sameText && r.Limit == s.Limit && r.Hopeless() == s.Hopeless()
}

// Hopeless tells that the job alone exceeds the limit, so that no other job's
// end lets it start.
func (r Reason) Hopeless() bool {
	return r.Limit > 0 && r.Asked > r.Limit
}

// String prints the reason as squeue does between its parentheses.
func (r Reason) String() string {
	if r.Code == "" {
		return string(ReasonNone)
	}
	if r.Detail != "" {
		return fmt.Sprintf("%s, %s", r.Code, r.Detail)
	}
	return string(r.Code)
}

// LimitScope is a family of TRES limits; its reasons are named by pattern,
// %s being the resource.
type LimitScope string

// The families of Slurm's limit reasons.
const (
	ScopeQOSGrp              LimitScope = "QOSGrp%s"
	ScopeQOSGrpMinutes       LimitScope = "QOSGrp%sMinutes"
	ScopeQOSGrpRunMinutes    LimitScope = "QOSGrp%sRunMinutes"
	ScopeQOSMaxPerJob        LimitScope = "QOSMax%sPerJob"
	ScopeQOSMaxPerNode       LimitScope = "QOSMax%sPerNode"
	ScopeQOSMaxPerUser       LimitScope = "QOSMax%sPerUser"
	ScopeQOSMaxMinutesPerJob LimitScope = "QOSMax%sMinutesPerJob"
	ScopeMaxPerAccount       LimitScope = "Max%sPerAccount"
	ScopeMaxRunMinsPerAcct   LimitScope = "Max%sRunMinsPerAccount"
	ScopeMaxRunMinsPerUser   LimitScope = "Max%sRunMinsPerUser"
	ScopeQOSMin              LimitScope = "QOSMin%s"
	ScopeAssocGrp            LimitScope = "AssocGrp%s"
	ScopeAssocGrpMinutes     LimitScope = "AssocGrp%sMinutes"
	ScopeAssocGrpRunMinutes  LimitScope = "AssocGrp%sRunMinutes"
	ScopeAssocMaxPerJob      LimitScope = "AssocMax%sPerJob"
	ScopeAssocMaxPerNode     LimitScope = "AssocMax%sPerNode"
	ScopeAssocMaxMinutes     LimitScope = "AssocMax%sMinutesPerJob"
)

// LimitScopes lists every family.
func LimitScopes() []LimitScope {
	return []LimitScope{
		ScopeQOSGrp,
		ScopeQOSGrpMinutes,
		ScopeQOSGrpRunMinutes,
		ScopeQOSMaxPerJob,
		ScopeQOSMaxPerNode,
		ScopeQOSMaxPerUser,
		ScopeQOSMaxMinutesPerJob,
		ScopeMaxPerAccount,
		ScopeMaxRunMinsPerAcct,
		ScopeMaxRunMinsPerUser,
		ScopeQOSMin,
		ScopeAssocGrp,
		ScopeAssocGrpMinutes,
		ScopeAssocGrpRunMinutes,
		ScopeAssocMaxPerJob,
		ScopeAssocMaxPerNode,
		ScopeAssocMaxMinutes,
	}
}

// irregularLimitReasons are the names of Slurm that its own pattern does not
// give: the oldest limits end in Limit and spell CPU and Mem their own way.
var irregularLimitReasons = map[ReasonCode]ReasonCode{
	"QOSGrpCpu":             "QOSGrpCpuLimit",
	"QOSGrpMemory":          "QOSGrpMemLimit",
	"QOSGrpNode":            "QOSGrpNodeLimit",
	"QOSGrpCpuMinutes":      "QOSGrpCPUMinutesLimit",
	"QOSMaxCpuPerJob":       "QOSMaxCpuPerJobLimit",
	"QOSMaxNodePerJob":      "QOSMaxNodePerJobLimit",
	"QOSMaxCpuPerUser":      "QOSMaxCpuPerUserLimit",
	"QOSMaxNodePerUser":     "QOSMaxNodePerUserLimit",
	"QOSMinCpu":             "QOSMinCpuNotSatisfied",
	"AssocGrpCpu":           "AssocGrpCpuLimit",
	"AssocGrpMemory":        "AssocGrpMemLimit",
	"AssocGrpNode":          "AssocGrpNodeLimit",
	"AssocGrpCpuMinutes":    "AssocGrpCPUMinutesLimit",
	"AssocGrpMemoryMinutes": "AssocGrpMemMinutes",
	"AssocMaxCpuPerJob":     "AssocMaxCpuPerJobLimit",
	"AssocMaxNodePerJob":    "AssocMaxNodePerJobLimit",
	"AssocMaxMemoryPerJob":  "AssocMaxMemPerJob",
	"AssocMaxMemoryPerNode": "AssocMaxMemPerNode",

	"QOSGrpCpuRunMinutes":         "QOSGrpCPURunMinutesLimit",
	"QOSMaxCpuMinutesPerJob":      "QOSMaxCpuMinutesPerJobLimit",
	"AssocGrpCpuRunMinutes":       "AssocGrpCPURunMinutesLimit",
	"AssocGrpMemoryRunMinutes":    "AssocGrpMemRunMinutes",
	"AssocMaxCpuMinutesPerJob":    "AssocMaxCpuMinutesPerJobLimit",
	"AssocMaxMemoryMinutesPerJob": "AssocMaxMemMinutesPerJob",

	// Slurm has no name for these.
	"QOSMaxNodePerNode":      "QOSMaxUnknownPerNode",
	"QOSMaxLicensePerNode":   "QOSMaxUnknownPerNode",
	"QOSMaxBBMinutesPerJob":  "QOSMaxUnknownMinutesPerJob",
	"AssocMaxNodePerNode":    "AssocMaxUnknownPerNode",
	"AssocMaxLicensePerNode": "AssocMaxUnknownPerNode",
}

// LimitReason names the reason of a TRES limit as Slurm does:
// (ScopeQOSMaxPerUser, "gres/gpu") is QOSMaxGRESPerUser.
func LimitReason(scope LimitScope, tres string) ReasonCode {
	code := ReasonCode(strings.Replace(string(scope), "%s", tresFamily(tres), 1))
	if odd, ok := irregularLimitReasons[code]; ok {
		return odd
	}
	return code
}

func tresFamily(tres string) string {
	kind, _, _ := strings.Cut(tres, "/")
	switch kind {
	case "cpu":
		return "Cpu"
	case "mem":
		return "Memory"
	case "node":
		return "Node"
	case "energy":
		return "Energy"
	case "billing":
		return "Billing"
	case "gres":
		return "GRES"
	case "license":
		return "License"
	case "bb":
		return "BB"
	}
	return "Unknown"
}

// ShortOfGPUs begins the verdict on a node that found fewer GPUs than are configured,
// and for this has too few for a job.
const ShortOfGPUs = "state:short of GPUs"
