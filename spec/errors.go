package spec

import "errors"

// Code is the number of a refusal. The numbers below 10000 are the ones that
// Slurm's clients and its REST interface use; Muster's own start at 10000.
// They cross the wire and never change.
type Code int32

// Slurm's codes.
const (
	CodeInvalidPartition           Code = 2000
	CodeNoPartition                Code = 2001
	CodeAccessDenied               Code = 2002
	CodeGroupNotPermitted          Code = 2003
	CodeNodesNotInPartition        Code = 2004
	CodeTooManyCPUs                Code = 2005
	CodeNodeCountInvalid           Code = 2006
	CodeNoScript                   Code = 2009
	CodeInvalidUser                Code = 2010
	CodeNodeConfigUnavailable      Code = 2014
	CodePartitionConfigUnavailable Code = 2015
	CodeNodesBusy                  Code = 2016
	CodeInvalidJobID               Code = 2017
	CodeInvalidNodeName            Code = 2018
	CodeJobNotAlterable            Code = 2020
	CodeAlreadyDone                Code = 2021
	CodeBadDistribution            Code = 2023
	CodeJobPending                 Code = 2024
	CodeTaskCountInvalid           Code = 2025
	CodeInvalidNodeState           Code = 2028
	CodeInvalidFeature             Code = 2029
	CodeDependencyProblem          Code = 2038
	CodeOnlyBatch                  Code = 2039
	CodeJobHeld                    Code = 2042
	CodeMemoryUnavailable          Code = 2044
	CodeInvalidAccount             Code = 2045
	CodeInvalidLicense             Code = 2048
	CodePolicyViolation            Code = 2050
	CodeInvalidTimeLimit           Code = 2051
	CodeReservationDenied          Code = 2052
	CodeInvalidReservation         Code = 2053
	CodeInvalidTime                Code = 2054
	CodeReservationInUse           Code = 2055
	CodeReservationNotUsable       Code = 2056
	CodeInvalidWCKey               Code = 2057
	CodeReservationOverlap         Code = 2058
	CodePortsInUse                 Code = 2059
	CodePrologRunning              Code = 2061
	CodeInvalidQOS                 Code = 2066
	CodePreemptionLoop             Code = 2067
	CodeNodeNotAvailable           Code = 2068
	CodeCPUCountInvalid            Code = 2069
	CodePartitionUnavailable       Code = 2070
	CodeCircularDependency         Code = 2071
	CodeInvalidGRES                Code = 2072
	CodeJobNotPending              Code = 2073
	CodeUsageThreshold             Code = 2074
	CodePartitionInUse             Code = 2075
	CodeStepLimit                  Code = 2076
	CodeJobSuspended               Code = 2077
	CodeCannotStartNow             Code = 2078
	CodeReservationEmpty           Code = 2080
	CodeInvalidArray               Code = 2081
	CodeReservationExists          Code = 2082
	CodeJobStarted                 Code = 2083
	CodeJobFinished                Code = 2084
	CodeJobNotRunning              Code = 2085
	CodeJobNotActive               Code = 2086
	CodeJobNotSuspended            Code = 2087
	CodeJobNotFinished             Code = 2088
	CodeDisabled                   Code = 2037
	CodeDatabaseUnreachable        Code = 7000
	CodeDefaultAccount             Code = 7009
	CodeQueryInvalid               Code = 9000
	CodeNotWholeHetJob             Code = 2108
	CodeParseFailure               Code = 9001
	CodeNothingFound               Code = 9003
	CodeBadCredential              Code = 6000
	CodeUnreachable                Code = 1800
	CodeBackoff                    Code = 1804
	CodeSocketTimeout              Code = 5004
	CodeAuthFailure                Code = 1007
)

