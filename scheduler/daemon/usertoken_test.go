package daemon

import (
	"context"
	"fmt"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

// plainTokens makes tokens that can be read.
type plainTokens struct{ Access }

func (plainTokens) UserToken(_ context.Context, user string, uid, gid uint32, from, until spec.Instant) (string, error) {
	return fmt.Sprintf("%s %d:%d %d s", user, uid, gid, int64(until.Sub(from)/spec.Second)), nil
}

func TestCreateUserToken(t *testing.T) {
	w := start(t)
	w.c.deps.Access = plainTokens{w.c.deps.Access}
	alice := Caller{UID: 1000, GID: 100, User: "alice"}
	root := Caller{User: "root", Admin: true}
	ops := Caller{User: "ops", Admin: true, NoUID: true, UID: 1<<32 - 1, GID: 1<<32 - 1}
	month, year := int64(31*spec.Day), int64(365*spec.Day)
	for _, x := range []struct {
		who  Caller
		user string
		life int64
		want string
		code spec.Code
	}{
		{alice, "", 0, "alice 1000:100 1800 s", 0},
		{alice, "alice", int64(spec.Minute), "alice 1000:100 60 s", 0},
		{alice, "", month, "alice 1000:100 2678400 s", 0},
		{alice, "", month + 1, "", spec.CodeInvalidTime},
		{alice, "", -1, "", spec.CodeInvalidTime},
		{alice, "bob", 0, "", spec.CodeAccessDenied},
		{root, "", year, "root 0:0 31536000 s", 0},
		{root, "", year + 1, "", spec.CodeInvalidTime},
		{root, "alice", 0, "alice 1000:1000 1800 s", 0},
		{root, "nosuch", 0, "", spec.CodeInvalidUser},
		{ops, "", 0, "", spec.CodeInvalidUser},
		{ops, "alice", 0, "alice 1000:1000 1800 s", 0},
		{Caller{Node: "n1"}, "", 0, "", spec.CodeAccessDenied},
	} {
		w.c.deps.Identify = func(context.Context) Caller { return x.who }
		rep, err := w.svc.CreateUserToken(t.Context(), &apiv1.CreateUserTokenRequest{User: x.user, Lifetime: x.life})
		if spec.CodeOf(err) != x.code || rep.GetToken() != x.want {
			t.Errorf("%s asks for %q, %d ns: %q, %v; expected %q, code %d", x.who.User, x.user, x.life, rep.GetToken(), err, x.want, x.code)
		}
	}
}
