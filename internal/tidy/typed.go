package tidy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
)

// Exports are the compiler's export files by import path.
type Exports map[string]string

// Check type-checks the production files of every package: those of the tree
// from source, everything else through the export data that the go command
// finds (and builds, if it is not cached) when it runs in root.
func (t *Tree) Check(root string) error {
	exports, err := FindExports(root, t.outsideImports())
	if err != nil {
		return err
	}
	t.CheckWith(exports)
	return nil
}

// CheckWith is Check with export data that is already known. A package that
// does not compile is remembered as such and reported by the rule "compiles";
// it does not stop the others.
func (t *Tree) CheckWith(exports Exports) {
	lookup := func(p string) (io.ReadCloser, error) {
		file, ok := exports[p]
		if !ok {
			return nil, fmt.Errorf("no export data for %s", p)
		}
		return os.Open(file)
	}
	c := &checker{tree: t, outside: importer.ForCompiler(t.Fset, "gc", lookup)}
	for _, pkg := range t.Packages {
		c.check(pkg)
	}
}

func (t *Tree) outsideImports() []string {
	var out []string
	for _, pkg := range t.Packages {
		for _, file := range pkg.Files {
			for _, imp := range importsOf(file) {
				if _, own := t.dirOf(imp.path); !own && imp.path != "C" && imp.path != "unsafe" {
					out = append(out, imp.path)
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// importSpec is one import with the place it stands at.
type importSpec struct {
	path string
	pos  token.Pos
}

func importsOf(file *File) []importSpec {
	var imports []importSpec
	for _, s := range file.AST.Imports {
		if p, err := strconv.Unquote(s.Path.Value); err == nil {
			imports = append(imports, importSpec{p, s.Pos()})
		}
	}
	return imports
}

// FindExports asks the go command for the export files of packages and of all
// they depend on.
func FindExports(root string, packages []string) (Exports, error) {
	exports := Exports{}
	if len(packages) == 0 {
		return exports, nil
	}
	list, err := goList(root, append([]string{"-e", "-export", "-deps"}, packages...))
	if err != nil {
		return nil, err
	}
	for _, p := range list {
		if p.Export != "" {
			exports[p.ImportPath] = p.Export
		}
	}
	return exports, nil
}

// listed is what we read of one package in the output of go list.
type listed struct {
	ImportPath string
	Export     string
	Standard   bool
	Module     *struct{ Path string }
}

func goList(root string, args []string) ([]listed, error) {
	cmd := exec.Command(
		"go",
		append([]string{"list", "-json=ImportPath,Export,Standard,Module"}, args...)...)
	cmd.Dir = root
	// go.mod is read, never changed, whatever flags the caller lives with.
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly -buildvcs=false")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	var all []listed
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("reading the output of go list: %w", err)
		}
		all = append(all, p)
	}
}

// checker type-checks packages of the tree on demand, each once.
type checker struct {
	tree    *Tree
	outside types.Importer
}

// Import implements types.Importer.
func (c *checker) Import(importPath string) (*types.Package, error) {
	if importPath == "unsafe" {
		return types.Unsafe, nil
	}
	pkg := c.tree.packageNamed(importPath)
	if pkg == nil {
		return c.outside.Import(importPath)
	}
	c.check(pkg)
	if pkg.Types == nil {
		return nil, fmt.Errorf("%s has no Go files", importPath)
	}
	return pkg.Types, nil
}

func (c *checker) check(pkg *Package) {
	if pkg.Info != nil || len(pkg.Files) == 0 {
		return
	}
	pkg.Info = &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{},
		Uses: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{},
	}
	var errs []error
	conf := types.Config{
		Importer: c, FakeImportC: true, Sizes: types.SizesFor("gc", "amd64"),
		Error: func(err error) { errs = append(errs, err) },
	}
	files := make([]*ast.File, len(pkg.Files))
	for i, file := range pkg.Files {
		files[i] = file.AST
	}
	pkg.Types, _ = conf.Check(pkg.Path, c.tree.Fset, files, pkg.Info) // the errors are collected
	if len(errs) > 0 {
		pkg.broken = errs[0]
	}
}

// CheckStandard type-checks as far as the tree itself and the standard library
// reach. Modules from outside are left out, so that a tree can be read whose
// modules are not on this machine; what needs them stays without a type.
func (t *Tree) CheckStandard(root string) error {
	imports := t.outsideImports()
	imports = slices.DeleteFunc(
		imports,
		func(importPath string) bool { return !isStandard(importPath) },
	)
	exports, err := FindExports(root, imports)
	if err != nil {
		return err
	}
	t.CheckWith(exports)
	return nil
}
