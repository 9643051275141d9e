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
// A field that came with a later version of the vocabulary says so in a tag of its own,
// `since:"2"`. Needs tells which version a value needs, so that a writer can keep from
// older readers what they would refuse.
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
	// newest is the latest version that a field in it came with: a value of a type whose
	// newest is 1 need not be looked at.
	newest uint32
}

type field struct {
	key   uint64
	head  []byte // the key, encoded
	index int
	omit  bool
	name  string
	since uint32 // the version of the vocabulary that it came with
	c     *coder
}

// Set is a number of compiled types. It is immutable and safe to share.
type Set struct {
	version uint32 // that it knows
	coders  map[reflect.Type]*coder
}

// Compile examines the struct types of the samples, which are pointers to
// them, with everything they contain, as a release sees them that knows a version of the
// vocabulary: fields that came later do not exist for it.
func Compile(version uint32, samples ...any) (*Set, error) {
	set := &Set{version: version, coders: make(map[reflect.Type]*coder)}
	for _, v := range samples {
		typ := reflect.TypeOf(v)
		if typ == nil || typ.Kind() != reflect.Pointer || typ.Elem().Kind() != reflect.Struct {
			return nil, fmt.Errorf("%T: want a pointer to a struct: %w", v, ErrType)
		}
		if _, err := set.compileCoder(typ.Elem(), nil); err != nil {
			return nil, fmt.Errorf("%s: %w", typ.Elem(), err)
		}
	}
	return set, nil
}

// compileCoder returns the coder of a type; open are the types being compiled.
func (s *Set) compileCoder(typ reflect.Type, open []reflect.Type) (*coder, error) {
	if c, ok := s.coders[typ]; ok {
		return c, nil
	}
	if slices.Contains(open, typ) {
		return nil, fmt.Errorf("%s contains itself: %w", typ, ErrType)
	}
	c := &coder{typ: typ}
	var err error
	switch typ.Kind() {
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
		if typ.Elem().Kind() == reflect.Uint8 {
			c.op = opBytes
		}
	case reflect.Pointer:
		c.op = opPointer
	case reflect.Struct:
		c.op = opStruct
		c.fields, err = s.compileFields(typ, append(open, typ))
	default:
		return nil, fmt.Errorf("%s is a %s: %w", typ, typ.Kind(), ErrType)
	}
	if c.op == opSlice || c.op == opArray || c.op == opPointer {
		c.elem, err = s.compileCoder(typ.Elem(), append(open, typ))
	}
	if err != nil {
		return nil, err
	}
	c.newest = 1
	if c.elem != nil {
		c.newest = c.elem.newest
	}
	for i := range c.fields {
		c.newest = max(c.newest, c.fields[i].since, c.fields[i].c.newest)
	}
	s.coders[typ] = c
	return c, nil
}

func (s *Set) compileFields(typ reflect.Type, open []reflect.Type) ([]field, error) {
	var fields []field
	for i := range typ.NumField() {
		sf := typ.Field(i)
		tag := sf.Tag.Get("cbor")
		if !sf.IsExported() || tag == "-" {
			continue
		}
		key, opts, _ := strings.Cut(tag, ",")
		n, err := strconv.ParseUint(key, 10, 16)
		if err != nil || !slices.Contains(strings.Split(opts, ","), "keyasint") {
			return nil, fmt.Errorf("field %s.%s has no integer key: %w", typ, sf.Name, ErrType)
		}
		c, err := s.compileCoder(sf.Type, open)
		if err != nil {
			return nil, fmt.Errorf("field %s: %w", sf.Name, err)
		}
		omit := slices.Contains(strings.Split(opts, ","), "omitempty") && c.op != opStruct &&
			c.op != opArray &&
			c.op != opBytes
		since, err := readSince(sf.Tag.Get("since"))
		if err == nil && since > 1 && !omit {
			err = errors.New("a field of a later version must be left out when it is empty")
		}
		if err != nil {
			return nil, fmt.Errorf("field %s.%s: %w: %w", typ, sf.Name, err, ErrType)
		}
		if since > s.version {
			continue
		}
		fields = append(
			fields,
			field{
				key:   n,
				head:  AppendHead(nil, MajorUint, n),
				index: i,
				omit:  omit,
				name:  sf.Name,
				since: since,
				c:     c,
			},
		)
	}
	slices.SortFunc(fields, func(a, b field) int { return int(a.key) - int(b.key) })
	for i := 1; i < len(fields); i++ {
		if fields[i].key == fields[i-1].key {
			return nil, fmt.Errorf(
				"fields %s and %s of %s share key %d: %w",
				fields[i-1].name,
				fields[i].name,
				typ,
				fields[i].key,
				ErrType,
			)
		}
	}
	if len(fields) > 64 {
		return nil, fmt.Errorf("%s has %d fields, more than 64: %w", typ, len(fields), ErrType)
	}
	return fields, nil
}

// readSince reads the tag that names the version in which a field came.
func readSince(tag string) (uint32, error) {
	if tag == "" {
		return 1, nil
	}
	n, err := strconv.ParseUint(tag, 10, 32)
	if err != nil || n < 2 {
		return 0, fmt.Errorf("since:%q is not a version after the first", tag)
	}
	return uint32(n), nil
}
