package policy

import (
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// Founding is what every cluster begins with: the QOS normal, the account root
// with the user root, and, where associations are not enforced, an account for
// users who have none.
func Founding(enforced bool) []event.Event {
	events := []event.Event{
		&event.QOSPut{QOS: spec.QOS{ID: 1, Name: "normal", Description: "Normal QOS default"}},
		&event.AccountPut{
			Account: spec.Account{
				Name:         "root",
				Description:  "default root account",
				Organization: "root",
			},
		},
		&event.AssociationPut{
			Association: spec.Association{
				ID:      1,
				Account: "root",
				Shares:  1,
				QOS:     []string{"normal"},
			},
		},
		&event.UserPut{
			User: spec.User{Name: "root", DefaultAccount: "root", AdminLevel: "Administrator"},
		},
		&event.AssociationPut{
			Association: spec.Association{
				ID:      2,
				Account: "root",
				User:    "root",
				Parent:  1,
				Shares:  1,
			},
		},
	}
	if !enforced {
		events = append(
			events,
			&event.AccountPut{
				Account: spec.Account{
					Name:         "default",
					Description:  "users without an account",
					Organization: "default",
					Parent:       "root",
				},
			},
			&event.AssociationPut{
				Association: spec.Association{ID: 3, Account: "default", Parent: 1, Shares: 1},
			},
		)
	}
	return events
}
