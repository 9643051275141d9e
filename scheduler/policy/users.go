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

// userKeys are options of users themselves; all others are of their
// associations.
func userKeys() []string {
	return []string{
		"account",
		"accounts",
		"cluster",
		"clusters",
		"name",
		"names",
		"user",
		"users",
		"defaultaccount",
		"adminlevel",
		"admin",
		"partition",
		"partitions",
		"defaultwckey",
		"wckey",
		"wckeys",
	}
}

func (p *planner) planUser() error {
	err := p.knownConditions(
		"name", "names", "user", "users", "account", "accounts", "partition", "partitions",
		"defaultaccount", "adminlevel", "admin", "defaultwckey", "wckey", "wckeys",
	)
	if err != nil {
		return err
	}
	for _, name := range p.matchUsers() {
		var err error
		switch p.c.Verb {
		case Add:
			err = p.addUser(name)
		case Modify:
			err = p.modifyUser(name)
		default:
			err = p.deleteUser(name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// matchUsers lists the users that a command is about: those named, else all
// to whom the conditions apply.
func (p *planner) matchUsers() []string {
	names := p.c.Names
	if by, ok := listValue(p.c.Where, "name", "names", "user", "users"); ok && p.c.Verb != Add {
		names = append(slices.Clone(names), by...)
	}
	if len(names) > 0 || p.c.Verb == Add {
		return names
	}
	var out []string
	for i := range p.currentPolicy().Users {
		user := &p.currentPolicy().Users[i]
		if def, ok := listValue(p.c.Where, "defaultaccount"); ok &&
			!slices.Contains(def, user.DefaultAccount) {
			continue
		}
		if level, ok := lastValue(p.c.Where, "adminlevel", "admin"); ok {
			want := spec.User{}
			if setUser(
				p.currentPolicy(),
				&want,
				[]spec.KeyValue{{Key: "adminlevel", Value: level}},
			) != nil ||
				want.AdminLevel != user.AdminLevel {
				continue
			}
		}
		if key, ok := listValue(p.c.Where, "defaultwckey"); ok &&
			!slices.Contains(key, user.DefaultWCKey) {
			continue
		}
		if len(p.assocsOf(user.Name)) > 0 || !p.isNarrowed() {
			out = append(out, user.Name)
		}
	}
	return out
}

// isNarrowed tells whether the conditions choose among a user's associations.
func (p *planner) isNarrowed() bool {
	_, a := lastValue(p.c.Where, "account", "accounts")
	_, b := lastValue(p.c.Where, "partition", "partitions")
	return a || b
}

// assocsOf are a user's associations to which the conditions apply; an empty
// partition= means those of no partition.
func (p *planner) assocsOf(user string) []spec.Association {
	accounts, byAcct := listValue(p.c.Where, "account", "accounts")
	parts, byPart := listValue(p.c.Where, "partition", "partitions")
	if byPart && len(parts) == 0 {
		parts = []string{""}
	}
	var associations []spec.Association
	for _, association := range p.currentPolicy().Assocs {
		inAccount := !byAcct || slices.Contains(accounts, association.Account)
		inPart := !byPart || slices.Contains(parts, association.Partition)
		if association.User == user && inAccount && inPart {
			associations = append(associations, association)
		}
	}
	return associations
}

func (p *planner) addUser(name string) error {
	if err := validName(name); err != nil {
		return err
	}
	all := p.allPairs()
	user := p.currentPolicy().FindUser(name)
	def, hasDef := lastValue(all, "defaultaccount")
	accounts, given := listValue(all, "account", "accounts")
	switch {
	case !given && hasDef:
		accounts = []string{def}
	case hasDef && !slices.Contains(accounts, def) && p.currentPolicy().FindAssoc(def, name, "") == nil:
		accounts = append(accounts, def)
	}
	keys, hasKeys := listValue(all, "wckey", "wckeys")
	if len(accounts) == 0 && !(user != nil && hasKeys) {
		for _, kv := range p.c.Set {
			key := plainKey(kv.Key)
			if near := spec.Nearest(key, []string{"account"}); near != "" && near != key {
				return spec.RefuseUnknown(unknownOption("user", kv.Key, near))
			}
		}
		return badOption("user %q needs an account: account=NAME", name)
	}
	nu := spec.User{Name: name}
	if user != nil {
		nu = *user
	}
	if nu.DefaultAccount == "" && len(accounts) > 0 {
		nu.DefaultAccount = accounts[0]
	}
	added := user == nil
	for _, acct := range accounts {
		n, err := p.addUserTo(name, acct, all)
		if err != nil {
			return err
		}
		added = added || n > 0
	}
	for _, key := range keys {
		n, err := p.addKey(key, name)
		if err != nil {
			return err
		}
		added = added || n
	}
	if err := setUser(p.currentPolicy(), &nu, all); err != nil {
		return err
	}
	if !added {
		return nil
	}
	p.names = append(p.names, name)
	return p.emitEvent(&event.UserPut{User: nu})
}

// addUserTo adds a user to an account, in each partition named.
func (p *planner) addUserTo(name, acct string, all []spec.KeyValue) (int, error) {
	parent := p.currentPolicy().AccountAssoc(acct)
	if parent == 0 {
		return 0, badOption("account %q does not exist: add it first", acct)
	}
	parts, ok := listValue(all, "partition", "partitions")
	if !ok || len(parts) == 0 {
		parts = []string{""}
	}
	n := 0
	for _, part := range parts {
		if part != "" && p.t.Parts.Find(part) == nil {
			return n, badOption("partition %q does not exist", part)
		}
		if association := p.currentPolicy().
			FindAssoc(acct, name, part); association != nil &&
			association.Partition == part {
			continue
		}
		if err := p.putAssoc(p.newAssoc(acct, name, part, parent), all, userKeys()); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// setUser applies what is the user's own.
func setUser(policy *state.Policy, user *spec.User, set []spec.KeyValue) error {
	if value, ok := lastValue(set, "defaultaccount"); ok {
		if user.Name != "" && value != "" &&
			!slices.ContainsFunc(
				policy.Assocs,
				func(a spec.Association) bool { return a.User == user.Name && a.Account == value },
			) {
			return badOption(
				"user %q has no association with account %q, which shall be the default",
				user.Name,
				value,
			)
		}
		user.DefaultAccount = value
	}
	if value, ok := lastValue(set, "defaultwckey"); ok {
		if value != "" && policy.FindWCKey(value, user.Name) == nil {
			return badOption("user %q has no wckey %q", user.Name, value)
		}
		user.DefaultWCKey = value
	}
	v, ok := lastValue(set, "adminlevel", "admin")
	if !ok {
		return nil
	}
	low := strings.ToLower(v)
	switch {
	case low == "none":
		user.AdminLevel = ""
	case low != "" && strings.HasPrefix("operator", low):
		user.AdminLevel = "Operator"
	case low != "" && strings.HasPrefix("administrator", low):
		user.AdminLevel = "Administrator"
	default:
		return badOption("adminlevel=%q: expected None, Operator or Administrator", v)
	}
	return nil
}

func (p *planner) modifyUser(name string) error {
	user := p.currentPolicy().FindUser(name)
	if user == nil {
		return badOption("user %q does not exist", name)
	}
	nu := *user
	if err := setUser(p.currentPolicy(), &nu, p.c.Set); err != nil {
		return err
	}
	assocs := p.assocsOf(name)
	if len(assocs) == 0 && p.isNarrowed() {
		return badOption("user %q has no association there", name)
	}
	own := slices.DeleteFunc(
		slices.Clone(p.c.Set),
		func(kv spec.KeyValue) bool { return slices.Contains(userKeys(), plainKey(kv.Key)) },
	)
	for _, assoc := range assocs {
		if len(own) == 0 {
			break
		}
		if err := p.putAssoc(assoc, own, nil); err != nil {
			return err
		}
	}
	if err := p.keysOf(name); err != nil {
		return err
	}
	p.names = append(p.names, name)
	return p.emitEvent(&event.UserPut{User: nu})
}

// keysOf applies wckeys=, wckeys+= and wckeys-= of a user.
func (p *planner) keysOf(user string) error {
	for _, kv := range p.c.Set {
		if k := plainKey(kv.Key); k != "wckey" && k != "wckeys" {
			continue
		}
		want, _ := listValue([]spec.KeyValue{kv}, "wckey", "wckeys")
		removing, exact := strings.HasSuffix(kv.Key, "-"), !strings.HasSuffix(kv.Key, "+")
		for _, key := range slices.Clone(p.currentPolicy().WCKeys) {
			if key.User == user && slices.Contains(want, key.Name) == removing && exact {
				if err := p.emitEvent(&event.WCKeyRemoved{ID: key.ID}); err != nil {
					return err
				}
			}
		}
		for _, name := range want {
			if removing {
				break
			}
			if _, err := p.addKey(name, user); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *planner) deleteUser(name string) error {
	user := p.currentPolicy().FindUser(name)
	if user == nil {
		return badOption("user %q does not exist", name)
	}
	assocs, narrowed := p.assocsOf(name), p.isNarrowed()
	if narrowed && len(assocs) == 0 {
		return badOption("user %q has no association there", name)
	}
	gone := func(id uint32) bool {
		return slices.ContainsFunc(assocs, func(a spec.Association) bool { return a.ID == id })
	}
	live := liveJobs(
		p.t.State,
		func(job *state.Job) bool { return job.Spec.User == name && (!narrowed || gone(job.Assoc)) },
	)
	if live > 0 {
		return badOption("user %q has %s", name, format.Plural(live, "job", "jobs"))
	}
	left := false
	for i := range p.currentPolicy().Assocs {
		association := &p.currentPolicy().Assocs[i]
		left = left || (association.User == name && !gone(association.ID))
	}
	p.names = append(p.names, name)
	if !left {
		return p.dropUser(name)
	}
	for _, association := range assocs {
		if err := p.emitEvent(&event.AssociationRemoved{ID: association.ID}); err != nil {
			return err
		}
	}
	if p.currentPolicy().FindUser(name).DefaultAccount != "" &&
		!slices.ContainsFunc(
			p.currentPolicy().Assocs,
			func(a spec.Association) bool { return a.User == name && a.Account == user.DefaultAccount },
		) {
		return spec.Refuse(
			spec.CodeDefaultAccount,
			fmt.Sprintf("%s of user %s", user.DefaultAccount, name),
		)
	}
	return nil
}

// dropUser removes a user from everywhere.
func (p *planner) dropUser(name string) error {
	for _, account := range slices.Clone(p.currentPolicy().Accounts) {
		if slices.Contains(account.Coordinators, name) {
			account.Coordinators = slices.DeleteFunc(
				slices.Clone(account.Coordinators),
				func(c string) bool { return c == name },
			)
			if err := p.emitEvent(&event.AccountPut{Account: account}); err != nil {
				return err
			}
		}
	}
	return p.emitEvent(&event.UserRemoved{Name: name})
}

// planAssociation changes associations by what they tie together: account=, user=
// and partition=.
func (p *planner) planAssociation() error {
	all := p.allPairs()
	users, byUser := listValue(all, "user", "users")
	switch {
	case len(p.c.Names) > 0:
		return badOption("an association has no name: say account=, user= and partition=")
	case p.c.Verb == Add && byUser:
		p.c.Entity, p.c.Names = "user", users
		return p.planUser()
	case p.c.Verb == Add:
		return badOption("an association needs account= and user=; an account has its own")
	case byUser:
		p.c.Entity, p.c.Names = "user", users
		p.c.Where = slices.DeleteFunc(
			slices.Clone(p.c.Where),
			func(kv spec.KeyValue) bool { return plainKey(kv.Key) == "user" || plainKey(kv.Key) == "users" },
		)
		return p.planUser()
	case p.c.Verb == Modify:
		p.c.Entity = "account"
		return p.planAccount()
	}
	return badOption("an account's own association goes with the account: delete account")
}
