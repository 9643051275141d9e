package cli

import (
	"fmt"
	"strings"

	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/tool"
)

func completionCommand() *tool.Command {
	return &tool.Command{
		Name: "completion", Summary: "print a shell completion script", Usage: []string{"bash|zsh|fish"},
		About: "Completes commands, their verbs and options, and the names of partitions where an option takes them.",
		Example: []tool.Example{
			{Line: `eval "$(muster completion bash)"`, What: "completes in this shell"},
			{
				Line: "muster completion fish > ~/.config/fish/completions/muster.fish",
				What: "installs it",
			},
		},
		Run: func(call *tool.Call) error {
			if len(call.Operands) == 1 {
				switch call.Operands[0] {
				case "bash":
					return call.WriteOut([]byte(bashCompletion(false)))
				case "zsh":
					return call.WriteOut([]byte(bashCompletion(true)))
				case "fish":
					return call.WriteOut([]byte(fishCompletion()))
				}
			}
			return &opt.UsageError{
				Command: "muster completion",
				Text:    "expected one of bash, zsh, fish",
			}
		},
	}
}

// offered is what a command's options and verbs are completed with.
func offered(command *tool.Command) (words, partitions []string) {
	for _, verb := range command.Verbs {
		words = append(words, verb.Name)
	}
	options := command.AllOptions()
	for i := range options {
		option := &options[i]
		if option.Refused != "" {
			continue
		}
		words = append(words, "--"+option.Long)
		if option.Short != "" {
			words = append(words, "-"+option.Short)
		}
		if option.Long == "partition" {
			partitions = append(partitions, "--"+option.Long)
			if option.Short != "" {
				partitions = append(partitions, "-"+option.Short)
			}
		}
	}
	return words, partitions
}

// bashCompletion serves zsh too, through its emulation.
func bashCompletion(zsh bool) string {
	var text strings.Builder
	var names, slurm []string
	for _, entry := range commandEntries() {
		names = append(names, entry.Name)
		if entry.Make().Slurm {
			slurm = append(slurm, entry.Name)
		}
	}
	completed := "muster " + strings.Join(slurm, " ")
	if zsh {
		// The first line lets zsh find the file as _muster in a folder of its fpath.
		text.WriteString("#compdef " + completed + "\n")
	}
	text.WriteString("# Made by: muster completion. Do not edit.\n")
	if zsh {
		text.WriteString("autoload -U +X bashcompinit && bashcompinit\n")
	}
	text.WriteString(
		"_muster() {\n  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} cmd=${COMP_WORDS[0]##*/} words=\n" +
			"  if [ \"$cmd\" = muster ]; then\n    if [ \"$COMP_CWORD\" -eq 1 ]; then\n      COMPREPLY=($(compgen -W '",
	)
	text.WriteString(strings.Join(names, " ") +
		"' -- \"$cur\"))\n      return\n    fi\n    cmd=${COMP_WORDS[1]}\n  fi\n  case $cmd in\n")
	for _, entry := range commandEntries() {
		words, parts := offered(entry.Make())
		if entry.Name == "completion" {
			words = append(words, "bash", "zsh", "fish")
		}
		fmt.Fprintf(&text, "    %s)\n", entry.Name)
		if len(parts) > 0 {
			fmt.Fprintf(
				&text,
				"      case $prev in %s) COMPREPLY=($(compgen -W \"$(command muster sinfo -h -o %%R 2>/dev/null)\" -- \"$cur\")); return;; esac\n",
				strings.Join(parts, "|"),
			)
		}
		fmt.Fprintf(&text, "      words='%s';;\n", strings.Join(words, " "))
	}
	text.WriteString("  esac\n  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n}\n")
	fmt.Fprintf(&text, "complete -o default -F _muster %s\n", completed)
	if zsh {
		// Loaded from the fpath, the file runs at the first completion, which it answers too.
		text.WriteString("[ \"${funcstack[1]}\" != _muster ] || _bash_complete -o default -F _muster\n")
	}
	return text.String()
}

func fishCompletion() string {
	var text strings.Builder
	text.WriteString("# Made by: muster completion. Do not edit.\n")
	quote := func(s string) string {
		return "'" +
			strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(s) + "'"
	}
	for _, entry := range commandEntries() {
		command := entry.Make()
		fmt.Fprintf(
			&text,
			"complete -c muster -n __fish_use_subcommand -f -a %s -d %s\n",
			command.Name,
			quote(command.Summary),
		)
		places := []string{"-c muster -n '__fish_seen_subcommand_from " + command.Name + "'"}
		if command.Slurm {
			places = append(places, "-c "+command.Name)
		}
		options := command.AllOptions()
		for _, at := range places {
			for _, verb := range command.Verbs {
				fmt.Fprintf(&text, "complete %s -f -a %s -d %s\n", at, verb.Name, quote(verb.Help))
			}
			for i := range options {
				option := &options[i]
				if option.Refused != "" {
					continue
				}
				line := "complete " + at + " -l " + option.Long
				if option.Short != "" {
					line += " -s " + option.Short
				}
				if option.Arg != "" && !option.Maybe {
					line += " -r"
				}
				if option.Long == "partition" {
					line += " -f -a '(command muster sinfo -h -o %R 2>/dev/null)'"
				}
				text.WriteString(line + " -d " + quote(option.Help) + "\n")
			}
		}
	}
	return text.String()
}
