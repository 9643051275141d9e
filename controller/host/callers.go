package host

import (
	"context"

	"github.com/musterhpc/muster/internal/transport/authz"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/scheduler/daemon"
)

// NewCallerFunc makes the controller's view of an identity that the channel proved.
// self is the uid this process runs as: its owner administers the cluster.
func NewCallerFunc(self uint32) func(ctx context.Context) daemon.Caller {
	return func(ctx context.Context) daemon.Caller {
		id := identity.From(ctx)
		switch id.Kind {
		case identity.LocalUser, identity.AttestedUser:
			caller := daemon.Caller{UID: id.UID, GID: id.GID, User: authz.UserName(id)}
			if id.Kind == identity.LocalUser {
				caller.Admin = id.UID == 0 || id.UID == self
			} else {
				caller.Host, caller.Limited = id.Node, id.By == identity.Agent
			}
			caller.Connector = id.Paper.Scope == identity.ScopePods
			return caller
		case identity.Agent:
			return daemon.Caller{Node: id.Node}
		case identity.Login:
			return daemon.Caller{Login: id.Node}
		case identity.Admin:
			return daemon.Caller{
				UID:   identity.NoID,
				GID:   identity.NoID,
				NoUID: true,
				User:  id.User,
				Admin: true,
				Host:  "tls",
			}
		}
		return daemon.Caller{}
	}
}
