package tidy

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// impure says why a pure room must not import a package; everything below the
// named one is meant too.
var impure = []struct{ path, why string }{
	{"time", "time comes as spec.Instant"},
	{"context", "there is nothing to cancel in a function of values"},
	{"sync", "one owner calls it; there is nothing to lock"},
	{"os", "it reads and writes nothing"},
	{"net", "it talks to nobody"},
	{"log", "it returns what there is to say"},
	{"math/rand", "chance is an injected source"},
	{"crypto/rand", "chance is an injected source"},
	{"syscall", "it asks the kernel nothing"},
	{"runtime", "it does not look at the machine it runs on"},
	{"io/ioutil", "it reads and writes nothing"},
	{"expvar", "it returns what there is to say"},
	{"embed", "its tables are Go values"},
	{"unsafe", "its values are what they seem"},
	{"plugin", "what it does is decided when it is built"},
	{"C", "what it does is decided by Go code that can be replayed"},
}

// harmless lie below an impure package but hold values only.
var harmless = []string{"net/netip", "net/url"}

// checkPure keeps clocks, locks, goroutines, channels and I/O out of the pure
// rooms.
func checkPure(r *report) {
	r.pureFiles(func(_ *Package, file *File, rm room) {
		for _, imp := range importsOf(file) {
			if slices.Contains(harmless, imp.path) || imp.path == "math/rand/v2" {
				continue
			}
			for _, bad := range impure {
				if isWithin(imp.path, bad.path) {
					r.addBreachAt(
						imp.pos,
						"%s is a pure room and must not import %s: %s",
						rm.path,
						imp.path,
						bad.why,
					)
				}
			}
		}
		ast.Inspect(file.AST, func(n ast.Node) bool {
			if what := concurrent(n); what != "" {
				r.addBreachAt(n.Pos(), "%s is a pure room and must not use %s", rm.path, what)
			}
			return true
		})
		checkRand(r, file, rm)
	})
}

func concurrent(n ast.Node) string {
	switch n := n.(type) {
	case *ast.GoStmt:
		return "goroutines"
	case *ast.ChanType:
		return "channels"
	case *ast.SelectStmt:
		return "select"
	case *ast.UnaryExpr:
		if n.Op == token.ARROW {
			return "channels"
		}
	}
	return ""
}

// checkRand allows the sources of math/rand/v2 that are made from a seed, and
// forbids the functions that draw from the process's own.
func checkRand(r *report, file *File, rm room) {
	if !slices.ContainsFunc(
		importsOf(file),
		func(i importSpec) bool { return i.path == "math/rand/v2" },
	) {
		return
	}
	visitSelectors(file, func(pkg, name string, n ast.Node) {
		seeded := slices.Contains(
			[]string{
				"New",
				"NewPCG",
				"NewChaCha8",
				"NewZipf",
				"Rand",
				"Source",
				"PCG",
				"ChaCha8",
				"Zipf",
			},
			name,
		)
		if pkg == "rand" && !seeded {
			r.addBreachAt(
				n.Pos(),
				"%s is a pure room and must not draw from rand.%s: chance is an injected source",
				rm.path,
				name,
			)
		}
	})
}

// pureFiles calls visit for each production file of a pure room.
func (r *report) pureFiles(visit func(*Package, *File, room)) {
	r.visitProduction(func(pkg *Package, file *File) {
		if rm, ok := roomOf(pkg.Dir); ok && rm.pure {
			visit(pkg, file, rm)
		}
	})
}

// checkMapOrder finds ranges over maps in pure rooms whose order could show.
// One form needs no mark: a loop that only collects keys or values into a
// slice which the same function then sorts.
func checkMapOrder(r *report) {
	r.pureFiles(func(pkg *Package, file *File, _ room) {
		for _, decl := range file.AST.Decls {
			ast.Inspect(decl, func(n ast.Node) bool {
				// The mark is looked for first: it is welcome, though not
				// needed, on a loop that collects to sort.
				switch n := n.(type) {
				case *ast.RangeStmt:
					if isMap(pkg.Info.TypeOf(n.X)) && !r.orderExcused(file, n.Pos()) &&
						!collectsToSort(pkg, decl, n) {
						r.unordered(n.Pos())
					}
				case *ast.CallExpr:
					if mapIterator(pkg, n.Fun) && !r.orderExcused(file, n.Pos()) &&
						!sortedAtOnce(pkg, decl, n) {
						r.unordered(n.Pos())
					}
				}
				return true
			})
		}
	})
}

