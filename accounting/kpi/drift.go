package kpi

import "slices"

// Node is one association of the tree.
type Node struct {
	ID, Parent    uint32
	Account, User string
	Shares        int64 // 0 = 1; negative = the parent's, none of its own
}

// Use is what one user used in one account while there was demand.
type Use struct {
	Account, User string
	Used          float64 // billing TRES times time
}

// DriftOf is the drift of a window: in all, and its parts by account and by
// user. ok is false where nothing was used.
type DriftOf struct {
	Total    float64
	Accounts map[string]float64
	Users    map[string]float64
	OK       bool
}

// Drift computes fairshare_drift. Whoever is in the list has demand. Those
// that are in no association stand below the root with one share.
func Drift(tree []Node, use []Use) DriftOf {
	d := newDrifting(tree)
	total := 0.0
	for _, u := range use {
		d.leaf(u.Account, u.User).used += u.Used
		total += u.Used
	}
	if total <= 0 {
		return DriftOf{}
	}
	d.shareOut()
	driftOf := DriftOf{OK: true, Accounts: map[string]float64{}, Users: map[string]float64{}}
	for _, id := range d.order {
		l := d.leaves[id]
		part := l.used/total - l.share
		if part < 0 {
			part = -part
		}
		part /= 2
		driftOf.Total += part
		driftOf.Accounts[l.Account] += part
		if l.User != "" {
			driftOf.Users[l.User] += part
		}
	}
	return driftOf
}

// Slope is the least squares line's through the points; ok is false for fewer
// than two.
func Slope(x, y []float64) (slope float64, ok bool) {
	if len(x) < 2 {
		return 0, false
	}
	var mx, my float64
	for i := range x {
		mx += x[i] / float64(len(x))
		my += y[i] / float64(len(x))
	}
	var num, den float64
	for i := range x {
		num += (x[i] - mx) * (y[i] - my)
		den += (x[i] - mx) * (x[i] - mx)
	}
	if den == 0 {
		return 0, false
	}
	return num / den, true
}

// leaf is an association with demand.
type leaf struct {
	Node
	used, share float64
}

// drifting is a tree with what was used in it.
type drifting struct {
	byID   map[uint32]Node
	byName map[[2]string]uint32 // account, user
	leaves map[uint32]*leaf
	order  []uint32
	next   uint32 // of made up ids, downwards
}

func newDrifting(tree []Node) *drifting {
	d := &drifting{
		byID:   map[uint32]Node{},
		byName: map[[2]string]uint32{},
		leaves: map[uint32]*leaf{},
		next:   ^uint32(0),
	}
	for _, node := range tree {
		d.byID[node.ID] = node
		k := [2]string{node.Account, node.User}
		if first, ok := d.byName[k]; !ok || node.ID < first {
			d.byName[k] = node.ID
		}
	}
	// Whoever is above itself is taken to be at the top: a tree it must be.
	for _, node := range tree {
		above := node.Parent
		for range tree {
			if above == node.ID {
				node.Parent = 0
				d.byID[node.ID] = node
				break
			}
			above = d.byID[above].Parent
		}
	}
	return d
}

// leaf finds the association that a use counts for.
func (d *drifting) leaf(account, user string) *leaf {
	id, ok := d.byName[[2]string{account, user}]
	if !ok {
		id, ok = d.byName[[2]string{account, ""}]
	}
	if !ok {
		id = d.next
		d.next--
		d.byID[id] = Node{
			ID:      id,
			Parent:  d.byName[[2]string{"root", ""}],
			Account: account,
			User:    user,
		}
		d.byName[[2]string{account, user}] = id
	}
	for range len(d.byID) {
		node := d.byID[id]
		if _, there := d.byID[node.Parent]; node.Shares >= 0 || !there || node.Parent == id {
			break
		}
		id = node.Parent
	}
	l := d.leaves[id]
	if l == nil {
		l = &leaf{Node: d.byID[id]}
		d.leaves[id] = l
		d.order = append(d.order, id)
	}
	return l
}

// path is the way from the top of the tree to an association.
func (d *drifting) path(id uint32) []uint32 {
	var out []uint32
	for range len(d.byID) + 1 {
		node, ok := d.byID[id]
		if !ok {
			break
		}
		out = append(out, id)
		id = node.Parent
	}
	slices.Reverse(out)
	return out
}

// shareOut gives each leaf its part of the tree: at each level the shares of
// those with demand at or below them. What is used directly on an account
// stands beside its children, with the account's own shares.
func (d *drifting) shareOut() {
	type edge struct{ parent, child uint32 }
	sums, seen := map[uint32]int64{}, map[edge]bool{}
	shares := func(id uint32) int64 { return max(d.byID[id].Shares, 1) }
	add := func(e edge) {
		if !seen[e] {
			seen[e] = true
			sums[e.parent] += shares(e.child)
		}
	}
	const top = 0
	steps := func(id uint32) []edge {
		path := d.path(id)
		edges := []edge{{top, path[0]}}
		for i := 1; i < len(path); i++ {
			edges = append(edges, edge{path[i-1], path[i]})
		}
		return append(edges, edge{id, id}) // its own use, beside its children's
	}
	for _, id := range d.order {
		for _, e := range steps(id) {
			add(e)
		}
	}
	for _, id := range d.order {
		share := 1.0
		for _, e := range steps(id) {
			if sums[e.parent] > 0 {
				share *= float64(shares(e.child)) / float64(sums[e.parent])
			}
		}
		d.leaves[id].share = share
	}
}
