package record

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"unicode/utf8"
)

// Decoder reads items one after the other from a slice of bytes, which it
// never changes nor keeps: strings are copied.
type Decoder struct {
	set    *Set
	data   []byte
	at     int
	shared map[string]string // nil: every string has a copy of its own
}

// NewDecoder returns a decoder at the start of data.
func (s *Set) NewDecoder(data []byte) *Decoder { return &Decoder{set: s, data: data} }

// Reset starts again with other bytes.
func (d *Decoder) Reset(data []byte) { d.data, d.at = data, 0 }

// ShareStrings makes equal short strings one string from now on: many records
// of the same users and partitions then need less memory.
func (d *Decoder) ShareStrings() { d.shared = make(map[string]string) }

// Limits of what ShareStrings remembers: long strings are rarely equal.
const (
	maxSharedLen = 40
	maxShared    = 1 << 16
)

// Len is the number of bytes not yet read.
func (d *Decoder) Len() int { return len(d.data) - d.at }

// malformedError makes an error with the place.
func (d *Decoder) malformedError(format string, args ...any) error {
	return fmt.Errorf("%w at byte %d: %s", ErrMalformed, d.at, fmt.Sprintf(format, args...))
}

// Head reads the head of an item.
func (d *Decoder) Head() (Major, uint64, error) {
	if d.at >= len(d.data) {
		return 0, 0, d.malformedError("it ends too early")
	}
	b := d.data[d.at]
	major, low := Major(b>>5), b&31
	if low < 24 {
		d.at++
		return major, uint64(low), nil
	}
	size := 1 << (low - 24)
	if low > 27 || len(d.data)-d.at < 1+size {
		return 0, 0, d.malformedError("it ends too early or has an item 0x%02x", b)
	}
	var n, least uint64
	switch rest := d.data[d.at+1:]; size {
	case 1:
		n, least = uint64(rest[0]), 24
	case 2:
		n, least = uint64(binary.BigEndian.Uint16(rest)), 1<<8
	case 4:
		n, least = uint64(binary.BigEndian.Uint32(rest)), 1<<16
	case 8:
		n, least = binary.BigEndian.Uint64(rest), 1<<32
	}
	if n < least {
		return 0, 0, d.malformedError("the number %d is not in its shortest form", n)
	}
	d.at += 1 + size
	return major, n, nil
}

// readHead reads a head of a given major type.
func (d *Decoder) readHead(major Major, what string) (uint64, error) {
	start := d.at
	got, n, err := d.Head()
	if err == nil && got != major {
		d.at = start
		return 0, d.malformedError("want %s, found an item 0x%02x", what, d.data[start])
	}
	return n, err
}

// Uint reads a number that is not negative.
func (d *Decoder) Uint() (uint64, error) { return d.readHead(MajorUint, "a number") }

// Int reads a signed number.
func (d *Decoder) Int() (int64, error) {
	start := d.at
	major, n, err := d.Head()
	switch {
	case err != nil:
		return 0, err
	case major > MajorNegative || n > 1<<63-1:
		d.at = start
		return 0, d.malformedError("want a signed number of 64 bits")
	case major == MajorNegative:
		return ^int64(n), nil
	}
	return int64(n), nil
}

// Array reads the head of an array: the number of items that follow. It is
// never more than the bytes that are left.
func (d *Decoder) Array() (int, error) { return d.readCount(MajorArray, "a list") }

// Map reads the head of a map: the number of pairs that follow.
func (d *Decoder) Map() (int, error) { return d.readCount(MajorMap, "a record") }

func (d *Decoder) readCount(major Major, what string) (int, error) {
	n, err := d.readHead(major, what)
	if err == nil && n > uint64(d.Len()) {
		return 0, d.malformedError("%s of %d items in %d bytes", what, n, d.Len())
	}
	return int(n), err
}

// String reads a string.
func (d *Decoder) String() (string, error) {
	data, err := d.readBytes()
	if err != nil {
		return "", err
	}
	if d.shared == nil || len(data) > maxSharedLen {
		return string(data), nil
	}
	if s, ok := d.shared[string(data)]; ok {
		return s, nil
	}
	text := string(data)
	if len(d.shared) < maxShared {
		d.shared[text] = text
	}
	return text, nil
}

func (d *Decoder) readBytes() ([]byte, error) {
	start := d.at
	major, n, err := d.Head()
	if err != nil {
		return nil, err
	}
	if (major != MajorText && major != MajorBytes) || n > uint64(d.Len()) {
		d.at = start
		return nil, d.malformedError(
			"want a string, found an item 0x%02x of %d bytes in %d",
			d.data[start],
			n,
			d.Len(),
		)
	}
	data := d.data[d.at : d.at+int(n)]
	if major == MajorText && !utf8.Valid(data) {
		return nil, d.malformedError("a text is not UTF-8")
	}
	d.at += int(n)
	return data, nil
}