func (r *report) orderExcused(file *File, position token.Pos) bool {
	return file.isExcused("unordered", r.lineOf(position), nil, r.tree.Fset)
}

func (r *report) unordered(position token.Pos) {
	r.addBreachAt(
		position,
		"walks a map in random order: collect and sort, or mark it with //muster:unordered and why the order cannot show",
	)
}

func isMap(t types.Type) bool {
	if t == nil {
		return false
	}
	_, ok := t.Underlying().(*types.Map)
	return ok
}

// calledFunction gives the package path and name of a called function, "" if it is
// none of a package.
func calledFunction(p *Package, fun ast.Expr) (pkg, name string) {
	if x, ok := fun.(*ast.IndexExpr); ok {
		fun = x.X
	}
	sel, ok := fun.(*ast.SelectorExpr)
	if !ok {
		return "", ""
	}
	fn, ok := p.Info.Uses[sel.Sel].(*types.Func)
	if !ok || fn.Pkg() == nil || fn.Signature().Recv() != nil {
		return "", ""
	}
	return fn.Pkg().Path(), fn.Name()
}

func mapIterator(p *Package, fun ast.Expr) bool {
	pkg, name := calledFunction(p, fun)
	return pkg == "maps" && (name == "Keys" || name == "Values" || name == "All")
}

// sorts tells a call that puts its first argument in order.
func sorts(p *Package, call *ast.CallExpr) bool {
	pkg, name := calledFunction(p, call.Fun)
	switch pkg {
	case "slices":
		return strings.HasPrefix(name, "Sort")
	case "sort":
		return name != "Search" && !strings.HasPrefix(name, "Is") &&
			!strings.HasPrefix(name, "Search")
	}
	return false
}

// sortedAtOnce tells slices.Sorted(maps.Keys(m)) and its like.
func sortedAtOnce(pkg *Package, decl ast.Decl, iterator *ast.CallExpr) bool {
	found := false
	ast.Inspect(decl, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && len(call.Args) > 0 &&
			call.Args[0] == ast.Expr(iterator) &&
			sorts(pkg, call) {
			found = true
		}
		return !found
	})
	return found
}

// collectsToSort tells a loop whose only statement appends to a slice that is
// sorted later in the same declaration.
func collectsToSort(pkg *Package, decl ast.Decl, loop *ast.RangeStmt) bool {
	if len(loop.Body.List) != 1 {
		return false
	}
	assign, ok := loop.Body.List[0].(*ast.AssignStmt)
	if !ok || len(assign.Lhs) != 1 || len(assign.Rhs) != 1 {
		return false
	}
	call, ok := assign.Rhs[0].(*ast.CallExpr)
	if !ok || len(call.Args) < 2 {
		return false
	}
	if fun, ok := call.Fun.(*ast.Ident); !ok || fun.Name != "append" {
		return false
	}
	into := types.ExprString(assign.Lhs[0])
	if types.ExprString(call.Args[0]) != into {
		return false
	}
	sorted := false
	ast.Inspect(decl, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && call.Pos() > loop.End() && len(call.Args) > 0 &&
			types.ExprString(call.Args[0]) == into && sorts(pkg, call) {
			sorted = true
		}
		return !sorted
	})
	return sorted
}

// integerRooms decide with integers only.
var integerRooms = []string{"ledger", "scheduler", "nodeagent/plan", "accounting/tally"}

// checkFloats finds functions of deciding rooms that compute with floating
// point.
func checkFloats(r *report) {
	r.pureFiles(func(pkg *Package, file *File, _ room) {
		if !slices.ContainsFunc(integerRooms, func(d string) bool { return isWithin(pkg.Dir, d) }) {
			return
		}
		for _, d := range file.AST.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || !usesFloat(pkg, fn) {
				continue
			}
			if !file.isExcused("float", r.lineOf(fn.Pos()), fn.Doc, r.tree.Fset) {
				r.addBreachAt(
					fn.Pos(),
					"%s computes with floating point: what decides is integer arithmetic; mark what is only shown with //muster:float and why",
					fn.Name.Name,
				)
			}
		}
	})
}

func usesFloat(pkg *Package, fn *ast.FuncDecl) bool {
	found := false
	ast.Inspect(fn, func(n ast.Node) bool {
		if e, ok := n.(ast.Expr); ok && !found {
			if b, ok := pkg.Info.TypeOf(e).(*types.Basic); ok && b.Info()&types.IsFloat != 0 &&
				pkg.Info.Types[e].Value == nil {
				found = true
			}
		}
		return !found
	})
	return found
}
