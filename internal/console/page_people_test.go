package console

import (
	"strings"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/internal/transport/authz"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/spec"
)

func gpus(n int64) []*apiv1.NamedCount {
	return []*apiv1.NamedCount{{Name: "gres/gpu", N: n}}
}

// hostileName is what a page must show as text, within its own place.
func hostileName() string { return "<script>alert(1)</script>\u202e" + strings.Repeat("x", 1000) }

// fewPeople is account ml with user, who uses 3 of its 4 GPUs, and with a user
// who has a hostile name.
func fewPeople() *apiv1.LimitUsageReply {
	policy := &apiv1.PolicyReply{
		Qos:   []*apiv1.Qos{{Id: 1, Name: "normal", MaxTresPerUser: gpus(2)}, {Id: 2, Name: "secret", MaxTresPerUser: gpus(77)}},
		Users: []*apiv1.AccountingUser{{Name: "user", DefaultAccount: "ml"}},
		Associations: []*apiv1.Association{
			{Id: 1, Account: "root", Qos: []string{"normal"}},
			{Id: 2, Account: "ml", Parent: 1, GrpTres: gpus(4)},
			{Id: 3, Account: "ml", User: "user", Parent: 2, MaxJobs: &apiv1.OptionalInt{Value: 10}},
			{Id: 4, Account: "ml", User: hostileName(), Parent: 2},
		},
	}
	shares := &apiv1.SharesReply{User: "user", Shares: []*apiv1.Share{
		{Assoc: 1, Account: "root"}, {Assoc: 2, Parent: 1, Depth: 1, Account: "ml", RawShares: 5},
		{Assoc: 3, Parent: 2, Depth: 2, Account: "ml", User: "user", RawShares: 1}, {Assoc: 4, Parent: 2, Depth: 2, Account: "ml", User: hostileName(), SharesParent: true},
	}}
	return &apiv1.LimitUsageReply{Policy: policy, Shares: shares, Usage: []*apiv1.LimitUsage{
		{Kind: apiv1.LimitUsage_ASSOCIATION, Subject: 2, Running: 3, Tres: gpus(3)},
		{Kind: apiv1.LimitUsage_ASSOCIATION, Subject: 3, Running: 1, Submitted: 2},
		{Kind: apiv1.LimitUsage_QOS_USER, Qos: 1, Subject: 1000, Tres: gpus(2)},
		{Kind: apiv1.LimitUsage_QOS_USER, Qos: 1, Subject: 1001, Tres: gpus(1)},
	}}
}

// TestOwnLimits: what a visitor may still use is compared by his own counters
// and those of the accounts above him, in the QOS that he may use, the tightest
// limit first.
func TestOwnLimits(t *testing.T) {
	places := newPeople(fewPeople(), 1000).own()
	if len(places) != 1 || !places[0].Default || places[0].QOS != "normal" {
		t.Fatalf("the visitor has %+v", places)
	}
	var got []string
	for _, l := range places[0].Limits {
		got = append(got, l.Key+" of "+l.Of+": "+l.Used+"/"+l.Limit+", "+l.Left)
	}
	want := []string{"MaxTRESPerUser gres/gpu of QOS normal: 2/2, 0", "GrpTRES gres/gpu of account ml: 3/4, 1", "MaxJobs of user user: 1/10, 9"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("limits\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, l := range newPeople(fewPeople(), identity.NoID).own()[0].Limits {
		if strings.HasPrefix(l.Key, "MaxTRESPerUser") && (l.Used != "" || l.Left != "" || l.Limit != "gres/gpu=2") {
			t.Errorf("a visitor without a uid is told what he used: %+v", l)
		}
	}
	if other := newPeople(fewPeople(), 1001).own()[0].Limits; other[0].Key == "MaxTRESPerUser gres/gpu" {
		t.Errorf("another user's counter decides: %+v", other[0])
	}
}

// TestPeopleShowOneselfFirst: users are listed where they are asked for, as
// sshare does, a name is text, and what the service refuses is not shown.
func TestPeopleShowOneselfFirst(t *testing.T) {
	api := answers{tool.MethodLimitUsage: fewPeople()}
	c := smallConsole(t, api, 1000, authz.User)
	page := pageText(t, c, "/people")
	if strings.Contains(page, "alert(1)") || !strings.Contains(page, ">user</bdi>") {
		t.Errorf("the page of accounts lists other users, or not the visitor:\n%s", page)
	}
	page = pageText(t, c, "/people?all=1")
	if !strings.Contains(page, "&lt;script&gt;alert(1)") || strings.Contains(page, "<script>alert") {
		t.Errorf("a name is not text:\n%s", page)
	}
	for value, loose := range map[string]bool{"associations": true, "": true, "associations,limits": false, "Safe": false} {
		api[tool.MethodGetConfig] = &apiv1.GetConfigReply{Entries: []*apiv1.ConfigEntry{{Key: "AccountingStorageEnforce", Value: value}}}
		if page = pageText(t, c, "/people"); strings.Contains(page, "does not enforce limits") != loose {
			t.Errorf("AccountingStorageEnforce=%s is not taken into account", value)
		}
	}
	if page = pageText(t, c, "/people?q=nobody"); !strings.Contains(page, "No account or user fits.") {
		t.Error("the filter does not filter")
	}
	if page = pageText(t, c, "/people/budgets"); !strings.Contains(page, "Nothing to show") {
		t.Errorf("a refusal is not explained:\n%s", page)
	}
	if err := failure(spec.Refuse(spec.CodeAccessDenied, "")); err.status != 403 {
		t.Errorf("a refusal answers %d", err.status)
	}
}

// TestBudgets: how an account's money stands.
func TestBudgets(t *testing.T) {
	money := func(n float64) *apiv1.Cell { return &apiv1.Cell{Kind: &apiv1.Cell_Float{Float: n}} }
	whole := func(n int64) *apiv1.Cell { return &apiv1.Cell{Kind: &apiv1.Cell_Int{Int: n}} }
	none := &apiv1.Cell{Kind: &apiv1.Cell_Null{Null: true}}
	report := &apiv1.ReportReply{Rows: []*apiv1.ReportRow{{Cells: []*apiv1.Cell{{Kind: &apiv1.Cell_Text{Text: "ml"}}, whole(1), whole(2), money(1000), money(250), money(0.25), money(0.5), money(500),
		none, none, whole(1)}}}}
	for range 11 {
		report.Columns = append(report.Columns, &apiv1.ReportColumn{Unit: "EUR"})
	}
	page := pageText(t, smallConsole(t, answers{tool.MethodAcctReport: report}, 1000, authz.User), "/people/budgets")
	for _, want := range []string{">ml</bdi>", "1,000.00 EUR", "250.00 EUR", "25.0 %", "jobs wait"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s:\n%s", want, page)
		}
	}
}
