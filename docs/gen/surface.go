package main

import (
	"bufio"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/cli"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/scheduler/decide"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/slurmconf"
)

// The files that the page of compatibility is made from, beside the commands' tables.
const (
	surfaceFile = "docs/gen/surface.tsv"
	notesFile   = "docs/gen/notes.tsv"
)

// surfaceName is a name of Slurm for which the page answers: an option, a column, a
// variable, a key.
type surfaceName struct {
	kind    string // command, option, letter, field, verb, show, update, input, output, key
	command string
	name    string
	letter  string // short form of an option
}

// verdict is what the page says of a name.
type verdict struct {
	status string // one of statuses
	how    string // what differs, or why it is refused
}

// The statuses in the order in which the page counts them.
const (
	works   = "works"
	differs = "differs"
	refused = "refused"
	missing = "missing"
)

func statuses() []string { return []string{works, differs, refused, missing} }

// note is what a person has written about a name, because no table knows it. Notes
// of kind own name options that Slurm does not have.
type note struct {
	surfaceName
	verdict
}

// readSurface reads the names, one a line.
func readSurface(path string) ([]surfaceName, error) {
	var out []surfaceName
	err := readTabs(path, func(cells []string) error {
		out = append(out, surfaceName{cells[0], cells[1], cells[2], cells[3]})
		return nil
	})
	return out, err
}

// readNotes reads the notes: kind, command, name, status, text.
func readNotes(path string) ([]note, error) {
	var out []note
	err := readTabs(path, func(cells []string) error {
		n := note{surfaceName{kind: cells[0], command: cells[1], name: cells[2]}, verdict{cells[3], cells[4]}}
		if !slices.Contains(statuses(), n.status) {
			return fmt.Errorf("%s %s %s: invalid status %q", n.kind, n.command, n.name, n.status)
		}
		out = append(out, n)
		return nil
	})
	return out, err
}

// readTabs gives each line's cells, with empty ones behind the last.
func readTabs(path string, row func(cells []string) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if line := lines.Text(); line != "" && !strings.HasPrefix(line, "#") {
			if err := row(append(strings.Split(line, "\t"), "", "", "", "")); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
		}
	}
	return lines.Err()
}

// judge knows the tables from which the page answers.
type judge struct {
	commands map[string]*tool.Command
	notes    map[surfaceName]verdict
	keys     map[string]slurmconf.Support
	updates  map[string]bool            // keys of scontrol update job, in small letters
	read     map[string]bool            // variables that commands read beside their options
	written  map[string]map[string]bool // variables that are set, by folder
}

func newJudge(root string, notes []note) (*judge, error) {
	j := &judge{commands: map[string]*tool.Command{}, notes: map[surfaceName]verdict{}, keys: map[string]slurmconf.Support{},
		updates: map[string]bool{}, read: map[string]bool{}, written: map[string]map[string]bool{}}
	for _, c := range cli.Tables() {
		j.commands[c.Name] = c
	}
	for _, n := range notes {
		j.notes[n.surfaceName] = n.verdict
	}
	for _, s := range slurmconf.Supported() {
		if s.File == "slurm.conf" {
			j.keys[strings.ToLower(s.Key)] = s
		}
	}
	for _, name := range decide.JobKeyNames() {
		j.updates[strings.ToLower(name)] = true
	}
	for _, folder := range []string{"cli/submit", "cli/query", "cli/acct", "cli/render", "cli/tool", "nodeagent"} {
		j.written[folder] = map[string]bool{}
		if err := j.scanFolder(filepath.Join(root, folder), j.written[folder]); err != nil {
			return nil, err
		}
	}
	return j, nil
}

// scanFolder collects the names of variables in a folder's source: all of them in
// words, and those that are read from the environment in j.read.
func (j *judge) scanFolder(folder string, words map[string]bool) error {
	return filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BasicLit:
				if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
					name, _, _ := strings.Cut(text, "=") // NAME=value, or NAME alone
					words[name] = true
				}
			case *ast.CallExpr:
				j.readsVariable(n)
			}
			return true
		})
		return nil
	})
}

// readsVariable notes the name of c.Lookup("NAME") and c.Getenv("NAME").
func (j *judge) readsVariable(call *ast.CallExpr) {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) == 0 || (method.Sel.Name != "Lookup" && method.Sel.Name != "Getenv") {
		return
	}
	if name, ok := call.Args[0].(*ast.BasicLit); ok {
		if text, err := strconv.Unquote(name.Value); err == nil {
			j.read[text] = true
		}
	}
}

// answer says what becomes of a name.
func (j *judge) answer(s surfaceName) verdict {
	noted := s
	noted.letter = ""
	if v, ok := j.notes[noted]; ok {
		return v
	}
	return j.fromTables(s)
}

