package slurmconf

import (
	"fmt"
	"strings"

	"github.com/musterhpc/muster/spec"
)

// class is what Muster does with a key.
type class uint8

const (
	implemented class = iota + 1
	meaningless
	unsupported
	refused
)

// key is one row of a table. T is what the key's value goes into.
type key[T any] struct {
	name  string
	class class
	// off lists, separated by |, the values that ask for nothing: they are no
	// problem even if the key is unsupported or refused.
	off string
	// why finishes the message: why it is meaningless, or what will not happen.
	why string
	// set stores the value of an implemented key; it may also refine the
	// message of another class (set is called in place of the message).
	set func(*T, value)
}

// table is the keys of one kind of line, findable without regard to case.
type table[T any] struct {
	kind  string // "a NodeName record", for messages
	keys  []key[T]
	index map[string]int
	also  []string // words that begin other lines of the file, for suggestions
}

func newTable[T any](kind string, keys []key[T]) *table[T] {
	t := &table[T]{kind: kind, keys: keys, index: make(map[string]int, len(keys))}
	for i, k := range keys {
		t.index[strings.ToLower(k.name)] = i
	}
	return t
}

func (t *table[T]) findKey(name string) (*key[T], bool) {
	i, ok := t.index[strings.ToLower(name)]
	if !ok {
		return nil, false
	}
	return &t.keys[i], true
}

func (t *table[T]) keyNames() []string {
	out := make([]string, len(t.keys))
	for i, k := range t.keys {
		out[i] = k.name
	}
	return out
}

// catalogue is what apply needs of a table it is not using: to say where a
// misplaced key belongs.
type catalogue interface {
	place(name string) (kind string, ok bool)
}

func (t *table[T]) place(name string) (string, bool) {
	_, ok := t.findKey(name)
	return t.kind, ok
}

// applySetting gives one setting to its key. others are the tables of the same file.
func applySetting[T any](
	to *T,
	t *table[T],
	setting Setting,
	problems *Problems,
	others ...catalogue,
) {
	k, ok := t.findKey(setting.Key)
	if !ok {
		for _, o := range others {
			if kind, found := o.place(setting.Key); found {
				problems.addProblem(setting, Error, "belongs to %s, not to %s", kind, t.kind)
				return
			}
		}
		if near := spec.Nearest(setting.Key, append(t.keyNames(), t.also...)); near != "" {
			problems.addProblem(setting, Error, "unknown key; did you mean %s?", near)
			return
		}
		problems.addProblem(setting, Error, "unknown key in %s", t.kind)
		return
	}
	setting.Key = k.name
	v := value{Setting: setting, problems: problems}
	if k.set != nil {
		k.set(to, v)
		return
	}
	v.reportClass(k.class, k.off, k.why)
}

// value is a setting on its way into the typed result.
type value struct {
	Setting
	problems *Problems
	part     string // which word of the value is meant: "bf_window: ", or empty
}

func (v value) noteValue(format string, args ...any) { v.addProblem(Note, format, args) }
func (v value) warnValue(format string, args ...any) { v.addProblem(Warning, format, args) }
func (v value) failValue(format string, args ...any) { v.addProblem(Error, format, args) }

func (v value) addProblem(severity Severity, format string, args []any) {
	v.problems.addProblem(v.Setting, severity, "%s%s", v.part, fmt.Sprintf(format, args...))
}

// reportClass says what the class of a key or option means for this value.
func (v value) reportClass(c class, off, reason string) {
	if v.isOff(off) {
		return
	}
	switch c {
	case meaningless:
		v.noteValue("not used: %s", reason)
	case unsupported:
		v.warnValue("not supported: %s", reason)
	case refused:
		v.failValue(
			"%s is not supported, and to ignore it would be unsafe: %s",
			quoteShort(v.Value),
			reason,
		)
	}
}

func (v value) isOff(off string) bool {
	if off == "" {
		return false
	}
	for o := range strings.SplitSeq(off, "|") {
		if strings.EqualFold(o, v.Value) {
			return true
		}
	}
	return false
}
