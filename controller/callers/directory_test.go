package callers_test

import (
	"slices"
	"testing"
	"time"

	"github.com/musterhpc/muster/controller/callers"
	"github.com/musterhpc/muster/internal/transport/authz"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/limit"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/state/pmap"
	"github.com/musterhpc/muster/spec"
)

// beside is the list beside the certificates.
type beside []string

func (b beside) Revoked(serial string) bool { return slices.Contains(b, serial) }

// nothing is the state of a process that has none.
func nothing() *state.State { return nil }

// TestDirectoryWithoutState: a process without a state lets nobody be more than a user, knows no
// jobs, and hears of revoked certificates from its controller.
func TestDirectoryWithoutState(t *testing.T) {
	d := callers.Directory{Leading: nothing, Known: nothing}
	if _, ok := d.JobThere("n1", identity.Attestation{UID: 1}); ok {
		t.Error("it knows a job")
	}
	if got := d.StandingOf("root"); got != authz.User {
		t.Errorf("root is %v", got)
	}
	if got := d.CallRate(); got != (limit.RateConfig{}) {
		t.Errorf("the rate is %+v", got)
	}
	if got := d.ListRevoked(); got != nil {
		t.Errorf("revoked: %v", got)
	}
	source := beside{"foreign"}
	if d.IsRevoked(source)("a") {
		t.Error("a certificate of which nobody told is revoked")
	}
	d.SentAway = func(serial string) bool { return serial == "a" }
	if !d.IsRevoked(source)("a") || d.IsRevoked(source)("b") {
		t.Error("it does not follow what its controller says")
	}
}

// TestDirectory: what a controller knows by its state, which a standby knows only in part.
func TestDirectory(t *testing.T) {
	st := state.New()
	later := spec.Instant(time.Now().Add(time.Hour).UnixNano())
	st.Access = &state.Access{Certs: []state.Cert{
		{Serial: "gone", Revoked: true, Expires: later},
		{Serial: "good", Expires: later},
		{Serial: "old", Revoked: true, Expires: 1},
	}}
	st.Config = &spec.Config{Rate: &spec.RateLimit{Bucket: 30, Refill: 2, Period: spec.Second, Users: 8}}
	known := func() *state.State { return st }
	d := callers.Directory{Leading: known, Known: known}
	if got := d.ListRevoked(); !slices.Equal(got, []string{"gone"}) {
		t.Errorf("revoked: %v", got)
	}
	want := limit.RateConfig{Enabled: true, Bucket: 30, Refill: 2, Period: time.Second, Users: 8}
	if got := d.CallRate(); got != want {
		t.Errorf("the rate is %+v", got)
	}
	standby := callers.Directory{Leading: nothing, Known: known}
	for serial, want := range map[string]bool{"gone": true, "old": true, "good": false, "other": false, "foreign": true} {
		for name, d := range map[string]callers.Directory{"leader": d, "standby": standby} {
			if got := d.IsRevoked(beside{"foreign"})(serial); got != want {
				t.Errorf("%s of a %s is revoked: %v", serial, name, got)
			}
		}
	}
	if got := standby.CallRate(); got != (limit.RateConfig{}) {
		t.Errorf("the rate of a standby is %+v", got)
	}
}

// TestJobThere: a user counts on a node with the group of a job of his there, with the one he shows
// if one of them has it, and without a job there not at all.
func TestJobThere(t *testing.T) {
	st := state.New()
	own := new(pmap.Owner)
	st.NodeIDs = map[string]spec.NodeID{"n1": 0, "n2": 1}
	st.Nodes.Set(own, 0, &state.Node{ID: 0, Jobs: []spec.JobUID{1, 2, 3, 9}}) // 9 is gone
	st.Nodes.Set(own, 1, &state.Node{ID: 1})
	for uid, job := range map[spec.JobUID]spec.JobSpec{
		1: {UID: 500, GID: 50},
		2: {UID: 600, GID: 60},
		3: {UID: 600, GID: 61},
	} {
		st.Jobs.Set(own, uint64(uid), &state.Job{UID: uid, Spec: &job})
	}
	known := func() *state.State { return st }
	d := callers.Directory{Leading: known, Known: known}
	for _, c := range []struct {
		node     string
		uid, gid uint32
		want     uint32
		ok       bool
	}{
		{"n1", 500, 50, 50, true},
		{"n1", 500, 0, 50, true},
		{"n1", 600, 61, 61, true},
		{"n1", 600, 50, 60, true},
		{"n1", 700, 50, 0, false},
		{"n2", 500, 50, 0, false},
		{"n3", 500, 50, 0, false},
	} {
		gid, ok := d.JobThere(c.node, identity.Attestation{UID: c.uid, GID: c.gid})
		if gid != c.want || ok != c.ok {
			t.Errorf("user %d with group %d on %s: %d, %v, want %d, %v", c.uid, c.gid, c.node, gid, ok, c.want, c.ok)
		}
	}
}

// TestStandingOf: users are what accounting makes of them, as long as a controller leads here.
func TestStandingOf(t *testing.T) {
	st := state.New()
	st.Policy = &state.Policy{
		Users: []spec.User{
			{Name: "ann", AdminLevel: "Administrator"},
			{Name: "bob", AdminLevel: "Operator"},
			{Name: "cy"},
		},
		Accounts: []spec.Account{{Name: "lab", Coordinators: []string{"cy"}}},
	}
	known := func() *state.State { return st }
	leader := callers.Directory{Leading: known, Known: known}
	standby := callers.Directory{Leading: nothing, Known: known}
	for name, want := range map[string]authz.Role{
		"ann": authz.Administrator,
		"bob": authz.Operator,
		"cy":  authz.Coordinator,
		"dan": authz.User,
	} {
		if got := leader.StandingOf(name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
		if got := standby.StandingOf(name); got != authz.User {
			t.Errorf("%s is %v at a standby", name, got)
		}
	}
}
