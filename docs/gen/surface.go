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
	"github.com/musterhpc/muster/test/effects"
)

// The files that the page of compatibility is made from, beside the commands' tables.
const (
	surfaceFile = "docs/gen/surface.tsv"
	notesFile   = "docs/gen/notes.tsv"
	// checksFolder holds the checks that prove names by their effect.
	checksFolder = "test/effects/checks"
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
	var names []surfaceName
	err := readTabs(path, func(cells []string) error {
		names = append(names, surfaceName{cells[0], cells[1], cells[2], cells[3]})
		return nil
	})
	return names, err
}

// readNotes reads the notes: kind, command, name, status, text.
func readNotes(path string) ([]note, error) {
	var notes []note
	err := readTabs(path, func(cells []string) error {
		n := note{
			surfaceName{kind: cells[0], command: cells[1], name: cells[2]},
			verdict{cells[3], cells[4]},
		}
		if !slices.Contains(statuses(), n.status) {
			return fmt.Errorf("%s %s %s: invalid status %q", n.kind, n.command, n.name, n.status)
		}
		notes = append(notes, n)
		return nil
	})
	return notes, err
}

// readTabs gives each line's cells, with empty ones behind the last.
func readTabs(path string, row func(cells []string) error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
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
	proved   map[effects.Name]bool      // names that a check of test/effects proves
}

