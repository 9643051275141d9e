package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/musterhpc/muster/internal/tidy"
)

// The bounds of the definitions. Change them and figures of different days can
// no longer be compared.
const (
	manyTerms     = 5  // terms joined by && and || that count as a long condition
	subjectLength = 72 // columns of a commit subject
)

// definitions is printed below each table.
const definitions = `How each figure is defined (production code only: no tests, no generated files):
  lines      lines of the files, comments and blank lines included
  up/arrows  an arrow runs from file A to file B of one package when A uses a name that B
             declares (method, field, type, function, variable); it runs upward when it points
             against the best order of the files that a greedy search finds
  methods    methods of the type that has most, counted over all files of its package
  multi      assignments and definitions of three or more values at once, a, b, c = x, y, z,
             whose right side uses none of the names on the left (swaps are excused), per 1,000 lines
  if=        if x = y; cond (a plain assignment, not a definition) per 1,000 lines
  ifcall     if statements whose first part is a call, or defines names that the condition does
             not use, in all
  cond5      conditions of five and more terms joined by && and ||, per 1,000 lines
  oneword    functions and methods whose name is a single word, main and init left out
  letters    mean length of names declared inside functions: parameters, results, variables;
             receivers, constants and _ left out
  why        comment lines that give a reason: they contain because, since, so that, otherwise,
             to avoid, must, never, unless, instead of, without, would, cannot or the like
`

var reasonWords = regexp.MustCompile(
	`(?i)\b(because|since|so that|so as to|so it|otherwise|or else|in order to|to avoid|to ensure|to prevent|` +
		`to keep|must|never|unless|instead of|rather than|without|would|cannot|can't|could|should|need(s|ed)?|therefore|hence|thus|` +
		`even (if|though|when)|although|reason|why|note that|safe|guarantees?|allows?)\b`,
)

// figures are the counts of one package, or of all.
type figures struct {
	dir                   string
	files, lines          int
	arrows, upward        int
	methods               int
	largest               string // the type with most methods
	multi, ifAssign       int
	ifUnrelated, longCond int
	functions, oneWord    int
	locals, letters       int
	comments, reasons     int
}

// result is what was measured: the packages by folder, and each finding.
type result struct {
	packages []figures
	places   []string
}

func measureTree(tree *tidy.Tree, only string) result {
	var out result
	for _, pkg := range tree.Packages {
		if !strings.HasPrefix(pkg.Dir, only) || strings.HasPrefix(pkg.Dir, "vendor/") {
			continue
		}
		m := meter{fset: tree.Fset, methods: map[string]int{}}
		m.dir = pkg.Dir
		var files []*tidy.File
		for _, file := range pkg.Files {
			if !file.Generated {
				files = append(files, file)
			}
		}
		if len(files) == 0 {
			continue
		}
		for _, file := range files {
			m.measureFile(file)
		}
		m.arrows, m.upward = m.countArrows(pkg, files)
		m.findLargestType()
		out.packages = append(out.packages, m.figures)
		out.places = append(out.places, m.places...)
	}
	return out
}

// meter counts one package.
type meter struct {
	figures
	fset    *token.FileSet
	methods map[string]int
	places  []string
}

func (m *meter) noteFinding(kind string, position token.Pos, detail string) {
	at := m.fset.Position(position)
	m.places = append(
		m.places,
		strings.TrimSpace(fmt.Sprintf("%s %s:%d %s", kind, at.Filename, at.Line, detail)),
	)
}

func (m *meter) measureFile(file *tidy.File) {
	m.files++
	m.lines += strings.Count(string(file.Src), "\n")
	for _, group := range file.AST.Comments {
		for _, c := range group.List {
			m.countComment(c.Text)
		}
	}
	for _, decl := range file.AST.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		m.countFunction(fn)
	}
	ast.Inspect(file.AST, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			m.countAssignment(n)
		case *ast.IfStmt:
			m.countIf(n)
		case *ast.FuncType:
			m.countFields(n.Params)
			m.countFields(n.Results)
		case *ast.RangeStmt:
			if n.Tok == token.DEFINE {
				m.countNames(n.Key, n.Value)
			}
		case *ast.DeclStmt:
			m.countVariables(n)
		}
		return true
	})
	m.countConditions(file.AST)
}

func (m *meter) countComment(text string) {
	for _, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(strings.TrimLeft(line, "/* \t"))
		if line == "" || strings.HasPrefix(line, "go:") || strings.HasPrefix(line, "muster:") {
			continue
		}
		m.comments++
		if reasonWords.MatchString(line) {
			m.reasons++
		}
	}
}

func (m *meter) countFunction(fn *ast.FuncDecl) {
	if fn.Recv != nil && len(fn.Recv.List) == 1 {
		m.methods[receiverType(fn.Recv.List[0].Type)]++
	}
	name := fn.Name.Name
	if name == "main" || name == "init" || name == "_" {
		return
	}
	m.functions++
	if len(words(name)) == 1 {
		m.oneWord++
		m.noteFinding("oneword", fn.Pos(), name)
	}
}

func receiverType(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiverType(e.X)
	case *ast.IndexExpr:
		return receiverType(e.X)
	case *ast.IndexListExpr:
		return receiverType(e.X)
	case *ast.Ident:
		return e.Name
	}
	return "?"
}

func (m *meter) findLargestType() {
	for name, n := range m.methods {
		if n > m.figures.methods || n == m.figures.methods && name < m.largest {
			m.figures.methods = n
			m.largest = name
		}
	}
}

