package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
)

// Main runs the command that the arguments name and returns its exit code.
func Main(env *tool.Env) int {
	name, args := tool.BaseName(env.Args[0]), env.Args[1:]
	cmd := findCommand(name)
	if cmd == nil || !cmd.Slurm {
		if len(args) == 0 {
			return tool.Report(env, helpAll(env.Stdout), "muster", 1)
		}
		switch name, args = args[0], args[1:]; name {
		case "--version", "-V":
			name = "version"
		case "--help", "-h":
			name = "help"
		}
		cmd = findCommand(name)
		if cmd == nil {
			return tool.Report(env, unknownCommand(name), "muster", 1)
		}
	}
	return tool.RunCommand(env, cmd, args)
}

func unknownCommand(name string) error {
	line := fmt.Sprintf("muster: %q is not a command; muster help lists them", name)
	if reason := notYet(name); reason != "" {
		line = fmt.Sprintf("muster: %s is not in this release: %s", name, reason)
	} else if near := nearest(name); near != "" {
		line = fmt.Sprintf("muster: %q is not a command; did you mean %s?", name, near)
	}
	return tool.Fail(1, line)
}

// notYet says why a command of Slurm is not in this release, or "".
func notYet(name string) string {
	switch name {
	case "smail":
		return "Muster has no counterpart of it"
	}
	return ""
}

// helpAll lists the commands.
func helpAll(w io.Writer) error {
	var text strings.Builder
	text.WriteString(
		"muster: the register of a cluster: who runs what, where, how well, and why the rest waits\n\n" +
			"Usage: muster COMMAND [OPTIONS]        muster help COMMAND\n",
	)
	for _, part := range [...]struct {
		title string
		slurm bool
	}{{"Slurm's commands, which also answer by their own names", true}, {"Muster's own", false}} {
		text.WriteString("\n" + part.title + ":\n")
		for _, entry := range commandEntries() {
			if command := entry.Make(); command.Slurm == part.slurm {
				tool.Item(&text, command.Name, command.Summary)
			}
		}
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// manualPage is the name of a command's manual page.
func manualPage(command *tool.Command) string {
	if command.Slurm {
		return command.Name
	}
	return "muster-" + command.Name
}

// findCommand makes the command of a name; nil when there is none.
func findCommand(name string) *tool.Command {
	for _, entry := range commandEntries() {
		if entry.Name == name {
			return entry.Make()
		}
	}
	return nil
}

// nearest is the command whose name differs least from what was typed.
func nearest(typed string) string {
	var names []string
	for _, entry := range commandEntries() {
		names = append(names, entry.Name)
	}
	return spec.Nearest(typed, names)
}
