package daemon

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// hostTokens makes tokens that say what they are for.
type hostTokens struct{ Access }

func (hostTokens) NewToken(node string, login bool, _ spec.Instant) (string, spec.Hash, error) {
	if login {
		return "login " + node, spec.Hash{1}, nil
	}
	return "node " + node, spec.Hash{2}, nil
}

// commit writes events as they are.
func (w *world) commit(events ...event.Event) {
	w.t.Helper()
	if rep := w.c.writer.commitCommand(w.t.Context(), &request{cmd: scheduler.Policy{Events: events}}); rep.err != nil {
		w.t.Fatal(rep.err)
	}
}

// TestMachinesWord: what a user may do depends on what vouches for him. An
// administrator is one on a login host, and a plain user on a compute node; machines
// are let in and sent away on the controller's host alone.
func TestMachinesWord(t *testing.T) {
	w := start(t)
	w.c.deps.Access = hostTokens{w.c.deps.Access}
	w.commit(&event.UserPut{User: spec.User{Name: "ops", AdminLevel: "Administrator"}})
	ops := Caller{UID: 1001, GID: 1001, User: "ops"}
	there, compute := ops, ops
	there.Host, compute.Host, compute.Limited = "l1", "n1", true
	root := Caller{User: "root", Admin: true}
	tls := Caller{User: "boss", Admin: true, NoUID: true, Host: "tls"}
	for _, x := range []struct {
		who           Caller
		name          string
		drain, tokens bool
		own           bool // a token of his own for REST
	}{
		{root, "root", true, true, false}, {tls, "an administrator's certificate", true, true, false}, {ops, "an administrator by level", true, true, true},
		{there, "an administrator on a login host", true, false, true}, {compute, "an administrator in a job", false, false, false},
	} {
		w.as(x.who)
		_, err := w.svc.UpdateNode(t.Context(), &apiv1.UpdateNodeRequest{Nodes: "n1", State: "DRAIN", Reason: "test"})
		if got := spec.CodeOf(err) != spec.CodeAccessDenied; got != x.drain {
			t.Errorf("%s drains a node: %v", x.name, err)
		}
		for _, login := range []bool{false, true} {
			rep, err := w.svc.CreateToken(t.Context(), &apiv1.CreateTokenRequest{Node: "n1", Login: login})
			if got := spec.CodeOf(err) != spec.CodeAccessDenied; got != x.tokens || got && strings.HasPrefix(rep.GetToken(), "login") != login {
				t.Errorf("%s makes a token: %q, %v", x.name, rep.GetToken(), err)
			}
		}
		if _, err := w.svc.RevokeHost(t.Context(), &apiv1.RevokeHostRequest{Name: "nobody"}); (spec.CodeOf(err) != spec.CodeAccessDenied) != x.tokens {
			t.Errorf("%s revokes: %v", x.name, err)
		}
		if x.who.Limited {
			if _, err := w.svc.CreateUserToken(t.Context(), &apiv1.CreateUserTokenRequest{}); spec.CodeOf(err) != spec.CodeAccessDenied {
				t.Errorf("%s gets a token that outlives the job: %v", x.name, err)
			}
		}
	}
}

