package query_test

import (
	"testing"

	"github.com/musterhpc/muster/accounting/query"
)

func TestOwner(t *testing.T) {
	for word, want := range map[string]query.Who{
		"alice\x1fstaff\x1fml\x1f1001\x1f50\x1f7": {User: "alice", Group: "staff", Account: "ml", UserID: 1001, GroupID: 50, Assoc: 7},
		"alice\x1f\x1f\x1f4294967295\x1f0\x1f0":   {User: "alice", UserID: 4294967295},
		"":                                        {},
		"alice":                                   {User: "alice"},
		"a\x1fb\x1fc\x1fx\x1f-1\x1f4294967296":    {User: "a", Group: "b", Account: "c"},
	} {
		if got := query.Owner(word); got != want {
			t.Errorf("%q is %+v, not %+v", word, got, want)
		}
	}
}
