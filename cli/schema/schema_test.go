package schema

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/cli/tree"
)

// Every row of the table is of a known kind, every schema that is named exists, and
// every path has an answer.
func TestTable(t *testing.T) {
	for _, v := range Versions() {
		c := Of(v)
		for _, name := range c.Names() {
			var walk func(path string, at *Type)
			walk = func(path string, at *Type) {
				switch {
				case at.Name != "" && at != c.Type(at.Name):
					t.Errorf("%s %s: schema %s does not exist", v, path, at.Name)
				case at.Kind == List:
					if at.Elem == nil {
						t.Errorf("%s %s: a list of nothing", v, path)
					} else if at.Elem.Name == "" {
						walk(path+"/[]", at.Elem)
					}
				case at.Kind == Record:
					for _, f := range at.Fields {
						if strings.ContainsAny(f.Name, "!+@{}<>") {
							t.Errorf("%s %s: field %q", v, path, f.Name)
						}
						if f.Type.Name == "" {
							walk(path+"/"+f.Name, f.Type)
						} else if c.Type(f.Type.Name) != f.Type {
							t.Errorf("%s %s/%s: schema %s does not exist", v, path, f.Name, f.Type.Name)
						}
					}
				}
			}
			walk(name, c.Type(name))
		}
		for _, p := range c.Paths {
			if p.Answer == nil {
				t.Errorf("%s %s has no answer", p.Method, p.Path)
			}
			for _, one := range p.Params {
				if one.InPath != strings.Contains(p.Path, "{"+one.Name+"}") {
					t.Errorf("%s %s: parameter %s", p.Method, p.Path, one.Name)
				}
			}
		}
	}
	// The numbers of rows are those of the facts from which the table was made.
	for v, want := range map[Version][2]int{43: {62, 990}, 44: {68, 1043}, 45: {74, 1345}} {
		c := Of(v)
		fields := 0
		for _, name := range c.Names() {
			at := c.Type(name)
			if at.Kind == List {
				fields++
			}
			for _, f := range at.Fields {
				if !f.Own {
					fields++
				}
			}
		}
		if len(c.Paths) != want[0] || fields != want[1] {
			t.Errorf("%s has %d paths and %d fields, want %d", v, len(c.Paths), fields, want)
		}
	}
}

func TestParseVersion(t *testing.T) {
	for text, want := range map[string]Version{"": 44, "v0.0.43": 43, "data_parser/v0.0.45+fast": 45, "latest": 45} {
		if got, err := ParseVersion(text); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	if _, err := ParseVersion("v0.0.40"); err == nil {
		t.Error("v0.0.40 is not served")
	}
}

// A document is in the shape of its type whatever it was before, and one that is in
// shape stays as it is.
func TestConform(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.SampledFrom(Versions()).Draw(t, "version")
		c := Of(v)
		at := c.Type(rapid.SampledFrom(c.Names()).Draw(t, "schema"))
		once := at.Conform(anything(3).Draw(t, "document"))
		if wrong := at.Mismatches(once); wrong != nil {
			t.Fatalf("%s: %v", at.Name, wrong)
		}
		if a, b := jsonOf(once), jsonOf(at.Conform(once)); a != b {
			t.Fatalf("%s: %s became %s", at.Name, a, b)
		}
	})
}

// A list of texts has texts only, also where the document had something else.
func TestConformListOfTexts(t *testing.T) {
	hostlist := Of(Versions()[0]).Type("hostlist")
	got := hostlist.Conform(tree.List{"n1", 7, false, nil})
	if want := (tree.List{"n1", "7", "", ""}); !slices.Equal(got.(tree.List), want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// jsonOf writes a document into memory, where no error is possible.
func jsonOf(v any) string {
	var text strings.Builder
	if err := tree.WriteJSON(&text, v, true); err != nil {
		panic(err)
	}
	return text.String()
}

func anything(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		kind := rapid.IntRange(0, 7).Draw(t, "kind")
		if depth == 0 {
			kind %= 5
		}
		switch kind {
		case 0:
			return rapid.SampledFrom([]string{"", "PENDING", "x"}).Draw(t, "text")
		case 1:
			return rapid.Bool().Draw(t, "on")
		case 2:
			return rapid.Int64().Draw(t, "n")
		case 3:
			return nil
		case 4:
			return tree.Number{N: 3, Set: true}
		case 5:
			return tree.List(rapid.SliceOfN(anything(depth-1), 0, 3).Draw(t, "list"))
		}
		var out tree.Object
		for _, key := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"jobs", "meta", "errors", "name", "flags", "set", "number", "account", "tres", "state"}), rapid.ID).Draw(t, "keys") {
			out = append(out, tree.Member{Key: key, Value: anything(depth-1).Draw(t, "value")})
		}
		return out
	})
}