// words splits a Go name at its capitals and underscores; a run of capitals
// (ID, GPU) is one word.
func words(name string) []string {
	var out []string
	runes := []rune(name)
	start := 0
	flush := func(end int) {
		if end > start {
			out = append(out, string(runes[start:end]))
		}
		start = end
	}
	for i := 1; i < len(runes); i++ {
		upper := unicode.IsUpper(runes[i])
		afterLower := !unicode.IsUpper(runes[i-1])
		plural := i+2 == len(runes) && runes[i+1] == 's' // GPUs is one word
		beforeLower := i+1 < len(runes) && unicode.IsLower(runes[i+1]) && !plural
		switch {
		case runes[i] == '_':
			flush(i)
			start = i + 1
		case upper && (afterLower || beforeLower):
			flush(i)
		}
	}
	flush(len(runes))
	return out
}

func (m *meter) countAssignment(n *ast.AssignStmt) {
	if n.Tok == token.DEFINE {
		m.countNames(n.Lhs...)
	}
	if tidy.ManyUnrelated(n) {
		m.multi++
		m.noteFinding("multi", n.Pos(), "")
	}
}

func (m *meter) countIf(n *ast.IfStmt) {
	if assign, ok := n.Init.(*ast.AssignStmt); ok && assign.Tok == token.ASSIGN {
		m.ifAssign++
		m.noteFinding("if=", n.Pos(), "")
	}
	if tidy.UnrelatedIf(n) {
		m.ifUnrelated++
		m.noteFinding("ifcall", n.Pos(), "")
	}
}

func (m *meter) countConditions(file ast.Node) {
	ast.Inspect(file, func(n ast.Node) bool {
		e, ok := n.(*ast.BinaryExpr)
		if !ok || !joins(e.Op) {
			return true
		}
		if terms(e) >= manyTerms {
			m.longCond++
			m.noteFinding("cond5", e.Pos(), "")
		}
		return false // its parts belong to this condition
	})
}

func joins(op token.Token) bool { return op == token.LAND || op == token.LOR }

func terms(e ast.Expr) int {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return terms(e.X)
	case *ast.UnaryExpr:
		return terms(e.X)
	case *ast.BinaryExpr:
		if joins(e.Op) {
			return terms(e.X) + terms(e.Y)
		}
	}
	return 1
}

func (m *meter) countFields(list *ast.FieldList) {
	if list == nil {
		return
	}
	for _, field := range list.List {
		for _, name := range field.Names {
			m.countNames(name)
		}
	}
}

func (m *meter) countVariables(n *ast.DeclStmt) {
	decl, ok := n.Decl.(*ast.GenDecl)
	if !ok || decl.Tok != token.VAR {
		return
	}
	for _, spec := range decl.Specs {
		if v, ok := spec.(*ast.ValueSpec); ok {
			for _, name := range v.Names {
				m.countNames(name)
			}
		}
	}
}

func (m *meter) countNames(names ...ast.Expr) {
	for _, e := range names {
		if id, ok := e.(*ast.Ident); ok && id.Name != "_" {
			m.locals++
			m.letters += len(id.Name)
		}
	}
}

// measureSubjects describes the subjects of commits.
func measureSubjects(subjects []string) string {
	long, joined := 0, 0
	for _, text := range subjects {
		if len([]rune(text)) > subjectLength {
			long++
		}
		if strings.Contains(text, ";") {
			joined++
		}
	}
	return fmt.Sprintf("commit subjects: %d, over %d columns %.0f %%, with \";\" %.0f %%\n",
		len(subjects), subjectLength, percent(long, len(subjects)), percent(joined, len(subjects)))
}

func (r result) renderTable() string {
	var text strings.Builder
	fmt.Fprintf(
		&text,
		"%-34s %5s %7s %12s %5s %6s %6s %6s %6s %8s %7s %6s  %s\n",
		"package",
		"files",
		"lines",
		"up/arrows",
		"%",
		"multi",
		"if=",
		"ifcall",
		"cond5",
		"oneword",
		"letters",
		"why",
		"methods of the largest type",
	)
	var all figures
	all.dir = "in all"
	packages := slices.Clone(r.packages)
	for _, p := range packages {
		text.WriteString(p.row())
		all.add(p)
	}
	text.WriteString(all.row())
	return text.String()
}

func (f figures) row() string {
	return fmt.Sprintf(
		"%-34s %5d %7d %12s %5.0f %6.2f %6.2f %6d %6.2f %6.0f %% %7.1f %4.1f %%  %s %d\n",
		f.dir,
		f.files,
		f.lines,
		fmt.Sprintf(
			"%d/%d",
			f.upward,
			f.arrows,
		),
		percent(f.upward, f.arrows),
		f.perThousand(f.multi),
		f.perThousand(f.ifAssign),
		f.ifUnrelated,
		f.perThousand(
			f.longCond,
		),
		percent(f.oneWord, f.functions),
		ratio(f.letters, f.locals),
		percent(f.reasons, f.comments),
		f.largest,
		f.methods,
	)
}

func (f *figures) add(p figures) {
	f.files += p.files
	f.lines += p.lines
	f.arrows += p.arrows
	f.upward += p.upward
	f.multi += p.multi
	f.ifAssign += p.ifAssign
	f.ifUnrelated += p.ifUnrelated
	f.longCond += p.longCond
	f.functions += p.functions
	f.oneWord += p.oneWord
	f.locals += p.locals
	f.letters += p.letters
	f.comments += p.comments
	f.reasons += p.reasons
	if p.methods > f.methods {
		f.methods = p.methods
		f.largest = p.dir + "." + p.largest
	}
}

func (f figures) perThousand(n int) float64 { return 1000 * ratio(n, f.lines) }

func percent(part, whole int) float64 { return 100 * ratio(part, whole) }

func ratio(part, whole int) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}
