package main

import (
	"go/ast"
	"path"
	"slices"

	"github.com/musterhpc/muster/internal/tidy"
)

// arrow runs from a file that uses a name to the file that declares it, both
// given as positions in the package's list of files.
type arrow struct{ from, to int }

// countArrows gives the number of arrows between the files of a package, and of
// those that run upward in the best order of the files that was found.
func (m *meter) countArrows(pkg *tidy.Package, files []*tidy.File) (all, upward int) {
	index := map[string]int{}
	for i, file := range files {
		index[file.Path] = i
	}
	seen := map[arrow]bool{}
	for i, file := range files {
		ast.Inspect(file.AST, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			if !ok {
				return true
			}
			used := pkg.Info.Uses[id]
			if used == nil || used.Pkg() != pkg.Types {
				return true
			}
			declared, ok := index[m.fset.Position(used.Pos()).Filename]
			if ok && declared != i {
				seen[arrow{i, declared}] = true
			}
			return true
		})
	}
	place := orderFiles(len(files), seen)
	for i := range files {
		for j := range files {
			if seen[arrow{i, j}] && place[i] > place[j] {
				upward++
				m.noteFinding("upward", files[i].AST.Package, "uses "+path.Base(files[j].Path))
			}
		}
	}
	return len(seen), upward
}

// orderFiles places the files so that few arrows run upward. Finding the best
// order is hard in general; this is the greedy order of Eades, Lin and Smyth
// (sinks last, sources first, then the file that gives most and takes least),
// improved by moving single files while that helps.
func orderFiles(n int, arrows map[arrow]bool) []int {
	order := greedyOrder(n, arrows)
	for improved := true; improved; {
		improved = false
		for file := range n {
			if moveFile(order, file, arrows) {
				improved = true
			}
		}
	}
	place := make([]int, n)
	for i, file := range order {
		place[file] = i
	}
	return place
}

func greedyOrder(n int, arrows map[arrow]bool) []int {
	left := map[int]bool{}
	for i := range n {
		left[i] = true
	}
	degrees := func(file int) (out, in int) {
		for other := range left {
			if arrows[arrow{file, other}] {
				out++
			}
			if arrows[arrow{other, file}] {
				in++
			}
		}
		return out, in
	}
	var first, last []int
	for len(left) > 0 {
		best, bestValue := -1, 0
		asLast := false
		for file := range n {
			if !left[file] {
				continue
			}
			out, in := degrees(file)
			value := out - in
			if out == 0 {
				best = file
				asLast = true
				break
			}
			if in == 0 {
				value = n + 1
			}
			if best < 0 || value > bestValue {
				best = file
				bestValue = value
			}
		}
		delete(left, best)
		if asLast {
			last = append(last, best)
		} else {
			first = append(first, best)
		}
	}
	slices.Reverse(last)
	return append(first, last...)
}

// moveFile moves one file to the place where most arrows run downward, and
// tells whether that was an improvement.
func moveFile(order []int, file int, arrows map[arrow]bool) bool {
	at := slices.Index(order, file)
	rest := slices.Delete(slices.Clone(order), at, at+1)
	// Going down the list, a file passed turns its arrows to us into downward
	// ones, and ours to it into upward ones.
	gain, bestGain := 0, 0
	best, here := 0, 0
	for i, other := range rest {
		if i == at {
			here = gain
		}
		if gain > bestGain {
			best = i
			bestGain = gain
		}
		if arrows[arrow{other, file}] {
			gain++
		}
		if arrows[arrow{file, other}] {
			gain--
		}
	}
	if at == len(rest) {
		here = gain
	}
	if gain > bestGain {
		best = len(rest)
		bestGain = gain
	}
	if bestGain <= here {
		return false
	}
	copy(order, slices.Insert(rest, best, file))
	return true
}
