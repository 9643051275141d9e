package tidy

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// checkGlobals keeps package variables constant: each is set where it is
// declared and never again, by anybody, and none is of a kind that exists to
// be changed. Tables, sentinel errors and compiled patterns pass.
func checkGlobals(r *report) {
	r.visitProduction(func(pkg *Package, file *File) {
		for _, d := range file.AST.Decls {
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.VAR {
				for _, s := range g.Specs {
					checkVarSpec(r, pkg, file, g, s.(*ast.ValueSpec))
				}
			}
		}
		ast.Inspect(file.AST, func(n ast.Node) bool {
			for _, e := range written(pkg, n) {
				v := reachedGlobal(pkg, e)
				if v != nil && !file.isExcused("global", r.lineOf(n.Pos()), nil, r.tree.Fset) &&
					!declaredExcused(r, v) {
					r.addBreachAt(
						n.Pos(),
						"changes the package variable %s: pass the value, or own it in a struct",
						v.Name(),
					)
				}
			}
			return true
		})
	})
}

func checkVarSpec(r *report, pkg *Package, file *File, g *ast.GenDecl, s *ast.ValueSpec) {
	for _, name := range s.Names {
		v, ok := pkg.Info.Defs[name].(*types.Var)
		if !ok || name.Name == "_" {
			continue
		}
		reason := ""
		switch {
		case len(s.Values) == 0 && !embedded(g, s):
			reason = "has no value where it is declared, so it is there to be changed"
		default:
			reason = changeable(v.Type())
		}
		if reason != "" && !file.isExcused("global", r.lineOf(s.Pos()), doc(g, s), r.tree.Fset) {
			r.addBreachAt(
				name.Pos(),
				"package variable %s %s: own it in a struct, or mark it with //muster:global and why",
				name.Name,
				reason,
			)
		}
	}
}

func doc(g *ast.GenDecl, s *ast.ValueSpec) *ast.CommentGroup {
	if s.Doc == nil && !g.Lparen.IsValid() {
		return g.Doc
	}
	return s.Doc
}

// embedded tells a variable that //go:embed fills.
func embedded(g *ast.GenDecl, s *ast.ValueSpec) bool {
	if d := doc(g, s); d != nil {
		return slices.ContainsFunc(
			d.List,
			func(c *ast.Comment) bool { return strings.HasPrefix(c.Text, "//go:embed ") },
		)
	}
	return false
}

// constantPointers are types whose values, once made, do not change.
var constantPointers = []string{
	"regexp.Regexp",
	"strings.Replacer",
	"text/template.Template",
	"html/template.Template",
	"encoding/base64.Encoding",
	"hash/crc32.Table",
	"hash/crc64.Table",
}

// changeable says why a type is not one of a constant, or "".
func changeable(t types.Type) string {
	switch u := t.Underlying().(type) {
	case *types.Chan:
		return "is a channel"
	case *types.Pointer:
		name := strings.TrimPrefix(types.TypeString(u.Elem(), nil), "*")
		if slices.Contains(constantPointers, name) || types.Implements(t, errorType()) {
			return ""
		}
		return "points to something that can be changed"
	case *types.Struct:
		if pkg := ownerOf(t); pkg == "sync" || pkg == "sync/atomic" {
			return "is of package " + pkg
		}
		for i := range u.NumFields() {
			if reason := changeable(u.Field(i).Type()); strings.HasPrefix(reason, "is ") {
				return "holds a field that " + reason
			}
		}
	}
	return ""
}

func ownerOf(t types.Type) string {
	if n, ok := t.(*types.Named); ok && n.Obj().Pkg() != nil {
		return n.Obj().Pkg().Path()
	}
	return ""
}

// written gives the expressions that a node assigns to, takes the address of
// or hands to something that changes them.
func written(pkg *Package, n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			return n.Lhs
		}
	case *ast.IncDecStmt:
		return []ast.Expr{n.X}
	case *ast.RangeStmt:
		if n.Tok == token.ASSIGN {
			return []ast.Expr{n.Key, n.Value}
		}
	case *ast.UnaryExpr:
		if _, direct := n.X.(*ast.Ident); n.Op == token.AND && direct {
			return []ast.Expr{n.X}
		}
	case *ast.CallExpr:
		return changedByCall(pkg, n)
	}
	return nil
}

func changedByCall(pkg *Package, call *ast.CallExpr) []ast.Expr {
	switch fun := call.Fun.(type) {
	case *ast.Ident:
		_, builtin := pkg.Info.Uses[fun].(*types.Builtin)
		if builtin && slices.Contains([]string{"delete", "clear", "copy"}, fun.Name) {
			return call.Args[:1]
		}
	case *ast.SelectorExpr:
		// v.M() with a pointer receiver takes v's address without saying so.
		s := pkg.Info.Selections[fun]
		if s == nil || s.Kind() != types.MethodVal {
			return nil
		}
		method, ok := s.Obj().(*types.Func)
		if !ok {
			return nil
		}
		_, byPointer := method.Signature().Recv().Type().(*types.Pointer)
		_, isPointer := s.Recv().Underlying().(*types.Pointer)
		// Of other modules' variables (build.Default) we know no methods that change.
		if v := reachedGlobal(pkg, fun.X); byPointer && !isPointer && v != nil &&
			v.Pkg() == pkg.Types {
			return []ast.Expr{fun.X}
		}
	}
	return nil
}

// reachedGlobal gives the package variable that an expression reaches into, of this
// package or another, or nil. Reaching through a pointer or a call ends it.
func reachedGlobal(pkg *Package, e ast.Expr) *types.Var {
	for {
		switch x := e.(type) {
		case *ast.ParenExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.SelectorExpr:
			if v, ok := pkg.Info.Uses[x.Sel].(*types.Var); ok && packageLevel(v) {
				return v
			}
			e = x.X
		case *ast.Ident:
			if v, ok := pkg.Info.Uses[x].(*types.Var); ok && packageLevel(v) {
				return v
			}
			return nil
		default:
			return nil
		}
	}
}

func packageLevel(v *types.Var) bool { return v.Pkg() != nil && v.Parent() == v.Pkg().Scope() }

// declaredExcused tells whether the declaration of a variable carries the mark.
func declaredExcused(r *report, v *types.Var) bool {
	at := r.tree.Fset.Position(v.Pos())
	for _, pkg := range r.tree.Packages {
		for _, file := range pkg.Files {
			if file.Path == at.Filename {
				return slices.ContainsFunc(file.marks, func(m *mark) bool {
					return m.name == "global" && m.why != "" && m.line <= at.Line &&
						m.line >= at.Line-1
				})
			}
		}
	}
	return false
}

func errorType() *types.Interface {
	return types.Universe.Lookup("error").Type().Underlying().(*types.Interface)
}
