package daemon

import (
	"context"
	"fmt"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

// The life of a user's token: as long as Slurm's without a wish, and a user's
// own wish ends at a month.
const (
	userTokenLife    = 30 * spec.Minute
	userTokenLongest = 31 * spec.Day
	anyTokenLongest  = 365 * spec.Day
)

// CreateUserToken makes a token with which a program acts as the caller or, for
// administrators, as another user.
func (s *ClusterService) CreateUserToken(
	ctx context.Context,
	req *apiv1.CreateUserTokenRequest,
) (*apiv1.CreateUserTokenReply, error) {
	who, _, err := s.knownCaller(ctx)
	if err != nil {
		return nil, err
	}
	if who.Limited {
		return nil, spec.Refuse(
			spec.CodeAccessDenied,
			"a compute node vouches for its users only while their jobs run there, and a token would last: ask for it on a login host",
		)
	}
	name := who.User
	uid := who.UID
	gid := who.GID
	if other := req.GetUser(); other != "" && other != who.User {
		if !s.isAdministrator(who) {
			return nil, spec.Refuse(
				spec.CodeAccessDenied,
				"only an administrator gets a token of another user",
			)
		}
		var ok bool
		uid, gid, ok = s.C.deps.Directory.User(ctx, other)
		if !ok {
			return nil, spec.Refuse(
				spec.CodeInvalidUser,
				fmt.Sprintf("there is no user %q on the controller's host", other),
			)
		}
		if uid == 0 && !who.Admin {
			return nil, spec.Refuse(spec.CodeAccessDenied, "a token of root is for root")
		}
		name = other
	} else if who.NoUID {
		return nil, spec.Refuse(spec.CodeInvalidUser, "an administrator's certificate names no user: say whose token it shall be (username=)")
	}
	life, longest := spec.Span(req.GetLifetime()), userTokenLongest
	if s.isAdministrator(who) {
		longest = anyTokenLongest
	}
	switch {
	case life == 0:
		life = userTokenLife
	case life < 0:
		return nil, spec.Refuse(spec.CodeInvalidTime, "a token lives for a while")
	case life > longest:
		return nil, spec.Refuse(
			spec.CodeInvalidTime,
			fmt.Sprintf("a token lives for %d days at most", longest/spec.Day),
		)
	}
	now := s.C.deps.Clock.Now()
	text, err := s.C.deps.Access.UserToken(ctx, name, uid, gid, now, now.Add(life))
	if err != nil {
		return nil, err
	}
	s.C.deps.Logger.Info(
		"a user's token was made",
		"user",
		name,
		"for",
		who.User,
		"seconds",
		int64(life/spec.Second),
	)
	return &apiv1.CreateUserTokenReply{Token: text, User: name, Expires: int64(now.Add(life))}, nil
}
