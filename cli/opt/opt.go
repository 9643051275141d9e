// Package opt holds options as data: a table of them is what parses a command
// line, and what help texts, manual pages and completion are printed from.
//
// Parsing is pflag's; what GNU's getopt has besides (abbreviated long names,
// optional arguments glued to a short option, its error texts) is done around it.
package opt

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Option is one row of a command's table.
type Option struct {
	Long  string // without dashes; every option has one
	Short string // one letter, or empty
	Also  string // other spellings of the long name, separated by blanks
	Arg   string // name of the argument, as help prints it; empty = a switch
	Maybe bool   // the argument may be left out: --exclusive, --exclusive=user
	Help  string // one sentence without full stop
	Env   string // input variable that gives the option when the command line does not
	// Refused says why this release cannot do it: the option is known and
	// refused by name, never accepted and ignored.
	Refused string
	// Always says why the option changes nothing: it asks for what holds anyway.
	Always string
	// Warn is said each time the option is given: it is kept with the job, but
	// does not do all that Slurm's does.
	Warn string
}

// Set is the options of one command.
type Set struct {
	Command string // the name in error texts
	Options []Option
	// Mixed allows options after arguments; otherwise everything from the first
	// argument on belongs to somebody else, as a script's arguments to sbatch.
	Mixed bool
	// PlainAfter are arguments, in any case, behind which nothing is an option.
	PlainAfter []string
}

// Source ranks where a value came from; a higher one wins.
type Source int

// The sources, weakest first.
const (
	FromScript Source = iota + 1
	FromEnv
	FromCommand
)

// Value is an option that was given.
type Value struct {
	Text  string
	Has   bool // an argument came with it
	From  Source
	Order int // grows with every option that was applied
	Count int // how often it was given by this source
}

// Values holds what was given, by long name. Make it with New.
type Values struct {
	given map[string]Value
	order int
}

// New makes an empty collection.
func New() *Values { return &Values{given: map[string]Value{}} }

// Put records an option; a later one replaces an earlier one of the same name,
// so sources are put weakest first.
func (v *Values) Put(long, text string, has bool, from Source) {
	v.order++
	count := 1
	if old, ok := v.given[long]; ok && old.From == from {
		count += old.Count
	}
	v.given[long] = Value{Text: text, Has: has, From: from, Order: v.order, Count: count}
}

// Drop takes an option away.
func (v *Values) Drop(long string) { delete(v.given, long) }

// Get returns an option and whether it was given.
func (v *Values) Get(long string) (Value, bool) {
	x, ok := v.given[long]
	return x, ok
}

// On tells whether an option was given.
func (v *Values) On(long string) bool {
	_, ok := v.given[long]
	return ok
}

// Text is the argument of an option, empty when it was not given.
func (v *Values) Text(long string) string { return v.given[long].Text }

// List is the argument split at commas, empty parts left out.
func (v *Values) List(long string) []string {
	return strings.FieldsFunc(v.given[long].Text, func(r rune) bool { return r == ',' })
}

// UsageError is a command line that cannot be understood.
type UsageError struct {
	Command string
	Text    string
}

// Error is the first line; the caller adds where help is.
func (e *UsageError) Error() string { return e.Command + ": " + e.Text }

// RefusedError is an option that this release cannot do.
type RefusedError struct {
	Option Option
	By     string // how it was given: --bb, SBATCH_PROFILE
}

// Error names the option and says why.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("%s is not supported in this release: %s", e.By, e.Option.Refused)
}

// bare marks an option that came without an argument; no user can type it.
const bare = "\x00"

// value is the pflag.Value of one option.
type value struct {
	opt  *Option
	into *Values
	from Source
}

var (
	_ pflag.Value = (*value)(nil)

	errNoArgument = errors.New("takes no argument")
)

// String implements pflag.Value.
func (v *value) String() string { return "" }

// Type implements pflag.Value.
func (v *value) Type() string { return v.opt.Arg }

// Set implements pflag.Value.
func (v *value) Set(text string) error {
	switch {
	case v.opt.Arg == "" && text != bare:
		return errNoArgument
	case v.opt.Refused != "":
		return &RefusedError{Option: *v.opt, By: "--" + v.opt.Long}
	case text == bare:
		v.into.Put(v.opt.Long, "", false, v.from)
	default:
		v.into.Put(v.opt.Long, text, true, v.from)
	}
	return nil
}

// Parse reads arguments into the values and returns those that are no options.
// Errors are *UsageError or *RefusedError.
func (s *Set) Parse(args []string, into *Values, from Source) ([]string, error) {
	var plain []string
	if end := s.endOfOptions(args); end < len(args) {
		args, plain = args[:end], args[end:]
	}
	args, err := s.expand(args)
	if err != nil {
		return nil, err
	}
	flags := pflag.NewFlagSet(s.Command, pflag.ContinueOnError)
	flags.SetInterspersed(s.Mixed)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	for i := range s.Options {
		option := &s.Options[i]
		if !option.occurs(args) {
			continue // pflag spends more on a flag than a short command has time
		}
		f := flags.VarPF(
			&value{opt: option, into: into, from: from},
			option.Long,
			option.Short,
			option.Help,
		)
		if option.Arg == "" || option.Maybe {
			f.NoOptDefVal = bare
		}
	}
	if err := flags.Parse(args); err != nil {
		return nil, s.explain(err)
	}
	return append(flags.Args(), plain...), nil
}

