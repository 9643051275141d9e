package tidy

import (
	"bytes"
	"go/ast"
	"go/format"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Loose guards against monsters. They are not targets: a reader of one screen
// must understand it without its neighbours, so prefer a longer file to a
// compressed one.
const (
	maxFileLines     = 1500
	maxFunctionLines = 120
	maxParameters    = 6
	maxUnrelated     = 2 // values that one statement assigns
)

// checkDocs wants exactly one package comment for each package, and in the
// form godoc expects.
func checkDocs(r *report) {
	for _, pkg := range r.tree.Packages {
		var docs []*File
		for _, file := range pkg.Files {
			if file.AST.Doc != nil && strings.TrimSpace(file.AST.Doc.Text()) != "" {
				docs = append(docs, file)
			}
		}
		switch {
		case len(pkg.Files) == 0:
			r.addBreach(pkg.Dir, 0, "has tests only: add a doc.go that says what they are for")
		case len(docs) == 0:
			r.addBreach(pkg.Dir, 0, "has no package comment: say in a sentence what it is for")
		case len(docs) > 1:
			r.addBreachAt(
				docs[1].AST.Doc.Pos(),
				"second package comment (the first is in %s)",
				docs[0].Path,
			)
		default:
			name, text := docs[0].AST.Name.Name, docs[0].AST.Doc.Text()
			if want := "Package " + name + " "; name != "main" && !strings.HasPrefix(text, want) {
				r.addBreachAt(docs[0].AST.Doc.Pos(), "package comment must start with %q", want)
			}
		}
	}
}

func checkFormat(r *report) {
	r.visitWritten(func(_ *Package, file *File) {
		want, err := format.Source(file.Src)
		if err != nil {
			r.addBreach(file.Path, 0, "cannot be formatted: %v", err)
		} else if !bytes.Equal(want, file.Src) {
			r.addBreach(file.Path, firstDifference(file.Src, want), "is not gofmt-clean: run `make fmt`")
		}
	})
}

func firstDifference(a, b []byte) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return 1 + bytes.Count(a[:n], []byte("\n"))
}

// checkSizes reports files, functions and parameter lists that have grown out
// of proportion. Test functions may be long.
func checkSizes(r *report) {
	r.visitWritten(func(_ *Package, file *File) {
		if n := bytes.Count(file.Src, []byte("\n")); n > maxFileLines {
			r.addBreach(
				file.Path,
				0,
				"has %d lines, more than %d: would two files be clearer?",
				n,
				maxFileLines,
			)
		}
	})
	r.visitProduction(func(_ *Package, file *File) {
		for _, d := range file.AST.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if n := fn.Type.Params.NumFields(); n > maxParameters {
				r.addBreachAt(
					fn.Pos(),
					"%s takes %d parameters, more than %d: a struct would name them",
					fn.Name.Name,
					n,
					maxParameters,
				)
			}
			first, last := r.lineOf(fn.Pos()), r.lineOf(fn.End())
			if n := last - first + 1; n > maxFunctionLines &&
				!file.isExcused("table", first, fn.Doc, r.tree.Fset) {
				r.addBreachAt(
					fn.Pos(),
					"%s has %d lines, more than %d: split it, or mark a table or exhaustive switch with //muster:table and why",
					fn.Name.Name,
					n,
					maxFunctionLines,
				)
			}
		}
	})
}

// checkIfs keeps what an if statement does apart from what it asks: a reader
// who looks for the condition skips the part before the semicolon.
func checkIfs(r *report) {
	r.visitProduction(func(_ *Package, file *File) {
		ast.Inspect(file.AST, func(n ast.Node) bool {
			if s, ok := n.(*ast.IfStmt); ok && UnrelatedIf(s) {
				r.addBreachAt(
					s.Pos(),
					"begins with something that its condition does not use: put it on a line of its own",
				)
			}
			return true
		})
	})
}

// UnrelatedIf tells whether an if statement begins with a call, or with names
// that its condition does not use.
func UnrelatedIf(s *ast.IfStmt) bool {
	if s.Init == nil {
		return false
	}
	assign, ok := s.Init.(*ast.AssignStmt)
	if !ok {
		return true
	}
	names := map[string]bool{}
	for _, e := range assign.Lhs {
		if id := rootName(e); id != "" {
			names[id] = true
		}
	}
	return !usesAny(s.Cond, names)
}

// checkAssignments keeps assignments to pairs that a reader matches at a glance.
func checkAssignments(r *report) {
	r.visitProduction(func(_ *Package, file *File) {
		ast.Inspect(file.AST, func(n ast.Node) bool {
			if s, ok := n.(*ast.AssignStmt); ok && ManyUnrelated(s) {
				r.addBreachAt(
					s.Pos(),
					"assigns %d unrelated values at once: give each a line of its own",
					len(s.Lhs),
				)
			}
			return true
		})
	})
}

