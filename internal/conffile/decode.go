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

func (d *decoder) value(node *yaml.Node, value reflect.Value, at place) {
	for node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	at.depth++
	if at.depth > maxDepth {
		d.problem(node.Line, at.path, "is nested too deeply")
		return
	}
	switch value.Kind() {
	case reflect.Struct:
		d.section(node, value, at)
	case reflect.Slice:
		d.list(node, value, at)
	default:
		d.scalar(node, value, at)
	}
}

func (d *decoder) section(node *yaml.Node, v reflect.Value, at place) {
	if null(node) {
		return // a section whose every line is commented out
	}
	if node.Kind != yaml.MappingNode {
		d.problem(
			node.Line,
			at.path,
			"must be a section with keys (%s)",
			strings.Join(keysOf(v.Type()), ", "),
		)
		return
	}
	given := map[string]int{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
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

func fieldOf(typ reflect.Type, key string) (reflect.StructField, bool) {
	for i := range typ.NumField() {
		if f := typ.Field(i); key != "" && f.Tag.Get("yaml") == key {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

func (d *decoder) list(node *yaml.Node, value reflect.Value, at place) {
	if node.Kind != yaml.SequenceNode {
		d.problem(node.Line, at.path, "must be a list")
		return
	}
	out := reflect.MakeSlice(value.Type(), len(node.Content), len(node.Content))
	for i, item := range node.Content {
		path := fmt.Sprintf("%s[%d]", at.path, i)
		d.lines[path] = item.Line
		d.value(item, out.Index(i), place{path, at.tag, at.depth})
	}
	value.Set(out)
}

func null(node *yaml.Node) bool { return node.Kind == yaml.ScalarNode && node.Tag == "!!null" }

func (d *decoder) scalar(node *yaml.Node, value reflect.Value, at place) {
	switch {
	case null(node):
		d.problem(node.Line, at.path, "has no value: give one, or take the line out")
		return
	case node.Kind != yaml.ScalarNode:
		d.problem(node.Line, at.path, "must be a single value")
		return
	case strings.ContainsFunc(node.Value, func(r rune) bool { return r < ' ' || r == 0x7f }):
		d.problem(node.Line, at.path, "holds a control character")
		return
	}
	if err := setScalar(value, node, at.tag); err != nil {
		d.problem(node.Line, at.path, "%s", err.Error())
	}
}

func setScalar(value reflect.Value, node *yaml.Node, tag reflect.StructTag) error {
	switch p := value.Addr().Interface().(type) {
	case *spec.Span:
		return parseInto(p, node.Value, ParseSpan)
	case *Size:
		return parseInto(p, node.Value, ParseSize)
	case *Addr:
		return parseInto(p, node.Value, ParseAddr)
	}
	switch value.Kind() {
	case reflect.String:
		return setString(value, node.Value, tag.Get("enum"))
	case reflect.Bool:
		if node.Tag != "!!bool" {
			return fmt.Errorf("%q must be true or false", node.Value)
		}
		value.SetBool(strings.EqualFold(node.Value, "true"))
	case reflect.Int64, reflect.Int:
		i, err := strconv.ParseInt(node.Value, 10, value.Type().Bits())
		if err != nil {
			return fmt.Errorf("%q is not a whole number", node.Value)
		}
		value.SetInt(i)
	default:
		return fmt.Errorf("cannot be read: fields of type %s have no syntax", value.Type())
	}
	return nil
}

func setString(value reflect.Value, text, enum string) error {
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
	value.SetString(text)
	return nil
}

func parseInto[T any](into *T, text string, parse func(string) (T, error)) error {
	t, err := parse(text)
	if err == nil {
		*into = t
	}
	return err
}
