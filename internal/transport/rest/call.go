package rest

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/status"
	"github.com/musterhpc/muster/spec"
)

// Call makes one call for a caller whom this process has identified, through
// the limits and guards that surround a call that came over HTTP. method is the
// full name, /muster.v1.Service/Method; it must have one answer. The answer must
// not be changed.
func (g *Gateway) Call(ctx context.Context, id identity.Identity, method string, req proto.Message) (proto.Message, error) {
	m := g.byName[method]
	if m == nil || m.stream != nil {
		return nil, status.New(status.Unimplemented, "there is no method %s with one answer", method)
	}
	party := g.cfg.Table.PartyOf(id, nil)
	if !g.cfg.Table.Call(party) {
		return nil, spec.Refuse(spec.CodeBackoff, "")
	}
	decode := func(into any) error {
		msg, ok := into.(proto.Message)
		if !ok {
			return status.New(status.Internal, "%T is not a protobuf message", into)
		}
		proto.Merge(msg, req)
		return nil
	}
	reply, err := m.unary(m.impl, identity.With(ctx, id), decode, g.unary)
	if err != nil {
		return nil, err
	}
	msg, ok := reply.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("BUG: %T is not a protobuf message", reply)
	}
	return msg, nil
}