func newJudge(root string, notes []note) (*judge, error) {
	j := &judge{
		commands: map[string]*tool.Command{},
		notes:    map[surfaceName]verdict{},
		keys:     map[string]slurmconf.Support{},
		updates:  map[string]bool{},
		read:     map[string]bool{},
		written:  map[string]map[string]bool{},
	}
	for _, command := range cli.Tables() {
		j.commands[command.Name] = command
	}
	checks, err := effects.Read(filepath.Join(root, checksFolder))
	if err != nil {
		return nil, err
	}
	j.proved = effects.Names(checks)
	for _, n := range notes {
		j.notes[n.surfaceName] = n.verdict
	}
	for _, support := range slurmconf.Supported() {
		if support.File == "slurm.conf" {
			j.keys[strings.ToLower(support.Key)] = support
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
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") ||
			strings.HasSuffix(path, "_test.go") {
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
func (j *judge) answer(surface surfaceName) verdict {
	noted := surface
	noted.letter = ""
	if v, ok := j.notes[noted]; ok {
		return v
	}
	return j.fromTables(surface)
}

// fromTables is answer without the notes.
func (j *judge) fromTables(surface surfaceName) verdict {
	command := j.commands[surface.command]
	switch surface.kind {
	case "command":
		if j.commands[surface.name] != nil && j.commands[surface.name].Slurm {
			return verdict{status: works}
		}
	case "option":
		if command != nil {
			return ofOption(command, surface)
		}
	case "letter", "field":
		return found(
			command != nil && command.Fields != nil &&
				slices.ContainsFunc(
					command.Fields(),
					func(f string) bool { return foldEqual(f, surface) },
				),
		)
	case "verb":
		return found(
			command != nil &&
				slices.ContainsFunc(
					command.Verbs,
					func(v tool.Verb) bool { return hasVerb(v, surface.name) },
				),
		)
	case "show":
		return found(
			command != nil && command.Entities != nil &&
				slices.ContainsFunc(command.Entities(), func(e string) bool {
					return strings.EqualFold(e, surface.name) ||
						strings.EqualFold(e, surface.name+"s")
				}),
		)
	case "update":
		if surface.command == "job" {
			return found(j.updates[strings.ToLower(surface.name)])
		}
		return found(slices.Contains(j.commands["scontrol"].Entities(), "update "+
			strings.ToLower(surface.name)))
	case "input":
		return j.ofInput(command, surface.name)
	case "output":
		folders := map[string][]string{
			"sbatch": {"nodeagent"},
			"srun":   {"nodeagent", "cli/submit"},
			"salloc": {"cli/submit"},
		}
		return found(
			slices.ContainsFunc(
				folders[surface.command],
				func(f string) bool { return j.written[f][surface.name] },
			),
		)
	case "key":
		return j.ofKey(surface.name)
	}
	return verdict{status: missing}
}

// isProved tells whether a check proves a name that works by its effect.
func (j *judge) isProved(name surfaceName) bool {
	key := effects.Name{Kind: name.kind, Command: name.command, Name: name.name}
	if name.kind != "letter" {
		key.Name = strings.ToLower(name.name)
	}
	return j.proved[key]
}

// holdsAnyway tells an option that asks for what holds in any case, so that no effect shows.
func (j *judge) holdsAnyway(name surfaceName) bool {
	command := j.commands[name.command]
	if name.kind != "option" || command == nil {
		return false
	}
	return slices.ContainsFunc(command.AllOptions(), func(option opt.Option) bool {
		return option.Long == name.name && option.Always != ""
	})
}

// unproved lists the names of a section that work and have neither a check nor a reason why
// there can be none.
func (j *judge) unproved(s section) []string {
	var names []string
	for _, name := range s.rows {
		if j.answer(name).status == works && !j.isProved(name) && !j.holdsAnyway(name) {
			names = append(names, name.name)
		}
	}
	return names
}

func found(ok bool) verdict {
	if ok {
		return verdict{status: works}
	}
	return verdict{status: missing}
}

// foldEqual compares a column: letters exactly, names without regard to case.
func foldEqual(field string, surface surfaceName) bool {
	if surface.kind == "letter" {
		return field == surface.name
	}
	return strings.EqualFold(field, surface.name)
}

// hasVerb compares a verb, or a verb and its first word: write config.
func hasVerb(v tool.Verb, name string) bool {
	verb, rest, two := strings.Cut(name, " ")
	return v.Name == verb && (!two || strings.HasPrefix(v.Args, rest))
}

// ofOption reads the command's table of options.
func ofOption(command *tool.Command, surface surfaceName) verdict {
	for _, option := range command.AllOptions() {
		if option.Long != surface.name &&
			!slices.Contains(strings.Fields(option.Also), surface.name) {
			continue
		}
		v := judgeOption(&option)
		if v.status == works && surface.letter != "" && option.Short != surface.letter {
			return verdict{differs, "-" + surface.letter + " is not its short form"}
		}
		return v
	}
	return verdict{status: missing}
}

func judgeOption(option *opt.Option) verdict {
	switch {
	case option.Refused != "":
		return verdict{refused, option.Refused}
	case option.Warn != "":
		return verdict{differs, "accepted with a warning: " + option.Warn}
	case option.Always != "":
		return verdict{works, ""}
	}
	return verdict{status: works}
}

// ofInput finds a variable among those of the options, of the command, and of what
// every command reads.
func (j *judge) ofInput(command *tool.Command, name string) verdict {
	if command == nil {
		return verdict{status: missing}
	}
	for _, option := range command.AllOptions() {
		if slices.Contains(strings.Fields(option.Env), name) {
			return judgeOption(&option)
		}
	}
	return found(
		j.read[name] ||
			slices.ContainsFunc(command.Env, func(v tool.Variable) bool { return v.Name == name }),
	)
}

// ofKey reads the table of slurm.conf.
func (j *judge) ofKey(name string) verdict {
	support, ok := j.keys[strings.ToLower(name)]
	if !ok {
		return verdict{status: missing}
	}
	switch support.Status {
	case "implemented":
		return verdict{status: works}
	case "refused":
		return verdict{refused, support.Why}
	}
	return verdict{differs, "read, without effect: " + support.Why}
}

// optionsOfKeys says what the page cannot say for each key.
const optionsOfKeys = `A key whose value is a list of options, as PrologFlags and SchedulerParameters have it, works for the options
that Muster has. Every other one is reported by its name with file and line when the file is read: as a warning or a
note where it has no effect (of PrologFlags: NoInterruptOnFail and others), as an error where ignoring
it would be unsafe, or where there is no such option.
`

// section is a part of the page: the names of a kind and a command.
type section struct {
	title string
	rows  []surfaceName
}

// sections parts the names as the page does, in the order of the file.
func sections(names []surfaceName) []section {
	titles := map[string]string{
		"command": "Commands",
		"option":  "Options of %s",
		"letter":  "Letters of %s -o",
		"field":   "Columns of %s",
		"verb":    "Verbs of %s",
		"show":    "What %s shows",
		"update":  "Keys of scontrol update %s",
		"input":   "Environment variables that %s reads",
		"output":  "Environment variables that %s sets",
		"key":     "Keys of %s",
	}
	var out []section
	at := map[string]int{}
	for _, name := range names {
		title := titles[name.kind]
		if strings.Contains(title, "%s") {
			title = fmt.Sprintf(title, name.command)
		}
		i, ok := at[title]
		if !ok {
			i = len(out)
			at[title] = i
			out = append(out, section{title: title})
		}
		out[i].rows = append(out[i].rows, name)
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
	var text strings.Builder
	text.WriteString(
		"# Compatibility with Slurm\n\n<!-- Written by go run ./docs/gen from the tables of the commands, docs/gen/surface.tsv and docs/gen/notes.tsv. -->\n\n" +
			"What Muster does with each option, column, verb, key and environment variable of Slurm 25.11. The answers come from the\n" +
			"tables that drive the parsers, the help and the manual pages; what no table knows is noted in `docs/gen/notes.tsv`.\n\n" +
			"- **works**: it has the effect that it has in Slurm, or asks for what holds in any case. Of a part of these names\n" +
			"  `test/effects` proves it: a job with the option, and one without it, in a running cluster;\n" +
			"- **differs**: it is accepted, and the text says what is different;\n" +
			"- **refused**: it is known and ends with an error that says why, because ignoring it would change the result;\n" +
			"- **missing**: Muster does not know the name.\n\n" +
			"The reasons for which jobs wait are in [reasons.md](reasons.md), the paths of the REST API in [rest.md](rest.md).\n\n",
	)
	text.WriteString("| names | works | differs | refused | missing |\n|---|---|---|---|---|\n" +
		counts.String() + "| **all** |")
	for _, status := range statuses() {
		fmt.Fprintf(&text, " **%d** |", total[status])
	}
	text.WriteString("\n" + body.String() + reasonCount() + ownOptions(notes))
	return text.String(), nil
}

// ownOptions lists the options that Slurm does not have.
func ownOptions(notes []note) string {
	var text strings.Builder
	text.WriteString(
		"\n## Further options\n\nOptions that Slurm does not list for the command; those of earlier and later releases among them.\n\n| command | option | |\n|---|---|---|\n",
	)
	for _, n := range notes {
		if n.kind == "own" {
			fmt.Fprintf(&text, "| %s | `--%s` | %s |\n", n.command, n.name, n.how)
		}
	}
	return text.String()
}

// reasonCount says how many reasons of jobs are given here.
func reasonCount() string {
	given := 0
	all := spec.ReasonDocs()
	for _, doc := range all {
		if doc.Given {
			given++
		}
	}
	return fmt.Sprintf(
		"\n## Reasons\n\nOf %d names of reasons, jobs are given %d; [reasons.md](reasons.md) says why the others are not.\n",
		len(all),
		given,
	)
}

func anchor(title string) string {
	keep := func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		}
		return -1
	}
	return strings.Map(keep, strings.ToLower(title))
}

// writeSection writes one part of the page and returns how many of its names have
// each status: what works as a list, the rest as a table.
func (j *judge) writeSection(text *strings.Builder, s section) map[string]int {
	byStatus := map[string][]string{}
	proved := 0
	var rest strings.Builder
	for _, name := range s.rows {
		v := j.answer(name)
		if v.status == works && j.isProved(name) {
			proved++
		}
		byStatus[v.status] = append(byStatus[v.status], "`"+spelled(name)+"`")
		if v.how != "" && v.status != works {
			fmt.Fprintf(
				&rest,
				"| `%s` | %s | %s |\n",
				spelled(name),
				v.status,
				strings.ReplaceAll(v.how, "|", "\\|"),
			)
		}
	}
	fmt.Fprintf(text, "\n## %s\n", s.title)
	if s.rows[0].kind == "key" {
		text.WriteString("\n" + optionsOfKeys)
	}
	for _, status := range []string{works, missing} {
		list := byStatus[status]
		if len(list) == 0 {
			continue
		}
		count := strconv.Itoa(len(list))
		if status == works && proved > 0 {
			count += fmt.Sprintf(", %d of them proved by their effect", proved)
		}
		fmt.Fprintf(
			text,
			"\n%s (%s): %s\n",
			strings.ToUpper(status[:1])+status[1:],
			count,
			strings.Join(list, ", "),
		)
	}
	if rest.Len() > 0 {
		text.WriteString("\n| name | | how |\n|---|---|---|\n" + rest.String())
	}
	counts := map[string]int{}
	for status, list := range byStatus {
		counts[status] = len(list)
	}
	return counts
}

// spelled is a name as it is typed.
func spelled(name surfaceName) string {
	switch {
	case name.kind != "option":
		return name.name
	case name.letter != "":
		return "-" + name.letter + ", --" + name.name
	}
	return "--" + name.name
}
