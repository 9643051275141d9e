package query_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/musterhpc/muster/accounting/query"
)

// TestCheckTree: what a tree may hold where a table can stand.
func TestCheckTree(t *testing.T) {
	names := []string{"system", "muster", "default", "jobs", "steps", "events", "purges"}
	in := "SelectQuery (children 2)\n Function notIn (children 1)\n  ExpressionList (children 2)\n   Identifier uid\n   "
	from := "SelectQuery (children 1)\n TableExpression (children 1)\n  "
	for text, ok := range map[string]bool{
		from + "TableIdentifier jobs (alias j)":             true,
		from + "TableIdentifier x":                          true, // of a WITH
		from + "Subquery (alias q) (children 1)":            true,
		from + "TableIdentifier events":                     false, // for operators
		from + "TableIdentifier purges (alias jobs)":        false,
		from + "TableIdentifier muster.jobs":                false,
		from + "TableIdentifier jobs.x":                     false,
		from + "Function numbers (alias jobs) (children 1)": false,
		from + "TableIdentifier jobs\n Set":                 false,
		from + "TableIdentifier jobs\n        Asterisk":     false, // no tree
		in + "Subquery (children 1)":                        true,
		in + "Literal Tuple_(UInt64_1, UInt64_2)":           true,
		in + "Identifier steps":                             true,
		in + "Identifier j.list":                            true,
		in + "Identifier purges":                            false,
		in + "Identifier muster.jobs":                       false,
		in + "Literal UInt64_1\n   Identifier system.one":   false,
	} {
		err := query.CheckTree(strings.Split(text, "\n"), query.Viewer{User: "bob"}, names)
		if (err == nil) != ok || (err != nil && !errors.Is(err, query.ErrGuard)) {
			t.Errorf("%s: %v", text, err)
		}
	}
	operator := query.Viewer{User: "dora", Admin: true}
	if err := query.CheckTree([]string{"TableIdentifier events"}, operator, names); err != nil {
		t.Error(err)
	}
	if query.CheckTree([]string{"TableIdentifier purges"}, operator, names) == nil {
		t.Error("an operator reads a table that is no view")
	}
}
