// Package policy plans changes of accounts, users, associations and QOS as
// sacctmgr words them: a command becomes the events that bring it about, all
// of them or none. It is pure: the writer commits what it plans.
package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// Verb is what to do.
type Verb int

// The verbs, numbered as in the API.
const (
	Add Verb = iota + 1
	Modify
	Delete
)

// Change is one command. Keys are sacctmgr's option names without regard to
// case; a key may end in + or - for lists.
type Change struct {
	Verb   Verb
	Entity string // cluster, account, user, qos
	Names  []string
	Where  []spec.KeyValue
	Set    []spec.KeyValue
}

// planner collects events over a growing copy of the policy, so that later
// steps of one command see the earlier ones.
type planner struct {
	st     *state.State
	pol    state.Policy
	events []event.Event
	names  []string
	c      Change
}

// Plan turns a change into events and the list of what it touches. A refusal
// is a *spec.Error that names every fault; nothing is half-applied.
func Plan(st *state.State, c Change) ([]event.Event, []string, error) {
	p := &planner{st: st, pol: *st.Policy, c: c}
	var err error
	switch strings.ToLower(c.Entity) {
	case "qos":
		err = p.qos()
	case "account":
		err = p.account()
	case "user":
		err = p.user()
	case "cluster":
		err = p.cluster()
	default:
		return nil, nil, bad("%q is not an entity that can be changed in this release (cluster, account, user, qos)", c.Entity)
	}
	if err != nil {
		return nil, nil, err
	}
	if len(p.events) == 0 {
		return nil, p.names, nil
	}
	return p.events, p.names, nil
}

func bad(format string, args ...any) error {
	return spec.Refuse(spec.CodeBadRequest, fmt.Sprintf(format, args...))
}

// value finds the last value of a key, without + and -.
func value(list []spec.KeyValue, keys ...string) (string, bool) {
	out, ok := "", false
	for _, kv := range list {
		if slices.Contains(keys, strings.ToLower(strings.TrimRight(kv.Key, "+-"))) {
			out, ok = kv.Value, true
		}
	}
	return out, ok
}

// cluster accepts the one cluster there is: `add cluster NAME` of Slurm's
// guides is a no-op when the name is right.
func (p *planner) cluster() error {
	for _, name := range p.c.Names {
		if name != p.st.ClusterName {
			return bad("this controller serves cluster %q: %q cannot be added to it", p.st.ClusterName, name)
		}
		if p.c.Verb == Delete {
			return bad("cluster %q is this controller's own and cannot be deleted", name)
		}
		p.names = append(p.names, name)
	}
	return nil
}

func (p *planner) emit(ev event.Event) { p.events = append(p.events, ev) }

func (p *planner) checkCluster() error {
	for _, list := range [...][]spec.KeyValue{p.c.Where, p.c.Set} {
		if name, ok := value(list, "cluster", "clusters"); ok && name != p.st.ClusterName {
			return bad("cluster %q is not known here (this is %q)", name, p.st.ClusterName)
		}
	}
	return nil
}

func (p *planner) qos() error {
	for _, name := range p.c.Names {
		old := p.pol.FindQOS(name)
		q := spec.QOS{Name: name}
		switch {
		case p.c.Verb == Add && old != nil:
			continue // as sacctmgr: an existing entity is not touched
		case p.c.Verb != Add && old == nil:
			return bad("QOS %q does not exist", name)
		case p.c.Verb == Delete:
			if inUse(p.st, name) {
				return bad("QOS %q is in use by jobs or associations", name)
			}
			p.emit(&event.QOSRemoved{Name: name})
			p.names = append(p.names, name)
			continue
		case old != nil:
			q = *old
		default:
			p.pol.NextQOS++
			q.ID = p.pol.NextQOS
			q.Description = name
		}
		if err := setQOS(&p.pol, &q, p.c.Set); err != nil {
			return err
		}
		p.emit(&event.QOSPut{QOS: q})
		p.names = append(p.names, name)
	}
	return nil
}

