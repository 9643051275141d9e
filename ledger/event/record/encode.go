package record

import (
	"fmt"
	"reflect"
	"unicode/utf8"
)

// Major is the major type of a CBOR item.
type Major uint8

// The major types that records use.
const (
	MajorUint Major = iota
	MajorNegative
	MajorBytes
	MajorText
	MajorArray
	MajorMap
)

const (
	simpleFalse = 0xf4
	simpleTrue  = 0xf5
	simpleNull  = 0xf6
)

// AppendHead writes the head of an item: its major type and number.
func AppendHead(dst []byte, major Major, n uint64) []byte {
	b := byte(major) << 5
	switch {
	case n < 24:
		return append(dst, b|byte(n))
	case n < 1<<8:
		return append(dst, b|24, byte(n))
	case n < 1<<16:
		return append(dst, b|25, byte(n>>8), byte(n))
	case n < 1<<32:
		return append(dst, b|26, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
	}
	return append(
		dst,
		b|27,
		byte(n>>56),
		byte(n>>48),
		byte(n>>40),
		byte(n>>32),
		byte(n>>24),
		byte(n>>16),
		byte(n>>8),
		byte(n),
	)
}

// AppendInt writes a signed number.
func AppendInt(dst []byte, n int64) []byte {
	if n < 0 {
		return AppendHead(dst, MajorNegative, uint64(^n))
	}
	return AppendHead(dst, MajorUint, uint64(n))
}

// AppendString writes a string: as text where it is valid UTF-8.
func AppendString(dst []byte, text string) []byte {
	major := MajorText
	if !utf8.ValidString(text) {
		major = MajorBytes
	}
	return append(AppendHead(dst, major, uint64(len(text))), text...)
}

// Append writes a value; v is a pointer to one of the compiled structs.
func (s *Set) Append(dst []byte, v any) ([]byte, error) {
	rv := reflect.ValueOf(v)
	if rv.Kind() != reflect.Pointer || rv.IsNil() {
		return dst, fmt.Errorf("%T: want a pointer to a struct: %w", v, ErrType)
	}
	rv = rv.Elem()
	c, ok := s.coders[rv.Type()]
	if !ok {
		return dst, fmt.Errorf("%T was not compiled: %w", v, ErrType)
	}
	return c.appendValue(dst, rv), nil
}

func (c *coder) appendValue(dst []byte, value reflect.Value) []byte {
	switch c.op {
	case opBool:
		if value.Bool() {
			return append(dst, simpleTrue)
		}
		return append(dst, simpleFalse)
	case opInt:
		return AppendInt(dst, value.Int())
	case opUint:
		return AppendHead(dst, MajorUint, value.Uint())
	case opString:
		return AppendString(dst, value.String())
	case opBytes:
		n := value.Len()
		dst = AppendHead(dst, MajorBytes, uint64(n))
		if value.CanAddr() {
			return append(dst, value.Bytes()...)
		}
		for i := range n {
			dst = append(dst, byte(value.Index(i).Uint()))
		}
		return dst
	case opPointer:
		if value.IsNil() {
			return append(dst, simpleNull)
		}
		return c.elem.appendValue(dst, value.Elem())
	case opSlice, opArray:
		return c.appendList(dst, value)
	default:
		return c.appendStruct(dst, value)
	}
}

func (c *coder) appendList(dst []byte, value reflect.Value) []byte {
	if c.op == opSlice && value.IsNil() {
		return append(dst, simpleNull)
	}
	n := value.Len()
	dst = AppendHead(dst, MajorArray, uint64(n))
	for i := range n {
		dst = c.elem.appendValue(dst, value.Index(i))
	}
	return dst
}

func (c *coder) appendStruct(dst []byte, value reflect.Value) []byte {
	var present uint64
	n := uint64(0)
	for i := range c.fields {
		f := &c.fields[i]
		if !f.omit || !f.c.isEmpty(value.Field(f.index)) {
			present |= 1 << i
			n++
		}
	}
	dst = AppendHead(dst, MajorMap, n)
	for i := range c.fields {
		if present&(1<<i) != 0 {
			f := &c.fields[i]
			dst = append(dst, f.head...)
			dst = f.c.appendValue(dst, value.Field(f.index))
		}
	}
	return dst
}

// isEmpty tells a value that omitempty leaves out.
func (c *coder) isEmpty(value reflect.Value) bool {
	switch c.op {
	case opBool:
		return !value.Bool()
	case opInt:
		return value.Int() == 0
	case opUint:
		return value.Uint() == 0
	case opString, opSlice:
		return value.Len() == 0
	case opPointer:
		return value.IsNil()
	default:
		return false
	}
}
