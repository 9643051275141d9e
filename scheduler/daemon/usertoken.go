package daemon

import (
	"context"
	"fmt"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
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
func (s *tokenCalls) CreateUserToken(
	ctx context.Context,
	req *apiv1.CreateUserTokenRequest,
) (*apiv1.CreateUserTokenReply, error) {
	caller, actor, err := s.knownCaller(ctx)
	if err != nil {
		return nil, err
	}
	if caller.Limited {
		return nil, spec.Refuse(
			spec.CodeAccessDenied,
			"a compute node vouches for its users only while their jobs run there, and a token would last: ask for it on a login host",
		)
	}
	name := caller.User
	uid := caller.UID
	gid := caller.GID
	if other := req.GetUser(); other != "" && other != caller.User {
		if !s.isAdministrator(caller) {
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
		if uid == 0 && !caller.Admin {
			return nil, spec.Refuse(spec.CodeAccessDenied, "a token of root is for root")
		}
		name = other
	} else if caller.NoUID {
		return nil, spec.Refuse(spec.CodeInvalidUser, "an administrator's certificate names no user: say whose token it shall be (username=)")
	}
	life, longest := spec.Span(req.GetLifetime()), userTokenLongest
	if s.isAdministrator(caller) {
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
	if req.GetScope() != "" && !s.isAdministrator(caller) {
		// It may do what its user may not.
		return nil, spec.Refuse(
			spec.CodeAccessDenied,
			"only an administrator gets a token with a scope",
		)
	}
	now := s.C.deps.Clock.Now()
	token, err := s.C.deps.Access.UserToken(ctx, TokenAsk{
		User: name, UID: uid, GID: gid, Scope: req.GetScope(), From: now, Until: now.Add(life),
	})
	if err != nil {
		return nil, err
	}
	record := event.UserTokenIssued{
		ID:      token.ID,
		User:    name,
		UID:     uid,
		Expires: now.Add(life),
		Key:     token.Key,
	}
	if s.C.View().State.Version > newestPlainTokens {
		record.Scope = req.GetScope()
	}
	cmd := scheduler.IssueUserToken{Token: record}
	if rep := s.C.writer.commitCommand(ctx, &request{cmd: cmd, actor: actor}); rep.err != nil {
		return nil, rep.err
	}
	s.C.deps.Logger.Info(
		"a user's token was made",
		"user",
		name,
		"for",
		caller.User,
		"seconds",
		int64(life/spec.Second),
	)
	return &apiv1.CreateUserTokenReply{
		Token:   token.Text,
		User:    name,
		Expires: int64(now.Add(life)),
	}, nil
}

// newestPlainTokens is the last version of the ledger whose records of tokens do not tell on whose
// word a token was given, nor its scope.
const newestPlainTokens = 1

// IssueLogin makes a token for a user whom an identity provider has vouched for: the session of the
// console. It is recorded, listed and revoked as any other.
func (c *Controller) IssueLogin(
	ctx context.Context,
	user string,
	uid, gid uint32,
	life spec.Span,
	provider string,
) (string, error) {
	if uid == 0 {
		return "", spec.Refuse(spec.CodeAccessDenied, "nobody becomes root by an identity provider")
	}
	now := c.deps.Clock.Now()
	token, err := c.deps.Access.LoginToken(user, uid, gid, now, now.Add(life))
	if err != nil {
		return "", err
	}
	record := event.UserTokenIssued{
		ID:      token.ID,
		User:    user,
		UID:     uid,
		Expires: now.Add(life),
		Key:     token.Key,
	}
	if c.View().State.Version > newestPlainTokens {
		record.Login = provider
	}
	actor := event.Actor{Kind: event.ActorUser, UID: uid, Name: user, Host: "web"}
	rep := c.writer.commitCommand(
		ctx,
		&request{cmd: scheduler.IssueUserToken{Token: record}, actor: actor},
	)
	if rep.err != nil {
		return "", rep.err
	}
	c.deps.Logger.Info("a user logged in", "user", user, "provider", provider)
	return token.Text, nil
}

// ListUserTokens shows the tokens of users that hold: one's own, or to administrators
// those of everybody.
func (s *tokenCalls) ListUserTokens(
	ctx context.Context,
	req *apiv1.ListUserTokensRequest,
) (*apiv1.ListUserTokensReply, error) {
	caller, _, err := s.knownCaller(ctx)
	if err != nil {
		return nil, err
	}
	user := req.GetUser()
	if !s.isAdministrator(caller) {
		if user != "" && user != caller.User {
			return nil, spec.Refuse(
				spec.CodeAccessDenied,
				"only an administrator sees the tokens of another user",
			)
		}
		user = caller.User
	}
	out := &apiv1.ListUserTokensReply{Now: int64(s.C.deps.Clock.Now())}
	for _, token := range s.liveTokens(s.C.View().State.Access) {
		if user == "" || token.User == user {
			out.Tokens = append(out.Tokens, tokenInfo(&token))
		}
	}
	s.noteUses(out.GetTokens())
	return out, nil
}

// RevokeUserTokens ends tokens: those that are named, or all of a user.
func (s *tokenCalls) RevokeUserTokens(
	ctx context.Context,
	req *apiv1.RevokeUserTokensRequest,
) (*apiv1.RevokeUserTokensReply, error) {
	caller, actor, err := s.knownCaller(ctx)
	if err != nil {
		return nil, err
	}
	cmd := scheduler.EndUserTokens{IDs: req.GetIds(), User: req.GetUser(), Reason: req.GetReason()}
	if (len(cmd.IDs) == 0) == (cmd.User == "") {
		return nil, spec.Refuse(
			spec.CodeBadRequest,
			"name tokens by their ids, or the user all of whose tokens end, and not both",
		)
	}
	if !s.isAdministrator(caller) {
		if cmd.User != "" && cmd.User != caller.User {
			return nil, spec.Refuse(
				spec.CodeAccessDenied,
				"only an administrator revokes the tokens of another user",
			)
		}
		cmd.Whose = caller.User
	}
	before := s.C.View().State.Access
	if rep := s.C.writer.commitCommand(ctx, &request{cmd: cmd, actor: actor}); rep.err != nil {
		return nil, rep.err
	}
	after := s.C.View().State.Access
	out := &apiv1.RevokeUserTokensReply{}
	for _, token := range s.liveTokens(before) {
		if now := after.UserToken(token.ID); now == nil || now.Revoked {
			out.Tokens = append(out.Tokens, tokenInfo(&token))
		}
	}
	s.noteUses(out.GetTokens())
	return out, nil
}

// liveTokens are the tokens of users that would be accepted.
func (s *tokenCalls) liveTokens(access *state.Access) []state.UserToken {
	now := s.C.deps.Clock.Now()
	key := s.C.deps.Access.UserTokenKey()
	var userTokens []state.UserToken
	for i := range access.Users {
		if token := &access.Users[i]; !token.Revoked && token.Expires > now && token.Key == key {
			userTokens = append(userTokens, *token)
		}
	}
	return userTokens
}

// noteUses adds when tokens were shown last.
func (s *tokenCalls) noteUses(tokens []*apiv1.UserTokenInfo) {
	ids := make([]string, len(tokens))
	for i, token := range tokens {
		ids[i] = token.GetId()
	}
	uses := s.C.deps.Access.UserTokensUsed(ids)
	for _, token := range tokens {
		token.LastUsed = int64(uses[token.GetId()])
	}
}

func tokenInfo(token *state.UserToken) *apiv1.UserTokenInfo {
	return &apiv1.UserTokenInfo{
		Id:       token.ID,
		User:     token.User,
		Uid:      token.UID,
		Issued:   int64(token.Issued),
		Expires:  int64(token.Expires),
		IssuedBy: token.By.Name,
		IssuedOn: token.By.Host,
		Login:    token.Login,
		Scope:    token.Scope,
	}
}
