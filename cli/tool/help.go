package tool

import (
	"fmt"
	"strings"

	"github.com/musterhpc/muster/cli/opt"
)

// Spelling is how an option is written: -t, --time=<time>.
func Spelling(option *opt.Option) string {
	var text strings.Builder
	if option.Short != "" {
		fmt.Fprintf(&text, "-%s, ", option.Short)
	}
	text.WriteString("--" + option.Long)
	switch {
	case option.Maybe:
		text.WriteString("[=" + option.Arg + "]")
	case option.Arg != "":
		text.WriteString("=" + option.Arg)
	}
	return text.String()
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
	var text strings.Builder
	for i, u := range command.Usage {
		lead := "Usage: "
		if i > 0 {
			lead = "       "
		}
		text.WriteString(strings.TrimRight(lead+command.Called()+" "+u, " ") + "\n")
	}
	return text.String()
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
	var text strings.Builder
	text.WriteString(UsageText(command))
	text.WriteString("\n" + strings.ToUpper(command.Summary[:1]) + command.Summary[1:] + ".\n")
	for _, p := range command.Paragraphs() {
		text.WriteString("\n" + strings.Join(Lines(p, HelpWidth), "\n") + "\n")
	}
	if len(command.Verbs) > 0 {
		text.WriteString("\nCommands:\n")
		for _, verb := range command.Verbs {
			Item(&text, strings.TrimSpace(verb.Name+" "+verb.Args), verb.Help)
		}
	}
	text.WriteString("\nOptions:\n")
	options := command.AllOptions()
	refused := 0
	for i := range options {
		if options[i].Refused != "" {
			refused++
			continue
		}
		Item(&text, Spelling(&options[i]), Explain(&options[i]))
	}
	if refused > 0 {
		text.WriteString("\nKnown, and refused by name in this release:\n")
		for i := range options {
			if options[i].Refused != "" {
				Item(&text, Spelling(&options[i]), options[i].Refused)
			}
		}
	}
	section := func(title string, list []Variable) {
		if len(list) > 0 {
			text.WriteString("\n" + title + ":\n")
			for _, variable := range list {
				Item(&text, variable.Name, variable.Help)
			}
		}
	}
	section("Environment", append(append([]Variable(nil), command.Env...), CommonVariables()...))
	section("Exit codes", command.Exits)
	if len(command.Example) > 0 {
		text.WriteString("\nExamples:\n")
		for _, example := range command.Example {
			fmt.Fprintf(&text, "  %s\n      %s\n", example.Line, example.What)
		}
	}
	return text.String()
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
func PrintRelease(call *Call) error {
	_, err := fmt.Fprintf(call.Out, "muster %s (speaks Slurm %s)\n", call.Version, SlurmVersion)
	return err
}
