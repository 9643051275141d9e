package acct

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec/format"
)

// change is what a change of accounts, users and QOS is about, as sacctmgr announces it.
// Scripts look for its lines, so their layout is Slurm's.
type change struct {
	req  *apiv1.PolicyChangeRequest
	have *apiv1.PolicyReply
	text strings.Builder
}

// announce says what is about to happen; empty where an addition adds nothing, or for the
// entities that have no words of their own.
func announce(
	request *apiv1.PolicyChangeRequest, have *apiv1.PolicyReply,
) (text string, known bool) {
	c := &change{req: request, have: have}
	say := map[string]map[apiv1.PolicyChangeRequest_Verb]func(){
		"account": {
			apiv1.PolicyChangeRequest_ADD:    c.addAccounts,
			apiv1.PolicyChangeRequest_MODIFY: c.modifyAccounts,
			apiv1.PolicyChangeRequest_DELETE: c.names(" Deleting accounts..."),
		},
		"user": {
			apiv1.PolicyChangeRequest_ADD:    c.addUsers,
			apiv1.PolicyChangeRequest_MODIFY: c.modifyUsers,
			apiv1.PolicyChangeRequest_DELETE: c.deleteUsers,
		},
		"qos": {
			apiv1.PolicyChangeRequest_ADD:    c.addQOS,
			apiv1.PolicyChangeRequest_MODIFY: c.names(" Modified qos..."),
			apiv1.PolicyChangeRequest_DELETE: c.names(" Deleting QOS(s)..."),
		},
		"coordinator": {
			apiv1.PolicyChangeRequest_ADD:    c.addCoordinators,
			apiv1.PolicyChangeRequest_DELETE: c.removeCoordinators,
		},
	}[request.GetEntity()][request.GetVerb()]
	if say == nil {
		return "", false
	}
	say()
	return c.text.String(), true
}

func (c *change) line(format string, args ...any) {
	fmt.Fprintf(&c.text, format+"\n", args...)
}

// names is a title with the names below it.
func (c *change) names(title string) func() {
	return func() { c.list(title, c.req.GetNames()) }
}

func (c *change) list(title string, names []string) {
	c.line("%s", title)
	for _, name := range names {
		c.line("  %s", render.Cell(name))
	}
}

// value is what is set for a key, by any of its names.
func (c *change) value(keys ...string) string {
	for _, entry := range c.req.GetSet() {
		if slices.Contains(keys, entry.GetKey()) {
			return entry.GetValue()
		}
	}
	return ""
}

// accounts are those named for users or coordinators.
func (c *change) accounts() []string {
	for _, list := range [][]*apiv1.ConfigEntry{c.req.GetSet(), c.req.GetWhere()} {
		for _, entry := range list {
			if slices.Contains([]string{"account", "accounts", "acct"}, entry.GetKey()) {
				return tool.SplitList(entry.GetValue())
			}
		}
	}
	return nil
}

func (c *change) addAccounts() {
	fresh := slices.DeleteFunc(slices.Clone(c.req.GetNames()), func(name string) bool {
		return exists(c.have, "account", name)
	})
	if len(fresh) == 0 {
		return
	}
	c.list(" Adding Account(s)", fresh)
	c.line(" Settings")
	c.line("  %-15s = %s", "Description", cmp.Or(c.value("description", "desc"), "Account Name"))
	c.line("  %-15s = %s", "Organization",
		cmp.Or(c.value("organization", "org"), "Parent/Account Name"))
	c.line(" Associations")
	for _, name := range fresh {
		c.line("  A = %-10s C = %-10s", name, c.have.GetCluster())
	}
	if len(c.req.GetSet()) > 0 {
		c.line(" Settings")
		c.limits("%-13s")
		c.line("  %-13s = %s", "Parent", cmp.Or(c.value("parent"), "root"))
	}
}

// own are the keys that belong to an account or a user itself, not to its associations.
func (c *change) own(keys ...string) (own, others bool) {
	for _, entry := range c.req.GetSet() {
		if slices.Contains(keys, strings.TrimRight(entry.GetKey(), "+-")) {
			own = true
		} else {
			others = true
		}
	}
	return own, others
}

