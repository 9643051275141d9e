package cli

import (
	"strings"

	"github.com/musterhpc/muster/cli/opt"
)

// command is one row of the table: all that is said about a command is said
// here, once.
type command struct {
	name    string
	slurm   bool          // it answers under its own name too, through a symlink
	summary string        // one line without full stop
	usage   []string      // what follows the name
	about   string        // paragraphs
	more    func() string // further paragraphs, made only when they are printed
	options []opt.Option
	mixed   bool // options may follow arguments
	env     []variable
	verbs   []verb // of a command that takes verbs
	example []example
	exits   []variable // exit codes other than 0 and 1
	// badUsage is the exit code for a command line that is not understood; 0 = 1.
	badUsage int
	// ownPrecedence: the command applies the input variables itself.
	ownPrecedence bool
	// ownVerbose: -v says something of the command's own; -vv also what is asked.
	ownVerbose bool
	run        func(c *call) error
	// program hands the command line, as it is, to a program that lies beside
	// this one: what needs a server's libraries is not linked in here.
	program []string
}

// variable names something and says what it is for.
type variable struct{ name, help string }

// verb is a word that a command takes, with its arguments.
type verb struct{ name, args, help string }

// example is a command line and what it does.
type example struct{ line, what string }

// entry names a command before its table is made: only the one that runs is.
type entry struct {
	name string
	make func() *command
}

// find makes the command of a name; nil when there is none.
func find(name string) *command {
	for _, e := range commands() {
		if e.name == name {
			return e.make()
		}
	}
	return nil
}

// nearest is the command whose name differs least from what was typed.
func nearest(typed string) string {
	best, least := "", 3
	for _, e := range commands() {
		if d := distance(typed, e.name); d < least {
			best, least = e.name, d
		}
	}
	return best
}

// distance counts the letters to change, add or drop between two words.
func distance(a, b string) int {
	prev := make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := range len(a) {
		diagonal := prev[0]
		prev[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, prev[j+1] = prev[j+1], min(prev[j+1]+1, prev[j]+1, diagonal+cost)
		}
	}
	return prev[len(b)]
}

// set is the command's options with those that every command has.
func (c *command) set() *opt.Set {
	return &opt.Set{Command: c.called(), Options: c.allOptions(), Mixed: c.mixed}
}

// allOptions adds help, usage, version and verbose where the table does not
// say something of its own about them.
func (c *command) allOptions() []opt.Option {
	out := append(make([]opt.Option, 0, len(c.options)+4), c.options...)
	taken := func(letter, long string) bool {
		for _, o := range c.options {
			if (letter != "" && o.Short == letter) || o.Long == long {
				return true
			}
		}
		return false
	}
	add := func(o opt.Option) {
		if taken("", o.Long) {
			return
		}
		if taken(o.Short, "") {
			o.Short = ""
		}
		out = append(out, o)
	}
	add(opt.Option{Long: "help", Short: "h", Help: "print this text"})
	add(opt.Option{Long: "usage", Help: "print the short form of this text"})
	add(opt.Option{Long: "verbose", Short: "v", Help: "say on the standard error what is asked of the controller"})
	add(opt.Option{Long: "version", Short: "V", Help: "print the version"})
	return out
}

// paragraphs are what is said about the command.
func (c *command) paragraphs() []string {
	text := c.about
	if c.more != nil {
		text += "\n\n" + c.more()
	}
	var out []string
	for _, p := range strings.Split(text, "\n\n") {
		if p = strings.Join(strings.Fields(p), " "); p != "" {
			out = append(out, p)
		}
	}
	return out
}

// firstVerb finds a verb by its name or a beginning of it that no other has.
func (c *command) firstVerb(word string, least int) string {
	found := ""
	for _, v := range c.verbs {
		if strings.EqualFold(v.name, word) {
			return v.name
		}
		if len(word) >= least && len(word) < len(v.name) && strings.EqualFold(v.name[:len(word)], word) {
			if found != "" && found != v.name {
				return ""
			}
			found = v.name
		}
	}
	return found
}
