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

// reportPairs is a report of use by two keys. Who stands first gets a line with the
// sum, in which the second is empty, where that is a person; else each pair is
// a line of its own.
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
	people := map[bool][]string{true: {first, second, "Proper Name"}, false: {first, second}}[two == query.KeyUser]
	if one == query.KeyUser {
		people = []string{first, "Proper Name", second}
	}
	r.usageColumns(people...)
	list := make([]*share, 0, len(shares))
	sums := map[string]*share{}
	for _, sh := range shares {
		list = append(list, sh)
		k := *sh.columnFor(one)
		if sums[k] == nil {
			head := shareKey{}
			*head.columnFor(one) = k
			sums[k] = r.emptyShare(head)
		}
		sums[k].add(sh)
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
			if k := *sh.columnFor(one); i == 0 || k != last {
				last = k
				r.pair(sums[k], one, two, 0, totals)
			}
		}
		r.pair(sh, one, two, depth, totals)
	}
	return nil
}

func (r *report) pair(sh *share, one, two query.Key, depth int64, totals []any) {
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

// sizeGroups are the numbers of CPUs at which sreport's groups begin.
func sizeGroups() []int64 { return []int64{50, 250, 500, 1000} }

// mostGroups is how many groups a report may have.
const mostGroups = 1000

// sized is what the runs of one line of a job size report used, by group.
type sized struct {
	account, wckey string
	used           []*big.Int
	jobs           []int64
}

// reportSizes is sreport job Sizes…: the time of runs by their size. Accounts stand
// for everything below them, the top one if none are named; flat, each stands
// for itself.
func (r *report) reportSizes(ctx context.Context, accounts, wckeys bool) error {
	groups := r.q.GetGrouping()
	if len(groups) == 0 {
		groups = sizeGroups()
	}
	for i, n := range groups {
		if n <= 0 || len(groups) > mostGroups || (i > 0 && n <= groups[i-1]) {
			return spec.Refuse(
				spec.CodeBadRequest,
				"the groups of sizes must be numbers above 0, each larger than the one before",
			)
		}
	}
	var by []query.Key
	r.setColumns([3]string{"Cluster", "text"})
	switch {
	case accounts && wckeys:
		by = []query.Key{query.KeyAccount, query.KeyWCKey}
		r.setColumns([3]string{"Account", "text"})
	case accounts:
		by = []query.Key{query.KeyAccount}
		r.setColumns([3]string{"Account", "text"})
	default:
		by = []query.Key{query.KeyWCKey}
		r.setColumns([3]string{"WCKey", "text"})
	}
	r.setColumns([3]string{"TRES Name", "text"})
	unit := "TRES-seconds"
	if r.q.GetCount() {
		unit = "jobs"
	}
	for i := range len(groups) + 1 {
		r.setColumns([3]string{sizeName(groups, i), "int", unit})
	}
	r.setColumns(
		[3]string{"% of cluster", "float", "percent"},
		[3]string{"Total", "int", "TRES-seconds"},
	)
	for _, tres := range r.tres {
		if err := r.sizesOf(ctx, tres, groups, by); err != nil {
			return err
		}
	}
	return nil
}

// sizeName is the title of a group.
func sizeName(groups []int64, i int) string {
	switch i {
	case 0:
		return fmt.Sprintf("0-%d CPUs", groups[0]-1)
	case len(groups):
		return fmt.Sprintf(">= %d CPUs", groups[i-1])
	}
	return fmt.Sprintf("%d-%d CPUs", groups[i-1], groups[i]-1)
}

// sizesOf makes the lines of one TRES.
func (r *report) sizesOf(ctx context.Context, tres string, groups []int64, by []query.Key) error {
	lines, err := r.sizedRuns(ctx, tres, groups, by)
	if err != nil {
		return err
	}
	all, jobs := new(big.Int), int64(0) // of the cluster, also what no line shows
	for _, l := range lines {
		for i := range l.used {
			all.Add(all, l.used[i])
			jobs += l.jobs[i]
		}
	}
	switch named := r.ask.Accounts; {
	case by[0] == query.KeyAccount && !r.q.GetFlat():
		lines, err = r.lumpAccounts(ctx, lines, named)
		if err != nil {
			return err
		}
	case by[0] == query.KeyAccount && len(named) > 0:
		lines = slices.DeleteFunc(
			lines,
			func(l *sized) bool { return !slices.Contains(named, l.account) },
		)
	}
	for _, l := range lines {
		name := l.account
		switch {
		case len(by) == 2:
			name += ":" + l.wckey
		case by[0] == query.KeyWCKey:
			name = l.wckey
		}
		cells := []any{r.reply.GetCluster(), name, tres}
		sum, n := new(big.Int), int64(0)
		for i := range l.used {
			sum.Add(sum, l.used[i])
			n += l.jobs[i]
			if r.q.GetCount() {
				cells = append(cells, l.jobs[i])
			} else {
				cells = append(cells, wholeSeconds(l.used[i]))
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

// sizedRuns asks for the lines as they are, of all accounts where lines are by
// account.
func (r *report) sizedRuns(
	ctx context.Context,
	tres string,
	groups []int64,
	by []query.Key,
) ([]*sized, error) {
	ask := r.ask
	ask.TRES = tres
	if by[0] == query.KeyAccount {
		ask.Accounts = nil
	}
	q, err := ask.Sizes(r.scope, groups, by...)
	if err != nil {
		return nil, spec.Refuse(spec.CodeBadRequest, err.Error())
	}
	var lines []*sized
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
		if last := len(lines) - 1; last < 0 || lines[last].account != k.account ||
			lines[last].wckey != k.wckey {
			lines = append(lines, newSized(k.account, k.wckey, len(groups)+1))
		}
		l := lines[len(lines)-1]
		l.used[group], l.jobs[group] = n, jobs
		return nil
	})
	return lines, err
}

func newSized(account, wckey string, groups int) *sized {
	l := &sized{
		account: account,
		wckey:   wckey,
		used:    make([]*big.Int, groups),
		jobs:    make([]int64, groups),
	}
	for i := range l.used {
		l.used[i] = new(big.Int)
	}
	return l
}

// lumpAccounts adds each line to the accounts that are named, or to the top.
func (r *report) lumpAccounts(
	ctx context.Context,
	lines []*sized,
	named []string,
) ([]*sized, error) {
	used := map[shareKey]*share{}
	for _, l := range lines {
		used[shareKey{account: l.account}] = nil
	}
	parents, err := r.queryParents(ctx, used)
	if err != nil {
		return nil, err
	}
	if len(named) == 0 {
		named = []string{rootAccount}
	}
	type key struct{ account, wckey string }
	sums := map[key]*sized{}
	var out []*sized
	for _, l := range lines {
		for at, depth := l.account, 0; depth < maxDepth; depth++ {
			if slices.Contains(named, at) {
				k := key{at, l.wckey}
				if sums[k] == nil {
					sums[k] = newSized(at, l.wckey, len(l.used))
					out = append(out, sums[k])
				}
				for i := range l.used {
					sums[k].used[i].Add(sums[k].used[i], l.used[i])
					sums[k].jobs[i] += l.jobs[i]
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
	slices.SortFunc(
		out,
		func(a, b *sized) int { return cmp.Or(cmp.Compare(a.account, b.account), cmp.Compare(a.wckey, b.wckey)) },
	)
	return out, nil
}