func inUse(st *state.State, qos string) bool {
	for i := range st.Policy.Assocs {
		if slices.Contains(st.Policy.Assocs[i].QOS, qos) || st.Policy.Assocs[i].DefaultQOS == qos {
			return true
		}
	}
	used := false
	st.Jobs.Range(func(_ uint64, j *state.Job) bool {
		used = !j.State.Terminal() && j.Spec.QOS == qos
		return !used
	})
	return used
}

func (p *planner) nextAssoc() uint32 {
	p.pol.NextAssoc++
	return p.pol.NextAssoc
}

// root is the id of the root account's association.
func (p *planner) root() uint32 { return p.pol.AccountAssoc("root") }

func (p *planner) account() error {
	if err := p.checkCluster(); err != nil {
		return err
	}
	for _, name := range p.c.Names {
		if err := p.oneAccount(name); err != nil {
			return err
		}
	}
	return nil
}

func (p *planner) oneAccount(name string) error {
	old := p.pol.FindAccount(name)
	assoc := p.pol.FindAssoc(name, "", "")
	switch p.c.Verb {
	case Delete:
		if old == nil {
			return bad("account %q does not exist", name)
		}
		if n := liveJobs(p.st, func(j *state.Job) bool { return j.Spec.Account == name }); n > 0 {
			return bad("account %q has %d jobs", name, n)
		}
		for i := range p.pol.Accounts {
			if p.pol.Accounts[i].Parent == name {
				return bad("account %q has a child, %q", name, p.pol.Accounts[i].Name)
			}
		}
		p.emit(&event.AccountRemoved{Name: name})
	case Modify:
		if old == nil || assoc == nil {
			return bad("account %q does not exist", name)
		}
		a, as := *old, *assoc
		if err := setAccount(&a, p.c.Set); err != nil {
			return err
		}
		if err := setAssoc(&p.pol, &as, p.c.Set, accountKeys()); err != nil {
			return err
		}
		p.emit(&event.AccountPut{Account: a})
		p.emit(&event.AssociationPut{Association: as})
	default:
		if old != nil {
			return nil
		}
		a := spec.Account{Name: name, Description: name, Organization: name, Parent: "root"}
		if err := setAccount(&a, p.c.Set); err != nil {
			return err
		}
		parent := p.pol.AccountAssoc(a.Parent)
		if parent == 0 {
			return bad("parent account %q does not exist", a.Parent)
		}
		as := spec.Association{ID: p.nextAssoc(), Account: name, Parent: parent, Shares: 1}
		if err := setAssoc(&p.pol, &as, p.c.Set, accountKeys()); err != nil {
			return err
		}
		p.emit(&event.AccountPut{Account: a})
		p.emit(&event.AssociationPut{Association: as})
	}
	p.names = append(p.names, name)
	return nil
}

func accountKeys() []string {
	return []string{"description", "organization", "parent", "cluster", "clusters", "name"}
}

func setAccount(a *spec.Account, set []spec.KeyValue) error {
	if v, ok := value(set, "description"); ok {
		a.Description = v
	}
	if v, ok := value(set, "organization"); ok {
		a.Organization = v
	}
	if v, ok := value(set, "parent"); ok {
		a.Parent = v
	}
	return nil
}

func liveJobs(st *state.State, match func(j *state.Job) bool) int {
	n := 0
	st.Jobs.Range(func(_ uint64, j *state.Job) bool {
		if !j.State.Terminal() && match(j) {
			n++
		}
		return true
	})
	return n
}

