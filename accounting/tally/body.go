package tally

import (
	"reflect"
	"strconv"
	"unicode/utf8"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// bodies writes events as JSON for the audit trail: field names as they are,
// empty values left out, sets and vectors in the notation people know. The
// types are examined once, as they are met.
type bodies struct {
	types map[reflect.Type]*writer
	buf   []byte
}

// writer writes values of one type.
type writer struct {
	kind   reflect.Kind
	text   func(v reflect.Value) string // for types with a notation of their own
	elem   *writer
	fields []fieldWriter
}

type fieldWriter struct {
	index int
	name  string // "name":
	w     *writer
}

func newBodies() *bodies { return &bodies{types: map[reflect.Type]*writer{}} }

// text is an event as a JSON object.
func (b *bodies) text(e event.Event) string {
	v := reflect.ValueOf(e).Elem()
	b.buf = b.of(v.Type()).append(b.buf[:0], v)
	return string(b.buf)
}

// notations are the types that are written as a text.
//
//muster:table one line for each type
func notation(typ reflect.Type) func(v reflect.Value) string {
	switch typ {
	case reflect.TypeFor[spec.Hash](), reflect.TypeFor[[16]byte]():
		return hex
	case reflect.TypeFor[spec.JobState]():
		return func(v reflect.Value) string { return spec.JobState(v.Uint()).String() }
	case reflect.TypeFor[spec.StepID]():
		return func(v reflect.Value) string { return spec.StepID(v.Int()).String() }
	case reflect.TypeFor[spec.TaskSet]():
		return func(v reflect.Value) string { return v.Interface().(spec.TaskSet).String() }
	case reflect.TypeFor[spec.TRES]():
		return func(v reflect.Value) string { return v.Interface().(spec.TRES).String() }
	case reflect.TypeFor[spec.Limits]():
		return func(v reflect.Value) string { return v.Interface().(spec.Limits).String() }
	case reflect.TypeFor[spec.Bitset]():
		return func(v reflect.Value) string { return v.Interface().(spec.Bitset).Ranges() }
	case reflect.TypeFor[event.NodeAdminState]():
		return func(v reflect.Value) string { return pick(v.Uint(), "", "resume", "drain", "down", "fail") }
	case reflect.TypeFor[event.EndCause]():
		return func(v reflect.Value) string {
			return pick(v.Uint(), "", "cancel", "time limit", "preempt", "requeue", "node lost", "launch failed", "deadline", "out of memory")
		}
	case reflect.TypeFor[spec.Hold]():
		return func(v reflect.Value) string { return pick(v.Uint(), "", "user", "admin", "max requeue") }
	case reflect.TypeFor[spec.Tri]():
		return func(v reflect.Value) string { return pick(v.Uint(), "", "no", "yes") }
	}
	return nil
}

func pick(n uint64, names ...string) string {
	if n < uint64(len(names)) {
		return names[n]
	}
	return strconv.FormatUint(n, 10)
}

func hex(value reflect.Value) string {
	const digits = "0123456789abcdef"
	out := make([]byte, 0, 2*value.Len())
	for i := range value.Len() {
		c := byte(value.Index(i).Uint())
		out = append(out, digits[c>>4], digits[c&15])
	}
	return string(out)
}

func (b *bodies) of(typ reflect.Type) *writer {
	if w := b.types[typ]; w != nil {
		return w
	}
	w := &writer{kind: typ.Kind(), text: notation(typ)}
	b.types[typ] = w
	if w.text != nil {
		return w
	}
	switch typ.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array:
		w.elem = b.of(typ.Elem())
	case reflect.Struct:
		for i := range typ.NumField() {
			if f := typ.Field(i); f.IsExported() {
				w.fields = append(w.fields, fieldWriter{index: i, name: strconv.Quote(f.Name) +
					":", w: b.of(f.Type)})
			}
		}
	}
	return w
}

func (w *writer) append(dst []byte, value reflect.Value) []byte {
	if w.text != nil {
		return appendText(dst, w.text(value))
	}
	switch w.kind {
	case reflect.Bool:
		return strconv.AppendBool(dst, value.Bool())
	case reflect.String:
		return appendText(dst, value.String())
	case reflect.Pointer:
		return w.elem.append(dst, value.Elem())
	case reflect.Slice, reflect.Array:
		dst = append(dst, '[')
		for i := range value.Len() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = w.elem.append(dst, value.Index(i))
		}
		return append(dst, ']')
	case reflect.Struct:
		dst = append(dst, '{')
		first := true
		for i := range w.fields {
			field := &w.fields[i]
			fv := value.Field(field.index)
			if empty(fv) {
				continue
			}
			if !first {
				dst = append(dst, ',')
			}
			first = false
			dst = field.w.append(append(dst, field.name...), fv)
		}
		return append(dst, '}')
	}
	if value.CanInt() {
		return strconv.AppendInt(dst, value.Int(), 10)
	}
	return strconv.AppendUint(dst, value.Uint(), 10)
}

func empty(value reflect.Value) bool {
	switch value.Kind() {
	case reflect.Slice:
		return value.Len() == 0
	case reflect.Pointer:
		return value.IsNil()
	}
	return value.IsZero()
}

// appendText writes a JSON string. What is not UTF-8 becomes the replacement
// character.
func appendText(dst []byte, text string) []byte {
	dst = append(dst, '"')
	plain := 0
	for i := 0; i < len(text); {
		c := text[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			if _, n := utf8.DecodeRuneInString(text[i:]); n > 1 {
				i += n
				continue
			}
		}
		dst = append(dst, text[plain:i]...)
		dst = appendEscaped(dst, c)
		i++
		plain = i
	}
	return append(append(dst, text[plain:]...), '"')
}

func appendEscaped(dst []byte, c byte) []byte {
	const digits = "0123456789abcdef"
	switch {
	case c == '"' || c == '\\':
		return append(dst, '\\', c)
	case c == '\n':
		return append(dst, '\\', 'n')
	case c == '\t':
		return append(dst, '\\', 't')
	case c >= utf8.RuneSelf:
		return append(dst, "\ufffd"...)
	}
	return append(dst, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
}
