// The transport's errors in gRPC's status, and back.

package grpcx

import (
	"errors"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/musterhpc/muster/internal/transport/rpcstatus"
)

// Bounds that keep a status within the header lists which HTTP/2 peers accept: gRPC sends it as a header, escaped.
const (
	maxMessage = 8 << 10
	maxDetail  = 8 << 10
)

// ToStatus turns any error into one that gRPC sends: code and message for every client, and what else a *rpcstatus.Error holds as a detail for
// ours. nil and errors that are gRPC statuses already come back unchanged.
func ToStatus(err error, table rpcstatus.Table) error {
	if err == nil {
		return nil
	}
	var own *rpcstatus.Error
	if !errors.As(err, &own) {
		if _, ok := grpcstatus.FromError(err); ok {
			return err
		}
	}
	e := rpcstatus.Convert(err, table)
	p := grpcstatus.New(codes.Code(e.Wire), "").Proto()
	p.Message = sendable(e.Error())
	e.Message = ""
	encoded := rpcstatus.Append(nil, e)
	if len(encoded) > maxDetail {
		e.Details = nil
		encoded = rpcstatus.Append(nil, e)
	}
	if len(encoded) <= maxDetail {
		p.Details = append(p.Details, &anypb.Any{TypeUrl: rpcstatus.TypeURL, Value: encoded})
	}
	return grpcstatus.FromProto(p).Err()
}

// sendable cuts a text to size and makes it valid UTF-8.
func sendable(text string) string {
	if len(text) > maxMessage {
		text = text[:maxMessage] + " [cut]"
	}
	e, err := rpcstatus.Parse(
		rpcstatus.Append(nil, &rpcstatus.Error{Wire: rpcstatus.Unknown, Message: text}),
	)
	if err != nil {
		return "" // cannot be: what Append writes, Parse reads
	}
	return e.Message
}

// FromStatus turns an error of a gRPC call into the *rpcstatus.Error that the server raised, or into one of the same code where the server or the
// connection said no more than a gRPC status. nil and errors that are no gRPC status (io.EOF) come back unchanged.
func FromStatus(err error) error {
	if err == nil {
		return nil
	}
	s, ok := grpcstatus.FromError(err)
	if !ok || s.Code() == codes.OK {
		return err
	}
	for _, d := range s.Proto().GetDetails() {
		if d.GetTypeUrl() != rpcstatus.TypeURL {
			continue
		}
		if e, err := rpcstatus.Parse(d.GetValue()); err == nil {
			e.Message = s.Message()
			return e
		}
	}
	return &rpcstatus.Error{Wire: rpcstatus.Code(s.Code()), Message: s.Message()}
}
