package authz

import (
	"strings"
	"testing"

	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/spec"
)

func users(user string) Role {
	switch user {
	case "ops":
		return Operator
	case "boss":
		return Administrator
	case "head":
		return Coordinator
	}
	return User
}

// TestTableIsComplete: the table has the methods of the services, each once and
// in their order, so that a new method cannot be forgotten here.
func TestTableIsComplete(t *testing.T) {
	methods := Methods()
	if len(methods) != len(table) {
		t.Fatalf("%d methods, %d rows", len(methods), len(table))
	}
	for i, m := range methods {
		if want := m.Service + "/" + m.Name; table[i].method != want {
			t.Errorf("row %d is %s, want %s", i, table[i].method, want)
		}
	}
}

// TestGrantsGrow: nobody has less than somebody below him on the ladder of
// users, and nobody but users and enrolment is open to the anonymous.
func TestGrantsGrow(t *testing.T) {
	ladder := []Role{User, Coordinator, Operator, Administrator, Root}
	for _, m := range Methods() {
		for i, role := range ladder[1:] {
			if below := ladder[i]; m.Grant(role) < m.Grant(below) {
				t.Errorf("%s: %s has %s, %s below has %s", m.FullName(), role, m.Grant(role), below, m.Grant(below))
			}
		}
		if m.Grant(Anonymous) != None && m.Name != "Enrol" {
			t.Errorf("%s is open to everybody", m.FullName())
		}
		if m.Grant(RemoteRoot) != None && m.SideEffects && m.Name != "Enrol" {
			t.Errorf("%s has side effects and is open to root of other machines", m.FullName())
		}
		for _, role := range Roles() {
			if grant := m.Grant(role); (grant == Limited || grant == Here) && m.Note == "" {
				t.Errorf("%s: %s is limited, and nothing says to what", m.FullName(), role)
			}
		}
	}
}

// TestRoles: what each channel makes of its caller.
func TestRoles(t *testing.T) {
	door := Door{Self: 900, Standing: users}
	for _, c := range []struct {
		id   identity.Identity
		want Role
	}{
		{identity.Nameless(), Anonymous},
		{identity.Identity{Kind: identity.LocalUser, UID: 1000, User: "ada"}, User},
		{identity.Identity{Kind: identity.LocalUser, UID: 1000, User: "ops"}, Operator},
		{identity.Identity{Kind: identity.LocalUser, UID: 1000, User: "head"}, Coordinator},
		{identity.Identity{Kind: identity.LocalUser, UID: 0, User: "ada"}, Root},
		{identity.Identity{Kind: identity.LocalUser, UID: 900}, Root},
		{identity.Identity{Kind: identity.AttestedUser, UID: 1000, User: "boss", By: identity.Login}, Administrator},
		{identity.Identity{Kind: identity.AttestedUser, UID: 1000, User: "boss", By: identity.Agent}, User},
		{identity.Identity{Kind: identity.AttestedUser, UID: 900, User: "self", By: identity.Login}, User},
		{identity.Identity{Kind: identity.AttestedUser, UID: identity.Nobody, Squashed: true, By: identity.Login}, RemoteRoot},
		{identity.Identity{Kind: identity.Admin, UID: identity.NoID, User: "ops"}, Root},
		{identity.Identity{Kind: identity.AttestedUser, UID: 1000, User: "boss", Paper: identity.Paper{Scope: "pods"}}, Connector},
		{identity.Identity{Kind: identity.Admin, UID: identity.NoID, User: "root", Paper: identity.Paper{Scope: "pods"}}, Connector},
		{identity.Identity{Kind: identity.Admin, UID: identity.NoID, User: "root", Paper: identity.Paper{Scope: "later"}}, Anonymous},
		{identity.Identity{Kind: identity.Agent, UID: identity.NoID, Node: "n1"}, Node},
		{identity.Identity{Kind: identity.Login, UID: identity.NoID, Node: "l1"}, LoginHost},
		{identity.Identity{Kind: identity.Controller, UID: identity.NoID, Node: "c2"}, Controller},
	} {
		if got := door.Role(c.id); got != c.want {
			t.Errorf("%s is %s, want %s", c.id, got, c.want)
		}
	}
}

