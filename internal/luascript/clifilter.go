package luascript

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	lua "github.com/yuin/gopher-lua"

	"github.com/musterhpc/muster/spec"
)

// The functions of cli_filter.lua.
const (
	FunctionDefaults   = "slurm_cli_setup_defaults"
	FunctionPreSubmit  = "slurm_cli_pre_submit"
	FunctionPostSubmit = "slurm_cli_post_submit"
)

// FilterFunctions are all of them; a script defines one at least.
func FilterFunctions() []string {
	return []string{FunctionDefaults, FunctionPreSubmit, FunctionPostSubmit}
}

// Options are the options of a command, by their long names.
type Options interface {
	// Get gives an option's value, "set" for one without, and whether it was given.
	Get(name string) (value string, given bool)
	// Set gives an option as if it had been typed; "" is a value, and an unknown name an error.
	Set(name, value string) error
	// Drop takes an option away.
	Drop(name string) error
	// Given are all that were given.
	Given() []string
}

// Filter is a cli_filter.lua that was loaded into a command.
type Filter struct {
	script  *script
	command string
	version string
	argv    []string
	current Options // of the present call
}

// filterTime bounds one call of a filter; a user waits for it.
const filterTime = 10 * time.Second

// LoadFilter compiles cli_filter.lua and runs its top level. environ is what json_env tells.
func LoadFilter(
	source *spec.SiteScript,
	command, version string,
	argv, environ []string,
) (*Filter, error) {
	filter := &Filter{command: command, version: version, argv: argv}
	add := func(s *script) {
		table, _ := s.state.GetGlobal("slurm").(*lua.LTable)
		table.RawSetString("json_env", s.state.NewFunction(func(l *lua.LState) int {
			l.Push(lua.LString(jsonEnvironment(environ)))
			return 1
		}))
		table.RawSetString("json_cli_options", s.state.NewFunction(func(l *lua.LState) int {
			l.Push(lua.LString(filter.jsonOptions()))
			return 1
		}))
	}
	loaded, err := loadScript(source, add, Limits{Time: filterTime})
	if err != nil {
		return nil, err
	}
	filter.script = loaded
	return filter, nil
}

// Apply lets the script set defaults for options that were not given, and then see and change
// all of a component's. ok is false where the script ends the command.
func (f *Filter) Apply(options Options, component int) (ok bool, said []Line, err error) {
	if fn := f.script.findFunction(FunctionDefaults); fn != nil {
		code, err := f.run(fn, FunctionDefaults, f.table(&defaults{Options: options}), lua.LFalse)
		if err != nil || code != 0 {
			return false, f.script.takeSaid(), err
		}
	}
	if fn := f.script.findFunction(FunctionPreSubmit); fn != nil {
		code, err := f.run(fn, FunctionPreSubmit, f.table(options), lua.LNumber(component))
		if err != nil || code != 0 {
			return false, f.script.takeSaid(), err
		}
	}
	return true, f.script.takeSaid(), nil
}

// Submitted tells the script that the job, or the step, is accepted.
func (f *Filter) Submitted(component int, job, step uint32) ([]Line, error) {
	fn := f.script.findFunction(FunctionPostSubmit)
	if fn == nil {
		return nil, nil
	}
	_, err := f.run(fn, FunctionPostSubmit, lua.LNumber(component), lua.LNumber(job), lua.LNumber(step))
	return f.script.takeSaid(), err
}

// BatchStep is the step of a batch script in post_submit.
const BatchStep = 0xfffffffb

func (f *Filter) run(fn lua.LValue, name string, args ...lua.LValue) (int64, error) {
	result, err := f.script.callFunction(context.Background(), fn, args...)
	if err != nil {
		return -1, err
	}
	switch result := result.(type) {
	case *lua.LNilType:
		return 0, nil
	case lua.LNumber:
		return int64(result), nil
	}
	return -1, fmt.Errorf("%w: %s: %s returned a %s, expected slurm.SUCCESS or slurm.ERROR",
		ErrScript, f.script.path, name, result.Type())
}

// defaults sets only what was not given.
type defaults struct{ Options }

// Set implements Options.
func (d *defaults) Set(name, value string) error {
	if _, given := d.Get(name); given {
		return nil
	}
	return d.Options.Set(name, value)
}

// Drop implements Options: a default that is nil is none.
func (d *defaults) Drop(string) error { return nil }

// table makes the Lua table of the options. A name may have _ for -, which a field of a table
// cannot have without quotes.
func (f *Filter) table(options Options) *lua.LTable {
	f.current = options
	state := f.script.state
	meta := state.NewTable()
	meta.RawSetString("__index", state.NewFunction(func(l *lua.LState) int {
		switch name := l.CheckString(2); name {
		case "type":
			l.Push(lua.LString(f.command))
		case "version":
			l.Push(lua.LString(f.version))
		case "argv":
			l.Push(listTable(l, f.argv))
		default:
			value, given := options.Get(optionName(name))
			if !given {
				l.Push(lua.LNil)
				return 1
			}
			l.Push(lua.LString(value))
		}
		return 1
	}))
	meta.RawSetString("__newindex", state.NewFunction(func(l *lua.LState) int {
		name := optionName(l.CheckString(2))
		value := l.Get(3)
		if value == lua.LNil || value == lua.LFalse {
			if err := options.Drop(name); err != nil {
				l.RaiseError("options[%q]: %s", name, err)
			}
			return 0
		}
		if value == lua.LTrue {
			value = lua.LString("")
		}
		text, err := textOf(value)
		if err == nil {
			err = options.Set(name, text)
		}
		if err != nil {
			l.RaiseError("options[%q]: %s", name, err)
		}
		return 0
	}))
	out := state.NewTable()
	out.Metatable = meta
	return out
}

func optionName(name string) string { return strings.ReplaceAll(name, "_", "-") }

// jsonOptions are the options of the present call that were given.
func (f *Filter) jsonOptions() string {
	out := map[string]string{}
	if f.current != nil {
		for _, name := range f.current.Given() {
			out[name], _ = f.current.Get(name)
		}
	}
	return jsonText(out)
}

func jsonText(values map[string]string) string {
	text, err := json.Marshal(values)
	if err != nil {
		return "{}"
	}
	return string(text)
}

func jsonEnvironment(environ []string) string {
	out := map[string]string{}
	for _, kv := range environ {
		if name, value, ok := strings.Cut(kv, "="); ok {
			out[name] = value
		}
	}
	return jsonText(out)
}
