package slurmconf

import (
	"path"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

// The functions below make the set of a key from the place its value goes to.

func text[T any](to func(*T) *string) func(*T, value) {
	return func(t *T, v value) { *to(t) = v.Value }
}

func list[T any](to func(*T) *[]string) func(*T, value) {
	return func(t *T, v value) { *to(t) = v.items() }
}

// all is list, but ALL stands for no restriction.
func all[T any](to func(*T) *[]string) func(*T, value) {
	return func(t *T, v value) {
		*to(t) = nil
		if !strings.EqualFold(v.Value, "ALL") {
			*to(t) = v.items()
		}
	}
}

func truth[T any](to func(*T) *bool) func(*T, value) {
	return func(t *T, v value) {
		if b, ok := v.yes(); ok {
			*to(t) = b
		}
	}
}

// number is an unsigned number; UNLIMITED and INFINITE give unlimited.
func number[T any](to func(*T) *uint32, least, most uint32, unlimited uint32) func(*T, value) {
	return func(t *T, v value) {
		if v.infinite() && unlimited != noUnlimited {
			*to(t) = unlimited
			return
		}
		if n, ok := v.integer(int64(least), int64(most)); ok {
			*to(t) = uint32(n)
		}
	}
}

// noUnlimited: the key has no value for "no limit".
const noUnlimited = 1<<32 - 1

// span is a number of units.
func span[T any](to func(*T) *spec.Span, unit spec.Span) func(*T, value) {
	return func(t *T, v value) {
		if v.infinite() {
			*to(t) = spec.Infinite
			return
		}
		if n, ok := v.integer(0, 1<<31); ok {
			*to(t) = spec.Span(n) * unit
		}
	}
}

// duration is a time such as 7-0 or 30:00.
func duration[T any](to func(*T) *spec.Span) func(*T, value) {
	return func(t *T, v value) {
		sec, err := format.ParseDuration(v.Value)
		if err != nil {
			v.fail("%s", err)
			return
		}
		*to(t) = spec.Seconds(sec)
	}
}

// memory is MiB, with or without a unit; UNLIMITED is 0.
func memory[T any](to func(*T) *int64) func(*T, value) {
	return func(t *T, v value) {
		if v.infinite() {
			*to(t) = 0
			return
		}
		n, err := format.ParseMemory(v.Value)
		if err != nil {
			v.fail("%s", err)
			return
		}
		*to(t) = n
	}
}

// count is an amount; UNLIMITED is 0.
func count[T any](to func(*T) *int64, least int64) func(*T, value) {
	return func(t *T, v value) {
		if v.infinite() {
			*to(t) = 0
			return
		}
		if n, ok := v.integer(least, 1<<40); ok {
			*to(t) = n
		}
	}
}

// oneOf takes one of some words, separated by |, and stores it as spelled there.
func oneOf[T any](words string, to func(*T) *string) func(*T, value) {
	return func(t *T, v value) {
		if w, ok := v.word(words); ok {
			*to(t) = w
		}
	}
}

func (v value) infinite() bool {
	return strings.EqualFold(v.Value, "UNLIMITED") || strings.EqualFold(v.Value, "INFINITE")
}

func (v value) integer(least, most int64) (int64, bool) {
	n, err := strconv.ParseInt(v.Value, 10, 64)
	if err != nil || n < least || n > most {
		v.fail("%s is not a whole number from %d to %d", short(v.Value), least, most)
		return 0, false
	}
	return n, true
}

func (v value) yes() (answer, ok bool) {
	switch strings.ToLower(v.Value) {
	case "yes", "true", "up", "1":
		return true, true
	case "no", "false", "down", "0":
		return false, true
	}
	v.fail("%s is neither YES nor NO", short(v.Value))
	return false, false
}

func (v value) word(words string) (string, bool) {
	for w := range strings.SplitSeq(words, "|") {
		if strings.EqualFold(w, v.Value) {
			return w, true
		}
	}
	all := strings.Split(words, "|")
	if near := nearest(v.Value, all); near != "" {
		v.fail("%s is unknown; did you mean %s?", short(v.Value), near)
	} else {
		v.fail("%s is unknown; it must be one of %s", short(v.Value), strings.Join(all, ", "))
	}
	return "", false
}

// items splits at commas and drops empty parts.
func (v value) items() []string {
	var out []string
	for p := range strings.SplitSeq(v.Value, ",") {
		p = strings.TrimSpace(p)
		if p != "" {
			out = append(out, p)
		}
	}
	return out
}

// weights reads CPU=1.0,Mem=0.25G,GRES/gpu=2.0. units says whether a weight
// may name the unit it is for; negative whether it may be below zero.
func (v value) weights(units, negative bool) []spec.Weight {
	var out []spec.Weight
	for _, item := range v.items() {
		name, num, ok := strings.Cut(item, "=")
		if !ok || num == "" {
			v.fail("%s: expected a TRES and its weight, such as CPU=1.0", short(item))
			continue
		}
		w := spec.Weight{TRES: tresName(name)}
		if !spec.KnownTRES(w.TRES) {
			v.fail("%s is no TRES", short(name))
			continue
		}
		if k := strings.IndexByte("KMGTP", num[len(num)-1]&^0x20); k >= 0 && units {
			num = num[:len(num)-1]
			switch {
			case w.TRES != "mem":
				for w.Per = 1; k >= 0; k-- {
					w.Per <<= 10
				}
			case k == 0:
				v.fail("%s: memory is weighed per M or more", short(item))
				continue
			default:
				for w.Per = 1; k > 1; k-- {
					w.Per <<= 10
				}
			}
			if w.Per == 1 {
				w.Per = 0
			}
		}
		micro, ok := micros(num)
		if !ok || (micro < 0 && !negative) {
			v.fail("%s: %s is no weight (a number with at most six decimals)", short(item), short(num))
			continue
		}
		w.Micro = micro
		out = append(out, w)
	}
	return out
}

// tresName spells a TRES as accounting does: the kind in lower case, the name as given.
func tresName(s string) string {
	kind, name, ok := strings.Cut(strings.TrimSpace(s), "/")
	if !ok {
		return strings.ToLower(kind)
	}
	return strings.ToLower(kind) + "/" + name
}

// micros reads a decimal number into millionths, exactly.
func micros(s string) (int64, bool) {
	digits, negative := strings.CutPrefix(s, "-")
	whole, part, _ := strings.Cut(digits, ".")
	if len(part) > 6 || whole+part == "" || len(whole) > 12 {
		return 0, false
	}
	n, err := strconv.ParseUint(whole+part+"000000"[len(part):], 10, 62)
	if err != nil {
		return 0, false
	}
	if negative {
		return -int64(n), true
	}
	return int64(n), true
}

// option is one word of a key whose value is a list of words.
type option struct {
	name  string
	class class
	why   string
}

// options checks a comma separated list against a table of words, each with
// or without =value, and calls use for the implemented ones.
func (v value) options(table []option, use func(name string, v value)) {
	names := make([]string, len(table))
	for i, o := range table {
		names[i] = o.name
	}
items:
	for _, item := range v.items() {
		name, arg, _ := strings.Cut(item, "=")
		for _, o := range table {
			if !strings.EqualFold(o.name, name) {
				continue
			}
			switch o.class {
			case implemented:
				if use != nil {
					inner := v
					inner.Value, inner.part = arg, o.name+": "
					use(o.name, inner)
				}
			case meaningless:
				v.note("%s is not used: %s", o.name, o.why)
			case unsupported:
				v.warn("%s is not supported: %s", o.name, o.why)
			case refused:
				v.fail("%s is not supported, and to ignore it would be unsafe: %s", o.name, o.why)
			}
			continue items
		}
		if near := nearest(name, names); near != "" {
			v.fail("unknown option %s; did you mean %s?", short(name), near)
		} else {
			v.fail("unknown option %s", short(name))
		}
	}
}

// setMailProg reads the program for mail about jobs: a path, or none.
func setMailProg(f *File, v value) {
	if v.isOff("none|(null)") {
		f.Config.MailProg = "none"
		return
	}
	if !path.IsAbs(v.Value) {
		v.fail("%s is not an absolute path, and not none", short(v.Value))
		return
	}
	f.Config.MailProg = v.Value
}

// setMailDomain reads what completes a recipient without an @.
func setMailDomain(f *File, v value) {
	valid := func(r rune) bool {
		return r == '.' || r == '-' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
	}
	if v.Value == "" || strings.ContainsFunc(v.Value, func(r rune) bool { return !valid(r) }) {
		v.fail("%s is not a domain", short(v.Value))
		return
	}
	f.Config.MailDomain = v.Value
}
