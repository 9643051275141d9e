package record

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Needs is the version of the vocabulary that a reader of a value must know, and the field
// that asks for it; v is a pointer to one of the compiled structs.
func (s *Set) Needs(v any) (version uint32, field string, err error) {
	rv := reflect.ValueOf(v)
	if rv.Kind() != reflect.Pointer || rv.IsNil() {
		return 0, "", fmt.Errorf("%T: want a pointer to a struct: %w", v, ErrType)
	}
	rv = rv.Elem()
	c, ok := s.coders[rv.Type()]
	if !ok {
		return 0, "", fmt.Errorf("%T was not compiled: %w", v, ErrType)
	}
	version, field = c.needs(rv)
	return version, field, nil
}

func (c *coder) needs(value reflect.Value) (version uint32, field string) {
	version = 1
	if c.newest == 1 {
		return version, ""
	}
	look := func(elem *coder, v reflect.Value) {
		if n, name := elem.needs(v); n > version {
			version, field = n, name
		}
	}
	switch c.op {
	case opPointer:
		if !value.IsNil() {
			look(c.elem, value.Elem())
		}
	case opSlice, opArray:
		for i := range value.Len() {
			look(c.elem, value.Index(i))
		}
	case opStruct:
		for i := range c.fields {
			f := &c.fields[i]
			if f.omit && f.c.isEmpty(value.Field(f.index)) {
				continue
			}
			if f.since > version {
				version, field = f.since, c.typ.Name()+"."+f.name
			}
			look(f.c, value.Field(f.index))
		}
	case opBool, opInt, opUint, opString, opBytes: // have no fields
	}
	return version, field
}

// Reduce empties the fields of a value that came after a version; v is a pointer to one of the
// compiled structs, with which it must share nothing.
func (s *Set) Reduce(v any, version uint32) error {
	rv := reflect.ValueOf(v)
	if rv.Kind() != reflect.Pointer || rv.IsNil() {
		return fmt.Errorf("%T: want a pointer to a struct: %w", v, ErrType)
	}
	rv = rv.Elem()
	c, ok := s.coders[rv.Type()]
	if !ok {
		return fmt.Errorf("%T was not compiled: %w", v, ErrType)
	}
	c.reduce(rv, version)
	return nil
}

func (c *coder) reduce(value reflect.Value, version uint32) {
	if c.newest <= version {
		return
	}
	switch c.op {
	case opPointer:
		if !value.IsNil() {
			c.elem.reduce(value.Elem(), version)
		}
	case opSlice, opArray:
		for i := range value.Len() {
			c.elem.reduce(value.Index(i), version)
		}
	case opStruct:
		for i := range c.fields {
			f := &c.fields[i]
			if f.since > version {
				value.Field(f.index).SetZero()
			} else {
				f.c.reduce(value.Field(f.index), version)
			}
		}
	case opBool, opInt, opUint, opString, opBytes: // have no fields
	}
}

// Vocabulary lists every field of the compiled types that a version knows, one a line and
// sorted: type, key, name and what the field holds.
func (s *Set) Vocabulary(version uint32) []string {
	var out []string
	//muster:unordered sorted below
	for typ, c := range s.coders {
		for i := range c.fields {
			f := &c.fields[i]
			if f.since <= version {
				out = append(
					out, fmt.Sprintf("%s %d %s %s", nameOf(typ), f.key, f.name, shapeOf(f)),
				)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// nameOf is a type without the path of its package.
func nameOf(typ reflect.Type) string { return typ.String() }

// shapeOf is the form in which a field is written: fields of one shape are read alike.
func shapeOf(f *field) string {
	names := [...]string{
		opBool: "bool", opInt: "int", opUint: "uint", opString: "string", opBytes: "bytes",
		opSlice: "list of", opArray: "list of", opPointer: "", opStruct: "",
	}
	var parts []string
	for c := f.c; c != nil; c = c.elem {
		switch {
		case c.op == opStruct:
			parts = append(parts, nameOf(c.typ))
		case names[c.op] != "":
			parts = append(parts, names[c.op])
		}
	}
	if !f.omit {
		parts = append(parts, "always")
	}
	return strings.Join(parts, " ")
}