// endOfOptions is the index behind the first argument that is one of PlainAfter.
func (s *Set) endOfOptions(args []string) int {
	for i, arg := range args {
		for _, word := range s.PlainAfter {
			if strings.EqualFold(arg, word) {
				return i + 1
			}
		}
	}
	return len(args)
}

// occurs tells whether some argument could be the option; all names are
// written out in full.
func (o *Option) occurs(args []string) bool {
	for _, a := range args {
		switch {
		case len(a) < 2 || a[0] != '-':
		case a[1] != '-':
			if o.Short != "" && strings.Contains(a, o.Short) {
				return true
			}
		case strings.HasPrefix(a[2:], o.Long) && (len(a) == 2+len(o.Long) || a[2+len(o.Long)] == '='):
			return true
		}
	}
	return false
}

// explain words pflag's errors as getopt does.
func (s *Set) explain(err error) error {
	var (
		unknown *pflag.NotExistError
		missing *pflag.ValueRequiredError
		invalid *pflag.InvalidValueError
		refused *RefusedError
		text    string
	)
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.As(err, &unknown):
		text = fmt.Sprintf("unrecognized option '--%s'", unknown.GetSpecifiedName())
		if unknown.GetSpecifiedShortnames() != "" {
			text = fmt.Sprintf("invalid option -- '%s'", unknown.GetSpecifiedName())
		}
	case errors.As(err, &missing):
		text = fmt.Sprintf("option '--%s' requires an argument", missing.GetSpecifiedName())
		if missing.GetSpecifiedShortnames() != "" {
			text = fmt.Sprintf("option requires an argument -- '%s'", missing.GetSpecifiedName())
		}
	case errors.As(err, &invalid):
		text = fmt.Sprintf("option '--%s' doesn't allow an argument", invalid.GetFlag().Name)
	default:
		text = err.Error()
	}
	return &UsageError{Command: s.Command, Text: text}
}

// Find returns the option of a long name, which may be shortened as far as it
// stays the only one that begins so.
func (s *Set) Find(name string) (*Option, error) {
	var found *Option
	var also []string
	for i := range s.Options {
		option := &s.Options[i]
		if option.Long == name || slices.Contains(strings.Fields(option.Also), name) {
			return option, nil
		}
		if name != "" && strings.HasPrefix(option.Long, name) {
			found = option
			also = append(also, "'--"+option.Long+"'")
		}
	}
	if len(also) > 1 {
		return nil, &UsageError{Command: s.Command,
			Text: fmt.Sprintf(
				"option '--%s' is ambiguous; possibilities: %s",
				name,
				strings.Join(also, " "),
			)}
	}
	return found, nil
}

func (s *Set) short(c byte) *Option {
	for i := range s.Options {
		if option := &s.Options[i]; len(option.Short) == 1 && option.Short[0] == c {
			return option
		}
	}
	return nil
}

// expand writes abbreviated names out and glued optional arguments in the long
// form, which is what pflag understands.
func (s *Set) expand(args []string) ([]string, error) {
	out := make([]string, 0, len(args)+1)
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case a == "--" || (!s.Mixed && (len(a) < 2 || a[0] != '-')):
			return append(out, args[i:]...), nil
		case strings.HasPrefix(a, "--"):
			name, val, has := strings.Cut(a[2:], "=")
			option, err := s.Find(name)
			if err != nil {
				return nil, err
			}
			if option == nil {
				out = append(out, a)
				continue
			}
			a = "--" + option.Long
			if has {
				a += "=" + val
			}
			out = append(out, a)
			if option.Arg != "" && !option.Maybe && !has && i+1 < len(args) {
				i++
				out = append(out, args[i])
			}
		case len(a) > 1 && a[0] == '-':
			tokens, takes := s.cluster(a)
			out = append(out, tokens...)
			if takes && i+1 < len(args) {
				i++
				out = append(out, args[i])
			}
		default:
			out = append(out, a)
		}
	}
	return out, nil
}

// cluster reads a group of short options; takes tells that the next argument
// belongs to the last of them.
func (s *Set) cluster(a string) (tokens []string, takes bool) {
	for k := 1; k < len(a); k++ {
		option := s.short(a[k])
		switch {
		case option == nil:
			return []string{a}, false
		case option.Maybe:
			if k > 1 {
				tokens = append(tokens, a[:k])
			}
			long := "--" + option.Long
			if k+1 < len(a) {
				long += "=" + a[k+1:]
			}
			return append(tokens, long), false
		case option.Arg != "":
			return []string{a}, k+1 == len(a)
		}
	}
	return []string{a}, false
}

// FromEnviron puts the options whose input variable is set. A switch is given
// by any value, as Slurm's are, save where off says that the value means no.
func (s *Set) FromEnviron(
	lookup func(string) (string, bool),
	off func(option, value string) bool,
	into *Values,
) error {
	for i := range s.Options {
		option := &s.Options[i]
		if option.Env == "" {
			continue
		}
		for _, name := range strings.Fields(option.Env) {
			text, ok := lookup(name)
			if !ok || ((option.Arg == "" || option.Maybe) && off(option.Long, text)) {
				continue
			}
			if option.Refused != "" {
				return &RefusedError{Option: *option, By: name}
			}
			into.Put(option.Long, text, option.Arg != "" && text != "", FromEnv)
			break
		}
	}
	return nil
}
