package query_test

import (
	"testing"
	"time"

	"github.com/musterhpc/muster/accounting/query"
)

// TestMonth: months are those of the calendar, for two hundred years.
func TestMonth(t *testing.T) {
	for at := time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC); at.Year() < 2170; at = at.AddDate(0, 1, 0) {
		text := at.Format("2006-01")
		m, err := query.ParseMonth(text)
		if err != nil || m.From != at.UnixMicro() || m.Until != at.AddDate(0, 1, 0).UnixMicro() || m.String() != text {
			t.Fatalf("%s is %d to %d, %q: %v", text, m.From, m.Until, m, err)
		}
		if query.MonthOf(m.From) != m || query.MonthOf(m.Until-1) != m {
			t.Fatalf("the instants of %s are not in it", text)
		}
	}
	for _, bad := range []string{"", "2026", "2026-13", "2026-00", "26-03", "2026-3", "2026-03-01", "x026-03", "1969-12", "2026-0x"} {
		if m, err := query.ParseMonth(bad); err == nil {
			t.Errorf("%q is %s", bad, m)
		}
	}
}