func (c *change) modifyAccounts() {
	own, others := c.own("description", "desc", "organization", "org")
	if own {
		c.list(" Modified accounts...", c.req.GetNames())
	}
	if !others {
		return
	}
	c.line(" Modified account associations...")
	for _, account := range c.have.GetAccounts() {
		if !slices.Contains(c.req.GetNames(), account.GetName()) {
			continue
		}
		of := ""
		if account.GetParent() != "" {
			of = " of " + account.GetParent()
		}
		c.line("  C = %-10s A = %s%s", c.have.GetCluster(), account.GetName(), of)
	}
}

func (c *change) addUsers() {
	var fresh []string
	var pairs []*apiv1.Association
	for _, user := range c.req.GetNames() {
		if !exists(c.have, "user", user) {
			fresh = append(fresh, user)
		}
		for _, account := range c.accounts() {
			pairs = append(pairs, c.newPairs(user, account)...)
		}
	}
	if len(fresh)+len(pairs) == 0 {
		return
	}
	if len(fresh) > 0 {
		c.list(" Adding User(s)", fresh)
		c.ownSettings()
	}
	c.line(" Associations =")
	for _, pair := range pairs {
		c.line("  U = %-9s A = %-10s C = %-10s%s",
			pair.GetUser(), pair.GetAccount(), c.have.GetCluster(), inPartition(pair))
	}
	c.line(" Non Default Settings")
	c.limits("%-13s")
}

// ownSettings are those of a new user that are not of its associations, if any is given.
func (c *change) ownSettings() {
	account := c.value("defaultaccount")
	level := c.value("adminlevel", "admin")
	if account+level == "" {
		return
	}
	c.line(" Settings =")
	if account != "" {
		c.line("  Default Account = %s", account)
	}
	if level != "" {
		c.line("  Admin Level     = %s", level)
	}
}

// newPairs are the associations that a user does not have yet in an account: one for each
// partition that is named, or one for all of them.
func (c *change) newPairs(user, account string) []*apiv1.Association {
	partitions := tool.SplitList(c.value("partition", "partitions"))
	if len(partitions) == 0 {
		partitions = []string{""}
	}
	have := c.associations(user, account)
	var associations []*apiv1.Association
	for _, partition := range partitions {
		same := func(a *apiv1.Association) bool { return a.GetPartition() == partition }
		if !slices.ContainsFunc(have, same) {
			pair := &apiv1.Association{User: user, Account: account, Partition: partition}
			associations = append(associations, pair)
		}
	}
	return associations
}

// inPartition is how an association of a partition is told from the others.
func inPartition(association *apiv1.Association) string {
	if association.GetPartition() == "" {
		return ""
	}
	return fmt.Sprintf(" P = %-10s", association.GetPartition())
}

// addsMore tells that something is added which is no association: a wckey.
func addsMore(request *apiv1.PolicyChangeRequest) bool {
	return slices.ContainsFunc(request.GetSet(), func(entry *apiv1.ConfigEntry) bool {
		return slices.Contains([]string{"wckey", "wckeys", "defaultwckey"}, entry.GetKey())
	})
}

// associations are those of a user, in an account if one is given.
func (c *change) associations(user, account string) []*apiv1.Association {
	return slices.DeleteFunc(slices.Clone(c.have.GetAssociations()),
		func(association *apiv1.Association) bool {
			return association.GetUser() != user ||
				account != "" && association.GetAccount() != account
		})
}

// chosen are the associations that a change of users is about.
func (c *change) chosen() []*apiv1.Association {
	var associations []*apiv1.Association
	for _, user := range c.users() {
		for _, account := range c.accountsOrAll() {
			associations = append(associations, c.associations(user, account)...)
		}
	}
	return slices.DeleteFunc(associations, func(a *apiv1.Association) bool { return !c.inWhere(a) })
}

// inWhere tells whether an association is in one of the partitions that are named; without a
// name it is.
func (c *change) inWhere(association *apiv1.Association) bool {
	for _, entry := range c.req.GetWhere() {
		if entry.GetKey() == "partition" || entry.GetKey() == "partitions" {
			return slices.Contains(tool.SplitList(entry.GetValue()), association.GetPartition())
		}
	}
	return true
}

// users are those named, or all that have an account which is.
func (c *change) users() []string {
	if len(c.req.GetNames()) > 0 {
		return c.req.GetNames()
	}
	var out []string
	for _, user := range c.have.GetUsers() {
		out = append(out, user.GetName())
	}
	return out
}

