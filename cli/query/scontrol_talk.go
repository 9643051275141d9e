package query

import (
	"bufio"
	"slices"
	"strings"

	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/tool"
)

// scontrolSwitches are the commands of a conversation that set an option for those
// after them, with the option that each takes back.
func scontrolSwitches() map[string]string {
	return map[string]string{
		"all":      "hide",
		"details":  "",
		"future":   "",
		"hide":     "all",
		"oneliner": "",
		"quiet":    "verbose",
		"verbose":  "quiet",
	}
}

// readCommands reads commands from the standard input, one a line, until quit or the end
// of the input. The exit code is that of the last command that failed.
func readCommands(call *tool.Call) error {
	terminal := call.Terminal(call.Stdin)
	in := bufio.NewScanner(call.Stdin)
	in.Buffer(nil, 1<<20)
	last, code := "", 0
	for {
		if terminal {
			if err := call.WriteOut([]byte("scontrol: ")); err != nil {
				return err
			}
			if err := call.Out.Flush(); err != nil {
				return err
			}
		}
		if call.Ctx.Err() != nil || !in.Scan() {
			break
		}
		line := strings.TrimSpace(in.Text())
		if line == "!!" {
			line = last
		}
		words, err := tool.ShellWords(line)
		if err == nil && len(words) == 0 {
			continue
		}
		last = line
		if err == nil && slices.Contains([]string{"quit", "exit"}, strings.ToLower(words[0])) {
			break
		}
		if err == nil {
			err = carryOutLine(call, words)
		}
		if ferr := call.Out.Flush(); ferr != nil {
			return ferr
		}
		if n := tool.Report(call.Env, err, call.Command.Name, call.Command.BadUsage); n != 0 {
			code = n
		}
	}
	if err := in.Err(); err != nil {
		return call.Errorf("reading the standard input: %v", err)
	}
	if code != 0 {
		return tool.ExitCode(code)
	}
	return nil
}

// carryOutLine carries one line of a conversation out. Options that stand in the line hold
// for it alone, a command that names an option for all after it.
func carryOutLine(call *tool.Call, words []string) error {
	if undo, ok := scontrolSwitches()[strings.ToLower(words[0])]; ok && len(words) == 1 {
		kept := opt.New()
		for _, option := range call.Command.AllOptions() {
			if value, has := call.Opts.Get(option.Long); has && option.Long != undo {
				kept.Put(option.Long, value.Text, value.Has, value.From)
			}
		}
		kept.Put(strings.ToLower(words[0]), "", false, opt.FromCommand)
		*call.Opts = *kept
		return nil
	}
	one := *call
	one.Opts = opt.New()
	for _, option := range call.Command.AllOptions() {
		if value, has := call.Opts.Get(option.Long); has {
			one.Opts.Put(option.Long, value.Text, value.Has, value.From)
		}
	}
	var err error
	one.Operands, err = call.Command.Set().Parse(words, one.Opts, opt.FromCommand)
	if err != nil || len(one.Operands) == 0 {
		return err
	}
	err = scontrolCommand(&one)
	call.Conn = one.Conn // a connection that it made serves the next line
	return err
}