// TestRevokeHost: a machine's certificates end, of both roles or of one, expired
// ones too, whose connections may last; what is connected is told of.
func TestRevokeHost(t *testing.T) {
	w := start(t)
	far := w.c.deps.Clock.Now().Add(spec.Day)
	w.commit(&event.CertificateIssued{Serial: "a1", Role: roleAgent, Name: "n1", Expires: far}, &event.CertificateIssued{Serial: "a2", Role: roleAgent, Name: "n1", Expires: 1},
		&event.CertificateIssued{Serial: "b1", Role: roleLogin, Name: "n1", Expires: far}, &event.CertificateIssued{Serial: "c1", Role: roleLogin, Name: "l1", Expires: far})
	w.as(Caller{User: "root", Admin: true})
	var cut []string
	w.c.deps.Revoked = func(name, role string) { cut = append(cut, name+"/"+role) }
	revoke := func(name, role string) (string, error) {
		rep, err := w.svc.RevokeHost(t.Context(), &apiv1.RevokeHostRequest{Name: name, Role: role, Reason: "test"})
		var got []string
		for _, h := range rep.GetHosts() {
			got = append(got, h.GetSerial())
		}
		slices.Sort(got)
		return strings.Join(got, " "), err
	}
	if got, err := revoke("n1", roleLogin); got != "b1" || err != nil {
		t.Errorf("one role: %q, %v", got, err)
	}
	if got, err := revoke("n1", ""); got != "a1 a2" || err != nil {
		t.Errorf("what is left: %q, %v", got, err)
	}
	for _, x := range [][2]string{{"n1", ""}, {"n9", ""}, {"l1", "controller"}} {
		if got, err := revoke(x[0], x[1]); err == nil {
			t.Errorf("%v: %q", x, got)
		}
	}
	if strings.Join(cut, " ") != "n1/login n1/" {
		t.Errorf("cut are %v", cut)
	}
	list, err := w.svc.ListHosts(t.Context(), &apiv1.ListHostsRequest{})
	if err != nil || len(list.GetHosts()) != 3 {
		t.Fatalf("%v, %v", list, err)
	}
	for _, h := range list.GetHosts() {
		if h.GetRevoked() != (h.GetSerial() != "c1") {
			t.Errorf("%v", h)
		}
	}
}

// TestAgentsLearnOfRevocations: an agent is told of certificates that hold no more
// when it connects and when one is revoked; those that have expired are forgotten
// when the next one is made out.
func TestAgentsLearnOfRevocations(t *testing.T) {
	w := start(t)
	far := w.c.deps.Clock.Now().Add(spec.Day)
	w.commit(&event.CertificateIssued{Serial: "a1", Role: roleAgent, Name: "n9", Expires: far}, &event.CertificateIssued{Serial: "a2", Role: roleAgent, Name: "n9", Expires: 1},
		&event.CertificateIssued{Serial: "b1", Role: roleLogin, Name: "l1", Expires: far})
	w.as(Caller{User: "root", Admin: true})
	if _, err := w.svc.RevokeHost(t.Context(), &apiv1.RevokeHostRequest{Name: "n9"}); err != nil {
		t.Fatal(err)
	}
	s, _ := w.connect("n1")
	if got := (<-s.out).GetWelcome().GetRevoked().GetSerials(); !slices.Equal(got, []string{"a1"}) {
		t.Errorf("at first it learns of %v", got)
	}
	w.as(Caller{User: "root", Admin: true})
	if _, err := w.svc.RevokeHost(t.Context(), &apiv1.RevokeHostRequest{Name: "l1"}); err != nil {
		t.Fatal(err)
	}
	for m := range s.out {
		if r := m.GetRevoked(); r != nil {
			if !slices.Equal(r.GetSerials(), []string{"a1", "b1"}) {
				t.Errorf("then it learns of %v", r)
			}
			break
		}
	}
	if err := w.c.recordCertificate(t.Context(), Certificate{Serial: "c1", Role: roleAgent, Name: "n1", Expires: far, By: "c0"}, spec.Hash{}); err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, x := range w.c.View().State.Access.Certs {
		left = append(left, x.Serial)
	}
	if !slices.Equal(left, []string{"a1", "b1", "c1"}) {
		t.Errorf("the book has %v", left)
	}
}

// countedAccess has another key whenever it is asked to.
type countedAccess struct {
	Access
	key *atomic.Int32
}

func (a countedAccess) Keys() [][]byte { return [][]byte{{byte(a.key.Load())}} }

// TestAgentsLearnOfKeys: the controller sends changed signing keys to agents that are
// connected, and its welcome has them for agents that connect later.
func TestAgentsLearnOfKeys(t *testing.T) {
	w := start(t)
	var key atomic.Int32
	w.c.deps.Access = countedAccess{w.c.deps.Access, &key}
	s, _ := w.connect("n1")
	if got := (<-s.out).GetWelcome().GetCredentialKeys(); len(got) != 1 || got[0][0] != 0 {
		t.Errorf("at first it learns of %v", got)
	}
	key.Store(1)
	w.c.KeysChanged()
	for m := range s.out {
		if k := m.GetKeys(); k != nil {
			if len(k.GetKeys()) != 1 || k.GetKeys()[0][0] != 1 {
				t.Errorf("then it learns of %v", k)
			}
			break
		}
	}
}
