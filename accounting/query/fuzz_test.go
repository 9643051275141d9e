package query_test

import (
	"strings"
	"testing"

	"github.com/musterhpc/muster/accounting/query"
	"github.com/musterhpc/muster/accounting/query/querytest"
)

// FuzzGuard: what is let through begins as a SELECT, closes its brackets, and
// names no table function, setting or database.
func FuzzGuard(f *testing.F) {
	for _, sql := range append(querytest.Attacks(), questions()...) {
		f.Add(sql)
	}
	known := views() // their list is made of the schema, which costs more than the guard does
	f.Fuzz(func(t *testing.T, sql string) {
		if query.Guard(sql, known, "acct") != nil {
			return
		}
		plain := withoutStrings(sql)
		upper := strings.ToUpper(strings.TrimSpace(plain))
		if !strings.HasPrefix(upper, "SELECT") && !strings.HasPrefix(upper, "WITH") {
			t.Fatalf("%q is let through", sql)
		}
		if strings.Count(plain, "(") != strings.Count(plain, ")") || strings.ContainsAny(plain, ";#\x00") || strings.Contains(plain, "/*") || strings.Contains(plain, "--") {
			t.Fatalf("%q is let through", sql)
		}
		for _, word := range []string{"system.", "information_schema.", "file(", "url(", "remote(", "executable("} {
			if strings.Contains(strings.ToLower(plain), word) {
				t.Fatalf("%q is let through with %s", sql, word)
			}
		}
	})
}

// withoutStrings leaves out what stands in quotes, as the engine reads it.
func withoutStrings(sql string) string {
	var out strings.Builder
	quote := byte(0)
	for i := 0; i < len(sql); i++ {
		c := sql[i]
		switch {
		case quote != 0 && c == '\\':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"' || c == '`':
			quote = c
		default:
			out.WriteByte(c)
		}
	}
	return out.String()
}
