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
func (j *Journal) Note(envelope *event.Envelope) (transaction Transaction, ok bool) {
	transaction = Transaction{Seq: envelope.Seq, At: envelope.At, Actor: envelope.Actor.Name}
	if transaction.Actor == "" {
		transaction.Actor = "muster" // the controller itself
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
	switch e := envelope.Event.(type) {
	case *event.ClusterCreated:
		transaction.Action, transaction.Where = verb("Clusters", e.Name), e.Name
	case *event.QOSPut:
		transaction.Action = verb("QOS", e.QOS.Name)
		transaction.Where = e.QOS.Name
		transaction.Info = optionList(qosLine(&e.QOS))
	case *event.QOSRemoved:
		transaction.Action, transaction.Where = gone("QOS", e.Name), e.Name
	case *event.AccountPut:
		account := &e.Account
		transaction.Action, transaction.Where = verb("Accounts", account.Name), account.Name
		transaction.Info = fmt.Sprintf("description='%s', organization='%s', parent_acct='%s'", account.Description, account.Organization, account.Parent)
		if len(account.Coordinators) > 0 {
			transaction.Info += ", coordinators='" + strings.Join(account.Coordinators, ",") + "'"
		}
	case *event.AccountRemoved:
		transaction.Action, transaction.Where = gone("Accounts", e.Name), e.Name
	case *event.UserPut:
		user := &e.User
		level := user.AdminLevel
		if level == "" {
			level = "None"
		}
		transaction.Action, transaction.Where = verb("Users", user.Name), user.Name
		transaction.Info = fmt.Sprintf("default_acct='%s', admin_level=%s", user.DefaultAccount, level)
	case *event.UserRemoved:
		transaction.Action, transaction.Where = gone("Users", e.Name), e.Name
	case *event.AssociationPut:
		transaction.Action = verb("Associations", fmt.Sprint(e.Association.ID))
		transaction.Where = fmt.Sprintf("id_assoc=%d", e.Association.ID)
		transaction.Info = assocInfo(&e.Association)
		j.assocs[e.Association.ID] = e.Association
	case *event.AssociationRemoved:
		association := j.assocs[e.ID]
		transaction.Action = gone("Associations", fmt.Sprint(e.ID))
		transaction.Where = fmt.Sprintf("id_assoc=%d", e.ID)
		transaction.Info = fmt.Sprintf(
			"acct='%s', user='%s', partition='%s'",
			association.Account,
			association.User,
			association.Partition,
		)
		delete(j.assocs, e.ID)
	case *event.WCKeyPut:
		transaction.Action, transaction.Where = verb("WCKeys", fmt.Sprint(e.Key.ID)), e.Key.Name
		transaction.Info = "user='" + e.Key.User + "'"
	case *event.WCKeyRemoved:
		transaction.Action, transaction.Where = gone("WCKeys", fmt.Sprint(e.ID)), fmt.Sprintf("id_wckey=%d", e.ID)
	case *event.ResourcePut:
		resource := &e.Resource
		transaction.Action, transaction.Where = verb(
			"Resources", resource.Name+"@"+resource.Server,
		), resource.Name
		transaction.Info = fmt.Sprintf(
			"server='%s', type='%s', count=%d, allowed=%d, last_consumed=%d",
			resource.Server,
			resource.Type,
			resource.Count,
			resource.Allowed,
			resource.LastConsumed,
		)
	case *event.ClusterPut:
		transaction.Action, transaction.Where = verb("Clusters", e.Name), e.Name
		transaction.Info = "socket='" + e.Socket + "'"
	case *event.ClusterRemoved:
		transaction.Action, transaction.Where = gone("Clusters", e.Name), e.Name
	case *event.ResourceRemoved:
		transaction.Action = gone("Resources", e.Name+"@"+e.Server)
		transaction.Where = e.Name
		transaction.Info = "server='" + e.Server + "'"
	case *event.UsageCleared:
		transaction.Action, transaction.Info = "Modify Associations", "raw_usage=0"
		transaction.Where = fmt.Sprintf("id_assoc=%d", e.Assoc)
		if e.Assoc == 0 {
			transaction.Action, transaction.Where = "Modify QOS", fmt.Sprintf("id=%d", e.QOS)
		}
	default:
		return transaction, false
	}
	return transaction, true
}

func assocInfo(assoc *spec.Association) string {
	l := &line{}
	l.writeBare("id_parent", fmt.Sprint(assoc.Parent))
	l.writeQuoted("qos", strings.Join(assoc.QOS, ","))
	association := *assoc
	association.QOS = nil
	l.writeAssociation(nil, &association)
	return fmt.Sprintf("acct='%s', user='%s', partition='%s'", assoc.Account, assoc.User, assoc.Partition) +
		", " + optionList("x"+l.b.String())
}

// optionList writes a line of a dump as a list, without its name.
func optionList(line string) string {
	parts, err := splitQuoted(line)
	if err != nil || len(parts) == 0 {
		return line
	}
	return strings.Join(parts[1:], ", ")
}
