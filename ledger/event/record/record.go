// Package record writes Go structs as CBOR (RFC 8949) maps with integer keys,
// and reads them back. It is what the ledger's events and snapshots are made
// of, and it knows only what they need: booleans, integers, strings, byte
// arrays, slices, arrays, pointers and structs of these.
//
// Each exported field carries its key in a cbor tag, `cbor:"7,keyasint"`, with
// `omitempty` where an empty value is left out and "-" where the field is not
// part of the record. Equal values give equal bytes: keys ascend, numbers take
// their shortest form. A string that is not valid UTF-8 (a file name may be
// anything) is written as a byte string, so nothing is lost and what is
// written is always valid CBOR.
//
// Reading is strict: an unknown key is ErrUnknownField, because a newer
// release wrote it; keys out of order, numbers that are too large or not in
// their shortest form are ErrMalformed. The types are examined once, by
// Compile, which is why reading is several times quicker than a general
// decoder.
package record

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Errors of this package; compare with errors.Is.
var (
	// ErrUnknownField tells a key that the type does not have.
	ErrUnknownField = errors.New("a field that this release does not know")
	// ErrMalformed tells bytes that no record of the type can have.
	ErrMalformed = errors.New("malformed record")
	// ErrType tells a type that records cannot hold.
	ErrType = errors.New("type cannot be a record")
)

type op uint8

const (
	opBool op = iota + 1
	opInt
	opUint
	opString
	opBytes // an array of bytes
	opSlice
	opArray
	opPointer
	opStruct
)

// coder is a type, examined.
type coder struct {
	op     op
	typ    reflect.Type
	elem   *coder
	fields []field // of a struct, by ascending key
}

type field struct {
	key   uint64
	head  []byte // the key, encoded
	index int
	omit  bool
	name  string
	c     *coder
}

// Set is a number of compiled types. It is immutable and safe to share.
type Set struct {
	coders map[reflect.Type]*coder
}

// Compile examines the struct types of the samples, which are pointers to
// them, with everything they contain.
func Compile(samples ...any) (*Set, error) {
	set := &Set{coders: make(map[reflect.Type]*coder)}
	for _, v := range samples {
		t := reflect.TypeOf(v)
		if t == nil || t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct {
			return nil, fmt.Errorf("%T: want a pointer to a struct: %w", v, ErrType)
		}
		if _, err := set.compileCoder(t.Elem(), nil); err != nil {
			return nil, fmt.Errorf("%s: %w", t.Elem(), err)
		}
	}
	return set, nil
}

// compileCoder returns the coder of a type; open are the types being compiled.
func (s *Set) compileCoder(t reflect.Type, open []reflect.Type) (*coder, error) {
	if c, ok := s.coders[t]; ok {
		return c, nil
	}
	if slices.Contains(open, t) {
		return nil, fmt.Errorf("%s contains itself: %w", t, ErrType)
	}
	c := &coder{typ: t}
	var err error
	switch t.Kind() {
	case reflect.Bool:
		c.op = opBool
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		c.op = opInt
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		c.op = opUint
	case reflect.String:
		c.op = opString
	case reflect.Slice:
		c.op = opSlice
	case reflect.Array:
		c.op = opArray
		if t.Elem().Kind() == reflect.Uint8 {
			c.op = opBytes
		}
	case reflect.Pointer:
		c.op = opPointer
	case reflect.Struct:
		c.op = opStruct
		c.fields, err = s.compileFields(t, append(open, t))
	default:
		return nil, fmt.Errorf("%s is a %s: %w", t, t.Kind(), ErrType)
	}
	if c.op == opSlice || c.op == opArray || c.op == opPointer {
		c.elem, err = s.compileCoder(t.Elem(), append(open, t))
	}
	if err != nil {
		return nil, err
	}
	s.coders[t] = c
	return c, nil
}

func (s *Set) compileFields(t reflect.Type, open []reflect.Type) ([]field, error) {
	var out []field
	for i := range t.NumField() {
		sf := t.Field(i)
		tag := sf.Tag.Get("cbor")
		if !sf.IsExported() || tag == "-" {
			continue
		}
		key, opts, _ := strings.Cut(tag, ",")
		n, err := strconv.ParseUint(key, 10, 16)
		if err != nil || !slices.Contains(strings.Split(opts, ","), "keyasint") {
			return nil, fmt.Errorf("field %s.%s has no integer key: %w", t, sf.Name, ErrType)
		}
		c, err := s.compileCoder(sf.Type, open)
		if err != nil {
			return nil, fmt.Errorf("field %s: %w", sf.Name, err)
		}
		omit := slices.Contains(strings.Split(opts, ","), "omitempty") && c.op != opStruct &&
			c.op != opArray &&
			c.op != opBytes
		out = append(
			out,
			field{
				key:   n,
				head:  AppendHead(nil, MajorUint, n),
				index: i,
				omit:  omit,
				name:  sf.Name,
				c:     c,
			},
		)
	}
	slices.SortFunc(out, func(a, b field) int { return int(a.key) - int(b.key) })
	for i := 1; i < len(out); i++ {
		if out[i].key == out[i-1].key {
			return nil, fmt.Errorf(
				"fields %s and %s of %s share key %d: %w",
				out[i-1].name,
				out[i].name,
				t,
				out[i].key,
				ErrType,
			)
		}
	}
	if len(out) > 64 {
		return nil, fmt.Errorf("%s has %d fields, more than 64: %w", t, len(out), ErrType)
	}
	return out, nil
}
