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

// siteFilter is the site's cli_filter.lua in this command; nil where there is none.
type siteFilter struct {
	call   *tool.Call
	script *luascript.Filter
}

// loadFilter asks the controller for the script, so that one place has it for all hosts.
func loadFilter(call *tool.Call) (*siteFilter, error) {
	if call.Relay != nil {
		return nil, nil // where there is a script, the command runs where it was typed
	}
	rep, err := askFilter(call)
	var refused *rpcstatus.Error
	switch {
	case errors.As(err, &refused) && refused.Wire == rpcstatus.Unimplemented:
		return nil, nil // an older controller
	case err != nil:
		return nil, submitFailed(call, err, false)
	case rep.GetText() == "":
		return nil, nil
	}
	source := &spec.SiteScript{Path: rep.GetPath(), Text: rep.GetText()}
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

// askFilter asks the controller for the script. A step in a job waits for a controller
// that is away, as it would wait to be created.
func askFilter(call *tool.Call) (*apiv1.GetCliFilterReply, error) {
	rep := &apiv1.GetCliFilterReply{}
	if call.Command.Name != "srun" || stepJob(call) == "" {
		return rep, call.RPC(tool.MethodGetCliFilter, &apiv1.GetCliFilterRequest{}, rep)
	}
	wait := firstWait / 10
	for {
		err := askFilterAnew(call, rep)
		if err == nil || !fetch.ControllerGone(err) || call.Ctx.Err() != nil {
			return rep, err
		}
		call.Pause(call.Ctx, wait)
		wait = min(2*wait, longWait)
	}
}

// filterPatience is how long one question may take; the next one has a new connection.
const filterPatience = 10 * time.Second

// askFilterAnew asks over a connection of its own.
func askFilterAnew(call *tool.Call, rep *apiv1.GetCliFilterReply) error {
	ctx, cancel := context.WithTimeout(call.Ctx, filterPatience)
	defer cancel()
	conn, err := call.Dial(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // what was asked is answered
	return conn.Call(ctx, tool.MethodGetCliFilter, &apiv1.GetCliFilterRequest{}, rep)
}

// apply shows the options of a component to the script, which may change them or end the
// command.
func (f *siteFilter) apply(values *opt.Values, component int) error {
	if f == nil {
		return nil
	}
	ok, said, err := f.script.Apply(&filterOptions{f.call.Command, values}, component)
	f.print(said)
	switch {
	case err != nil:
		return f.call.Errorf("cli_filter: %v", err)
	case !ok:
		return f.call.Errorf("cli_filter plugin terminated with error")
	}
	return nil
}

// submitted tells the script that a job, or a step, was accepted.
func (f *siteFilter) submitted(job, step uint32) {
	if f == nil {
		return
	}
	said, err := f.script.Submitted(0, job, step)
	f.print(said)
	if err != nil { // what was accepted stays so
		fmt.Fprintf(f.call.Stderr, "%s: error: cli_filter: %v\n", f.call.Command.Name, err)
	}
}

// print writes what the script says: errors and what it tells the user always, the rest with -v.
func (f *siteFilter) print(said []luascript.Line) {
	for _, line := range said {
		mark := ""
		switch {
		case line.Level == luascript.LevelError:
			mark = "error: "
		case line.Level == luascript.LevelDebug && !f.call.Opts.On("verbose"):
			continue
		}
		for text := range strings.Lines(line.Text) {
			fmt.Fprintf(f.call.Stderr, "%s: %s%s\n", f.call.Command.Name, mark, strings.TrimRight(text, "\n"))
		}
	}
}

// filterOptions are the options of a command for the script.
type filterOptions struct {
	command *tool.Command
	values  *opt.Values
}

// find finds an option by its whole name, or the other name of the same one.
func (o *filterOptions) find(name string) *opt.Option {
	all := o.command.AllOptions()
	at := slices.IndexFunc(all, func(x opt.Option) bool { return x.Long == name || x.Also == name })
	if at < 0 {
		return nil
	}
	return &all[at]
}

// Get implements luascript.Options.
func (o *filterOptions) Get(name string) (value string, given bool) {
	option := o.find(name)
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
	option := o.find(name)
	switch {
	case option == nil:
		return fmt.Errorf("%s has no option --%s", o.command.Name, name)
	case option.Refused != "":
		return fmt.Errorf("--%s is not supported: %s", name, option.Refused)
	case option.Arg != "" && !option.Maybe && value == "":
		return fmt.Errorf("--%s needs a value", name)
	}
	has := option.Arg != "" && value != "" && !(option.Maybe && value == "set")
	o.values.Put(option.Long, map[bool]string{true: value}[has], has, opt.FromCommand)
	return nil
}

// Drop implements luascript.Options.
func (o *filterOptions) Drop(name string) error {
	option := o.find(name)
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