// fromTables is answer without the notes.
func (j *judge) fromTables(s surfaceName) verdict {
	c := j.commands[s.command]
	switch s.kind {
	case "command":
		if j.commands[s.name] != nil && j.commands[s.name].Slurm {
			return verdict{status: works}
		}
	case "option":
		if c != nil {
			return ofOption(c, s)
		}
	case "letter", "field":
		return found(c != nil && c.Fields != nil && slices.ContainsFunc(c.Fields(), func(f string) bool { return foldEqual(f, s) }))
	case "verb":
		return found(c != nil && slices.ContainsFunc(c.Verbs, func(v tool.Verb) bool { return hasVerb(v, s.name) }))
	case "show":
		return found(c != nil && c.Entities != nil && slices.ContainsFunc(c.Entities(), func(e string) bool { return strings.EqualFold(e, s.name) || strings.EqualFold(e, s.name+"s") }))
	case "update":
		if s.command == "job" {
			return found(j.updates[strings.ToLower(s.name)])
		}
		return found(slices.Contains(j.commands["scontrol"].Entities(), "update "+strings.ToLower(s.name)))
	case "input":
		return j.ofInput(c, s.name)
	case "output":
		folders := map[string][]string{"sbatch": {"nodeagent"}, "srun": {"nodeagent", "cli/submit"}, "salloc": {"cli/submit"}}
		return found(slices.ContainsFunc(folders[s.command], func(f string) bool { return j.written[f][s.name] }))
	case "key":
		return j.ofKey(s.name)
	}
	return verdict{status: missing}
}

func found(ok bool) verdict {
	if ok {
		return verdict{status: works}
	}
	return verdict{status: missing}
}

// foldEqual compares a column: letters exactly, names without regard to case.
func foldEqual(field string, s surfaceName) bool {
	if s.kind == "letter" {
		return field == s.name
	}
	return strings.EqualFold(field, s.name)
}

// hasVerb compares a verb, or a verb and its first word: write config.
func hasVerb(v tool.Verb, name string) bool {
	verb, rest, two := strings.Cut(name, " ")
	return v.Name == verb && (!two || strings.HasPrefix(v.Args, rest))
}

// ofOption reads the command's table of options.
func ofOption(c *tool.Command, s surfaceName) verdict {
	for _, o := range c.AllOptions() {
		if o.Long != s.name && !slices.Contains(strings.Fields(o.Also), s.name) {
			continue
		}
		v := judgeOption(&o)
		if v.status == works && s.letter != "" && o.Short != s.letter {
			return verdict{differs, "-" + s.letter + " is not its short form"}
		}
		return v
	}
	return verdict{status: missing}
}

func judgeOption(o *opt.Option) verdict {
	switch {
	case o.Refused != "":
		return verdict{refused, o.Refused}
	case o.Warn != "":
		return verdict{differs, "accepted with a warning: " + o.Warn}
	case o.Always != "":
		return verdict{works, ""}
	}
	return verdict{status: works}
}

// ofInput finds a variable among those of the options, of the command, and of what
// every command reads.
func (j *judge) ofInput(c *tool.Command, name string) verdict {
	if c == nil {
		return verdict{status: missing}
	}
	for _, o := range c.AllOptions() {
		if slices.Contains(strings.Fields(o.Env), name) {
			return judgeOption(&o)
		}
	}
	return found(j.read[name] || slices.ContainsFunc(c.Env, func(v tool.Variable) bool { return v.Name == name }))
}

// ofKey reads the table of slurm.conf.
func (j *judge) ofKey(name string) verdict {
	s, ok := j.keys[strings.ToLower(name)]
	if !ok {
		return verdict{status: missing}
	}
	switch s.Status {
	case "implemented":
		return verdict{status: works}
	case "refused":
		return verdict{refused, s.Why}
	}
	return verdict{differs, "read, without effect: " + s.Why}
}

// section is a part of the page: the names of a kind and a command.
type section struct {
	title string
	rows  []surfaceName
}

// sections parts the names as the page does, in the order of the file.
func sections(names []surfaceName) []section {
	titles := map[string]string{"command": "Commands", "option": "Options of %s", "letter": "Letters of %s -o", "field": "Columns of %s", "verb": "Verbs of %s",
		"show": "What %s shows", "update": "Keys of scontrol update %s", "input": "Environment variables that %s reads", "output": "Environment variables that %s sets", "key": "Keys of %s"}
	var out []section
	at := map[string]int{}
	for _, n := range names {
		title := titles[n.kind]
		if strings.Contains(title, "%s") {
			title = fmt.Sprintf(title, n.command)
		}
		i, ok := at[title]
		if !ok {
			i = len(out)
			at[title] = i
			out = append(out, section{title: title})
		}
		out[i].rows = append(out[i].rows, n)
	}
	return out
}

