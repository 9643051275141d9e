package daemon

import (
	"context"

	"github.com/musterhpc/muster/accounting/kpi"
)

// reportFairshare is muster report fairshare: how each association's share, use and
// factor went, day by day (UTC). The controller notes them once an hour; a day
// shows its last note.
func (r *report) reportFairshare(ctx context.Context) error {
	ratio := string(kpi.Ratio)
	r.addColumns(
		[3]string{"Day", "text"},
		[3]string{"Account", "text"},
		[3]string{"Login", "text"},
		[3]string{"Shares", "float", ratio},
		[3]string{"Used", "float", ratio},
		[3]string{"Gap", "float", ratio},
		[3]string{"Factor", "float", ratio},
	)
	return r.runQuery(ctx, r.ask.Fairshares(r.scope), func(scan func(...any) error) error {
		var day, account, user string
		var shares, used, factor float64
		if err := scan(&day, &account, &user, &shares, &used, &factor); err != nil {
			return err
		}
		r.addRow(day, account, user, shares, used, used-shares, factor)
		return nil
	})
}
