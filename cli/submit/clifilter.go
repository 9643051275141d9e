package submit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/fetch"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/internal/luascript"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
	"github.com/musterhpc/muster/spec"
)

// siteFilter runs the site's cli_filter.lua on the options of this command. It is nil, and changes
// nothing, where the site has no such script.
type siteFilter struct {
	call   *tool.Call
	script *luascript.Filter
}

// loadFilter fetches the script from the controller and loads it. The controller has the only copy,
// so all hosts run the same one.
func loadFilter(call *tool.Call) (*siteFilter, error) {
	if call.Relay != nil {
		// The controller runs no command of a site with a script: it leaves it to muster on the host
		// where the command was typed.
		return nil, nil
	}
	reply, err := fetchFilter(call)
	var refused *rpcstatus.Error
	switch {
	case errors.As(err, &refused) && refused.Wire == rpcstatus.Unimplemented:
		return nil, nil // an older controller
	case err != nil:
		return nil, submitFailed(call, err, false)
	case reply.GetText() == "":
		return nil, nil
	}
	source := &spec.SiteScript{Path: reply.GetPath(), Text: reply.GetText()}
	script, err := luascript.LoadFilter(
		source,
		call.Command.Name,
		call.Version,
		call.Operands,
		call.Environ,
	)
	if err != nil {
		return nil, call.Errorf("cli_filter: %v", err)
	}
	return &siteFilter{call: call, script: script}, nil
}

// fetchFilter gets the script from the controller. An srun in a job waits for a controller that is
// away, because the creation of its step would wait as well.
func fetchFilter(call *tool.Call) (*apiv1.GetCliFilterReply, error) {
	reply := &apiv1.GetCliFilterReply{}
	if call.Command.Name != "srun" || stepJob(call) == "" {
		return reply, call.RPC(tool.MethodGetCliFilter, &apiv1.GetCliFilterRequest{}, reply)
	}
	wait := firstWait / 10
	for {
		err := fetchFilterAnew(call, reply)
		if err == nil || !fetch.ControllerGone(err) || call.Ctx.Err() != nil {
			return reply, err
		}
		call.Pause(call.Ctx, wait)
		wait = min(2*wait, longWait)
	}
}

// filterTimeout limits one attempt to get the script.
const filterTimeout = 10 * time.Second

// fetchFilterAnew gets the script over a connection of its own, because that of the call may lead
// to a controller that is gone.
func fetchFilterAnew(call *tool.Call, reply *apiv1.GetCliFilterReply) error {
	ctx, cancel := context.WithTimeout(call.Ctx, filterTimeout)
	defer cancel()
	conn, err := call.Dial(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // by then the answer has been read
	return conn.Call(ctx, tool.MethodGetCliFilter, &apiv1.GetCliFilterRequest{}, reply)
}

// applyScript runs the script on the options of one component of the job. The script may change them or
// refuse the command.
func (f *siteFilter) applyScript(values *opt.Values, component int) error {
	if f == nil {
		return nil
	}
	ok, said, err := f.script.Apply(&filterOptions{f.call.Command, values}, component)
	f.printLines(said)
	switch {
	case err != nil:
		return f.call.Errorf("cli_filter: %v", err)
	case !ok:
		return f.call.Errorf("cli_filter plugin terminated with error")
	}
	return nil
}

// tellSubmitted tells the script that a job, or a step, was accepted.
func (f *siteFilter) tellSubmitted(job, step uint32) {
	if f == nil {
		return
	}
	said, err := f.script.Submitted(0, job, step)
	f.printLines(said)
	if err != nil { // only a warning: the job was accepted
		fmt.Fprintf(f.call.Stderr, "%s: error: cli_filter: %v\n", f.call.Command.Name, err)
	}
}

// printLines writes the script's messages to standard error, those of level debug only with --verbose.
func (f *siteFilter) printLines(said []luascript.Line) {
	for _, line := range said {
		prefix := f.call.Command.Name + ": "
		switch {
		case line.Level == luascript.LevelError:
			prefix += "error: "
		case line.Level == luascript.LevelDebug && !f.call.Opts.On("verbose"):
			continue
		}
		for text := range strings.Lines(line.Text) {
			fmt.Fprintln(f.call.Stderr, prefix+strings.TrimRight(text, "\n"))
		}
	}
}

// filterOptions gives the script access to the options of a command. It implements
// luascript.Options.
type filterOptions struct {
	command *tool.Command
	values  *opt.Values
}

// findOption finds an option by its long name or by its alias; nil if there is none.
func (o *filterOptions) findOption(name string) *opt.Option {
	all := o.command.AllOptions()
	at := slices.IndexFunc(all, func(x opt.Option) bool { return x.Long == name || x.Also == name })
	if at < 0 {
		return nil
	}
	return &all[at]
}

// Get implements luascript.Options.
func (o *filterOptions) Get(name string) (value string, given bool) {
	option := o.findOption(name)
	if option == nil {
		return "", false
	}
	got, given := o.values.Get(option.Long)
	if given && !got.Has {
		return "set", true
	}
	return got.Text, given
}

// Set implements luascript.Options.
func (o *filterOptions) Set(name, value string) error {
	option := o.findOption(name)
	switch {
	case option == nil:
		return fmt.Errorf("%s has no option --%s", o.command.Name, name)
	case option.Refused != "":
		return fmt.Errorf("--%s is not supported: %s", name, option.Refused)
	case option.Arg != "" && !option.Maybe && value == "":
		return fmt.Errorf("--%s needs a value", name)
	}
	// Get answers "set" for an option without an argument, and a script may write that back.
	isSwitch := option.Arg == "" || value == "" || (option.Maybe && value == "set")
	if isSwitch {
		value = ""
	}
	o.values.Put(option.Long, value, !isSwitch, opt.FromCommand)
	return nil
}

// Drop implements luascript.Options.
func (o *filterOptions) Drop(name string) error {
	option := o.findOption(name)
	if option == nil {
		return fmt.Errorf("%s has no option --%s", o.command.Name, name)
	}
	o.values.Drop(option.Long)
	return nil
}

// Given implements luascript.Options.
func (o *filterOptions) Given() []string {
	var out []string
	for _, option := range o.command.AllOptions() {
		if o.values.On(option.Long) {
			out = append(out, option.Long)
		}
	}
	return out
}
