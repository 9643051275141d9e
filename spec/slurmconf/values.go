package slurmconf

import (
	"path"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

// The functions below make the set of a key from the place its value goes to.

func setText[T any](to func(*T) *string) func(*T, value) {
	return func(t *T, v value) { *to(t) = v.Value }
}

func setList[T any](to func(*T) *[]string) func(*T, value) {
	return func(t *T, v value) { *to(t) = v.splitItems() }
}

// listOrAll is list, but ALL stands for no restriction.
func listOrAll[T any](to func(*T) *[]string) func(*T, value) {
	return func(t *T, v value) {
		*to(t) = nil
		if !strings.EqualFold(v.Value, "ALL") {
			*to(t) = v.splitItems()
		}
	}
}

func setBool[T any](to func(*T) *bool) func(*T, value) {
	return func(t *T, v value) {
		if b, ok := v.parseYes(); ok {
			*to(t) = b
		}
	}
}

// setNumber is an unsigned number; UNLIMITED and INFINITE give unlimited.
func setNumber[T any](to func(*T) *uint32, least, most uint32, unlimited uint32) func(*T, value) {
	return func(t *T, v value) {
		if v.isInfinite() && unlimited != noUnlimited {
			*to(t) = unlimited
			return
		}
		if n, ok := v.parseInteger(int64(least), int64(most)); ok {
			*to(t) = uint32(n)
		}
	}
}

// noUnlimited: the key has no value for "no limit".
const noUnlimited = 1<<32 - 1

// setSpan is a number of units.
func setSpan[T any](to func(*T) *spec.Span, unit spec.Span) func(*T, value) {
	return func(t *T, v value) {
		if v.isInfinite() {
			*to(t) = spec.Infinite
			return
		}
		if n, ok := v.parseInteger(0, 1<<31); ok {
			*to(t) = spec.Span(n) * unit
		}
	}
}

// setDuration is a time such as 7-0 or 30:00.
func setDuration[T any](to func(*T) *spec.Span) func(*T, value) {
	return func(t *T, v value) {
		sec, err := format.ParseDuration(v.Value)
		if err != nil {
			v.failValue("%s", err)
			return
		}
		*to(t) = spec.Seconds(sec)
	}
}

// setMemory is MiB, with or without a unit; UNLIMITED is 0.
func setMemory[T any](to func(*T) *int64) func(*T, value) {
	return func(t *T, v value) {
		if v.isInfinite() {
			*to(t) = 0
			return
		}
		n, err := format.ParseMemory(v.Value)
		if err != nil {
			v.failValue("%s", err)
			return
		}
		*to(t) = n
	}
}

// setCount is an amount; UNLIMITED is 0.
func setCount[T any](to func(*T) *int64, least int64) func(*T, value) {
	return func(t *T, v value) {
		if v.isInfinite() {
			*to(t) = 0
			return
		}
		if n, ok := v.parseInteger(least, 1<<40); ok {
			*to(t) = n
		}
	}
}

// oneOf takes one of some words, separated by |, and stores it as spelled there.
func oneOf[T any](words string, to func(*T) *string) func(*T, value) {
	return func(t *T, v value) {
		if w, ok := v.parseWord(words); ok {
			*to(t) = w
		}
	}
}

func (v value) isInfinite() bool {
	return strings.EqualFold(v.Value, "UNLIMITED") || strings.EqualFold(v.Value, "INFINITE")
}

func (v value) parseInteger(least, most int64) (int64, bool) {
	n, err := strconv.ParseInt(v.Value, 10, 64)
	if err != nil || n < least || n > most {
		v.failValue("%s is not a whole number from %d to %d", quoteShort(v.Value), least, most)
		return 0, false
	}
	return n, true
}

func (v value) parseYes() (answer, ok bool) {
	switch strings.ToLower(v.Value) {
	case "yes", "true", "up", "1":
		return true, true
	case "no", "false", "down", "0":
		return false, true
	}
	v.failValue("%s is neither YES nor NO", quoteShort(v.Value))
	return false, false
}

func (v value) parseWord(words string) (string, bool) {
	for w := range strings.SplitSeq(words, "|") {
		if strings.EqualFold(w, v.Value) {
			return w, true
		}
	}
	all := strings.Split(words, "|")
	if near := spec.Nearest(v.Value, all); near != "" {
		v.failValue("%s is unknown; did you mean %s?", quoteShort(v.Value), near)
	} else {
		v.failValue("%s is unknown; it must be one of %s", quoteShort(v.Value), strings.Join(all, ", "))
	}
	return "", false
}

// splitItems splits at commas and drops empty parts.
func (v value) splitItems() []string {
	var out []string
	for p := range strings.SplitSeq(v.Value, ",") {
		p = strings.TrimSpace(p)
		if p != "" {
			out = append(out, p)
		}
	}
	return out
}

// parseWeights reads CPU=1.0,Mem=0.25G,GRES/gpu=2.0. units says whether a weight
// may name the unit it is for; negative whether it may be below zero.
func (v value) parseWeights(units, negative bool) []spec.Weight {
	var weights []spec.Weight
	for _, item := range v.splitItems() {
		name, number, ok := strings.Cut(item, "=")
		if !ok || number == "" {
			v.failValue("%s: expected a TRES and its weight, such as CPU=1.0", quoteShort(item))
			continue
		}
		weight := spec.Weight{TRES: tresName(name)}
		if !spec.KnownTRES(weight.TRES) {
			v.failValue("%s is no TRES", quoteShort(name))
			continue
		}
		if k := strings.IndexByte("KMGTP", number[len(number)-1]&^0x20); k >= 0 && units {
			number = number[:len(number)-1]
			switch {
			case weight.TRES != "mem":
				for weight.Per = 1; k >= 0; k-- {
					weight.Per <<= 10
				}
			case k == 0:
				v.failValue("%s: memory is weighed per M or more", quoteShort(item))
				continue
			default:
				for weight.Per = 1; k > 1; k-- {
					weight.Per <<= 10
				}
			}
			if weight.Per == 1 {
				weight.Per = 0
			}
		}
		micro, ok := parseMicros(number)
		if !ok || (micro < 0 && !negative) {
			v.failValue(
				"%s: %s is no weight (a number with at most six decimals)",
				quoteShort(item),
				quoteShort(number),
			)
			continue
		}
		weight.Micro = micro
		weights = append(weights, weight)
	}
	return weights
}

// tresName spells a TRES as accounting does: the kind in lower case, the name as given.
func tresName(text string) string {
	kind, name, ok := strings.Cut(strings.TrimSpace(text), "/")
	if !ok {
		return strings.ToLower(kind)
	}
	return strings.ToLower(kind) + "/" + name
}

// parseMicros reads a decimal number into millionths, exactly.
func parseMicros(text string) (int64, bool) {
	digits, negative := strings.CutPrefix(text, "-")
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

// checkOptions checks a comma separated list against a table of words, each with
// or without =value, and calls use for the implemented ones.
func (v value) checkOptions(table []option, use func(name string, v value)) {
	names := make([]string, len(table))
	for i, o := range table {
		names[i] = o.name
	}
items:
	for _, item := range v.splitItems() {
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
				v.noteValue("%s is not used: %s", o.name, o.why)
			case unsupported:
				v.warnValue("%s is not supported: %s", o.name, o.why)
			case refused:
				v.failValue("%s is not supported, and to ignore it would be unsafe: %s", o.name, o.why)
			}
			continue items
		}
		if near := spec.Nearest(name, names); near != "" {
			v.failValue("unknown option %s; did you mean %s?", quoteShort(name), near)
		} else {
			v.failValue("unknown option %s", quoteShort(name))
		}
	}
}

// setMailProg reads the program for mail about jobs: a path, or none.
func setMailProg(file *File, v value) {
	if v.isOff("none|(null)") {
		file.Config.MailProg = "none"
		return
	}
	if !path.IsAbs(v.Value) {
		v.failValue("%s is not an absolute path, and not none", quoteShort(v.Value))
		return
	}
	file.Config.MailProg = v.Value
}

// setMailDomain reads what completes a recipient without an @.
func setMailDomain(file *File, v value) {
	valid := func(r rune) bool {
		return r == '.' || r == '-' || r < utf8.RuneSelf && isLetterOrDigit(byte(r))
	}
	if v.Value == "" || strings.ContainsFunc(v.Value, func(r rune) bool { return !valid(r) }) {
		v.failValue("%s is not a domain", quoteShort(v.Value))
		return
	}
	file.Config.MailDomain = v.Value
}
