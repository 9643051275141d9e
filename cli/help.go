package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/musterhpc/muster/cli/opt"
)

// spelling is how an option is written: -t, --time=<time>.
func spelling(o *opt.Option) string {
	var b strings.Builder
	if o.Short != "" {
		fmt.Fprintf(&b, "-%s, ", o.Short)
	}
	b.WriteString("--" + o.Long)
	switch {
	case o.Maybe:
		b.WriteString("[=" + o.Arg + "]")
	case o.Arg != "":
		b.WriteString("=" + o.Arg)
	}
	return b.String()
}

// lines breaks text at blanks into lines of at most width bytes.
func lines(text string, width int) []string {
	var out []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			out = append(out, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(out, line)
}

const (
	helpWidth  = 100
	helpColumn = 32
)

// item writes a name and its explanation in two columns.
func item(b *strings.Builder, name, text string) {
	head := "  " + name
	for i, line := range lines(text, helpWidth-helpColumn) {
		switch {
		case i == 0 && len(head) < helpColumn:
			fmt.Fprintf(b, "%-*s%s\n", helpColumn, head, line)
		case i == 0:
			fmt.Fprintf(b, "%s\n%*s%s\n", head, helpColumn, "", line)
		default:
			fmt.Fprintf(b, "%*s%s\n", helpColumn, "", line)
		}
	}
}

// explain is an option's help with what the table knows besides.
func explain(o *opt.Option) string {
	text := o.Help
	switch {
	case o.Refused != "":
		return "refused: " + o.Refused
	case o.Always != "":
		text += " (always so: " + o.Always + ")"
	case o.Warn != "":
		text += " (" + o.Warn + ")"
	}
	if o.Env != "" {
		text += " [" + o.Env + "]"
	}
	return text
}

// usageText is --usage.
func usageText(c *command) string {
	var b strings.Builder
	for i, u := range c.usage {
		lead := "Usage: "
		if i > 0 {
			lead = "       "
		}
		b.WriteString(strings.TrimRight(lead+c.called()+" "+u, " ") + "\n")
	}
	return b.String()
}

// called is how the command is typed.
func (c *command) called() string {
	if c.slurm {
		return c.name
	}
	return "muster " + c.name
}

// helpText is --help.
func helpText(c *command) string {
	var b strings.Builder
	b.WriteString(usageText(c))
	b.WriteString("\n" + strings.ToUpper(c.summary[:1]) + c.summary[1:] + ".\n")
	for _, p := range c.paragraphs() {
		b.WriteString("\n" + strings.Join(lines(p, helpWidth), "\n") + "\n")
	}
	if len(c.verbs) > 0 {
		b.WriteString("\nCommands:\n")
		for _, v := range c.verbs {
			item(&b, strings.TrimSpace(v.name+" "+v.args), v.help)
		}
	}
	b.WriteString("\nOptions:\n")
	options := c.allOptions()
	refused := 0
	for i := range options {
		if options[i].Refused != "" {
			refused++
			continue
		}
		item(&b, spelling(&options[i]), explain(&options[i]))
	}
	if refused > 0 {
		b.WriteString("\nKnown, and refused by name in this release:\n")
		for i := range options {
			if options[i].Refused != "" {
				item(&b, spelling(&options[i]), options[i].Refused)
			}
		}
	}
	section := func(title string, list []variable) {
		if len(list) > 0 {
			b.WriteString("\n" + title + ":\n")
			for _, v := range list {
				item(&b, v.name, v.help)
			}
		}
	}
	section("Environment", append(append([]variable(nil), c.env...), commonVariables()...))
	section("Exit codes", c.exits)
	if len(c.example) > 0 {
		b.WriteString("\nExamples:\n")
		for _, x := range c.example {
			fmt.Fprintf(&b, "  %s\n      %s\n", x.line, x.what)
		}
	}
	return b.String()
}

func commonVariables() []variable {
	return []variable{
		{"MUSTER_SOCKET", "the controller's socket; else muster.yaml's, else " + defaultSocket},
		{"MUSTER_CONFIG", "where muster.yaml is; else " + defaultConfig},
	}
}

// helpAll lists the commands.
func helpAll(w io.Writer) error {
	var b strings.Builder
	b.WriteString("muster: the register of a cluster: who runs what, where, how well, and why the rest waits\n\n" +
		"Usage: muster COMMAND [OPTIONS]        muster help COMMAND\n")
	for _, part := range [...]struct {
		title string
		slurm bool
	}{{"Slurm's commands, which also answer by their own names", true}, {"Muster's own", false}} {
		b.WriteString("\n" + part.title + ":\n")
		for _, x := range commands() {
			if c := x.make(); c.slurm == part.slurm {
				item(&b, c.name, c.summary)
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func helpCommand() *command {
	return &command{
		name: "help", summary: "list the commands, or explain one", usage: []string{"[COMMAND]"},
		example: []example{{"muster help squeue", "explains squeue"}},
		run: func(c *call) error {
			if len(c.args) == 0 {
				return helpAll(c.out)
			}
			cmd := find(c.args[0])
			if cmd == nil {
				return unknownCommand(c.args[0])
			}
			return c.write([]byte(helpText(cmd)))
		},
	}
}

func versionCommand() *command {
	return &command{
		name: "version", summary: "print Muster's version and the Slurm release whose language it speaks", usage: []string{""},
		run: func(c *call) error {
			_, err := fmt.Fprintf(c.out, "muster %s (speaks Slurm %s)\n", c.Version, slurmVersion)
			return err
		},
	}
}

// printVersion is -V: clients recognise Slurm by the first word.
func printVersion(c *call) error {
	if !c.cmd.slurm {
		return versionCommand().run(c)
	}
	_, err := fmt.Fprintln(c.out, "slurm "+slurmVersion)
	return err
}
