package cli

import (
	"github.com/musterhpc/muster/cli/tool"
)

func helpCommand() *tool.Command {
	return &tool.Command{
		Name: "help", Summary: "list the commands, or show the help of one", Usage: []string{"[COMMAND]"},
		Example: []tool.Example{{Line: "muster help squeue", What: "explains squeue"}},
		Run: func(call *tool.Call) error {
			if len(call.Operands) == 0 {
				return helpAll(call.Out)
			}
			cmd := findCommand(call.Operands[0])
			if cmd == nil {
				return unknownCommand(call.Operands[0])
			}
			return call.WriteOut([]byte(tool.HelpText(cmd)))
		},
	}
}

func versionCommand() *tool.Command {
	return &tool.Command{
		Name: "version", Summary: "print the version of Muster and of the Slurm release that it is compatible with", Usage: []string{""},
		Run: func(call *tool.Call) error {
			return tool.PrintRelease(call)
		},
	}
}