// Muster's own codes.
const (
	CodeDiskReserve  Code = 10001 // submissions stopped to keep room for ends and cancels
	CodeNotLeader    Code = 10002
	CodeTooManyJobs  Code = 10003 // MaxJobCount reached
	CodeBadRequest   Code = 10004
	CodeNodeMismatch Code = 10005 // an agent's inventory does not fit the configuration
	CodeStale        Code = 10006 // a report or proposal about an attempt that is no longer current
	CodeStopping     Code = 10007
	CodeNewerLedger  Code = 10008
	// CodeOutcomeUnknown tells that the controller stopped leading, or ended, before it
	// knew whether what was asked for is recorded.
	CodeOutcomeUnknown Code = 10009
	// CodeJobScript tells that the site's job_submit.lua refused a job, or failed on it.
	CodeJobScript Code = 10010
	// CodeLedgerVersion tells that what was asked for would write what some controllers
	// of the group cannot read yet.
	CodeLedgerVersion Code = 10011
)

var codeTexts = map[Code]string{
	CodeInvalidPartition:           "Invalid partition name specified",
	CodeNoPartition:                "No partition specified or system default partition",
	CodeAccessDenied:               "Access/permission denied",
	CodeGroupNotPermitted:          "User's group not permitted to use this partition",
	CodeNodesNotInPartition:        "Requested nodes not in this partition",
	CodeTooManyCPUs:                "More processors requested than permitted",
	CodeNodeCountInvalid:           "Node count specification invalid",
	CodeNoScript:                   "Job script not specified",
	CodeInvalidUser:                "Invalid user id",
	CodeNodeConfigUnavailable:      "Requested node configuration is not available",
	CodePartitionConfigUnavailable: "Requested partition configuration not available now",
	CodeNodesBusy:                  "Requested nodes are busy",
	CodeInvalidJobID:               "Invalid job id specified",
	CodeInvalidNodeName:            "Invalid node name specified",
	CodeJobNotAlterable:            "Job can not be altered now, try again later",
	CodeAlreadyDone:                "Job/step already completing or completed",
	CodeBadDistribution:            "Task distribution specification invalid",
	CodeJobPending:                 "Job is pending execution",
	CodeNotWholeHetJob:             "Operation not permitted on individual component of heterogeneous job",
	CodeTaskCountInvalid:           "Task count specification invalid",
	CodeInvalidNodeState:           "Invalid node state specified",
	CodeInvalidFeature:             "Invalid feature specification",
	CodeDependencyProblem:          "Job dependency problem",
	CodeOnlyBatch:                  "Only batch jobs are accepted or processed",
	CodeJobHeld:                    "Job is in held state, pending scheduler release",
	CodeMemoryUnavailable:          "Memory required by task is not available",
	CodeInvalidAccount:             "Invalid account or account/partition combination specified",
	CodeInvalidLicense:             "Invalid license specification",
	CodePolicyViolation:            "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
	CodeInvalidTimeLimit:           "Requested time limit is invalid (missing or exceeds some limit)",
	CodeReservationDenied:          "Access denied to requested reservation",
	CodeInvalidReservation:         "Requested reservation is invalid",
	CodeInvalidTime:                "Invalid time specified",
	CodeReservationInUse:           "Requested reservation is in use",
	CodeReservationNotUsable:       "Requested reservation not usable now",
	CodeInvalidWCKey:               "Invalid wckey specification",
	CodeReservationOverlap:         "Requested reservation overlaps with another reservation",
	CodePortsInUse:                 "Required ports are in use",
	CodePrologRunning:              "PrologSlurmctld is still running",
	CodeInvalidQOS:                 "Invalid qos specification",
	CodePreemptionLoop:             "QOS Preemption loop detected",
	CodeNodeNotAvailable:           "Required node not available (down, drained or reserved)",
	CodeCPUCountInvalid:            "CPU count specification invalid",
	CodePartitionUnavailable:       "Required partition not available (inactive or drain)",
	CodeCircularDependency:         "Circular job dependency",
	CodeInvalidGRES:                "Invalid generic resource (gres) specification",
	CodeJobNotPending:              "Job is no longer pending execution",
	CodeUsageThreshold:             "Requested account has breached requested QOS usage threshold",
	CodePartitionInUse:             "Partition is in use",
	CodeStepLimit:                  "Step limit reached for this job",
	CodeJobSuspended:               "Job is current suspended, requested operation disabled",
	CodeCannotStartNow:             "Job can not start immediately",
	CodeReservationEmpty:           "Reservation request lacks users, groups or accounts",
	CodeInvalidArray:               "Invalid job array specification",
	CodeReservationExists:          "Duplicate reservation name",
	CodeJobStarted:                 "Job has already started",
	CodeJobFinished:                "Job has already finished",
	CodeJobNotRunning:              "Job is not running",
	CodeJobNotActive:               "Job is not pending nor running",
	CodeJobNotSuspended:            "Job is not suspended",
	CodeJobNotFinished:             "Job is not finished",
	CodeDisabled:                   "Requested operation is presently disabled",
	CodeDatabaseUnreachable:        "Unable to connect to database",
	CodeDefaultAccount:             "You can not remove the default account of a user",
	CodeQueryInvalid:               "Query empty or not RFC7320 compliant",
	CodeParseFailure:               "Failure during parsing",
	CodeNothingFound:               "Nothing found with query",
	CodeBadCredential:              "Invalid authentication credential",
	CodeBackoff:                    "Rate limit exceeded, please retry momentarily",
	CodeUnreachable:                "Unable to contact slurm controller (connect failure)",
	CodeSocketTimeout:              "Socket timed out on send/recv operation",
	CodeAuthFailure:                "Protocol authentication error",
	CodeDiskReserve:                "The ledger's disk is almost full: submissions are refused until there is room",
	CodeNotLeader:                  "This controller is not the leader",
	CodeTooManyJobs:                "Maximum number of jobs reached (MaxJobCount)",
	CodeBadRequest:                 "The request is not valid",
	CodeNodeMismatch:               "The node's inventory does not fit its configuration",
	CodeStale:                      "The attempt is no longer current",
	CodeStopping:                   "The controller is shutting down",
	CodeNewerLedger:                "The ledger was written by a newer release",
	CodeJobScript:                  "The site's job_submit.lua refuses it",
	CodeLedgerVersion:              "The controllers do not all know this yet: muster upgrade --plan says what to do",
	CodeOutcomeUnknown:             "The controller was lost before it knew whether this was recorded",
}

