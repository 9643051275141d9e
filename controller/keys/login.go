package keys

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"

	"github.com/musterhpc/muster/controller/host"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/transport/oidc"
	"github.com/musterhpc/muster/spec"
)

// ProviderLogin gives people who have logged in at the site's identity provider a token of their
// own.
type ProviderLogin struct {
	Provider *oidc.Provider
	Config   conffile.OIDC
	// Issue makes the token of a user.
	Issue func(
		ctx context.Context,
		name string,
		uid, gid uint32,
		session spec.Span,
		issuer string,
	) (string, error)
}

// Name implements console.Login.
func (l ProviderLogin) Name() string {
	if u, err := url.Parse(l.Config.Issuer); err == nil {
		return u.Host
	}
	return l.Config.Issuer
}

// Begin implements console.Login.
func (l ProviderLogin) Begin(ctx context.Context) (string, any, error) {
	return l.Provider.Begin(ctx)
}

// Finish implements console.Login.
func (l ProviderLogin) Finish(
	ctx context.Context,
	attempt []byte,
	answer url.Values,
) (string, error) {
	var began oidc.Attempt
	if err := json.Unmarshal(attempt, &began); err != nil {
		return "", err
	}
	user, err := l.Provider.Finish(ctx, began, answer)
	if err != nil {
		return "", err
	}
	uid, gid, ok := host.FindUser(user.Name)
	if !ok {
		return "", fmt.Errorf("there is no user %s on the controller's host", user.Name)
	}
	return l.Issue(ctx, user.Name, uid, gid, l.Config.Session, user.Issuer)
}
