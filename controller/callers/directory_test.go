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
