package rest

import (
	"encoding/json"
	"net/url"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
)

// FuzzQuery reads query parameters into messages of several shapes.
func FuzzQuery(f *testing.F) {
	for _, text := range []string{"filter.users=ada&filter.users=bob", "filter.all_states=true", "detail=1&filter=x", "a.b.c=1", "filter.jobs=&filter.jobs.x=2", "%zz"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		query, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		if err := fromQuery(query, &apiv1.ListJobsRequest{}); err != nil && err.Error() == "" {
			t.Fatalf("%q is refused without a word", text)
		}
		_ = fromQuery(query, &apiv1.AcctQuery{})     // refused or not, it must come back
		_ = fromQuery(query, &apiv1.SubmitRequest{}) // as above
	})
}

// FuzzCountValues: a document never has more values than were counted.
func FuzzCountValues(f *testing.F) {
	f.Add([]byte(`{"a":[1,"x,[{",{}],"b":null}`))
	f.Add([]byte(`"\",\\",[]`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var document any
		if json.Unmarshal(body, &document) != nil {
			return
		}
		if counted, real := countValues(body), valuesOf(document); counted < real {
			t.Fatalf("%s has %d values, %d are counted", body, real, counted)
		}
	})
}

// valuesOf counts the values of a decoded document that stand for memory of
// their own: texts, numbers, elements and members.
func valuesOf(document any) int {
	n := 1
	switch d := document.(type) {
	case []any:
		n = 0
		for _, element := range d {
			n += valuesOf(element)
		}
	case map[string]any:
		n = 0
		for _, member := range d {
			n += valuesOf(member)
		}
	}
	return n
}
