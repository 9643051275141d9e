package tidy

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// File is one Go source file.
type File struct {
	Path      string // from the root of the repository, with slashes
	Src       []byte
	AST       *ast.File
	Test      bool // named *_test.go
	Generated bool // carries the "Code generated" line
	marks     []*mark
}

// mark is a //muster:name comment.
type mark struct {
	line      int
	name, why string
	used      bool
}

// Package is one folder's production code with its tests beside it.
type Package struct {
	Dir   string // from the root, with slashes; "." is the root
	Path  string // import path
	Files []*File
	Tests []*File
	// Types and Info describe Files; broken says why they could not be made.
	Types  *types.Package
	Info   *types.Info
	broken error
}

// Tree is a repository as the rules see it.
type Tree struct {
	Module   string
	Fset     *token.FileSet
	Packages []*Package // by Dir
	unparsed []error
}

var markLine = regexp.MustCompile(`^//muster:([a-z]+)(?:[ \t]+(.*))?$`)

// Load reads the Go files under root that a build for this platform would use.
// Folders named testdata, hidden ones and nested modules are left out.
func Load(root, module string) (*Tree, error) {
	sources := map[string][]byte{}
	err := filepath.WalkDir(root, func(p string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return enter(root, p, entry.Name())
		}
		if !strings.HasSuffix(p, ".go") {
			return nil
		}
		if ok, err := build.Default.MatchFile(filepath.Dir(p), entry.Name()); err != nil || !ok {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		sources[filepath.ToSlash(rel)], err = os.ReadFile(p)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the source tree: %w", err)
	}
	return FromSources(module, sources), nil
}

func enter(root, dir, name string) error {
	if dir == root {
		return nil
	}
	if name == "testdata" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") {
		return filepath.SkipDir
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
		return filepath.SkipDir
	}
	return nil
}

// FromSources makes a Tree of file contents by path. A file that does not parse
// is left out and reported by the rule "compiles".
func FromSources(module string, sources map[string][]byte) *Tree {
	tree := &Tree{Module: module, Fset: token.NewFileSet()}
	byDir := map[string]*Package{}
	var paths []string
	for p := range sources {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	for _, p := range paths {
		file, err := tree.parse(p, sources[p])
		if err != nil {
			tree.unparsed = append(tree.unparsed, err)
			continue
		}
		dir := path.Dir(p)
		pkg := byDir[dir]
		if pkg == nil {
			pkg = &Package{Dir: dir, Path: path.Join(module, dir)}
			byDir[dir] = pkg
			tree.Packages = append(tree.Packages, pkg)
		}
		if file.Test {
			pkg.Tests = append(pkg.Tests, file)
		} else {
			pkg.Files = append(pkg.Files, file)
		}
	}
	slices.SortFunc(tree.Packages, func(a, b *Package) int { return strings.Compare(a.Dir, b.Dir) })
	return tree
}

func (t *Tree) parse(p string, src []byte) (*File, error) {
	syntax, err := parser.ParseFile(
		t.Fset,
		p,
		src,
		parser.ParseComments|parser.SkipObjectResolution,
	)
	if err != nil {
		return nil, err
	}
	file := &File{
		Path: p, Src: bytes.Clone(src), AST: syntax,
		Test: strings.HasSuffix(p, "_test.go"), Generated: ast.IsGenerated(syntax),
	}
	for _, group := range syntax.Comments {
		for _, c := range group.List {
			if match := markLine.FindStringSubmatch(c.Text); match != nil {
				file.marks = append(
					file.marks,
					&mark{
						line: t.Fset.Position(c.Pos()).Line,
						name: match[1],
						why:  strings.TrimSpace(match[2]),
					},
				)
			}
		}
	}
	return file, nil
}

// isExcused tells whether a mark of that name stands on the given line, on the
// one above, or in the comment block right above; it counts as used then.
func (f *File) isExcused(name string, line int, doc *ast.CommentGroup, fset *token.FileSet) bool {
	first := line - 1
	if doc != nil {
		first = min(first, fset.Position(doc.Pos()).Line)
	}
	for _, m := range f.marks {
		if m.name == name && m.line >= first && m.line <= line {
			m.used = true
			return m.why != ""
		}
	}
	return false
}

// packageNamed finds a package by its import path.
func (t *Tree) packageNamed(importPath string) *Package {
	i := slices.IndexFunc(t.Packages, func(p *Package) bool { return p.Path == importPath })
	if i < 0 {
		return nil
	}
	return t.Packages[i]
}

// dirOf gives the folder of an import path of this module.
func (t *Tree) dirOf(importPath string) (string, bool) {
	if importPath == t.Module {
		return ".", true
	}
	return strings.CutPrefix(importPath, t.Module+"/")
}