func (p *planner) user() error {
	if err := p.checkCluster(); err != nil {
		return err
	}
	for _, name := range p.c.Names {
		var err error
		switch p.c.Verb {
		case Add:
			err = p.addUser(name)
		case Modify:
			err = p.modifyUser(name)
		case Delete:
			err = p.deleteUser(name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func userKeys() []string {
	return []string{"account", "accounts", "cluster", "clusters", "name", "user", "users", "defaultaccount", "adminlevel", "partition", "partitions", "defaultwckey"}
}

func (p *planner) addUser(name string) error {
	u := p.pol.FindUser(name)
	all := slices.Concat(p.c.Where, p.c.Set)
	accounts, given := value(all, "account", "accounts")
	def, hasDef := value(all, "defaultaccount")
	if !given {
		accounts = def
	}
	if accounts == "" {
		return bad("user %q needs an account: account=NAME", name)
	}
	parts, _ := value(all, "partition", "partitions")
	nu := spec.User{Name: name}
	if u != nil {
		nu = *u
	}
	if hasDef {
		nu.DefaultAccount = def
	} else if nu.DefaultAccount == "" {
		nu.DefaultAccount, _, _ = strings.Cut(accounts, ",")
	}
	if err := setUser(&nu, all); err != nil {
		return err
	}
	added := false
	for _, acct := range strings.Split(accounts, ",") {
		parent := p.pol.AccountAssoc(acct)
		if parent == 0 {
			return bad("account %q does not exist: add it first", acct)
		}
		for _, part := range strings.Split(parts, ",") {
			if a := p.pol.FindAssoc(acct, name, part); a != nil && a.Partition == part {
				continue
			}
			as := spec.Association{ID: p.nextAssoc(), Account: acct, User: name, Partition: part, Parent: parent, Shares: 1}
			if err := setAssoc(&p.pol, &as, all, userKeys()); err != nil {
				return err
			}
			p.emit(&event.AssociationPut{Association: as})
			added = true
		}
	}
	if u == nil || added {
		p.emit(&event.UserPut{User: nu})
		p.names = append(p.names, name)
	}
	return nil
}

func setUser(u *spec.User, set []spec.KeyValue) error {
	if v, ok := value(set, "defaultaccount"); ok {
		u.DefaultAccount = v
	}
	if v, ok := value(set, "defaultwckey"); ok {
		u.DefaultWCKey = v
	}
	if v, ok := value(set, "adminlevel", "admin"); ok {
		switch strings.ToLower(v) {
		case "none":
			u.AdminLevel = ""
		case "operator":
			u.AdminLevel = "Operator"
		case "admin", "administrator":
			u.AdminLevel = "Administrator"
		default:
			return bad("adminlevel=%q: expected None, Operator or Administrator", v)
		}
	}
	return nil
}

func (p *planner) modifyUser(name string) error {
	u := p.pol.FindUser(name)
	if u == nil {
		return bad("user %q does not exist", name)
	}
	nu := *u
	if err := setUser(&nu, p.c.Set); err != nil {
		return err
	}
	acct, byAcct := value(p.c.Where, "account", "accounts")
	part, byPart := value(p.c.Where, "partition", "partitions")
	touched := 0
	for i := range p.pol.Assocs {
		as := p.pol.Assocs[i]
		if as.User != name || (byAcct && !slices.Contains(strings.Split(acct, ","), as.Account)) || (byPart && as.Partition != part) {
			continue
		}
		if err := setAssoc(&p.pol, &as, p.c.Set, userKeys()); err != nil {
			return err
		}
		touched++
		p.emit(&event.AssociationPut{Association: as})
	}
	if touched == 0 && byAcct {
		return bad("user %q has no association with account %q", name, acct)
	}
	p.emit(&event.UserPut{User: nu})
	p.names = append(p.names, name)
	return nil
}

func (p *planner) deleteUser(name string) error {
	u := p.pol.FindUser(name)
	if u == nil {
		return bad("user %q does not exist", name)
	}
	acct, byAcct := value(p.c.Where, "account", "accounts")
	live := liveJobs(p.st, func(j *state.Job) bool { return j.Spec.User == name && (!byAcct || j.Spec.Account == acct) })
	if live > 0 {
		return bad("user %q has %d jobs", name, live)
	}
	if !byAcct {
		p.emit(&event.UserRemoved{Name: name})
		p.names = append(p.names, name)
		return nil
	}
	if u.DefaultAccount == acct {
		return spec.Refuse(spec.CodeDefaultAccount, fmt.Sprintf("%s of user %s", acct, name))
	}
	for i := range p.pol.Assocs {
		if a := &p.pol.Assocs[i]; a.User == name && a.Account == acct {
			p.emit(&event.AssociationRemoved{ID: a.ID})
		}
	}
	p.names = append(p.names, name)
	return nil
}
