package daemon

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

// plainTokens makes tokens that can be read.
type plainTokens struct {
	Access
	made *int
	key  *string
}

func (p plainTokens) UserToken(_ context.Context, ask TokenAsk) (UserToken, error) {
	*p.made++
	return UserToken{
		Text: fmt.Sprintf("%s %d:%d %d s", ask.User, ask.UID, ask.GID, int64(ask.Until.Sub(ask.From)/spec.Second)),
		ID:   fmt.Sprintf("t%d", *p.made),
		Key:  *p.key,
	}, nil
}

func (p plainTokens) UserTokenKey() string { return *p.key }

func (plainTokens) UserTokensUsed(ids []string) map[string]spec.Instant {
	out := map[string]spec.Instant{}
	if slices.Contains(ids, "t1") {
		out["t1"] = 7
	}
	return out
}

// newPlainTokens gives a controller such tokens.
func newPlainTokens(w *world) plainTokens {
	tokens := plainTokens{w.c.deps.Access, new(int), new("first")}
	w.c.deps.Access = tokens
	return tokens
}

func TestCreateUserToken(t *testing.T) {
	w := start(t)
	newPlainTokens(w)
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

// TestTokenWithScope: it may do what its user may not, so that only administrators get one.
func TestTokenWithScope(t *testing.T) {
	w := start(t)
	newPlainTokens(w)
	for who, want := range map[*Caller]spec.Code{
		{UID: 1000, GID: 100, User: "alice"}: spec.CodeAccessDenied,
		{User: "root", Admin: true}:          0,
	} {
		w.c.deps.Identify = func(context.Context) Caller { return *who }
		req := &apiv1.CreateUserTokenRequest{User: "alice", Scope: "pods"}
		if _, err := w.svc.CreateUserToken(t.Context(), req); spec.CodeOf(err) != want {
			t.Errorf("%s: %v", who.User, err)
		}
	}
	w.c.deps.Identify = func(context.Context) Caller { return Caller{User: "root", Admin: true} }
	rep, err := w.svc.ListUserTokens(t.Context(), &apiv1.ListUserTokensRequest{})
	if err != nil || len(rep.GetTokens()) != 1 || rep.GetTokens()[0].GetScope() != "pods" {
		t.Errorf("the list does not show what the token is for: %v, %v", rep, err)
	}
}

// TestUserTokens: tokens are listed and revoked by their users, and by administrators
// those of everybody; what was revoked is not listed, and not accepted.
func TestUserTokens(t *testing.T) {
	w := start(t)
	tokens := newPlainTokens(w)
	alice := Caller{UID: 1000, GID: 100, User: "alice"}
	bob := Caller{UID: 1001, GID: 100, User: "bob"}
	root := Caller{User: "root", Admin: true}
	as := func(who Caller) { w.c.deps.Identify = func(context.Context) Caller { return who } }
	make := func(who Caller, user string, life spec.Span) {
		as(who)
		req := &apiv1.CreateUserTokenRequest{User: user, Lifetime: int64(life)}
		if _, err := w.svc.CreateUserToken(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	ids := func(list []*apiv1.UserTokenInfo) string {
		var out []string
		for _, token := range list {
			out = append(out, token.GetId()+"="+token.GetUser()+"/"+token.GetIssuedBy())
		}
		return strings.Join(out, " ")
	}
	list := func(who Caller, user, want string, code spec.Code) {
		t.Helper()
		as(who)
		rep, err := w.svc.ListUserTokens(t.Context(), &apiv1.ListUserTokensRequest{User: user})
		if got := ids(rep.GetTokens()); got != want || spec.CodeOf(err) != code {
			t.Errorf("%s lists tokens of %q: %q, %v; want %q, code %d", who.User, user, got, err, want, code)
		}
	}
	revoke := func(who Caller, req *apiv1.RevokeUserTokensRequest, want string, code spec.Code) {
		t.Helper()
		as(who)
		rep, err := w.svc.RevokeUserTokens(t.Context(), req)
		if got := ids(rep.GetTokens()); got != want || spec.CodeOf(err) != code {
			t.Errorf("%s revokes %v: %q, %v; want %q, code %d", who.User, req, got, err, want, code)
		}
	}
	make(alice, "", 0)
	make(root, "alice", 0)
	make(bob, "", 0)
	make(bob, "", spec.Day)
	list(alice, "", "t1=alice/alice t2=alice/root", 0)
	list(alice, "bob", "", spec.CodeAccessDenied)
	list(root, "", "t1=alice/alice t2=alice/root t3=bob/bob t4=bob/bob", 0)
	list(root, "bob", "t3=bob/bob t4=bob/bob", 0)
	list(Caller{Node: "n1"}, "", "", spec.CodeAccessDenied)

	one := &apiv1.RevokeUserTokensRequest{Ids: []string{"t1"}, Reason: "lost laptop"}
	both := &apiv1.RevokeUserTokensRequest{Ids: []string{"t1", "t3"}}
	revoke(bob, both, "", spec.CodeBadCredential) // all or none, and not those of others
	revoke(bob, &apiv1.RevokeUserTokensRequest{User: "alice"}, "", spec.CodeAccessDenied)
	revoke(bob, &apiv1.RevokeUserTokensRequest{}, "", spec.CodeBadRequest)
	revoke(bob, &apiv1.RevokeUserTokensRequest{Ids: []string{"t3"}, User: "bob"}, "", spec.CodeBadRequest)
	list(root, "bob", "t3=bob/bob t4=bob/bob", 0)
	revoke(alice, one, "t1=alice/alice", 0)
	revoke(alice, one, "", spec.CodeBadCredential)
	list(alice, "", "t2=alice/root", 0)
	now := w.c.deps.Clock.Now()
	access := w.c.View().State.Access
	if !access.IsEnded("alice", "t1", now) || access.IsEnded("alice", "t2", now) {
		t.Errorf("t1 revoked %v, t2 revoked %v; want true, false",
			access.IsEnded("alice", "t1", now), access.IsEnded("alice", "t2", now))
	}

	// All of a user: also those that the ledger does not know, and none that follow.
	revoke(root, &apiv1.RevokeUserTokensRequest{User: "bob"}, "t3=bob/bob t4=bob/bob", 0)
	make(bob, "", 0)
	list(bob, "", "t5=bob/bob", 0)
	access = w.c.View().State.Access
	for _, x := range []struct {
		id     string
		issued spec.Instant
		want   bool
	}{{"t3", now, true}, {"t4", now, true}, {"t5", now, false}, {"", now, true}, {"", 0, true}, {"foreign", now.Add(spec.Day), false}} {
		if got := access.IsEnded("bob", x.id, x.issued); got != x.want {
			t.Errorf("token %q of bob, issued at %d: revoked %v, want %v", x.id, x.issued, got, x.want)
		}
	}
	if access.IsEnded("alice", "", now) {
		t.Error("a token of alice is revoked with those of bob")
	}

	// A replaced key ends all tokens that it signed.
	*tokens.key = "second"
	list(root, "", "", 0)
	make(alice, "", 0)
	list(root, "", "t6=alice/alice", 0)
}

// TestUserTokensAreBounded: what one user keeps in the ledger has a bound.
func TestUserTokensAreBounded(t *testing.T) {
	w := start(t)
	newPlainTokens(w)
	w.c.deps.Identify = func(context.Context) Caller { return Caller{UID: 1000, GID: 100, User: "alice"} }
	var err error
	made := 0
	for err == nil && made <= 1000 {
		_, err = w.svc.CreateUserToken(t.Context(), &apiv1.CreateUserTokenRequest{})
		made++
	}
	if spec.CodeOf(err) != spec.CodeDisabled || made != 1001 {
		t.Fatalf("token %d: %v; want the 1,001st refused", made, err)
	}
	if _, err := w.svc.RevokeUserTokens(t.Context(), &apiv1.RevokeUserTokensRequest{User: "alice"}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.svc.CreateUserToken(t.Context(), &apiv1.CreateUserTokenRequest{}); err != nil {
		t.Error(err)
	}
}
