package acct

import (
	"strings"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

// TestAnnounce: what sacctmgr says before a change, compared with a real Slurm by
// make side-by-side (accounts). Columns are written with one blank here.
func TestAnnounce(t *testing.T) {
	have := &apiv1.PolicyReply{
		Cluster:  "c1",
		Accounts: []*apiv1.Account{{Name: "root"}, {Name: "ml", Parent: "root"}},
		Users:    []*apiv1.AccountingUser{{Name: "alice", DefaultAccount: "ml"}, {Name: "carol"}},
		Qos:      []*apiv1.Qos{{Id: 1, Name: "normal"}},
		Associations: []*apiv1.Association{
			{Account: "ml"}, {Account: "ml", User: "alice"},
			{Account: "ml", User: "carol"}, {Account: "ml", User: "carol", Partition: "debug"},
		},
	}
	for line, want := range map[string]string{
		"add account ml":                                                "",
		"add account ml,new":                                            "Adding Account(s)/new/Settings/Description = Account Name/Organization = Parent/Account Name/Associations/A = new C = c1",
		"add account a fairshare=5":                                     "Adding Account(s)/a/Settings/Description = Account Name/Organization = Parent/Account Name/Associations/A = a C = c1/Settings/Fairshare = 5/Parent = root",
		"add user alice account=ml":                                     "",
		"add user alice account=ml partition=debug":                     "Associations =/U = alice A = ml C = c1 P = debug/Non Default Settings",
		"add user bob account=ml maxwall=90":                            "Adding User(s)/bob/Associations =/U = bob A = ml C = c1/Non Default Settings/MaxWall = 01:30:00",
		"add user bob account=ml defaultaccount=ml adminlevel=operator": "Adding User(s)/bob/Settings =/Default Account = ml/Admin Level = operator/Associations =/U = bob A = ml C = c1/Non Default Settings",
		"add qos normal":                                                "",
		"add qos q priority=5":                                          "Adding QOS(s)/q/Settings/Description = q/Priority = 5",
		"modify account ml set maxjobs=3":                               "Modified account associations.../C = c1 A = ml of root",
		"modify account ml set description=x":                           "Modified accounts.../ml",
		"modify user alice set qos+=q":                                  "Modified user associations.../C = c1 A = ml U = alice",
		"modify user alice set adminlevel=none maxjobs=1":               "Modified users.../alice/Modified user associations.../C = c1 A = ml U = alice",
		"delete user alice":                                             "Deleting users.../alice",
		"delete user alice where account=ml":                            "Deleting user associations.../C = c1 A = ml U = alice",
		"delete user carol where account=ml partition=debug":            "Deleting user associations.../C = c1 A = ml U = carol P = debug",
		"delete qos normal":                                             "Deleting QOS(s).../normal",
		"add coordinator alice account=ml":                              "Adding Coordinator User(s)/alice/To Account(s) and all sub-accounts/ml",
	} {
		args := strings.Fields(line)
		verb, what := args[0], args[1]
		words := readWords(what, args[2:], verb == "add")
		req := &apiv1.PolicyChangeRequest{
			Entity: what,
			Names:  words.Names,
			Where:  words.Where,
			Set:    words.Set,
			Verb: map[string]apiv1.PolicyChangeRequest_Verb{
				"add":    apiv1.PolicyChangeRequest_ADD,
				"modify": apiv1.PolicyChangeRequest_MODIFY,
				"delete": apiv1.PolicyChangeRequest_DELETE,
			}[verb],
		}
		text, known := announce(req, have)
		var got []string
		for said := range strings.Lines(text) {
			got = append(got, strings.Join(strings.Fields(said), " "))
		}
		want = strings.ReplaceAll(want, "Parent/Account", "Parent|Account")
		if joined := strings.ReplaceAll(strings.Join(got, "/"), "Parent/Account", "Parent|Account"); !known || joined != want {
			t.Errorf("%s:\n%s\nwant\n%s", line, joined, want)
		}
	}
}

// TestAccountsWhereUser: accounts in which a user is named are that user's associations.
func TestAccountsWhereUser(t *testing.T) {
	for line, want := range map[string]string{
		"account ml where user=alice set maxjobs=5":   "user alice where account=ml",
		"account where users=alice,bob set maxjobs=5": "user alice,bob where",
		"account where name=ml set maxjobs=5":         "account ml where",
	} {
		words := readWords("account", strings.Fields(line)[1:], false)
		req := ofUsersInAccounts(&apiv1.PolicyChangeRequest{
			Verb:   apiv1.PolicyChangeRequest_MODIFY,
			Entity: "account", Names: words.Names, Where: words.Where, Set: words.Set,
		})
		got := req.GetEntity() + " " + strings.Join(req.GetNames(), ",") + " where"
		for _, e := range req.GetWhere() {
			got += " " + e.GetKey() + "=" + e.GetValue()
		}
		if got != want || len(req.GetSet()) != 1 {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
}

// TestWckeysAreAdded: a user who is known is not "nothing new" when a wckey comes.
func TestWckeysAreAdded(t *testing.T) {
	req := &apiv1.PolicyChangeRequest{Set: []*apiv1.ConfigEntry{{Key: "wckeys", Value: "w"}}}
	if !addsMore(req) {
		t.Error("a wckey is nothing new")
	}
}

// TestDefaultAccountIsAssociated: every user without an association with the new default account
// is named, and nobody else.
func TestDefaultAccountIsAssociated(t *testing.T) {
	have := &apiv1.PolicyReply{
		Cluster: "c1",
		Associations: []*apiv1.Association{
			{Account: "ml", User: "alice"}, {Account: "ml", User: "bob"}, {Account: "x", User: "bob"},
		},
	}
	req := &apiv1.PolicyChangeRequest{
		Entity: "user",
		Verb:   apiv1.PolicyChangeRequest_MODIFY,
		Names:  []string{"alice", "bob"},
		Set:    []*apiv1.ConfigEntry{{Key: "defaultaccount", Value: "x"}},
	}
	err := refuseDefaultAccount(req, have)
	if err == nil || !strings.Contains(err.Error(), "U = alice") ||
		strings.Contains(err.Error(), "U = bob") {
		t.Errorf("alice alone is without x: %v", err)
	}
	req.Set[0].Value = "ml"
	if err := refuseDefaultAccount(req, have); err != nil {
		t.Errorf("both have ml: %v", err)
	}
}

// TestUnknownKeysAreWordedAsSlurms: what cannot be set, and where it cannot be asked for.
func TestUnknownKeysAreWordedAsSlurms(t *testing.T) {
	req := &apiv1.PolicyChangeRequest{
		Verb:  apiv1.PolicyChangeRequest_MODIFY,
		Set:   []*apiv1.ConfigEntry{{Key: "nosuch", Value: "1"}},
		Where: []*apiv1.ConfigEntry{{Key: "other", Value: "2"}},
	}
	for want, unknown := range map[string]spec.Unknown{
		" Unknown option: nosuch=1":   {Kind: "option", Word: "nosuch", Of: "a qos"},
		" Unknown condition: other=2": {Kind: "condition", Word: "other", Of: "a user"},
		" Unknown option: nosuch=1\n Use keyword 'where' to modify condition\n Did you mean maxjobs?": {
			Kind: "option", Word: "nosuch", Of: "a user", Nearest: "maxjobs",
		},
	} {
		err := explainPolicy(req, spec.RefuseUnknown(unknown))
		if !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v is worded %q", unknown, err)
		}
	}
}
