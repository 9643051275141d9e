package render

import (
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
)

// TestInheritedLimits: an association shows the limits that are in force for its jobs, its own
// first; WOPLimits shows only its own.
func TestInheritedLimits(t *testing.T) {
	limit := func(name string, n int64) *apiv1.NamedCount { return &apiv1.NamedCount{Name: name, N: n} }
	for _, one := range []struct {
		bare []string
		want string
	}{
		{nil, "4 cpu=2,node=2"},
		{[]string{"woplimits"}, " cpu=2"},
	} {
		policy := &apiv1.PolicyReply{Associations: []*apiv1.Association{
			{Id: 1, Account: "root"},
			{Id: 2, Account: "ml", Parent: 1, MaxJobs: &apiv1.OptionalInt{Value: 4}, MaxWall: 60,
				MaxTresPerJob: []*apiv1.NamedCount{limit("cpu", 8), limit("node", 2)}},
			{Id: 3, Account: "ml", User: "alice", Parent: 2,
				MaxTresPerJob: []*apiv1.NamedCount{limit("cpu", 2)}},
		}}
		view := &PolicyView{Policy: policy, Words: PolicyWords{Bare: one.bare}}
		rows := view.TreeRows()
		shown := rows[len(rows)-1].Assoc
		if got := OptionalInt(shown.GetMaxJobs()) + " " + LimitsText(shown.GetMaxTresPerJob()); got != one.want {
			t.Errorf("%v: %q, want %q", one.bare, got, one.want)
		}
		if (shown.GetMaxWall() != 0) != (one.bare == nil) {
			t.Errorf("%v: a wall time of %d", one.bare, shown.GetMaxWall())
		}
	}
}

// TestTreeOrder: users come before accounts, each by name, whatever was added first; OnlyDefaults
// keeps the users with their default accounts.
func TestTreeOrder(t *testing.T) {
	policy := &apiv1.PolicyReply{
		Associations: []*apiv1.Association{
			{Id: 1, Account: "root"},
			{Id: 2, Account: "ml", Parent: 1},
			{Id: 3, Account: "ml", User: "bob", Parent: 2},
			{Id: 4, Account: "ai", Parent: 1},
			{Id: 5, Account: "ml", User: "alice", Parent: 2},
			{Id: 6, Account: "ai", User: "bob", Parent: 4},
		},
		Users: []*apiv1.AccountingUser{
			{Name: "alice", DefaultAccount: "ml"}, {Name: "bob", DefaultAccount: "ai"},
		},
	}
	for _, one := range []struct {
		bare []string
		want string
	}{
		{nil, "root/ ai/ ai/bob ml/ ml/alice ml/bob "},
		{[]string{"onlydefaults"}, "ai/bob ml/alice "},
	} {
		view := &PolicyView{Policy: policy, Words: PolicyWords{Bare: one.bare}}
		got := ""
		for _, row := range view.TreeRows() {
			got += row.Assoc.GetAccount() + "/" + row.Assoc.GetUser() + " "
		}
		if got != one.want {
			t.Errorf("%v: %q, want %q", one.bare, got, one.want)
		}
	}
}
