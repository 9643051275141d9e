package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

// putAssoc applies settings to an association and plans it, and the end of
// what it used where RawUsage=0 is set.
func (p *planner) putAssoc(assoc spec.Association, set []spec.KeyValue, skip []string) error {
	clear, err := setAssoc(p.currentPolicy(), &assoc, set, skip)
	if err != nil {
		return err
	}
	if err := p.emitEvent(&event.AssociationPut{Association: assoc}); err != nil {
		return err
	}
	if clear {
		return p.emitEvent(&event.UsageCleared{Assoc: assoc.ID})
	}
	return nil
}

func (p *planner) newAssoc(account, user, partition string, parent uint32) spec.Association {
	return spec.Association{
		ID:        p.currentPolicy().NextAssoc + 1,
		Account:   account,
		User:      user,
		Partition: partition,
		Parent:    parent,
		Shares:    1,
	}
}

// accountKeys are options of accounts themselves; all others are of their
// associations.
func accountKeys() []string {
	return []string{
		"description",
		"organization",
		"parent",
		"cluster",
		"clusters",
		"name",
		"names",
		"account",
		"accounts",
	}
}

// longKeys writes the shortened keys of accounts out, desc and org among them:
// the keys of what is stored are found by their whole names.
func longKeys(list []spec.KeyValue) []spec.KeyValue {
	values := slices.Clone(list)
	for i := range values {
		for _, whole := range [...]string{"description", "organization"} {
			if k := plainKey(values[i].Key); len(k) >= 3 && strings.HasPrefix(whole, k) {
				values[i].Key = whole
			}
		}
	}
	return values
}

