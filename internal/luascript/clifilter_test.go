package luascript

import (
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/musterhpc/muster/spec"
)

// given are the options of a command with few of them.
type given map[string]string

var errNoOption = errors.New("no such option")

func (g given) Get(name string) (string, bool) { v, ok := g[name]; return v, ok }
func (g given) Given() []string                { return slices.Sorted(maps.Keys(g)) }
func (g given) Drop(name string) error         { delete(g, name); return nil }
func (g given) Set(name, value string) error {
	if name == "no-such-option" {
		return errNoOption
	}
	g[name] = value
	return nil
}

func TestFilter(t *testing.T) {
	text, err := os.ReadFile("testdata/cli_filter.lua")
	if err != nil {
		t.Fatal(err)
	}
	source := &spec.SiteScript{Path: "cli_filter.lua", Text: string(text)}
	for _, c := range []struct {
		name       string
		give, want given
		ok         bool
		says, err  string
	}{
		{"a default", given{"comment": "x"}, given{"comment": "x", "time": "30"}, true, "", ""},
		{"no default for what was given", given{"time": "5"}, given{"time": "5"}, true, "", ""},
		{"advice", given{"time": "5", "gpus": "2"}, given{"time": "5", "gpus": "2", "cpus-per-gpu": "1"}, true, "1 CPU for each GPU is assumed", ""},
		{"an option is taken away", given{"time": "5", "exclusive": "set"}, given{"time": "5"}, true, "", ""},
		{"a refusal", given{"time": "5", "mem": "0"}, nil, false, "--mem=0 takes whole nodes: say how much the job needs", ""},
		{"all as JSON", given{"time": "5", "comment": "json"}, given{"time": "5", "comment": `{"comment":"json","time":"5"}`}, true, "", ""},
		{"an unknown option", given{"comment": "bad"}, nil, false, "", `cli_filter.lua:27: options["no-such-option"]: no such option`},
	} {
		filter, err := LoadFilter(source, "sbatch", "1", nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		ok, said, err := filter.Apply(c.give, 0)
		filter.script.close()
		var words []string
		for _, line := range said {
			words = append(words, line.Text)
		}
		if ok != c.ok || strings.Join(words, "\n") != c.says || (c.want != nil && !maps.Equal(c.give, c.want)) ||
			(err == nil) != (c.err == "") || (err != nil && !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: %v, %v, says %q, %v", c.name, ok, c.give, words, err)
		}
	}
	filter, err := LoadFilter(source, "srun", "1", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer filter.script.close()
	said, err := filter.Submitted(1, 7, 2)
	if err != nil || len(said) != 1 || said[0] != (Line{LevelInfo, "component 1: job 7, step 2"}) {
		t.Errorf("after the submission: %v, %v", said, err)
	}
}
