package tool

import (
	"fmt"
	"strings"

	"github.com/musterhpc/muster/cli/opt"
)

// Spelling is how an option is written: -t, --time=<time>.
func Spelling(option *opt.Option) string {
	var b strings.Builder
	if option.Short != "" {
		fmt.Fprintf(&b, "-%s, ", option.Short)
	}
	b.WriteString("--" + option.Long)
	switch {
	case option.Maybe:
		b.WriteString("[=" + option.Arg + "]")
	case option.Arg != "":
		b.WriteString("=" + option.Arg)
	}
	return b.String()
}

// Lines breaks text at blanks into lines of at most width bytes.
func Lines(text string, width int) []string {
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
	HelpWidth  = 100
	helpColumn = 32
)

// Item writes a name and its explanation in two columns.
func Item(b *strings.Builder, name, text string) {
	head := "  " + name
	for i, line := range Lines(text, HelpWidth-helpColumn) {
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

// Explain is an option's help with what the table knows besides.
func Explain(option *opt.Option) string {
	text := option.Help
	switch {
	case option.Refused != "":
		return "refused: " + option.Refused
	case option.Always != "":
		text += " (no effect: " + option.Always + ")"
	case option.Warn != "":
		text += " (" + option.Warn + ")"
	}
	if option.Env != "" {
		text += " [" + option.Env + "]"
	}
	return text
}

// UsageText is --usage.
func UsageText(command *Command) string {
	var b strings.Builder
	for i, u := range command.Usage {
		lead := "Usage: "
		if i > 0 {
			lead = "       "
		}
		b.WriteString(strings.TrimRight(lead+command.Called()+" "+u, " ") + "\n")
	}
	return b.String()
}

// Called is how the command is typed.
func (c *Command) Called() string {
	if c.Slurm {
		return c.Name
	}
	return "muster " + c.Name
}

// HelpText is --help.
func HelpText(command *Command) string {
	var b strings.Builder
	b.WriteString(UsageText(command))
	b.WriteString("\n" + strings.ToUpper(command.Summary[:1]) + command.Summary[1:] + ".\n")
	for _, p := range command.Paragraphs() {
		b.WriteString("\n" + strings.Join(Lines(p, HelpWidth), "\n") + "\n")
	}
	if len(command.Verbs) > 0 {
		b.WriteString("\nCommands:\n")
		for _, v := range command.Verbs {
			Item(&b, strings.TrimSpace(v.Name+" "+v.Args), v.Help)
		}
	}
	b.WriteString("\nOptions:\n")
	options := command.AllOptions()
	refused := 0
	for i := range options {
		if options[i].Refused != "" {
			refused++
			continue
		}
		Item(&b, Spelling(&options[i]), Explain(&options[i]))
	}
	if refused > 0 {
		b.WriteString("\nKnown, and refused by name in this release:\n")
		for i := range options {
			if options[i].Refused != "" {
				Item(&b, Spelling(&options[i]), options[i].Refused)
			}
		}
	}
	section := func(title string, list []Variable) {
		if len(list) > 0 {
			b.WriteString("\n" + title + ":\n")
			for _, v := range list {
				Item(&b, v.Name, v.Help)
			}
		}
	}
	section("Environment", append(append([]Variable(nil), command.Env...), CommonVariables()...))
	section("Exit codes", command.Exits)
	if len(command.Example) > 0 {
		b.WriteString("\nExamples:\n")
		for _, x := range command.Example {
			fmt.Fprintf(&b, "  %s\n      %s\n", x.Line, x.What)
		}
	}
	return b.String()
}

func CommonVariables() []Variable {
	return []Variable{
		{"MUSTER_CA", "the cluster's authority on a host without an agent (AuthType=auth/munge); else " + defaultAuthority},
		{"MUSTER_SERVER", "controllers as host:port,host:port, reached with a credential of MUNGE; else those of slurm.conf"},
		{"MUSTER_SOCKET", "the controller's socket; else muster.yaml's, else " + DefaultSocket},
		{"MUSTER_CONFIG", "where muster.yaml is; else " + DefaultConfig},
		{TokenVariable, "a token of scontrol token: the command is then that user's"},
	}
}

// PrintVersion is -V: clients recognise Slurm by the first word.
func PrintVersion(call *Call) error {
	if !call.Command.Slurm {
		return PrintRelease(call)
	}
	_, err := fmt.Fprintln(call.Out, "slurm "+SlurmVersion)
	return err
}

// PrintRelease prints Muster's own version beside Slurm's.
func PrintRelease(c *Call) error {
	_, err := fmt.Fprintf(c.Out, "muster %s (speaks Slurm %s)\n", c.Version, SlurmVersion)
	return err
}
