// Package eventtest makes values for tests of what reads events: random ones
// of every kind, and one of each kind with every field filled.
package eventtest

import (
	"fmt"
	"reflect"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/ledger/event"
)

// Source draws the leaves of a random value. T is the leaf's type, for
// sources that know what a node name or an id is.
type Source interface {
	Int(t *rapid.T, typ reflect.Type, bits int) int64
	Uint(t *rapid.T, typ reflect.Type, bits int) uint64
	String(t *rapid.T, typ reflect.Type, field string) string
}

// Wild draws from everything a type can hold.
type Wild struct{}

// Int implements Source.
func (Wild) Int(t *rapid.T, _ reflect.Type, bits int) int64 {
	return rapid.Int64Range(-1<<(bits-1), 1<<(bits-1)-1).Draw(t, "int")
}

// Uint implements Source.
func (Wild) Uint(t *rapid.T, _ reflect.Type, bits int) uint64 {
	return rapid.Uint64Range(0, ^uint64(0)>>(64-bits)).Draw(t, "uint")
}

// String implements Source; some strings are not UTF-8, as file names may be.
func (Wild) String(t *rapid.T, _ reflect.Type, _ string) string {
	if rapid.IntRange(0, 9).Draw(t, "bytes") == 0 {
		return string(rapid.SliceOfN(rapid.Byte(), 0, 8).Draw(t, "string"))
	}
	return rapid.StringN(0, 12, -1).Draw(t, "string")
}

// Fill fills value, a pointer, with random values. Pointers are nil and slices
// are nil or empty about as often as they are not.
func Fill(t *rapid.T, value any, src Source) { fill(t, reflect.ValueOf(value).Elem(), src, "") }

// Random returns a random event of a kind.
func Random(t *rapid.T, k event.Kind, src Source) event.Event {
	e := event.New(k)
	Fill(t, e, src)
	return e
}

// RandomEnvelope returns an envelope around a random event of any kind.
func RandomEnvelope(t *rapid.T, src Source) event.Envelope {
	var envelope event.Envelope
	envelope.Event = Random(t, rapid.SampledFrom(event.Kinds()).Draw(t, "kind"), src)
	envelope.Seq = rapid.Uint64().Draw(t, "seq")
	Fill(t, &envelope.At, src)
	Fill(t, &envelope.Actor, src)
	Fill(t, &envelope.Cause, src)
	return envelope
}

func fill(t *rapid.T, value reflect.Value, src Source, field string) {
	typ := value.Type()
	switch value.Kind() {
	case reflect.Bool:
		value.SetBool(rapid.Bool().Draw(t, field))
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Int:
		value.SetInt(src.Int(t, typ, typ.Bits()))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uint:
		value.SetUint(src.Uint(t, typ, typ.Bits()))
	case reflect.String:
		value.SetString(src.String(t, typ, field))
	case reflect.Pointer:
		if rapid.Bool().Draw(t, field) {
			value.Set(reflect.New(typ.Elem()))
			fill(t, value.Elem(), src, field)
		}
	case reflect.Slice:
		if n := rapid.IntRange(-1, 3).Draw(t, field); n >= 0 {
			value.Set(reflect.MakeSlice(typ, n, n))
		}
		for i := range value.Len() {
			fill(t, value.Index(i), src, field)
		}
	case reflect.Array:
		for i := range value.Len() {
			fill(t, value.Index(i), src, field)
		}
	case reflect.Struct:
		for i := range value.NumField() {
			if typ.Field(i).IsExported() {
				fill(t, value.Field(i), src, typ.Field(i).Name)
			}
		}
	default:
		panic(fmt.Sprintf("field %s: cannot fill a %s", field, typ))
	}
}

// Full returns an event of a kind with every field filled, nothing zero, and
// no two fields alike where the type allows. It is always the same.
func Full(kind event.Kind) event.Event {
	e := event.New(kind)
	n := 0
	full(reflect.ValueOf(e).Elem(), &n)
	return e
}

// FullEnvelope returns an envelope around Full.
func FullEnvelope(kind event.Kind) event.Envelope {
	envelope := event.Envelope{Seq: 1 << 33, Event: Full(kind)}
	n := 100
	full(reflect.ValueOf(&envelope.At).Elem(), &n)
	full(reflect.ValueOf(&envelope.Actor).Elem(), &n)
	full(reflect.ValueOf(&envelope.Cause).Elem(), &n)
	return envelope
}

// full counts up as it fills, so that neighbouring fields differ and numbers
// of one and of several bytes occur.
func full(value reflect.Value, n *int) {
	*n++
	switch value.Kind() {
	case reflect.Bool:
		value.SetBool(true)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Int:
		x := int64(*n) * int64(*n) * int64(*n) % (1<<(value.Type().Bits()-1) - 1)
		if *n%3 == 0 {
			x = -x
		}
		value.SetInt(x + 1)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uint:
		value.SetUint(uint64(*n)*uint64(*n)*uint64(*n)%(1<<(value.Type().Bits()-1)) + 1)
	case reflect.String:
		value.SetString(fmt.Sprintf("text %d ü", *n))
	case reflect.Pointer:
		value.Set(reflect.New(value.Type().Elem()))
		full(value.Elem(), n)
	case reflect.Slice:
		value.Set(reflect.MakeSlice(value.Type(), 2, 2))
		full(value.Index(0), n)
		full(value.Index(1), n)
	case reflect.Array:
		for i := range value.Len() {
			full(value.Index(i), n)
		}
	case reflect.Struct:
		for i := range value.NumField() {
			full(value.Field(i), n)
		}
	default:
		panic(fmt.Sprintf("cannot fill a %s", value.Type()))
	}
}
