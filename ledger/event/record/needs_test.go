package record

import (
	"errors"
	"slices"
	"testing"
)

type young struct {
	A int `cbor:"1,keyasint,omitempty"`
	B int `cbor:"2,keyasint,omitempty" since:"3"`
}

type late struct {
	List  []young `cbor:"1,keyasint,omitempty"`
	One   *young  `cbor:"2,keyasint,omitempty"`
	Value young   `cbor:"3,keyasint"`
	Late  string  `cbor:"4,keyasint,omitempty" since:"2"`
	Kept  int     `cbor:"-"`
}

type alwaysLate struct {
	A int `cbor:"1,keyasint" since:"2"`
}

type wrongSince struct {
	A int `cbor:"1,keyasint,omitempty" since:"1"`
}

func TestNeeds(t *testing.T) {
	set, err := Compile(3, new(late))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		v     late
		want  uint32
		field string
	}{
		{"nothing new", late{List: []young{{A: 1}}, One: &young{A: 2}, Value: young{A: 3}}, 1, ""},
		{"a field", late{Late: "x"}, 2, "late.Late"},
		{"in a list", late{List: []young{{}, {B: 1}}}, 3, "young.B"},
		{"behind a pointer", late{Late: "x", One: &young{B: 1}}, 3, "young.B"},
		{"in a struct", late{Value: young{B: 1}}, 3, "young.B"},
	} {
		if got, field, err := set.Needs(&c.v); got != c.want || field != c.field || err != nil {
			t.Errorf("%s: needs %d for %q (%v), want %d for %q", c.name, got, field, err, c.want, c.field)
		}
	}
	full := late{List: []young{{A: 1, B: 2}}, One: &young{A: 3, B: 4}, Value: young{A: 5, B: 6}, Late: "x", Kept: 7}
	if err := set.Reduce(&full, 2); err != nil || full.List[0] != (young{A: 1}) || *full.One != (young{A: 3}) || full.Value != (young{A: 5}) || full.Late != "x" || full.Kept != 7 {
		t.Errorf("reduced to version 2: %+v (%v)", full, err)
	}
	if err := set.Reduce(&full, 1); err != nil || full.Late != "" {
		t.Errorf("reduced to version 1: %+v (%v)", full, err)
	}
	if _, _, err := set.Needs(late{}); !errors.Is(err, ErrType) {
		t.Errorf("a value instead of a pointer: %v", err)
	}
	if got := set.Vocabulary(2); slices.Contains(got, "record.young 2 B int") || !slices.Contains(got, "record.late 4 Late string") {
		t.Errorf("version 2 knows %q", got)
	}
	if got := set.Vocabulary(3); !slices.Contains(got, "record.young 2 B int") {
		t.Errorf("version 3 knows %q", got)
	}
	for _, sample := range []any{new(alwaysLate), new(wrongSince)} {
		if _, err := Compile(3, sample); !errors.Is(err, ErrType) {
			t.Errorf("%T compiles: %v", sample, err)
		}
	}
}
