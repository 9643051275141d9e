package rest

import (
	"encoding/json"
	"net/http"

	"github.com/musterhpc/muster/internal/transport/grpcerr"
	"github.com/musterhpc/muster/internal/transport/status"
)

// problem is an error as a program reads it.
type problem struct {
	Code    string            `json:"code"`             // class, gRPC's name for it
	Number  int32             `json:"number,omitempty"` // Muster's, Slurm's errno where Slurm has one
	Message string            `json:"message"`
	Slurm   string            `json:"slurm,omitempty"` // Slurm's text
	Details map[string]string `json:"details,omitempty"`
}

// failAnswer writes an error, with its HTTP status when nothing was written yet.
func (a *answer) failAnswer(err error) {
	e := status.Convert(grpcerr.From(err), a.table)
	p := problem{Code: e.Wire.String(), Number: e.Number, Message: e.Error(), Slurm: e.SlurmText()}
	for _, detail := range e.Details {
		if p.Details == nil {
			p.Details = map[string]string{}
		}
		p.Details[detail.Key] = detail.Value
	}
	text, merr := json.Marshal(map[string]problem{"error": p})
	if merr != nil {
		text = []byte(`{"error":{"code":"Internal","message":"the error cannot be encoded"}}`)
	}
	if !a.began {
		a.writeHeader("application/json")
		if a.code == 0 {
			a.code = httpStatus(e.Wire)
		}
		if a.code == http.StatusUnauthorized {
			a.w.Header().Set("WWW-Authenticate", `Bearer realm="muster"`)
		}
		a.w.WriteHeader(a.code)
	}
	_, _ = a.w.Write(append(text, '\n'))
}

// httpStatus is the status of a class of errors.
func httpStatus(code status.Code) int {
	switch code {
	case status.InvalidArgument, status.OutOfRange:
		return http.StatusBadRequest
	case status.FailedPrecondition:
		return http.StatusUnprocessableEntity
	case status.Unauthenticated:
		return http.StatusUnauthorized
	case status.PermissionDenied:
		return http.StatusForbidden
	case status.NotFound, status.Unimplemented:
		return http.StatusNotFound
	case status.AlreadyExists, status.Aborted:
		return http.StatusConflict
	case status.ResourceExhausted:
		return http.StatusTooManyRequests
	case status.Canceled:
		return 499 // the client went away; nobody reads it
	case status.Unavailable:
		return http.StatusServiceUnavailable
	case status.DeadlineExceeded:
		return http.StatusGatewayTimeout
	case status.OK, status.Unknown, status.Internal, status.DataLoss:
	}
	return http.StatusInternalServerError
}
