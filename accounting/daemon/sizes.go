package daemon

import (
	"cmp"
	"context"
	"fmt"
	"math/big"
	"slices"

	"github.com/musterhpc/muster/accounting/query"
	"github.com/musterhpc/muster/spec"
)

// sizeGroups are the numbers of CPUs at which sreport's groups begin.
func sizeGroups() []int64 { return []int64{50, 250, 500, 1000} }

const maxGroups = 1000

// sizeLine is one line of a job size report.
type sizeLine struct {
	account, wckey string
	used           []*big.Int // TRES-microseconds, by group of sizes
	jobs           []int64    // by group of sizes
}

// reportSizes answers sreport job Sizes…: what runs used, grouped by their number of CPUs. An
// account includes the accounts below it, and without named accounts the only one is root; with
// the option Flat each account counts alone.
func (r *report) reportSizes(ctx context.Context, accounts, wckeys bool) error {
	groups := r.q.GetGrouping()
	if len(groups) == 0 {
		groups = sizeGroups()
	}
	for i, n := range groups {
		if n <= 0 || len(groups) > maxGroups || (i > 0 && n <= groups[i-1]) {
			return spec.Refuse(
				spec.CodeBadRequest,
				"the groups of sizes must be numbers above 0, each larger than the one before",
			)
		}
	}
	var by []query.Key
	r.addColumns([3]string{"Cluster", "text"})
	switch {
	case accounts && wckeys:
		by = []query.Key{query.KeyAccount, query.KeyWCKey}
		r.addColumns([3]string{"Account", "text"})
	case accounts:
		by = []query.Key{query.KeyAccount}
		r.addColumns([3]string{"Account", "text"})
	default:
		by = []query.Key{query.KeyWCKey}
		r.addColumns([3]string{"WCKey", "text"})
	}
	r.addColumns([3]string{"TRES Name", "text"})
	unit := "TRES-seconds"
	if r.q.GetCount() {
		unit = "jobs"
	}
	for i := range len(groups) + 1 {
		r.addColumns([3]string{sizeName(groups, i), "int", unit})
	}
	r.addColumns(
		[3]string{"% of cluster", "float", "percent"},
		[3]string{"Total", "int", "TRES-seconds"},
	)
	for _, tres := range r.tres {
		if err := r.addSizes(ctx, tres, groups, by); err != nil {
			return err
		}
	}
	return nil
}

// sizeName is the title of the column of a group.
func sizeName(groups []int64, i int) string {
	switch i {
	case 0:
		return fmt.Sprintf("0-%d CPUs", groups[0]-1)
	case len(groups):
		return fmt.Sprintf(">= %d CPUs", groups[i-1])
	}
	return fmt.Sprintf("%d-%d CPUs", groups[i-1], groups[i]-1)
}

// addSizes adds the rows of one TRES.
func (r *report) addSizes(ctx context.Context, tres string, groups []int64, by []query.Key) error {
	lines, err := r.querySizes(ctx, tres, groups, by)
	if err != nil {
		return err
	}
	// The cluster's use and jobs, also of accounts that no row shows.
	all := new(big.Int)
	var jobs int64
	for _, line := range lines {
		for i := range line.used {
			all.Add(all, line.used[i])
			jobs += line.jobs[i]
		}
	}
	named := r.ask.Accounts
	switch {
	case by[0] == query.KeyAccount && !r.q.GetFlat():
		lines, err = r.sumByAccount(ctx, lines, named)
		if err != nil {
			return err
		}
	case by[0] == query.KeyAccount && len(named) > 0:
		lines = slices.DeleteFunc(
			lines,
			func(l *sizeLine) bool { return !slices.Contains(named, l.account) },
		)
	}
	for _, line := range lines {
		name := line.account
		switch {
		case len(by) == 2:
			name += ":" + line.wckey
		case by[0] == query.KeyWCKey:
			name = line.wckey
		}
		cells := []any{r.reply.GetCluster(), name, tres}
		sum := new(big.Int)
		var n int64
		for i := range line.used {
			sum.Add(sum, line.used[i])
			n += line.jobs[i]
			if r.q.GetCount() {
				cells = append(cells, line.jobs[i])
			} else {
				cells = append(cells, wholeSeconds(line.used[i]))
			}
		}
		share := 0.0
		switch {
		case r.q.GetCount() && jobs > 0:
			share = 100 * float64(n) / float64(jobs)
		case !r.q.GetCount() && all.Sign() > 0:
			share, _ = new(big.Rat).SetFrac(new(big.Int).Mul(sum, big.NewInt(100)), all).Float64()
		}
		r.addRow(append(cells, share, wholeSeconds(all))...)
	}
	return nil
}