func (p *planner) planAccount() error {
	p.c.Where, p.c.Set = longKeys(p.c.Where), longKeys(p.c.Set)
	err := p.knownConditions(
		"name", "names", "account", "accounts", "parent", "organization", "description",
	)
	if err != nil {
		return err
	}
	for _, name := range p.matchAccounts() {
		var err error
		switch p.c.Verb {
		case Add:
			err = p.addAccount(name)
		case Modify:
			err = p.modifyAccount(name)
		default:
			err = p.deleteAccount(name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// matchAccounts lists the accounts that a command is about.
func (p *planner) matchAccounts() []string {
	if p.c.Verb == Add {
		return p.c.Names
	}
	names := p.c.Names
	if by, ok := listValue(p.c.Where, "account", "accounts", "name", "names"); ok {
		names = append(slices.Clone(names), by...)
	}
	filtered := false
	match := func(account *spec.Account) bool {
		for _, f := range [...]struct{ key, is string }{{"parent", account.Parent}, {"organization", account.Organization}, {"description", account.Description}} {
			if want, ok := listValue(p.c.Where, f.key); ok {
				filtered = true
				if !slices.ContainsFunc(
					want,
					func(w string) bool { return strings.EqualFold(w, f.is) },
				) {
					return false
				}
			}
		}
		return true
	}
	var out []string
	for i := range p.currentPolicy().Accounts {
		account := &p.currentPolicy().Accounts[i]
		if match(account) && (len(names) == 0 || slices.Contains(names, account.Name)) {
			out = append(out, account.Name)
		}
	}
	if !filtered {
		return names // one that does not exist is told
	}
	return out
}

func setAccount(account *spec.Account, set []spec.KeyValue) {
	if v, ok := lastValue(set, "description"); ok {
		account.Description = v
	}
	if v, ok := lastValue(set, "organization"); ok {
		account.Organization = v
	}
	if v, ok := lastValue(set, "parent"); ok {
		account.Parent = v
	}
}

func (p *planner) addAccount(name string) error {
	if p.currentPolicy().FindAccount(name) != nil {
		return nil
	}
	if err := validName(name); err != nil {
		return err
	}
	all := p.allPairs()
	account := spec.Account{Name: name, Description: name, Organization: name, Parent: "root"}
	setAccount(&account, all)
	if _, given := lastValue(all, "organization"); !given && account.Parent != "root" {
		if up := p.currentPolicy().FindAccount(account.Parent); up != nil {
			account.Organization = up.Organization
		}
	}
	parent := p.currentPolicy().AccountAssoc(account.Parent)
	if parent == 0 {
		return badOption("parent account %q does not exist", account.Parent)
	}
	if err := p.emitEvent(&event.AccountPut{Account: account}); err != nil {
		return err
	}
	p.names = append(p.names, name)
	return p.putAssoc(p.newAssoc(name, "", "", parent), all, accountKeys())
}

func (p *planner) modifyAccount(name string) error {
	old, assoc := p.currentPolicy().FindAccount(name), p.currentPolicy().FindAssoc(name, "", "")
	if old == nil || assoc == nil {
		return badOption("account %q does not exist", name)
	}
	account, as := *old, *assoc
	setAccount(&account, p.c.Set)
	if account.Parent != old.Parent {
		as.Parent = p.currentPolicy().AccountAssoc(account.Parent)
		if as.Parent == 0 || name == "root" {
			return badOption(
				"account %q cannot be put below %q, which does not exist or is below it",
				name,
				account.Parent,
			)
		}
	}
	if err := p.emitEvent(&event.AccountPut{Account: account}); err != nil {
		return err
	}
	p.names = append(p.names, name)
	return p.putAssoc(as, p.c.Set, accountKeys())
}

func (p *planner) deleteAccount(name string) error {
	if p.currentPolicy().FindAccount(name) == nil {
		return badOption("account %q does not exist", name)
	}
	if name == "root" {
		return badOption("the root account cannot be deleted")
	}
	live := liveJobs(p.t.State, func(job *state.Job) bool { return job.Spec.Account == name })
	if live > 0 {
		return badOption("account %q has %s", name, format.Plural(live, "job", "jobs"))
	}
	for i := range p.currentPolicy().Accounts {
		if account := &p.currentPolicy().Accounts[i]; account.Parent == name {
			return badOption("account %q has a child, %q", name, account.Name)
		}
	}
	for _, user := range slices.Clone(p.currentPolicy().Users) {
		if user.DefaultAccount != name {
			continue
		}
		for i := range p.currentPolicy().Assocs {
			if association := &p.currentPolicy().Assocs[i]; association.User == user.Name &&
				association.Account != name {
				return spec.Refuse(
					spec.CodeDefaultAccount,
					fmt.Sprintf("%s of user %s", name, user.Name),
				)
			}
		}
		user.DefaultAccount = ""
		if err := p.emitEvent(&event.UserPut{User: user}); err != nil {
			return err
		}
	}
	p.names = append(p.names, name)
	return p.emitEvent(&event.AccountRemoved{Name: name})
}

// planCoordinator adds or removes coordinators: names are users, account= says of
// what.
func (p *planner) planCoordinator() error {
	accounts, ok := listValue(p.allPairs(), "account", "accounts", "acct")
	users := p.c.Names
	if by, given := listValue(p.allPairs(), "name", "names", "user", "users"); given {
		users = append(slices.Clone(users), by...)
	}
	switch {
	case p.c.Verb == Modify:
		return badOption("coordinators are added and deleted, not modified")
	case p.c.Verb == Delete && !ok && len(users) > 0:
		accounts = p.coordinatedBy(users)
	case !ok || len(users) == 0:
		return badOption("name the users and account=: add coordinator account=ml names=alice")
	}
	for _, user := range users {
		if p.c.Verb == Add && p.currentPolicy().FindUser(user) == nil {
			return badOption("user %q does not exist", user)
		}
		for _, name := range accounts {
			account := p.currentPolicy().FindAccount(name)
			if account == nil {
				return badOption("account %q does not exist", name)
			}
			if slices.Contains(account.Coordinators, user) == (p.c.Verb == Add) {
				continue
			}
			n := *account
			n.Coordinators = slices.DeleteFunc(
				slices.Clone(account.Coordinators),
				func(c string) bool { return c == user },
			)
			if p.c.Verb == Add {
				n.Coordinators = append(n.Coordinators, user)
			}
			if err := p.emitEvent(&event.AccountPut{Account: n}); err != nil {
				return err
			}
			p.names = append(p.names, user+" of "+name)
		}
	}
	return nil
}

// coordinatedBy are the accounts that have one of the users as a coordinator.
func (p *planner) coordinatedBy(users []string) []string {
	var out []string
	isOne := func(name string) bool { return slices.Contains(users, name) }
	for _, account := range p.currentPolicy().Accounts {
		if slices.ContainsFunc(account.Coordinators, isOne) {
			out = append(out, account.Name)
		}
	}
	return out
}

// Coordinates tells whether a user may change what is below an account: as a
// coordinator of it or of one above it.
func Coordinates(policy *state.Policy, user, account string) bool {
	for depth := 0; account != "" && depth < 64; depth++ {
		a := policy.FindAccount(account)
		if a == nil {
			return false
		}
		if slices.Contains(a.Coordinators, user) {
			return true
		}
		account = a.Parent
	}
	return false
}

// MayChange tells whether a user who is no operator may make a change: a
// coordinator may add, modify and delete users in the accounts named, but not
// make operators of them, and not give them QOS.
func MayChange(cluster *state.State, user string, change Change) bool {
	entity := strings.ToLower(change.Entity)
	if entity != "user" && entity != "association" {
		return false
	}
	for _, kv := range change.Set {
		switch plainKey(kv.Key) {
		case "adminlevel", "admin", "qos", "qoslevel", "defaultqos", "priority", "rawusage":
			return false
		}
	}
	all := slices.Concat(change.Where, change.Set)
	accounts, ok := listValue(all, "account", "accounts")
	if !ok {
		accounts, ok = listValue(all, "defaultaccount")
		if !ok || change.Verb != Add {
			return false
		}
	}
	if def, ok := listValue(all, "defaultaccount"); ok {
		accounts = append(accounts, def...)
	}
	return len(accounts) > 0 &&
		!slices.ContainsFunc(
			accounts,
			func(a string) bool { return !Coordinates(cluster.Policy, user, a) },
		)
}