// consumeNull consumes a null, if that is what comes next.
func (d *Decoder) consumeNull() bool {
	if d.at < len(d.data) && d.data[d.at] == simpleNull {
		d.at++
		return true
	}
	return false
}

// Value reads into v, a pointer to one of the compiled structs, which must be
// zero.
func (d *Decoder) Value(v any) error {
	rv := reflect.ValueOf(v)
	if rv.Kind() != reflect.Pointer || rv.IsNil() {
		return fmt.Errorf("%T: want a pointer to a struct: %w", v, ErrType)
	}
	rv = rv.Elem()
	c, ok := d.set.coders[rv.Type()]
	if !ok {
		return fmt.Errorf("%T was not compiled: %w", v, ErrType)
	}
	return c.decodeValue(d, rv)
}

func (c *coder) decodeValue(decoder *Decoder, value reflect.Value) error {
	switch c.op {
	case opBool:
		return c.decodeBool(decoder, value)
	case opInt:
		n, err := decoder.Int()
		if err != nil {
			return err
		}
		if value.OverflowInt(n) {
			return decoder.malformedError("%d does not fit", n)
		}
		value.SetInt(n)
	case opUint:
		n, err := decoder.Uint()
		if err != nil {
			return err
		}
		if value.OverflowUint(n) {
			return decoder.malformedError("%d does not fit", n)
		}
		value.SetUint(n)
	case opString:
		text, err := decoder.String()
		if err != nil {
			return err
		}
		value.SetString(text)
	case opBytes:
		n, err := decoder.readHead(MajorBytes, "bytes")
		if err != nil {
			return err
		}
		if n != uint64(value.Len()) || n > uint64(decoder.Len()) {
			return decoder.malformedError("%d bytes in place of %d", n, value.Len())
		}
		copy(value.Bytes(), decoder.data[decoder.at:])
		decoder.at += int(n)
	case opPointer:
		if decoder.consumeNull() {
			return nil
		}
		p := reflect.New(c.elem.typ)
		value.Set(p)
		return c.elem.decodeValue(decoder, p.Elem())
	case opSlice, opArray:
		return c.decodeList(decoder, value)
	default:
		return c.decodeStruct(decoder, value)
	}
	return nil
}

func (c *coder) decodeBool(decoder *Decoder, value reflect.Value) error {
	if decoder.at < len(decoder.data) {
		if b := decoder.data[decoder.at]; b == simpleTrue || b == simpleFalse {
			decoder.at++
			value.SetBool(b == simpleTrue)
			return nil
		}
	}
	return decoder.malformedError("want true or false")
}

func (c *coder) decodeList(decoder *Decoder, value reflect.Value) error {
	if c.op == opSlice && decoder.consumeNull() {
		return nil
	}
	n, err := decoder.Array()
	if err != nil {
		return err
	}
	switch {
	case c.op == opArray:
		if n != value.Len() {
			return decoder.malformedError("%d items in place of %d", n, value.Len())
		}
	case n == 0:
		value.Set(reflect.MakeSlice(c.typ, 0, 0))
		return nil
	default:
		value.Grow(n)
		value.SetLen(n)
	}
	for i := range n {
		if err := c.elem.decodeValue(decoder, value.Index(i)); err != nil {
			return err
		}
	}
	return nil
}

func (c *coder) decodeStruct(decoder *Decoder, value reflect.Value) error {
	n, err := decoder.Map()
	if err != nil {
		return err
	}
	next := 0 // index of the first field that may still come
	last := uint64(0)
	for i := range n {
		start := decoder.at
		key, err := decoder.Uint()
		if err != nil {
			return err
		}
		if i > 0 && key <= last {
			decoder.at = start
			return decoder.malformedError("key %d of %s after key %d", key, c.typ.Name(), last)
		}
		last = key
		for next < len(c.fields) && c.fields[next].key < key {
			next++
		}
		if next == len(c.fields) || c.fields[next].key != key {
			return fmt.Errorf("key %d of %s: %w", key, c.typ.Name(), ErrUnknownField)
		}
		f := &c.fields[next]
		if err := f.c.decodeValue(decoder, value.Field(f.index)); err != nil {
			return fmt.Errorf("%s.%s: %w", c.typ.Name(), f.name, err)
		}
	}
	return nil
}
