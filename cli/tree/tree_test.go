package tree

import (
	"encoding/json"
	"io"
	"reflect"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"
)

func any3(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		kind := rapid.IntRange(0, 7).Draw(t, "kind")
		if depth == 0 && kind > 5 {
			kind = 0
		}
		switch kind {
		case 0:
			return rapid.String().Draw(t, "text")
		case 1:
			return rapid.Bool().Draw(t, "bool")
		case 2:
			return rapid.Int64Range(-1<<50, 1<<50).Draw(t, "int")
		case 3:
			return float64(rapid.Int32().Draw(t, "f")) / 8
		case 4:
			return nil
		case 5:
			return uint32(rapid.Uint32().Draw(t, "u"))
		case 6:
			out := List{}
			for range rapid.IntRange(0, 3).Draw(t, "n") {
				out = append(out, any3(depth-1).Draw(t, "x"))
			}
			return out
		}
		out := Object{}
		for _, k := range rapid.SliceOfNDistinct(rapid.StringMatching("[a-zA-Z:#' -]{1,6}"), 0, 3, rapid.ID).Draw(t, "keys") {
			out = append(out, Member{k, any3(depth-1).Draw(t, "v")})
		}
		return out
	})
}

// plain is what a reader of JSON or YAML makes of v.
func plain(v any) any {
	switch v := v.(type) {
	case Object:
		m := map[string]any{}
		for _, x := range v {
			m[x.Key] = plain(x.Value)
		}
		return m
	case List:
		l := []any{}
		for _, x := range v {
			l = append(l, plain(x))
		}
		return l
	case int64:
		return float64(v)
	case uint32:
		return float64(v)
	}
	return v
}

func floats(v any) any {
	switch v := v.(type) {
	case int:
		return float64(v)
	case map[string]any:
		for k := range v {
			v[k] = floats(v[k])
		}
	case []any:
		for i := range v {
			v[i] = floats(v[i])
		}
	}
	return v
}

// textOf writes a document into memory, where no error is possible.
func textOf(v any, write func(io.Writer, any) error) string {
	var text strings.Builder
	if err := write(&text, v); err != nil {
		panic(err)
	}
	return text.String()
}

func asJSON(w io.Writer, v any) error { return WriteJSON(w, v, false) }

func TestReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := any3(3).Draw(t, "v")
		var got any
		text := textOf(v, asJSON)
		if err := json.Unmarshal([]byte(text), &got); err != nil || !reflect.DeepEqual(got, plain(v)) {
			t.Fatalf("%s\n%v: %#v, want %#v", text, err, got, plain(v))
		}
		var back any
		text = textOf(v, WriteYAML)
		if err := yaml.Unmarshal([]byte(text), &back); err != nil || !reflect.DeepEqual(floats(back), plain(v)) {
			t.Fatalf("%s\n%v: %#v, want %#v", text, err, back, plain(v))
		}
	})
}

func TestJSON(t *testing.T) {
	v := Object{{"b", List{1, "x"}}, {"a", Object{}}, {"f", 2.0}, {"bad", "\xff"}, {"none", List{}}}
	want := "{\n  \"b\": [\n    1,\n    \"x\"\n  ],\n  \"a\": {},\n  \"f\": 2.0,\n  \"bad\": \"\ufffd\",\n  \"none\": []\n}\n"
	if got := textOf(v, asJSON); got != want {
		t.Errorf("got %q", got)
	}
}
