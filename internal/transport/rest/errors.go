package rest

import (
	"encoding/json"
	"net/http"

	"github.com/musterhpc/muster/internal/transport/grpcx"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
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
	e := rpcstatus.Convert(grpcx.FromStatus(err), a.table)
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
func httpStatus(code rpcstatus.Code) int {
	switch code {
	case rpcstatus.InvalidArgument, rpcstatus.OutOfRange:
		return http.StatusBadRequest
	case rpcstatus.FailedPrecondition:
		return http.StatusUnprocessableEntity
	case rpcstatus.Unauthenticated:
		return http.StatusUnauthorized
	case rpcstatus.PermissionDenied:
		return http.StatusForbidden
	case rpcstatus.NotFound, rpcstatus.Unimplemented:
		return http.StatusNotFound
	case rpcstatus.AlreadyExists, rpcstatus.Aborted:
		return http.StatusConflict
	case rpcstatus.ResourceExhausted:
		return http.StatusTooManyRequests
	case rpcstatus.Canceled:
		return 499 // the client went away; nobody reads it
	case rpcstatus.Unavailable:
		return http.StatusServiceUnavailable
	case rpcstatus.DeadlineExceeded:
		return http.StatusGatewayTimeout
	case rpcstatus.OK, rpcstatus.Unknown, rpcstatus.Internal, rpcstatus.DataLoss:
	}
	return http.StatusInternalServerError
}
