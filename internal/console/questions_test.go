package console

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/spec"
)

// questionsAPI answers questions of one method, refuses every other, and keeps them.
type questionsAPI[Q proto.Message] struct {
	method string
	answer func(Q) (proto.Message, error)
	asked  []Q
}

// Call implements API.
func (a *questionsAPI[Q]) Call(
	_ context.Context,
	_ identity.Identity,
	method string,
	req proto.Message,
) (proto.Message, error) {
	question, ok := req.(Q)
	if !ok || method != a.method {
		return nil, spec.Refuse(spec.CodeAccessDenied, method)
	}
	a.asked = append(a.asked, proto.CloneOf(question))
	return a.answer(question)
}