// TestDoorFollowsTable: the door refuses exactly what the table does not grant.
func TestDoorFollowsTable(t *testing.T) {
	door := Door{Self: 900, Standing: users}
	here := map[Role]identity.Identity{
		Anonymous:     identity.Nameless(),
		RemoteRoot:    {Kind: identity.AttestedUser, UID: identity.Nobody, Squashed: true, By: identity.Login, Node: "l1"},
		User:          {Kind: identity.LocalUser, UID: 1000, User: "ada"},
		Coordinator:   {Kind: identity.LocalUser, UID: 1001, User: "head"},
		Operator:      {Kind: identity.LocalUser, UID: 1002, User: "ops"},
		Administrator: {Kind: identity.LocalUser, UID: 1003, User: "boss"},
		Root:          {Kind: identity.LocalUser, UID: 0},
		Node:          {Kind: identity.Agent, UID: identity.NoID, Node: "n1"},
		LoginHost:     {Kind: identity.Login, UID: identity.NoID, Node: "l1"},
		Controller:    {Kind: identity.Controller, UID: identity.NoID, Node: "c2"},
	}
	for _, m := range Methods() {
		for role, id := range here {
			err := door.Admit(id, m.FullName())
			if open := err == nil; open != (m.Grant(role) != None) {
				t.Errorf("%s as %s: %v, the table says %s", m.FullName(), role, err, m.Grant(role))
			}
			if err != nil && spec.CodeOf(err) != spec.CodeAccessDenied {
				t.Errorf("%s as %s: %v", m.FullName(), role, err)
			}
		}
		elsewhere := identity.Identity{Kind: identity.AttestedUser, UID: 1003, User: "boss", By: identity.Login, Node: "l1"}
		err := door.Admit(elsewhere, m.FullName())
		want := m.Grant(Administrator) != None && m.Grant(Administrator) != Here
		if (err == nil) != want {
			t.Errorf("%s as an administrator on a login host: %v", m.FullName(), err)
		}
	}
	if door.Admit(here[Root], "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo") == nil {
		t.Error("a method without a row is open")
	}
}

// TestNodeSpeaksForItself: samples of another node are refused.
func TestNodeSpeaksForItself(t *testing.T) {
	agent := identity.With(t.Context(), identity.Identity{Kind: identity.Agent, UID: identity.NoID, Node: "n1"})
	if err := SpeaksForNode(agent, "n1"); err != nil {
		t.Error(err)
	}
	if SpeaksForNode(agent, "n2") == nil {
		t.Error("an agent hands in the samples of another node")
	}
}

// TestRefusalsNameWhoMay: a user reads who may do it, and no method of the API.
func TestRefusalsNameWhoMay(t *testing.T) {
	door := Door{Self: 900, Standing: users}
	ada := identity.Identity{Kind: identity.LocalUser, UID: 1000, User: "ada"}
	for method, want := range map[string]string{
		"Cluster/UpdateNode":   "only administrators may do this, not user ada (uid 1000)",
		"Cluster/Transactions": "only operators and administrators may do this, not user ada (uid 1000)",
		"Cluster/ChangePolicy": "only coordinators, operators and administrators may do this, not user ada (uid 1000)",
	} {
		err := door.Admit(ada, servicePrefix+method)
		if err == nil || err.Error() != "Access/permission denied: "+want {
			t.Errorf("%s: %v, want %s", method, err, want)
		}
	}
	for _, m := range Methods() {
		if err := door.Admit(ada, m.FullName()); err != nil && strings.Contains(err.Error(), m.Name) {
			t.Errorf("%s: %v", m.FullName(), err)
		}
	}
}
