package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/tool"
)

func manCommand() *tool.Command {
	return &tool.Command{
		Name: "man", Summary: "write the manual pages", Usage: []string{"COMMAND", "--dir=<folder>"},
		About: "Without --dir, the page of one command is written to standard output. The pages are generated from the same table as --help.",
		Options: []opt.Option{
			{
				Long:  "dir",
				Short: "d",
				Arg:   "<folder>",
				Help:  "write all pages to this existing folder: muster.1, sbatch.1, muster-why.1 and so on",
			},
		},
		Mixed: true,
		Example: []tool.Example{
			{Line: "muster man squeue | man -l -", What: "reads the page"},
			{Line: "muster man --dir /usr/local/share/man/man1", What: "installs them all"},
		},
		Run: runMan,
	}
}

func runMan(call *tool.Call) error {
	if call.Opts.On("dir") {
		for _, entry := range commandEntries() {
			cmd := entry.Make()
			if err := os.WriteFile(filepath.Join(call.Opts.Text("dir"), manualPage(cmd)+".1"), []byte(manPage(cmd, call.Version)), 0o644); err != nil {
				return call.Errorf("%v", err)
			}
		}
		return nil
	}
	if len(call.Operands) != 1 {
		return &opt.UsageError{
			Command: "muster man",
			Text:    "name one command, or a folder with --dir",
		}
	}
	cmd := findCommand(call.Operands[0])
	if cmd == nil {
		return unknownCommand(call.Operands[0])
	}
	return call.WriteOut([]byte(manPage(cmd, call.Version)))
}

// roff protects text from the formatter.
func roff(s string) string {
	s = strings.ReplaceAll(s, `\`, `\e`)
	s = strings.ReplaceAll(s, "-", `\-`)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}

// manPage makes a command's manual page.
func manPage(command *tool.Command, version string) string {
	var b strings.Builder
	fmt.Fprintf(
		&b,
		".TH %s 1 \"\" \"Muster %s\" \"Muster\"\n.SH NAME\n%s \\- %s\n.SH SYNOPSIS\n",
		strings.ToUpper(manualPage(command)),
		roff(version),
		roff(manualPage(command)),
		roff(command.Summary),
	)
	for i, u := range command.Usage {
		if i > 0 {
			b.WriteString(".br\n")
		}
		fmt.Fprintf(&b, "\\fB%s\\fR %s\n", roff(command.Called()), roff(u))
	}
	fmt.Fprintf(
		&b,
		".SH DESCRIPTION\n%s.\n",
		roff(strings.ToUpper(command.Summary[:1])+command.Summary[1:]),
	)
	for _, p := range command.Paragraphs() {
		fmt.Fprintf(&b, ".PP\n%s\n", roff(p))
	}
	if len(command.Verbs) > 0 {
		b.WriteString(".SH COMMANDS\n")
		for _, v := range command.Verbs {
			fmt.Fprintf(&b, ".TP\n\\fB%s\\fR %s\n%s\n", roff(v.Name), roff(v.Args), roff(v.Help))
		}
	}
	b.WriteString(".SH OPTIONS\n")
	options := command.AllOptions()
	for i := range options {
		fmt.Fprintf(
			&b,
			".TP\n\\fB%s\\fR\n%s\n",
			roff(tool.Spelling(&options[i])),
			roff(tool.Explain(&options[i])),
		)
	}
	terms := func(title string, list []tool.Variable) {
		if len(list) > 0 {
			fmt.Fprintf(&b, ".SH %s\n", title)
			for _, v := range list {
				fmt.Fprintf(&b, ".TP\n\\fB%s\\fR\n%s\n", roff(v.Name), roff(v.Help))
			}
		}
	}
	terms(
		"ENVIRONMENT",
		append(append([]tool.Variable(nil), command.Env...), tool.CommonVariables()...),
	)
	terms("EXIT STATUS", command.Exits)
	if len(command.Example) > 0 {
		b.WriteString(".SH EXAMPLES\n")
		for _, x := range command.Example {
			fmt.Fprintf(&b, ".TP\n\\fB%s\\fR\n%s\n", roff(x.Line), roff(x.What))
		}
	}
	return b.String()
}

// Markdown is docs/cli.md: every command with every option.
func Markdown() string {
	var b strings.Builder
	b.WriteString(
		"# Commands\n\nGenerated from the table of commands (`cli/`): run `make generate` after a change there.\n\n" +
			"Slurm's commands answer under their own names (symlinks to `muster`) and as `muster NAME`.\n\n",
	)
	for _, e := range commandEntries() {
		c := e.Make()
		fmt.Fprintf(
			&b,
			"- [%s](#%s): %s\n",
			c.Called(),
			strings.ReplaceAll(c.Called(), " ", "-"),
			c.Summary,
		)
	}
	for _, e := range commandEntries() {
		markdownCommand(&b, e.Make())
	}
	return b.String()
}

func markdownCommand(b *strings.Builder, command *tool.Command) {
	fmt.Fprintf(
		b,
		"\n## %s\n\n%s.\n\n```\n%s```\n",
		command.Called(),
		strings.ToUpper(command.Summary[:1])+command.Summary[1:],
		tool.UsageText(command),
	)
	for _, p := range command.Paragraphs() {
		fmt.Fprintf(b, "\n%s\n", markdownText(p))
	}
	table := func(head string, rows [][2]string) {
		if len(rows) == 0 {
			return
		}
		fmt.Fprintf(b, "\n| %s | |\n|---|---|\n", head)
		for _, r := range rows {
			fmt.Fprintf(
				b,
				"| `%s` | %s |\n",
				strings.ReplaceAll(r[0], "|", "\\|"),
				markdownText(r[1]),
			)
		}
	}
	var verbs, options, env, exits [][2]string
	for _, v := range command.Verbs {
		verbs = append(verbs, [2]string{strings.TrimSpace(v.Name + " " + v.Args), v.Help})
	}
	all := command.AllOptions()
	for i := range all {
		options = append(options, [2]string{tool.Spelling(&all[i]), tool.Explain(&all[i])})
	}
	for _, v := range command.Env {
		env = append(env, [2]string{v.Name, v.Help})
	}
	for _, v := range command.Exits {
		exits = append(exits, [2]string{v.Name, v.Help})
	}
	table("command", verbs)
	table("option", options)
	table("environment", env)
	table("exit code", exits)
	for _, x := range command.Example {
		fmt.Fprintf(b, "\n```\n%s\n```\n%s\n", x.Line, strings.ToUpper(x.What[:1])+x.What[1:]+".")
	}
}

// markdownText protects text in a paragraph or a table.
func markdownText(s string) string {
	return strings.NewReplacer("<", "&lt;", "|", "\\|", "*", "\\*", "_", "\\_", "\n", " ").
		Replace(s)
}
