package tidy_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// methodName is a method of the API where code names one: by its full name, or by service and
// method as in REST paths and tables.
var methodName = regexp.MustCompile(
	`^/?(?:muster\.v1\.|v1/)?(Cluster|Accounting|Agents|Ledger|Shell)/([A-Z][A-Za-z]+)$`,
)

// TestMethodsExist: a method that production code names as text is one of service.proto. Programs
// that must start fast do not link the generated names, and a name that is wrong would show only
// when somebody calls it.
func TestMethodsExist(t *testing.T) {
	declared := declaredMethods(t)
	found := 0
	err := filepath.WalkDir(root(t), func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name := entry.Name(); name == "testdata" || name == "test" || strings.HasPrefix(name, ".") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			literal, ok := n.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(literal.Value)
			if err != nil {
				return true
			}
			if name := methodName.FindStringSubmatch(text); name != nil {
				found++
				if !declared[name[1]+"/"+name[2]] {
					t.Errorf("%s: %s is not a method of the API", set.Position(literal.Pos()), text)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 100 {
		t.Errorf("%d names of methods were found: does this still recognise them?", found)
	}
}

// declaredMethods are the methods of service.proto as Service/Method.
func declaredMethods(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), "api/v1/service/service.proto"))
	if err != nil {
		t.Fatal(err)
	}
	methods := map[string]bool{}
	service := ""
	for _, match := range regexp.MustCompile(`(?m)^\s*(service|rpc) (\w+)`).FindAllStringSubmatch(string(text), -1) {
		if match[1] == "service" {
			service = match[2]
			continue
		}
		methods[service+"/"+match[2]] = true
	}
	return methods
}