func (c *change) accountsOrAll() []string {
	if accounts := c.accounts(); len(accounts) > 0 {
		return accounts
	}
	return []string{""}
}

func (c *change) modifyUsers() {
	own, others := c.own("adminlevel", "admin", "defaultaccount", "defaultwckey", "newname")
	if own {
		c.list(" Modified users...", c.users())
	}
	if !others {
		return
	}
	c.line(" Modified user associations...")
	for _, association := range c.chosen() {
		c.line("  C = %-10s A = %-20s U = %-9s%s",
			c.have.GetCluster(), association.GetAccount(), association.GetUser(),
			inPartition(association))
	}
}

func (c *change) deleteUsers() {
	if len(c.req.GetWhere()) == 0 {
		c.list(" Deleting users...", c.req.GetNames())
		return
	}
	c.line(" Deleting user associations...")
	for _, association := range c.chosen() {
		c.line("  C = %-10s A = %-10s U = %-9s%s",
			c.have.GetCluster(), association.GetAccount(), association.GetUser(),
			inPartition(association))
	}
}

func (c *change) addQOS() {
	fresh := slices.DeleteFunc(slices.Clone(c.req.GetNames()), func(name string) bool {
		return exists(c.have, "qos", name)
	})
	if len(fresh) == 0 {
		return
	}
	c.list(" Adding QOS(s)", fresh)
	c.line(" Settings")
	c.line("  %-14s = %s", "Description",
		cmp.Or(c.value("description", "desc"), fresh[len(fresh)-1]))
	c.limits("%-24s")
}

func (c *change) addCoordinators() {
	c.list(" Adding Coordinator User(s)", c.req.GetNames())
	c.list(" To Account(s) and all sub-accounts", c.accounts())
}

func (c *change) removeCoordinators() {
	c.list(" Removing Coordinators with user name", c.req.GetNames())
	c.list(" From Account(s)", c.accounts())
	c.line(" Removed Coordinators (sub accounts not listed)...")
	for _, user := range c.req.GetNames() {
		for _, account := range c.accounts() {
			c.line("  U = %-9s A = %-10s", user, account)
		}
	}
}

// limits are the settings that are not announced in another way, with the names that people
// know: as they were typed in lower case, if there is no other.
func (c *change) limits(width string) {
	other := []string{
		"account", "accounts", "acct", "parent", "description", "desc", "organization", "org",
		"defaultaccount", "adminlevel", "admin", "cluster", "clusters", "partition", "partitions",
	}
	entries := slices.DeleteFunc(slices.Clone(c.req.GetSet()), func(entry *apiv1.ConfigEntry) bool {
		return slices.Contains(other, entry.GetKey())
	})
	slices.SortStableFunc(entries, func(a, b *apiv1.ConfigEntry) int {
		return strings.Compare(limitName(a.GetKey()), limitName(b.GetKey()))
	})
	for _, entry := range entries {
		c.line("  "+width+" = %s", limitName(entry.GetKey()), limitText(entry))
	}
}

// limitName writes a key as the documentation does.
func limitName(key string) string {
	names := []string{
		"Fairshare", "GrpJobs", "GrpJobsAccrue", "GrpSubmitJobs", "GrpTRES", "GrpTRESMins",
		"GrpTRESRunMins", "GrpWall", "MaxJobs", "MaxJobsAccrue", "MaxSubmitJobs", "MaxTRESPerJob",
		"MaxTRESPerNode", "MaxTRESPerUser", "MaxTRESPerAccount", "MaxTRESMinsPerJob", "MaxWall",
		"MaxJobsPerUser", "MaxSubmitJobsPerUser", "MaxJobsPerAccount", "MinTRESPerJob", "Priority",
		"QOS", "DefaultQOS", "Flags", "GraceTime", "Preempt", "PreemptMode", "UsageFactor",
		"UsageThreshold", "LimitFactor",
	}
	plain := strings.TrimRight(key, "+-")
	for _, name := range names {
		if strings.EqualFold(name, plain) {
			return name + key[len(plain):]
		}
	}
	return key
}

// limitText writes a value: minutes as a duration.
func limitText(entry *apiv1.ConfigEntry) string {
	if strings.HasSuffix(entry.GetKey(), "wall") {
		if seconds, err := format.ParseDuration(entry.GetValue()); err == nil && seconds >= 0 {
			return format.Duration(seconds)
		}
	}
	return render.Cell(entry.GetValue())
}
