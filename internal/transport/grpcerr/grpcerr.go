// Package grpcerr carries the transport's errors in gRPC's status and back.
package grpcerr

import (
	"errors"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/musterhpc/muster/internal/transport/status"
)

// Bounds that keep a status within the header lists which HTTP/2 peers accept: gRPC sends it as a header, escaped.
const (
	maxMessage = 8 << 10
	maxDetail  = 8 << 10
)

// To turns any error into one that gRPC sends: code and message for every client, and what else a *status.Error holds as a detail for
// ours. nil and errors that are gRPC statuses already come back unchanged.
func To(err error, table status.Table) error {
	if err == nil {
		return nil
	}
	var own *status.Error
	if !errors.As(err, &own) {
		if _, ok := grpcstatus.FromError(err); ok {
			return err
		}
	}
	e := status.Convert(err, table)
	p := grpcstatus.New(codes.Code(e.Wire), "").Proto()
	p.Message = sendable(e.Error())
	e.Message = ""
	encoded := status.Append(nil, e)
	if len(encoded) > maxDetail {
		e.Details = nil
		encoded = status.Append(nil, e)
	}
	if len(encoded) <= maxDetail {
		p.Details = append(p.Details, &anypb.Any{TypeUrl: status.TypeURL, Value: encoded})
	}
	return grpcstatus.FromProto(p).Err()
}

// sendable cuts a text to size and makes it valid UTF-8.
func sendable(s string) string {
	if len(s) > maxMessage {
		s = s[:maxMessage] + " [cut]"
	}
	e, err := status.Parse(status.Append(nil, &status.Error{Wire: status.Unknown, Message: s}))
	if err != nil {
		return "" // cannot be: what Append writes, Parse reads
	}
	return e.Message
}

// From turns an error of a gRPC call into the *status.Error that the server raised, or into one of the same code where the server or the
// connection said no more than a gRPC status. nil and errors that are no gRPC status (io.EOF) come back unchanged.
func From(err error) error {
	if err == nil {
		return nil
	}
	s, ok := grpcstatus.FromError(err)
	if !ok || s.Code() == codes.OK {
		return err
	}
	for _, d := range s.Proto().GetDetails() {
		if d.GetTypeUrl() != status.TypeURL {
			continue
		}
		if e, err := status.Parse(d.GetValue()); err == nil {
			e.Message = s.Message()
			return e
		}
	}
	return &status.Error{Wire: status.Code(s.Code()), Message: s.Message()}
}
