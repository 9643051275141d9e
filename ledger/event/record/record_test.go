package record

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
)

type inner struct {
	B bool  `cbor:"1,keyasint"`
	N int8  `cbor:"2,keyasint,omitempty"`
	P *bool `cbor:"3,keyasint,omitempty"`
}

type outer struct {
	Z     [4]byte    `cbor:"9,keyasint"`
	S     string     `cbor:"1,keyasint,omitempty"`
	L     []inner    `cbor:"2,keyasint"`
	U     uint64     `cbor:"3,keyasint,omitempty"`
	A     [2]uint16  `cbor:"4,keyasint"`
	I     *inner     `cbor:"5,keyasint,omitempty"`
	LL    [][]string `cbor:"6,keyasint,omitempty"`
	Skip  int        `cbor:"-"`
	inner int        //nolint:unused // not exported, so not part of the record
}

func compileOuter(t *testing.T) *Set {
	t.Helper()
	s, err := Compile(1, new(outer))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestBytes pins the encoding down, byte for byte.
func TestBytes(t *testing.T) {
	no := false
	v := &outer{Z: [4]byte{1, 2, 3, 4}, S: "é", L: []inner{{N: -100}, {B: true, P: &no}}, U: math.MaxUint64,
		A: [2]uint16{24, 256}, I: &inner{}, LL: [][]string{nil, {}, {"\xff"}}, Skip: 5}
	got, err := compileOuter(t).Append(nil, v)
	if err != nil {
		t.Fatal(err)
	}
	want := []byte("\xa7" + // seven fields, by ascending key
		"\x01\x62é" +
		"\x02\x82\xa2\x01\xf4\x02\x38\x63\xa2\x01\xf5\x03\xf4" +
		"\x03\x1b\xff\xff\xff\xff\xff\xff\xff\xff" +
		"\x04\x82\x18\x18\x19\x01\x00" +
		"\x05\xa1\x01\xf4" +
		"\x06\x83\xf6\x80\x81\x41\xff" + // nil, empty, a string that is no text
		"\x09\x44\x01\x02\x03\x04")
	if !bytes.Equal(got, want) {
		t.Errorf("\n%x, want\n%x", got, want)
	}
}

func TestDecodeRefuses(t *testing.T) {
	s := compileOuter(t)
	tests := []struct {
		name, data string
		want       error
		text       string
	}{
		{"unknown key", "\xa1\x07\x01", ErrUnknownField, "key 7 of outer"},
		{"unknown key inside", "\xa1\x05\xa1\x04\x01", ErrUnknownField, "outer.I: key 4 of inner"},
		{"unknown key beyond the last", "\xa1\x18\x63\x01", ErrUnknownField, "key 99 of outer"},
		{"keys descend", "\xa2\x03\x01\x01\x60", ErrMalformed, "key 1 of outer after key 3"},
		{"number too large", "\xa1\x05\xa1\x02\x18\x80", ErrMalformed, "128 does not fit"},
		{"number too small", "\xa1\x05\xa1\x02\x38\x80", ErrMalformed, "-129 does not fit"},
		{"unsigned too large", "\xa1\x04\x82\x00\x1a\x00\x01\x00\x00", ErrMalformed, "65536 does not fit"},
		{"negative for unsigned", "\xa1\x03\x20", ErrMalformed, "want a number"},
		{"list too long", "\xa1\x04\x83\x00\x00\x00", ErrMalformed, "3 items in place of 2"},
		{"list longer than the bytes", "\xa1\x02\x9a\xff\xff\xff\xff", ErrMalformed, "items in"},
		{"bytes too short", "\xa1\x09\x43\x01\x02\x03", ErrMalformed, "3 bytes in place of 4"},
		{"null for a number", "\xa1\x03\xf6", ErrMalformed, "want a number"},
		{"number for a bool", "\xa1\x05\xa1\x01\x01", ErrMalformed, "want true or false"},
		{"float", "\xa1\x03\xfa\x3f\x80\x00\x00", ErrMalformed, "want a number"},
		{"tag", "\xa1\x03\xc1\x01", ErrMalformed, "want a number"},
		{"text longer than the bytes", "\xa1\x01\x65abc", ErrMalformed, "want a string"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := s.NewDecoder([]byte(tt.data)).Value(new(outer))
			if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("%v, want %v with %q", err, tt.want, tt.text)
			}
		})
	}
}

func TestShareStrings(t *testing.T) {
	s := compileOuter(t)
	data, err := s.Append(nil, &outer{LL: [][]string{{"alice", "alice", strings.Repeat("x", 100)}}})
	if err != nil {
		t.Fatal(err)
	}
	d := s.NewDecoder(data)
	d.ShareStrings()
	var v outer
	if err := d.Value(&v); err != nil || v.LL[0][0] != "alice" || v.LL[0][1] != "alice" || len(v.LL[0][2]) != 100 {
		t.Fatalf("%v, %v", v.LL, err)
	}
	if len(d.shared) != 1 {
		t.Errorf("%d strings are shared, want 1", len(d.shared))
	}
	clear(data)
	if v.LL[0][0] != "alice" {
		t.Error("a string lies in the decoder's bytes")
	}
}

func TestCompileRefuses(t *testing.T) {
	type loop struct {
		L []*loop `cbor:"1,keyasint"`
	}
	for name, v := range map[string]any{
		"not a pointer":  outer{},
		"nothing":        nil,
		"pointer to int": new(int),
		"map": new(struct {
			M map[string]int `cbor:"1,keyasint"`
		}),
		"float": new(struct {
			F float64 `cbor:"1,keyasint"`
		}),
		"no key": new(struct{ N int }),
		"key as text": new(struct {
			N int `cbor:"1"`
		}),
		"same key": new(struct {
			A, B int `cbor:"1,keyasint"`
		}),
		"contains itself": new(loop),
	} {
		if _, err := Compile(1, v); !errors.Is(err, ErrType) {
			t.Errorf("%s: %v, want ErrType", name, err)
		}
	}
	s := compileOuter(t)
	if _, err := s.Append(nil, new(struct{})); !errors.Is(err, ErrType) {
		t.Errorf("append of a type that was not compiled: %v", err)
	}
	if err := s.NewDecoder(nil).Value((*outer)(nil)); !errors.Is(err, ErrType) {
		t.Errorf("decode into nil: %v", err)
	}
}
