package conffile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/musterhpc/muster/spec"
)

// maxDepth bounds nesting, so that a hostile file cannot exhaust the stack.
const maxDepth = 32

// Decode reads YAML strictly into the struct that into points to. Fields carry
// a yaml:"name" tag and are strings, integers, booleans, the types of this
// package, spec.Span, structs, or slices of these; enum:"a,b" lists the values
// a string may have. What the file does not name keeps its value. The error is
// Problems.
func Decode(file string, data []byte, into any) error {
	d := decodeFile(file, data, into)
	return d.problems.asError()
}

func decodeFile(file string, data []byte, into any) *decoder {
	v := reflect.ValueOf(into).Elem()
	d := &decoder{file: file, root: v.Type(), lines: map[string]int{}}
	if doc := d.document(data); doc != nil {
		d.value(doc, v, place{})
	}
	return d
}

// decoder walks one document. lines remembers where each key that was given
// stands, for Validate.
type decoder struct {
	file     string
	root     reflect.Type
	lines    map[string]int
	problems Problems
}

// place is where a value belongs.
type place struct {
	path  string
	tag   reflect.StructTag
	depth int
}

func (d *decoder) problem(line int, path, format string, args ...any) {
	d.problems = append(d.problems, Problem{d.file, line, path, fmt.Sprintf(format, args...)})
}

var yamlLine = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?`)

// document parses the text and gives the root node, or nil if there is none.
func (d *decoder) document(data []byte) *yaml.Node {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		m := yamlLine.FindStringSubmatch(err.Error())
		line, _ := strconv.Atoi(m[1]) // no number: no line
		d.problem(line, "", "is not YAML: %s", strings.TrimPrefix(err.Error(), m[0]))
		return nil
	}
	if err := dec.Decode(&second); err == nil {
		d.problem(
			second.Line,
			"",
			"holds a second document: only one is read, so remove the --- and what follows it",
		)
	}
	return doc.Content[0]
}

func (d *decoder) value(n *yaml.Node, v reflect.Value, at place) {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	at.depth++
	if at.depth > maxDepth {
		d.problem(n.Line, at.path, "is nested too deeply")
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.section(n, v, at)
	case reflect.Slice:
		d.list(n, v, at)
	default:
		d.scalar(n, v, at)
	}
}

func (d *decoder) section(n *yaml.Node, v reflect.Value, at place) {
	if null(n) {
		return // a section whose every line is commented out
	}
	if n.Kind != yaml.MappingNode {
		d.problem(
			n.Line,
			at.path,
			"must be a section with keys (%s)",
			strings.Join(keysOf(v.Type()), ", "),
		)
		return
	}
	given := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		path := printable(key.Value)
		if at.path != "" {
			path = at.path + "." + path
		}
		field, ok := fieldOf(v.Type(), key.Value)
		switch {
		case key.Tag == "!!merge":
			d.problem(key.Line, at.path, "merges (<<) are not read here: write the keys out")
		case key.Kind != yaml.ScalarNode:
			d.problem(key.Line, at.path, "a key must be a word")
		case !ok:
			d.problem(
				key.Line,
				path,
				"unknown key: %s",
				suggestKey(key.Value, v.Type(), path, d.root),
			)
		case given[key.Value] > 0:
			d.problem(key.Line, path, "is given twice, first on line %d", given[key.Value])
		default:
			given[key.Value] = key.Line
			d.lines[path] = key.Line
			d.value(value, v.FieldByIndex(field.Index), place{path, field.Tag, at.depth})
		}
	}
}

// printable quotes a key that would spoil a message.
func printable(key string) string {
	if key == "" || strings.ContainsFunc(key, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(key)
	}
	return key
}

func fieldOf(t reflect.Type, key string) (reflect.StructField, bool) {
	for i := range t.NumField() {
		if f := t.Field(i); key != "" && f.Tag.Get("yaml") == key {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

func (d *decoder) list(n *yaml.Node, v reflect.Value, at place) {
	if n.Kind != yaml.SequenceNode {
		d.problem(n.Line, at.path, "must be a list")
		return
	}
	out := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, item := range n.Content {
		path := fmt.Sprintf("%s[%d]", at.path, i)
		d.lines[path] = item.Line
		d.value(item, out.Index(i), place{path, at.tag, at.depth})
	}
	v.Set(out)
}

func null(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

func (d *decoder) scalar(n *yaml.Node, v reflect.Value, at place) {
	switch {
	case null(n):
		d.problem(n.Line, at.path, "has no value: give one, or take the line out")
		return
	case n.Kind != yaml.ScalarNode:
		d.problem(n.Line, at.path, "must be a single value")
		return
	case strings.ContainsFunc(n.Value, func(r rune) bool { return r < ' ' || r == 0x7f }):
		d.problem(n.Line, at.path, "holds a control character")
		return
	}
	if err := setScalar(v, n, at.tag); err != nil {
		d.problem(n.Line, at.path, "%s", err.Error())
	}
}

func setScalar(v reflect.Value, n *yaml.Node, tag reflect.StructTag) error {
	switch p := v.Addr().Interface().(type) {
	case *spec.Span:
		return parseInto(p, n.Value, ParseSpan)
	case *Size:
		return parseInto(p, n.Value, ParseSize)
	case *Addr:
		return parseInto(p, n.Value, ParseAddr)
	}
	switch v.Kind() {
	case reflect.String:
		return setString(v, n.Value, tag.Get("enum"))
	case reflect.Bool:
		if n.Tag != "!!bool" {
			return fmt.Errorf("%q must be true or false", n.Value)
		}
		v.SetBool(strings.EqualFold(n.Value, "true"))
	case reflect.Int64, reflect.Int:
		i, err := strconv.ParseInt(n.Value, 10, v.Type().Bits())
		if err != nil {
			return fmt.Errorf("%q is not a whole number", n.Value)
		}
		v.SetInt(i)
	default:
		return fmt.Errorf("cannot be read: fields of type %s have no syntax", v.Type())
	}
	return nil
}

func setString(v reflect.Value, text, enum string) error {
	if enum != "" {
		values := strings.Split(enum, ",")
		ok := false
		for _, e := range values {
			ok = ok || e == text
		}
		if !ok {
			return fmt.Errorf("%q is not one of %s", text, strings.Join(values, ", "))
		}
	}
	v.SetString(text)
	return nil
}

func parseInto[T any](into *T, text string, parse func(string) (T, error)) error {
	t, err := parse(text)
	if err == nil {
		*into = t
	}
	return err
}