// compatibility writes docs/compatibility.md.
func compatibility() (string, error) {
	names, err := readSurface(surfaceFile)
	if err != nil {
		return "", err
	}
	notes, err := readNotes(notesFile)
	if err != nil {
		return "", err
	}
	j, err := newJudge(".", notes)
	if err != nil {
		return "", err
	}
	var counts, body strings.Builder
	total := map[string]int{}
	for _, s := range sections(names) {
		here := j.writeSection(&body, s)
		fmt.Fprintf(&counts, "| [%s](#%s) |", s.title, anchor(s.title))
		for _, status := range statuses() {
			fmt.Fprintf(&counts, " %d |", here[status])
			total[status] += here[status]
		}
		counts.WriteString("\n")
	}
	var b strings.Builder
	b.WriteString("# Compatibility with Slurm\n\n<!-- Written by go run ./docs/gen from the tables of the commands, docs/gen/surface.tsv and docs/gen/notes.tsv. -->\n\n" +
		"What Muster does with each option, column, verb, key and environment variable of Slurm 25.11. The answers come from the\n" +
		"tables that drive the parsers, the help and the manual pages; what no table knows is noted in `docs/gen/notes.tsv`.\n\n" +
		"- **works**: it has the effect that it has in Slurm, or asks for what holds in any case;\n" +
		"- **differs**: it is accepted, and the text says what is different;\n" +
		"- **refused**: it is known and ends with an error that says why, because ignoring it would change the result;\n" +
		"- **missing**: Muster does not know the name.\n\n" +
		"The reasons for which jobs wait are in [reasons.md](reasons.md), the paths of the REST API in [rest.md](rest.md).\n\n")
	b.WriteString("| names | works | differs | refused | missing |\n|---|---|---|---|---|\n" + counts.String() + "| **all** |")
	for _, status := range statuses() {
		fmt.Fprintf(&b, " **%d** |", total[status])
	}
	b.WriteString("\n" + body.String() + reasonCount() + ownOptions(notes))
	return b.String(), nil
}

// ownOptions lists the options that Slurm does not have.
func ownOptions(notes []note) string {
	var b strings.Builder
	b.WriteString("\n## Further options\n\nOptions that Slurm does not list for the command; those of earlier and later releases among them.\n\n| command | option | |\n|---|---|---|\n")
	for _, n := range notes {
		if n.kind == "own" {
			fmt.Fprintf(&b, "| %s | `--%s` | %s |\n", n.command, n.name, n.how)
		}
	}
	return b.String()
}

// reasonCount says how many reasons of jobs are given here.
func reasonCount() string {
	given := 0
	all := spec.ReasonDocs()
	for _, d := range all {
		if d.Given {
			given++
		}
	}
	return fmt.Sprintf("\n## Reasons\n\nOf %d names of reasons, jobs are given %d; [reasons.md](reasons.md) says why the others are not.\n", len(all), given)
}

func anchor(title string) string {
	keep := func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			return r
		}
		return -1
	}
	return strings.Map(keep, strings.ToLower(title))
}

// writeSection writes one part of the page and returns how many of its names have
// each status: what works as a list, the rest as a table.
func (j *judge) writeSection(b *strings.Builder, s section) map[string]int {
	byStatus := map[string][]string{}
	var rest strings.Builder
	for _, n := range s.rows {
		v := j.answer(n)
		byStatus[v.status] = append(byStatus[v.status], "`"+spelled(n)+"`")
		if v.how != "" && v.status != works {
			fmt.Fprintf(&rest, "| `%s` | %s | %s |\n", spelled(n), v.status, strings.ReplaceAll(v.how, "|", "\\|"))
		}
	}
	fmt.Fprintf(b, "\n## %s\n", s.title)
	for _, status := range []string{works, missing} {
		if list := byStatus[status]; len(list) > 0 {
			fmt.Fprintf(b, "\n%s (%d): %s\n", strings.ToUpper(status[:1])+status[1:], len(list), strings.Join(list, ", "))
		}
	}
	if rest.Len() > 0 {
		b.WriteString("\n| name | | how |\n|---|---|---|\n" + rest.String())
	}
	counts := map[string]int{}
	for status, list := range byStatus {
		counts[status] = len(list)
	}
	return counts
}

// spelled is a name as it is typed.
func spelled(n surfaceName) string {
	switch {
	case n.kind != "option":
		return n.name
	case n.letter != "":
		return "-" + n.letter + ", --" + n.name
	}
	return "--" + n.name
}
