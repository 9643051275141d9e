package luascript

import (
	"context"
	"errors"
	"fmt"
	"runtime/metrics"
	"strings"
	"time"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/ast"
	"github.com/yuin/gopher-lua/parse"

	"github.com/musterhpc/muster/spec"
)

// Limits bound one call of a script.
type Limits struct {
	Time   time.Duration
	Memory uint64 // bytes of the whole process; 0 = not watched
}

// DefaultLimits are those of job_submit.lua. A script of a site needs microseconds and
// kilobytes.
func DefaultLimits() Limits { return Limits{Time: 5 * time.Second, Memory: 192 << 20} }

// Depth of calls and of values that a script can use.
const (
	maxCalls    = 200
	minRegistry = 1 << 10
	maxRegistry = 1 << 18
)

// ErrScript tells that a script failed; the text has its file and line.
var ErrScript = errors.New("the script failed")

// check compiles a script and runs its top level, as a load does. functions are those of which
// it must define at least one.
func check(source *spec.SiteScript, limits Limits, functions ...string) error {
	loaded, err := loadScript(source, nil, limits)
	if err != nil {
		return err
	}
	defer loaded.close()
	for _, name := range functions {
		if loaded.findFunction(name) != nil {
			return nil
		}
	}
	return fmt.Errorf("%w: %s: it defines none of the functions %s",
		ErrScript, source.Path, strings.Join(functions, ", "))
}

// script is a script that was loaded, with its globals. One call runs at a time.
type script struct {
	path   string
	state  *lua.LState
	limits Limits
	// said is what it logged and told the user in the present call.
	said []Line
}

// loadScript runs the top level of a script. prepare, if set, adds globals before.
func loadScript(source *spec.SiteScript, prepare func(*script), limits Limits) (*script, error) {
	chunk, err := parse.Parse(strings.NewReader(source.Text), source.Path)
	if err != nil {
		return nil, syntaxError(source.Path, err)
	}
	proto, err := lua.Compile(chunk, source.Path)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %v", ErrScript, source.Path, err)
	}
	loaded := &script{
		path:   source.Path,
		limits: limits,
		state: lua.NewState(lua.Options{
			SkipOpenLibs:    true,
			CallStackSize:   maxCalls,
			RegistrySize:    minRegistry,
			RegistryMaxSize: maxRegistry,
		}),
	}
	loaded.openLibraries()
	loaded.addSlurm()
	if prepare != nil {
		prepare(loaded)
	}
	if _, err := loaded.callFunction(context.Background(), loaded.state.NewFunctionFromProto(proto)); err != nil {
		loaded.close()
		return nil, err
	}
	return loaded, nil
}

// syntaxError says where a script cannot be read: FILE:LINE.
func syntaxError(path string, err error) error {
	var bad *parse.Error
	if !errors.As(err, &bad) {
		return fmt.Errorf("%w: %s: %v", ErrScript, path, err)
	}
	if bad.Pos.Line == parse.EOF {
		return fmt.Errorf("%w: %s: at its end: %s", ErrScript, path, bad.Message)
	}
	return fmt.Errorf("%w: %s:%d: near %q: %s",
		ErrScript, path, position(bad.Pos), bad.Token, bad.Message)
}

func position(at ast.Position) int { return at.Line }

