package authz

import (
	"slices"
	"strconv"

	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/ledger/state"
)

// Role is what a caller is to the cluster.
type Role uint8

// The roles, in the order of the columns of docs/authorization.md.
const (
	Anonymous     Role = iota // shows neither certificate nor token
	RemoteRoot                // root of another machine, who is nobody here
	User                      // a user without further rights
	Coordinator               // a coordinator of an account
	Operator                  // AdminLevel=Operator in accounting
	Administrator             // AdminLevel=Administrator in accounting
	Root                      // root or the cluster's own user here, or an administrator's certificate
	Node                      // the agent of a compute node
	LoginHost                 // the agent of a login host
	Controller                // a controller, or accounting on another host
	Connector                 // a token for muster-kube alone (scope pods)
	numRoles
)

// String returns the role's name as the documentation has it.
func (r Role) String() string {
	names := [...]string{"anonymous", "remote root", "user", "coordinator", "operator",
		"administrator", "root", "node", "login host", "controller", "connector"}
	if int(r) < len(names) {
		return names[r]
	}
	return "role " + strconv.Itoa(int(r))
}

// Roles lists all roles.
func Roles() []Role {
	roles := make([]Role, numRoles)
	for i := range roles {
		roles[i] = Role(i)
	}
	return roles
}

// UserName is the name by which accounting knows a user: his own, or his number
// where the controller's host has no name for it.
func UserName(id identity.Identity) string {
	if id.User != "" {
		return id.User
	}
	return strconv.FormatUint(uint64(id.UID), 10)
}

// roleOf finds the role of a caller. standing says what accounting makes of a
// user: User, Coordinator, Operator or Administrator.
func roleOf(id identity.Identity, self uint32, standing func(user string) Role) Role {
	switch id.Paper.Scope {
	case "":
	case identity.ScopePods:
		return Connector
	default:
		return Anonymous
	}
	switch id.Kind {
	case identity.Admin:
		return Root
	case identity.Agent:
		return Node
	case identity.Login:
		return LoginHost
	case identity.Controller:
		return Controller
	case identity.LocalUser:
		if id.UID == 0 || id.UID == self {
			return Root
		}
		return standing(UserName(id))
	case identity.AttestedUser:
		switch {
		case id.Squashed:
			return RemoteRoot
		case id.By == identity.Agent:
			// A compute node vouches for plain users only: a node that is
			// broken into must not rule the cluster.
			return User
		}
		return standing(UserName(id))
	default:
		return Anonymous
	}
}

// StandingOf is what accounting makes of a user.
func StandingOf(policy *state.Policy, name string) Role {
	if user := policy.FindUser(name); user != nil {
		switch user.AdminLevel {
		case "Administrator":
			return Administrator
		case "Operator":
			return Operator
		}
	}
	for i := range policy.Accounts {
		if slices.Contains(policy.Accounts[i].Coordinators, name) {
			return Coordinator
		}
	}
	return User
}
