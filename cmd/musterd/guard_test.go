package main

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/internal/transport/identity"
)

// looks tells the methods that change nothing by their names, for comparison
// with what their descriptions say.
func looks(method string) bool {
	for _, begin := range []string{"List", "Get", "Stream", "Why", "Watch", "Ping", "Diag", "Shares", "LimitUsage", "Priorities", "Transactions", "StepUsage"} {
		if strings.HasPrefix(method, begin) {
			return true
		}
	}
	return slices.Contains([]string{"JobRows", "Report", "Reasons", "JobReport", "GpuHistory", "Status", "Scripts", "Advise", "Jobs"}, method)
}

// Every method of every service, and who comes through the first door.
func TestFirstDoor(t *testing.T) {
	const self = 900
	parties := map[string]identity.Identity{
		"anonymous":  identity.Nameless(),
		"user":       {Kind: identity.LocalUser, UID: 1000},
		"self":       {Kind: identity.LocalUser, UID: self},
		"root":       {Kind: identity.LocalUser},
		"attested":   {Kind: identity.AttestedUser, UID: 1000, Node: "n1"},
		"squashed":   {Kind: identity.AttestedUser, UID: identity.Nobody, Squashed: true, Node: "l1"},
		"agent":      {Kind: identity.Agent, UID: identity.NoID, Node: "n1"},
		"login":      {Kind: identity.Login, UID: identity.NoID, Node: "l1"},
		"controller": {Kind: identity.Controller, UID: identity.NoID, Node: "c2"},
		"admin":      {Kind: identity.Admin, UID: identity.NoID, User: "ops"},
	}
	users := []string{"user", "self", "root", "attested", "admin"}
	want := map[string][]string{
		"muster.v1.Cluster": users, "muster.v1.Accounting": users, "muster.v1.Shell": users,
		"muster.v1.Agents": {"agent", "self", "root", "admin"},
		"muster.v1.Ledger": {"controller", "self", "root", "admin"},
	}
	seen := 0
	for _, desc := range []grpc.ServiceDesc{service.Cluster_ServiceDesc, service.Agents_ServiceDesc, service.Ledger_ServiceDesc, service.Accounting_ServiceDesc, service.Shell_ServiceDesc} {
		var methods []string
		for _, m := range desc.Methods {
			methods = append(methods, m.MethodName)
		}
		for _, m := range desc.Streams {
			methods = append(methods, m.StreamName)
		}
		for _, m := range methods {
			full := "/" + desc.ServiceName + "/" + m
			for name, id := range parties {
				open := m == "Enrol" || (m == "Ping" && name == "controller") || (m == "Renew" && name == "login")
				if name == "squashed" { // root of another machine looks, and changes nothing
					open = looks(m) && desc.ServiceName != "muster.v1.Agents" && desc.ServiceName != "muster.v1.Ledger"
				}
				allowed := want[desc.ServiceName]
				if m == "PutGpuSamples" {
					allowed = want["muster.v1.Agents"]
				}
				for _, w := range allowed {
					open = open || w == name
				}
				if got := mayCall(full, id, self); got != open {
					t.Errorf("%s calls %s: %v, want %v", name, full, got, open)
				}
				seen++
			}
		}
	}
	if seen < 9*20 {
		t.Errorf("only %d cases", seen)
	}
	if mayCall("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", parties["root"], self) {
		t.Error("a service nobody named is open")
	}
}

// An administrator's certificate proves no uid: nothing runs as root for it.
func TestAdminCertificateIsNoRoot(t *testing.T) {
	c := caller(900)(identity.With(t.Context(), identity.Identity{Kind: identity.Admin, UID: identity.NoID, User: "ops"}))
	if !c.Admin || !c.NoUID || c.UID == 0 {
		t.Errorf("%+v", c)
	}
	if a := caller(900)(identity.With(t.Context(), identity.Identity{Kind: identity.Agent, UID: identity.NoID, Node: "n1"})); a.User != "" || a.Admin {
		t.Errorf("an agent is a user: %+v", a)
	}
}

// TestAgentsSpeakForTheirOwnNode: samples of another node are refused.
func TestAgentsSpeakForTheirOwnNode(t *testing.T) {
	agent := identity.With(t.Context(), identity.Identity{Kind: identity.Agent, UID: identity.NoID, Node: "n1"})
	if err := mayPut(agent, "n1"); err != nil {
		t.Error(err)
	}
	if err := mayPut(agent, "n2"); err == nil {
		t.Error("an agent hands in another's samples")
	}
}
