package tidy

import (
	"fmt"
	"slices"
	"strings"
)

// checkImports holds production files to the import order. Tests may reach
// wider: they bring real things together.
func checkImports(r *report) {
	for _, pkg := range r.tree.Packages {
		for _, file := range pkg.Files {
			from, ok := roomOf(pkg.Dir)
			if !ok {
				r.addBreach(
					pkg.Dir,
					0,
					"is in no room of the import order: add it to the table in internal/tidy, or move it",
				)
				break
			}
			for _, imp := range importsOf(file) {
				if text := judge(r.tree, from, file, imp.path); text != "" {
					r.addBreachAt(imp.pos, "%s", text)
				}
			}
		}
	}
}

// judge gives what is wrong with an import, or "".
func judge(tree *Tree, from room, file *File, importPath string) string {
	dir, own := tree.dirOf(importPath)
	suite := strings.HasSuffix(file.AST.Name.Name, "test") || from.path == "internal/testkit" ||
		from.path == "internal/tidy"
	if !suite &&
		slices.ContainsFunc(
			testOnly,
			func(m string) bool { return isWithin(importPath, m) || own && isWithin(dir, m) },
		) {
		return fmt.Sprintf(
			"imports %s, which only tests and conformance suites (packages named …test) may",
			importPath,
		)
	}
	if !own {
		if isStandard(importPath) || from.mayKnow(importPath) || suite && isTestOnly(importPath) {
			return ""
		}
		return fmt.Sprintf("%s must not know %s: %s", from.path, importPath, from.why)
	}
	to, ok := roomOf(dir)
	switch {
	case !ok:
		return fmt.Sprintf("imports %s, which is in no room", dir)
	case from.mayImport(to):
		return ""
	case from.layer == to.layer:
		return fmt.Sprintf(
			"%s must not import %s: both stand in layer %d, side by side (%s)",
			from.path,
			to.path,
			from.layer,
			from.why,
		)
	case from.layer < to.layer:
		return fmt.Sprintf(
			"%s (layer %d) must not import upwards, from %s (layer %d): %s",
			from.path,
			from.layer,
			to.path,
			to.layer,
			from.why,
		)
	}
	return fmt.Sprintf("%s must not import %s: %s", from.path, to.path, from.why)
}

func isTestOnly(importPath string) bool {
	return slices.ContainsFunc(testOnly, func(m string) bool { return isWithin(importPath, m) })
}

// isStandard tells a package of the standard library: its first element has no
// dot. "C" is the compiler's own.
func isStandard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}
