package tidy

import (
	"cmp"
	"fmt"
	"go/token"
	"slices"
	"strings"
)

// Breach is one place that breaks a rule.
type Breach struct {
	Rule string
	Path string // file or folder
	Line int    // 0 when the whole file or folder is meant
	Text string
}

func (b Breach) String() string {
	if b.Line == 0 {
		return fmt.Sprintf("%s: %s: %s", b.Rule, b.Path, b.Text)
	}
	return fmt.Sprintf("%s: %s:%d: %s", b.Rule, b.Path, b.Line, b.Text)
}

// rule is one named check over the tree.
type rule struct {
	name  string
	check func(*report)
}

// rules in the order they run. "marks" is last: it finds the marks that no
// other rule asked for.
var rules = []rule{
	{"compiles", checkCompiles},
	{"imports", checkImports},
	{"doc", checkDocs},
	{"format", checkFormat},
	{"size", checkSizes},
	{"if", checkIfs},
	{"assign", checkAssignments},
	{"pure", checkPure},
	{"order", checkMapOrder},
	{"float", checkFloats},
	{"global", checkGlobals},
	{"init", checkInit},
	{"output", checkOutput},
	{"registry", checkRegistries},
	{"errors", checkErrors},
	{"sleep", checkSleep},
	{"unfinished", checkUnfinished},
	{"marks", checkMarks},
}

// Names of every rule, in the order they run.
func Names() []string {
	out := make([]string, len(rules))
	for i, r := range rules {
		out[i] = r.name
	}
	return out
}

// Run applies every rule to a tree that was checked, and gives what it found
// by rule, place and text. Exceptions are taken off; one that took nothing off
// is itself reported.
func Run(tree *Tree, exceptions []Exception) []Breach {
	r := &report{tree: tree}
	for _, rule := range rules {
		r.rule = rule.name
		rule.check(r)
	}
	breaches := except(r.found, exceptions)
	slices.SortStableFunc(breaches, func(a, b Breach) int {
		return cmp.Or(slices.Index(Names(), a.Rule)-slices.Index(Names(), b.Rule),
			strings.Compare(a.Path, b.Path), a.Line-b.Line, strings.Compare(a.Text, b.Text))
	})
	return slices.Compact(breaches)
}

func except(found []Breach, exceptions []Exception) []Breach {
	used := make([]bool, len(exceptions))
	breaches := slices.DeleteFunc(found, func(breach Breach) bool {
		for i, exception := range exceptions {
			if exception.matchesBreach(breach) {
				used[i] = true
				return true
			}
		}
		return false
	})
	for i, exception := range exceptions {
		if !used[i] {
			breaches = append(
				breaches,
				Breach{
					Rule: exception.Rule,
					Path: exception.Path,
					Text: fmt.Sprintf(
						"the exception for %q is not needed any more: take it out of the table",
						exception.Text,
					),
				},
			)
		}
	}
	return breaches
}

// report collects what the rules find.
type report struct {
	tree  *Tree
	rule  string
	found []Breach
}

func (r *report) addBreach(path string, line int, format string, args ...any) {
	r.found = append(r.found, Breach{r.rule, path, line, fmt.Sprintf(format, args...)})
}

func (r *report) addBreachAt(position token.Pos, format string, args ...any) {
	p := r.tree.Fset.Position(position)
	r.addBreach(p.Filename, p.Line, format, args...)
}

func (r *report) lineOf(position token.Pos) int { return r.tree.Fset.Position(position).Line }

// visitProduction calls visit for each production file that people wrote.
func (r *report) visitProduction(visit func(*Package, *File)) {
	for _, pkg := range r.tree.Packages {
		for _, file := range pkg.Files {
			if !file.Generated {
				visit(pkg, file)
			}
		}
	}
}

// visitWritten calls visit for each file that people wrote, tests included.
func (r *report) visitWritten(visit func(*Package, *File)) {
	r.visitProduction(visit)
	for _, pkg := range r.tree.Packages {
		for _, file := range pkg.Tests {
			if !file.Generated {
				visit(pkg, file)
			}
		}
	}
}

func checkCompiles(r *report) {
	for _, err := range r.tree.unparsed {
		r.addBreach(".", 0, "does not parse, so no rule can be applied: %v", err)
	}
	for _, pkg := range r.tree.Packages {
		if pkg.broken != nil {
			r.addBreach(
				pkg.Dir,
				0,
				"does not compile, so not every rule can be applied: %v",
				pkg.broken,
			)
		}
	}
}

func checkMarks(r *report) {
	known := []string{"unordered", "table", "global", "float", "sleep"}
	for _, pkg := range r.tree.Packages {
		for _, file := range slices.Concat(pkg.Files, pkg.Tests) {
			for _, m := range file.marks {
				switch {
				case !slices.Contains(known, m.name):
					r.addBreach(file.Path, m.line, "there is no mark //muster:%s", m.name)
				case m.why == "":
					r.addBreach(file.Path, m.line, "//muster:%s needs a reason", m.name)
				// a table may grow past the limit any day
				case !m.used && pkg.broken == nil && m.name != "table":
					r.addBreach(
						file.Path,
						m.line,
						"//muster:%s excuses nothing here: take it out",
						m.name,
					)
				}
			}
		}
	}
}
