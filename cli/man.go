package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/musterhpc/muster/cli/opt"
)

func manCommand() *command {
	return &command{
		name: "man", summary: "write the manual pages", usage: []string{"COMMAND", "--dir=<folder>"},
		about: "Without --dir, the page of one command is written to the standard output. The pages are made from the same table as --help.",
		options: []opt.Option{
			{Long: "dir", Short: "d", Arg: "<folder>", Help: "write every page into this folder, which must exist: muster.1, sbatch.1, muster-why.1, and so on"},
		},
		mixed:   true,
		example: []example{{"muster man squeue | man -l -", "reads the page"}, {"muster man --dir /usr/local/share/man/man1", "installs them all"}},
		run:     runMan,
	}
}

func runMan(c *call) error {
	if c.opts.On("dir") {
		for _, e := range commands() {
			cmd := e.make()
			if err := os.WriteFile(filepath.Join(c.opts.Text("dir"), cmd.page()+".1"), []byte(manPage(cmd, c.Version)), 0o644); err != nil {
				return c.errorf("%v", err)
			}
		}
		return nil
	}
	if len(c.args) != 1 {
		return &opt.UsageError{Command: "muster man", Text: "name one command, or a folder with --dir"}
	}
	cmd := find(c.args[0])
	if cmd == nil {
		return unknownCommand(c.args[0])
	}
	return c.write([]byte(manPage(cmd, c.Version)))
}

// page is the name of a command's manual page.
func (c *command) page() string {
	if c.slurm {
		return c.name
	}
	return "muster-" + c.name
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
func manPage(c *command, version string) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"Muster %s\" \"Muster\"\n.SH NAME\n%s \\- %s\n.SH SYNOPSIS\n", strings.ToUpper(c.page()), roff(version), roff(c.page()), roff(c.summary))
	for i, u := range c.usage {
		if i > 0 {
			b.WriteString(".br\n")
		}
		fmt.Fprintf(&b, "\\fB%s\\fR %s\n", roff(c.called()), roff(u))
	}
	fmt.Fprintf(&b, ".SH DESCRIPTION\n%s.\n", roff(strings.ToUpper(c.summary[:1])+c.summary[1:]))
	for _, p := range c.paragraphs() {
		fmt.Fprintf(&b, ".PP\n%s\n", roff(p))
	}
	if len(c.verbs) > 0 {
		b.WriteString(".SH COMMANDS\n")
		for _, v := range c.verbs {
			fmt.Fprintf(&b, ".TP\n\\fB%s\\fR %s\n%s\n", roff(v.name), roff(v.args), roff(v.help))
		}
	}
	b.WriteString(".SH OPTIONS\n")
	options := c.allOptions()
	for i := range options {
		fmt.Fprintf(&b, ".TP\n\\fB%s\\fR\n%s\n", roff(spelling(&options[i])), roff(explain(&options[i])))
	}
	terms := func(title string, list []variable) {
		if len(list) > 0 {
			fmt.Fprintf(&b, ".SH %s\n", title)
			for _, v := range list {
				fmt.Fprintf(&b, ".TP\n\\fB%s\\fR\n%s\n", roff(v.name), roff(v.help))
			}
		}
	}
	terms("ENVIRONMENT", append(append([]variable(nil), c.env...), commonVariables()...))
	terms("EXIT STATUS", c.exits)
	if len(c.example) > 0 {
		b.WriteString(".SH EXAMPLES\n")
		for _, x := range c.example {
			fmt.Fprintf(&b, ".TP\n\\fB%s\\fR\n%s\n", roff(x.line), roff(x.what))
		}
	}
	return b.String()
}

// Markdown is docs/cli.md: every command with every option.
func Markdown() string {
	var b strings.Builder
	b.WriteString("# Commands\n\nGenerated from the table of commands (`cli/`): run `make generate` after a change there.\n\n" +
		"Slurm's commands answer under their own names (symlinks to `muster`) and as `muster NAME`.\n\n")
	for _, e := range commands() {
		c := e.make()
		fmt.Fprintf(&b, "- [%s](#%s): %s\n", c.called(), strings.ReplaceAll(c.called(), " ", "-"), c.summary)
	}
	for _, e := range commands() {
		markdownCommand(&b, e.make())
	}
	return b.String()
}

func markdownCommand(b *strings.Builder, c *command) {
	fmt.Fprintf(b, "\n## %s\n\n%s.\n\n```\n%s```\n", c.called(), strings.ToUpper(c.summary[:1])+c.summary[1:], usageText(c))
	for _, p := range c.paragraphs() {
		fmt.Fprintf(b, "\n%s\n", markdownText(p))
	}
	table := func(head string, rows [][2]string) {
		if len(rows) == 0 {
			return
		}
		fmt.Fprintf(b, "\n| %s | |\n|---|---|\n", head)
		for _, r := range rows {
			fmt.Fprintf(b, "| `%s` | %s |\n", strings.ReplaceAll(r[0], "|", "\\|"), markdownText(r[1]))
		}
	}
	var verbs, options, env, exits [][2]string
	for _, v := range c.verbs {
		verbs = append(verbs, [2]string{strings.TrimSpace(v.name + " " + v.args), v.help})
	}
	all := c.allOptions()
	for i := range all {
		options = append(options, [2]string{spelling(&all[i]), explain(&all[i])})
	}
	for _, v := range c.env {
		env = append(env, [2]string{v.name, v.help})
	}
	for _, v := range c.exits {
		exits = append(exits, [2]string{v.name, v.help})
	}
	table("command", verbs)
	table("option", options)
	table("environment", env)
	table("exit code", exits)
	for _, x := range c.example {
		fmt.Fprintf(b, "\n```\n%s\n```\n%s\n", x.line, strings.ToUpper(x.what[:1])+x.what[1:]+".")
	}
}

// markdownText protects text in a paragraph or a table.
func markdownText(s string) string {
	return strings.NewReplacer("<", "&lt;", "|", "\\|", "*", "\\*", "_", "\\_", "\n", " ").Replace(s)
}