func read(t *testing.T, name, body string) Reading {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(body))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return Of(44).Type(name).Read(v)
}

func TestRead(t *testing.T) {
	r := read(t, "job_submit_req", `{"script":"#!/bin/sh\n","job":{"tasks":"4","time_limit":90,"memory_per_node":{"set":true,"number":512},"time_minimum":"INFINITE",
		"priority":{"set":false,"number":7},"environment":{"A":"1"},"excluded_nodes":"n1,n2","mail_type":["begin"],"hold":"yes","name":7,"color":"red","deadline":null}}`)
	job := r.Values.Record("job")
	for name, want := range map[string]any{"tasks": int64(4), "time_limit": tree.Number{N: 90, Set: true}, "memory_per_node": tree.Number{N: 512, Set: true},
		"time_minimum": tree.Number{Infinite: true}, "hold": true, "name": "7", "priority": nil, "deadline": nil} {
		if job[name] != want {
			t.Errorf("%s: %v, want %v", name, job[name], want)
		}
	}
	if !slices.Equal(job.Texts("environment"), []string{"A=1"}) || !slices.Equal(job.Texts("excluded_nodes"), []string{"n1", "n2"}) || !slices.Equal(job.Texts("mail_type"), []string{"BEGIN"}) {
		t.Errorf("lists: %v", job)
	}
	if len(r.Errors) != 0 || len(r.Warnings) != 1 || r.Warnings[0].Path != "#/job/color" {
		t.Errorf("errors %v, warnings %v", r.Errors, r.Warnings)
	}
	r = read(t, "job_submit_req", `{"job":{"tasks":"four","time_limit":{"set":true},"mail_type":["SOMETIMES"],"argv":{"a":[]},"name":{},"cpus_per_task":99999999999}}`)
	var paths []string
	for _, e := range r.Errors {
		paths = append(paths, e.Path)
	}
	want := []string{"#/job/cpus_per_task", "#/job/mail_type/0", "#/job/name", "#/job/tasks", "#/job/time_limit/number"}
	if !slices.Equal(paths, want) {
		t.Errorf("errors at %v, want %v", paths, want)
	}
	for body, want := range map[string]string{`[]`: "#", `{"job":[]}`: "#/job", `{"hetjob":[1]}`: "#/hetjob"} {
		name := "job_alloc_req"
		if r := read(t, name, body); len(r.Errors)+len(r.Warnings) == 0 || !strings.HasPrefix(append(r.Errors, r.Warnings...)[0].Path, want) {
			t.Errorf("%s: %v %v", body, r.Errors, r.Warnings)
		}
	}
}

// Whatever is read, the answer names every problem with a path and never panics.
func FuzzRead(f *testing.F) {
	f.Add(`{"job":{"tasks":4,"time_limit":{"set":true,"infinite":false,"number":5}}}`)
	f.Add(`{"jobs":[{"environment":["A=b"]},null,3]}`)
	f.Add(`[[{}]]`)
	f.Fuzz(func(t *testing.T, body string) {
		d := json.NewDecoder(strings.NewReader(body))
		d.UseNumber()
		var v any
		if d.Decode(&v) != nil {
			return
		}
		for _, name := range []string{"job_submit_req", "openapi_accounts_resp", "kill_jobs_msg"} {
			r := Of(45).Type(name).Read(v)
			for _, p := range append(r.Errors, r.Warnings...) {
				if !strings.HasPrefix(p.Path, "#") || p.Text == "" {
					t.Errorf("a problem without a place: %+v", p)
				}
			}
		}
	})
}
