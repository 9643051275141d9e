package schema

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/cli/tree"
)

// Problem is something about a request: where, and what.
type Problem struct {
	Path string // #/job/time_limit
	Text string
}

// Values are the fields of a record of a request that were given. A value is a
// string, int64, float64, bool, tree.Number, []any or Values.
type Values map[string]any

// Reading is a request that was read.
type Reading struct {
	Values   Values
	Errors   []Problem
	Warnings []Problem
}

// Read reads the body of a request, already decoded with numbers as json.Number.
// As Slurm does, it takes numbers for texts and the other way round, one word for
// a list with one element, and a bare number for {set, infinite, number}. A field
// that the type does not have is a warning, a value that cannot be understood is
// an error.
func (t *Type) Read(body any) Reading {
	reading := &Reading{}
	if v, ok := reading.read(t, "#", body).(Values); ok {
		reading.Values = v
	}
	return *reading
}

func (r *Reading) fail(path, text string, args ...any) any {
	r.Errors = append(r.Errors, Problem{Path: path, Text: fmt.Sprintf(text, args...)})
	return nil
}

func (r *Reading) read(t *Type, path string, value any) any {
	if value == nil {
		return nil // null is what is not given
	}
	switch t.Kind {
	case Record:
		return r.readRecord(t, path, value)
	case List:
		return r.readList(t, path, value)
	case Integer:
		n, ok := integer(value)
		switch {
		case !ok:
			return r.fail(path, "expected an integer, got %s", show(value))
		case t.Format == "int32" && (n < -1<<31 || n >= 1<<32):
			return r.fail(path, "%d does not fit into 32 bits", n)
		}
		return n
	case Decimal:
		f, err := strconv.ParseFloat(plainText(value), 64)
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			return r.fail(path, "expected a number, got %s", show(value))
		}
		return f
	case Truth:
		on, ok := truth(value)
		if !ok {
			return r.fail(path, "expected true or false, got %s", show(value))
		}
		return on
	case Text:
	}
	switch value.(type) {
	case string, json.Number, bool:
	default:
		return r.fail(path, "expected a string, got %s", show(value))
	}
	text := plainText(value)
	if t.Enum == nil {
		return text
	}
	for _, word := range t.Enum {
		if strings.EqualFold(word, text) {
			return word
		}
	}
	return r.fail(path, "%q is not known: expected one of %s", text, strings.Join(t.Enum, ", "))
}

func (r *Reading) readRecord(t *Type, path string, v any) any {
	if t.number {
		return r.readNumber(t, path, v)
	}
	object, ok := v.(map[string]any)
	if !ok {
		return r.fail(path, "expected an object, got %s", show(v))
	}
	values := Values{}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		field := t.Field(name)
		if field == nil {
			r.Warnings = append(
				r.Warnings,
				Problem{Path: path + "/" + name, Text: "unknown field, ignored" + t.suggest(name)},
			)
			continue
		}
		if value := r.read(field.Type, path+"/"+name, object[name]); value != nil {
			values[name] = value
		}
	}
	for i := range t.Fields {
		field := &t.Fields[i]
		if _, given := object[field.Name]; field.Required && !given {
			r.fail(path+"/"+field.Name, "the field is required")
		}
	}
	return values
}

func (r *Reading) readList(t *Type, path string, v any) any {
	var list []any
	switch v := v.(type) {
	case []any:
		list = v
	case map[string]any: // NAME: value, as an environment was once written
		if t.Elem.Kind != Text {
			return r.fail(path, "expected a list, got an object")
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			list = append(list, name+"="+plainText(v[name]))
		}
	case string:
		for _, word := range strings.Split(v, ",") {
			if word != "" {
				list = append(list, word)
			}
		}
	default:
		list = []any{v}
	}
	out := make([]any, 0, len(list))
	for i, x := range list {
		if value := r.read(t.Elem, path+"/"+strconv.Itoa(i), x); value != nil {
			out = append(out, value)
		}
	}
	return out
}

// readNumber reads {set, infinite, number}, a bare number, or INFINITE.
func (r *Reading) readNumber(t *Type, path string, value any) any {
	object, ok := value.(map[string]any)
	if !ok {
		if word := strings.ToUpper(plainText(value)); word == "INFINITE" || word == "UNLIMITED" ||
			word == "-1" {
			return tree.Number{Infinite: true}
		}
		n, ok := integer(value)
		if !ok {
			return r.fail(path, "expected a %s, got %s", t.typeWord(), show(value))
		}
		return tree.Number{N: n, Set: true}
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if t.Field(name) == nil {
			r.Warnings = append(
				r.Warnings,
				Problem{Path: path + "/" + name, Text: "unknown field, ignored"},
			)
		}
	}
	if infinite, given := object["infinite"]; given {
		on, ok := truth(infinite)
		if !ok {
			return r.fail(path+"/infinite", "expected true or false, got %s", show(infinite))
		}
		if on {
			return tree.Number{Infinite: true}
		}
	}
	number, given := object["number"]
	if set, said := object["set"]; said {
		on, ok := truth(set)
		switch {
		case !ok:
			return r.fail(path+"/set", "expected true or false, got %s", show(set))
		case !on:
			return nil
		case !given:
			return r.fail(path+"/number", "set is true and there is no number")
		}
	}
	if !given {
		return nil
	}
	n, ok := integer(number)
	if !ok {
		return r.fail(path+"/number", "expected an integer, got %s", show(number))
	}
	return tree.Number{N: n, Set: true}
}

func integer(value any) (int64, bool) {
	n, err := strconv.ParseInt(plainText(value), 10, 64)
	return n, err == nil
}

func truth(value any) (on, ok bool) {
	switch strings.ToLower(plainText(value)) {
	case "true", "yes", "1":
		return true, true
	case "false", "no", "0":
		return false, true
	}
	return false, false
}

// plainText is a scalar as text; anything else is empty.
func plainText(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	case bool:
		return strconv.FormatBool(v)
	}
	return ""
}

// show names a value in a message, cut where it is long.
func show(value any) string {
	const most = 40
	switch v := value.(type) {
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	case nil:
		return "null"
	case string:
		if len(v) > most {
			v = v[:most] + "…"
		}
		return strconv.Quote(v)
	}
	return plainText(value)
}

// Text returns a field that is a text.
func (v Values) Text(name string) string {
	text, _ := v[name].(string)
	return text
}

// Texts returns a field that is a list of texts.
func (v Values) Texts(name string) []string {
	list, _ := v[name].([]any)
	out := make([]string, 0, len(list))
	for _, x := range list {
		if text, ok := x.(string); ok {
			out = append(out, text)
		}
	}
	return out
}

// Records returns a field that is a list of records.
func (v Values) Records(name string) []Values {
	list, _ := v[name].([]any)
	valueses := make([]Values, 0, len(list))
	for _, x := range list {
		if record, ok := x.(Values); ok {
			valueses = append(valueses, record)
		}
	}
	return valueses
}

// Record returns a field that is a record, or nil.
func (v Values) Record(name string) Values {
	record, _ := v[name].(Values)
	return record
}
