package daemon

import (
	"context"
	"testing"

	"github.com/musterhpc/muster/accounting/query"
)

// TestLimitedCaller: whom a compute node vouches for sees his own rows, and what
// is private is kept from him, whatever the store says of him: it is not asked.
func TestLimitedCaller(t *testing.T) {
	d := &Daemon{}
	d.cfg.Identify = func(context.Context) Caller { return Caller{User: "ops", Limited: true} }
	d.cfg.Private, d.cfg.Operators = func(context.Context) []string { return []string{privateJobs} }, true
	v, err := d.viewerOf(t.Context(), query.Scope{})
	if err != nil || v.Admin || v.User != "ops" || len(v.Accounts) != 0 {
		t.Errorf("he sees as %+v, %v", v, err)
	}
	if hidden, err := d.private(t.Context(), query.Scope{}, privateJobs); err != nil || !hidden {
		t.Errorf("jobs are private: %v, %v", hidden, err)
	}
	var a query.Acct
	if err := d.restrictToOwn(t.Context(), query.Scope{}, &a); err != nil || len(a.Users) != 1 || a.Users[0] != "ops" {
		t.Errorf("he asks about %v, %v", a.Users, err)
	}
}
