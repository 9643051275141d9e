package daemon

import "context"

// nodeEvents is sacctmgr show event: when nodes were not up, and why.
func (r *report) nodeEvents(ctx context.Context) error {
	r.addColumns(
		[3]string{"Cluster", "text"},
		[3]string{"NodeName", "text"},
		[3]string{"TimeStart", "int", "time"},
		[3]string{"TimeEnd", "int", "time"},
		[3]string{"State", "text"},
		[3]string{"Reason", "text"},
		[3]string{"User", "text"},
	)
	return r.runQuery(ctx, r.ask.NodeEvents(r.scope), func(scan func(...any) error) error {
		var node, state, reason, who string
		var from, until int64
		if err := scan(&node, &from, &until, &state, &reason, &who); err != nil {
			return err
		}
		r.addRow(r.reply.GetCluster(), node, from*micro, until*micro, state, reason, who)
		return nil
	})
}
