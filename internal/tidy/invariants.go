package tidy

import (
	"go/ast"
	"regexp"
	"slices"
	"strings"
)

var checkName = regexp.MustCompile("`state\\.(Check[A-Z][A-Za-z0-9]*)`")

// Invariants compares the checks that a page names, as `state.CheckX`, with
// the exported functions CheckX of ledger/state.
func Invariants(tree *Tree, page string) []Breach {
	const where = "docs/invariants.md"
	var named, exist []string
	for _, m := range checkName.FindAllStringSubmatch(page, -1) {
		named = append(named, m[1])
	}
	if pkg := tree.packageNamed(tree.Module + "/ledger/state"); pkg != nil {
		for _, file := range pkg.Files {
			for _, d := range file.AST.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if ok && fn.Recv == nil && isInvariantName(fn.Name.Name) {
					exist = append(exist, fn.Name.Name)
				}
			}
		}
	}
	var breaches []Breach
	for _, n := range named {
		if !slices.Contains(exist, n) {
			breaches = append(breaches,
				Breach{Rule: "invariants", Path: where, Text: "names state." + n +
					", which does not exist"})
		}
	}
	for _, name := range exist {
		if !slices.Contains(named, name) {
			breaches = append(
				breaches,
				Breach{Rule: "invariants", Path: where, Text: "does not say what state." +
					name + " checks"},
			)
		}
	}
	return breaches
}

// isInvariantName tells whether a function is named as one check is: CheckJobs. Check and
// Checks apply them all.
func isInvariantName(name string) bool {
	noun, ok := strings.CutPrefix(name, "Check")
	return ok && noun != "" && noun != "s"
}
