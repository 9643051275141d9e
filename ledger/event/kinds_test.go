package event

import (
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"strings"
	"testing"
)

// TestKindTable: every constant of type Kind has one row, with its own name, and with an event of
// the type of that name that says the same kind.
func TestKindTable(t *testing.T) {
	declared := declaredKinds(t)
	if len(declared) != len(kindTable) {
		t.Errorf("%d constants and %d rows", len(declared), len(kindTable))
	}
	rows := map[string]bool{}
	for _, row := range kindTable {
		if rows[row.name] || rowOf(row.kind).name != row.name {
			t.Errorf("%s has two rows, or its number has", row.name)
		}
		rows[row.name] = true
		event := row.fresh()
		if event.Kind() != row.kind || reflect.TypeOf(event).Elem().Name() != row.name {
			t.Errorf("the row of %s makes %T of kind %d", row.name, event, event.Kind())
		}
		if row.since == 0 {
			t.Errorf("%s came with no version", row.name)
		}
	}
	for _, name := range declared {
		if !rows[name] {
			t.Errorf("Kind%s has no row in kindTable", name)
		}
	}
}

// declaredKinds are the names of the constants of type Kind, as event.go declares them.
func declaredKinds(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "event.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if typ, ok := spec.Type.(*ast.Ident); ok && typ.Name == "Kind" {
			for _, name := range spec.Names {
				names = append(names, strings.TrimPrefix(name.Name, "Kind"))
			}
		}
		return true
	})
	return names
}
