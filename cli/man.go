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
func roff(text string) string {
	text = strings.ReplaceAll(text, `\`, `\e`)
	text = strings.ReplaceAll(text, "-", `\-`)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}

// manPage makes a command's manual page.
func manPage(command *tool.Command, version string) string {
	var text strings.Builder
	fmt.Fprintf(
		&text,
		".TH %s 1 \"\" \"Muster %s\" \"Muster\"\n.SH NAME\n%s \\- %s\n.SH SYNOPSIS\n",
		strings.ToUpper(manualPage(command)),
		roff(version),
		roff(manualPage(command)),
		roff(command.Summary),
	)
	for i, u := range command.Usage {
		if i > 0 {
			text.WriteString(".br\n")
		}
		fmt.Fprintf(&text, "\\fB%s\\fR %s\n", roff(command.Called()), roff(u))
	}
	fmt.Fprintf(
		&text,
		".SH DESCRIPTION\n%s.\n",
		roff(strings.ToUpper(command.Summary[:1])+command.Summary[1:]),
	)
	for _, p := range command.Paragraphs() {
		fmt.Fprintf(&text, ".PP\n%s\n", roff(p))
	}
	if len(command.Verbs) > 0 {
		text.WriteString(".SH COMMANDS\n")
		for _, verb := range command.Verbs {
			fmt.Fprintf(
				&text,
				".TP\n\\fB%s\\fR %s\n%s\n",
				roff(verb.Name),
				roff(verb.Args),
				roff(verb.Help),
			)
		}
	}
	text.WriteString(".SH OPTIONS\n")
	options := command.AllOptions()
	for i := range options {
		fmt.Fprintf(
			&text,
			".TP\n\\fB%s\\fR\n%s\n",
			roff(tool.Spelling(&options[i])),
			roff(tool.Explain(&options[i])),
		)
	}
	terms := func(title string, list []tool.Variable) {
		if len(list) > 0 {
			fmt.Fprintf(&text, ".SH %s\n", title)
			for _, variable := range list {
				fmt.Fprintf(
					&text, ".TP\n\\fB%s\\fR\n%s\n", roff(variable.Name), roff(variable.Help),
				)
			}
		}
	}
	terms(
		"ENVIRONMENT",
		append(append([]tool.Variable(nil), command.Env...), tool.CommonVariables()...),
	)
	terms("EXIT STATUS", command.Exits)
	if len(command.Example) > 0 {
		text.WriteString(".SH EXAMPLES\n")
		for _, example := range command.Example {
			fmt.Fprintf(&text, ".TP\n\\fB%s\\fR\n%s\n", roff(example.Line), roff(example.What))
		}
	}
	return text.String()
}

// Markdown is docs/cli.md: every command with every option.
func Markdown() string {
	var text strings.Builder
	text.WriteString(
		"# Commands\n\nGenerated from the table of commands (`cli/`): run `make generate` after a change there.\n\n" +
			"Slurm's commands answer under their own names (symlinks to `muster`) and as `muster NAME`.\n\n",
	)
	for _, entry := range commandEntries() {
		command := entry.Make()
		fmt.Fprintf(
			&text,
			"- [%s](#%s): %s\n",
			command.Called(),
			strings.ReplaceAll(command.Called(), " ", "-"),
			command.Summary,
		)
	}
	for _, entry := range commandEntries() {
		markdownCommand(&text, entry.Make())
	}
	return text.String()
}

func markdownCommand(text *strings.Builder, command *tool.Command) {
	fmt.Fprintf(
		text,
		"\n## %s\n\n%s.\n\n```\n%s```\n",
		command.Called(),
		strings.ToUpper(command.Summary[:1])+command.Summary[1:],
		tool.UsageText(command),
	)
	for _, p := range command.Paragraphs() {
		fmt.Fprintf(text, "\n%s\n", markdownText(p))
	}
	table := func(head string, rows [][2]string) {
		if len(rows) == 0 {
			return
		}
		fmt.Fprintf(text, "\n| %s | |\n|---|---|\n", head)
		for _, r := range rows {
			fmt.Fprintf(
				text,
				"| `%s` | %s |\n",
				strings.ReplaceAll(r[0], "|", "\\|"),
				markdownText(r[1]),
			)
		}
	}
	var verbs, options, env, exits [][2]string
	for _, verb := range command.Verbs {
		verbs = append(verbs, [2]string{strings.TrimSpace(verb.Name + " " + verb.Args), verb.Help})
	}
	all := command.AllOptions()
	for i := range all {
		options = append(options, [2]string{tool.Spelling(&all[i]), tool.Explain(&all[i])})
	}
	for _, variable := range command.Env {
		env = append(env, [2]string{variable.Name, variable.Help})
	}
	for _, variable := range command.Exits {
		exits = append(exits, [2]string{variable.Name, variable.Help})
	}
	table("command", verbs)
	table("option", options)
	table("environment", env)
	table("exit code", exits)
	for _, example := range command.Example {
		fmt.Fprintf(
			text,
			"\n```\n%s\n```\n%s\n",
			example.Line,
			strings.ToUpper(example.What[:1])+example.What[1:]+".",
		)
	}
}

// markdownText protects text in a paragraph or a table.
func markdownText(text string) string {
	return strings.NewReplacer("<", "&lt;", "|", "\\|", "*", "\\*", "_", "\\_", "\n", " ").
		Replace(text)
}
