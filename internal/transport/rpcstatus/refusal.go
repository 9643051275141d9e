package rpcstatus

import (
	"errors"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/spec"
)

// Keys of the details that carry the parts of a spec.Error: its prefix line and its reason.
const (
	DetailPrefix        = "prefix"
	DetailReason        = "reason"
	DetailReasonTRES    = "reason.tres"
	DetailReasonLimit   = "reason.limit"
	DetailReasonUsed    = "reason.used"
	DetailReasonAsked   = "reason.asked"
	DetailReasonSubject = "reason.subject"
	DetailReasonUntil   = "reason.until" // nanoseconds since 1970
	DetailReasonBlocker = "reason.blocker"
	DetailReasonText    = "reason.detail"
	DetailUnknown       = "unknown" // the word that is not known
	DetailUnknownKind   = "unknown.kind"
	DetailUnknownOf     = "unknown.of"
	DetailUnknownNear   = "unknown.nearest"
)

// Numbers returns the table for spec's codes. A number that is not in it is FailedPrecondition,
// as most refusals are: nothing is wrong with the connection or the form of the request, and
// asking again changes nothing.
func Numbers() Table {
	one := func(c spec.Code, w Code) Range { return Range{int32(c), int32(c), w} }
	return Table{
		one(spec.CodeAccessDenied, PermissionDenied),
		one(spec.CodeGroupNotPermitted, PermissionDenied),
		one(spec.CodeReservationDenied, PermissionDenied),
		one(spec.CodeInvalidUser, PermissionDenied),
		one(spec.CodeBadCredential, Unauthenticated),
		one(spec.CodeAuthFailure, Unauthenticated),
		one(spec.CodeInvalidJobID, NotFound),
		one(spec.CodeInvalidNodeName, NotFound),
		one(spec.CodeInvalidPartition, NotFound),
		one(spec.CodeInvalidReservation, NotFound),
		one(spec.CodeNothingFound, NotFound),
		one(spec.CodeReservationExists, AlreadyExists),
		one(spec.CodeNoScript, InvalidArgument),
		one(spec.CodeInvalidArray, InvalidArgument),
		one(spec.CodeInvalidTime, InvalidArgument),
		one(spec.CodeInvalidFeature, InvalidArgument),
		one(spec.CodeInvalidGRES, InvalidArgument),
		one(spec.CodeNodeCountInvalid, InvalidArgument),
		one(spec.CodeTaskCountInvalid, InvalidArgument),
		one(spec.CodeCPUCountInvalid, InvalidArgument),
		one(spec.CodeQueryInvalid, InvalidArgument),
		one(spec.CodeParseFailure, InvalidArgument),
		one(spec.CodeBadRequest, InvalidArgument),
		one(spec.CodeUnreachable, Unavailable),
		one(spec.CodeDatabaseUnreachable, Unavailable),
		one(spec.CodeNotLeader, Unavailable),
		one(spec.CodeStopping, Unavailable),
		one(spec.CodeOutcomeUnknown, Unavailable),
		one(spec.CodeSocketTimeout, DeadlineExceeded),
		one(spec.CodeDiskReserve, ResourceExhausted),
		one(spec.CodeTooManyJobs, ResourceExhausted),
		one(spec.CodeBackoff, ResourceExhausted),
		one(spec.CodeStale, Aborted),
	}
}

// readRefusal reads what spec.Error knows beyond its number; details come out sorted by key.
func (e *Error) readRefusal(err error) {
	var r *spec.Error
	if !errors.As(err, &r) {
		return
	}
	e.Slurm = r.Kind.String()
	text := func(key, value string) {
		if value != "" {
			e.Details = append(e.Details, Detail{key, value})
		}
	}
	number := func(key string, n int64) {
		if n != 0 {
			text(key, strconv.FormatInt(n, 10))
		}
	}
	text(DetailPrefix, r.Prefix)
	if reason := r.Reason; reason != nil {
		text(DetailReason, string(reason.Code))
		number(DetailReasonAsked, reason.Asked)
		if reason.Blocker != 0 {
			text(DetailReasonBlocker, strconv.FormatUint(uint64(reason.Blocker), 10))
		}
		text(DetailReasonText, reason.Detail)
		number(DetailReasonLimit, reason.Limit)
		text(DetailReasonSubject, reason.Subject)
		text(DetailReasonTRES, reason.TRES)
		number(DetailReasonUntil, int64(reason.Until))
		number(DetailReasonUsed, reason.Used)
	}
	if unknown := r.Unknown; unknown != nil {
		text(DetailUnknown, unknown.Word)
		text(DetailUnknownKind, unknown.Kind)
		text(DetailUnknownNear, unknown.Nearest)
		text(DetailUnknownOf, unknown.Of)
	}
}

// Refusal gives back the spec.Error that an error from the wire stands for, so that a tool
// treats a refusal the same whether it was made here or there; nil where the error carries no
// number.
func (e *Error) Refusal() *spec.Error {
	if e.Number == 0 {
		return nil
	}
	r := &spec.Error{Kind: spec.Code(e.Number), Detail: e.Message}
	if rest, ok := strings.CutPrefix(e.Message, r.Kind.String()); ok &&
		(rest == "" || strings.HasPrefix(rest, ": ")) {
		r.Detail = strings.TrimPrefix(rest, ": ")
	}
	r.Prefix, _ = e.Detail(DetailPrefix)
	if code, ok := e.Detail(DetailReason); ok {
		r.Reason = e.reason(spec.ReasonCode(code))
	}
	if word, ok := e.Detail(DetailUnknown); ok {
		kind, _ := e.Detail(DetailUnknownKind)
		of, _ := e.Detail(DetailUnknownOf)
		near, _ := e.Detail(DetailUnknownNear)
		r.Unknown = &spec.Unknown{Kind: kind, Word: word, Of: of, Nearest: near}
	}
	return r
}

func (e *Error) reason(code spec.ReasonCode) *spec.Reason {
	text := func(key string) string { v, _ := e.Detail(key); return v }
	number := func(key string) int64 {
		n, err := strconv.ParseInt(text(key), 10, 64)
		if err != nil {
			return 0 // absent, or from a release that says it in another way
		}
		return n
	}
	blocker, err := strconv.ParseUint(text(DetailReasonBlocker), 10, 64)
	if err != nil {
		blocker = 0
	}
	return &spec.Reason{
		Code: code, TRES: text(DetailReasonTRES), Limit: number(DetailReasonLimit), Used: number(DetailReasonUsed),
		Asked: number(
			DetailReasonAsked,
		), Subject: text(DetailReasonSubject), Until: spec.Instant(number(DetailReasonUntil)),
		Blocker: spec.JobUID(blocker), Detail: text(DetailReasonText),
	}
}
