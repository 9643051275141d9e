package clickhouse

import (
	"context"
	"strings"
	"testing"

	"github.com/musterhpc/muster/accounting/query"
)

// TestStoredViewsRun: each stored view can be made, again too, and asked; what it
// lists as its columns it has.
func TestStoredViewsRun(t *testing.T) {
	s := openStore(t, startEngine(t).Socket(), "stored")
	ctx := context.Background()
	if err := s.makeViews(ctx); err != nil {
		t.Fatal(err)
	}
	for _, v := range query.StoredViews() {
		args := "(cluster = 'lab', from = toUnixTimestamp(toDateTime(1800000000)), until = toUnixTimestamp(toDateTime(1800003600)))"
		switch {
		case len(v.Params) == 1:
			args = "(cluster = 'lab')"
		case v.Params[1] == "job":
			args = "(cluster = 'lab', job = toUInt32OrZero('42'))"
		}
		columns := make([]string, len(v.Columns))
		for i, c := range v.Columns {
			columns[i] = "toString(`" + c.Name + "`)"
		}
		rows := 0
		sql := "SELECT " + strings.Join(columns, ", ") + " FROM " + s.qualifyTable(v.Name) + args
		count := func(func(...any) error) error { rows++; return nil }
		if err := s.Query(ctx, query.Query{SQL: sql}, count); err != nil || rows != 0 {
			t.Errorf("%s: %d rows of an empty store, %v", v.Name, rows, err)
		}
	}
}