// openLibraries gives the script the language and what computes, and nothing that reaches
// outside. What Lua has beyond that fails with a reason, because a script that finds nil there
// goes on in another way than its author tested.
func (s *script) openLibraries() {
	for _, open := range [...]struct {
		name string
		fn   lua.LGFunction
	}{
		{lua.BaseLibName, lua.OpenBase},
		{lua.TabLibName, lua.OpenTable},
		{lua.StringLibName, lua.OpenString},
		{lua.MathLibName, lua.OpenMath},
		{lua.CoroutineLibName, lua.OpenCoroutine},
		{lua.OsLibName, lua.OpenOs},
	} {
		s.state.Push(s.state.NewFunction(open.fn))
		s.state.Push(lua.LString(open.name))
		s.state.Call(1, 0)
	}
	clock := s.state.NewTable()
	all, _ := s.state.GetGlobal(lua.OsLibName).(*lua.LTable)
	for _, name := range [...]string{"time", "date", "clock", "difftime"} {
		clock.RawSetString(name, all.RawGetString(name))
	}
	s.state.SetGlobal(lua.OsLibName, s.makeStrict(clock, "os"))
	s.state.SetGlobal("io", s.makeStrict(s.state.NewTable(), "io"))
	for _, name := range [...]string{
		"dofile", "loadfile", "require", "module", "collectgarbage", "newproxy", "_printregs",
	} {
		s.state.SetGlobal(name, s.state.NewFunction(func(l *lua.LState) int {
			l.RaiseError("%s is not available to scripts of the site", name)
			return 0
		}))
	}
	s.state.SetGlobal("print", s.state.NewFunction(func(l *lua.LState) int {
		words := make([]string, l.GetTop())
		for i := range words {
			words[i] = lua.LVAsString(l.ToStringMeta(l.Get(i + 1)))
		}
		s.addLine(LevelInfo, strings.Join(words, "\t"))
		return 0
	}))
}

// makeStrict makes the absent fields of a table an error that names them.
func (s *script) makeStrict(table *lua.LTable, name string) *lua.LTable {
	meta := s.state.NewTable()
	meta.RawSetString("__index", s.state.NewFunction(func(l *lua.LState) int {
		l.RaiseError("%s.%s is not available to scripts of the site", name, l.Get(2).String())
		return 0
	}))
	table.Metatable = meta
	return table
}

func (s *script) close() { s.state.Close() }

// findFunction finds a function of the script; nil where there is none.
func (s *script) findFunction(name string) lua.LValue {
	fn, ok := s.state.GetGlobal(name).(*lua.LFunction)
	if !ok {
		return nil
	}
	return fn
}

// callFunction runs a function within the limits and returns its first value.
func (s *script) callFunction(
	ctx context.Context,
	fn lua.LValue,
	args ...lua.LValue,
) (result lua.LValue, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.limits.Time)
	defer cancel()
	s.state.SetContext(&watched{Context: ctx, limits: s.limits})
	defer s.state.RemoveContext()
	defer func() {
		if broken := recover(); broken != nil {
			err = fmt.Errorf("%w: %s: %v", ErrScript, s.path, broken)
		}
	}()
	if err := s.state.CallByParam(lua.P{Fn: fn, NRet: 1, Protect: true}, args...); err != nil {
		s.state.SetTop(0)
		var api *lua.ApiError
		if errors.As(err, &api) && api.Object != nil {
			return nil, fmt.Errorf("%w: %s", ErrScript, strings.TrimSpace(api.Object.String()))
		}
		return nil, fmt.Errorf("%w: %s: %w", ErrScript, s.path, err)
	}
	result = s.state.Get(-1)
	s.state.Pop(1)
	return result, nil
}

// watched is the context of a call. The interpreter asks it before each instruction, which
// is where the memory of the process is looked at too.
type watched struct {
	context.Context
	limits Limits
	turns  uint
	over   chan struct{} // closed, once too much is used; nil before
}

// turnsPerLook is how many instructions pass between two looks at the memory.
const turnsPerLook = 1 << 12

// Done implements context.Context.
func (w *watched) Done() <-chan struct{} {
	w.turns++
	if w.limits.Memory > 0 && w.turns%turnsPerLook == 0 {
		sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		metrics.Read(sample)
		if w.over == nil && sample[0].Value.Uint64() > w.limits.Memory {
			w.over = make(chan struct{})
			close(w.over)
		}
	}
	if w.over != nil {
		return w.over
	}
	return w.Context.Done()
}

// Err implements context.Context; its text is that of the script's error.
func (w *watched) Err() error {
	switch {
	case w.over != nil:
		return fmt.Errorf("it uses more than its %d MiB of memory", w.limits.Memory>>20)
	case w.Context.Err() != nil:
		return fmt.Errorf("it ran longer than its %v", w.limits.Time)
	}
	return nil
}
