package schema

import (
	"slices"
	"testing"
)

func TestDoubledFields(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
	}{
		{`{"a":1,"b":{"a":2},"c":[{"a":1},{"a":1}]}`, nil},
		{`{"a":1,"a":2}`, []string{"#/a"}},
		{`{"job":{"name":"x","tasks":1,"name":"y"},"job":{}}`, []string{"#/job/name", "#/job"}},
		{`{"jobs":[{"x":1},{"x":[[]],"y":"x","x":{}}]}`, []string{"#/jobs/1/x"}},
		{`{"":1,"a":""}`, nil},
		{`["a","a"]`, nil},
		{`"a"`, nil},
		{`{"a":1,"a":`, []string{"#/a"}},
		{`}`, nil},
		{``, nil},
	} {
		if got := DoubledFields([]byte(c.text)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.text, got, c.want)
		}
	}
}
