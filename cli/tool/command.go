package tool

import (
	"strings"

	"github.com/musterhpc/muster/cli/opt"
)

// Command is one row of the table: all that is said about a command is said
// here, once.
type Command struct {
	Name    string
	Slurm   bool          // it answers under its own name too, through a symlink
	Summary string        // one line without full stop
	Usage   []string      // what follows the name
	About   string        // paragraphs
	More    func() string // further paragraphs, made only when they are printed
	Options []opt.Option
	Mixed   bool // options may follow arguments
	// PlainAfter are verbs whose arguments are never options: setdebugflags -Backfill.
	PlainAfter []string
	Env        []Variable
	Verbs      []Verb // of a command that takes verbs
	// Fields are the columns that can be asked for: names, and letters as %i.
	Fields func() []string
	// Entities are what the verb show knows; with "update KEY" the keys of nodes that
	// update knows.
	Entities func() []string
	Example  []Example
	Exits    []Variable // exit codes other than 0 and 1
	// badUsage is the exit code for a command line that is not understood; 0 = 1.
	BadUsage int
	// ownPrecedence: the command applies the input variables itself.
	OwnPrecedence bool
	// ownVerbose: -v says something of the command's own; -vv also what is asked.
	OwnVerbose bool
	Run        func(c *Call) error
	// program hands the command line, as it is, to a program that lies beside
	// this one: what needs a server's libraries is not linked in here.
	Program []string
	// ProgramVerbs are first words with which such a program gets the command line.
	ProgramVerbs map[string][]string
}

// Variable names something and says what it is for.
type Variable struct{ Name, Help string }

// Verb is a word that a command takes, with its arguments.
type Verb struct{ Name, Args, Help string }

// Example is a command line and what it does.
type Example struct{ Line, What string }

// Entry names a command before its table is made: only the one that runs is.
type Entry struct {
	Name string
	Make func() *Command
}

// Set is the command's options with those that every command has.
func (c *Command) Set() *opt.Set {
	return &opt.Set{Command: c.Called(), Options: c.AllOptions(), Mixed: c.Mixed, PlainAfter: c.PlainAfter}
}

// AllOptions adds help, usage, version and verbose where the table does not
// say something of its own about them.
func (c *Command) AllOptions() []opt.Option {
	options := append(make([]opt.Option, 0, len(c.Options)+4), c.Options...)
	taken := func(letter, long string) bool {
		for _, option := range c.Options {
			if (letter != "" && option.Short == letter) || option.Long == long {
				return true
			}
		}
		return false
	}
	add := func(option opt.Option) {
		if taken("", option.Long) {
			return
		}
		if taken(option.Short, "") {
			option.Short = ""
		}
		options = append(options, option)
	}
	add(opt.Option{Long: "help", Short: "h", Help: "print this help"})
	add(opt.Option{Long: "usage", Help: "print a short form of this help"})
	add(
		opt.Option{
			Long:  "verbose",
			Short: "v",
			Help:  "print requests to the controller on standard error",
		},
	)
	add(opt.Option{Long: "version", Short: "V", Help: "print the version"})
	return options
}

// Paragraphs are what is said about the command.
func (c *Command) Paragraphs() []string {
	text := c.About
	if c.More != nil {
		text += "\n\n" + c.More()
	}
	var out []string
	for _, p := range strings.Split(text, "\n\n") {
		p = strings.Join(strings.Fields(p), " ")
		if p != "" {
			out = append(out, p)
		}
	}
	return out
}

// FirstVerb finds a verb by its name or a beginning of it that no other has.
func (c *Command) FirstVerb(word string, least int) string {
	found := ""
	for _, verb := range c.Verbs {
		if strings.EqualFold(verb.Name, word) {
			return verb.Name
		}
		if len(word) >= least && len(word) < len(verb.Name) &&
			strings.EqualFold(verb.Name[:len(word)], word) {
			if found != "" && found != verb.Name {
				return ""
			}
			found = verb.Name
		}
	}
	return found
}
