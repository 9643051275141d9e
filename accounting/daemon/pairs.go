package daemon

import (
	"cmp"
	"context"
	"slices"

	"github.com/musterhpc/muster/accounting/query"
)

// reportPairs reports the use by each pair of two keys, for example by account and QOS. Where the
// second key is the user, the rows of each first key follow a row with their sum and no user.
func (r *report) reportPairs(
	ctx context.Context,
	first string,
	one query.Key,
	second string,
	two query.Key,
) error {
	shares, err := r.queryUsed(ctx, one, two)
	if err != nil {
		return err
	}
	totals, err := r.queryTotals(ctx)
	if err != nil {
		return err
	}
	switch query.KeyUser {
	case one:
		r.addUsageColumns(first, "Proper Name", second)
	case two:
		r.addUsageColumns(first, second, "Proper Name")
	default:
		r.addUsageColumns(first, second)
	}
	list := make([]*share, 0, len(shares))
	sums := map[string]*share{} // by the value of the first key
	for _, sh := range shares {
		list = append(list, sh)
		value := *sh.columnFor(one)
		if sums[value] == nil {
			head := shareKey{}
			*head.columnFor(one) = value
			sums[value] = r.emptyShare(head)
		}
		sums[value].add(sh)
	}
	slices.SortFunc(list, func(a, b *share) int {
		return cmp.Or(
			cmp.Compare(*a.columnFor(one), *b.columnFor(one)),
			cmp.Compare(*a.columnFor(two), *b.columnFor(two)),
		)
	})
	last := ""
	for i, sh := range list {
		depth := int64(0)
		if two == query.KeyUser {
			depth = 1
			if value := *sh.columnFor(one); i == 0 || value != last {
				last = value
				r.addPair(sums[value], one, two, 0, totals)
			}
		}
		r.addPair(sh, one, two, depth, totals)
	}
	return nil
}

// addPair adds the rows of one pair, one for each TRES. Beside a user is the empty cell of the
// proper name, which the ledger does not hold.
func (r *report) addPair(sh *share, one, two query.Key, depth int64, totals []any) {
	for i, tres := range r.tres {
		cells := []any{r.reply.GetCluster(), *sh.columnFor(one), *sh.columnFor(two)}
		switch query.KeyUser {
		case two:
			cells = append(cells, "")
		case one:
			cells = slices.Insert(cells, 2, any(""))
		}
		r.addRow(append(cells, tres, wholeSeconds(sh.used[i]), sh.energy, depth, totals[i])...)
	}
}
