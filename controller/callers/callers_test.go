package callers

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/musterhpc/muster/internal/transport/channel"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
)

// TestTokensApart: a process without the key of tokens refuses them.
func TestTokensApart(t *testing.T) {
	_, err := Callers{}.VerifyToken("a.b.c", &channel.Admission{Revoked: func(string) bool { return false }})
	if wireCode(err) != rpcstatus.Unauthenticated {
		t.Errorf("%v, want a refusal", err)
	}
}

// wireCode is the code with which a call failed.
func wireCode(err error) rpcstatus.Code {
	var refusal *rpcstatus.Error
	if !errors.As(err, &refusal) {
		return 0
	}
	return refusal.Wire
}

// idleStream is a stream on which nothing comes.
type idleStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s idleStream) Context() context.Context { return s.ctx }

// TestAStreamEndsWithItsToken: a call that was opened with a token does not outlive it,
// and no message goes through afterwards.
func TestAStreamEndsWithItsToken(t *testing.T) {
	nothing := func() Callers { return Callers{} }
	id := identity.Identity{Token: true, Paper: identity.Paper{User: "ada", Expires: time.Now().Add(time.Second)}}
	stream := idleStream{ctx: identity.With(t.Context(), id)}
	err := EndWithToken(nothing, nil, stream, func(_ any, stream grpc.ServerStream) error {
		<-stream.Context().Done()
		if err := stream.SendMsg(nil); err == nil {
			t.Error("a message was sent after the token's end")
		}
		return stream.Context().Err()
	})
	if wireCode(err) != rpcstatus.Unauthenticated {
		t.Errorf("the stream ended with %v, want a refusal", err)
	}
	id.Token = false
	stream.ctx = identity.With(t.Context(), id)
	err = EndWithToken(nothing, nil, stream, func(_ any, got grpc.ServerStream) error {
		if got != grpc.ServerStream(stream) {
			t.Error("a stream without a token is watched")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
