package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// loader reads a file of Dump line by line.
type loader struct {
	p      *planner
	parent string
	seen   map[string]bool // accounts, and users as account/user/partition, that the file names
	of     []coordination  // what can only be said when all accounts are there
	bad    []flaw
}

// coordination is a user line's list of accounts that the user coordinates.
type coordination struct {
	line     int
	user, of string
}

// entry is one line: Kind - 'name':key='value'...
type entry struct {
	kind, name string
	set        []spec.KeyValue
}

// Load plans a file as Dump writes it: what is new is added, what exists is
// changed to what the file says. With clean, users and accounts that the file
// does not name are removed. A file with a fault anywhere changes nothing, and
// the refusal names every fault with its line.
func Load(cluster *state.State, text string, clean bool) ([]event.Event, []string, error) {
	l := &loader{
		p:      newPlanner(cluster),
		parent: "root",
		seen:   map[string]bool{"root": true, "root/root/": true},
	}
	entries := make([]*entry, 0, 64)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			entries = append(entries, nil)
			continue
		}
		e, err := parseLine(line)
		if err != nil {
			l.addFault(i+1, err)
		}
		entries = append(entries, e)
	}
	// A QOS may preempt one that stands below it: all exist before any is set.
	for _, preempt := range [...]bool{false, true} {
		for i, e := range entries {
			if e != nil && e.kind == "qos" {
				l.atLine(i+1, func() error { return l.loadQOS(e, preempt) })
			}
		}
	}
	for i, e := range entries {
		if e != nil && e.kind != "qos" {
			l.atLine(i+1, func() error { return l.loadEntity(e, i+1) })
		}
	}
	for _, o := range l.of {
		l.atLine(o.line, func() error {
			return l.p.planChange(
				Change{
					Verb:   Add,
					Entity: "coordinator",
					Names:  []string{o.user},
					Where:  []spec.KeyValue{{Key: "account", Value: o.of}},
				},
			)
		})
	}
	if clean && len(l.bad) == 0 {
		l.removeUnnamed()
	}
	if len(l.bad) > 0 {
		slices.SortStableFunc(l.bad, func(a, b flaw) int { return a.line - b.line })
		text := "nothing was loaded:"
		for _, f := range l.bad {
			text += "\n" + f.text
		}
		return nil, nil, spec.Refuse(spec.CodeBadRequest, text)
	}
	return l.p.plannedEvents(), l.p.names, nil
}

// flaw is what is wrong with a line, or with the whole (0).
type flaw struct {
	line int
	text string
}

func (l *loader) addFault(line int, err error) {
	l.bad = append(l.bad, flaw{line, fmt.Sprintf("line %d: %s", line, detailOf(err))})
}

func (l *loader) atLine(line int, f func() error) {
	if err := f(); err != nil {
		l.addFault(line, err)
	}
}

// detailOf is what a refusal says, without its class.
func detailOf(err error) string {
	var e *spec.Error
	if errors.As(err, &e) && e.Detail != "" {
		return e.Detail
	}
	return err.Error()
}

// parseLine reads Kind - 'name':key='value':key=value.
func parseLine(line string) (*entry, error) {
	parts, err := splitQuoted(line)
	if err != nil {
		return nil, err
	}
	kind, name, ok := strings.Cut(parts[0], "-")
	e := &entry{
		kind: strings.ToLower(strings.TrimSpace(kind)),
		name: unquote(strings.TrimSpace(name)),
	}
	if !ok || e.name == "" {
		return nil, errText("expected Kind - 'name':Option='value'")
	}
	switch e.kind {
	case "cluster", "parent", "account", "user", "qos":
	case "project":
		e.kind = "account"
	default:
		return nil, fmt.Errorf(
			"unknown kind %q (Cluster, Parent, Account, User and QOS are known)",
			strings.TrimSpace(kind),
		)
	}
	for _, part := range parts[1:] {
		k, v, ok := strings.Cut(part, "=")
		k = strings.TrimSpace(k)
		if !ok || k == "" {
			return nil, fmt.Errorf("%q is not Option='value'", part)
		}
		e.set = append(e.set, spec.KeyValue{Key: k, Value: unquote(strings.TrimSpace(v))})
	}
	return e, nil
}

// splitQuoted cuts at colons outside quotes, but not within a time.
func splitQuoted(line string) ([]string, error) {
	var out []string
	quote, start := byte(0), 0
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case c == ':' && !withinTime(line, i):
			out = append(out, line[start:i])
			start = i + 1
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("a quote is not closed")
	}
	return append(out, line[start:]), nil
}

// withinTime tells whether a colon stands between digits, as in 2-00:00:00:
// no option begins with a digit.
func withinTime(text string, i int) bool {
	digit := func(k int) bool { return k >= 0 && k < len(text) && text[k] >= '0' && text[k] <= '9' }
	return digit(i-1) && digit(i+1)
}

