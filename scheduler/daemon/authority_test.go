package daemon

import (
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// authorityWorld is a controller with an operator, two administrators and a
// plain user, of whom none is root.
func authorityWorld(t *testing.T) *world {
	w := start(t)
	w.c.deps.Access = hostTokens{w.c.deps.Access}
	w.commit(
		&event.UserPut{User: spec.User{Name: "ops", AdminLevel: "Operator"}},
		&event.UserPut{User: spec.User{Name: "boss", AdminLevel: "Administrator"}},
		&event.UserPut{User: spec.User{Name: "chief", AdminLevel: "Administrator"}},
		&event.UserPut{User: spec.User{Name: "plain"}},
	)
	return w
}

func operatorCaller() Caller      { return Caller{UID: 1001, GID: 1001, User: "ops"} }
func administratorCaller() Caller { return Caller{UID: 1002, GID: 1002, User: "boss"} }

// TestOperatorCannotRise tries every call by which an operator could end up with
// more than he has: a level, a machine that vouches for everybody, a token of
// another user, the controller itself and its configuration. An administrator,
// who has all of that, must not be refused.
func TestOperatorCannotRise(t *testing.T) {
	w := authorityWorld(t)
	w.c.deps.Shutdown = func() {}
	policy := func(verb apiv1.PolicyChangeRequest_Verb, set ...*apiv1.ConfigEntry) func() error {
		return func() error {
			where := []*apiv1.ConfigEntry{{Key: "name", Value: "plain"}}
			req := &apiv1.PolicyChangeRequest{Verb: verb, Entity: "user", Where: where, Set: set, Try: true}
			_, err := w.svc.ChangePolicy(t.Context(), req)
			return err
		}
	}
	level := func(to string) *apiv1.ConfigEntry { return &apiv1.ConfigEntry{Key: "adminlevel", Value: to} }
	calls := map[string]func() error{
		"grants Administrator": policy(apiv1.PolicyChangeRequest_MODIFY, level("Administrator")),
		"grants Operator":      policy(apiv1.PolicyChangeRequest_MODIFY, level("Operator")),
		"deletes an administrator": func() error {
			req := &apiv1.PolicyChangeRequest{Verb: apiv1.PolicyChangeRequest_DELETE, Entity: "user", Names: []string{"chief"}, Try: true}
			_, err := w.svc.ChangePolicy(t.Context(), req)
			return err
		},
		"loads levels from a file": func() error {
			text := "Cluster - 'test'\nParent - 'root'\nUser - 'ops':DefaultAccount='root':AdminLevel='Administrator'\n"
			req := &apiv1.PolicyChangeRequest{Verb: apiv1.PolicyChangeRequest_LOAD, Text: text, Try: true}
			_, err := w.svc.ChangePolicy(t.Context(), req)
			return err
		},
		"enrols a login host": func() error {
			_, err := w.svc.CreateToken(t.Context(), &apiv1.CreateTokenRequest{Node: "l1", Login: true})
			return err
		},
		"revokes a machine": func() error {
			_, err := w.svc.RevokeHost(t.Context(), &apiv1.RevokeHostRequest{Name: "l1"})
			return err
		},
		"gets a token of another user": func() error {
			_, err := w.svc.CreateUserToken(t.Context(), &apiv1.CreateUserTokenRequest{User: "plain"})
			return err
		},
		"shuts the controller down": func() error {
			_, err := w.svc.Shutdown(t.Context(), &apiv1.ShutdownRequest{})
			return err
		},
		"drains a node": func() error {
			_, err := w.svc.UpdateNode(t.Context(), &apiv1.UpdateNodeRequest{Nodes: "n1", State: "DRAIN", Reason: "test"})
			return err
		},
		"creates a node": func() error {
			_, err := w.svc.ChangeNodes(t.Context(), &apiv1.NodeChange{Create: "NodeName=x"})
			return err
		},
		"changes a partition": func() error {
			_, err := w.svc.ChangePartition(t.Context(), &apiv1.PartitionChange{Name: "nowhere"})
			return err
		},
		"reboots nodes for a job": func() error {
			return w.svc.mayAsk(w.c.deps.Identify(t.Context()), &spec.JobSpec{Queue: spec.QueueAsk{Reboot: true}})
		},
	}
	for name, call := range calls {
		w.as(operatorCaller())
		if err := call(); spec.CodeOf(err) != spec.CodeAccessDenied {
			t.Errorf("an operator %s: %v", name, err)
		}
		w.as(administratorCaller())
		if err := call(); spec.CodeOf(err) == spec.CodeAccessDenied {
			t.Errorf("an administrator is refused what an operator may not (%s): %v", name, err)
		}
	}
}

// TestOperatorKeepsHisOwn: what Slurm gives operators they still have.
func TestOperatorKeepsHisOwn(t *testing.T) {
	w := authorityWorld(t)
	w.as(operatorCaller())
	if err := w.svc.mayAsk(w.c.deps.Identify(t.Context()), &spec.JobSpec{Queue: spec.QueueAsk{Nice: -1, Priority: 7}}); err != nil {
		t.Errorf("priority and nice: %v", err)
	}
	add := &apiv1.PolicyChangeRequest{Verb: apiv1.PolicyChangeRequest_ADD, Entity: "account", Names: []string{"physics"}}
	if _, err := w.svc.ChangePolicy(t.Context(), add); err != nil {
		t.Errorf("an account: %v", err)
	}
	resv := &apiv1.ReservationChange{Verb: apiv1.ReservationChange_CREATE}
	if _, err := w.svc.ChangeReservation(t.Context(), resv); spec.CodeOf(err) == spec.CodeAccessDenied {
		t.Errorf("a reservation: %v", err)
	}
}

// TestSerialsAreForAdministrators: users see which machines there are, and not
// the serial numbers of their certificates.
func TestSerialsAreForAdministrators(t *testing.T) {
	w := authorityWorld(t)
	w.commit(&event.CertificateIssued{Serial: "a1", Role: roleLogin, Name: "l1", Expires: w.c.deps.Clock.Now().Add(spec.Day)})
	for _, c := range []struct {
		who  Caller
		want string
	}{{operatorCaller(), ""}, {administratorCaller(), "a1"}} {
		w.as(c.who)
		list, err := w.svc.ListHosts(t.Context(), &apiv1.ListHostsRequest{})
		if err != nil || len(list.GetHosts()) != 1 || list.GetHosts()[0].GetSerial() != c.want {
			t.Errorf("%s sees %v, %v", c.who.User, list, err)
		}
	}
}
