package slurmapi

import (
	"testing"

	"github.com/musterhpc/muster/cli/schema"
	"github.com/musterhpc/muster/cli/submit"
)

// Every path of every version is answered or refused with a reason, and nothing else
// is.
func TestRoutes(t *testing.T) {
	all := routeTable()
	used := map[string]bool{}
	for _, v := range schema.Versions() {
		for _, p := range schema.Of(v).Paths {
			key := p.Method + " " + p.Plain
			r, ok := all[key]
			used[key] = true
			ways := 0
			for _, set := range []bool{r.show != nil, r.do != nil, r.refused != ""} {
				if set {
					ways++
				}
			}
			if !ok || ways != 1 {
				t.Errorf("%s %s: answered in %d ways, want 1", p.Method, p.Path, ways)
			}
			for _, name := range r.params {
				if p.Param(name) == nil && v == schema.Default {
					t.Errorf("%s %s has no parameter %s", p.Method, p.Path, name)
				}
			}
		}
	}
	for key := range all {
		if !used[key] {
			t.Errorf("%s is not in the table of paths", key)
		}
	}
}

// Every field of a job's description means something in every version, and each
// option that it names is one of sbatch's.
func TestAspects(t *testing.T) {
	all := descriptionAspects()
	options := map[string]bool{}
	for _, o := range submit.Sbatch().Options {
		options[o.Long] = true
	}
	used := map[string]bool{}
	for _, v := range schema.Versions() {
		for _, f := range schema.Of(v).Type("job_desc_msg").Fields {
			used[f.Name] = true
			a, ok := all[f.Name]
			if !ok || (a.option == "" && a.set == nil && a.refused == "" && a.ignored == "") {
				t.Errorf("%s: nothing is said about %s", v, f.Name)
			}
			if a.option != "" && !options[a.option] {
				t.Errorf("%s: sbatch has no option %s", f.Name, a.option)
			}
		}
	}
	for name := range all {
		if !used[name] {
			t.Errorf("job_desc_msg has no field %s", name)
		}
	}
}
