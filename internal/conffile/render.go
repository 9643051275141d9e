package conffile

import (
	_ "embed" // the annotated default file is generated and embedded
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/musterhpc/muster/spec"
)

//go:embed default.yaml
var annotated string

// Annotated is muster.yaml with every key, its meaning and its default value,
// all commented out: what `muster init` writes.
func Annotated() string { return annotated }

// Key is one key of Config.
type Key struct {
	Path    string // dotted, as in listen.grpc
	Type    string // for people: path, size, time, address, number, text, a list of words, section
	Default string // as it is written in the file; empty when it follows from others
	Example string // where there is no default
	// Struct and Field say where its comment stands.
	Struct, Field string
}

// Name is the last part of the path.
func (k Key) Name() string { return k.Path[strings.LastIndexByte(k.Path, '.')+1:] }

// Depth is the number of sections around the key.
func (k Key) Depth() int { return strings.Count(k.Path, ".") }

// Section tells a key that holds other keys.
func (k Key) Section() bool { return k.Type == "section" }

// Keys lists every key, sections before what they hold.
func Keys() []Key { return describe(reflect.ValueOf(Defaults()).Elem(), "") }

func describe(value reflect.Value, prefix string) []Key {
	var keys []Key
	for i := range value.NumField() {
		f := value.Type().Field(i)
		key := Key{
			Path: prefix + f.Tag.Get("yaml"), Type: typeName(f), Example: f.Tag.Get("example"),
			Struct: value.Type().Name(), Field: f.Name,
		}
		if key.Section() {
			keys = append(append(keys, key), describe(value.Field(i), key.Path+".")...)
			continue
		}
		key.Default = scalarText(value.Field(i))
		keys = append(keys, key)
	}
	return keys
}

func typeName(f reflect.StructField) string {
	if enum := f.Tag.Get("enum"); enum != "" {
		return strings.ReplaceAll(enum, ",", " | ")
	}
	if f.Tag.Get("kind") == "path" {
		return "path"
	}
	switch f.Type {
	case reflect.TypeFor[spec.Span]():
		return "time"
	case reflect.TypeFor[Size]():
		return "size"
	case reflect.TypeFor[Addr]():
		return "address"
	case reflect.TypeFor[Secret]():
		return "secret"
	}
	switch f.Type.Kind() {
	case reflect.Struct:
		return "section"
	case reflect.Slice:
		return "list"
	case reflect.Int64:
		return "number"
	case reflect.Bool:
		return "true | false"
	}
	return "text"
}

// scalarText gives a value as Decode reads it back, "" for an empty one.
func scalarText(value reflect.Value) string {
	switch x := value.Interface().(type) {
	case spec.Span:
		return formatSpan(x)
	case Secret:
		return x.Reveal()
	case []string:
		if len(x) == 0 {
			return ""
		}
		out := make([]string, len(x))
		for i := range x {
			out[i] = strconv.Quote(x[i])
		}
		return "[" + strings.Join(out, ", ") + "]"
	case fmt.Stringer: // Size, Addr
		return x.String()
	}
	return fmt.Sprint(value.Interface())
}

// YAML writes the configuration as a file that Parse reads back to the same
// values. It holds the secrets of the configuration: write it with mode 0600.
func (c *Config) YAML() []byte {
	var b strings.Builder
	writeSection(&b, reflect.ValueOf(c).Elem(), "")
	return []byte(b.String())
}

func writeSection(b *strings.Builder, value reflect.Value, indent string) {
	for i := range value.NumField() {
		f := value.Type().Field(i)
		name := f.Tag.Get("yaml")
		if f.Type.Kind() == reflect.Struct {
			fmt.Fprintf(b, "%s%s:\n", indent, name)
			writeSection(b, value.Field(i), indent+"  ")
		} else if text := scalarText(value.Field(i)); text != "" {
			fmt.Fprintf(b, "%s%s: %s\n", indent, name, quoted(value.Field(i), text))
		}
	}
}

// quoted writes strings so that they stay strings; everything else, and an
// address that is only a port, is plain.
func quoted(value reflect.Value, text string) string {
	if value.Kind() != reflect.String ||
		value.Type() == reflect.TypeFor[Addr]() && !strings.Contains(text, ":") {
		return text
	}
	out, err := yaml.Marshal(text)
	if err != nil { // a string always has a form
		return strconv.Quote(text)
	}
	return strings.TrimSuffix(string(out), "\n")
}
