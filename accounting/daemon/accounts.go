package daemon

import (
	"context"
	"slices"
	"strings"

	"github.com/musterhpc/muster/accounting/query"
)

// association is one of the tree.
type association struct {
	id, parent    uint32
	account, user string
}

// reportAccounts is sreport cluster AccountUtilizationByUser: the tree of accounts,
// each with what it and everything below it used, then its users.
func (r *report) reportAccounts(ctx context.Context) error {
	shares, err := r.queryUsed(ctx, query.KeyAccount, query.KeyUser)
	if err != nil {
		return err
	}
	totals, err := r.queryTotals(ctx)
	if err != nil {
		return err
	}
	parents, err := r.queryParents(ctx, shares)
	if err != nil {
		return err
	}
	tree := &accountTree{
		report:   r,
		totals:   totals,
		children: map[string][]string{},
		users:    map[string][]*share{},
	}
	for account, parent := range parents {
		if account != rootAccount {
			tree.children[parent] = append(tree.children[parent], account)
		}
	}
	for _, list := range tree.children {
		slices.Sort(list)
	}
	for _, sh := range shares {
		tree.users[sh.account] = append(tree.users[sh.account], sh)
	}
	r.addUsageColumns("Account", "Login", "Proper Name")
	tree.showTree(rootAccount, 0)
	return nil
}

// rootAccount is the top of every tree of accounts.
const rootAccount = "root"

// queryParents gives each account's parent. Accounts that used something and are
// in no association any more stand below the root.
func (r *report) queryParents(
	ctx context.Context,
	shares map[shareKey]*share,
) (map[string]string, error) {
	byID := map[uint32]association{}
	err := r.runQuery(ctx, r.ask.Tree(r.scope), func(scan func(...any) error) error {
		var assoc association
		if err := scan(&assoc.id, &assoc.parent, &assoc.account, &assoc.user); err != nil {
			return err
		}
		byID[assoc.id] = assoc
		return nil
	})
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, assoc := range byID {
		if assoc.user == "" {
			out[assoc.account] = rootAccount
			if p, ok := byID[assoc.parent]; ok && p.account != assoc.account {
				out[assoc.account] = p.account
			}
		}
	}
	for key := range shares {
		if _, ok := out[key.account]; !ok {
			out[key.account] = rootAccount
		}
	}
	return out, nil
}

// accountTree prints the tree.
type accountTree struct {
	*report
	totals   []any
	children map[string][]string
	users    map[string][]*share
}

// maxDepth ends a walk of a tree that is none.
const maxDepth = 64

// sumBelow is what an account and everything below it used; nil if nothing did.
func (t *accountTree) sumBelow(account string, depth int) *share {
	var out *share
	add := func(sh *share) {
		if sh == nil {
			return
		}
		if out == nil {
			out = t.emptyShare(shareKey{account: account})
		}
		out.add(sh)
	}
	for _, sh := range t.users[account] {
		add(sh)
	}
	if depth < maxDepth {
		for _, c := range t.children[account] {
			add(t.sumBelow(c, depth+1))
		}
	}
	return out
}

func (t *accountTree) showTree(account string, depth int) {
	sum := t.sumBelow(account, depth)
	if sum == nil || depth > maxDepth {
		return
	}
	t.addLine(sum, int64(depth))
	users := t.users[account]
	slices.SortFunc(users, func(a, b *share) int { return strings.Compare(a.user, b.user) })
	for _, sh := range users {
		t.addLine(sh, int64(depth+1))
	}
	for _, c := range t.children[account] {
		t.showTree(c, depth+1)
	}
}

func (t *accountTree) addLine(sh *share, depth int64) {
	for i, tres := range t.tres {
		t.addRow(
			t.reply.GetCluster(),
			sh.account,
			sh.user,
			"",
			tres,
			wholeSeconds(sh.used[i]),
			sh.energy,
			depth,
			t.totals[i],
		)
	}
}