// String gives the text that Slurm's tools print for the code.
func (c Code) String() string {
	if t, ok := codeTexts[c]; ok {
		return t
	}
	return "Unspecified error"
}

// Known tells whether the code has a text of its own.
func (c Code) Known() bool { return codeTexts[c] != "" }

// Error is a refusal: a code, and what a person needs beyond its text.
type Error struct {
	Kind Code
	// Prefix is a line printed before the main one, as sbatch prints
	// "Memory specification can not be satisfied"; often empty.
	Prefix string
	// Detail says what exactly was wrong and what to do; often empty.
	Detail string
	// Reason carries the numbers, where a limit or the hardware refused.
	Reason *Reason
	// Unknown is the word that is not known, where one was refused.
	Unknown *Unknown
}

// Unknown is a word that is not known where it was typed.
type Unknown struct {
	Kind    string // option, condition or key
	Word    string // as it was typed
	Of      string // what has no such word: "a user"
	Nearest string // what was probably meant; empty = nothing is near
}

// String names the word, and what was probably meant.
func (u *Unknown) String() string {
	text := "unknown " + u.Kind + " " + u.Word + " of " + u.Of
	if u.Nearest != "" {
		text += " (did you mean " + u.Nearest + "?)"
	}
	return text
}

// RefuseUnknown refuses a request for a word that is not known.
func RefuseUnknown(unknown Unknown) *Error {
	return &Error{Kind: CodeBadRequest, Detail: unknown.String(), Unknown: &unknown}
}

// Refuse makes an Error of a code.
func Refuse(code Code, detail string) *Error { return &Error{Kind: code, Detail: detail} }

// Error implements error: Slurm's text, then the detail.
func (e *Error) Error() string {
	if e.Detail == "" {
		return e.Kind.String()
	}
	return e.Kind.String() + ": " + e.Detail
}

// Code gives the number for the wire.
func (e *Error) Code() int32 { return int32(e.Kind) }

// Is lets errors.Is compare by code: errors.Is(err, &Error{Kind: CodeX}).
func (e *Error) Is(target error) bool {
	var t *Error
	return errors.As(target, &t) && t.Kind == e.Kind
}

// CodeOf finds the code in an error chain; 0 when there is none.
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return 0
}

// ErrBadTRES tells a TRES string that could not be read.
var ErrBadTRES = errors.New("invalid TRES specification")
