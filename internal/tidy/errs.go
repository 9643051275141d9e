package tidy

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// checkErrors keeps errors recognisable after somebody wraps them: they are
// compared with errors.Is and errors.As, never by identity, type or text.
func checkErrors(r *report) {
	r.visitProduction(func(pkg *Package, file *File) {
		for _, decl := range file.AST.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv != nil &&
				(fn.Name.Name == "Is" || fn.Name.Name == "As") {
				continue // this is how errors.Is learns what equals what
			}
			ast.Inspect(decl, func(n ast.Node) bool {
				if text := wrongComparison(pkg, n); text != "" {
					r.addBreachAt(n.Pos(), "%s", text)
				}
				return true
			})
		}
	})
}

func wrongComparison(pkg *Package, n ast.Node) string {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		if (n.Op == token.EQL || n.Op == token.NEQ) && isError(pkg, n.X) && isError(pkg, n.Y) {
			return "compares errors with " + n.Op.String() +
				", which fails once one is wrapped: use errors.Is"
		}
	case *ast.SwitchStmt:
		if n.Tag != nil && isError(pkg, n.Tag) {
			return "switches on an error's identity, which fails once it is wrapped: use errors.Is"
		}
	case *ast.TypeAssertExpr:
		if isError(pkg, n.X) {
			return "asserts an error's type, which fails once it is wrapped: use errors.As"
		}
	case *ast.CallExpr:
		return wrongCall(pkg, n)
	}
	return ""
}

func wrongCall(p *Package, call *ast.CallExpr) string {
	pkg, name := calledFunction(p, call.Fun)
	if pkg == "strings" &&
		slices.ContainsFunc(call.Args, func(e ast.Expr) bool { return isErrorText(p, e) }) &&
		slices.Contains([]string{"Contains", "HasPrefix", "HasSuffix", "EqualFold", "Index"}, name) {
		return "recognises an error by its text: give it a type or a sentinel, and use errors.Is or errors.As"
	}
	if pkg == "errors" && name == "Is" && len(call.Args) == 2 {
		if v := reachedGlobal(p, call.Args[0]); v != nil && reachedGlobal(p, call.Args[1]) == nil {
			return "errors.Is has its arguments swapped: the error comes first, what it might be second"
		}
	}
	return ""
}

// isError tells an expression whose static type is the error interface.
func isError(pkg *Package, e ast.Expr) bool {
	t := pkg.Info.TypeOf(e)
	return t != nil && types.Identical(t, types.Universe.Lookup("error").Type())
}

// isErrorText tells err.Error(), also inside a strings function.
func isErrorText(pkg *Package, e ast.Expr) bool {
	found := false
	ast.Inspect(e, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && len(call.Args) == 0 {
			if sel, ok := call.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "Error" &&
				implementsError(pkg, sel.X) {
				found = true
			}
		}
		return !found
	})
	return found
}

func implementsError(pkg *Package, e ast.Expr) bool {
	t := pkg.Info.TypeOf(e)
	return t != nil && !strings.HasPrefix(t.String(), "invalid") && types.Implements(t, errorType())
}