// querySizes queries the lines of one TRES. Lines by account are those of every account, whichever
// are named: the sums of a named account need the accounts below it.
func (r *report) querySizes(
	ctx context.Context,
	tres string,
	groups []int64,
	by []query.Key,
) ([]*sizeLine, error) {
	request := r.ask
	request.TRES = tres
	if by[0] == query.KeyAccount {
		request.Accounts = nil
	}
	q, err := request.Sizes(r.scope, groups, by...)
	if err != nil {
		return nil, spec.Refuse(spec.CodeBadRequest, err.Error())
	}
	var lines []*sizeLine
	err = r.runQuery(ctx, q, func(scan func(...any) error) error {
		var k shareKey
		var group uint32
		var text string
		var jobs int64
		var dest []any
		for _, key := range by {
			dest = append(dest, k.columnFor(key))
		}
		if err := scan(append(dest, &group, &text, &jobs)...); err != nil {
			return err
		}
		n, err := parseAmount(text)
		if err != nil {
			return err
		}
		// Rows come ordered by line, so a new line begins where the keys change.
		last := len(lines) - 1
		if last < 0 || lines[last].account != k.account || lines[last].wckey != k.wckey {
			lines = append(lines, newSizeLine(k.account, k.wckey, len(groups)+1))
		}
		line := lines[len(lines)-1]
		line.used[group] = n
		line.jobs[group] = jobs
		return nil
	})
	return lines, err
}

func newSizeLine(account, wckey string, groups int) *sizeLine {
	line := &sizeLine{
		account: account,
		wckey:   wckey,
		used:    make([]*big.Int, groups),
		jobs:    make([]int64, groups),
	}
	for i := range line.used {
		line.used[i] = new(big.Int)
	}
	return line
}

// sumByAccount gives a line for each named account, the sum of its own line and of those of the
// accounts below it. Without named accounts the only one is root.
func (r *report) sumByAccount(
	ctx context.Context,
	lines []*sizeLine,
	named []string,
) ([]*sizeLine, error) {
	used := map[shareKey]*share{}
	for _, line := range lines {
		used[shareKey{account: line.account}] = nil
	}
	parents, err := r.queryParents(ctx, used)
	if err != nil {
		return nil, err
	}
	if len(named) == 0 {
		named = []string{rootAccount}
	}
	type key struct{ account, wckey string }
	sums := map[key]*sizeLine{}
	var sizeLines []*sizeLine
	for _, line := range lines {
		for at, depth := line.account, 0; depth < maxDepth; depth++ {
			if slices.Contains(named, at) {
				k := key{at, line.wckey}
				if sums[k] == nil {
					sums[k] = newSizeLine(at, line.wckey, len(line.used))
					sizeLines = append(sizeLines, sums[k])
				}
				for i := range line.used {
					sums[k].used[i].Add(sums[k].used[i], line.used[i])
					sums[k].jobs[i] += line.jobs[i]
				}
			}
			if at == rootAccount {
				break
			}
			up, ok := parents[at]
			if !ok {
				up = rootAccount
			}
			at = up
		}
	}
	slices.SortFunc(sizeLines, func(a, b *sizeLine) int {
		return cmp.Or(cmp.Compare(a.account, b.account), cmp.Compare(a.wckey, b.wckey))
	})
	return sizeLines, nil
}
