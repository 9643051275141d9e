package render

import (
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tree"
)

// SmallDocument is the list of an entity of few columns, for which Slurm has no schema. ok is
// false for an entity that has one, or that cannot be shown.
func (s *PolicyView) SmallDocument(what string) (member tree.Member, ok bool) {
	switch what {
	case "resource":
		list := tree.List{}
		for _, resource := range s.Policy.GetResources() {
			if s.Named(resource.GetName()) {
				list = append(list, s.resourceTree(resource))
			}
		}
		return tree.Member{Key: "resources", Value: list}, true
	case "problem":
		list := tree.List{}
		for _, problem := range s.findProblems() {
			list = append(list, tree.Object{
				{Key: "cluster", Value: s.Policy.GetCluster()},
				{Key: "account", Value: problem.account},
				{Key: "user", Value: problem.user},
				{Key: "problem", Value: problem.text},
			})
		}
		return tree.Member{Key: "problems", Value: list}, true
	case "federation": // there is none
		return tree.Member{Key: "federations", Value: tree.List{}}, true
	}
	return tree.Member{}, false
}

// resourceTree is one licence that accounting keeps.
func (s *PolicyView) resourceTree(resource *apiv1.Resource) tree.Object {
	return tree.Object{
		{Key: "name", Value: resource.GetName()},
		{Key: "server", Value: resource.GetServer()},
		{Key: "server_type", Value: resource.GetServerType()},
		{Key: "type", Value: resource.GetType()},
		{Key: "count", Value: resource.GetCount()},
		{Key: "last_consumed", Value: resource.GetLastConsumed()},
		{Key: "description", Value: resource.GetDescription()},
		{Key: "manager", Value: resource.GetManager()},
		{Key: "absolute", Value: resource.GetAbsolute()},
		{
			Key: "clusters",
			Value: tree.List{tree.Object{
				{Key: "name", Value: s.Policy.GetCluster()},
				{Key: "allowed", Value: resource.GetAllowed()},
			}},
		},
	}
}

// problem is what keeps an account or a user from being used.
type problem struct{ account, user, text string }

// findProblems are the accounts without users and the users without associations.
func (s *PolicyView) findProblems() []problem {
	var problems []problem
	for _, account := range s.Policy.GetAccounts() {
		used := false
		for _, as := range s.Policy.GetAssociations() {
			holder := as.GetAccount()
			if as.GetUser() == "" { // an account uses the one above it
				holder = s.ByID(as.GetParent()).GetAccount()
			}
			used = used || holder == account.GetName()
		}
		if !used {
			problems = append(problems, problem{account.GetName(), "", "Account has no users"})
		}
	}
	for _, user := range s.Policy.GetUsers() {
		used := false
		for _, as := range s.Policy.GetAssociations() {
			used = used || as.GetUser() == user.GetName()
		}
		if !used {
			problems = append(problems, problem{"", user.GetName(), "User has no associations"})
		}
	}
	return problems
}