func unquote(text string) string {
	if n := len(text); n >= 2 && (text[0] == '\'' || text[0] == '"') && text[n-1] == text[0] {
		return text[1 : n-1]
	}
	return text
}

// loadQOS loads a QOS: first without what it says of others, then that.
func (l *loader) loadQOS(e *entry, preempt bool) error {
	var set []spec.KeyValue
	for _, kv := range e.set {
		if (plainKey(kv.Key) == "preempt") == preempt {
			set = append(set, kv)
		}
	}
	verb := Modify
	if l.p.currentPolicy().FindQOS(e.name) == nil {
		verb = Add
	}
	if verb == Modify && len(set) == 0 {
		return nil
	}
	return l.p.planChange(Change{Verb: verb, Entity: "qos", Names: []string{e.name}, Set: set})
}

func (l *loader) loadEntity(e *entry, line int) error {
	switch e.kind {
	case "cluster":
		return l.p.planChange(
			Change{Verb: Modify, Entity: "cluster", Names: []string{e.name}, Set: e.set},
		)
	case "parent":
		if l.p.currentPolicy().AccountAssoc(e.name) == 0 {
			return fmt.Errorf("parent account %q has not been defined", e.name)
		}
		l.parent = e.name
		return nil
	case "account":
		return l.loadAccount(e)
	}
	return l.loadUser(e, line)
}

func (l *loader) loadAccount(e *entry) error {
	if l.seen[e.name] && e.name != "root" {
		return fmt.Errorf("account %q is given twice", e.name)
	}
	l.seen[e.name] = true
	change := Change{
		Verb:   Add,
		Entity: "account",
		Names:  []string{e.name},
		Set:    append(e.set, spec.KeyValue{Key: "parent", Value: l.parent}),
	}
	if l.p.currentPolicy().FindAccount(e.name) != nil {
		change.Verb = Modify
	}
	if e.name == "root" {
		change.Set = e.set
	}
	return l.p.planChange(change)
}

func (l *loader) loadUser(e *entry, line int) error {
	part, _ := lastValue(e.set, "partition")
	key := l.parent + "/" + e.name + "/" + part
	if l.seen[key] && e.name != "root" {
		return fmt.Errorf("user %q is given twice in account %q", e.name, l.parent)
	}
	l.seen[key] = true
	if of, ok := lastValue(e.set, "coordinator", "coordinators"); ok {
		l.of = append(l.of, coordination{line, e.name, of})
	}
	set := slices.DeleteFunc(slices.Clone(e.set), func(kv spec.KeyValue) bool {
		return plainKey(kv.Key) == "coordinator" || plainKey(kv.Key) == "coordinators" ||
			plainKey(kv.Key) == "partition"
	})
	here := []spec.KeyValue{{Key: "account", Value: l.parent}}
	if part != "" {
		here = append(here, spec.KeyValue{Key: "partition", Value: part})
	}
	assoc := l.p.currentPolicy().FindAssoc(l.parent, e.name, part)
	if assoc != nil && assoc.Partition == part {
		here = append(here[:1], spec.KeyValue{Key: "partition", Value: part})
		return l.p.planChange(
			Change{Verb: Modify, Entity: "user", Names: []string{e.name}, Where: here, Set: set},
		)
	}
	// The default account may stand further down: it is set there.
	if def, ok := lastValue(set, "defaultaccount"); ok && def != l.parent &&
		l.p.currentPolicy().FindAssoc(def, e.name, "") == nil {
		set = slices.DeleteFunc(
			set,
			func(kv spec.KeyValue) bool { return plainKey(kv.Key) == "defaultaccount" },
		)
	}
	return l.p.planChange(
		Change{Verb: Add, Entity: "user", Names: []string{e.name}, Set: append(set, here...)},
	)
}

// removeUnnamed removes what the file does not name: users first, then accounts from
// the leaves up.
func (l *loader) removeUnnamed() {
	policy := l.p.currentPolicy()
	for _, assoc := range slices.Clone(policy.Assocs) {
		if assoc.User == "" || l.seen[assoc.Account+"/"+assoc.User+"/"+assoc.Partition] {
			continue
		}
		if err := l.p.planChange(Change{Verb: Delete, Entity: "user", Names: []string{assoc.User}, Where: []spec.KeyValue{{Key: "account", Value: assoc.Account}, {Key: "partition", Value: assoc.Partition}}}); err != nil {
			l.bad = append(l.bad, flaw{text: detailOf(err)})
		}
	}
	for range 64 {
		left := false
		for _, account := range slices.Clone(l.p.currentPolicy().Accounts) {
			child := func(c spec.Account) bool { return c.Parent == account.Name }
			if l.seen[account.Name] || slices.ContainsFunc(l.p.currentPolicy().Accounts, child) {
				continue
			}
			left = true
			if err := l.p.planChange(Change{Verb: Delete, Entity: "account", Names: []string{account.Name}}); err != nil {
				l.bad = append(l.bad, flaw{text: detailOf(err)})
				return
			}
		}
		if !left {
			return
		}
	}
}
