package tidy_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestLogLinesNameJobsAlike holds lines of the log that are about a job, a step or a run
// to the functions that name one (logfields.go of a room), so that whoever looks for a
// job finds all of its lines by one field, with attempt, step, user and event.
func TestLogLinesNameJobsAlike(t *testing.T) {
	byHand := map[string]bool{`"job"`: true, `"job_id"`: true, `"job_uid"`: true, `"uid"`: true, `"run"`: true, `"step"`: true, `"attempt"`: true}
	levels := map[string]bool{"Debug": true, "Info": true, "Warn": true, "Error": true}
	lines := 0
	for _, room := range []string{"scheduler/daemon", "nodeagent/daemon", "nodeagent/runtime", "nodeagent/stepserver"} {
		err := filepath.WalkDir(filepath.Join(root(t), room), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || len(call.Args) == 0 {
					return true
				}
				method, ok := call.Fun.(*ast.SelectorExpr)
				if !ok || !levels[method.Sel.Name] {
					return true
				}
				lines++
				for i, arg := range call.Args[1:] {
					if lit, ok := arg.(*ast.BasicLit); ok && byHand[lit.Value] && isKey(call.Args[1:], i) {
						key, _ := strconv.Unquote(lit.Value)
						t.Errorf("%s: the field %s is written by hand: use aboutJob, aboutStep, aboutRun or aboutKey", set.Position(lit.Pos()), key)
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if lines < 80 {
		t.Errorf("%d lines of logs were found: does this still recognise them?", lines)
	}
}

// isKey tells whether an argument stands where slog expects a key: what is no string
// literal, a function's call, is a whole attribute.
func isKey(args []ast.Expr, at int) bool {
	key := true
	for i := 0; i < at; i++ {
		if _, whole := args[i].(*ast.CallExpr); key && whole {
			continue
		}
		if ident, whole := args[i].(*ast.Ident); key && whole && ident.Name == "about" {
			continue
		}
		key = !key
	}
	return key
}
