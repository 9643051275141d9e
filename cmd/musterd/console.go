package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"time"

	"github.com/musterhpc/muster/controller/doors"
	"github.com/musterhpc/muster/controller/host"
	"github.com/musterhpc/muster/internal/console"
	"github.com/musterhpc/muster/internal/console/firing"
	"github.com/musterhpc/muster/internal/transport/channel"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/oidc"
	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/internal/transport/rest"
)

// openConsole makes the web console; nil where listen.web is off. It calls the
// API by way of the gateway, with the limits and the door of REST.
func (s *server) openConsole(source *pki.Source, gateway *rest.Gateway) (*console.Console, error) {
	if s.cfg.Listen.Web.Off() {
		return nil, nil
	}
	if address := s.cfg.Web.AlertmanagerURL; address != "" {
		s.firing = &firing.Alerts{URL: address, Cluster: s.cluster.ClusterName, Log: s.log}
	}
	admission := &channel.Admission{Revoked: s.revokedSerial(source), Now: time.Now}
	var firing func() console.Alerts
	if s.firing != nil {
		firing = s.firing.Latest
	}
	return console.New(console.Config{
		Login:  s.consoleLogin(),
		Alerts: firing,
		API:    gateway,
		Stream: gateway.CallStream,
		Verify: func(token string) (identity.Identity, error) {
			id, err := s.callers().VerifyToken(token, admission)
			if id.Kind == identity.AttestedUser {
				id.Node = "web" // where the audit trail says that he came from
			}
			return id, err
		},
		Door:    s.authorizationDoor(),
		Private: s.ctl.Private,
		Changed: func() (uint64, <-chan struct{}) {
			view, changed := s.ctl.Changed()
			return view.State.Seq, changed
		},
		Cluster: s.cluster.ClusterName, Version: version, Log: s.log,
	})
}

// consoleDoor is the web console with its address; nil where listen.web is off.
func (s *server) consoleDoor(source *pki.Source, gateway *rest.Gateway) (*doors.Console, error) {
	pages, err := s.openConsole(source, gateway)
	if err != nil || pages == nil {
		return nil, err
	}
	door := &doors.Console{
		Address: doors.Address{Key: "listen.web", At: s.cfg.Listen.Web},
		Pages:   pages,
		TLS:     source.Server(false, "h2", "http/1.1"),
		Beside:  map[string]func(context.Context) error{"console's live pages": pages.Run},
	}
	if s.firing != nil {
		door.Beside["console's alerts"] = s.firing.Follow
	}
	return door, nil
}

// consoleLogin is the way into the console by the site's identity provider; nil = there is none.
func (s *server) consoleLogin() console.Login {
	if s.provider == nil || s.cfg.OIDC.ClientID == "" {
		return nil
	}
	return providerLogin{s: s}
}

// providerLogin gives people who have logged in at the provider a token of their own.
type providerLogin struct{ s *server }

// Name implements console.Login.
func (l providerLogin) Name() string {
	if u, err := url.Parse(l.s.cfg.OIDC.Issuer); err == nil {
		return u.Host
	}
	return l.s.cfg.OIDC.Issuer
}

// Begin implements console.Login.
func (l providerLogin) Begin(ctx context.Context) (string, any, error) {
	return l.s.provider.Begin(ctx)
}

// Finish implements console.Login.
func (l providerLogin) Finish(
	ctx context.Context,
	attempt []byte,
	answer url.Values,
) (string, error) {
	var began oidc.Attempt
	if err := json.Unmarshal(attempt, &began); err != nil {
		return "", err
	}
	user, err := l.s.provider.Finish(ctx, began, answer)
	if err != nil {
		return "", err
	}
	uid, gid, ok := host.FindUser(user.Name)
	if !ok {
		return "", fmt.Errorf("there is no user %s on the controller's host", user.Name)
	}
	return l.s.ctl.IssueLogin(ctx, user.Name, uid, gid, l.s.cfg.OIDC.Session, user.Issuer)
}