// ManyUnrelated tells whether a statement assigns three values or more at once, of
// which none uses a name on the left: a rotation is one thought.
func ManyUnrelated(s *ast.AssignStmt) bool {
	if len(s.Lhs) <= maxUnrelated || len(s.Lhs) != len(s.Rhs) {
		return false
	}
	left := map[string]bool{}
	for _, e := range s.Lhs {
		if id, ok := e.(*ast.Ident); ok {
			left[id.Name] = true
		}
	}
	return !slices.ContainsFunc(s.Rhs, func(e ast.Expr) bool { return usesAny(e, left) })
}

// rootName gives x of x, x.f, x[i] and *x.
func rootName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return rootName(e.X)
	case *ast.IndexExpr:
		return rootName(e.X)
	case *ast.StarExpr:
		return rootName(e.X)
	}
	return ""
}

// usesAny tells whether an expression mentions one of the names.
func usesAny(e ast.Expr, names map[string]bool) bool {
	found := false
	ast.Inspect(e, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && names[id.Name] {
			found = true
		}
		return !found
	})
	return found
}

func checkInit(r *report) {
	r.visitProduction(func(_ *Package, file *File) {
		for _, d := range file.AST.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				r.addBreachAt(
					fn.Pos(),
					"has an init function: whoever imports it cannot choose; make it an explicit call",
				)
			}
		}
	})
}

// talks tells the rooms that may write to the standard output and end the
// process: the mains, the tools, and programs that serve tests.
func talks(dir string) bool {
	rm, ok := roomOf(dir)
	return ok && (rm.layer == 8 || rm.path == "cli/tool") && dir != "internal/tidy"
}

func checkOutput(r *report) {
	forbidden := map[string]string{
		"fmt.Print": "prints to the standard output", "fmt.Println": "prints to the standard output", "fmt.Printf": "prints to the standard output",
		"os.Exit": "ends the process", "os.Stdout": "writes to the standard output",
	}
	r.visitProduction(func(p *Package, file *File) {
		for _, imp := range importsOf(file) {
			if imp.path == "log" {
				r.addBreachAt(imp.pos, "imports log: logs go through log/slog")
			}
		}
		if talks(p.Dir) {
			return
		}
		visitSelectors(file, func(pkg, name string, n ast.Node) {
			if what, ok := forbidden[pkg+"."+name]; ok {
				r.addBreachAt(
					n.Pos(),
					"%s.%s %s, which only cmd and cli/tool may: return a value or an error",
					pkg,
					name,
					what,
				)
			}
		})
	})
}

func checkRegistries(r *report) {
	r.visitProduction(func(pkg *Package, file *File) {
		for _, imp := range importsOf(file) {
			if strings.HasSuffix(imp.path, "/promauto") {
				r.addBreachAt(
					imp.pos,
					"imports promauto: metrics are registered with a Registerer that is passed in",
				)
			}
		}
		if rm, _ := roomOf(pkg.Dir); rm.path == "cmd" {
			return
		}
		ast.Inspect(file.AST, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok &&
				slices.Contains(
					[]string{"MustRegister", "DefaultRegisterer", "DefaultGatherer"},
					s.Sel.Name,
				) {
				r.addBreachAt(
					n.Pos(),
					"uses %s outside cmd: pass a Registerer and return the error",
					s.Sel.Name,
				)
			}
			return true
		})
	})
}

// checkSleep: nobody sleeps to wait for somebody else. Daemons take a clock,
// tests wait for what they want to see. Whole programs (test, cmd) may poll.
func checkSleep(r *report) {
	r.visitWritten(func(p *Package, file *File) {
		if rm, _ := roomOf(p.Dir); rm.layer == 8 {
			return
		}
		visitSelectors(file, func(pkg, name string, n ast.Node) {
			if pkg == "time" && name == "Sleep" &&
				!file.isExcused("sleep", r.lineOf(n.Pos()), nil, r.tree.Fset) {
				r.addBreachAt(
					n.Pos(),
					"sleeps: take a clock and a context, or wait for the event; else mark it with //muster:sleep and why",
				)
			}
		})
	})
}

var majorVersion = regexp.MustCompile(`/v[0-9]+$`)

var unfinished = regexp.MustCompile(`\b(TODO|FIXME|XXX)\b`)

func checkUnfinished(r *report) {
	r.visitWritten(func(pkg *Package, file *File) {
		for _, g := range file.AST.Comments {
			for _, c := range g.List {
				if word := unfinished.FindString(c.Text); word != "" && pkg.Dir != "internal/tidy" {
					r.addBreachAt(
						c.Pos(),
						"carries a %s: finish it, or open an issue and say what is missing where users read it",
						word,
					)
				}
			}
		}
	})
}

// visitSelectors calls visit for each pkg.Name in a file where pkg is the name of
// an import; pkg is given as the package's own name, whatever the file calls it.
func visitSelectors(file *File, visit func(pkg, name string, n ast.Node)) {
	named := map[string]string{}
	for _, s := range file.AST.Imports {
		base := path.Base(majorVersion.ReplaceAllString(strings.Trim(s.Path.Value, `"`), ""))
		if s.Name != nil {
			named[s.Name.Name] = base
		} else {
			named[base] = base
		}
	}
	ast.Inspect(file.AST, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && named[x.Name] != "" {
				visit(named[x.Name], s.Sel.Name, n)
			}
		}
		return true
	})
}
