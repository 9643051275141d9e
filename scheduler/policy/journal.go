package policy

import (
	"fmt"
	"strings"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// Transaction is one change of the policy as sacctmgr lists it.
type Transaction struct {
	Seq    uint64
	At     spec.Instant
	Action string
	Actor  string
	Where  string
	Info   string
}

// Journal tells changes of the policy from the events of the ledger, read in
// order from the first.
type Journal struct {
	known  map[string]bool
	assocs map[uint32]spec.Association
}

// NewJournal begins at the first event.
func NewJournal() *Journal {
	return &Journal{known: map[string]bool{}, assocs: map[uint32]spec.Association{}}
}

// Note takes the next event; ok is false if it is no change of the policy.
func (j *Journal) Note(env *event.Envelope) (t Transaction, ok bool) {
	t = Transaction{Seq: env.Seq, At: env.At, Actor: env.Actor.Name}
	if t.Actor == "" {
		t.Actor = "muster" // the controller itself
	}
	verb := func(noun, key string) string {
		defer func() { j.known[noun+key] = true }()
		if j.known[noun+key] {
			return "Modify " + noun
		}
		return "Add " + noun
	}
	gone := func(noun, key string) string {
		delete(j.known, noun+key)
		return "Remove " + noun
	}
	switch e := env.Event.(type) {
	case *event.ClusterCreated:
		t.Action, t.Where = verb("Clusters", e.Name), e.Name
	case *event.QOSPut:
		t.Action = verb("QOS", e.QOS.Name)
		t.Where = e.QOS.Name
		t.Info = optionList(qosLine(&e.QOS))
	case *event.QOSRemoved:
		t.Action, t.Where = gone("QOS", e.Name), e.Name
	case *event.AccountPut:
		a := &e.Account
		t.Action, t.Where = verb("Accounts", a.Name), a.Name
		t.Info = fmt.Sprintf("description='%s', organization='%s', parent_acct='%s'", a.Description, a.Organization, a.Parent)
		if len(a.Coordinators) > 0 {
			t.Info += ", coordinators='" + strings.Join(a.Coordinators, ",") + "'"
		}
	case *event.AccountRemoved:
		t.Action, t.Where = gone("Accounts", e.Name), e.Name
	case *event.UserPut:
		u := &e.User
		level := u.AdminLevel
		if level == "" {
			level = "None"
		}
		t.Action, t.Where = verb("Users", u.Name), u.Name
		t.Info = fmt.Sprintf("default_acct='%s', admin_level=%s", u.DefaultAccount, level)
	case *event.UserRemoved:
		t.Action, t.Where = gone("Users", e.Name), e.Name
	case *event.AssociationPut:
		t.Action = verb("Associations", fmt.Sprint(e.Association.ID))
		t.Where = fmt.Sprintf("id_assoc=%d", e.Association.ID)
		t.Info = assocInfo(&e.Association)
		j.assocs[e.Association.ID] = e.Association
	case *event.AssociationRemoved:
		a := j.assocs[e.ID]
		t.Action = gone("Associations", fmt.Sprint(e.ID))
		t.Where = fmt.Sprintf("id_assoc=%d", e.ID)
		t.Info = fmt.Sprintf("acct='%s', user='%s', partition='%s'", a.Account, a.User, a.Partition)
		delete(j.assocs, e.ID)
	case *event.WCKeyPut:
		t.Action, t.Where = verb("WCKeys", fmt.Sprint(e.Key.ID)), e.Key.Name
		t.Info = "user='" + e.Key.User + "'"
	case *event.WCKeyRemoved:
		t.Action, t.Where = gone("WCKeys", fmt.Sprint(e.ID)), fmt.Sprintf("id_wckey=%d", e.ID)
	case *event.ResourcePut:
		r := &e.Resource
		t.Action, t.Where = verb("Resources", r.Name+"@"+r.Server), r.Name
		t.Info = fmt.Sprintf("server='%s', type='%s', count=%d, allowed=%d, last_consumed=%d", r.Server, r.Type, r.Count, r.Allowed, r.LastConsumed)
	case *event.ResourceRemoved:
		t.Action = gone("Resources", e.Name+"@"+e.Server)
		t.Where = e.Name
		t.Info = "server='" + e.Server + "'"
	case *event.UsageCleared:
		t.Action, t.Info = "Modify Associations", "raw_usage=0"
		t.Where = fmt.Sprintf("id_assoc=%d", e.Assoc)
		if e.Assoc == 0 {
			t.Action, t.Where = "Modify QOS", fmt.Sprintf("id=%d", e.QOS)
		}
	default:
		return t, false
	}
	return t, true
}

func assocInfo(a *spec.Association) string {
	l := &line{}
	l.writeBare("id_parent", fmt.Sprint(a.Parent))
	l.writeQuoted("qos", strings.Join(a.QOS, ","))
	b := *a
	b.QOS = nil
	l.writeAssociation(nil, &b)
	return fmt.Sprintf("acct='%s', user='%s', partition='%s'", a.Account, a.User, a.Partition) + ", " + optionList("x"+l.b.String())
}

// optionList writes a line of a dump as a list, without its name.
func optionList(line string) string {
	parts, err := splitQuoted(line)
	if err != nil || len(parts) == 0 {
		return line
	}
	return strings.Join(parts[1:], ", ")
}
