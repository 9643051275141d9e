package main

import (
	"context"
	"time"

	"github.com/musterhpc/muster/controller/doors"
	"github.com/musterhpc/muster/controller/keys"
	"github.com/musterhpc/muster/internal/console"
	"github.com/musterhpc/muster/internal/console/firing"
	"github.com/musterhpc/muster/internal/transport/channel"
	"github.com/musterhpc/muster/internal/transport/identity"
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
	admission := &channel.Admission{Revoked: s.directory().IsRevoked(source), Now: time.Now}
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
	return keys.ProviderLogin{Provider: s.provider, Config: s.cfg.OIDC, Issue: s.ctl.IssueLogin}
}
